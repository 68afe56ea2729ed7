/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Watches where managed processes touch memory for the first time, and reports who does so region after
 * region. A fault of somebody else costs one look into a map.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "frontier.h"

/* Linux 6.1 refuses loops that clang enters in the middle. */
#define UNROLLED	_Pragma("clang loop unroll(full)")

char LICENSE[] SEC("license") = "GPL";

/* Processes that are watched, by tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WATCHED);
	__type(key, u32);
	__type(value, struct watched);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} advances SEC(".maps");

/* What did not fit into the ring. */
u64 lost;

static __always_inline void report(u32 tgid, u64 region, s64 step, u32 dense)
{
	struct advance *a = bpf_ringbuf_reserve(&advances, sizeof(*a), 0);

	if (!a) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	a->region = region;
	a->step = step;
	a->tgid = tgid;
	a->dense = dense;
	bpf_ringbuf_submit(a, 0);
}

/*
 * Whether `distance` leads a track on: one step, or some of them where the regions between were filled ahead.
 */
static __always_inline int leads_on(const struct track *t, s64 distance)
{
	u64 far = distance < 0 ? -distance : distance;
	u64 step = t->step < 0 ? -t->step : t->step;

	if (!step || (distance < 0) != (t->step < 0))
		return 0;
	return far == step || (t->advances >= 2 && far <= MAX_WINDOW * step && far % step == 0);
}

/* Threads of a process may be in here at once. What they spoil is a guess. */
static __always_inline int first_touch(struct bpf_raw_tracepoint_args *ctx)
{
	u64 region = ctx->args[0] >> REGION_SHIFT;
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct watched *w = bpf_map_lookup_elem(&watched, &tgid);
	struct track *t;

	/* X86_PF_PROT: something is there, and it is no first touch. */
	if (!w || (ctx->args[2] & 1))
		return 0;
	UNROLLED
	for (u32 i = 0; i < TRACKS; i++) {
		t = &w->tracks[i];
		if (t->region == region) {
			t->touches++;
			return 0;
		}
	}
	UNROLLED
	for (u32 i = 0; i < TRACKS; i++) {
		s64 distance;

		t = &w->tracks[i];
		distance = region - t->region;
		if (leads_on(t, distance)) {
			u32 dense = t->touches >= DENSE_TOUCHES;

			t->region = region;
			t->touches = 1;
			t->advances++;
			if (t->advances >= 2)
				report(tgid, region, t->step, dense);
			return 0;
		}
	}
	UNROLLED
	for (u32 i = 0; i < TRACKS; i++) {
		s64 distance;

		t = &w->tracks[i];
		distance = region - t->region;
		if (t->advances < 2 && distance >= -MAX_STEP && distance <= MAX_STEP) {
			t->region = region;
			t->step = distance;
			t->touches = 1;
			t->advances = 1;
			return 0;
		}
	}
	t = &w->tracks[w->turn++ % TRACKS];
	t->region = region;
	t->step = 0;
	t->touches = 1;
	t->advances = 0;
	return 0;
}

SEC("raw_tp/page_fault_user")
int touch_by_program(struct bpf_raw_tracepoint_args *ctx)
{
	return first_touch(ctx);
}

/* Memory that is first written to by read(2) and its like. */
SEC("raw_tp/page_fault_kernel")
int touch_for_program(struct bpf_raw_tracepoint_args *ctx)
{
	return (s64)ctx->args[0] < 0 ? 0 : first_touch(ctx);
}
