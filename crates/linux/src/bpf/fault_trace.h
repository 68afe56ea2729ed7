/* SPDX-License-Identifier: GPL-2.0-only */
/* Data shared by the program that watches first touches and the manager. */
#ifndef HAWKEYE_FAULT_TRACE_H
#define HAWKEYE_FAULT_TRACE_H

#include "page_geometry.h"

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define MAX_WATCHED	4096	/* processes */
#define TRACKS		8	/* places per process where touches are followed; a power of two */
#define MAX_STEP	16	/* most regions from one touched region to the next */
#define MAX_WINDOW	128	/* most steps that may have been filled ahead */
#define DENSE_TOUCHES	(PTES / 8)

/* A place where a process touches memory. */
struct track {
	u64 region;		/* address >> PMD_SHIFT */
	s64 step;		/* regions; 0: not known yet */
	u32 touches;		/* faults in this region */
	u32 advances;		/* steps so far */
	u64 at;			/* time of the last step, in ns */
};

/*
 * Prefault can't keep ahead of a process that takes a step in less than this: zeroing a huge page
 * takes ten times as long.
 */
#define TOO_FAST_NS	20000

/*
 * Limits of the score: touches that continue a track raise it, other touches lower it. A process
 * that touches memory at random has nearly none of the first kind; then only one burst of
 * 2^BURST_SHIFT faults in SKIPPED is looked at.
 */
#define BEST_SCORE	64
#define WORST_SCORE	-64
#define SKIPPED		16	/* a power of two */
#define BURST_SHIFT	8

/* What the manager reads and writes of a watched process. */
struct touch_counts {
	/* First touches in order, and at random. Threads that count at once may lose counts. */
	u64 in_order;
	u64 at_random;
	u32 paused;		/* nothing is looked at or counted */
	u32 pad;
};

struct watched {
	struct track tracks[TRACKS];
	u32 turn;
	s32 score;
	u32 skipped;
	u32 pad;
	struct touch_counts counts;	/* the manager expects them at the end */
};

struct advance {
	u64 region;
	s64 step;
	u32 tgid;
	u32 dense;		/* DENSE_TOUCHES or more touches in the previous region */
};

#endif
