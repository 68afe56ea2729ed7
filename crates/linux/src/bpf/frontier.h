/* SPDX-License-Identifier: GPL-2.0-only */
/* What the program that watches first touches and the manager tell each other. */
#ifndef HAWKEYE_FRONTIER_H
#define HAWKEYE_FRONTIER_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define REGION_SHIFT	21
#define MAX_WATCHED	4096	/* processes */
#define TRACKS		8	/* places of a process where touches are followed; a power of two */
#define MAX_STEP	16	/* regions from one touched one to the next, at the most */
#define MAX_WINDOW	128	/* steps that may have been filled ahead, at the most */
#define DENSE_TOUCHES	64	/* of 512 base pages */

/* A place where a process touches memory. */
struct track {
	u64 region;		/* address >> REGION_SHIFT */
	s64 step;		/* regions, 0: not known yet */
	u32 touches;		/* faults in this region */
	u32 advances;		/* steps so far */
	u64 at;			/* when the last was, in ns */
};

/* Whoever takes a step in less than this can't be filled ahead of: zeroing a huge page takes ten times as long. */
#define TOO_FAST_NS	20000

/*
 * Touches that go on where others were, over touches that don't. Somebody who touches memory at random has next to
 * none of the first kind; then one burst of 2^BURST_SHIFT faults in SKIPPED is looked at.
 */
#define BEST_SCORE	64
#define WORST_SCORE	-64
#define SKIPPED		16	/* a power of two */
#define BURST_SHIFT	8

struct watched {
	struct track tracks[TRACKS];
	u32 turn;
	s32 score;
	u32 skipped;
	u32 pad;
};

struct advance {
	u64 region;
	s64 step;
	u32 tgid;
	u32 dense;		/* DENSE_TOUCHES or more in the region before */
};

#endif
