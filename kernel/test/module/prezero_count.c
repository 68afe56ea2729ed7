// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts the instructions of the page allocator, in an emulator with a time stamp counter that
 * counts instructions (QEMU's -icount shift=0). Each figure is the least of many runs, so it has no
 * interrupts. Prints lines
 *   prezero_count: NAME INSTRUCTIONS
 * per allocation and the free that follows it, with the loop around them. NAMEs that end in _held
 * count the allocation only. The emulator counts each repetition of a string instruction: clearing
 * takes one for each byte. Needs one processor.
 */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/slab.h>
#include <linux/timex.h>

#define RUNS 200
#define MOST 512

static struct page **pages;

/*
 * One page (or block) at a time, from and to the per-CPU list where there is one for this order.
 */
static u64 alternating(gfp_t gfp, unsigned int order, unsigned int count)
{
	u64 start = get_cycles();
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct page *page = alloc_pages(gfp, order);

		if (unlikely(!page))
			return U64_MAX;
		__free_pages(page, order);
	}
	return get_cycles() - start;
}

/* Allocates many, then frees all: includes the cost to fill and to empty the per-CPU list. */
static u64 many(gfp_t gfp, unsigned int order, unsigned int count)
{
	u64 start = get_cycles(), took = U64_MAX;
	unsigned int i;

	for (i = 0; i < count; i++) {
		pages[i] = alloc_pages(gfp, order);
		if (unlikely(!pages[i]))
			goto out;
	}
	while (i--)
		__free_pages(pages[i], order);
	return get_cycles() - start;
out:
	while (i--)
		__free_pages(pages[i], order);
	return took;
}

static void count(const char *name, u64 (*run)(gfp_t gfp, unsigned int order, unsigned int count), gfp_t gfp,
		  unsigned int order, unsigned int n)
{
	u64 least = U64_MAX, took;
	unsigned int i;

	for (i = 0; i < RUNS; i++) {
		preempt_disable();
		took = run(gfp, order, n);
		preempt_enable();
		least = min(least, took);
		cond_resched();
	}
	if (least == U64_MAX)
		pr_info("prezero_count: %s refused\n", name);
	else
		pr_info("prezero_count: %s %llu.%02llu\n", name, least / n, least % n * 100 / n);
}

/*
 * Blocks that have no per-CPU list come from the free lists. How often a block is split and merged
 * there depends on what is free. To avoid both, this frees blocks of this order between neighbours
 * that are in use.
 */
static void count_without_merging(const char *name, gfp_t gfp, unsigned int order, unsigned int n)
{
	struct page *held[64];
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(held); i++)
		held[i] = alloc_pages(gfp, order);
	for (i = 0; i < ARRAY_SIZE(held); i += 2) {
		if (held[i])
			__free_pages(held[i], order);
		held[i] = NULL;
	}
	count(name, alternating, gfp, order, n);
	for (i = 0; i < ARRAY_SIZE(held); i++)
		if (held[i])
			__free_pages(held[i], order);
}

/*
 * Allocates all pages before it frees any, so most have not been in use lately: with the device on
 * these are zeroed ahead. Counts the allocation only, as the least of all batches.
 */
static void count_held(const char *name, gfp_t gfp, unsigned int batches)
{
	u64 least = U64_MAX, start, took;
	struct page *page, *next;
	unsigned int i, batch;
	LIST_HEAD(held);

	for (batch = 0; batch < batches; batch++) {
		preempt_disable();
		start = get_cycles();
		for (i = 0; i < MOST; i++)
			pages[i] = alloc_pages(gfp, 0);
		took = get_cycles() - start;
		preempt_enable();
		for (i = 0; i < MOST; i++) {
			if (pages[i])
				list_add(&pages[i]->lru, &held);
			else
				took = U64_MAX;
		}
		least = min(least, took);
		cond_resched();
	}
	list_for_each_entry_safe(page, next, &held, lru)
		__free_page(page);
	if (least == U64_MAX)
		pr_info("prezero_count: %s refused\n", name);
	else
		pr_info("prezero_count: %s %llu.%02llu\n", name, least / MOST, least % MOST * 100 / MOST);
}

static int __init prezero_count_init(void)
{
	/* Nothing may sleep, because preemption is off. */
	const gfp_t plain = GFP_NOWAIT | __GFP_NOWARN;
	const gfp_t user = (GFP_HIGHUSER_MOVABLE & ~__GFP_RECLAIM) | __GFP_NOWARN;

	pages = kcalloc(MOST, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	count("base_page_one_by_one", alternating, plain, 0, 100);
	count("base_page_movable_one_by_one", alternating, user, 0, 100);
	count("base_page_512_at_once", many, plain, 0, 512);
	count("base_page_movable_512_at_once", many, user, 0, 512);
	count("order_3_one_by_one", alternating, plain | __GFP_COMP, 3, 100);
	count_without_merging("order_5_one_by_one", plain | __GFP_COMP, 5, 100);
	count("huge_page_one_by_one", alternating, user | __GFP_COMP, 9, 50);
	count("huge_page_32_at_once", many, user | __GFP_COMP, 9, 32);
	count("zeroed_base_page_512_at_once", many, user | __GFP_ZERO, 0, 512);
	count("zeroed_huge_page_one_by_one", alternating, user | __GFP_COMP | __GFP_ZERO, 9, 2);
	count_held("zeroed_base_page_512_held", user | __GFP_ZERO, 300);
	kfree(pages);
	return 0;
}

static void __exit prezero_count_exit(void)
{
}

module_init(prezero_count_init);
module_exit(prezero_count_exit);
MODULE_DESCRIPTION("Counts the page allocator's instructions");
MODULE_LICENSE("GPL");
