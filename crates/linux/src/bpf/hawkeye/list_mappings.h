/* SPDX-License-Identifier: GPL-2.0-only */
/* Lists the mappings of a process. */
#ifndef HAWKEYE_LIST_MAPPINGS_H
#define HAWKEYE_LIST_MAPPINGS_H

#include "intf.h"
#include "kernel.h"

u32 mappings_found;
u32 mappings_full;
u64 mappings_from;
struct mapping_record mappings[MAX_MAPPINGS];

SEC("iter/task_vma")
int list_mappings(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	struct mapping_record *m;
	u32 i = mappings_found;
	u64 start;

	if (!task || !vma)
		return 0;
	start = vma->vm_start;
	if (start < mappings_from)
		return 0;
	if (i >= MAX_MAPPINGS) {
		mappings_full = 1;
		return 0;
	}
	m = &mappings[i];
	m->start = start;
	m->end = vma->vm_end;
	m->flags = vma->vm_flags;
	m->has_file = vma->vm_file != 0;
	m->process = task->tgid;
	mappings_found = i + 1;
	return 0;
}

#endif
