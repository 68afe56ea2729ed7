/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Watches where managed processes touch memory for the first time, and reports processes that do so
 * region after region. A fault of any other process costs one lookup in a map.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "fault_trace.h"
#include "pidns.h"

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

/* Processes that get no prefault, because they don't use the memory they pass through, by tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WATCHED);
	__type(key, u32);
	__type(value, u32);
} muted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} advances SEC(".maps");

/* Reports that did not fit into the ring. */
u64 lost;
/* First touches at random, of all watched processes. Threads that count at once may lose counts. */
u64 at_random;

static __always_inline void report(u32 tgid, u64 region, s64 step, u32 dense)
{
	struct advance *a;

	if (!dense && bpf_map_lookup_elem(&muted, &tgid))
		return;
	a = bpf_ringbuf_reserve(&advances, sizeof(*a), 0);
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

static __always_inline void goes_on(struct watched *w)
{
	if (w->score < BEST_SCORE)
		w->score++;
}

static __always_inline void strays(struct watched *w)
{
	if (w->score > WORST_SCORE)
		w->score--;
}

/*
 * Whether `distance` continues a track: one step, or several steps where the regions between were
 * filled ahead.
 */
static __always_inline int leads_on(const struct track *t, s64 distance)
{
	u64 far = distance < 0 ? -distance : distance;
	u64 step = t->step < 0 ? -t->step : t->step;

	if (!step || (distance < 0) != (t->step < 0))
		return 0;
	return far == step || (t->advances >= 2 && far <= MAX_WINDOW * step && far % step == 0);
}

/*
 * The current process writes to memory for the first time. Threads of a process may run this at
 * once. They can only make a guess wrong.
 */
static __always_inline int first_touch(u64 address)
{
	u64 region = address >> PMD_SHIFT;
	u32 tgid = current_tgid();
	struct watched *w = bpf_map_lookup_elem(&watched, &tgid);
	struct track *t;

	if (!w || w->counts.paused)
		return 0;
	if (w->score < 0) {
		at_random++;
		w->counts.at_random++;
		if ((w->skipped++ >> BURST_SHIFT) % SKIPPED)
			return 0;
	} else {
		w->counts.in_order++;
	}
	UNROLLED
	for (u32 i = 0; i < TRACKS; i++) {
		t = &w->tracks[i];
		if (t->region == region) {
			t->touches++;
			goes_on(w);
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
			u64 now = bpf_ktime_get_ns();
			u64 took = now - t->at;

			/* A longer distance may lead over filled regions, or be chance. */
			if (distance == t->step)
				goes_on(w);
			t->region = region;
			t->touches = 1;
			t->advances++;
			t->at = now;
			if (t->advances >= 2 && w->score >= 0 && took >= TOO_FAST_NS)
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
			t->at = bpf_ktime_get_ns();
			strays(w);
			return 0;
		}
	}
	strays(w);
	t = &w->tracks[w->turn++ % TRACKS];
	t->region = region;
	t->step = 0;
	t->touches = 1;
	t->advances = 0;
	return 0;
}

/* The programs, which call first_touch(). */
#include "first_touches.h"
