// SPDX-License-Identifier: GPL-2.0-only
/*
 * A page reporting device that leaves junk in the blocks that it gets, because memory behind a
 * balloon may hold anything. None of it may ever be served as zeroed. With lies=1 the device claims
 * to the kernel that it zeroes, and leaves a wrong byte in some places: then the tests must notice.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/page_reporting.h>
#include <linux/scatterlist.h>
#include <linux/string.h>

/* Distance of wrong bytes: blocks are served from the start, and seldom to the end. */
#define LIE_EVERY (16 * PAGE_SIZE)

static bool lies;
module_param(lies, bool, 0444);
MODULE_PARM_DESC(lies, "claim to zero, and leave bytes that are not");
static unsigned int hold_ms;
module_param(hold_ms, uint, 0444);
MODULE_PARM_DESC(hold_ms, "how long it keeps a block, as a device that must ask a hypervisor does");
static unsigned long reported_pages;
module_param(reported_pages, ulong, 0444);
MODULE_PARM_DESC(reported_pages, "base pages it got so far");

static int report(struct page_reporting_dev_info *device, struct scatterlist *sgl, unsigned int nents)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(sgl, sg, nents, i) {
		unsigned char *p = page_address(sg_page(sg));
		size_t at;

		memset(p, lies ? 0 : 0xa5, sg->length);
		/* In the middle of a page. */
		for (at = LIE_EVERY - PAGE_SIZE / 2; lies && at < sg->length; at += LIE_EVERY)
			p[at] = 0x77;
		reported_pages += sg->length / PAGE_SIZE;
	}
	if (hold_ms)
		msleep(hold_ms);
	return 0;
}

static struct page_reporting_dev_info device = {
	.report = report,
#ifdef PAGE_REPORTING_ORDER_UNSPECIFIED
	.order = PAGE_REPORTING_ORDER_UNSPECIFIED,
#endif
};

static int __init prezero_other_device_init(void)
{
	if (lies) {
#ifdef CONFIG_PREZERO
		device.zeroes = true;
#else
		return -EOPNOTSUPP;
#endif
	}
	return page_reporting_register(&device);
}

static void __exit prezero_other_device_exit(void)
{
	page_reporting_unregister(&device);
}

module_init(prezero_other_device_init);
module_exit(prezero_other_device_exit);
MODULE_DESCRIPTION("Page reporting device that leaves junk");
MODULE_LICENSE("GPL");
