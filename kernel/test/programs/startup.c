// SPDX-License-Identifier: GPL-2.0-only
/*
 * startup touch|kvm|populate|jvm MIB 4k|2m: acts as programs that first make all of their memory
 * present.
 *   touch     touches one byte of each base page in ten areas, as the paper's Table 1
 *   kvm       a new process touches each base page of its memory, as a virtual machine's
 *             preallocation did at the paper's time
 *   populate  a new process makes its memory present in one call, without an exception for each
 *             page, as QEMU's preallocation does since 6.2 (MADV_POPULATE_WRITE, Linux 5.14)
 *   jvm       a new process reserves a heap, commits it, and touches each base page, as with
 *             AlwaysPreTouch
 * Prints `NAME VALUE` lines: seconds, faults, us_per_fault. The seconds are from fork until the
 * memory is ready; for touch they are of the touches only.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "counters.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The second process writes this to its standard output. */
struct ready {
	long faults;
	double at;
};

static char *area(size_t len, int huge, int prot)
{
	char *p = mmap(NULL, len + HUGE_PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		perror("startup: mmap");
		exit(2);
	}
	p = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	madvise(p, len, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return p;
}

static void touch_all(char *p, size_t len)
{
	size_t i;

	for (i = 0; i < len; i += BASE_PAGE)
		*(volatile char *)(p + i) = 1;
}

static void report(double seconds, long faults)
{
	printf("seconds %.4f\nfaults %ld\nus_per_fault %.3f\n", seconds, faults, seconds * 1e6 / faults);
}

static void touch(size_t len, int huge)
{
	size_t part = (len / 10) & ~(HUGE_PAGE - 1), i;
	long faults = faults_now();
	double start = seconds_now();

	for (i = 0; i < 10; i++)
		touch_all(area(part, huge, PROT_READ | PROT_WRITE), part);
	report(seconds_now() - start, faults_now() - faults);
}

/* The second process. */
static int inside(const char *what, size_t len, int huge)
{
	struct ready ready;
	char *p;

	if (!strcmp(what, "kvm-inside")) {
		p = area(len, huge, PROT_READ | PROT_WRITE);
		touch_all(p, len);
	} else if (!strcmp(what, "populate-inside")) {
		p = area(len, huge, PROT_READ | PROT_WRITE);
		if (madvise(p, len, MADV_POPULATE_WRITE)) {
			perror("startup: MADV_POPULATE_WRITE");
			return 2;
		}
	} else {
		p = area(len, huge, PROT_NONE);
		if (mprotect(p, len, PROT_READ | PROT_WRITE)) {
			perror("startup: mprotect");
			return 2;
		}
		touch_all(p, len);
	}
	ready.at = seconds_now();
	ready.faults = faults_now();
	return write(1, &ready, sizeof(ready)) == sizeof(ready) ? 0 : 2;
}

static int start(const char *what, const char *mib, const char *size)
{
	char name[32];
	struct ready ready;
	int ends[2], status;
	double began;
	pid_t pid;

	snprintf(name, sizeof(name), "%s-inside", what);
	if (pipe(ends)) {
		perror("startup: pipe");
		return 2;
	}
	began = seconds_now();
	pid = fork();
	if (pid == 0) {
		dup2(ends[1], 1);
		execl("/proc/self/exe", "startup", name, mib, size, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	if (pid < 0 || read(ends[0], &ready, sizeof(ready)) != sizeof(ready)) {
		fprintf(stderr, "startup: no answer from the second process\n");
		return 2;
	}
	waitpid(pid, &status, 0);
	/* MADV_POPULATE_WRITE counts no faults: count one for each page. */
	if (!strcmp(what, "populate"))
		ready.faults = strtoul(mib, NULL, 0) * ((1ul << 20) / BASE_PAGE) / (strcmp(size, "2m") ? 1 : 512);
	report(ready.at - began, ready.faults);
	return status != 0;
}

int main(int argc, char **argv)
{
	size_t len = argc > 2 ? strtoul(argv[2], NULL, 0) << 20 : 0;
	int huge = argc > 3 && !strcmp(argv[3], "2m");

	if (argc < 4 || !len) {
		fprintf(stderr, "usage: startup touch|kvm|populate|jvm MIB 4k|2m\n");
		return 2;
	}
	if (strstr(argv[1], "-inside"))
		return inside(argv[1], len, huge);
	if (!strcmp(argv[1], "touch")) {
		touch(len, huge);
		return 0;
	}
	return start(argv[1], argv[2], argv[3]);
}
