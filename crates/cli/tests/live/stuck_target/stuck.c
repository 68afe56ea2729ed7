/* A program that holds its mmap_lock forever once it gets a line on its standard input: one thread
 * reads its own memory from a file that is never read to the end, another waits to map memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void *mapped;

static void *read_own_memory(void *unused)
{
	int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	char byte;

	if (memory < 0 || pread(memory, &byte, 1, (off_t)mapped) < 0)
		perror("pread");
	return unused;
}

static void *map_memory(void *unused)
{
	usleep(300000);
	mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return unused;
}

int main(int argc, char **argv)
{
	size_t bytes = strtoul(argv[1], NULL, 0) << 20, align = 2ul << 20;
	char *memory = aligned_alloc(align, bytes);
	unsigned long random = 88172645463325252ul, sum = 0;
	pthread_t reader, mapper;
	char line[16];
	int file;

	if (argc < 3 || !memory)
		return 1;
	for (size_t i = 0; i < bytes; i += 4096)
		memory[i] = 1;
	setvbuf(stdout, NULL, _IONBF, 0);
	printf("ready\n");
	fcntl(0, F_SETFL, O_NONBLOCK);
	for (unsigned long step = 0;; step++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		sum += memory[random % bytes];
		if (step % 1048576 == 0 && read(0, line, sizeof(line)) > 0)
			break;
	}
	file = open(argv[2], O_RDONLY | O_CLOEXEC);
	mapped = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, file, 0);
	if (mapped == MAP_FAILED)
		return 2;
	/* First: the stack of a new thread is mapped. */
	pthread_create(&mapper, NULL, map_memory, NULL);
	pthread_create(&reader, NULL, read_own_memory, NULL);
	pthread_join(reader, NULL);
	pthread_join(mapper, NULL);
	printf("free %lu\n", sum);
	return 0;
}
