/* SPDX-License-Identifier: GPL-2.0-only */
/* In the place of libbpf's header: offsets are those of the test's own structures. */
#define __builtin_preserve_access_index(field)	(field)
