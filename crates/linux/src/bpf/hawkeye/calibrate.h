/* SPDX-License-Identifier: GPL-2.0-only */
/* Finds where the direct map starts and how many levels page tables have. */
#ifndef HAWKEYE_CALIBRATE_H
#define HAWKEYE_CALIBRATE_H

#include "page_tables.h"

/* Output: the highest address that was read, and the highest candidate. */
u64 calibration_highest;
u64 calibration_highest_base;

/* A value on one of the manager's own pages: the right direct map leads to it. */
u64 magic;
u64 magic_va;
/* Another such page, which it may not access. */
u64 inaccessible_va;

/* As table_under(), but records the address. */
static __always_inline u64 candidate_under(u64 base, u64 e)
{
	u64 address = table_under(base, e);

	if (address > calibration_highest)
		calibration_highest = address;
	return address;
}

/*
 * The last-level entry for `va`, found by a walk with `base` as the direct map's start; 0 if there
 * is none.
 */
static __always_inline u64 own_entry(u64 base, u64 pgd, u64 va)
{
	u64 e, table = pgd;

	if (levels == 5) {
		e = entry(table, va >> PGD_SHIFT_5);
		if (!(entry_flags(e) & PTE_PRESENT))
			return 0;
		table = candidate_under(base, e);
		if (!table)
			return 0;
	}
	if (levels >= 4) {
		e = entry(table, va >> P4D_SHIFT);
		if (!(entry_flags(e) & PTE_PRESENT))
			return 0;
		table = candidate_under(base, e);
		if (!table)
			return 0;
	}
	e = entry(table, va >> PUD_SHIFT);
	if (!points_to_table(e))
		return 0;
	table = candidate_under(base, e);
	if (!table)
		return 0;
	e = entry(table, va >> PMD_SHIFT);
	if (!points_to_table(e))
		return 0;
	table = candidate_under(base, e);
	if (!table)
		return 0;
	return entry(table, va >> PAGE_SHIFT);
}

#define GIB_SHIFT	30

/* Number of GiB that physical memory extends over. */
static __always_inline u32 memory_gib(void)
{
	return (memory_frames >> (GIB_SHIFT - PAGE_SHIFT)) + 1;
}

/*
 * The direct map starts at a multiple of 1 GiB, at most the size of physical memory below the page
 * table's root. This tries candidates upwards. Up to the right one, no address that it reads lies
 * behind the direct map, where the mappings of devices are. What is before it:
 * page_table_entries.h.
 */
static long try_base(u32 i, u64 *pgd)
{
	u64 root = *pgd & ~((1ull << GIB_SHIFT) - 1);
	u64 base = root - ((u64)memory_gib() << GIB_SHIFT) + ((u64)i << GIB_SHIFT);
	u64 e, page = 0, found = 0;

	if (i > memory_gib())
		return 1;
	if (base > calibration_highest_base)
		calibration_highest_base = base;
	e = own_entry(base, *pgd, magic_va);
	if (entry_flags(e) & PTE_PRESENT)
		page = candidate_under(base, e);
	if (!page)
		return 0;
	bpf_probe_read_kernel(&found, sizeof(found), (void *)(page + (magic_va & (PAGE_BYTES - 1))));
	if (found != magic)
		return 0;
	learn_inaccessible_entry(own_entry(base, *pgd, inaccessible_va));
	direct_map = base;
	return 1;
}

SEC("iter/task")
int calibrate(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	u64 size, pgd;

	if (!task || direct_map)
		return 0;
	pgd = root_of(task);
	if (!pgd)
		return 0;
	/*
	 * The depth must be known first: walks with too few levels accept no candidate, and go on
	 * to those behind the direct map. Each level above the third is there for the addresses
	 * that the others cannot express.
	 */
	size = task->mm->task_size;
	levels = size > 1ull << PGD_SHIFT_5 ? 5 : size > 1ull << P4D_SHIFT ? 4 : 3;
	/* Up to 64 TiB of physical memory. */
	bpf_loop(65538, try_base, &pgd, 0);
	return 0;
}

#endif
