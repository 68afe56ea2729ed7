// SPDX-License-Identifier: GPL-2.0-only
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

/* Most failures that one task prints: a broken kernel would fill the console. */
#define MOST_PRINTED 20

struct check_totals *totals;

void check_init(void)
{
	totals = mmap(NULL, BASE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (totals == MAP_FAILED) {
		perror("check_init");
		exit(2);
	}
}

static uint64_t frame_of(const void *p)
{
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (pread(fd, &entry, 8, (uintptr_t)p / BASE_PAGE * 8) != 8)
		entry = 0;
	close(fd);
	return entry & ((1ull << 55) - 1);
}

static void failed(const char *what, const unsigned char *page, uint64_t word)
{
	static int printed;
	size_t i, wrong = 0, first = BASE_PAGE;

	for (i = 0; i < BASE_PAGE; i++) {
		if (page[i] == (unsigned char)(word >> (i % 8 * 8)))
			continue;
		wrong++;
		if (first == BASE_PAGE)
			first = i;
	}
	__atomic_add_fetch(&totals->failures, 1, __ATOMIC_RELAXED);
	/* Another task may have written to the page since; it is still a failure. */
	if (printed++ < MOST_PRINTED)
		printf("WRONG BYTE: %s: address %p frame 0x%llx byte %zu is 0x%02x, not 0x%02x; %zu wrong bytes in this page\n",
		       what, (void *)(page + first), (unsigned long long)frame_of(page), first,
		       first < BASE_PAGE ? page[first] : 0, (unsigned char)(word >> (first % 8 * 8)), wrong);
	fflush(stdout);
}

static int page_is(const uint64_t *p, size_t words, uint64_t word)
{
	uint64_t differs = 0;
	size_t i;

	for (i = 0; i < words; i += 8)
		differs |= (p[i] ^ word) | (p[i + 1] ^ word) | (p[i + 2] ^ word) | (p[i + 3] ^ word) |
			   (p[i + 4] ^ word) | (p[i + 5] ^ word) | (p[i + 6] ^ word) | (p[i + 7] ^ word);
	return !differs;
}

int check_words(const char *what, const void *p, size_t len, uint64_t word)
{
	const char *at = p, *end = at + len;
	int right = 1;

	for (; at < end; at += BASE_PAGE) {
		if (!page_is((const uint64_t *)at, BASE_PAGE / 8, word)) {
			failed(what, (const unsigned char *)at, word);
			right = 0;
		}
	}
	__atomic_add_fetch(word ? &totals->pattern_pages : &totals->zero_pages, len / BASE_PAGE, __ATOMIC_RELAXED);
	return right;
}

void fill_words(void *p, size_t len, uint64_t word)
{
	uint64_t *at = p, *end = (uint64_t *)((char *)p + len);

	for (; at < end; at += 4)
		at[0] = at[1] = at[2] = at[3] = word;
}
