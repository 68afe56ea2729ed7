/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Coverage: reports every region with memory in the requested ranges, with the counts of its table.
 */
#ifndef HAWKEYE_WALK_H
#define HAWKEYE_WALK_H

#include "count_table.h"
#include "page_tables.h"

struct walk_request request;
struct walk_result result;
struct address_range walk_ranges[MAX_RANGES];
struct region_record records[MAX_RECORDS];

static __always_inline void read_region(struct walk *w, u64 va)
{
	u64 e = entry(w->pmd_table, va >> PMD_SHIFT);
	u64 flags = entry_flags(e);
	struct region_record *r;
	u32 n = result.records;
	u64 table;

	if (!(flags & (PTE_PRESENT | PTE_PROTNONE)))
		return;
	if (n >= MAX_RECORDS)
		return;
	r = &records[n];
	if (flags & PTE_HUGE) {
		/* Anonymous huge pages are dirty from the start; a clean read-only one is the huge zero page. */
		int zero = !(flags & (PTE_RW | PTE_DIRTY));

		r->va = va;
		r->present = zero ? 0 : PTES;
		r->accessed = flags & PTE_ACCESSED ? PTES : 0;
		r->runs = flags & PTE_ACCESSED ? 1 : 0;
		r->written = flags & PTE_DIRTY ? PTES : 0;
		r->write_protected = zero || flags & PTE_RW ? 0 : PTES;
		r->zero_mapped = zero ? PTES : 0;
		r->swapped = 0;
		r->huge = 1;
		r->contiguous = 0;
		result.records = n + 1;
		return;
	}
	if (request.huge_only || !(flags & PTE_PRESENT))
		return;
	w->tables++;
	table = table_under(direct_map, e);
	if (!table || bpf_probe_read_kernel(w->copy, PAGE_BYTES, (void *)table))
		return;
	/* Promoted, freed or moved while it was read? */
	if (!is_same_table(e, entry(w->pmd_table, va >> PMD_SHIFT))) {
		result.changed++;
		return;
	}
	r->va = va;
	r->zero_mapped = 0;
	r->swapped = 0;
	r->huge = 0;
	r->contiguous = table_to_flags();
	count_table(r);
	if (r->present || r->zero_mapped || r->swapped)
		result.records = n + 1;
}

static long walk_step(u32 i, struct walk *w)
{
	u64 va = w->va;

	if (va >= w->end) {
		u32 next = w->range + 1;

		w->range = next;
		if (next >= request.ranges || next >= MAX_RANGES) {
			result.done = 1;
			return 1;
		}
		w->va = walk_ranges[next].start;
		w->end = walk_ranges[next].end;
		w->pmd_table = 0;
		return 0;
	}
	if (w->tables >= request.max_tables || result.records >= MAX_RECORDS)
		return 1;
	if (!w->pmd_table || va >= w->pmd_until) {
		w->pmd_table = 0;
		if (!find_pmd_table(w))
			return 0;
	}
	w->va = va + (1ull << PMD_SHIFT);
	read_region(w, va);
	return 0;
}

SEC("iter/task")
int walk(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct walk w = {};
	u32 first = request.range;

	if (!task)
		return 0;
	w.pgd = root_of(task);
	w.copy = page_buffer();
	if (!w.pgd || !w.copy)
		return 0;
	if (first >= MAX_RANGES || first >= request.ranges) {
		result.alive = 1;
		result.done = 1;
		return 0;
	}
	w.range = first;
	w.va = request.va;
	w.end = walk_ranges[first].end;
	bpf_loop(16384, walk_step, &w, 0);
	request.range = w.range;
	request.va = w.va;
	/* If the task exited meanwhile, another process may own the pages that were read. */
	result.alive = root_of(task) == w.pgd;
	return 0;
}

#endif
