/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads page tables and memory of managed processes. Nothing here writes anything of theirs.
 *
 * Page tables are read through the kernel's direct map without its locks, by reads that fail instead of
 * faulting. A table that is freed meanwhile yields nonsense at worst: an entry is therefore read again
 * after the table under it, and nothing but statistics and candidates comes of it; whatever is done
 * about them the kernel checks under its own locks.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "intf.h"
#include "kernel.h"

char LICENSE[] SEC("license") = "GPL";

/* How this machine translates, found by `calibrate`. */
u64 direct_map;
u32 levels;

/* `calibrate`: a value on a page of the manager's own, to recognise the right direct map by. */
u64 magic;
u64 magic_va;

struct walk_request request;
struct walk_result result;
struct address_range walk_ranges[MAX_RANGES];
struct region_record records[MAX_RECORDS];

u32 mappings_found;
u32 mappings_full;
u64 mappings_from;
struct mapping_record mappings[MAX_MAPPINGS];

u32 marked_regions;
struct region_marks marks[MAX_MARKED];

struct zero_scan zero_scan;

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

/* --- calibration ------------------------------------------------------------------------------------ */

struct calibration {
	u64 pgd;
	u32 depth;
};

/* The page that maps `va`, walked with `base` as the direct map's start; 0 if that leads nowhere. */
static __always_inline u64 own_page(u64 base, u64 pgd, u32 depth, u64 va)
{
	u64 e, table = pgd;

	if (depth == 5) {
		e = entry(table, va >> PGD_SHIFT_5);
		if (!(e & PTE_PRESENT))
			return 0;
		table = table_under(base, e);
	}
	e = entry(table, va >> P4D_SHIFT);
	if (!(e & PTE_PRESENT))
		return 0;
	e = entry(table_under(base, e), va >> PUD_SHIFT);
	if (!(e & PTE_PRESENT) || (e & PTE_HUGE))
		return 0;
	e = entry(table_under(base, e), va >> PMD_SHIFT);
	if (!(e & PTE_PRESENT) || (e & PTE_HUGE))
		return 0;
	e = entry(table_under(base, e), va >> 12);
	if (!(e & PTE_PRESENT))
		return 0;
	return table_under(base, e);
}

/* The direct map starts at a multiple of 1 GiB at or below the page table's root: try them downwards. */
static long try_base(u32 i, struct calibration *c)
{
	u64 base = (c->pgd & ~((1ull << PUD_SHIFT) - 1)) - ((u64)i << PUD_SHIFT);
	u64 page = own_page(base, c->pgd, c->depth, magic_va);
	u64 found = 0;

	if (!page)
		return 0;
	bpf_probe_read_kernel(&found, sizeof(found), (void *)(page + (magic_va & (PAGE_BYTES - 1))));
	if (found != magic)
		return 0;
	direct_map = base;
	levels = c->depth;
	return 1;
}

SEC("iter/task")
int calibrate(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct calibration c = {};

	if (!task || direct_map)
		return 0;
	c.pgd = root_of(task);
	if (!c.pgd)
		return 0;
	/* Up to 64 TiB of physical memory in front of the root. */
	c.depth = 4;
	bpf_loop(65536, try_base, &c, 0);
	if (!direct_map) {
		c.depth = 5;
		bpf_loop(65536, try_base, &c, 0);
	}
	return 0;
}

/* --- mappings --------------------------------------------------------------------------------------- */

SEC("iter/task_vma")
int list_mappings(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct mapping_record *m;
	u32 i = mappings_found;
	u64 start;

	if (!ctx->task || !vma)
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
	mappings_found = i + 1;
	return 0;
}

/* --- coverage --------------------------------------------------------------------------------------- */

struct walk {
	u64 va;
	u64 end;
	u64 pgd;
	u64 pmd_table;		/* direct-map address of the page-middle table for `va`, 0: look it up */
	u64 pmd_until;		/* first address that it doesn't map */
	u64 *copy;
	u32 range;
	u32 tables;
};

