/* SPDX-License-Identifier: GPL-2.0-only */
/* The record that the program for started programs sends to the manager. */
#ifndef HAWKEYE_EXEC_TRACER_H
#define HAWKEYE_EXEC_TRACER_H

#define COMMAND_BYTES	16	/* TASK_COMM_LEN */

struct started_program {
	unsigned int tgid;
	char command[COMMAND_BYTES];	/* ends with a 0 */
};

#endif
