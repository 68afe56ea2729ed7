/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sees first touches of memory. There is no tracepoint of page faults, so the programs are entered
 * with functions of the kernel: with do_mem_abort, or where the kernel cannot do that, as before
 * Linux 6.4, with the two functions that get memory for an empty entry. These do not see first
 * touches that get a page between the two sizes (Linux 6.8 and later).
 */
#ifndef HAWKEYE_FIRST_TOUCHES_H
#define HAWKEYE_FIRST_TOUCHES_H

#include <bpf/bpf_core_read.h>

/* arch/arm64/include/asm/esr.h */
#define ESR_FAULT_STATUS	0x3f
#define ESR_WRITE		(1 << 6)
#define ESR_CACHE_MAINTENANCE	(1 << 8)	/* counts as a write, but only reads */

/* No entry maps the address, on level 0 to 3 or on level -1 (LPA2). Otherwise a page is present. */
static __always_inline int is_translation_fault(u64 esr)
{
	u64 status = esr & ESR_FAULT_STATUS;

	return (status & ~3) == 4 || status == 0x2b;
}

/* do_mem_abort(far, esr, registers): faults of programs, and of calls like read(2) for them. */
SEC("fentry/do_mem_abort")
int touch_by_access(u64 *ctx)
{
	u64 far = ctx[0], esr = ctx[1];

	/* Without a write the process gets the zero page, and needs no memory. */
	if ((esr & (ESR_WRITE | ESR_CACHE_MAINTENANCE)) != ESR_WRITE || !is_translation_fault(esr))
		return 0;
	/* Bit 55 is set in addresses of the kernel; the bits above it may be a tag. */
	if (far >> 55 & 1)
		return 0;
	return first_touch(far & ((1ull << 55) - 1));
}

struct function_arguments {
	u64 x[8];	/* registers 0 to 7: the start of struct pt_regs */
};

/* alloc_zeroed_user_highpage_movable(vma, address) */
SEC("kprobe/alloc_zeroed_user_highpage_movable")
int touch_of_base_page(struct function_arguments *arguments)
{
	return first_touch(arguments->x[1]);
}

/* vma_alloc_zeroed_movable_folio(vma, address): its name since Linux 6.3 (arch/arm64/mm/fault.c) */
SEC("kprobe/vma_alloc_zeroed_movable_folio")
int touch_of_base_folio(struct function_arguments *arguments)
{
	return first_touch(arguments->x[1]);
}

enum fault_flag {
	FAULT_FLAG_WRITE = 1,
};

struct vm_fault {
	unsigned long address;
	enum fault_flag flags;
} __attribute__((preserve_access_index));

/* do_huge_pmd_anonymous_page(fault) */
SEC("kprobe/do_huge_pmd_anonymous_page")
int touch_of_huge_page(struct function_arguments *arguments)
{
	struct vm_fault *fault = (struct vm_fault *)arguments->x[0];

	if (!(BPF_CORE_READ(fault, flags) & FAULT_FLAG_WRITE))
		return 0;
	return first_touch(BPF_CORE_READ(fault, address));
}

#endif