/*
 * Finds the page-middle table for w->va. Where nothing is mapped, moves w->va past the hole.
 */
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

/* Counts a table whose entries are all present and of their own memory; 0 if some are not. */
static __always_inline int count_full(const u64 *pte, struct region_record *r)
{
	u32 present = 0, special = 0, written = 0, accessed = 0, edges = 0;
	u64 before = 0;

	/* In halves, so that the sum of bit 0 can't run into bit 9. */
	for (u32 half = 0; half < PTES; half += PTES / 2) {
		u64 map_sum = 0, dirty_sum = 0, accessed_sum = 0, edge_sum = 0;

#pragma clang loop unroll_count(16)
		for (u32 i = half; i < half + PTES / 2; i++) {
			u64 e = pte[i];
			u64 a = e & PTE_ACCESSED;

			map_sum += e & (PTE_PRESENT | PTE_SPECIAL);
			dirty_sum += e & PTE_DIRTY;
			accessed_sum += a;
			edge_sum += a ^ before;
			before = a;
		}
		present += map_sum & 0x1ff;
		special += map_sum >> 9;
		written += dirty_sum >> 6;
		accessed += accessed_sum >> 5;
		edges += edge_sum >> 5;
	}
	if (present != PTES || special)
		return 0;
	r->present = present;
	r->written = written;
	r->accessed = accessed;
	/* A run has two edges, but the last one may run off the table. */
	r->runs = (edges + (before != 0)) / 2;
	return 1;
}

/*
 * The same for any table. Without branches: the verifier follows every path through 512 turns.
 */
static __always_inline void count_mixed(const u64 *pte, struct region_record *r)
{
	u64 present = 0, accessed = 0, runs = 0, written = 0, zero = 0, swapped = 0;
	u64 before = 0;

#pragma clang loop unroll_count(8)
	for (u32 i = 0; i < PTES; i++) {
		u64 e = pte[i];
		u64 here = e & PTE_PRESENT;
		u64 mapped = here | ((e >> 8) & 1);	/* PTE_PROTNONE */
		u64 shared_zero = (e >> 9) & here;	/* PTE_SPECIAL */
		u64 a = (e >> 5) & mapped;		/* PTE_ACCESSED */
		u64 minus = -e;

		/* Or else the compiler makes a branch of what follows. */
		barrier_var(minus);
		zero += shared_zero;
		present += mapped ^ shared_zero;
		swapped += ((e | minus) >> 63) & ~mapped;
		written += (e >> 6) & mapped;		/* PTE_DIRTY */
		accessed += a;
		runs += a & ~before;
		before = a;
	}
	r->present = present;
	r->accessed = accessed;
	r->runs = runs;
	r->written = written;
	r->zero_mapped = zero;
	r->swapped = swapped;
}

/*
 * Counts the table that was copied to the page buffer. Not static: the verifier checks such a function once, by
 * itself, and not on every path that leads to it, which is more than Linux 6.1 allows.
 */
__noinline int count_table(struct region_record *r)
{
	u64 *pte = page_buffer();

	if (!r || !pte)
		return 0;
	if (!count_full(pte, r))
		count_mixed(pte, r);
	return 1;
}

