/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs the BPF programs that read page tables, built for this machine, on page tables in simulated
 * memory. The argument is the number of levels. The entries are those of the architecture that the
 * include path chooses, so each is tested on every machine.
 */
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "hawkeye/calibrate.h"
#include "hawkeye/walk.h"
#include "hawkeye/read_access_bits.h"
#include "hawkeye/scan_zeros.h"

#define REGION		(1ull << PMD_SHIFT)
#define TABLES_AT	(2 * REGION)	/* the first regions of memory are a huge page */

unsigned char memory[3 * REGION] __attribute__((aligned(REGION)));
const unsigned long memory_bytes = sizeof(memory);

static u64 base;	/* of the direct map */
static u64 used = TABLES_AT;
static int failed;

#define CHECK(found, expected) check(__LINE__, #found, found, expected)

static void check(int line, const char *what, u64 found, u64 expected)
{
	if (found == expected)
		return;
	printf("line %d: %s is %#llx instead of %#llx\n", line, what, found, expected);
	failed = 1;
}

/* The entry of a page or table, by what it is. */
enum { WRITTEN = 1, ACCESSED = 2, READ_ONLY = 4, BLOCK = 8, ZERO = 16, INACCESSIBLE = 32 };

/* The bit of a page that is mapped but not accessible. */
static int inaccessible = 58;

#ifdef __TARGET_ARCH_x86
#define SWAPPED		0xdeadbe0000000600ull

static u64 entry_of(u64 frame, int kind)
{
	return frame | 1ull << 63 | (kind & INACCESSIBLE ? 1ull << 8 : 1) |
	       (kind & READ_ONLY ? 0 : 1ull << 1) | (kind & ACCESSED ? 1ull << 5 : 0) |
	       (kind & WRITTEN ? 1ull << 6 : 0) | (kind & BLOCK ? 1ull << 7 : 0) |
	       (kind & ZERO ? 1ull << 9 : 0);
}

/* Linux 6.6 and later keep the dirty bit of a protected page in bit 58. */
#define WAYS_TO_PROTECT	2

static u64 protected_entry_of(u64 frame, int kind, u32 way)
{
	return way ? entry_of(frame, kind | READ_ONLY) | 1ull << 58
		   : entry_of(frame, kind | READ_ONLY | WRITTEN);
}

static u64 table_entry_of(u64 frame)
{
	return frame | 0x67;
}

static u64 task_size(int depth)
{
	return (depth == 5 ? 1ull << 56 : 1ull << 47) - PAGE_BYTES;
}
#else
/* Either kernel's entry of a page in swap has the other one's bit. */
#define SWAPPED		((1ull << (inaccessible == 58 ? 11 : 58)) | 0x40)

static u64 entry_of(u64 frame, int kind)
{
	/* Marked written by the processor: writable, and no longer read-only. */
	u64 writable = kind & READ_ONLY ? 1ull << 7 : kind & WRITTEN ? 1ull << 51 : 1ull << 51 | 1ull << 7;
	u64 valid = kind & INACCESSIBLE ? 1ull << inaccessible : 1;

	/* Bits 8 and 9 are the shareability, but part of the address with 5 levels. */
	return frame | 1ull << 54 | (levels == 5 ? 0 : 0x300) | valid | (kind & BLOCK ? 0 : 2) |
	       writable | (kind & ACCESSED ? 1ull << 10 : 0) |
	       (kind & WRITTEN && kind & READ_ONLY ? 1ull << 55 : 0) | (kind & ZERO ? 1ull << 56 : 0);
}

#define WAYS_TO_PROTECT	1

static u64 protected_entry_of(u64 frame, int kind, u32 way)
{
	return entry_of(frame, kind | READ_ONLY | WRITTEN);
}

static u64 table_entry_of(u64 frame)
{
	return frame | 3;
}

static u64 task_size(int depth)
{
	return depth == 5 ? 1ull << 52 : depth == 4 ? 1ull << 48 : 1ull << (PUD_SHIFT + TABLE_SHIFT);
}
#endif

static u64 new_table(void)
{
	u64 at = used;

	used += PAGE_BYTES;
	if (used > sizeof(memory))
		abort();
	return at;
}

static u64 *table_at(u64 offset)
{
	return (u64 *)(memory + offset);
}

