#!/usr/bin/env bash
# cross-check.sh: checks that the product and its live tests compile for arm64. Where no Rust here
# has a standard library for arm64, it is skipped, and a message says so. .ci/run reads the message.
#
# The build of any architecture compiles the BPF programs of all (crates/linux/build.rs).
set -euo pipefail
cd "$(dirname "$0")/.."

if ! scripts/cross.sh find >/dev/null; then
  echo "cross-check: skipped" >&2
  exit
fi
# Other tests are the same on each architecture.
scripts/cross.sh check -p hawkeye-linux -p hawkeye-cli --lib --bins --test live
# test-kernels.sh builds the tests of this build.
scripts/cross.sh check -p hawkeye-cli --lib --bins --features base-pages-16-kib
echo "cross-check: the product and its live tests compile for arm64"
