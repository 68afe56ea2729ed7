/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs share: how this machine translates addresses, and a copy of a table. */
#ifndef HAWKEYE_PAGE_TABLE_STATE_H
#define HAWKEYE_PAGE_TABLE_STATE_H

#include "intf.h"
#include "kernel.h"

/* Found by `calibrate`. */
u64 direct_map;
u32 levels;

/* Input: frames up to the end of physical memory. Memory that is added moves the end. */
u64 memory_frames;
/* Output: an entry pointed behind that end. */
u32 pointed_behind_memory;

/* Copy of the table or page that a program looks at. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64[PTES]);
} page_copy SEC(".maps");

static __always_inline u64 *page_buffer(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&page_copy, &zero);
}

/*
 * The flags of an entry, in the same bits on every processor. entry_flags() and table_to_flags() in
 * page_table_entries.h (arch/) find them. Flags that are not 0 but neither present nor PROTNONE are
 * those of a page in swap. dirty_flag() there finds PTE_DIRTY in what table_to_flags() leaves.
 */
#define PTE_PRESENT	(1ull << 0)
#define PTE_RW		(1ull << 1)
#define PTE_ACCESSED	(1ull << 5)
#define PTE_DIRTY	(1ull << 6)
#define PTE_HUGE	(1ull << 7)	/* in upper levels: maps a page, not a table */
#define PTE_PROTNONE	(1ull << 8)	/* when not present: NUMA hinting, mapped nevertheless */
#define PTE_SPECIAL	(1ull << 9)	/* in anonymous memory: the shared zero page */

#endif
