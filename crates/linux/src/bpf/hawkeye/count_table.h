/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts the entries of a last-level table: present, accessed, written, write-protected, swapped.
 */
#ifndef HAWKEYE_COUNT_TABLE_H
#define HAWKEYE_COUNT_TABLE_H

#include "page_tables.h"

/* Counts a table of flags where every entry is present with memory of its own; 0 if one is not. */
static __always_inline int count_full(const u64 *pte, struct region_record *r)
{
	u32 present = 0, special = 0, written = 0, accessed = 0, edges = 0, writable = 0;
	u64 before = 0;

	/* In halves, so that the sum of bit 0 can't overflow into bit 9. */
	for (u32 half = 0; half < PTES; half += PTES / 2) {
		u64 map_sum = 0, dirty_sum = 0, accessed_sum = 0, edge_sum = 0, rw_sum = 0;

#pragma clang loop unroll_count(16)
		for (u32 i = half; i < half + PTES / 2; i++) {
			u64 e = pte[i];
			u64 a = e & PTE_ACCESSED;

			map_sum += e & (PTE_PRESENT | PTE_SPECIAL);
			dirty_sum += dirty_flag(e);
			rw_sum += e & PTE_RW;
			accessed_sum += a;
			edge_sum += a ^ before;
			before = a;
		}
		present += map_sum & 0x1ff;
		special += map_sum >> 9;
		written += dirty_sum >> 6;
		writable += rw_sum >> 1;
		accessed += accessed_sum >> 5;
		edges += edge_sum >> 5;
	}
	if (present != PTES || special)
		return 0;
	r->present = present;
	r->written = written;
	r->write_protected = present - writable;
	r->accessed = accessed;
	/* A run has two edges, but the last run may reach the end of the table. */
	r->runs = (edges + (before != 0)) / 2;
	return 1;
}

/*
 * The same for any table. It has no branches, because the verifier follows every path through 512
 * iterations.
 */
static __always_inline void count_mixed(const u64 *pte, struct region_record *r)
{
	u64 present = 0, accessed = 0, runs = 0, written = 0, zero = 0, swapped = 0;
	u64 before = 0, protected = 0;

#pragma clang loop unroll_count(8)
	for (u32 i = 0; i < PTES; i++) {
		u64 e = pte[i];
		u64 here = e & PTE_PRESENT;
		u64 mapped = here | ((e >> 8) & 1);	/* PTE_PROTNONE */
		u64 shared_zero = (e >> 9) & here;	/* PTE_SPECIAL */
		u64 a = (e >> 5) & mapped;		/* PTE_ACCESSED */
		u64 minus = -e;

		/* Otherwise the compiler makes a branch of the code below. */
		barrier_var(minus);
		zero += shared_zero;
		present += mapped ^ shared_zero;
		protected += (mapped ^ shared_zero) & ~(e >> 1);	/* PTE_RW */
		swapped += ((e | minus) >> 63) & ~mapped;
		written += (dirty_flag(e) >> 6) & mapped;
		accessed += a;
		runs += a & ~before;
		before = a;
	}
	r->present = present;
	r->accessed = accessed;
	r->runs = runs;
	r->written = written;
	r->write_protected = protected;
	r->zero_mapped = zero;
	r->swapped = swapped;
}

/*
 * Counts the table of flags in the page buffer. It is not static: the verifier checks such a
 * function once, on its own. It checks a static one on every path that leads to it, which is more
 * than Linux 6.1 allows.
 */
__noinline int count_table(struct region_record *r)
{
	u64 *pte = page_buffer();

	if (!r || !pte)
		return 0;
	if (!count_full(pte, r))
		count_mixed(pte, r);
	return 1;
}

#endif
