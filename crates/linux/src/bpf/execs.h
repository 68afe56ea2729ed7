/* SPDX-License-Identifier: GPL-2.0-only */
/* What the program that reports started programs tells the manager. */
#ifndef HAWKEYE_EXECS_H
#define HAWKEYE_EXECS_H

#define COMMAND_BYTES	16	/* TASK_COMM_LEN */

struct started_program {
	unsigned int tgid;
	char command[COMMAND_BYTES];	/* ends with a 0 */
};

#endif
