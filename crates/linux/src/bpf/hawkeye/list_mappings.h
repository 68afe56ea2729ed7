/* SPDX-License-Identifier: GPL-2.0-only */
/* Lists the mappings of a process, and finds the one at an address. */
#ifndef HAWKEYE_LIST_MAPPINGS_H
#define HAWKEYE_LIST_MAPPINGS_H

#include "intf.h"
#include "kernel.h"

/* Input: the address. */
u64 mapping_at;
/* Output: 1 found, 0 nothing is mapped there or the process is gone, -EBUSY its lock is taken. */
s64 mapping_found;
struct mapping_record found_mapping;

static __always_inline void record_mapping(struct mapping_record *m, struct vm_area_struct *vma)
{
	u64 flags = vma->vm_flags;
	struct file *file = vma->vm_file;

	/* The bit of minor faults differs between kernels; the registration itself does not. */
	if (!(flags & (VM_UFFD_MISSING | VM_UFFD_WP)) &&
	    bpf_core_field_exists(vma->vm_userfaultfd_ctx.ctx) && vma->vm_userfaultfd_ctx.ctx)
		flags |= VM_UFFD_MISSING;
	m->start = vma->vm_start;
	m->end = vma->vm_end;
	m->flags = flags;
	m->file = file ? FILE_OTHER : FILE_NONE;
	m->device = 0;
	m->inode = 0;
	m->offset = 0;
	/* Devices are files of a tmpfs, too. */
	if (file && BPF_CORE_READ(file, f_inode, i_sb, s_magic) == TMPFS_MAGIC &&
	    (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) == S_IFREG) {
		m->file = FILE_TMPFS;
		m->device = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
		m->inode = BPF_CORE_READ(file, f_inode, i_ino);
		/* mremap does not limit it. */
		m->offset = (u64)vma->vm_pgoff > ~0ull / PAGE_BYTES ?
				    ~0ull : (u64)vma->vm_pgoff * PAGE_BYTES;
	}
}

/* The reader of the iterator gets the records, so listings share no data. */
SEC("iter/task_vma")
int list_mappings(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct mapping_record record = {};

	if (!ctx->task || !vma)
		return 0;
	record_mapping(&record, vma);
	/* A record that no longer fits is written again at the next read. */
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

static long record_found(struct task_struct *task, struct vm_area_struct *vma, void *nothing)
{
	record_mapping(&found_mapping, vma);
	return 0;
}

/* Never waits: where the mmap_lock is taken, it reports that. */
SEC("iter/task")
int find_mapping(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	long error;

	if (!task)
		return 0;
	error = bpf_find_vma(task, mapping_at, record_found, 0, 0);
	mapping_found = !error ? 1 : error == -ENOENT ? 0 : error;
	return 0;
}

#endif
