/* SPDX-License-Identifier: GPL-2.0-only */
/* Sees first touches of memory at the tracepoints of page faults. */
#ifndef HAWKEYE_FIRST_TOUCHES_H
#define HAWKEYE_FIRST_TOUCHES_H

/* arch/x86/include/asm/trap_pf.h */
#define X86_PF_PROT	1	/* a page is present: no first touch */
#define X86_PF_WRITE	2	/* otherwise the process gets the zero page, and needs no memory */

static __always_inline int page_fault(struct bpf_raw_tracepoint_args *ctx)
{
	if ((ctx->args[2] & (X86_PF_PROT | X86_PF_WRITE)) != X86_PF_WRITE)
		return 0;
	return first_touch(ctx->args[0]);
}

SEC("raw_tp/page_fault_user")
int touch_by_program(struct bpf_raw_tracepoint_args *ctx)
{
	return page_fault(ctx);
}

/* Memory that read(2) and similar calls write to first. */
SEC("raw_tp/page_fault_kernel")
int touch_for_program(struct bpf_raw_tracepoint_args *ctx)
{
	return (s64)ctx->args[0] < 0 ? 0 : page_fault(ctx);
}

#endif