static __always_inline void read_region(struct walk *w, u64 va)
{
	u64 e = entry(w->pmd_table, va >> PMD_SHIFT);
	struct region_record *r;
	u32 n = result.records;

	if (!(e & (PTE_PRESENT | PTE_PROTNONE)))
		return;
	if (n >= MAX_RECORDS)
		return;
	r = &records[n];
	if (e & PTE_HUGE) {
		/* Anonymous huge pages are born dirty; a clean read-only one is the huge zero page. */
		int zero = !(e & (PTE_RW | PTE_DIRTY));

		r->va = va;
		r->present = zero ? 0 : PTES;
		r->accessed = e & PTE_ACCESSED ? PTES : 0;
		r->runs = e & PTE_ACCESSED ? 1 : 0;
		r->written = e & PTE_DIRTY ? PTES : 0;
		r->zero_mapped = zero ? PTES : 0;
		r->swapped = 0;
		r->huge = 1;
		result.records = n + 1;
		return;
	}
	if (request.huge_only || !(e & PTE_PRESENT))
		return;
	w->tables++;
	if (bpf_probe_read_kernel(w->copy, PAGE_BYTES, (void *)table_under(direct_map, e)))
		return;
	/* Promoted, freed or moved while it was read? Accessed and dirty mean nothing in a table entry. */
	if ((entry(w->pmd_table, va >> PMD_SHIFT) ^ e) & ~(PTE_ACCESSED | PTE_DIRTY)) {
		result.changed++;
		return;
	}
	r->va = va;
	r->zero_mapped = 0;
	r->swapped = 0;
	r->huge = 0;
	count_table(r);
	if (r->present || r->zero_mapped || r->swapped)
		result.records = n + 1;
}

static long walk_step(u32 i, struct walk *w)
{
	u64 va = w->va;

	if (va >= w->end) {
		u32 next = w->range + 1;

		w->range = next;
		if (next >= request.ranges || next >= MAX_RANGES) {
			result.done = 1;
			return 1;
		}
		w->va = walk_ranges[next].start;
		w->end = walk_ranges[next].end;
		w->pmd_table = 0;
		return 0;
	}
	if (w->tables >= request.max_tables || result.records >= MAX_RECORDS)
		return 1;
	if (!w->pmd_table || va >= w->pmd_until) {
		w->pmd_table = 0;
		if (!find_pmd_table(w))
			return 0;
	}
	w->va = va + (1ull << PMD_SHIFT);
	read_region(w, va);
	return 0;
}

SEC("iter/task")
int walk(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct walk w = {};
	u32 first = request.range;

	if (!task)
		return 0;
	w.pgd = root_of(task);
	w.copy = page_buffer();
	if (!w.pgd || !w.copy)
		return 0;
	if (first >= MAX_RANGES || first >= request.ranges) {
		result.alive = 1;
		result.done = 1;
		return 0;
	}
	w.range = first;
	w.va = request.va;
	w.end = walk_ranges[first].end;
	bpf_loop(16384, walk_step, &w, 0);
	request.range = w.range;
	request.va = w.va;
	/* If it exited meanwhile, what was read may have been somebody else's page. */
	result.alive = root_of(task) == w.pgd;
	return 0;
}

/* --- which pages are marked ------------------------------------------------------------------------- */

/* Which pages of the table in the page buffer are marked accessed. Without branches, as `count_mixed`. */
__noinline int collect_marks(struct region_marks *m)
{
	u64 *pte = page_buffer();
	u64 present = 0;

	if (!m || !pte)
		return 0;
	for (u32 word = 0; word < PTES / 64; word++) {
		u64 bits = 0;

#pragma clang loop unroll_count(8)
		for (u32 i = 0; i < 64; i++) {
			u64 e = pte[word * 64 + i];
			u64 here = e & PTE_PRESENT;
			u64 mapped = here | ((e >> 8) & 1);	/* PTE_PROTNONE */

			present += mapped & ~((e >> 9) & here);	/* PTE_SPECIAL: the shared zero page */
			bits |= ((e >> 5) & mapped) << i;	/* PTE_ACCESSED */
		}
		m->accessed[word] = bits;
	}
	m->present = present;
	return 1;
}

