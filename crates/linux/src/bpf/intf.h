/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Data that the programs and the manager share through global variables. The loader's skeleton
 * gives Rust the same layout.
 */
#ifndef HAWKEYE_INTF_H
#define HAWKEYE_INTF_H

#include "page_geometry.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define MAX_RANGES	1024	/* most address ranges that a call accepts */
#define MAX_RECORDS	2048	/* most regions that a call can report */
#define MAX_MARKED	64	/* most regions for which a call can report marks */

struct address_range {
	u64 start;
	u64 end;
};

/* Input of `walk`; the next call continues at `range` and `va`. */
struct walk_request {
	u32 ranges;		/* number of valid entries in `walk_ranges` */
	u32 range;
	u64 va;
	u32 max_tables;		/* most last-level tables to read: bounds the call */
	u32 huge_only;		/* report huge pages, skip base pages unread */
};

struct region_record {
	u64 va;
	u16 present;
	u16 accessed;
	u16 runs;
	u16 written;
	u16 zero_mapped;
	u16 swapped;
	u16 write_protected;	/* present, but a write would fault: shared copy-on-write, for example */
	u8 huge;
	u8 contiguous;		/* groups of pages, each in one TLB entry (0 to 32) */
};

/* Output of `walk`. */
struct walk_result {
	u32 records;
	u32 done;		/* all ranges are done */
	u32 alive;		/* the task had the same address space throughout */
	u32 changed;		/* regions skipped because their table changed during the read */
};

#define FILE_NONE	0
#define FILE_OTHER	1
#define FILE_TMPFS	2

struct mapping_record {
	u64 start;
	u64 end;
	u64 flags;		/* VM_* bits, include/linux/mm.h */
	u64 file;		/* FILE_NONE, FILE_OTHER or FILE_TMPFS */
	/* Of a tmpfs file. */
	u64 device;
	u64 inode;
	u64 offset;		/* in the file, of `start`, in bytes */
	u64 pad;		/* a packet of an answer has a whole number of records */
};

/* Input and output of `read_access_bits`: one region. */
struct region_access_bits {
	u64 va;
	u64 at_ns;		/* out: time of the read, CLOCK_MONOTONIC */
	u64 accessed[PTES / 64];	/* out: one bit per base page; all or none for a huge page; of pages
				 * that one TLB entry maps together only the first */
	u16 present;		/* out: base pages with memory of their own */
	u16 write_protected;	/* out: those of them where a write would fault */
	u8 huge;		/* out */
	u8 read;		/* out: the region was read, and did not change meanwhile */
	u16 pad;
};

/* Input and output of `scan_zeros`. */
struct zero_scan {
	u64 va;
	u32 enough;		/* stop after this number of zero pages */
	u32 huge;		/* out: it was a huge page */
	u32 zero_pages;		/* out */
};

#endif
