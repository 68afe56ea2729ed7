/*
 * What MADV_COLLAPSE from outside does to shared memory, what undoes it, and which advice clears
 * access bits. docs/design/shared-memory.md has the results.
 *
 * gcc -O1 -o shared-memory shared-memory.c && ./shared-memory kinds|holes|undo|mappers|bits
 *
 * Needs root. Uses 8 MiB, and changes no setting.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
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

#define CHECK(call)                                                                               \
	do {                                                                                      \
		if ((long)(call) == -1) {                                                         \
			perror(#call);                                                            \
			exit(1);                                                                  \
		}                                                                                 \
	} while (0)

static char *const PLACE = (char *)0x7e0000000000;

enum kind { MEMFD, ANONYMOUS, SYSTEM_V, TMPFS };
static const char *kind_names[] = { "memfd", "shared anonymous", "System V", "file in /dev/shm" };

struct mapping {
	enum kind kind;
	int kernel_chooses;	/* the address */
	int read_only;
	int private;
	int locked;
	int no_huge_page;
	int watched;		/* by userfaultfd; 2: filled before */
	int seals;
	int pages;		/* of each region that the process touches */
	int before;		/* the file is filled before */
};

struct process {
	pid_t pid;
	int handle;
	int orders;
	int answers;
	uint64_t start;
};

static int segment;

static long field(pid_t pid, const char *name)
{
	char path[64], line[256], format[64];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	snprintf(format, sizeof(format), "%s: %%ld", name);
	file = fopen(path, "r");
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

static long advise(const struct process *process, uint64_t at, size_t bytes, int advice)
{
	struct iovec range = { (void *)at, bytes };

	return syscall(SYS_process_madvise, process->handle, &range, 1, advice, 0);
}

static int create(const struct mapping *m)
{
	int file = -1;
	char page[PAGE];

	if (m->kind == MEMFD)
		CHECK(file = memfd_create("probe", MFD_ALLOW_SEALING));
	if (m->kind == TMPFS) {
		CHECK(file = open("/dev/shm/hawkeye-probe", O_RDWR | O_CREAT | O_TRUNC, 0600));
		CHECK(unlink("/dev/shm/hawkeye-probe"));
	}
	if (m->kind == SYSTEM_V)
		CHECK(segment = shmget(IPC_PRIVATE, BYTES, 0600 | IPC_CREAT));
	if (file >= 0)
		CHECK(ftruncate(file, BYTES));
	for (size_t p = 0; m->before && p < PAGES; p++) {
		memset(page, (int)p | 1, PAGE);
		CHECK(pwrite(file, page, PAGE, p * PAGE));
	}
	if (m->seals)
		CHECK(fcntl(file, F_ADD_SEALS, m->seals));
	return file;
}

static char *map(const struct mapping *m, int file)
{
	int access = m->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	int flags = m->private ? MAP_PRIVATE : MAP_SHARED;
	char *place = m->kernel_chooses ? NULL : PLACE;

	if (m->kind == SYSTEM_V)
		return shmat(segment, place, 0);
	if (place)
		flags |= MAP_FIXED;
	if (m->kind == ANONYMOUS)
		flags |= MAP_ANONYMOUS;
	return mmap(place, BYTES, access, flags, file, 0);
}

static void watch(char *start)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .range = { (uint64_t)start, BYTES },
					 .mode = UFFDIO_REGISTER_MODE_MISSING };
	int monitor;

	CHECK(monitor = syscall(SYS_userfaultfd, 0));
	CHECK(ioctl(monitor, UFFDIO_API, &api));
	CHECK(ioctl(monitor, UFFDIO_REGISTER, &range));
}

static int touched(const struct mapping *m, size_t page)
{
	return (int)(page % 512) < m->pages;
}

/* Orders: 'r' read every page, 'v' count wrong pages. */
static void serve(const struct mapping *m, int file, int orders, int answers)
{
	char *start = map(m, file);
	uint64_t answer = (uint64_t)start;
	char order;

	CHECK(start);
	if (m->no_huge_page)
		CHECK(madvise(start, BYTES, MADV_NOHUGEPAGE));
	for (size_t p = 0; m->watched != 1 && p < PAGES; p++)
		if (touched(m, p)) {
			if (m->read_only)
				(void)*(volatile char *)(start + p * PAGE);
			else
				start[p * PAGE] = (char)(p | 1);
		}
	if (m->watched)
		watch(start);
	if (m->locked)
		CHECK(mlock(start, BYTES));
	do {
		CHECK(write(answers, &answer, sizeof(answer)));
		if (read(orders, &order, 1) != 1)
			_exit(0);
		answer = 0;
		for (size_t p = 0; p < PAGES; p++) {
			char found = *(volatile char *)(start + p * PAGE);

			if (order == 'v' && touched(m, p))
				answer += found != (char)(p | 1);
		}
	} while (1);
}

