/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads page tables and memory of managed processes. Nothing here writes anything of theirs, and nothing but
 * statistics and candidates comes of it; whatever is done about them the kernel checks under its own locks.
 *
 * One object, a file for each program: they share what `calibrate` finds and the buffer that tables are copied to.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "hawkeye/calibrate.h"
#include "hawkeye/list_mappings.h"
#include "hawkeye/walk.h"
#include "hawkeye/read_marks.h"
#include "hawkeye/scan_zeros.h"

char LICENSE[] SEC("license") = "GPL";
