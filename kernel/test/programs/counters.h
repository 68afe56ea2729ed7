/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's counters, summed over all zones. */
#ifndef COUNTERS_H
#define COUNTERS_H

/*
 * Base pages; -1 where this kernel does not zero free memory.
 * name: zeroed, served, passed_over, lost or free.
 */
long long prezero_counter(const char *name);

/* A line of /proc/meminfo in KiB; -1 where there is no such line. */
long long meminfo(const char *name);

/* Seconds since boot. */
double seconds_now(void);

/* Page faults of this process so far that needed no I/O. */
long faults_now(void);

#endif
