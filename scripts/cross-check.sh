#!/usr/bin/env bash
# cross-check.sh: checks that hawkeye-linux compiles for arm64, or CRATE: hawkeye-cli is the whole
# product, which takes twice as long. Where no Rust here has a standard library for arm64, it is
# skipped, and a message says so.
#
# The build of any architecture compiles the BPF programs of all (crates/linux/build.rs).
set -euo pipefail
cd "$(dirname "$0")/.."

if ! scripts/cross.sh find >/dev/null; then
  echo "cross-check: skipped" >&2
  exit
fi
exec scripts/cross.sh check -p "${CRATE:-hawkeye-linux}"
