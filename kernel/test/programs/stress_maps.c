// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "stress.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_FREE
#define MADV_FREE 8
#endif

static const char *const names[] = { "none", "base pages", "small folios", "huge pages", "shared memory", "hugetlb" };

const char *kind_name(enum kind kind)
{
	return names[kind];
}

static char *reserve(size_t len, size_t align, int prot, int flags)
{
	char *p = mmap(NULL, len + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *at;

	if (p == MAP_FAILED)
		return NULL;
	at = (char *)(((uintptr_t)p + align - 1) & ~(align - 1));
	if (mmap(at, len, prot, flags | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		at = NULL;
	/* Unmaps the rest on both sides, or everything where nothing was mapped. */
	if (!at) {
		munmap(p, len + align);
		return NULL;
	}
	if (at > p)
		munmap(p, at - p);
	if (p + align > at)
		munmap(at + len, p + align - at);
	return at;
}

void map_new(struct task *t, struct mapping *m, enum kind kind)
{
	int flags = kind == SHARED ? MAP_SHARED : MAP_PRIVATE;
	size_t pages, align = BASE_PAGE;

	switch (kind) {
	case HUGE:
		pages = (1 + below(t, 4)) * (HUGE_PAGE / BASE_PAGE);
		align = HUGE_PAGE;
		break;
	case HUGETLB:
		pages = (1 + below(t, 2)) * (HUGE_PAGE / BASE_PAGE);
		align = HUGE_PAGE;
		flags |= MAP_HUGETLB;
		break;
	case SMALL_FOLIOS:
		/* Too small for a huge page, however it is aligned. */
		pages = 16 + below(t, 480);
		break;
	default:
		pages = 1 + below(t, 700);
	}
	m->p = reserve(pages * BASE_PAGE, align, PROT_READ | PROT_WRITE, flags);
	m->kind = NONE;
	if (!m->p)
		return;
	m->kind = kind;
	m->pages = pages;
	memset(m->word, 0, pages * sizeof(m->word[0]));
	memset(m->lazy, 0, pages);
	if (kind == BASE)
		madvise(m->p, pages * BASE_PAGE, MADV_NOHUGEPAGE);
	else if (kind == HUGE || kind == SMALL_FOLIOS || (kind == SHARED && below(t, 2)))
		madvise(m->p, pages * BASE_PAGE, MADV_HUGEPAGE);
}

void unmap(struct mapping *m)
{
	if (m->kind != NONE)
		munmap(m->p, m->pages * BASE_PAGE);
	m->kind = NONE;
}

/* Notes what a lazily freed page holds now. */
static void settle(struct mapping *m, size_t page)
{
	uint64_t first = *(volatile uint64_t *)(m->p + page * BASE_PAGE);

	if (m->lazy[page] && first == 0)
		m->word[page] = 0;
}

void verify(const char *what, struct mapping *m)
{
	char said[80] = "";
	size_t page;

	strcat(strcat(strcat(said, names[m->kind]), ", "), what);
	for (page = 0; page < m->pages; page++) {
		uint64_t word;

		settle(m, page);
		word = m->word[page];
		if (!m->lazy[page]) {
			check_words(said, m->p + page * BASE_PAGE, BASE_PAGE, word);
		} else if (word) {
			/* The kernel may take the page away while it is read; a write keeps it. */
			char byte = __atomic_fetch_or(m->p + page * BASE_PAGE, 0, __ATOMIC_RELAXED);

			m->lazy[page] = 0;
			m->word[page] = byte == (char)word ? word : 0;
			check_words(said, m->p + page * BASE_PAGE, BASE_PAGE, m->word[page]);
		}
	}
}

void touch(struct task *t, struct mapping *m)
{
	size_t from = below(t, m->pages), count = 1 + below(t, below(t, 4) ? 32 : m->pages), page;
	size_t step = below(t, 2) ? 1 : 1 + below(t, 16);

	if (m->kind == HUGE || m->kind == HUGETLB) {
		/* The first touch makes the whole page present: it must be unchanged, or zero. */
		size_t first = from & ~(HUGE_PAGE / BASE_PAGE - 1);

		__atomic_fetch_or(m->p + from * BASE_PAGE, 0, __ATOMIC_RELAXED);
		for (page = first; page < first + HUGE_PAGE / BASE_PAGE; page++)
			if (!m->word[page])
				check_words(m->kind == HUGE ? "huge page after first touch" : "hugetlb page after first touch",
					    m->p + page * BASE_PAGE, BASE_PAGE, 0);
	}
	for (page = from; page < m->pages && count; page += step, count--) {
		char *p = m->p + page * BASE_PAGE;
		char byte;

		/* Sometimes reads first: then the write copies the shared zero page. */
		if (below(t, 8) == 0)
			(void)*(volatile char *)p;
		/* A write that changes nothing. */
		byte = __atomic_fetch_or(p, 0, __ATOMIC_RELAXED);
		if (m->lazy[page] && byte != (char)m->word[page])
			m->word[page] = 0;
		m->lazy[page] = 0;
		check_words(m->word[page] ? "page in use" : "page after first touch", p, BASE_PAGE, m->word[page]);
		m->word[page] = new_word(t);
		fill_words(p, BASE_PAGE, m->word[page]);
	}
}

static void some_range(struct task *t, struct mapping *m, size_t *from, size_t *count)
{
	*from = below(t, m->pages);
	*count = 1 + below(t, m->pages - *from);
	if (m->kind == HUGETLB || (m->kind == HUGE && below(t, 2))) {
		*from &= ~(HUGE_PAGE / BASE_PAGE - 1);
		*count = HUGE_PAGE / BASE_PAGE;
	}
}

void give_back(struct task *t, struct mapping *m)
{
	size_t from, count;

	/*
	 * On shared memory MADV_DONTNEED removes the mapping, not the contents; MADV_REMOVE removes
	 * these.
	 */
	some_range(t, m, &from, &count);
	if (madvise(m->p + from * BASE_PAGE, count * BASE_PAGE, m->kind == SHARED ? MADV_REMOVE : MADV_DONTNEED))
		return;
	memset(m->word + from, 0, count * sizeof(m->word[0]));
	memset(m->lazy + from, 0, count);
}

void free_lazily(struct task *t, struct mapping *m)
{
	size_t from, count;

	if (m->kind == SHARED || m->kind == HUGETLB)
		return;
	some_range(t, m, &from, &count);
	if (!madvise(m->p + from * BASE_PAGE, count * BASE_PAGE, MADV_FREE))
		memset(m->lazy + from, 1, count);
}

void collapse(struct task *t, struct mapping *m)
{
	(void)t;
	if (m->kind == HUGETLB)
		return;
	madvise(m->p, m->pages * BASE_PAGE, MADV_HUGEPAGE);
	if (!madvise(m->p, m->pages * BASE_PAGE, MADV_COLLAPSE))
		verify("after collapse", m);
}

void grow(struct task *t, struct mapping *m)
{
	size_t pages = 1 + below(t, MOST_PAGES);
	char *p;

	if (m->kind == SHARED || m->kind == HUGETLB)
		return;
	if (m->kind == HUGE)
		pages = (pages + HUGE_PAGE / BASE_PAGE - 1) & ~(HUGE_PAGE / BASE_PAGE - 1);
	p = mremap(m->p, m->pages * BASE_PAGE, pages * BASE_PAGE, MREMAP_MAYMOVE);
	if (p == MAP_FAILED)
		return;
	m->p = p;
	if (pages > m->pages) {
		memset(m->word + m->pages, 0, (pages - m->pages) * sizeof(m->word[0]));
		memset(m->lazy + m->pages, 0, pages - m->pages);
	}
	m->pages = pages;
	/* Its alignment may be different now. */
	if (m->kind == HUGE && ((uintptr_t)p & (HUGE_PAGE - 1)))
		m->kind = SMALL_FOLIOS;
	verify("after mremap", m);
}
