// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress.h"

static void child(struct task *t, struct mapping *m)
{
	static struct mapping own;

	/* The kernel may take the child's hugetlb pages back for its parent. */
	signal(SIGBUS, SIG_DFL);
	if (m->kind != SHARED) {
		/* Copies some pages on write, without a change to the parent's memory. */
		touch(t, m);
		verify("in the child", m);
	}
	map_new(t, &own, below(t, 2) ? BASE : HUGE);
	if (own.kind != NONE) {
		touch(t, &own);
		verify("the child's own", &own);
	}
	fflush(stdout);
	/* The process frees the rest when it ends. */
	if (below(t, 2))
		raise(SIGKILL);
	_exit(0);
}

void fork_and_write(struct task *t, struct mapping *m)
{
	pid_t pid = fork();

	if (pid < 0)
		return;
	if (pid == 0) {
		t->random ^= (uint64_t)getpid() << 32 | 1;
		child(t, m);
	}
	if (m->kind != SHARED && below(t, 2))
		touch(t, m);
	waitpid(pid, NULL, 0);
	verify("after the child", m);
}

void use_file(struct task *t)
{
	size_t pages = 1 + below(t, 1024), written, i;
	static uint64_t word[1024];
	static char page[4096] __attribute__((aligned(64)));
	char name[64];
	char *p;
	int fd;

	/* Two mounts: base pages and huge pages. */
	snprintf(name, sizeof(name), "/tmp/%s/stress.%d", below(t, 2) ? "base" : "huge", t->number);
	fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	memset(word, 0, sizeof(word));
	if (ftruncate(fd, pages * BASE_PAGE))
		goto out;
	for (written = below(t, pages); written; written--) {
		i = below(t, pages);
		word[i] = new_word(t);
		fill_words(page, BASE_PAGE, word[i]);
		if (pwrite(fd, page, BASE_PAGE, i * BASE_PAGE) != (ssize_t)BASE_PAGE)
			goto out;
	}
	i = below(t, pages);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * BASE_PAGE, BASE_PAGE) == 0)
		word[i] = 0;
	/* Writes part of a page that was never written: the rest of the page is zero. */
	i = below(t, pages);
	if (!word[i]) {
		char zero = 0;

		if (pwrite(fd, &zero, 1, i * BASE_PAGE + below(t, BASE_PAGE)) != 1)
			goto out;
	}
	p = mmap(NULL, pages * BASE_PAGE, PROT_READ | PROT_WRITE, below(t, 2) ? MAP_SHARED : MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		goto out;
	for (i = 0; i < pages; i++) {
		if (below(t, 3) == 0)
			__atomic_fetch_or(p + i * BASE_PAGE, 0, __ATOMIC_RELAXED);
		check_words("file, mapped", p + i * BASE_PAGE, BASE_PAGE, word[i]);
	}
	munmap(p, pages * BASE_PAGE);
	for (i = 0; i < pages; i++)
		if (below(t, 8) == 0 && pread(fd, page, BASE_PAGE, i * BASE_PAGE) == (ssize_t)BASE_PAGE)
			check_words("file, read", page, BASE_PAGE, word[i]);
out:
	close(fd);
	unlink(name);
}
