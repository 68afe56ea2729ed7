// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kernel threads that allocate pages of every order and type in every way that a module can. They
 * read back those that they requested as zeroed. They dirty them: contents, page->private, and the
 * flags that a free page does not have to drop. They free them whole, split, or one by one. The
 * parameter `running` counts the threads that still work; `wrong_pages` must stay 0.
 */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

static unsigned int threads = 8;
module_param(threads, uint, 0444);
static unsigned int seconds = 10;
module_param(seconds, uint, 0444);
MODULE_PARM_DESC(seconds, "how long the threads work");
static unsigned int most_pages = 6144;
module_param(most_pages, uint, 0444);
MODULE_PARM_DESC(most_pages, "most base pages that one thread holds");
static bool all_zero;
module_param(all_zero, bool, 0444);
MODULE_PARM_DESC(all_zero, "the kernel was started with init_on_alloc=1: every allocation must be zero");
/* Neither function is exported; the addresses come from /proc/kallsyms. 0: not tried. */
static unsigned long contig;
module_param(contig, ulong, 0444);
MODULE_PARM_DESC(contig, "address of alloc_contig_pages_noprof");
static unsigned int contig_one_in = 128;
module_param(contig_one_in, uint, 0444);
MODULE_PARM_DESC(contig_one_in, "one in this many allocations comes from alloc_contig_pages");
static unsigned long drain;
module_param(drain, ulong, 0444);
MODULE_PARM_DESC(drain, "address of drain_all_pages");

static unsigned int running;
module_param(running, uint, 0444);
static unsigned long wrong_pages;
module_param(wrong_pages, ulong, 0444);
static unsigned long checked_pages;
module_param(checked_pages, ulong, 0444);
static unsigned long allocations;
module_param(allocations, ulong, 0444);
static unsigned long failed_allocations;
module_param(failed_allocations, ulong, 0444);
static unsigned long contig_allocations;
module_param(contig_allocations, ulong, 0444);

static DEFINE_SPINLOCK(totals_lock);

#define SLOTS 96
#define BULK 64

struct worker {
	struct task_struct *task;
	struct rnd_state random;
	unsigned int held;
	struct {
		struct page *page;
		unsigned int order;
	} slot[SLOTS];
	struct page *bulk[BULK];
};

static struct worker *workers;

static u32 below(struct worker *w, u32 limit)
{
	return prandom_u32_state(&w->random) % limit;
}

static void add(unsigned long *total, unsigned long n)
{
	spin_lock(&totals_lock);
	*total += n;
	spin_unlock(&totals_lock);
}

static void check_bytes(const char *what, const void *p, size_t len, gfp_t gfp)
{
	const char *at = p, *end = at + len;

	if (!(gfp & __GFP_ZERO) && !all_zero)
		return;
	for (; at < end; at += PAGE_SIZE) {
		const unsigned char *wrong = memchr_inv(at, 0, min_t(size_t, PAGE_SIZE, end - at));

		if (!wrong)
			continue;
		add(&wrong_pages, 1);
		if (wrong_pages < 20)
			pr_err("prezero_stress: WRONG BYTE: %s: address %px (page %zu of %zu) byte %zu is 0x%02x, gfp %pGg\n",
			       what, wrong, (at - (const char *)p) / PAGE_SIZE, DIV_ROUND_UP(len, PAGE_SIZE),
			       wrong - (const unsigned char *)at, *wrong, &gfp);
	}
	add(&checked_pages, DIV_ROUND_UP(len, PAGE_SIZE));
}

static gfp_t some_gfp(struct worker *w)
{
	static const gfp_t kinds[] = {
		GFP_KERNEL, GFP_KERNEL, GFP_HIGHUSER_MOVABLE, GFP_HIGHUSER_MOVABLE, GFP_HIGHUSER,
		GFP_KERNEL | __GFP_RECLAIMABLE, GFP_ATOMIC, GFP_NOWAIT, GFP_DMA32, GFP_TRANSHUGE_LIGHT,
		GFP_KERNEL_ACCOUNT, GFP_NOFS,
	};
	gfp_t gfp = kinds[below(w, ARRAY_SIZE(kinds))];

	/* An allocation may fail here, but must not start the OOM killer. */
	gfp |= __GFP_NOWARN;
	if (gfp & __GFP_DIRECT_RECLAIM)
		gfp |= __GFP_NORETRY;
	if (below(w, 2))
		gfp |= __GFP_ZERO;
	return gfp;
}

