#!/usr/bin/env bash
# test-kernels.sh [-k KERNEL]... [PART]...: boots Debian's 6.1, 6.12 and 7.2 (or those that are named) in QEMU and runs in
# each the doctor, the live tests with the torture, and the kernel's own managers of huge pages beside ours (PARTs: doctor,
# tests, test=NAME, peers). With all parts on all kernels it writes docs/kernels.md. Takes about 15 minutes a kernel.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

kernels=()
while getopts k: option; do
  case $option in
    k) kernels+=("$OPTARG") ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ ${#kernels[@]} -gt 0 ] || kernels=(6.1 6.12 7.2)
[ $# -gt 0 ] || set -- doctor tests peers

target=${CARGO_TARGET_DIR:-$PWD/target}
cache=$PWD/target/vm
mkdir -p "$cache"
work=$(mktemp -d "$cache/tests.XXXXXX")
trap 'rm -rf "$work"' EXIT

# A debug build would do, several times as slowly.
live=$(cargo test --release -p hawkeye-cli --test live --no-run --message-format=json |
  sed -nE 's/.*"executable":"([^"]*\/live-[^"]*)".*/\1/p' | tail -n 1)
strip -o "$work/live" "$live"
strip -o "$work/hawkeye" "$target/release/hawkeye"

# What each kernel needs for a swap device in memory: zram, and on 6.1 what it compresses with.
declare -A modules=([6.1]="-k lzo-rle -k zram" [6.12]="-k zram" [7.2]="-k zram")
failed=0
for kernel in "${kernels[@]}"; do
  results=$cache/$kernel.results
  status=0
  # The machine is larger than what the largest test takes, which is the torture with 2 GiB.
  # shellcheck disable=SC2086
  "$here/run.sh" "$kernel" -m 5120 -t 2400 ${modules[$kernel]} \
    -f "$work/hawkeye" -f "$work/live" -f "$here/kernels/inside" \
    -f "$here/peers/program" -f "$here/peers/damon-hugepage" -f "$here/peers/underused-shrinker" \
    -- sh ./inside "$target/release/hawkeye" "$@" >"$results.new" || status=$?
  sed 's/\r$//' "$results.new" | sed '/^@/!d; /^@doctor/d; /^@end/d'
  if [ $status -ne 0 ] || grep -q '^@test [^ ]* failed' "$results.new"; then failed=1; fi
  [ $status -eq 0 ] || { echo "test-kernels: $kernel did not get to its end ($status); see $results.new" >&2; continue; }
  [ "$*" != "doctor tests peers" ] || mv "$results.new" "$results"
done
if [ "${#kernels[@]} $*" = "3 doctor tests peers" ]; then
  python3 "$here/kernels/report.py" "$cache"/{6.1,6.12,7.2}.results >docs/kernels.md
  echo "test-kernels: wrote docs/kernels.md"
fi
exit $failed
