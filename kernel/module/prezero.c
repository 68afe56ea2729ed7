// SPDX-License-Identifier: GPL-2.0-only
/*
 * Zeroes free memory ahead of its allocation, for a kernel with CONFIG_PREZERO.
 *
 * Free page reporting hands over free blocks that nothing else can reach, and
 * marks as zeroed those that report() returns.
 */
#include <linux/highmem.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/page_reporting.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/sched/stat.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#undef pr_fmt
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

/* Longest sleep without a check whether the module must end (ms). */
#define PREZERO_NAP		100
/* How often a block is withheld for one more jiffy while there is no idle time. */
#define PREZERO_PATIENCE	5

static unsigned int pages_per_second = 10000;
module_param(pages_per_second, uint, 0644);
MODULE_PARM_DESC(pages_per_second, "Maximum number of base pages to zero per second (default 10000, 0: no limit)");

static bool idle_only;
module_param(idle_only, bool, 0644);
MODULE_PARM_DESC(idle_only, "Zero only while the CPU has nothing else to run (default: no)");

static bool stopping;
static DECLARE_WAIT_QUEUE_HEAD(stop_wait);

/*
 * Pages zeroed ahead of the rate, which passing time pays off, and the time up
 * to which that was counted. Only the worker uses them, and there is one worker.
 */
static unsigned long owed;
static ktime_t counted;

/*
 * Bypasses the cache: the allocation may come later, on another CPU. The zone
 * lock, under which the page is put back, does not order such stores.
 */
static void zero_page(struct page *page)
{
#ifdef CONFIG_X86_64
	char *p = page_address(page);
	char *end = p + PAGE_SIZE;

	for (; p < end; p += 64)
		asm volatile("movnti %1, (%0)\n\t"
			     "movnti %1, 8(%0)\n\t"
			     "movnti %1, 16(%0)\n\t"
			     "movnti %1, 24(%0)\n\t"
			     "movnti %1, 32(%0)\n\t"
			     "movnti %1, 40(%0)\n\t"
			     "movnti %1, 48(%0)\n\t"
			     "movnti %1, 56(%0)"
			     : : "r" (p), "r" (0UL) : "memory");
	asm volatile("sfence" : : : "memory");
#else
	clear_highpage_kasan_tagged(page);
#endif
}

/* Sleeps, and wakes up early when the module is unloaded. */
static void nap(unsigned int ms)
{
	wait_event_timeout(stop_wait, READ_ONCE(stopping),
			   max(msecs_to_jiffies(min(ms, PREZERO_NAP)), 1UL));
}

static bool may_run(void)
{
	return !READ_ONCE(idle_only) || single_task_running();
}

/* Called with blocks that are withheld from the allocator meanwhile. */
static int prezero_report(struct page_reporting_dev_info *prdev,
			  struct scatterlist *sgl, unsigned int nents)
{
	unsigned int naps = 0;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(sgl, sg, nents, i) {
		unsigned long n, pages = sg->length >> PAGE_SHIFT;

		for (n = 0; n < pages; n++) {
			while (!may_run()) {
				if (naps++ >= PREZERO_PATIENCE)
					return -EAGAIN;
				nap(1);
			}
			if (READ_ONCE(stopping))
				return -ECANCELED;
			zero_page(sg_page(sg) + n);
			owed++;
			cond_resched();
		}
	}
	return 0;
}

/* Milliseconds, at the current rate, until nothing is owed. */
static unsigned int time_owed(void)
{
	unsigned int rate = READ_ONCE(pages_per_second);
	ktime_t now = ktime_get();
	u64 ns, paid;

	if (!rate || !owed) {
		owed = 0;
		counted = now;
		return 0;
	}

	/* A day is enough to pay everything, and does not overflow. */
	ns = min_t(u64, ktime_to_ns(ktime_sub(now, counted)), NSEC_PER_SEC * 86400ULL);
	paid = mul_u64_u32_div(ns, rate, NSEC_PER_SEC);
	if (paid >= owed) {
		owed = 0;
		counted = now;
		return 0;
	}
	/* Keeps the time of a partial page. */
	counted = ktime_add_ns(counted, mul_u64_u32_div(paid, NSEC_PER_SEC, rate));
	owed -= paid;
	return min_t(u64, div_u64((u64)owed * MSEC_PER_SEC, rate) + 1, UINT_MAX);
}

/* Called before report(), with nothing withheld from the allocator. */
static int prezero_pause(struct page_reporting_dev_info *prdev)
{
	unsigned int ms = time_owed();

	if (ms)
		nap(ms);
	else if (!may_run())
		nap(PREZERO_NAP);

	if (READ_ONCE(stopping))
		return -ECANCELED;
	return time_owed() || !may_run() ? -EAGAIN : 0;
}

static struct page_reporting_dev_info prezero_device = {
	.report = prezero_report,
	.pause = prezero_pause,
	.zeroes = true,
	.order = -1,	/* the order of a pageblock */
	/* One block at a time, to withhold as little as possible from the allocator. */
	.capacity = 1,
};

static int __init prezero_init(void)
{
	int err;

	prezero_device.wq = alloc_workqueue(KBUILD_MODNAME, WQ_UNBOUND |
					    WQ_FREEZABLE | WQ_SYSFS, 1);
	if (!prezero_device.wq)
		return -ENOMEM;

	err = page_reporting_register(&prezero_device);
	if (err) {
		pr_err("cannot register for free page reporting: %pe%s\n", ERR_PTR(err),
		       err == -EBUSY ? "; another device, such as a balloon, already uses it" : "");
		destroy_workqueue(prezero_device.wq);
	}
	return err;
}
module_init(prezero_init);

static void __exit prezero_exit(void)
{
	WRITE_ONCE(stopping, true);
	wake_up_all(&stop_wait);
	page_reporting_unregister(&prezero_device);
	destroy_workqueue(prezero_device.wq);
}
module_exit(prezero_exit);

MODULE_DESCRIPTION("Zeroes free memory ahead of its allocation");
MODULE_LICENSE("GPL");