static unsigned int some_order(struct worker *w)
{
	switch (below(w, 8)) {
	case 0: case 1: case 2:
		return 0;
	case 3:
		return 1 + below(w, 3);
	case 4:
		return pageblock_order;
	default:
		return below(w, MAX_PAGE_ORDER + 1);
	}
}

/* State that a page may have when it is freed. */
static void dirty(struct worker *w, struct page *page, unsigned int order, bool compound)
{
	/* The allocator drops all of these when a page is freed; none is a sign of a bug. */
	static const int flags[] = { PG_uptodate, PG_dirty, PG_referenced, PG_owner_priv_1, PG_mappedtodisk, PG_arch_1, PG_reclaim };
	/* The last two: PREZERO_PRIVATE, the allocator's own mark for a zeroed page. */
	static const unsigned long privates[] = { 0, 1, 9, ~0ul, 1ul << 63, 0x5a45524ful, 0x5a45524ful };
	unsigned int i, pages = 1u << order;
	unsigned char byte = 1 + below(w, 255);

	switch (below(w, 4)) {
	case 0:
		/* One byte of one page: a check of the beginnings would miss it. */
		((unsigned char *)page_address(page))[below(w, pages * PAGE_SIZE)] = byte;
		break;
	case 1:
		for (i = 0; i < pages; i++)
			((unsigned char *)page_address(page + i))[PAGE_SIZE - 1] = byte;
		break;
	default:
		memset(page_address(page), byte, PAGE_SIZE << order);
	}
	if (compound)
		return;
	for (i = 0; i < pages; i++) {
		set_page_private(page + i, privates[below(w, ARRAY_SIZE(privates))]);
		set_bit(flags[below(w, ARRAY_SIZE(flags))], (unsigned long *)&page[i].flags);
	}
}

static void keep(struct worker *w, struct page *page, unsigned int order)
{
	unsigned int i = below(w, SLOTS);

	if (w->slot[i].page) {
		w->held -= 1u << w->slot[i].order;
		__free_pages(w->slot[i].page, w->slot[i].order);
	}
	w->slot[i].page = page;
	w->slot[i].order = order;
	w->held += 1u << order;
}

static void free_all(struct worker *w)
{
	unsigned int i;

	for (i = 0; i < SLOTS; i++)
		if (w->slot[i].page)
			__free_pages(w->slot[i].page, w->slot[i].order);
	memset(w->slot, 0, sizeof(w->slot));
	w->held = 0;
}

static void one_block(struct worker *w)
{
	unsigned int order = some_order(w), i;
	gfp_t gfp = some_gfp(w);
	struct page *page;

	if (below(w, 4) == 0)
		gfp |= __GFP_COMP;
	page = alloc_pages(gfp, order);
	if (!page) {
		add(&failed_allocations, 1);
		return;
	}
	add(&allocations, 1);
	check_bytes("block", page_address(page), PAGE_SIZE << order, gfp);
	dirty(w, page, order, gfp & __GFP_COMP && order);
	if (order && !(gfp & __GFP_COMP) && below(w, 3) == 0) {
		/* From here on its pages are freed one by one. */
		split_page(page, order);
		for (i = 0; i < 1u << order; i++) {
			if (order > 5 || below(w, 4))
				__free_page(page + i);
			else
				keep(w, page + i, 0);
		}
		return;
	}
	keep(w, page, order);
}

static unsigned long alloc_bulk(gfp_t gfp, unsigned long n, struct page **pages)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
	return alloc_pages_bulk(gfp, n, pages);
#else
	return alloc_pages_bulk_array(gfp, n, pages);
#endif
}

static void bulk(struct worker *w)
{
	gfp_t gfp = some_gfp(w) & ~__GFP_ACCOUNT;
	unsigned long n, i;

	memset(w->bulk, 0, sizeof(w->bulk));
	n = alloc_bulk(gfp, 1 + below(w, BULK), w->bulk);
	add(&allocations, n);
	for (i = 0; i < n; i++) {
		check_bytes("bulk", page_address(w->bulk[i]), PAGE_SIZE, gfp);
		dirty(w, w->bulk[i], 0, false);
	}
	for (i = 0; i < n; i++)
		__free_page(w->bulk[i]);
}

static void exact(struct worker *w)
{
	gfp_t gfp = some_gfp(w) & ~(__GFP_COMP | __GFP_HIGHMEM);
	size_t size = 1 + below(w, 64 * PAGE_SIZE);
	void *p = alloc_pages_exact(size, gfp);

	if (!p)
		return;
	add(&allocations, 1);
	check_bytes("exact", p, PAGE_ALIGN(size), gfp);
	memset(p, 0x5a, size);
	free_pages_exact(p, size);
}

