#!/usr/bin/env bash
# Checks what cargo does not: shell scripts, licence headers of code that runs in the kernel, and
# where architectures are named.
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

# What differs between architectures is in arch/. Build scripts may name them, and so may simulated
# and recorded processors.
names='target_arch|[Xx]86|amd64|arm64|[Aa][Aa]rch64|\b(Intel|intel|AMD|amd|Arm|ARM|XEON|Xeon|EPYC|Zen|ZEN_[0-9]|RISC-V)\b'
names+='|[Nn]ehalem|[Hh]aswell|HASWELL|[Ss]kylake|SKYLAKE|Golden Cove|Ice Lake|Sapphire Rapids|[Nn]eoverse|NEOVERSE|[Cc]ortex-A'
allowed='(/arch/|/arch\.rs$|/build\.rs$|^lab/(sim|itanium)/|^lab/bench/src/(simulated|calibrate)|^lab/cli/src/commands/sim/'
allowed+='|^lab/bench/src/live/estimate_verification/tests\.rs$)'
mapfile -t others < <(find crates lab -name '*.rs' -o -name '*.[ch]' | grep -vE "$allowed")
if grep -nE "$names" "${others[@]}" >&2; then
  echo "lint-files: these lines name an architecture or a processor: move them to a folder arch/, or say what it has" >&2
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
