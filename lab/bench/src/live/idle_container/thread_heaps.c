// A synthetic program: threads that allocate blocks of many sizes, free most of them, and then do
// nothing. An allocator with a heap per thread leaves each of these heaps sparse.
// It speaks the line protocol of HawkEye's workloads: events as JSON on standard output, requests
// on standard input. "go" starts one more thread and waits until that is idle; "verify" reads every
// block that is left.
//
// Argument: KiB that each thread keeps.
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Blocks that are allocated before most of them are freed. So the peak is not far above what is
// kept.
#define BATCH 64
#define FREED_PERCENT 70
// 16 bytes to 256 KiB: each of these powers of two is as frequent as the others.
#define SMALLEST_BYTES 16
#define DOUBLINGS 14

struct block {
	struct block *next;
	size_t bytes;
	unsigned char contents[];
};

// One thread at a time allocates, so nothing else protects these.
static struct block *kept;
static uint64_t state = 1;
static size_t keep_bytes;
static sem_t filled;

static size_t below(size_t bound)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (size_t)((state >> 32) * bound >> 32);
}

static void fail(const char *message)
{
	printf("{\"event\":\"error\",\"message\":\"%s\"}\n", message);
	fflush(stdout);
	exit(1);
}

// The byte that fills a block. Never zero, so that no page of a block looks unused.
static unsigned char contents_of(const struct block *block)
{
	return (unsigned char)(block->bytes | 1);
}

static struct block *allocate(void)
{
	const size_t at_least = (size_t)SMALLEST_BYTES << below(DOUBLINGS);
	const size_t bytes = at_least + below(at_least);
	struct block *block = malloc(bytes);

	if (!block)
		fail("no memory");
	block->bytes = bytes;
	memset(block->contents, contents_of(block), bytes - sizeof(*block));
	return block;
}

static void *fill_heap(void *unused)
{
	struct block *batch[BATCH];
	size_t kept_here = 0;

	(void)unused;
	while (kept_here < keep_bytes) {
		for (int i = 0; i < BATCH; i++)
			batch[i] = allocate();
		for (int i = 0; i < BATCH; i++) {
			if (below(100) < FREED_PERCENT) {
				free(batch[i]);
				continue;
			}
			batch[i]->next = kept;
			kept = batch[i];
			kept_here += batch[i]->bytes;
		}
	}
	sem_post(&filled);
	for (;;)
		pause();
}

static void start_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, fill_heap, NULL))
		fail("no thread");
	while (sem_wait(&filled))
		;
	printf("{\"event\":\"finished\",\"elapsed_s\":0,\"accesses\":1}\n");
}

static void verify_blocks(void)
{
	unsigned long long checked = 0, bad = 0;

	for (const struct block *block = kept; block; block = block->next) {
		const size_t length = block->bytes - sizeof(*block);

		for (size_t i = 0; i < length; i++)
			bad += block->contents[i] != contents_of(block);
		checked += length;
	}
	printf("{\"event\":\"verified\",\"checked_bytes\":%llu,\"bad_bytes\":%llu,\"first_bad\":null}\n",
	       checked, bad);
}

int main(int count, char **arguments)
{
	char request[64];

	keep_bytes = count == 2 ? strtoull(arguments[1], NULL, 10) << 10 : 0;
	if (!keep_bytes || sem_init(&filled, 0, 0))
		fail("the argument must be the KiB that each thread keeps");
	printf("{\"event\":\"ready\",\"pid\":%d,\"start\":0,\"bytes\":0,\"hot_start\":0,"
	       "\"huge_bytes\":0,\"execs\":0}\n", getpid());
	fflush(stdout);
	while (fgets(request, sizeof(request), stdin)) {
		if (!strcmp(request, "go\n"))
			start_thread();
		else if (!strcmp(request, "verify\n"))
			verify_blocks();
		else if (!strcmp(request, "quit\n"))
			return 0;
		else
			printf("{\"event\":\"error\",\"message\":\"go, verify or quit\"}\n");
		fflush(stdout);
	}
	return 0;
}
