/*
 * What MADV_COLLAPSE from outside does to program text (private, executable mappings of a file),
 * what undoes it, and what it does to writers of the file. docs/design/program-text.md has the
 * results.
 *
 * gcc -O1 -static -o program-text program-text.c
 * ./program-text FOLDER kinds|fresh|mappers|undo|writers|amounts|bits|touch
 *
 * Needs root and x86-64. Uses 16 MiB of the file system of FOLDER. Changes no setting, but `undo`
 * and `fresh` drop clean pages of the machine's page cache (drop_caches).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define HUGE (512 * PAGE)
#define REGIONS 4
#define BYTES (REGIONS * HUGE)
#define PAGES (REGIONS * 512)
#define COLD 20
#define PAGEOUT 21
#define COLLAPSE 25
/* Tries of a promotion, 0.1 s apart, before it counts as refused. */
#define TRIES 30

#define CHECK(call)                                                                               \
	do {                                                                                      \
		if ((long)(call) == -1) {                                                         \
			perror(#call);                                                            \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

static char *const PLACE = (char *)0x7e0000000000;

struct mapping {
	int misaligned;
	int shared;
	int no_exec;
	int no_huge_page;
	int huge_page;
	int locked;
	int untouched;
};

struct process {
	pid_t pid;
	int handle;
	int orders;
	int answers;
	uint64_t start;
};

static char text[4096], other[4096 + 8], program[4096 + 8];
static sigjmp_buf no_page;

/* The kB of field `name` of the mapping of the text, in the process's smaps. */
static long field(const struct process *process, const char *name)
{
	char path[64], line[512], format[64];
	long value, sum = 0;
	unsigned long start, end;
	int inside = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps", process->pid);
	snprintf(format, sizeof(format), "%s: %%ld", name);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = start >= process->start && end <= process->start + BYTES;
		else if (inside && sscanf(line, format, &value) == 1)
			sum += value;
	if (file)
		fclose(file);
	return sum;
}

static long huge(const struct process *process)
{
	return field(process, "ShmemPmdMapped") + field(process, "FilePmdMapped");
}

static long machine(const char *name)
{
	char line[256], format[64];
	long value = -1;
	FILE *file = fopen("/proc/meminfo", "r");

	snprintf(format, sizeof(format), "%s: %%ld", name);
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, format, &value) == 1)
			break;
	if (file)
		fclose(file);
	return value;
}

static const char *outcome(long result)
{
	return result < 0 ? strerrorname_np(errno) : "ok";
}

static void put(const char *path, const char *content)
{
	int file = open(path, O_WRONLY);

	if (file < 0 || write(file, content, strlen(content)) < 0)
		printf("  %s: %s\n", path, outcome(-1));
	if (file >= 0)
		close(file);
}

/* A function of the text: returns `value`. */
static void make_page(char *page, uint32_t value)
{
	memset(page, 0xcc, PAGE);
	page[0] = (char)0xb8;	/* mov $value,%eax */
	memcpy(page + 1, &value, sizeof(value));
	page[5] = (char)0xc3;	/* ret */
}

/* Leaves the file open for writing. */
static int create(const char *path)
{
	char page[PAGE];
	int file;

	unlink(path);
	CHECK(file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0755));
	for (size_t p = 0; p < PAGES; p++) {
		make_page(page, p);
		CHECK(pwrite(file, page, PAGE, p * PAGE));
	}
	return file;
}

static void create_synced(const char *path)
{
	int file = create(path);

	CHECK(fsync(file));
	close(file);
}

static void leave_out_page(int number)
{
	(void)number;
	siglongjmp(no_page, 1);
}

/* Calls all functions. Returns how many do not return what the original file has. */
static uint64_t call_functions(char *start)
{
	volatile uint64_t wrong = 0;

	for (volatile size_t p = 0; p < PAGES; p++)
		if (sigsetjmp(no_page, 1))
			wrong++;
		else
			wrong += ((uint32_t(*)(void))(start + p * PAGE))() != p;
	return wrong;
}

