/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page-table entries of arm64 (arch/arm64/include/asm/pgtable-hwdef.h, pgtable-prot.h). With base
 * pages of 4 KiB, tables have 3 levels for 39 bits of address, 4 for 48 and 5 for 52. With 16 KiB
 * they have 3 for 47 bits, and 4 for 48 and 52. Roots of up to 52 bits have at most 32 entries,
 * which suffice for the addresses of processes.
 *
 * The direct map is the first part of the kernel's half: nothing is mapped before it
 * (Documentation/arch/arm64/memory.rst).
 */
#ifndef HAWKEYE_PAGE_TABLE_ENTRIES_H
#define HAWKEYE_PAGE_TABLE_ENTRIES_H

#include "hawkeye/page_table_state.h"

#define ARM_VALID_BIT		0
#define ARM_TABLE_BIT		1	/* clear in an upper level: a block */
#define ARM_RDONLY_BIT		7	/* clear and writable: the processor marked it dirty */
#define ARM_ACCESSED_BIT	10	/* access flag; also of table entries (FEAT_HAFT) */
#define ARM_WRITABLE_BIT	51
#define ARM_CONTIGUOUS_BIT	52
#define ARM_DIRTY_BIT		55	/* marked dirty by the kernel */
#define ARM_SPECIAL_BIT		56

/*
 * Base pages that one TLB entry may map where all their entries have the contiguous bit: 64 KiB, or
 * 2 MiB with base pages of 16 KiB (Documentation/arch/arm64/hugetlbpage.rst).
 */
#define CONTIGUOUS_PTES		(PAGE_SHIFT == 12 ? 16 : 128)
/* Such an entry, next to the flags of page_table_state.h. */
#define FLAG_CONTIGUOUS_BIT	10
/* An entry that is not empty and maps nothing. */
#define FLAG_SWAPPED_BIT	11

/*
 * The bit of a mapped entry that is not valid: 58 up to Linux 6.10, then 11. Entries of pages in
 * swap have either one set at times, but never the one that their kernel uses.
 */
u32 inaccessible_bit;

/* Learns that bit from the entry of an inaccessible page. */
static __always_inline void learn_inaccessible_entry(u64 e)
{
	inaccessible_bit = e >> 58 & 1 ? 58 : 11;
}

static __always_inline u64 entry_flags(u64 e)
{
	u64 valid = e >> ARM_VALID_BIT & 1;
	u64 inaccessible = (e >> (inaccessible_bit & 63)) & ~valid & 1;
	u64 mapped = valid | inaccessible;
	u64 writable = e >> ARM_WRITABLE_BIT & 1;
	u64 dirty = (e >> ARM_DIRTY_BIT & 1) | (writable & ~(e >> ARM_RDONLY_BIT));
	u64 block = ~(e >> ARM_TABLE_BIT) & 1;
	u64 minus = -e;
	u64 flags, swapped;

	/* Otherwise the compiler makes a branch, and the verifier follows both ways for each entry. */
	barrier_var(minus);
	swapped = ((e | minus) >> 63) & ~mapped;
	flags = PTE_PRESENT * valid | PTE_PROTNONE * inaccessible | PTE_RW * writable |
		PTE_ACCESSED * (e >> ARM_ACCESSED_BIT & 1) | PTE_DIRTY * dirty | PTE_HUGE * block |
		PTE_SPECIAL * (e >> ARM_SPECIAL_BIT & valid) |
		(e >> ARM_CONTIGUOUS_BIT & 1) << FLAG_CONTIGUOUS_BIT;

	return (flags & -mapped) | swapped << FLAG_SWAPPED_BIT;
}

/*
 * Physical address of the page or table that an entry points to. With LPA2, bits 8 and 9 are bits
 * 50 and 51 of the address, and 48 and 49 belong to it, too. Base pages of 4 KiB then have 5
 * levels. With 16 KiB the levels do not tell: bits 48 and 49 are 0 without LPA2, and memory beyond
 * 1 PiB is not read right.
 */
static __always_inline u64 entry_frame(u64 e)
{
	if (PAGE_SHIFT == 14)
		return e & 0x0003ffffffffc000ull;
	if (levels == 5)
		return (e & 0x0003fffffffff000ull) | (e & 0x300) << 42;
	return e & 0x0000fffffffff000ull;
}

static __always_inline int is_same_table(u64 before, u64 e)
{
	return !((before ^ e) & ~(1ull << ARM_ACCESSED_BIT));
}

/*
 * Makes flags of the entries in the page buffer. The processor marks any one of contiguous entries
 * for all of them; Linux, too, takes all for accessed or dirty if one is (contpte_ptep_get).
 * Returns the number of groups of contiguous entries.
 */
__noinline int table_to_flags(void)
{
	u64 *pte = page_buffer();
	u64 entries = 0;

	if (!pte)
		return 0;
	for (u32 group = 0; group < PTES; group += CONTIGUOUS_PTES) {
		u64 marks = 0;

#pragma clang loop unroll_count(4)
		for (u32 i = group; i < group + CONTIGUOUS_PTES; i++) {
			u64 flags = entry_flags(pte[i]);
			u64 contiguous = flags >> FLAG_CONTIGUOUS_BIT & 1;

			pte[i] = flags;
			entries += contiguous;
			marks |= flags & -contiguous;
		}
		marks &= PTE_ACCESSED | PTE_DIRTY;
#pragma clang loop unroll_count(4)
		for (u32 i = group; i < group + CONTIGUOUS_PTES; i++)
			pte[i] |= marks;
	}
	return entries / CONTIGUOUS_PTES;
}

/* PTE_DIRTY of what table_to_flags() made, or 0. */
static __always_inline u64 dirty_flag(u64 flags)
{
	return flags & PTE_DIRTY;
}

#define DIRTY_FLAGS	PTE_DIRTY

/* How many of at most 32 entries are dirty: by the sum of these flags and PTE_PRESENT. */
static __always_inline u32 dirty_entries(u64 sum)
{
	return sum / PTE_DIRTY;
}

/*
 * Whether a page is the first, or the only one, of those that share its mark: 0 or 1, without a
 * branch.
 */
static __always_inline u64 is_first_of_mark(u64 flags, u32 page)
{
	u64 first = ((u64)(page % CONTIGUOUS_PTES) - 1) >> 63;

	return first | (~(flags >> FLAG_CONTIGUOUS_BIT) & 1);
}

#endif
