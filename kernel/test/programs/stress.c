// SPDX-License-Identifier: GPL-2.0-only
/*
 * stress SECONDS [TASKS]: runs tasks that allocate, dirty and free memory of every kind that a
 * program can have, and read every page back. Exits with 1 if a byte was wrong.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stress.h"

/* In each round all tasks free everything and rest, so there is memory to zero and time for it. */
#define ROUND_SECONDS 12
#define REST_SECONDS 4

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec * 1e-9;
}

static void operate(struct task *t)
{
	struct mapping *m = &t->slot[below(t, SLOTS)];

	if (m->kind == NONE) {
		map_new(t, m, BASE + below(t, HUGETLB));
		if (m->kind != NONE)
			touch(t, m);
		return;
	}
	switch (below(t, 16)) {
	case 0: case 1: case 2: case 3:
		touch(t, m);
		break;
	case 4: case 5:
		give_back(t, m);
		break;
	case 6:
		free_lazily(t, m);
		break;
	case 7:
		collapse(t, m);
		break;
	case 8:
		grow(t, m);
		break;
	case 9:
		fork_and_write(t, m);
		break;
	case 10:
		use_file(t);
		break;
	case 11:
		verify("now and then", m);
		break;
	default:
		unmap(m);
	}
}

/* Too large for the stack. */
static struct task task;
static sigjmp_buf without_hugetlb;

/*
 * A hugetlb page that was given back has no reservation any more. While the pool is made small,
 * there may be no page for the next touch: then this drops the mapping. Otherwise it reports which
 * memory the signal was for, because the kernel does not log a SIGBUS.
 */
static void bus_error(int signal, siginfo_t *info, void *context)
{
	const char *kind = "none of its mappings";
	char *at = info->si_addr;
	int i;

	(void)context;
	for (i = 0; i < SLOTS; i++)
		if (task.slot[i].kind != NONE && at >= task.slot[i].p && at < task.slot[i].p + task.slot[i].pages * BASE_PAGE)
			break;
	if (i < SLOTS && task.slot[i].kind == HUGETLB && info->si_code == BUS_ADRERR) {
		unmap(&task.slot[i]);
		siglongjmp(without_hugetlb, 1);
	}
	if (i < SLOTS)
		kind = kind_name(task.slot[i].kind);
	printf("stress: task %d: signal %d, code %d, at %p: %s\n", task.number, signal, info->si_code, at, kind);
	fflush(stdout);
	_exit(3);
}

static void run(int number, double started, double seconds)
{
	struct sigaction on_bus_error = { .sa_sigaction = bus_error, .sa_flags = SA_SIGINFO };
	struct task *t = &task;
	int i;

	sigaction(SIGBUS, &on_bus_error, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	t->number = number;
	t->random = 0x9e3779b97f4a7c15ull * (number + 1) ^ (uint64_t)(started * 1e9);
	sigsetjmp(without_hugetlb, 1);
	while (now() - started < seconds) {
		double in_round = now() - started - (long)((now() - started) / ROUND_SECONDS) * ROUND_SECONDS;

		if (in_round > ROUND_SECONDS - REST_SECONDS) {
			for (i = 0; i < SLOTS; i++)
				unmap(&t->slot[i]);
			usleep((ROUND_SECONDS - in_round) * 1e6 + 1000);
		}
		operate(t);
	}
	for (i = 0; i < SLOTS; i++)
		if (t->slot[i].kind != NONE)
			verify("at the end", &t->slot[i]);
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	double started = now(), seconds = argc > 1 ? atof(argv[1]) : 0;
	int tasks = argc > 2 ? atoi(argv[2]) : 8, ended = 0, i;

	if (seconds <= 0 || tasks < 1) {
		fprintf(stderr, "usage: stress SECONDS [TASKS]\n");
		return 2;
	}
	check_init();
	for (i = 0; i < tasks; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("fork");
			return 2;
		}
		if (pid == 0)
			run(i, started, seconds);
	}
	for (i = 0; i < tasks; i++) {
		int status;

		/* A task that the OOM killer ended does not count. */
		if (wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
			ended++;
	}
	printf("stress: tasks %d ended %d zero_pages %llu pattern_pages %llu wrong_pages %llu\n", tasks, ended,
	       (unsigned long long)totals->zero_pages, (unsigned long long)totals->pattern_pages,
	       (unsigned long long)totals->failures);
	return totals->failures || ended < tasks;
}