static void serve(const struct mapping *m, int orders, int answers)
{
	char *place = PLACE + (m->misaligned ? PAGE : 0), order;
	int file;
	uint64_t answer = (uint64_t)place;

	signal(SIGBUS, leave_out_page);
	signal(SIGSEGV, leave_out_page);
	CHECK(file = open(text, O_RDONLY));
	CHECK(mmap(place, BYTES, PROT_READ | (m->no_exec ? 0 : PROT_EXEC),
		   MAP_FIXED | (m->shared ? MAP_SHARED : MAP_PRIVATE), file, 0));
	close(file);
	if (m->no_huge_page)
		CHECK(madvise(place, BYTES, MADV_NOHUGEPAGE));
	if (m->huge_page)
		CHECK(madvise(place, BYTES, MADV_HUGEPAGE));
	if (m->locked)
		CHECK(mlock(place, BYTES));
	for (size_t p = 0; m->no_exec && p < PAGES; p++)
		(void)*(volatile char *)(place + p * PAGE);
	if (!m->untouched && !m->no_exec)
		call_functions(place);
	do {
		CHECK(write(answers, &answer, sizeof(answer)));
		if (read(orders, &order, 1) != 1)
			_exit(0);
		answer = call_functions(place);
	} while (1);
}

static struct process start_process(struct mapping m)
{
	struct process process;
	int to[2], from[2];

