/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts the entries of a last-level table: present, accessed, written, write-protected, swapped.
 */
#ifndef HAWKEYE_COUNT_TABLE_H
#define HAWKEYE_COUNT_TABLE_H

#include "page_tables.h"

/* As many entries as can be added up before the sum of one flag reaches the next. */
#define PTES_PER_SUM	32

/* Counts a table of flags where every entry is present with memory of its own; 0 if one is not. */
static __always_inline int count_full(const u64 *pte, struct region_record *r)
{
	u32 present = 0, special = 0, written = 0, writable = 0;
	u64 accessed = 0, edges = 0, before = 0;

	for (u32 first = 0; first < PTES; first += PTES_PER_SUM) {
		u64 sum = 0, other_sum = 0;

#pragma clang loop unroll_count(16)
		for (u32 i = first; i < first + PTES_PER_SUM; i++) {
			u64 e = pte[i];
			u64 a = e & PTE_ACCESSED;

			sum += e & (PTE_PRESENT | DIRTY_FLAGS);
			other_sum += e & (PTE_RW | PTE_SPECIAL);
			accessed += a;
			edges += a ^ before;
			before = a;
		}
		present += sum & (2 * PTES_PER_SUM - 1);
		written += dirty_entries(sum);
		writable += other_sum / PTE_RW & (2 * PTES_PER_SUM - 1);
		special += other_sum / PTE_SPECIAL;
	}
	if (present != PTES || special)
		return 0;
	r->present = present;
	r->written = written;
	r->write_protected = present - writable;
	r->accessed = accessed / PTE_ACCESSED;
	/* A run has two edges, but the last run may reach the end of the table. */
	r->runs = (edges / PTE_ACCESSED + (before != 0)) / 2;
	return 1;
}

/*
 * The same for any table. It has no branches, because the verifier follows every path through 512
 * iterations.
 */
static __always_inline void count_mixed(const u64 *pte, struct region_record *r)
{
	u64 mapped_entries = 0, accessed = 0, runs = 0, written = 0, zero = 0, swapped = 0;
	u64 before = 0, protected = 0;

#pragma clang loop unroll_count(8)
	for (u32 i = 0; i < PTES; i++) {
		u64 e = pte[i];
		u64 here = e & PTE_PRESENT;
		u64 mapped = here | ((e >> 8) & 1);	/* PTE_PROTNONE */
		u64 a = (e >> 5) & mapped;		/* PTE_ACCESSED */
		u64 minus = -e;

		/* Otherwise the compiler makes a branch of the code below. */
		barrier_var(minus);
		mapped_entries += mapped;
		zero += (e >> 9) & here;		/* PTE_SPECIAL */
		protected += mapped & ~(e >> 1);	/* PTE_RW */
		swapped += ((e | minus) >> 63) & ~mapped;
		written += (dirty_flag(e) >> 6) & mapped;
		accessed += a;
		runs += a & ~before;
		before = a;
	}
	r->present = mapped_entries - zero;
	r->accessed = accessed;
	r->runs = runs;
	r->written = written;
	/* The shared zero page is never writable. Memory of devices, which looks alike, may be. */
	r->write_protected = protected > zero ? protected - zero : 0;
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
