/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sizes of pages and tables. Each table fills a base page with entries of 8 bytes, so all follow
 * from one. They are those of hawkeye-policy's page.rs.
 */
#ifndef HAWKEYE_PAGE_GEOMETRY_H
#define HAWKEYE_PAGE_GEOMETRY_H

/* 12 for base pages of 4 KiB, 14 for 16 KiB. The build sets it. */
#ifndef PAGE_SHIFT
#define PAGE_SHIFT	12
#endif

#define TABLE_SHIFT	(PAGE_SHIFT - 3)
#define PAGE_BYTES	(1 << PAGE_SHIFT)
#define PTES		(1 << TABLE_SHIFT)
#define PMD_SHIFT	(PAGE_SHIFT + TABLE_SHIFT)
#define PUD_SHIFT	(PMD_SHIFT + TABLE_SHIFT)
#define P4D_SHIFT	(PUD_SHIFT + TABLE_SHIFT)
/* Addresses have fewer bits than five levels of tables of 16 KiB. */
#define PGD_SHIFT_5	(PAGE_SHIFT == 12 ? P4D_SHIFT + TABLE_SHIFT : 63)

#endif