	CHECK(pipe2(to, O_CLOEXEC));
	CHECK(pipe2(from, O_CLOEXEC));
	CHECK(process.pid = fork());
	if (!process.pid) {
		close(to[1]);
		serve(&m, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	process.orders = to[1];
	process.answers = from[0];
	if (read(process.answers, &process.start, sizeof(process.start)) <= 0)
		exit(1);
	CHECK(process.handle = syscall(SYS_pidfd_open, process.pid, 0));
	return process;
}

/* The process calls all functions. */
static uint64_t run(const struct process *process)
{
	uint64_t answer = 0;

	CHECK(write(process->orders, "r", 1));
	CHECK(read(process->answers, &answer, sizeof(answer)));
	return answer;
}

static void stop(struct process *process)
{
	kill(process->pid, SIGKILL);
	waitpid(process->pid, NULL, 0);
	close(process->handle);
	close(process->orders);
	close(process->answers);
}

static long advise(const struct process *process, uint64_t at, size_t bytes, int advice)
{
	struct iovec range = { (void *)at, bytes };

	return syscall(SYS_process_madvise, process->handle, &range, 1, advice, 0);
}

static void advise_one_page_of_each_region(const struct process *process, int advice)
{
	for (int i = 0; i < REGIONS; i++)
		advise(process, process->start + i * HUGE + 5 * PAGE, PAGE, advice);
}

/* One call for each region. Writes the outcome, such as "0 of 4: EINVAL", and returns the done. */
static int collapse(const struct process *process, char *result, size_t size)
{
	uint64_t first = (process->start + HUGE - 1) & ~(HUGE - 1);
	int regions = REGIONS - (first != process->start), done = 0, error = 0;

	for (int i = 0; i < regions; i++)
		if (advise(process, first + i * HUGE, HUGE, COLLAPSE) < 0)
			error = errno;
		else
			done++;
	snprintf(result, size, "%d of %d%s%s", done, regions, error ? ": " : "",
		 error ? strerrorname_np(error) : "");
	return done == regions;
}

/* Tries again until all regions are huge. Prints the first outcome, and the last. */
static int collapse_with_retries(const struct process *process)
{
	char result[64];
	int tries = 1;

	if (collapse(process, result, sizeof(result))) {
		printf("%s at the first try, ", result);
	} else {
		printf("%s at first, then ", result);
		while (!collapse(process, result, sizeof(result)) && ++tries < TRIES)
			usleep(100000);
		printf("%s after %d tries, ", result, tries < TRIES ? tries + 1 : tries);
	}
	printf("huge %ld kB", huge(process));
	return tries;
}

/* The parts that need a promotion end with the first refused one. */
static void collapse_or_end(const struct process *process)
{
	char result[64];
	int tries = 0;

	while (!collapse(process, result, sizeof(result)) && ++tries < TRIES)
		usleep(100000);
	if (tries == TRIES) {
		printf("  refused: %s\n", result);
		kill(process->pid, SIGKILL);
		unlink(text);
		exit(0);
	}
}

/* As debuggers do it: the process gets its own copy of that page. */
static long set_breakpoint(const struct process *process)
{
	/* Behind the function's end, so that calls still return the right value. */
	uint64_t at = process->start + 3 * PAGE + 8;

	CHECK(ptrace(PTRACE_ATTACH, process->pid, 0, 0));
	CHECK(waitpid(process->pid, NULL, 0));
	CHECK(ptrace(PTRACE_POKETEXT, process->pid, at, 0xcc));
	return ptrace(PTRACE_DETACH, process->pid, 0, 0);
}

static void drop_cached_file(void)
{
	int file;

	CHECK(file = open(text, O_RDONLY));
	CHECK(fsync(file));
	posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
	close(file);
}

static void try_kind(const char *name, struct mapping m, int change)
{
	struct process process;

	create_synced(text);
	process = start_process(m);
	if (change == 'u')
		unlink(text);
	if (change == 'b')
		CHECK(set_breakpoint(&process));
	printf("%-48s ", name);
	collapse_with_retries(&process);
	printf(", own pages %ld kB", field(&process, "Anonymous"));
	if (!m.no_exec)
		printf(", wrong pages %lu", (unsigned long)run(&process));
	printf(", THPeligible %ld\n", field(&process, "THPeligible"));
	stop(&process);
}

static void kinds(void)
{
	try_kind("private, executable", (struct mapping){ 0 }, 0);
	try_kind("the same, not at a multiple of 2 MiB", (struct mapping){ .misaligned = 1 }, 0);
	try_kind("private, read-only, not executable", (struct mapping){ .no_exec = 1 }, 0);
	try_kind("shared, executable", (struct mapping){ .shared = 1 }, 0);
	try_kind("private, executable, MADV_NOHUGEPAGE", (struct mapping){ .no_huge_page = 1 }, 0);
	try_kind("private, executable, nothing accessed yet", (struct mapping){ .untouched = 1 }, 0);
	try_kind("private, executable, mlock", (struct mapping){ .locked = 1 }, 0);
	try_kind("private, executable, unlinked", (struct mapping){ 0 }, 'u');
	try_kind("private, executable, a breakpoint in one page", (struct mapping){ 0 }, 'b');
}

static void try_state(const char *name, int state)
{
	struct process process;
	int file = create(text);

	if (state == 'f' || state == 'o')
		CHECK(fsync(file));
	if (state == 's')
		sync();
	if (state != 'o' && state != 'O')
		close(file);
	if (state == '1')
		sleep(1);
	if (state == 'd') {
		sync();
		put("/proc/sys/vm/drop_caches", "1");
	}
	process = start_process((struct mapping){ .untouched = state == 'd' });
	printf("%-48s ", name);
	collapse_with_retries(&process);
	printf(", wrong pages %lu\n", (unsigned long)run(&process));
	if (state == 'o' || state == 'O')
		close(file);
	stop(&process);
}

static void fresh(void)
{
	try_state("written and closed", 'w');
	try_state("the same, 1 s before", '1');
	try_state("the same, fsync before it was closed", 'f');
	try_state("the same, sync", 's');
	try_state("not in the page cache, nothing accessed yet", 'd');
	try_state("still open for writing, fsync", 'o');
	try_state("still open for writing", 'O');
}

static void show(const char *name, const struct process *a, const struct process *b)
{
	printf("  %-40s huge %5ld", name, huge(a));
	if (b)
		printf(" / %5ld", huge(b));
	printf(" kB, resident %5ld", field(a, "Rss"));
	if (b)
		printf(" / %5ld", field(b, "Rss"));
	printf(" kB\n");
}

static void mappers(void)
{
	struct process a, b, c;

	create_synced(text);
	a = start_process((struct mapping){ 0 });
	b = start_process((struct mapping){ 0 });
	show("two mappers", &a, &b);
	collapse_or_end(&a);
	show("promoted in the first", &a, &b);
	run(&b);
	show("the second has called all functions", &a, &b);
	c = start_process((struct mapping){ 0 });
	show("a third that maps it now, has called all", &c, NULL);
	collapse_or_end(&b);
	collapse_or_end(&c);
	show("promoted in the others (second / third)", &b, &c);
	stop(&a);
	stop(&b);
	stop(&c);
}

/* Does one thing to a promoted file; the result is an error or "ok". */
static const char *act(int what, const struct process *a, const struct process *b)
{
	const struct process *both[] = { a, b };
	long result = 0;
	int file = -1;

	for (int i = 0; i < 2 && both[i]; i++) {
		if (what == 'c' || what == 'p')
			advise_one_page_of_each_region(both[i], what == 'c' ? COLD : PAGEOUT);
		if (what == 'C' || what == 'P')
			result = advise(both[i], both[i]->start, BYTES,
					what == 'C' ? COLD : PAGEOUT);
	}
	if (what == 'f' || what == 'F' || what == 'r' || what == 's') {
		CHECK(file = open(text, O_RDONLY));
		if (what == 'r')
			for (size_t p = 0; p < PAGES; p++)
				CHECK(pread(file, program, 1, p * PAGE));
		else if (what == 's')
			result = fsync(file);
		else
			posix_fadvise(file, what == 'f' ? 5 * PAGE : 0, what == 'f' ? PAGE : 0,
				      POSIX_FADV_DONTNEED);
	}
	if (what == 'b')
		result = set_breakpoint(a);
	if (what == 'd')
		put("/proc/sys/vm/drop_caches", "1");
	if (what == 'u')
		result = unlink(text);
	if (what == 'm') {
		create_synced(other);
		result = rename(other, text);
	}
	if (what == 'o' || what == 'w' || what == 't' || what == 'h') {
		file = open(text, O_RDWR);
		result = file;
	}
	if (result >= 0 && what == 'w') {
		char page[PAGE];

		make_page(page, 5);
		result = pwrite(file, page, PAGE, 5 * PAGE);
		if (result >= 0)
			result = fsync(file);
	}
	if (result >= 0 && what == 't')
		result = ftruncate(file, BYTES - 5 * PAGE);
	if (result >= 0 && what == 'h')
		result = fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 7 * PAGE, PAGE);
	if (file >= 0)
		close(file);
	return outcome(result);
}

static void undo(void)
{
	static const struct {
		char what;
		const char *name;
	} acts[] = { { 'c', "MADV_COLD of one page of each region" },
		     { 'p', "MADV_PAGEOUT of one page of each region" },
		     { 'C', "MADV_COLD of everything" },
		     { 'P', "MADV_PAGEOUT of everything" },
		     { 'f', "POSIX_FADV_DONTNEED of one page" },
		     { 'F', "POSIX_FADV_DONTNEED of the file" },
		     { 'd', "drop_caches" },
		     { 'r', "the file is read" },
		     { 's', "fsync" },
		     { 'b', "a breakpoint in one page (of the first)" },
		     { 'o', "opened for writing and closed" },
		     { 'w', "one page written with the same, fsync" },
		     { 't', "truncated by five pages" },
		     { 'h', "a hole punched into the first region" },
		     { 'm', "another file renamed over it" },
		     { 'u', "unlinked" } };

	printf("%-42s mappers  outcome  huge kB: promoted, then, all called  wrong pages\n", "");
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
		for (int count = 1; count <= 2; count++) {
			struct process a, b = { 0 };
			const char *result;
			long before, then;
			uint64_t wrong;

			create_synced(text);
			a = start_process((struct mapping){ 0 });
			if (count == 2)
				b = start_process((struct mapping){ 0 });
			collapse_or_end(&a);
			if (count == 2)
				run(&b);
			before = huge(&a);
			result = act(acts[i].what, &a, count == 2 ? &b : NULL);
			then = huge(&a);
			wrong = run(&a);
			printf("%-42s %d        %-8s %5ld, %5ld, %5ld", acts[i].name, count, result,
			       before, then, huge(&a));
			if (count == 2) {
				wrong += run(&b);
				printf("; the other %5ld", huge(&b));
			}
			printf("; wrong %lu\n", (unsigned long)wrong);
			stop(&a);
			if (count == 2)
				stop(&b);
		}
}

/* The file's pages in the page cache, of 2048. */
static long cached(void)
{
	static unsigned char present[PAGES];
	long count = 0;
	char *at;
	int file;

	CHECK(file = open(text, O_RDONLY));
	CHECK(at = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0));
	CHECK(mincore(at, BYTES, present));
	for (size_t p = 0; p < PAGES; p++)
		count += present[p] & 1;
	munmap(at, BYTES);
	close(file);
	return count;
}

