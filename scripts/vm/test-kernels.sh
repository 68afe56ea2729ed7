#!/usr/bin/env bash
# test-kernels.sh [-k KERNEL]... [PART]...: boots Debian's 6.1, 6.12 and 7.2 (or those that are named) in QEMU and runs in
# each the doctor, the live tests with the torture, and the kernel's own managers of huge pages beside ours (PARTs: doctor,
# tests, peers), each in a machine of its own. The PART test=NAME[,NAME]... runs single tests, whose results take the place
# of earlier ones. Once there are results of all parts on all kernels it writes docs/kernels.md. Takes about 15 minutes a
# kernel.
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
results=$cache/results
mkdir -p "$results"
for kernel in "${kernels[@]}"; do
  for part; do
    status=0
    to=$results/$kernel.${part%%=*}
    echo "@commit $(git describe --always --dirty) $(date -u +%F)" >"$to.new"
    # Larger than what the largest test takes, which is the torture with 2 GiB.
    # shellcheck disable=SC2086
    "$here/run.sh" "$kernel" -m 5120 -t 2400 ${modules[$kernel]} \
      -f "$work/hawkeye" -f "$work/live" -f "$here/kernels/inside" \
      -f "$here/peers/program" -f "$here/peers/damon-hugepage" -f "$here/peers/underused-shrinker" \
      -- sh ./inside "$target/release/hawkeye" "$part" >>"$to.new" || status=$?
    sed -n 's/\r$//; /^@\(kernel\|test\|peer\)/p' "$to.new"
    if [ $status -ne 0 ] || grep -q '^@test [^ ]* failed' "$to.new"; then failed=1; fi
    if [ $status -eq 0 ]; then
      case $part in
        test=*) cat "$to.new" >>"$results/$kernel.tests" && rm "$to.new" ;;
        *) mv "$to.new" "$to" ;;
      esac
    else
      echo "test-kernels: $part on $kernel did not get to its end ($status): see $to.new" >&2
    fi
  done
done
if [ "$(find "$results" -name '*.doctor' -o -name '*.tests' -o -name '*.peers' | wc -l)" -eq 9 ]; then
  python3 "$here/kernels/report.py" "$results" 6.1 6.12 7.2 >"$work/kernels.md"
  mv "$work/kernels.md" docs/kernels.md
  echo "test-kernels: wrote docs/kernels.md"
fi
exit $failed
