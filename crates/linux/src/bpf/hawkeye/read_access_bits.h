/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads for a few regions which of their pages are marked accessed, and when it read that. */
#ifndef HAWKEYE_READ_MARKS_H
#define HAWKEYE_READ_MARKS_H

#include "page_tables.h"
#include "walk.h"

u32 marked_regions;
struct region_access_bits marks[MAX_MARKED];

/*
 * Collects which pages of the table in the page buffer are marked accessed. It has no branches, as
 * `count_mixed`.
 */
__noinline int collect_marks(struct region_access_bits *m)
{
	u64 *pte = page_buffer();
	u64 present = 0, protected = 0;

	if (!m || !pte)
		return 0;
	for (u32 word = 0; word < PTES / 64; word++) {
		u64 bits = 0;

#pragma clang loop unroll_count(8)
		for (u32 i = 0; i < 64; i++) {
			u64 e = pte[word * 64 + i];
			u64 here = e & PTE_PRESENT;
			u64 mapped = here | ((e >> 8) & 1);	/* PTE_PROTNONE */

			u64 own = mapped & ~((e >> 9) & here);	/* PTE_SPECIAL: the shared zero page */

			present += own;
			protected += own & ~(e >> 1);		/* PTE_RW */
			/* PTE_ACCESSED; a mark for several pages is one touch. */
			bits |= ((e >> 5) & mapped & is_first_of_mark(e, word * 64 + i)) << i;
		}
		m->accessed[word] = bits;
	}
	m->present = present;
	m->write_protected = protected;
	return 1;
}

static long mark_step(u32 i, struct walk *w)
{
	struct region_access_bits *m;
	u64 e, flags;

	if (i >= marked_regions || i >= MAX_MARKED)
		return 1;
	m = &marks[i];
	m->read = 0;
	w->va = m->va;
	if (!find_pmd_table(w))
		return 0;
	e = entry(w->pmd_table, m->va >> PMD_SHIFT);
	flags = entry_flags(e);
	if (!(flags & (PTE_PRESENT | PTE_PROTNONE)))
		return 0;
	if (flags & PTE_HUGE) {
		u64 all = flags & PTE_ACCESSED ? ~0ull : 0;

		for (u32 word = 0; word < PTES / 64; word++)
			m->accessed[word] = all;
		m->present = flags & (PTE_RW | PTE_DIRTY) ? PTES : 0;
		m->write_protected = flags & PTE_RW ? 0 : m->present;
		m->huge = 1;
	} else {
		u64 table = table_under(direct_map, e);

		if (!table || bpf_probe_read_kernel(w->copy, PAGE_BYTES, (void *)table))
			return 0;
		if (!is_same_table(e, entry(w->pmd_table, m->va >> PMD_SHIFT)))
			return 0;
		table_to_flags();
		collect_marks(m);
		m->huge = 0;
	}
	m->at_ns = bpf_ktime_get_ns();
	m->read = 1;
	return 0;
}

SEC("iter/task")
int read_access_bits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct walk w = {};

	if (!task)
		return 0;
	w.pgd = root_of(task);
	w.copy = page_buffer();
	if (!w.pgd || !w.copy)
		return 0;
	bpf_loop(MAX_MARKED, mark_step, &w, 0);
	result.alive = root_of(task) == w.pgd;
	return 0;
}

#endif