static void writers(void)
{
	char page[PAGE], back[PAGE], command[8300];
	struct process a;
	int file;
	pid_t pid;

	create_synced(text);
	a = start_process((struct mapping){ 0 });
	collapse_or_end(&a);
	show("promoted", &a, NULL);
	printf("  cached pages %ld\n", cached());
	file = open(text, O_RDWR);
	printf("  open for writing: %s, cached pages %ld\n", outcome(file), cached());
	show("after it", &a, NULL);
	printf("  wrong pages %lu\n", (unsigned long)run(&a));
	show("all called", &a, NULL);
	if (file >= 0) {
		make_page(page, 12345);
		printf("  write of page 5: %s", outcome(pwrite(file, page, PAGE, 5 * PAGE)));
		printf(", read back %s", pread(file, back, PAGE, 5 * PAGE) == (long)PAGE &&
		       !memcmp(page, back, PAGE) ? "right" : "wrong");
		printf(", changed pages in the mapper %lu\n", (unsigned long)run(&a));
		show("after it", &a, NULL);
		printf("  fsync: %s", outcome(fsync(file)));
		drop_cached_file();
		printf(", read back from the disk %s\n", pread(file, back, PAGE, 5 * PAGE) == (long)PAGE &&
		       !memcmp(page, back, PAGE) ? "right" : "wrong");
		printf("  promoted again while open: ");
		collapse_with_retries(&a);
		printf("\n  changed pages in the mapper %lu\n", (unsigned long)run(&a));
		close(file);
		printf("  promoted again when closed: ");
		collapse_with_retries(&a);
		printf("\n  changed pages in the mapper %lu\n", (unsigned long)run(&a));
	}
	stop(&a);

	snprintf(command, sizeof(command), "cp /proc/%d/exe %s", getpid(), program);
	if (system(command))
		return;
	CHECK(pid = fork());
	if (!pid) {
		execl(program, program, "wait", "wait", NULL);
		_exit(1);
	}
	sleep(1);
	file = open(program, O_RDWR);
	printf("  open for writing of a program that runs: %s\n", outcome(file));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(program);
}

