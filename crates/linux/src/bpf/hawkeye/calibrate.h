/* SPDX-License-Identifier: GPL-2.0-only */
/* Finds where the direct map starts and how many levels page tables have. */
#ifndef HAWKEYE_CALIBRATE_H
#define HAWKEYE_CALIBRATE_H

#include "page_tables.h"

/* Input: frames up to the end of physical memory. */
u64 memory_frames;
/* Output: the highest address that was read, and the highest candidate. */
u64 calibration_highest;
u64 calibration_highest_base;

/* A value on one of the manager's own pages: the right direct map leads to it. */
u64 magic;
u64 magic_va;

/*
 * Start of the kernel's half of the address space with four levels. With five, the direct map ends
 * before it (Documentation/arch/x86/x86_64/mm.rst).
 */
#define KERNEL_HALF_4 0xffff800000000000ull

struct calibration {
	u64 pgd;
	u32 depth;
};

/* The page or table that an entry points to; 0 if the entry points to no memory. */
static __always_inline u64 candidate_under(u64 base, u64 e)
{
	u64 address = table_under(base, e);

	if ((e & PTE_PFN) >> 12 >= memory_frames)
		return 0;
	if (address > calibration_highest)
		calibration_highest = address;
	return address;
}

/*
 * The page that maps `va`, found by a walk with `base` as the direct map's start; 0 if there is
 * none.
 */
static __always_inline u64 own_page(u64 base, u64 pgd, u32 depth, u64 va)
{
	u64 e, table = pgd;

	if (depth == 5) {
		e = entry(table, va >> PGD_SHIFT_5);
		if (!(e & PTE_PRESENT))
			return 0;
		table = candidate_under(base, e);
		if (!table)
			return 0;
	}
	e = entry(table, va >> P4D_SHIFT);
	if (!(e & PTE_PRESENT))
		return 0;
	table = candidate_under(base, e);
	if (!table)
		return 0;
	e = entry(table, va >> PUD_SHIFT);
	if (!(e & PTE_PRESENT) || (e & PTE_HUGE))
		return 0;
	table = candidate_under(base, e);
	if (!table)
		return 0;
	e = entry(table, va >> PMD_SHIFT);
	if (!(e & PTE_PRESENT) || (e & PTE_HUGE))
		return 0;
	table = candidate_under(base, e);
	if (!table)
		return 0;
	e = entry(table, va >> 12);
	if (!(e & PTE_PRESENT))
		return 0;
	return candidate_under(base, e);
}

/* Number of GiB that physical memory extends over. */
static __always_inline u32 memory_gib(void)
{
	return (memory_frames >> (PUD_SHIFT - 12)) + 1;
}

/*
 * The direct map starts at a multiple of 1 GiB, at most the size of physical memory below the page
 * table's root. This tries candidates upwards. Up to the right one, no address that it reads lies
 * behind the direct map, where the mappings of devices are. Addresses before the direct map are
 * unmapped, or memory (Documentation/arch/x86/x86_64/mm.rst).
 */
static long try_base(u32 i, struct calibration *c)
{
	u64 root = c->pgd & ~((1ull << PUD_SHIFT) - 1);
	u64 base = root - ((u64)memory_gib() << PUD_SHIFT) + ((u64)i << PUD_SHIFT);
	u64 page, found = 0;

	if (i > memory_gib())
		return 1;
	if (base > calibration_highest_base)
		calibration_highest_base = base;
	page = own_page(base, c->pgd, c->depth, magic_va);
	if (!page)
		return 0;
	bpf_probe_read_kernel(&found, sizeof(found), (void *)(page + (magic_va & (PAGE_BYTES - 1))));
	if (found != magic)
		return 0;
	direct_map = base;
	levels = c->depth;
	return 1;
}

SEC("iter/task")
int calibrate(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct calibration c = {};

	if (!task || direct_map)
		return 0;
	c.pgd = root_of(task);
	if (!c.pgd)
		return 0;
	/*
	 * The depth must be known first: walks with too few levels accept no candidate, and go on
	 * to those behind the direct map.
	 */
	c.depth = c.pgd >= KERNEL_HALF_4 ? 4 : 5;
	/* Up to 64 TiB of physical memory. */
	bpf_loop(65538, try_base, &c, 0);
	return 0;
}

#endif
