#!/usr/bin/env bash
# Checks what cargo does not: shell scripts, and licence headers of code that runs in the kernel.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t scripts < <(grep -rlE '^#!.*[ /](ba|da)?sh$' --exclude-dir=target --exclude-dir=.git .)
# SC2187: Debian 12's shellcheck does not know busybox's shell, and warns about it.
shellcheck --external-sources --exclude SC2187 "${scripts[@]}"

licence='SPDX-License-Identifier: GPL-2.0-only'
unmarked=$(grep -rL --include='*.[ch]' --include=Kbuild "$licence" crates/linux/src/bpf kernel) || true
if [ -n "$unmarked" ]; then
  echo "lint-files: these files lack the line '$licence':" "$unmarked" >&2
  exit 1
fi

# No other check finds let chains: clippy knows which parts of the library are newer than
# rust-version, but not which parts of the language. rustfmt refuses let chains in the 2021 edition.
chains=$(rustfmt --edition 2021 --check crates/*/src/{lib,main}.rs crates/*/src/bin/*.rs crates/*/tests/{,*/}*.rs 2>&1 >/dev/null |
  grep -A 1 'let chains') || true
if [ -n "$chains" ]; then
  echo "$chains" >&2
  echo "lint-files: let chains need Rust 1.88, and Debian 13 has 1.85: see rust-version in Cargo.toml" >&2
  exit 1
fi
