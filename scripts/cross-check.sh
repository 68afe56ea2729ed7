#!/usr/bin/env bash
# cross-check.sh [find]: checks that hawkeye-linux compiles for arm64, or CRATE: hawkeye-cli is the
# whole product, which takes twice as long. Where no Rust here has a standard library for arm64, it
# is skipped, and a message says so ('scripts/install-deps.sh cross' installs one).
# find: only prints which rustc would be used, and fails where there is none.
#
# Nothing is linked, so this machine's compiler may build the C of libbpf. The build of any
# architecture compiles the BPF programs of all (crates/linux/build.rs).
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu

rustc=
# Debian's may be beside that of rustup.
for found in rustc /usr/bin/rustc; do
  if library=$("$found" --print target-libdir --target $target 2>/dev/null) && compgen -G "$library/libstd-*" >/dev/null; then
    rustc=$found
    break
  fi
done

if [ "${1-}" = find ]; then
  [ -n "$rustc" ] && echo "$rustc"
  exit
fi
if [ -z "$rustc" ]; then
  echo "cross-check: skipped: no Rust here can compile for arm64; 'scripts/install-deps.sh cross' installs one, or 'rustup target add $target'" >&2
  exit
fi
export RUSTC=$rustc CC_aarch64_unknown_linux_gnu=cc
# Another rustc than in other builds must not replace their results.
cargo check --locked --target $target --target-dir "${CARGO_TARGET_DIR:-target}/cross" -p "${CRATE:-hawkeye-linux}"