static struct process start_process(const struct mapping *m, int file)
{
	struct process process;
	int to[2], from[2];

	CHECK(pipe(to));
	CHECK(pipe(from));
	CHECK(process.pid = fork());
	if (!process.pid) {
		close(to[1]);
		serve(m, file, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	process.orders = to[1];
	process.answers = from[0];
	CHECK(read(process.answers, &process.start, sizeof(process.start)));
	CHECK(process.handle = syscall(SYS_pidfd_open, process.pid, 0));
	return process;
}

static uint64_t order(const struct process *process, char what)
{
	uint64_t answer = 0;

	CHECK(write(process->orders, &what, 1));
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

static void remove_file(const struct mapping *m, int file)
{
	if (file >= 0)
		close(file);
	if (m->kind == SYSTEM_V)
		shmctl(segment, IPC_RMID, NULL);
}

static long file_kib(int file)
{
	struct stat status;

	CHECK(fstat(file, &status));
	return status.st_blocks / 2;
}

static void show(const char *text, const struct process *a, const struct process *b)
{
	printf("  %-44s huge %5ld", text, field(a->pid, "ShmemPmdMapped"));
	if (b)
		printf(" / %5ld", field(b->pid, "ShmemPmdMapped"));
	printf(" kB, resident %5ld", field(a->pid, "Rss"));
	if (b)
		printf(" / %5ld", field(b->pid, "Rss"));
	printf(" kB\n");
}

static void advise_one_page_of_each_region(const struct process *process, int advice)
{
	for (int i = 0; i < REGIONS; i++)
		advise(process, process->start + i * HUGE + 5 * PAGE, PAGE, advice);
}

static void try_kind(const char *text, struct mapping m)
{
	int file = create(&m);
	struct process process = start_process(&m, file);
	uint64_t first = (process.start + HUGE - 1) & ~(HUGE - 1);
	int regions = REGIONS - (first != process.start);
	const char *last = "ok";
	int done = 0;

	for (int i = 0; i < regions; i++) {
		long result = advise(&process, first + i * HUGE, HUGE, COLLAPSE);

		if (result < 0)
			last = outcome(result);
		else
			done++;
	}
	printf("%-42s %s, %d of %d: %s, huge %ld kB\n", text,
	       process.start % HUGE ? "unaligned" : "aligned  ", done, regions, last,
	       field(process.pid, "ShmemPmdMapped"));
	stop(&process);
	remove_file(&m, file);
}

static void kinds(void)
{
	char text[64];

	for (int kind = MEMFD; kind <= TMPFS; kind++)
		for (int chosen = 0; chosen < 2; chosen++) {
			snprintf(text, sizeof(text), "%s%s", kind_names[kind],
				 chosen ? ", the kernel chooses" : "");
			try_kind(text, (struct mapping){ .kind = kind, .kernel_chooses = chosen,
							 .pages = 512 });
		}
	try_kind("memfd, mapped read-only",
		 (struct mapping){ .read_only = 1, .before = 1, .pages = 512 });
	try_kind("memfd, sealed against grow and shrink",
		 (struct mapping){ .seals = F_SEAL_GROW | F_SEAL_SHRINK, .pages = 512 });
	try_kind("memfd, sealed against write", (struct mapping){ .seals = F_SEAL_WRITE, .before = 1,
								   .read_only = 1, .pages = 512 });
	try_kind("memfd, mlock", (struct mapping){ .locked = 1, .pages = 512 });
	try_kind("memfd, MADV_NOHUGEPAGE", (struct mapping){ .no_huge_page = 1, .pages = 512 });
	try_kind("memfd, userfaultfd, empty", (struct mapping){ .watched = 1, .pages = 512 });
	try_kind("memfd, userfaultfd, filled before", (struct mapping){ .watched = 2, .pages = 512 });
	try_kind("memfd, mapped privately and written", (struct mapping){ .private = 1, .pages = 512 });
}

static void holes(void)
{
	int pages[] = { 1, 100, 480, 512 };

	for (int i = 0; i < 4; i++) {
		struct mapping m = { .pages = pages[i] };
		int file = create(&m);
		struct process process = start_process(&m, file);
		long before = file_kib(file);
		long result = advise(&process, process.start, BYTES, COLLAPSE);
		long huge = file_kib(file);

		advise_one_page_of_each_region(&process, COLD);
		printf("%3d of 512 pages: collapse %s, file %5ld -> %ld kB, split again: %ld kB, wrong pages %lu\n",
		       pages[i], outcome(result), before, huge, file_kib(file),
		       (unsigned long)order(&process, 'v'));
		stop(&process);
		remove_file(&m, file);
	}
}

static void undo(void)
{
	int advices[] = { COLD, PAGEOUT };

	for (int i = 0; i < 2; i++) {
		struct mapping m = { .pages = 512 };
		int file = create(&m);
		struct process process = start_process(&m, file);

		printf("one mapper, %s of one base page in each region\n",
		       advices[i] == COLD ? "MADV_COLD" : "MADV_PAGEOUT");
		advise(&process, process.start, BYTES, COLLAPSE);
		show("promoted", &process, NULL);
		advise_one_page_of_each_region(&process, advices[i]);
		show("after the advice", &process, NULL);
		order(&process, 'r');
		show("after all pages were read", &process, NULL);
		printf("  wrong pages: %lu\n", (unsigned long)order(&process, 'v'));
		stop(&process);
		remove_file(&m, file);
	}
}

static void mappers(void)
{
	struct mapping m = { .pages = 512 };
	int file = create(&m);
	struct process a = start_process(&m, file), b = start_process(&m, file);
	int advices[] = { COLD, PAGEOUT };

	show("two mappers", &a, &b);
	advise(&a, a.start, BYTES, COLLAPSE);
	show("promoted in the first", &a, &b);
	order(&b, 'r');
	show("the second has read all of it", &a, &b);
	for (int i = 0; i < 2; i++) {
		const char *name = advices[i] == COLD ? "MADV_COLD" : "MADV_PAGEOUT";
		char text[64];

		advise_one_page_of_each_region(&a, advices[i]);
		advise_one_page_of_each_region(&b, advices[i]);
		snprintf(text, sizeof(text), "%s of one page in both", name);
		show(text, &a, &b);
		for (int r = 0; r < REGIONS; r++) {
			advise(&a, a.start + r * HUGE, HUGE, advices[i]);
			advise(&b, b.start + r * HUGE, HUGE, advices[i]);
		}
		snprintf(text, sizeof(text), "%s of all regions in both", name);
		show(text, &a, &b);
	}
	posix_fadvise(file, 5 * PAGE, PAGE, POSIX_FADV_DONTNEED);
	show("POSIX_FADV_DONTNEED of one page", &a, &b);
	fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, BYTES, PAGE);
	show("a hole punched after the end", &a, &b);
	fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 7 * PAGE, PAGE);
	show("a hole punched into the first region", &a, &b);
	printf("  wrong pages: %lu\n", (unsigned long)order(&a, 'v'));
	stop(&b);
	advise_one_page_of_each_region(&a, COLD);
	show("the second has ended; MADV_COLD", &a, NULL);
	stop(&a);
	remove_file(&m, file);
}

static void clear_refs(const struct process *process)
{
	char path[64];
	int file;

	snprintf(path, sizeof(path), "/proc/%d/clear_refs", process->pid);
	CHECK(file = open(path, O_WRONLY));
	CHECK(write(file, "1", 1));
	close(file);
}

static void bits(void)
{
	for (int mapped_by = 1; mapped_by <= 2; mapped_by++) {
		struct mapping m = { .pages = 512 };
		int file = create(&m);
		struct process a = start_process(&m, file), b = { 0 };

		if (mapped_by == 2)
			b = start_process(&m, file);
		printf("%d mapper%s: accessed %ld", mapped_by, mapped_by == 1 ? "" : "s",
		       field(a.pid, "Referenced"));
		advise(&a, a.start, BYTES, COLD);
		printf(", MADV_COLD %ld", field(a.pid, "Referenced"));
		clear_refs(&a);
		printf(", clear_refs %ld", field(a.pid, "Referenced"));
		order(&a, 'r');
		advise(&a, a.start, BYTES, COLLAPSE);
		if (mapped_by == 2)
			order(&b, 'r');
		order(&a, 'r');
		printf("; huge %ld", field(a.pid, "Referenced"));
		advise(&a, a.start, BYTES, COLD);
		printf(", MADV_COLD %ld", field(a.pid, "Referenced"));
		clear_refs(&a);
		printf(", clear_refs %ld kB\n", field(a.pid, "Referenced"));
		stop(&a);
		if (mapped_by == 2)
			stop(&b);
		remove_file(&m, file);
	}
}

int main(int count, char **words)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = { { "kinds", kinds }, { "holes", holes }, { "undo", undo },
		      { "mappers", mappers }, { "bits", bits } };

	setvbuf(stdout, NULL, _IONBF, 0);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (count == 2 && !strcmp(words[1], parts[i].name)) {
			parts[i].run();
			return 0;
		}
	fprintf(stderr, "usage: shared-memory kinds|holes|undo|mappers|bits\n");
	return 2;
}
