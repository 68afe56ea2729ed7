// SPDX-License-Identifier: GPL-2.0-only
/*
 * trace: runs a fixed sequence of allocations, frees and idle time on a kernel that zeroes free
 * memory in advance, and prints the kernel's counters after each step. `hawkeye-lab sim prezeroing`
 * does the same steps on the simulator's free lists and compares.
 *
 * Each step prints one line:
 *   step KIND NAME AMOUNT us=TIME rate=PAGES_PER_SECOND zeroed= served= passed_over= lost= marked=
 *   free=
 * All counters are base pages, summed over the zones; free is MemFree. Zeroing nearly stops outside
 * idle steps, so zeroed memory that a step got was zeroed before the step. Needs the module
 * prezero, root, and a tmpfs or ramfs as working directory.
 *
 * gcc -O2 -static -o trace trace.c
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (512 * PAGE)
#define CORE "/sys/kernel/mm/prezero"
#define RATE "/sys/module/prezero/parameters/pages_per_second"
/* Base pages zeroed per second of idle time: the paper's rate. */
#define PAGES_PER_SECOND 10000UL

static const char *const counters[] = { "zeroed", "served", "passed_over", "lost", "free" };
#define COUNTERS (sizeof(counters) / sizeof(counters[0]))

/* Memory that is held, by the first letter of its name. */
static struct held {
	char *memory;
	unsigned long pages;
} held[256];

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("trace: ", stderr);
	vfprintf(stderr, format, args);
	fprintf(stderr, ": %m\n");
	exit(1);
}

static unsigned long read_number(const char *path)
{
	unsigned long number;
	FILE *file = fopen(path, "r");

	if (!file || fscanf(file, "%lu", &number) != 1)
		die("%s", path);
	fclose(file);
	return number;
}

static void set_rate(unsigned long rate)
{
	FILE *file = fopen(RATE, "w");

	if (!file || fprintf(file, "%lu\n", rate) < 0 || fclose(file))
		die(RATE);
}

static void print_counters(void)
{
	unsigned long sums[COUNTERS] = { 0 }, free_kib = 0;
	char path[512], line[256];
	DIR *folder = opendir(CORE);
	struct dirent *zone;
	unsigned int i;
	FILE *file;

	if (!folder)
		die(CORE);
	while ((zone = readdir(folder)) != NULL) {
		if (strncmp(zone->d_name, "node", 4))
			continue;
		for (i = 0; i < COUNTERS; i++) {
			snprintf(path, sizeof(path), CORE "/%s/%s", zone->d_name, counters[i]);
			sums[i] += read_number(path);
		}
	}
	closedir(folder);
	file = fopen("/proc/meminfo", "r");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "MemFree: %lu", &free_kib);
	if (!file || !free_kib)
		die("/proc/meminfo");
	fclose(file);
	for (i = 0; i < COUNTERS; i++)
		printf(" %s=%lu", strcmp(counters[i], "free") ? counters[i] : "marked", sums[i]);
	printf(" free=%lu\n", free_kib / 4);
	fflush(stdout);
}

static unsigned long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000UL + now.tv_nsec / 1000;
}

static void *map(unsigned long bytes, int file)
{
	int flags = MAP_PRIVATE | (file < 0 ? MAP_ANONYMOUS : 0);
	char *memory = mmap(NULL, bytes + (file < 0 ? HUGE : 0), PROT_READ | PROT_WRITE, flags, file, 0);

	if (memory == MAP_FAILED)
		die("mmap of %lu bytes", bytes);
	return file < 0 ? (void *)(((unsigned long)memory + HUGE - 1) & ~(HUGE - 1)) : memory;
}

static void touch(char *memory, unsigned long pages, unsigned long each)
{
	for (unsigned long page = 0; page < pages; page += each)
		memory[page * PAGE] = 1;
}

/* Anonymous memory, touched by huge or base pages: faults there want zeros. */
static void anonymous(struct held *to, unsigned long pages, int huge)
{
	to->memory = map(pages * PAGE, -1);
	to->pages = pages;
	if (madvise(to->memory, pages * PAGE, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE))
		die("madvise");
	touch(to->memory, pages, huge ? 512 : 1);
}

static void path_of(char name, char path[8])
{
	snprintf(path, 8, "./%c", name);
}