static void amounts(void)
{
	static const char *of_mapping[] = { "Rss", "Pss", "Private_Clean", "Private_Dirty",
					    "AnonHugePages", "ShmemPmdMapped", "FilePmdMapped" };
	static const char *of_machine[] = { "Cached", "AnonHugePages", "ShmemHugePages",
					    "ShmemPmdMapped", "FileHugePages", "FilePmdMapped" };
	long before[7], at[6];
	struct process a;

	create_synced(text);
	a = start_process((struct mapping){ 0 });
	for (int i = 0; i < 7; i++)
		before[i] = field(&a, of_mapping[i]);
	for (int i = 0; i < 6; i++)
		at[i] = machine(of_machine[i]);
	collapse_or_end(&a);
	for (int i = 0; i < 7; i++)
		printf("  smaps %-16s %6ld -> %6ld kB\n", of_mapping[i], before[i],
		       field(&a, of_mapping[i]));
	for (int i = 0; i < 6; i++)
		printf("  meminfo %-14s %+6ld kB\n", of_machine[i], machine(of_machine[i]) - at[i]);
	stop(&a);
}

static void clear_refs(const struct process *process)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", process->pid);
	put(path, "1");
}

static void bits(void)
{
	for (int count = 1; count <= 2; count++) {
		struct process a, b = { 0 };

		create_synced(text);
		a = start_process((struct mapping){ 0 });
		if (count == 2)
			b = start_process((struct mapping){ 0 });
		printf("%d mapper%s: accessed %ld", count, count == 1 ? " " : "s",
		       field(&a, "Referenced"));
		advise(&a, a.start, BYTES, COLD);
		printf(", MADV_COLD %ld", field(&a, "Referenced"));
		clear_refs(&a);
		printf(", clear_refs %ld", field(&a, "Referenced"));
		run(&a);
		collapse_or_end(&a);
		if (count == 2)
			run(&b);
		run(&a);
		printf("; huge %ld: accessed %ld", huge(&a), field(&a, "Referenced"));
		advise(&a, a.start, BYTES, COLD);
		printf(", MADV_COLD %ld", field(&a, "Referenced"));
		clear_refs(&a);
		printf(", clear_refs %ld kB\n", field(&a, "Referenced"));
		stop(&a);
		if (count == 2)
			stop(&b);
	}
}

