/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads page tables and memory of managed processes. These programs write nothing of the processes.
 * They yield only statistics and candidates; the kernel checks every action on these under its own
 * locks.
 *
 * One object, with a file for each program. The programs share the results of `calibrate` and the
 * buffer for copies of tables.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "hawkeye/calibrate.h"
#include "hawkeye/list_mappings.h"
#include "hawkeye/walk.h"
#include "hawkeye/read_access_bits.h"
#include "hawkeye/scan_zeros.h"

char LICENSE[] SEC("license") = "GPL";
