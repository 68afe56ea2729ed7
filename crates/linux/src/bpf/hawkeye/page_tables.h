/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page tables, read through the kernel's direct map without its locks, by reads that fail instead
 * of faulting. A table that is freed meanwhile yields wrong data at worst. An entry is therefore
 * read again after the table under it.
 */
#ifndef HAWKEYE_PAGE_TABLES_H
#define HAWKEYE_PAGE_TABLES_H

#include "intf.h"
#include "kernel.h"

/* How this machine translates addresses, found by `calibrate`. */
u64 direct_map;
u32 levels;

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

static __always_inline u64 entry(u64 table, u64 index)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)(table + (index & (PTES - 1)) * 8));
	return value;
}

static __always_inline u64 table_under(u64 base, u64 e)
{
	return base + (e & PTE_PFN);
}

/* The root of a task's page table, 0 if it has no address space. */
static __always_inline u64 root_of(struct task_struct *task)
{
	struct mm_struct *mm = task->mm;
	u64 pgd = 0;

	if (mm)
		bpf_probe_read_kernel(&pgd, sizeof(pgd), __builtin_preserve_access_index(&mm->pgd));
	return pgd;
}

/* A walk through the page table of one process, and its progress. */
struct walk {
	u64 va;
	u64 end;
	u64 pgd;
	u64 pmd_table;		/* direct-map address of the page-middle table for `va`, 0: look it up */
	u64 pmd_until;		/* first address that this table doesn't map */
	u64 *copy;
	u32 range;
	u32 tables;
};

/* Finds the page-middle table for w->va. Where nothing is mapped, moves w->va past the hole. */
static __always_inline int find_pmd_table(struct walk *w)
{
	u64 e, table = w->pgd;

	if (levels == 5) {
		e = entry(table, w->va >> PGD_SHIFT_5);
		if (!(e & PTE_PRESENT)) {
			w->va = (w->va | ((1ull << PGD_SHIFT_5) - 1)) + 1;
			return 0;
		}
		table = table_under(direct_map, e);
	}
	e = entry(table, w->va >> P4D_SHIFT);
	if (!(e & PTE_PRESENT)) {
		w->va = (w->va | ((1ull << P4D_SHIFT) - 1)) + 1;
		return 0;
	}
	e = entry(table_under(direct_map, e), w->va >> PUD_SHIFT);
	if (!(e & PTE_PRESENT) || (e & PTE_HUGE)) {
		w->va = (w->va | ((1ull << PUD_SHIFT) - 1)) + 1;
		return 0;
	}
	w->pmd_table = table_under(direct_map, e);
	w->pmd_until = (w->va | ((1ull << PUD_SHIFT) - 1)) + 1;
	return 1;
}

#endif