static long mark_step(u32 i, struct walk *w)
{
	struct region_marks *m;
	u64 e;

	if (i >= marked_regions || i >= MAX_MARKED)
		return 1;
	m = &marks[i];
	m->read = 0;
	w->va = m->va;
	if (!find_pmd_table(w))
		return 0;
	e = entry(w->pmd_table, m->va >> PMD_SHIFT);
	if (!(e & (PTE_PRESENT | PTE_PROTNONE)))
		return 0;
	if (e & PTE_HUGE) {
		u64 all = e & PTE_ACCESSED ? ~0ull : 0;

		for (u32 word = 0; word < PTES / 64; word++)
			m->accessed[word] = all;
		m->present = e & (PTE_RW | PTE_DIRTY) ? PTES : 0;
		m->huge = 1;
	} else {
		if (bpf_probe_read_kernel(w->copy, PAGE_BYTES, (void *)table_under(direct_map, e)))
			return 0;
		if ((entry(w->pmd_table, m->va >> PMD_SHIFT) ^ e) & ~(PTE_ACCESSED | PTE_DIRTY))
			return 0;
		collect_marks(m);
		m->huge = 0;
	}
	m->at_ns = bpf_ktime_get_ns();
	m->read = 1;
	return 0;
}

SEC("iter/task")
int read_marks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct walk w = {};

	if (!task)
		return 0;
	w.pgd = root_of(task);
	w.copy = page_buffer();
	if (!w.pgd || !w.copy)
		return 0;
	bpf_loop(MAX_MARKED, mark_step, &w, 0);
	result.alive = root_of(task) == w.pgd;
	return 0;
}

/* --- zero pages ------------------------------------------------------------------------------------- */

struct scan {
	u64 page;		/* direct-map address of the huge page */
	u64 *copy;
	u32 enough;
	u32 zero_pages;
};

/* Whether any of the first `bytes` at `page` is not zero; unreadable memory counts as in use. */
static __always_inline int in_use(u64 *copy, u64 page, const u32 bytes)
{
	u64 any = 0;

	if (bpf_probe_read_kernel(copy, bytes, (void *)page))
		return 1;
#pragma clang loop unroll_count(16)
	for (u32 i = 0; i < bytes / 8; i++)
		any |= copy[i];
	return any != 0;
}

/* Pages whose first words are fetched together: they are far apart in memory, and none waits for another. */
#define SCAN_GROUP	8

static long scan_group(u32 i, struct scan *s)
{
	u64 group = s->page + (u64)i * SCAN_GROUP * PAGE_BYTES;
	u64 first[SCAN_GROUP];

	/* What can't be read comes back as zero, and is found to be unreadable below. */
#pragma clang loop unroll(full)
	for (u32 k = 0; k < SCAN_GROUP; k++)
		bpf_probe_read_kernel(&first[k], sizeof(first[k]), (void *)(group + k * PAGE_BYTES));
	for (u32 k = 0; k < SCAN_GROUP; k++) {
		u64 page = group + k * PAGE_BYTES;

		/* A page in use mostly shows it within its first bytes (HawkEye, section 3.2: 9 on average). */
		if (first[k] || in_use(s->copy, page, 256) || in_use(s->copy, page, PAGE_BYTES))
			continue;
		s->zero_pages++;
		if (s->zero_pages >= s->enough)
			return 1;
	}
	return 0;
}

SEC("iter/task")
int scan_zeros(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct scan s = {};
	struct walk w = {};
	u64 e;

	if (!task)
		return 0;
	w.pgd = root_of(task);
	w.va = zero_scan.va;
	s.copy = page_buffer();
	if (!w.pgd || !s.copy || !find_pmd_table(&w))
		return 0;
	e = entry(w.pmd_table, zero_scan.va >> PMD_SHIFT);
	if (!(e & PTE_PRESENT) || !(e & PTE_HUGE) || !(e & (PTE_RW | PTE_DIRTY)))
		return 0;
	s.page = table_under(direct_map, e & ~((1ull << PMD_SHIFT) - 1));
	s.enough = zero_scan.enough;
	bpf_loop(PTES / SCAN_GROUP, scan_group, &s, 0);
	zero_scan.huge = 1;
	zero_scan.zero_pages = s.zero_pages;
	return 0;
}
