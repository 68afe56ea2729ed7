#!/usr/bin/env bash
# daemon.sh [VERSION]: runs the doctor and the live tests of zeroed memory
# (crates/cli/tests/live/prezeroing.rs) in QEMU, on a kernel with the series and its module (default
# 7.2). Takes some minutes, and the time to build.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1:-7.2}
folder=target/kernel/$version/minimal

kernel/build.sh "$version" minimal
live=$(cargo test -p hawkeye-cli --test live --no-run --message-format=json |
  sed -nE 's/.*"executable":"([^"]*\/live-[^"]*)".*/\1/p' | tail -n 1)
hawkeye=$(realpath "${CARGO_TARGET_DIR:-target}/debug/hawkeye")
work=$(mktemp -d "$folder/daemon.XXXXXX")
trap 'rm -rf "$work"' EXIT
strip -o "$work/live" "$live"
strip -o "$work/hawkeye" "$hawkeye"
scripts/vm/run.sh "$folder" -m 3072 -t 2400 -f "$work/hawkeye" -f "$work/live" -f "$folder/modules/prezero.ko" \
  -f kernel/test/guest/lib.sh -f kernel/test/guest/daemon -- sh ./daemon "$hawkeye" | tee "$work/out"
! grep -q '^@check [^ ]* FAILED' "$work/out"
