/* SPDX-License-Identifier: GPL-2.0-only */
/* Finds where the direct map starts and how many levels page tables have. */
#ifndef HAWKEYE_CALIBRATE_H
#define HAWKEYE_CALIBRATE_H

#include "page_tables.h"

/* A value on a page of the manager's own, to recognise the right direct map by. */
u64 magic;
u64 magic_va;

struct calibration {
	u64 pgd;
	u32 depth;
};

/* The page that maps `va`, walked with `base` as the direct map's start; 0 if that leads nowhere. */
static __always_inline u64 own_page(u64 base, u64 pgd, u32 depth, u64 va)
{
	u64 e, table = pgd;

	if (depth == 5) {
		e = entry(table, va >> PGD_SHIFT_5);
		if (!(e & PTE_PRESENT))
			return 0;
		table = table_under(base, e);
	}
	e = entry(table, va >> P4D_SHIFT);
	if (!(e & PTE_PRESENT))
		return 0;
	e = entry(table_under(base, e), va >> PUD_SHIFT);
	if (!(e & PTE_PRESENT) || (e & PTE_HUGE))
		return 0;
	e = entry(table_under(base, e), va >> PMD_SHIFT);
	if (!(e & PTE_PRESENT) || (e & PTE_HUGE))
		return 0;
	e = entry(table_under(base, e), va >> 12);
	if (!(e & PTE_PRESENT))
		return 0;
	return table_under(base, e);
}

/* The direct map starts at a multiple of 1 GiB at or below the page table's root: try them downwards. */
static long try_base(u32 i, struct calibration *c)
{
	u64 base = (c->pgd & ~((1ull << PUD_SHIFT) - 1)) - ((u64)i << PUD_SHIFT);
	u64 page = own_page(base, c->pgd, c->depth, magic_va);
	u64 found = 0;

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
	/* Up to 64 TiB of physical memory in front of the root. */
	c.depth = 4;
	bpf_loop(65536, try_base, &c, 0);
	if (!direct_map) {
		c.depth = 5;
		bpf_loop(65536, try_base, &c, 0);
	}
	return 0;
}

#endif
