// SPDX-License-Identifier: GPL-2.0-only
/*
 * faults huge|base COUNT: makes COUNT page faults and measures their time, and the median time of
 * single faults in time stamps. It reports what share of the memory the kernel had zeroed before,
 * and reads every page back. Prints `NAME VALUE` lines; exits with 1 for a wrong byte.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <x86intrin.h>

#include "check.h"
#include "counters.h"

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	int huge = argc > 1 && !strcmp(argv[1], "huge");
	size_t count = argc > 2 ? strtoul(argv[2], NULL, 0) : 0, size = huge ? HUGE_PAGE : BASE_PAGE, i;
	long long served, passed_over;
	uint64_t *each;
	double took, ticks = 0;
	long faults;
	char *p;

	if (!count) {
		fprintf(stderr, "usage: faults huge|base COUNT\n");
		return 2;
	}
	check_init();
	each = calloc(count, sizeof(*each));
	p = mmap(NULL, count * size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!each || p == MAP_FAILED) {
		perror("faults");
		return 2;
	}
	/* Present before the clock starts. */
	memset(each, 1, count * sizeof(*each));
	p = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	madvise(p, count * size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);

	served = prezero_counter("served");
	passed_over = prezero_counter("passed_over");
	faults = faults_now();
	took = seconds_now();
	for (i = 0; i < count; i++) {
		uint64_t start = __rdtsc();

		/* A write that leaves the page zero. */
		*(volatile char *)(p + i * size + (i * 64) % BASE_PAGE) = 0;
		each[i] = __rdtsc() - start;
	}
	took = seconds_now() - took;
	faults = faults_now() - faults;
	served = prezero_counter("served") - served;
	passed_over = prezero_counter("passed_over") - passed_over;
	for (i = 0; i < count; i++)
		check_words(huge ? "huge-page fault" : "base-page fault", p + i * size, size, 0);

	qsort(each, count, sizeof(*each), by_value);
	/*
	 * Page tables want zeros too: one for each huge page, one for 512 base pages. Without this
	 * they would hide a page that was not served.
	 */
	served -= huge ? (long long)count : (long long)(count * BASE_PAGE / HUGE_PAGE);
	if (served < 0)
		served = 0;
	printf("faults %ld\n", faults);
	printf("us_per_fault %.3f\n", took * 1e6 / count);
	printf("median_ticks %llu\n", (unsigned long long)each[count / 2]);
	for (i = 0; i < count; i++)
		ticks += each[i];
	printf("ticks_per_fault %.2f\n", ticks / count);
	printf("served_percent %.2f\n", 100.0 * served / (count * (size / BASE_PAGE)));
	printf("passed_over_pages %lld\n", passed_over);
	printf("wrong_pages %llu\n", (unsigned long long)totals->failures);
	return totals->failures != 0;
}
