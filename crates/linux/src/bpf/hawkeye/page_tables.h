/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page tables, read through the kernel's direct map without its locks, by reads that fail instead
 * of faulting. A table that is freed meanwhile yields wrong data at worst. An entry is therefore
 * read again after the table under it. The new owner of such a table can write any entry into it.
 * None is followed behind the end of memory, where the mappings of devices are.
 */
#ifndef HAWKEYE_PAGE_TABLES_H
#define HAWKEYE_PAGE_TABLES_H

#include "page_table_entries.h"
#include "page_table_state.h"

static __always_inline u64 entry(u64 table, u64 index)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)(table + (index & (PTES - 1)) * 8));
	return value;
}

static __always_inline int is_in_memory(u64 physical_address)
{
	if (physical_address >> PAGE_SHIFT < memory_frames)
		return 1;
	pointed_behind_memory = 1;
	return 0;
}

/* The page or table that an entry points to; 0 if the entry points to no memory. */
static __always_inline u64 table_under(u64 base, u64 e)
{
	u64 frame = entry_frame(e);

	return is_in_memory(frame) ? base + frame : 0;
}

/* Whether an entry of an upper level points to a table of the level below. */
static __always_inline int points_to_table(u64 e)
{
	return (entry_flags(e) & (PTE_PRESENT | PTE_HUGE)) == PTE_PRESENT;
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
		table = entry_flags(e) & PTE_PRESENT ? table_under(direct_map, e) : 0;
		if (!table) {
			w->va = (w->va | ((1ull << PGD_SHIFT_5) - 1)) + 1;
			return 0;
		}
	}
	if (levels >= 4) {
		e = entry(table, w->va >> P4D_SHIFT);
		table = entry_flags(e) & PTE_PRESENT ? table_under(direct_map, e) : 0;
		if (!table) {
			w->va = (w->va | ((1ull << P4D_SHIFT) - 1)) + 1;
			return 0;
		}
	}
	e = entry(table, w->va >> PUD_SHIFT);
	table = points_to_table(e) ? table_under(direct_map, e) : 0;
	if (!table) {
		w->va = (w->va | ((1ull << PUD_SHIFT) - 1)) + 1;
		return 0;
	}
	w->pmd_table = table;
	w->pmd_until = (w->va | ((1ull << PUD_SHIFT) - 1)) + 1;
	return 1;
}

#endif
