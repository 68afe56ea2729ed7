/* SPDX-License-Identifier: GPL-2.0-only */
/* A task of the stress program: its mappings, and the expected contents of their base pages. */
#ifndef STRESS_H
#define STRESS_H

#include "check.h"

#define SLOTS 12
#define MOST_PAGES (4 * HUGE_PAGE / BASE_PAGE)

enum kind { NONE, BASE, SMALL_FOLIOS, HUGE, SHARED, HUGETLB };

struct mapping {
	enum kind kind;
	char *p;
	size_t pages;
	/* The word that fills each base page. 0: never written, or given back. */
	uint64_t word[MOST_PAGES];
	/* MADV_FREE was called: the page holds word, or zeros. */
	unsigned char lazy[MOST_PAGES];
};

struct task {
	int number;
	uint64_t random;
	struct mapping slot[SLOTS];
};

/* in stress_maps.c */
const char *kind_name(enum kind kind);
void map_new(struct task *t, struct mapping *m, enum kind kind);
void unmap(struct mapping *m);
/* Makes some pages (and perhaps their neighbours) present, checks them, and dirties them. */
void touch(struct task *t, struct mapping *m);
/* Checks every page of the mapping, present or not. */
void verify(const char *what, struct mapping *m);
void give_back(struct task *t, struct mapping *m);
void free_lazily(struct task *t, struct mapping *m);
void collapse(struct task *t, struct mapping *m);
void grow(struct task *t, struct mapping *m);

/* in stress_others.c */
/*
 * Forks a child that sees the task's memory, writes to some of it, allocates memory of its own, and
 * ends, sometimes by a signal.
 */
void fork_and_write(struct task *t, struct mapping *m);
/* Uses a file in memory: holes, truncation, hole punching, by read and by mmap. */
void use_file(struct task *t);

static inline size_t below(struct task *t, size_t limit)
{
	return next_random(&t->random) % limit;
}

/*
 * The lowest byte is never zero. It distinguishes a page that the kernel left from one that it took
 * away.
 */
static inline uint64_t new_word(struct task *t)
{
	return next_random(&t->random) | 1;
}

#endif