/* Pages of a file, each written as a whole: these writes want no zeros. */
static void file(char name, unsigned long pages)
{
	static char page[PAGE];
	char path[8];
	int fd;

	path_of(name, path);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
	if (fd < 0)
		die(path);
	memset(page, 7, sizeof(page));
	for (unsigned long i = 0; i < pages; i++)
		if (write(fd, page, PAGE) != (ssize_t)PAGE)
			die("writing %s", path);
	close(fd);
}

/* Private copies of the pages of file `f`, made on write, as after a fork. */
static void copy(struct held *to, unsigned long pages)
{
	int fd = open("./f", O_RDWR);

	if (fd < 0)
		die("./f");
	to->memory = map(pages * PAGE, fd);
	to->pages = pages;
	close(fd);
	touch(to->memory, pages, 1);
}

/* Gives back every nth page. */
static void give_back(char name, struct held *from, unsigned long nth)
{
	char path[8];

	path_of(name, path);
	if (!from->memory) {
		if (unlink(path))
			die(path);
		return;
	}
	for (unsigned long page = 0; nth > 1 && page < from->pages; page += nth)
		if (madvise(from->memory + page * PAGE, PAGE, MADV_DONTNEED))
			die("MADV_DONTNEED");
	if (nth == 1) {
		if (munmap(from->memory, from->pages * PAGE))
			die("munmap");
		from->memory = NULL;
	}
}

static void step(const char *kind, char name, unsigned long amount)
{
	struct held *mine = &held[(unsigned char)name];
	unsigned long rate = 1, began = now_us();

	if (!strcmp(kind, "idle")) {
		rate = PAGES_PER_SECOND;
		set_rate(rate);
		began = now_us();
		usleep(amount * 1000);
		set_rate(1);
	} else if (!strcmp(kind, "huge")) {
		anonymous(mine, amount * 512, 1);
	} else if (!strcmp(kind, "base")) {
		anonymous(mine, amount, 0);
	} else if (!strcmp(kind, "file")) {
		file(name, amount);
	} else if (!strcmp(kind, "copy")) {
		copy(mine, amount);
	} else if (!strcmp(kind, "free")) {
		give_back(name, mine, amount);
	}
	printf("step %s %c %lu us=%lu rate=%lu", kind, name, amount, now_us() - began, rate);
	print_counters();
}

/*
 * The amount is, by kind: milliseconds of idle time, a number of huge pages, a number of base
 * pages, or the distance in pages from one page given back to the next.
 */
static const struct {
	const char *kind;
	char name;
	unsigned long amount;
} steps[] = {
	{ "start", '-', 0 },
	{ "idle", '-', 40000 },	/* zeroes all that can be zeroed */
	{ "huge", 'a', 128 },	/* huge pages after idle time */
	{ "free", 'a', 1 },
	{ "huge", 'b', 128 },	/* again at once: freed memory is dirty, other memory is not */
	{ "idle", '-', 5000 },
	{ "free", 'b', 1 },
	{ "base", 'c', 32768 },	/* base pages */
	{ "free", 'c', 2 },	/* every second page: nothing larger than a base page is freed */
	{ "idle", '-', 8000 },
	{ "base", 'd', 16384 },
	{ "free", 'd', 1 },
	{ "free", 'c', 1 },	/* all of it merges again */
	{ "idle", '-', 16000 },
	{ "huge", 'e', 200 },
	{ "free", 'e', 1 },
	{ "file", 'f', 32768 },	/* wants no zeros, while there is memory that is not zeroed */
	{ "copy", 'g', 16384 },
	{ "free", 'g', 1 },
	{ "free", 'f', 1 },
	{ "huge", 'h', 380 },	/* most of the memory: more than is zeroed */
	{ "free", 'h', 1 },
	{ "idle", '-', 8000 },	/* not long enough to zero all of it */
	{ "huge", 'i', 200 },
	{ "free", 'i', 1 },
	{ "idle", '-', 8000 },
	{ "base", 'j', 131072 },
	{ "free", 'j', 1 },
};

int main(void)
{
	struct utsname name;

	if (uname(&name))
		die("uname");
	if (!read_number(CORE "/active"))
		die("nothing zeroes free memory (modprobe prezero)");
	set_rate(1);
	printf("kernel %s\n", name.release);
	for (unsigned int i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		step(steps[i].kind, steps[i].name, steps[i].amount);
	return 0;
}
