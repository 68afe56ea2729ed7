#!/usr/bin/env bash
# Checks what cargo does not: shell scripts, and the licence headers of what runs in the kernel.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t scripts < <(grep -rlE '^#!.*[ /](ba|da)?sh$' --exclude-dir=target --exclude-dir=.git .)
# SC2187: Debian 12's shellcheck does not know busybox's shell, and says so.
shellcheck --exclude SC2187 "${scripts[@]}"

licence='SPDX-License-Identifier: GPL-2.0-only'
unmarked=$(grep -rL --include='*.[ch]' "$licence" crates/linux/src/bpf) || true
if [ -n "$unmarked" ]; then
  echo "lint-files: no '$licence' in:" "$unmarked" >&2
  exit 1
fi