static u64 frame_of(u64 offset)
{
	return (u64)memory + offset - base;
}

/* The page-middle entry for an address, or with `shift` PAGE_SHIFT the last-level one. */
static u64 *place_of(u64 root, u64 va, int shift)
{
	u64 at = root;

	for (int level = levels - 1, s; s = PAGE_SHIFT + TABLE_SHIFT * level, s > shift; level--) {
		u64 *e = table_at(at) + (va >> s & (PTES - 1));

		if (!*e)
			*e = table_entry_of(frame_of(new_table()));
		at = entry_frame(*e) + base - (u64)memory;
	}
	return table_at(at) + (va >> shift & (PTES - 1));
}

static struct region_record read_one(struct task_struct *task, u64 va)
{
	struct bpf_iter__task context = { .task = task };
	struct region_record none = {};

	walk_ranges[0] = (struct address_range){ va, va + REGION };
	request = (struct walk_request){ .ranges = 1, .va = va, .max_tables = 8 };
	result = (struct walk_result){};
	walk(&context);
	CHECK(result.done, 1);
	CHECK(result.alive, 1);
	return result.records ? records[0] : none;
}

/*
 * An entry of each upper level points to the first frame behind memory, as in a freed table that a
 * process has filled. No program reads there, and the region counts as absent.
 */
static void test_entries_behind_memory(struct task_struct *task, u64 root, u64 va)
{
	struct bpf_iter__task context = { .task = task };
	const u64 behind = (u64)memory + memory_bytes - base;

	for (int shift = PMD_SHIFT; shift < PAGE_SHIFT + TABLE_SHIFT * (int)levels; shift += TABLE_SHIFT) {
		u64 *e = place_of(root, va, shift);
		const u64 before = *e;

		*e = table_entry_of(behind);
		reads_outside = 0;
		pointed_behind_memory = 0;
		CHECK(read_one(task, va).va, 0);
		marked_regions = 1;
		marks[0].va = va;
		read_access_bits(&context);
		CHECK(marks[0].read, 0);
		CHECK(reads_outside, 0);
		CHECK(pointed_behind_memory, 1);
		*e = before;
	}
	CHECK(read_one(task, va).va, va);
}

/* A huge page that begins in memory and ends behind it, or that lies behind it. */
static void test_huge_pages_behind_memory(struct task_struct *task, u64 *e, u64 va)
{
	struct bpf_iter__task context = { .task = task };
	const u64 before = *e;

	memory_frames--;
	for (int regions = 2; regions <= 3; regions++) {
		*e = entry_of(frame_of(regions * REGION), BLOCK | WRITTEN | ACCESSED);
		reads_outside = 0;
		zero_scan = (struct zero_scan){ .va = va, .enough = PTES };
		scan_zeros(&context);
		CHECK(zero_scan.huge, 0);
		CHECK(reads_outside, 0);
	}
	memory_frames++;
	*e = before;
}

/* A huge page that was written, then protected, as by a fork, is not taken for the zero page. */
static void test_write_protected_huge_page(struct task_struct *task, u64 *e, u64 va)
{
	struct bpf_iter__task context = { .task = task };
	const u64 before = *e;
	struct region_record r;

	for (u32 way = 0; way < WAYS_TO_PROTECT; way++) {
		*e = protected_entry_of(frame_of(0), BLOCK, way);
		r = read_one(task, va);
		CHECK(r.huge, 1);
		CHECK(r.present, PTES);
		CHECK(r.written, PTES);
		CHECK(r.write_protected, PTES);
		CHECK(r.zero_mapped, 0);
		marked_regions = 1;
		marks[0].va = va;
		read_access_bits(&context);
		CHECK(marks[0].present, PTES);
		CHECK(marks[0].write_protected, PTES);
		zero_scan = (struct zero_scan){ .va = va, .enough = PTES };
		scan_zeros(&context);
		CHECK(zero_scan.huge, 1);
		CHECK(zero_scan.zero_pages, PTES - 1);
	}
	*e = before;
}

