/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table entries of x86-64 (arch/x86/include/asm/pgtable_types.h). Tables have 4 or 5 levels.
 *
 * Addresses before the direct map are unmapped, or memory (Documentation/arch/x86/x86_64/mm.rst).
 */
#ifndef HAWKEYE_PAGE_TABLE_ENTRIES_H
#define HAWKEYE_PAGE_TABLE_ENTRIES_H

#include "hawkeye/page_table_state.h"

/*
 * From Linux 6.6 on, the dirty bit of an entry that becomes read-only moves here, on all processors
 * (mksaveddirty_shift). Earlier kernels mark memory of devices with it, which is never anonymous.
 */
#define X86_SAVED_DIRTY_BIT	58
#define X86_DIRTY_BIT		6

/* PTE_DIRTY of an entry as table_to_flags() leaves it, or 0. */
static __always_inline u64 dirty_flag(u64 e)
{
	return (e | e >> (X86_SAVED_DIRTY_BIT - X86_DIRTY_BIT)) & PTE_DIRTY;
}

/* The flags of which dirty_flag() makes one. An entry has one of them at most. */
#define DIRTY_FLAGS	(PTE_DIRTY | 1ull << X86_SAVED_DIRTY_BIT)

/* How many of at most 32 entries are dirty: by the sum of these flags and PTE_PRESENT. */
static __always_inline u32 dirty_entries(u64 sum)
{
	return (sum / PTE_DIRTY & 63) + (sum >> X86_SAVED_DIRTY_BIT);
}

/* The other flags of page_table_state.h are in the places of this processor. */
static __always_inline u64 entry_flags(u64 e)
{
	return e | dirty_flag(e);
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

/*
 * Leaves the entries in the page buffer as they are: all flags but PTE_DIRTY, which dirty_flag()
 * finds, are in their places. No group of pages has one mark.
 */
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
