/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few kernel structures that the programs read, with only the fields that they read. The loader
 * finds the real offsets in the running kernel's BTF, so no generated vmlinux.h is needed.
 */
#ifndef HAWKEYE_KERNEL_H
#define HAWKEYE_KERNEL_H

#include "page_geometry.h"

#define RELOCATED __attribute__((preserve_access_index))

struct super_block {
	unsigned int s_dev;
	unsigned long s_magic;
} RELOCATED;

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	struct super_block *i_sb;
} RELOCATED;

struct file {
	struct inode *f_inode;
} RELOCATED;

struct mm_struct {
	void *pgd;
	unsigned long task_size;
} RELOCATED;

struct task_struct {
	int pid;
	int tgid;
	struct mm_struct *mm;
} RELOCATED;

/* Empty on kernels without userfaultfd. */
struct vm_userfaultfd_ctx {
	void *ctx;
} RELOCATED;

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
	struct vm_userfaultfd_ctx vm_userfaultfd_ctx;
} RELOCATED;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} RELOCATED;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} RELOCATED;

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
} RELOCATED;

/* include/linux/mm.h */
#define VM_UFFD_MISSING	(1ull << 9)
#define VM_UFFD_WP	(1ull << 12)

/* include/uapi/linux/magic.h; also memory without a mount: memfd, System V, shared anonymous */
#define TMPFS_MAGIC	0x01021994

/* include/uapi/linux/stat.h */
#define S_IFMT		0170000
#define S_IFREG		0100000

#define ENOENT	2

#endif
