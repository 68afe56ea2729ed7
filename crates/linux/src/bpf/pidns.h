/* SPDX-License-Identifier: GPL-2.0-only */
/* Process numbers as the manager sees them. */
#ifndef HAWKEYE_PIDNS_H
#define HAWKEYE_PIDNS_H

/* The manager's pid namespace, where it is not the machine's first: that of a container. */
const volatile __u64 pidns_dev;
const volatile __u64 pidns_ino;

/*
 * The current process; 0 if it is not in the manager's own namespace. The constants are known when
 * the program is loaded, so the machine's first namespace needs no lookup.
 */
static __always_inline __u32 current_tgid(void)
{
	struct bpf_pidns_info here;

	if (!pidns_ino)
		return bpf_get_current_pid_tgid() >> 32;
	if (bpf_get_ns_current_pid_tgid(pidns_dev, pidns_ino, &here, sizeof(here)))
		return 0;
	return here.tgid;
}

#endif
