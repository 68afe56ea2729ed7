// SPDX-License-Identifier: GPL-2.0-only
/*
 * offline soft|hard COUNT: takes COUNT frames out of use as if their memory failed. Half of them
 * are free and half are its own (soft only: a hard failure of its own memory would kill it).
 * offline unpoison: gives all of them back. Prints how many it took. Needs
 * /sys/devices/system/memory and, to give back, hwpoison in debugfs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif
#define KPF_BUDDY (1ull << 10)
#define KPF_HWPOISON (1ull << 19)

static int flags_file;

static uint64_t flags_of(uint64_t frame)
{
	uint64_t flags = 0;

	if (pread(flags_file, &flags, 8, frame * 8) != 8)
		return 0;
	return flags;
}

static uint64_t frames(void)
{
	char line[256];
	unsigned long long last = 0, from, to;
	FILE *file = fopen("/proc/iomem", "r");

	while (file && fgets(line, sizeof(line), file))
		if (strstr(line, "System RAM") && sscanf(line, "%llx-%llx", &from, &to) == 2)
			last = to / BASE_PAGE;
	if (file)
		fclose(file);
	return last;
}

static int write_number(const char *path, unsigned long long number)
{
	char text[32];
	int fd = open(path, O_WRONLY), length = snprintf(text, sizeof(text), "0x%llx", number), right;

	if (fd < 0)
		return -1;
	right = write(fd, text, length) == length;
	close(fd);
	return right ? 0 : -1;
}

static int unpoison(void)
{
	static uint64_t flags[4096];
	uint64_t frame, last = frames();
	int count = 0, left = 0;
	ssize_t got, i;

	for (frame = 0; frame <= last; frame += sizeof(flags) / 8) {
		got = pread(flags_file, flags, sizeof(flags), frame * 8) / 8;
		for (i = 0; i < got; i++) {
			if (!(flags[i] & KPF_HWPOISON))
				continue;
			if (write_number("/sys/kernel/debug/hwpoison/unpoison-pfn", frame + i))
				left++;
			else
				count++;
		}
	}
	printf("unpoisoned %d\nstill_poisoned %d\n", count, left);
	return 0;
}

int main(int argc, char **argv)
{
	int soft = argc > 1 && !strcmp(argv[1], "soft"), count = argc > 2 ? atoi(argv[2]) : 0, done = 0, tries, own = 0;
	uint64_t random = (uint64_t)time(NULL) << 20 | (getpid() & 0xfffff) | 1, last = frames();
	const char *path = soft ? "/sys/devices/system/memory/soft_offline_page" : "/sys/devices/system/memory/hard_offline_page";

	flags_file = open("/proc/kpageflags", O_RDONLY);
	if (argc < 2 || flags_file < 0 || !last) {
		fprintf(stderr, "usage: offline soft|hard COUNT, or offline unpoison\n");
		return 2;
	}
	check_init();
	if (!strcmp(argv[1], "unpoison"))
		return unpoison();
	for (tries = 0; done < count && tries < 1000 * count; tries++) {
		uint64_t frame = next_random(&random) % last;

		if (soft && tries % 2) {
			char *p = mmap(NULL, BASE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			if (p == MAP_FAILED)
				continue;
			*(volatile char *)p = 0;
			check_words("page to be taken away", p, BASE_PAGE, 0);
			fill_words(p, BASE_PAGE, 0x1122334455667788);
			if (!madvise(p, BASE_PAGE, MADV_SOFT_OFFLINE)) {
				done++;
				own++;
			}
			check_words("page that was moved", p, BASE_PAGE, 0x1122334455667788);
			munmap(p, BASE_PAGE);
		} else if ((flags_of(frame) & KPF_BUDDY) && !write_number(path, frame * BASE_PAGE)) {
			done++;
		}
	}
	printf("taken_free %d\ntaken_own %d\nwrong_pages %llu\n", done - own, own, (unsigned long long)totals->failures);
	return totals->failures != 0;
}
