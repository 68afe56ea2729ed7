#!/usr/bin/env bash
# test.sh [--quick] [--no-build] [--only RUN]... [VERSION]...: builds kernels with the series, boots
# them in QEMU, and tests and measures them [default: 7.2 and 6.12]. Prints a line per check and a
# table of figures, and writes all of it to target/kernel/VERSION/results.json. Writes
# docs/prezero.md from these files. RUNs, each in a machine of its own:
#   correctness-debug        10 minutes of allocating, dirtying, freeing and reading back, with
#                            every check that the allocator has
#   correctness-debug-init   2.5 minutes of the same with init_on_alloc=1, Debian's default
#   correctness-minimal      10 minutes of the same as in normal use, without checks in the kernel
#   correctness-kasan        10 minutes of the same with KASAN and init_on_alloc=1
#   isolation                2 minutes of isolating contiguous ranges that overlap, beside free page
#                            reporting, with KASAN
#   isolation-stock          the same without the series (and without KASAN): a splat there is
#                            upstream's
#   selfcheck-debug          a device that lies about zeroing: the debug check must find it
#   selfcheck-kasan          the same in the kernel with KASAN
#   selfcheck-minimal        the same without the debug check: reading back must find it
#   benchmarks               faults and start-ups, counted, and preference; the device off and on in
#                            turn
#   benchmarks-init          the same once with init_on_alloc=1
#   instructions             counts the allocator's instructions with the series
#   instructions-stock       counts them without the series
# --no-build: uses the kernels in target/kernel/VERSION as they are.
# --quick: 1 minute instead of 10, and one round of measurements.
# --only: keeps the results of other runs in target/kernel/VERSION/test.
# Takes about an hour per kernel, or 20 minutes with --quick, and the time to build.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."

all=(selfcheck-debug selfcheck-kasan selfcheck-minimal instructions instructions-stock benchmarks benchmarks-init
  correctness-minimal correctness-debug correctness-debug-init correctness-kasan isolation isolation-stock)
seconds=600 rounds=3 build=kernel/build.sh versions=() runs=()
while [ $# -gt 0 ]; do
  case $1 in
    --quick) seconds=60 rounds=1 ;;
    --no-build) build=true ;;
    --only) runs+=("${2:?--only needs a RUN}"); shift ;;
    7.2 | 6.12) versions+=("$1") ;;
    *) sed -n '2,/^set/{/^set/d;s/^# //p}' "$0" >&2; exit 2 ;;
  esac
  shift
done
[ ${#versions[@]} -gt 0 ] || versions=(7.2 6.12)
if [ ${#runs[@]} -eq 0 ]; then
  runs=("${all[@]}")
  for version in "${versions[@]}"; do rm -rf "target/kernel/$version/test"; done
fi

programs=target/kernel/programs
mkdir -p $programs
compile() {
  local program=$1
  shift
  cc -std=gnu11 -O2 -Wall -Wextra -Werror -static -o "$programs/$program" "${@/#/kernel/test/programs/}"
}
compile stress stress.c stress_maps.c stress_others.c check.c
for program in faults startup preference offline; do compile $program $program.c check.c counters.c; done

# boot CONFIG TIMEOUT OPTION... -- PLAN ARG...: runs a plan of kernel/test/guest in a kernel that
# build.sh made, and writes the result to $to
boot() {
  local config=$1 timeout=$2 file files=() status=0
  shift 2
  for file in "$programs"/* kernel/test/guest/* "target/kernel/$version/$config/modules"/*.ko; do files+=(-f "$file"); done
  mkdir -p "$to"
  {
    echo "@tree $(git describe --always --dirty)"
    echo "@date $(date -u '+%F %H:%M')"
    echo "@emulator $(qemu-system-x86_64 --version | sed -n 's/.*version \([0-9.]*\).*/QEMU \1/p')"
    echo "@source linux-source $(cat "target/kernel/$version/linux-source.version")"
  } >"$to/out.part"
  scripts/vm/run.sh "target/kernel/$version/$config" -t "$timeout" "${files[@]}" "$@" >>"$to/out.part" || status=$?
  echo "@status $status" >>"$to/out.part"
  cp "target/kernel/$version/$config/console.log" "$to/console"
  mv "$to/out.part" "$to/out"
}

start() {
  case $1 in
    correctness-minimal) boot minimal $((seconds + 400)) -m 3072 -a "kernelcore=50% init_on_alloc=0" -- sh ./correctness $seconds 0 ;;
    correctness-debug) boot debug $((seconds + 500)) -m 3072 -a "kernelcore=50% init_on_alloc=0" -- sh ./correctness $seconds 0 ;;
    correctness-debug-init) boot debug $((seconds / 4 + 500)) -m 3072 -a "kernelcore=50% init_on_alloc=1" -- sh ./correctness $((seconds / 4 + 45)) 1 ;;
    correctness-kasan) boot kasan $((seconds + 600)) -m 3584 -a "kernelcore=50% init_on_alloc=1" -- sh ./correctness $seconds 1 ;;
    isolation) boot kasan $((seconds / 5 + 400)) -m 2048 -- sh ./isolation $((seconds / 10)) ;;
    isolation-stock) boot stock-debug $((seconds / 5 + 400)) -m 2048 -- sh ./isolation $((seconds / 10)) ;;
    selfcheck-debug) boot debug 300 -m 1536 -- sh ./selfcheck ;;
    selfcheck-kasan) boot kasan 300 -m 1536 -- sh ./selfcheck ;;
    selfcheck-minimal) boot minimal 300 -m 1536 -- sh ./selfcheck ;;
    benchmarks) boot minimal 3600 -m 3072 -i -a "init_on_alloc=0 clearcpuid=erms" -- sh ./benchmarks $rounds ;;
    benchmarks-init) boot minimal 1800 -m 3072 -i -a "init_on_alloc=1 clearcpuid=erms" -- sh ./benchmarks 1 ;;
    instructions) boot minimal 600 -m 1536 -i -- sh ./instructions ;;
    instructions-stock) boot stock 600 -m 1536 -i -- sh ./instructions ;;
    *) echo "test: no such run: $1" >&2; exit 2 ;;
  esac
}

# built_for RUN: its CONFIG of build.sh
built_for() {
  case $1 in
    *-debug*) echo debug ;;
    *-kasan | isolation) echo kasan ;;
    isolation-stock) echo stock-debug ;;
    *-stock) echo stock ;;
    *) echo minimal ;;
  esac
}

failed=0
for version in "${versions[@]}"; do
  for run in "${runs[@]}"; do
    to=target/kernel/$version/test/$run
    $build "$version" "$(built_for "$run")" || { echo "test: $(built_for "$run") of $version does not build" >&2; failed=1; continue; }
    echo "test: $version $run" >&2
    rm -rf "$to"
    start "$run"
  done
  python3 kernel/test/report.py collect "target/kernel/$version" || failed=1
done
results=()
for version in 7.2 6.12; do
  [ ! -f "target/kernel/$version/results.json" ] || results+=("target/kernel/$version/results.json")
done
python3 kernel/test/report.py document "${results[@]}" >target/kernel/prezero.md.$$
mv target/kernel/prezero.md.$$ docs/prezero.md
echo "test: wrote docs/prezero.md" >&2
exit $failed
