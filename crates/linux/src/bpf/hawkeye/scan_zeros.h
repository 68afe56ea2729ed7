/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts the base pages of a huge page that are all zeros.
 *
 * A page that is known to be damaged is not in the direct map: the read fails, and the page counts
 * as in use. A memory error that such a read finds stops the machine, as with any other read by the
 * kernel: no read that a BPF program can make is recoverable. The kernel reads the same pages when
 * it splits a huge page or looks for underused ones.
 */
#ifndef HAWKEYE_SCAN_ZEROS_H
#define HAWKEYE_SCAN_ZEROS_H

#include "page_tables.h"

struct zero_scan zero_scan;

struct scan {
	u64 page;		/* direct-map address of the huge page */
	u64 *copy;
	u32 enough;
	u32 zero_pages;
};

/* Whether any of the first `bytes` at `page` is not zero; unreadable memory counts as in use. */
static __always_inline int in_use(u64 *copy, u64 page, const u32 bytes)
{
	u64 any = 0;

	if (bpf_probe_read_kernel(copy, bytes, (void *)page))
		return 1;
#pragma clang loop unroll_count(16)
	for (u32 i = 0; i < bytes / 8; i++)
		any |= copy[i];
	return any != 0;
}

/*
 * Pages of which the first words are read together: the words are far apart in memory, and no read
 * waits for another.
 */
#define SCAN_GROUP	8

static long scan_group(u32 i, struct scan *s)
{
	u64 group = s->page + (u64)i * SCAN_GROUP * PAGE_BYTES;
	u64 first[SCAN_GROUP];

	/* An unreadable word reads as zero here; the reads below find that it is unreadable. */
#pragma clang loop unroll(full)
	for (u32 k = 0; k < SCAN_GROUP; k++)
		bpf_probe_read_kernel(&first[k], sizeof(first[k]), (void *)(group + k * PAGE_BYTES));
	for (u32 k = 0; k < SCAN_GROUP; k++) {
		u64 page = group + k * PAGE_BYTES;

		/* Most pages in use differ within their first bytes (HawkEye, section 3.2: 9 on average). */
		if (first[k] || in_use(s->copy, page, 256) || in_use(s->copy, page, PAGE_BYTES))
			continue;
		s->zero_pages++;
		if (s->zero_pages >= s->enough)
			return 1;
	}
	return 0;
}

SEC("iter/task")
int scan_zeros(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct scan s = {};
	struct walk w = {};
	u64 e, flags, last;

	if (!task)
		return 0;
	w.pgd = root_of(task);
	w.va = zero_scan.va;
	s.copy = page_buffer();
	if (!w.pgd || !s.copy || !find_pmd_table(&w))
		return 0;
	e = entry(w.pmd_table, zero_scan.va >> PMD_SHIFT);
	flags = entry_flags(e);
	if (!(flags & PTE_PRESENT) || !(flags & PTE_HUGE) || !(flags & (PTE_RW | PTE_DIRTY)))
		return 0;
	last = entry_frame(e) | ((1ull << PMD_SHIFT) - 1);
	if (!is_in_memory(last))
		return 0;
	s.page = direct_map + last + 1 - (1ull << PMD_SHIFT);
	s.enough = zero_scan.enough;
	bpf_loop(PTES / SCAN_GROUP, scan_group, &s, 0);
	zero_scan.huge = 1;
	zero_scan.zero_pages = s.zero_pages;
	return 0;
}

#endif