static void virtual(struct worker *w)
{
	size_t size = 1 + below(w, below(w, 4) ? 32 * PAGE_SIZE : 4 << 20);
	void *p = below(w, 2) ? vzalloc(size) : kvzalloc(size, GFP_KERNEL | __GFP_NORETRY | __GFP_NOWARN);

	if (!p)
		return;
	add(&allocations, 1);
	check_bytes("virtual", p, size, __GFP_ZERO);
	memset(p, 0xc3, size);
	kvfree(p);
}

static void contiguous(struct worker *w)
{
	struct page *(*alloc_contig)(unsigned long n, gfp_t gfp, int nid, nodemask_t *mask) = (void *)contig;
	/*
	 * Less than a pageblock may come from the first pageblock of the first zone, which begins
	 * at frame 1. Isolating that stops a kernel with DEBUG_VM, with or without the series.
	 */
	unsigned long n = pageblock_nr_pages + (below(w, 2) ? 0 : below(w, 3000)), i;
	gfp_t gfp = GFP_KERNEL | __GFP_NOWARN | __GFP_RETRY_MAYFAIL;
	struct page *page;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	/* Older kernels do not accept __GFP_ZERO here. */
	if (below(w, 2))
		gfp |= __GFP_ZERO;
#endif
	page = alloc_contig(n, gfp, numa_node_id(), NULL);
	if (!page) {
		add(&failed_allocations, 1);
		return;
	}
	add(&contig_allocations, 1);
	check_bytes("contiguous", page_address(page), n * PAGE_SIZE, gfp);
	for (i = 0; i < n; i++)
		dirty(w, page + i, 0, false);
	for (i = 0; i < n; i++)
		__free_page(page + i);
}

static int work(void *data)
{
	struct worker *w = data;
	unsigned long end = jiffies + seconds * HZ, rest = jiffies + 8 * HZ;

	while (!kthread_should_stop() && time_before(jiffies, end)) {
		if (contig && !below(w, contig_one_in))
			contiguous(w);
		switch (below(w, 128)) {
		case 0:
			if (drain)
				((void (*)(struct zone *zone))drain)(NULL);
			break;
		case 1: case 2: case 3: case 4:
			virtual(w);
			break;
		case 5: case 6: case 7: case 8: case 9:
			exact(w);
			break;
		case 10: case 11: case 12: case 13: case 14: case 15:
			bulk(w);
			break;
		default:
			one_block(w);
		}
		if (w->held > most_pages)
			free_all(w);
		/* All threads rest at about the same time, so there is memory to zero and time for it. */
		if (time_after(jiffies, rest)) {
			free_all(w);
			schedule_timeout_interruptible(4 * HZ);
			rest = jiffies + 8 * HZ;
		}
		cond_resched();
	}
	free_all(w);
	spin_lock(&totals_lock);
	running--;
	spin_unlock(&totals_lock);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ / 10);
	return 0;
}

static void stop(void)
{
	unsigned int i;

	for (i = 0; i < threads; i++)
		if (workers[i].task)
			kthread_stop_put(workers[i].task);
	vfree(workers);
}

static int __init prezero_stress_init(void)
{
	unsigned int i;

	if (!contig_one_in)
		return -EINVAL;
	workers = vzalloc(array_size(threads, sizeof(*workers)));
	if (!workers)
		return -ENOMEM;
	running = threads;
	for (i = 0; i < threads; i++) {
		struct task_struct *task;

		prandom_seed_state(&workers[i].random, get_random_u64());
		task = kthread_run(work, &workers[i], "prezero_stress/%u", i);
		if (IS_ERR(task)) {
			stop();
			return PTR_ERR(task);
		}
		/* A thread that a kernel bug kills can then still be stopped. */
		workers[i].task = get_task_struct(task);
	}
	return 0;
}

static void __exit prezero_stress_exit(void)
{
	stop();
	pr_info("prezero_stress: %lu allocations (%lu refused, %lu contiguous), %lu pages read back, %lu wrong\n",
		allocations, failed_allocations, contig_allocations, checked_pages, wrong_pages);
}

module_init(prezero_stress_init);
module_exit(prezero_stress_exit);
MODULE_DESCRIPTION("Allocates pages in every way and reads back those that must be zero");
MODULE_LICENSE("GPL");