/* The same of base pages: each or every other page of a full region, then of one with a hole. */
static void test_write_protected_base_pages(struct task_struct *task, u64 root, u64 va)
{
	u64 *e = place_of(root, va, PAGE_SHIFT);
	struct region_record r;

	for (u32 way = 0; way < WAYS_TO_PROTECT; way++) {
		for (int i = 0; i < PTES; i++)
			e[i] = protected_entry_of(frame_of(REGION), ACCESSED, way);
		r = read_one(task, va);
		CHECK(r.present, PTES);
		CHECK(r.accessed, PTES);
		CHECK(r.written, PTES);
		CHECK(r.write_protected, PTES);
		for (int i = 0; i < PTES; i++)
			e[i] = i % 2 ? protected_entry_of(frame_of(REGION), 0, way) : entry_of(frame_of(REGION), 0);
		r = read_one(task, va);
		CHECK(r.present, PTES);
		CHECK(r.written, PTES / 2);
		CHECK(r.write_protected, PTES / 2);
		e[0] = SWAPPED;
		e[1] = 0;
		r = read_one(task, va);
		CHECK(r.present, PTES - 2);
		CHECK(r.written, PTES / 2 - 1);
		CHECK(r.write_protected, PTES / 2 - 1);
	}
}

int main(int argc, char **argv)
{
	const int depth = argc > 1 ? atoi(argv[1]) : 0;
	/* Near the end of the tables. */
	const u64 half = 1ull << (PUD_SHIFT + TABLE_SHIFT - 1);
	const u64 high = depth == 3 ? half : depth == 4 ? (PAGE_SHIFT == 12 ? 1ull << 46 : 1ull << 47) : 15ull << 48;
	const u64 region = high | (half - REGION);
	/* The programs read kernel memory only. */
	struct mm_struct *mm = (struct mm_struct *)(memory + REGION + 2 * PAGE_BYTES);
	struct task_struct task = { .pid = 1, .tgid = 1, .mm = mm };
	struct bpf_iter__task context = { .task = &task };
	struct region_record r;
	u64 root, *e;

	if (depth < 3 || depth > 5)
		return 2;
	levels = depth;
	base = ((u64)memory & ~((1ull << GIB_SHIFT) - 1)) - (3ull << GIB_SHIFT);
	memory_frames = frame_of(sizeof(memory)) >> PAGE_SHIFT;
	root = new_table();
	mm->pgd = memory + root;
	mm->task_size = task_size(depth);
	if (argc > 2)
		inaccessible = atoi(argv[2]);

	/* The search for the direct map. */
	magic = 0x1234567890abcdef;
	magic_va = region;
	inaccessible_va = region + PAGE_BYTES;
	*table_at(REGION) = magic;
	e = place_of(root, region, PAGE_SHIFT);
	e[0] = entry_of(frame_of(REGION), WRITTEN | ACCESSED);
	e[1] = entry_of(frame_of(REGION + PAGE_BYTES), WRITTEN | ACCESSED | INACCESSIBLE);
	levels = 0;
	calibrate(&context);
	CHECK(direct_map, base);
	CHECK(levels, depth);
	CHECK(calibration_highest_base, base);

	/* A region of base pages of each kind. */
	e[2] = entry_of(frame_of(REGION), 0);
	e[3] = entry_of(frame_of(REGION), READ_ONLY | WRITTEN);
	e[4] = entry_of(frame_of(REGION), READ_ONLY | ZERO | ACCESSED);
	e[5] = SWAPPED;
	e[6] = entry_of(frame_of(REGION), INACCESSIBLE);
	e[PTES - 1] = entry_of(frame_of(REGION), ACCESSED);
	r = read_one(&task, region);
	CHECK(r.va, region);
	CHECK(r.huge, 0);
	CHECK(r.present, 6);
	CHECK(r.accessed, 4);
	CHECK(r.runs, 3);
	CHECK(r.written, 3);
	CHECK(r.write_protected, 1);
	CHECK(r.zero_mapped, 1);
	CHECK(r.swapped, 1);
	CHECK(r.contiguous, 0);
	marked_regions = 1;
	marks[0].va = region;
	read_access_bits(&context);
	CHECK(marks[0].read, 1);
	CHECK(marks[0].present, 6);
	CHECK(marks[0].write_protected, 1);
	CHECK(marks[0].accessed[0], 0x13);
	CHECK(marks[0].accessed[PTES / 64 - 1], 1ull << 63);
	test_entries_behind_memory(&task, root, region);

	/* A full region, every eighth page of which is accessed, the others written. */
	e = place_of(root, region - REGION, PAGE_SHIFT);
	for (int i = 0; i < PTES; i++)
		e[i] = entry_of(frame_of(REGION), i % 8 ? WRITTEN : ACCESSED);
	r = read_one(&task, region - REGION);
	CHECK(r.present, PTES);
	CHECK(r.accessed, PTES / 8);
	CHECK(r.runs, PTES / 8);
	CHECK(r.written, PTES - PTES / 8);
	CHECK(r.write_protected, 0);
#ifndef __TARGET_ARCH_x86
	/* Contiguous entries: one mark is for all of a group. */
	const int group = CONTIGUOUS_PTES, marked = group + 4;

	for (int i = 0; i < PTES; i++)
		e[i] = entry_of(frame_of(REGION), i == marked ? ACCESSED : i == PTES - 1 ? WRITTEN : 0) | 1ull << 52;
	r = read_one(&task, region - REGION);
	CHECK(r.present, PTES);
	CHECK(r.accessed, group);
	CHECK(r.runs, 1);
	CHECK(r.written, group);
	CHECK(r.contiguous, PTES / group);
	/* They are one TLB entry, so one touch. */
	marks[0].va = region - REGION;
	read_access_bits(&context);
	CHECK(marks[0].read, 1);
	CHECK(marks[0].present, PTES);
	for (int word = 0; word < PTES / 64; word++)
		CHECK(marks[0].accessed[word], word == group / 64 ? 1ull << group % 64 : 0);
	/* The bit means nothing elsewhere: in swap, and in other groups. */
	e[0] = e[1] = SWAPPED | 1ull << 52;
	for (int i = group; i < 2 * group; i++)
		e[i] &= ~(1ull << 52);
	r = read_one(&task, region - REGION);
	CHECK(r.present, PTES - 2);
	CHECK(r.swapped, 2);
	CHECK(r.accessed, 1);
	CHECK(r.written, group);
	CHECK(r.contiguous, PTES / group - 2);
	read_access_bits(&context);
	CHECK(marks[0].accessed[marked / 64], 1ull << marked % 64);
#endif

	/* Huge pages, the huge zero page, and one that is not accessible. */
	e = place_of(root, region - 2 * REGION, PMD_SHIFT);
	*e = entry_of(frame_of(0), BLOCK | WRITTEN | ACCESSED);
	r = read_one(&task, region - 2 * REGION);
	CHECK(r.huge, 1);
	CHECK(r.present, PTES);
	CHECK(r.accessed, PTES);
	CHECK(r.written, PTES);
	CHECK(r.zero_mapped, 0);
	memory[5 * PAGE_BYTES + 4000] = 1;
	zero_scan = (struct zero_scan){ .va = region - 2 * REGION, .enough = PTES };
	scan_zeros(&context);
	CHECK(zero_scan.huge, 1);
	CHECK(zero_scan.zero_pages, PTES - 1);
	test_huge_pages_behind_memory(&task, e, region - 2 * REGION);
	*e = entry_of(frame_of(0), BLOCK | READ_ONLY);
	r = read_one(&task, region - 2 * REGION);
	CHECK(r.present, 0);
	CHECK(r.zero_mapped, PTES);
	*e = entry_of(frame_of(0), BLOCK | WRITTEN | INACCESSIBLE);
	r = read_one(&task, region - 2 * REGION);
	CHECK(r.huge, 1);
	CHECK(r.present, PTES);
	test_write_protected_huge_page(&task, e, region - 2 * REGION);

	test_write_protected_base_pages(&task, root, region - REGION);

	/* Nothing is mapped there. */
	r = read_one(&task, region - 3 * REGION);
	CHECK(r.va, 0);

#ifndef __TARGET_ARCH_x86
	/* Attributes, and with 5 levels the highest bits of an address, are around it. */
	CHECK(entry_frame(0xfff4000000000f03ull), depth == 5 ? 0x000c000000000000ull : 0);
	CHECK(entry_frame(0xfff0ffffffffffffull), depth == 5 ? 0x000cfffffffff000ull : 0xffffffffffffull & -(u64)PAGE_BYTES);
#else
	CHECK(entry_frame(0xfff0000000000fffull), 0);
	CHECK(entry_frame(~0ull), 0xffffffffff000ull);
#endif
	return failed;
}