/* Replaces the file by one that was written with a single call. */
static void rewrite_at_once(void)
{
	char *whole = malloc(BYTES);
	int file;

	unlink(text);
	CHECK(file = open(text, O_RDWR | O_CREAT | O_TRUNC, 0755));
	for (size_t p = 0; p < PAGES; p++)
		make_page(whole + p * PAGE, p);
	CHECK(write(file, whole, BYTES));
	CHECK(fsync(file));
	close(file);
	free(whole);
}

static void touch(void)
{
	static const char *states[] = { "written page by page", "written with one call",
					"not in the page cache",
					"read before by a process with MADV_HUGEPAGE" };

	for (int asks = 0; asks < 2; asks++)
		for (int state = 0; state < (asks ? 3 : 4); state++) {
			struct process a, before;

			create_synced(text);
			if (state == 1)
				rewrite_at_once();
			if (state >= 2)
				drop_cached_file();
			if (state == 3) {
				before = start_process((struct mapping){ .huge_page = 1 });
				stop(&before);
			}
			a = start_process((struct mapping){ .huge_page = asks });
			printf("%-28s %-44s huge %5ld kB\n",
			       asks ? "MADV_HUGEPAGE by the process" : "no advice",
			       states[state], huge(&a));
			stop(&a);
		}
}

int main(int count, char **words)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = { { "kinds", kinds },     { "fresh", fresh },     { "mappers", mappers },
		      { "undo", undo },	      { "writers", writers }, { "amounts", amounts },
		      { "bits", bits },	      { "touch", touch } };

	if (count == 3 && !strcmp(words[1], "wait"))
		pause();
	setvbuf(stdout, NULL, _IONBF, 0);
	for (size_t i = 0; count == 3 && i < sizeof(parts) / sizeof(parts[0]); i++)
		if (!strcmp(words[2], parts[i].name)) {
			snprintf(text, sizeof(text), "%s/hawkeye-text", words[1]);
			snprintf(other, sizeof(other), "%s.new", text);
			snprintf(program, sizeof(program), "%s.run", text);
			parts[i].run();
			unlink(text);
			return 0;
		}
	fprintf(stderr, "usage: program-text FOLDER "
			"kinds|fresh|mappers|undo|writers|amounts|bits|touch\n");
	return 2;
}
