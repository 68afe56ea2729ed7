// SPDX-License-Identifier: GPL-2.0-only
/*
 * preference file|cow MIB DIRTY_MIB: makes DIRTY_MIB of free memory dirty. Then a file in memory,
 * or copy-on-write after a fork, takes MIB. Prints how much zeroed memory that took although there
 * was dirty memory, as `NAME VALUE` lines in base pages.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "counters.h"

static char *fill(size_t len, int huge)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		perror("preference: mmap");
		exit(2);
	}
	madvise(p, len, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	memset(p, 0x5a, len);
	return p;
}

static int write_file(size_t len)
{
	static char block[1 << 16];
	int fd = open("/tmp/base/preference", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	memset(block, 0x3c, sizeof(block));
	if (fd < 0)
		return -1;
	for (; len; len -= sizeof(block))
		if (write(fd, block, sizeof(block)) != sizeof(block))
			return -1;
	close(fd);
	return 0;
}

static int write_copies(char *p, size_t len)
{
	pid_t pid = fork();
	size_t i;
	int status;

	if (pid < 0)
		return -1;
	if (pid == 0) {
		for (i = 0; i < len; i += BASE_PAGE)
			*(volatile char *)(p + i) = 1;
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return status ? -1 : 0;
}

int main(int argc, char **argv)
{
	int cow = argc > 1 && !strcmp(argv[1], "cow");
	size_t len = argc > 2 ? strtoul(argv[2], NULL, 0) << 20 : 0, dirty = argc > 3 ? strtoul(argv[3], NULL, 0) << 20 : 0;
	long long zeroed, passed_over, served, free_pages;
	char *p = NULL;

	if (!len || !dirty) {
		fprintf(stderr, "usage: preference file|cow MIB DIRTY_MIB\n");
		return 2;
	}
	if (cow)
		p = fill(len, 0);
	munmap(fill(dirty, 1), dirty);
	zeroed = prezero_counter("free");
	free_pages = meminfo("MemFree") / 4;
	served = prezero_counter("served");
	passed_over = prezero_counter("passed_over");
	if (cow ? write_copies(p, len) : write_file(len)) {
		perror("preference");
		return 2;
	}
	served = prezero_counter("served") - served;
	passed_over = prezero_counter("passed_over") - passed_over;
	printf("zeroed_before %lld\n", zeroed);
	printf("dirty_before %lld\n", free_pages - zeroed);
	printf("allocated %zu\n", len / BASE_PAGE);
	printf("passed_over %lld\n", passed_over);
	printf("served %lld\n", served);
	printf("percent_of_zeroed %.3f\n", zeroed > 0 ? 100.0 * passed_over / zeroed : 0.0);
	printf("percent_of_allocated %.3f\n", 100.0 * passed_over / (len / BASE_PAGE));
	if (!cow)
		unlink("/tmp/base/preference");
	return 0;
}
