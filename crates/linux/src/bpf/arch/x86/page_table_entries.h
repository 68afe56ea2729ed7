/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table entries of x86-64 (arch/x86/include/asm/pgtable_types.h). Tables have 4 or 5 levels.
 *
 * Addresses before the direct map are unmapped, or memory (Documentation/arch/x86/x86_64/mm.rst).
 */
#ifndef HAWKEYE_PAGE_TABLE_ENTRIES_H
#define HAWKEYE_PAGE_TABLE_ENTRIES_H

#include "hawkeye/page_table_state.h"

/* The flags of page_table_state.h are in the places of this processor. */
static __always_inline u64 entry_flags(u64 e)
{
	return e;
}

/* Physical address of the page or table that an entry points to. */
static __always_inline u64 entry_frame(u64 e)
{
	return e & 0x000ffffffffff000ull;
}

/*
 * Whether an entry points to the same table as before. The accessed and dirty bits mean nothing in
 * a table entry.
 */
static __always_inline int is_same_table(u64 before, u64 e)
{
	return !((before ^ e) & ~(PTE_ACCESSED | PTE_DIRTY));
}

/* Makes flags of the entries in the page buffer. No group of pages has one mark. */
static __always_inline int table_to_flags(void)
{
	return 0;
}

/* Whether a page is the first, or the only one, of those that share its mark. */
static __always_inline u64 is_first_of_mark(u64 flags, u32 page)
{
	return 1;
}

/* Entries of inaccessible pages need no search: see PTE_PROTNONE. */
static __always_inline void learn_inaccessible_entry(u64 e)
{
}

#endif
