// SPDX-License-Identifier: GPL-2.0-only
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "counters.h"

long long prezero_counter(const char *name)
{
	char pattern[128];
	long long sum = 0, value;
	glob_t found;
	size_t i;

	snprintf(pattern, sizeof(pattern), "/sys/kernel/mm/prezero/node*/%s", name);
	if (glob(pattern, 0, NULL, &found))
		return -1;
	for (i = 0; i < found.gl_pathc; i++) {
		FILE *file = fopen(found.gl_pathv[i], "r");

		if (!file)
			continue;
		if (fscanf(file, "%lld", &value) == 1)
			sum += value;
		fclose(file);
	}
	globfree(&found);
	return sum;
}

long long meminfo(const char *name)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];
	long long value = -1;

	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
			sscanf(line + strlen(name) + 1, "%lld", &value);
	fclose(file);
	return value;
}

double seconds_now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec * 1e-9;
}

long faults_now(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return used.ru_minflt;
}
