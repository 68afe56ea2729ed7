/* Actions of an unprivileged user on a shared machine, for the tests of attacks.
 *
 *   hold MIB [nodump | drop | seteuid]   touches memory and sleeps
 *   forks MIB COUNT                      touches memory, forks processes that share it, and sleeps
 *   apart MIB COUNT                      forks processes that touch memory of their own, and sleeps
 *   become MIB PROGRAM                   touches memory, and executes `PROGRAM hold MIB` at SIGUSR1
 *   unix PATH COUNT                      opens connections and says nothing on them
 *
 * Each prints a line when it is ready: an address in its memory, or the number of connections. All
 * end with the process that started them.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NOBODY	65534

static void end_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static char *touch(size_t mib)
{
	size_t bytes = mib << 20;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		exit(2);
	memset(memory, 1, bytes);
	return memory;
}

static void ready(const void *address)
{
	printf("%lu\n", (unsigned long)address);
	fflush(stdout);
}

static void sleep_for_good(void)
{
	for (;;)
		pause();
}

static void change(const char *how)
{
	int failed = 0;

	if (!strcmp(how, "nodump"))
		failed = prctl(PR_SET_DUMPABLE, 0);
	else if (!strcmp(how, "drop"))
		failed = setresgid(NOBODY, NOBODY, NOBODY) ||
			 setresuid(NOBODY, NOBODY, NOBODY);
	else if (!strcmp(how, "seteuid"))
		failed = setegid(NOBODY) || seteuid(NOBODY);
	if (failed)
		exit(3);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	end_with_parent();
	if (!strcmp(what, "hold")) {
		char *memory = touch(atoi(argv[2]));

		if (argc > 3)
			change(argv[3]);
		/* A change of users forgets it. */
		end_with_parent();
		ready(memory);
	} else if (!strcmp(what, "forks") || !strcmp(what, "apart")) {
		int shared = what[0] == 'f';
		char *memory = shared ? touch(atoi(argv[2])) : NULL;

		for (int i = 0; i < atoi(argv[3]); i++) {
			if (fork())
				continue;
			end_with_parent();
			if (!shared)
				touch(atoi(argv[2]));
			sleep_for_good();
		}
		ready(memory);
	} else if (!strcmp(what, "become")) {
		sigset_t set;
		int number;

		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		sigprocmask(SIG_BLOCK, &set, NULL);
		ready(touch(atoi(argv[2])));
		sigwait(&set, &number);
		execl(argv[3], argv[3], "hold", argv[2], NULL);
		exit(5);
	} else if (!strcmp(what, "unix")) {
		struct sockaddr_un address = { .sun_family = AF_UNIX };

		strncpy(address.sun_path, argv[2], sizeof(address.sun_path) - 1);
		for (int i = 0; i < atoi(argv[3]); i++) {
			int fd = socket(AF_UNIX, SOCK_STREAM, 0);

			if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
				exit(4);
		}
		ready((void *)(unsigned long)atoi(argv[3]));
	} else {
		return 1;
	}
	sleep_for_good();
}
