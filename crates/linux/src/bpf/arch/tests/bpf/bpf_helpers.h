/* SPDX-License-Identifier: GPL-2.0-only */
/* In the place of libbpf's header: the helpers read the simulated memory of page_tables.c. */
#include <string.h>
#include "page_geometry.h"

#define SEC(name)
#define __noinline	__attribute__((noinline))
#define __uint(name, value)	int (*name)[value]
#define __type(name, type)	typeof(type) *name
#define barrier_var(value)	asm volatile("" : "+r"(value))

#define bpf_map_lookup_elem(map, key)	((void)(map), (void)(key), (void *)page_copy_buffer)
#define bpf_loop(times, step, context, flags)		\
	for (unsigned int turn = 0; turn < (times); turn++)	\
		if (step(turn, context))			\
			break
#define bpf_ktime_get_ns()	1

static unsigned long long page_copy_buffer[PTES];
extern unsigned char memory[];
extern const unsigned long memory_bytes;
/* Reads of what is not memory. On a machine, the mappings of devices may be there. */
static unsigned int reads_outside;

static inline long bpf_probe_read_kernel(void *to, unsigned int bytes, const void *from)
{
	unsigned long offset = (unsigned long)from - (unsigned long)memory;

	if (offset >= memory_bytes || bytes > memory_bytes - offset) {
		reads_outside++;
		return -14;
	}
	memcpy(to, from, bytes);
	return 0;
}
