/* SPDX-License-Identifier: GPL-2.0-only */
/* Checks that memory holds one word throughout, and reports where it does not. */
#ifndef CHECK_H
#define CHECK_H

#include <stddef.h>
#include <stdint.h>

#define BASE_PAGE 4096ul
#define HUGE_PAGE (2ul << 20)

/* Shared by all tasks of a program: check_init() before the first fork. */
struct check_totals {
	uint64_t zero_pages;	/* fresh base pages that were read back whole, and had to be zero */
	uint64_t pattern_pages;	/* used base pages that were read back whole, and had to be unchanged */
	uint64_t failures;	/* base pages with wrong contents */
};

extern struct check_totals *totals;

void check_init(void);

/*
 * Reads len bytes at p (whole base pages) and returns whether every 64-bit word is `word`. Where
 * one is not, prints `what`, address, frame, byte and value, and counts a failure. A `word` of zero
 * counts as zero_pages.
 */
int check_words(const char *what, const void *p, size_t len, uint64_t word);

void fill_words(void *p, size_t len, uint64_t word);

/* xorshift64. Each task has its own state, which is never 0. */
static inline uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

#endif
