#!/usr/bin/env bash
# cross.sh [find | COMMAND [ARG]...]: runs cargo COMMAND for arm64 on a machine of another
# architecture. Results are in cross/aarch64-unknown-linux-gnu of the target directory.
# find: only prints which rustc would be used, and fails where no Rust here has a standard library
# for arm64 ('scripts/install-deps.sh cross' installs one).
# 'check' needs nothing else. 'build' and 'test --no-run' link, and need the packages of
# 'scripts/install-deps.sh arm64'.
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
[ -n "$rustc" ] ||
  { echo "cross: no Rust here can compile for arm64; 'scripts/install-deps.sh cross' installs one, or 'rustup target add $target'" >&2; exit 1; }
if [ "$1" = find ]; then
  echo "$rustc"
  exit
fi

command=$1
shift
export RUSTC=$rustc
if command -v aarch64-linux-gnu-gcc >/dev/null; then
  export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
else
  # Where nothing is linked, this machine's compiler may build the C of libbpf.
  export CC_aarch64_unknown_linux_gnu=cc
fi
# Another rustc than in other builds must not replace their results.
exec cargo "$command" --locked --target $target --target-dir "${CARGO_TARGET_DIR:-target}/cross" "$@"
