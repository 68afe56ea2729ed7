/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs and the manager tell each other, through global variables: the loader's skeleton
 * gives Rust the same layout.
 */
#ifndef HAWKEYE_INTF_H
#define HAWKEYE_INTF_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define MAX_RANGES	1024	/* address ranges a call can be given */
#define MAX_RECORDS	2048	/* regions a call can report */
#define MAX_MARKED	64	/* regions whose marks a call can report */

struct address_range {
	u64 start;
	u64 end;
};

/* Input of `walk`; `range` and `va` are where the next call goes on. */
struct walk_request {
	u32 ranges;		/* how many of `walk_ranges` count */
	u32 range;
	u64 va;
	u32 max_tables;		/* last-level tables to read at the most: bounds the call */
	u32 huge_only;		/* report huge pages, pass over base pages unread */
};

struct region_record {
	u64 va;
	u16 present;
	u16 accessed;
	u16 runs;
	u16 written;
	u16 zero_mapped;
	u16 swapped;
	u16 write_protected;	/* of those present: a write would fault, as in memory that is shared copy-on-write */
	u8 huge;
	u8 pad;
};

/* Output of `walk`. */
struct walk_result {
	u32 records;
	u32 done;		/* all ranges are through */
	u32 alive;		/* the task had the same address space throughout */
	u32 changed;		/* regions passed over because their table changed under the read */
};

struct mapping_record {
	u64 start;
	u64 end;
	u64 flags;		/* VM_* bits, include/linux/mm.h */
	u64 has_file;
};

/* Input and output of `read_marks`: one region. */
struct region_marks {
	u64 va;
	u64 at_ns;		/* out: when it was read, CLOCK_MONOTONIC */
	u64 accessed[8];	/* out: one bit a base page; all or none for a huge page */
	u16 present;		/* out: base pages with memory of their own */
	u16 write_protected;	/* out: of these, the ones that a write would fault on */
	u8 huge;		/* out */
	u8 read;		/* out: it could be read, and did not change meanwhile */
	u16 pad;
};

/* Input and output of `scan_zeros`. */
struct zero_scan {
	u64 va;
	u32 enough;		/* stop when that many zero pages are found */
	u32 huge;		/* out: it was a huge page */
	u32 zero_pages;		/* out */
};

#endif
