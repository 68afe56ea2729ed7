/* SPDX-License-Identifier: GPL-2.0-only */
/* Reports programs when they start, for prefault from their very start. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "exec_tracer.h"
#include "pidns.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} started SEC(".maps");

SEC("raw_tp/sched_process_exec")
int exec(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 tgid = current_tgid();
	struct started_program *s;

	if (!tgid)
		return 0;
	s = bpf_ringbuf_reserve(&started, sizeof(*s), 0);
	/* The ring is full, nothing reads it: the process is managed once it is large, as any other. */
	if (!s)
		return 0;
	s->tgid = tgid;
	bpf_get_current_comm(s->command, sizeof(s->command));
	bpf_ringbuf_submit(s, 0);
	return 0;
}
