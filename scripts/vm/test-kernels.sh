#!/usr/bin/env bash
# test-kernels.sh [-a ARCH] [-k KERNEL]... [PART]...: boots Debian's kernels in QEMU, and runs PARTs
# on each [default: amd64, all kernels, and doctor, tests and peers]. Each PART runs in a machine of
# its own. ARCH is amd64 or arm64, KERNEL is 6.1, 6.12 or 7.2. PARTs:
#   doctor                 the doctor
#   doctor=CPU             the doctor on another processor, as QEMU names it
#   tests                  the live tests, with the torture
#   peers                  the kernel's own managers of huge pages beside HawkEye
#   test=NAME[,NAME]...    single tests; their results replace earlier ones
#   test@CPU=NAME[,NAME].. the same on another processor, reported beside its doctor;
#                          removed once `tests` has run to its end
#   pages                  the commands, and live tests of what guard needs, on a kernel with base
#                          pages of 16 KiB; with 6.12 for arm64
# A PART that did not finish keeps what it found, marked as unfinished. A doctor that did not finish
# does not replace one that did. Once there are results of doctor and tests on any kernel, it writes
# docs/kernels.md, or docs/kernels-arm64.md, which says what did not run or finish. With -k there
# must be results on all three kernels. Takes about 40 minutes per kernel.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
# shellcheck source=scripts/debian-apt.sh
. scripts/debian-apt.sh

# fetch_util_linux DIRECTORY: puts flock and unshare for arm64 there, of this machine's release of
# Debian: the virtual machine gets this machine's C library for arm64.
fetch_util_linux() (
  [ ! -f "$1/unshare" ] || exit 0
  unpacked=$(mktemp -d "$1.XXXXXX")
  trap 'rm -rf "$unpacked"' EXIT
  # shellcheck source=/dev/null
  debian_apt "$unpacked" "$(. /etc/os-release && echo "$VERSION_CODENAME")" arm64
  (cd "$unpacked" && apt-get "${apt_options[@]}" download util-linux)
  dpkg-deb -x "$unpacked"/util-linux_*.deb "$unpacked/image"
  install -D -t "$1" "$unpacked"/image/usr/bin/{flock,unshare}
)

kernels=() architecture=amd64
# Results of single kernels do not replace a page about all of them.
needed=1
while getopts a:k: option; do
  case $option in
    a) architecture=$OPTARG ;;
    k) kernels+=("$OPTARG") needed=3 ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ ${#kernels[@]} -gt 0 ] || kernels=(6.1 6.12 7.2)
targets=${CARGO_TARGET_DIR:-$PWD/target} target=$targets
cache=$PWD/target/vm
mkdir -p "$cache"
# Those of busybox lack options that tests use.
processors=() other_pages=() tools=("$(command -v flock)" "$(command -v unshare)")
case $architecture in
  amd64)
    suffix='' cargo=cargo strip=strip page=docs/kernels.md seconds=5400
    ;;
  arm64)
    suffix=-arm64 cargo=scripts/cross.sh strip=aarch64-linux-gnu-strip page=docs/kernels-arm64.md
    # Most tests take 10 to 30 s there.
    seconds=14400
    target=$target/cross/aarch64-unknown-linux-gnu
    # A large server's, and one that does not mark accesses.
    processors=(neoverse-n1 cortex-a72)
    other_pages=(pages)
    fetch_util_linux "$cache/util-linux-arm64" >&2
    tools=("$cache"/util-linux-arm64/{flock,unshare})
    ;;
  *) echo "test-kernels: no such architecture: $architecture" >&2; exit 2 ;;
esac
[ $# -gt 0 ] || set -- doctor "${processors[@]/#/doctor=}" tests peers "${other_pages[@]}"
work=$(mktemp -d "$cache/tests.XXXXXX")
trap 'rm -rf "$work"' EXIT

# build_programs TARGET_DIR FOLDER [ARG]...: builds hawkeye and its live tests there, and puts them
# into FOLDER
build_programs() {
  local folder=$2 built crate
  # A debug build would work too, but several times slower.
  built=$(CARGO_TARGET_DIR=$1 "$cargo" test --release -p hawkeye-linux -p hawkeye-cli --test live --no-run --message-format=json "${@:3}")
  mkdir -p "$folder"
  for crate in linux cli; do
    "$strip" -o "$folder/live-$crate" "$(sed -nE "s/.*\"manifest_path\":\"[^\"]*\/crates\/$crate\/Cargo.toml\".*\"executable\":\"([^\"]*\/live-[^\"]*)\".*/\1/p" <<<"$built")"
  done
  "$strip" -o "$folder/hawkeye" "$1${target#"$targets"}/release/hawkeye"
}
build_programs "$targets" "$work"
case " $* " in
  *" pages "*)
    build_programs "$targets/16k" "$work/16k" --features hawkeye-cli/base-pages-16-kib
    mv "$work/16k/hawkeye" "$work/16k/hawkeye-16k"
    ;;
esac

# Modules for a swap device in memory: zram, and on 6.1 its compressor.
declare -A modules=([6.1]="-k lzo-rle -k zram" [6.12]="-k zram" [7.2]="-k zram")
failed=0
results=$cache/results
mkdir -p "$results"
for kernel in "${kernels[@]/%/$suffix}"; do
  for part; do
    status=0 to=$results/$kernel.$part cpu=max machine=$kernel inside=$part
    programs=("$work"/{hawkeye,live-linux,live-cli}) expected=$target/release/hawkeye
    case $part in
      doctor=*) cpu=${part#*=} inside=doctor ;;
      test=*) to=$results/$kernel.test ;;
      test@*=*) cpu=${part#test@} cpu=${cpu%%=*} to=$results/$kernel.test@$cpu inside=test=${part#*=} ;;
      pages)
        [ "$kernel" = 6.12-arm64 ] || continue
        machine=6.12-16k-arm64 programs=("$work/hawkeye" "$work"/16k/{hawkeye-16k,live-linux,live-cli})
        # Each test has the path compiled in.
        expected=$targets/16k${target#"$targets"}/release/hawkeye
        ;;
    esac
    echo "@commit $(git describe --always --dirty) $(date -u +%F)" >"$to.new"
    # A machine that does not start is not waited for as long as tests take.
    case $part in doctor*) limit=1800 ;; pages) limit=5400 ;; *) limit=$seconds ;; esac
    # More memory than the largest test takes, which is the torture with 2 GiB.
    # shellcheck disable=SC2086
    "$here/run.sh" "$machine" -m 5120 -t "$limit" -c "$cpu" ${modules[${kernel%-arm64}]} \
      "${programs[@]/#/-f}" -f "$here/kernels/inside" "${tools[@]/#/-f}" \
      -f "$here/peers/program" -f "$here/peers/damon-hugepage" -f "$here/peers/underused-shrinker" \
      -f "$here/peers/damon-nohugepage" \
      -- sh ./inside "$expected" "$inside" >>"$to.new" || status=$?
    sed -n 's/\r$//; /^@\(kernel\|test\|peer\|pages\)/p' "$to.new"
    if [ $status -ne 0 ] || grep -q '^@test [^ ]* failed' "$to.new"; then failed=1; fi
    if [ $status -ne 0 ]; then
      # The last line may be incomplete.
      [ -z "$(tail -c 1 "$to.new")" ] || sed -i '$d' "$to.new"
      echo "@unfinished ${part%%=*} $status" >>"$to.new"
      echo "test-kernels: $part on $kernel did not finish (status $status)" >&2
      # A machine that did not start has found nothing that may replace earlier results.
      if ! grep -q '^@kernel ' "$to.new"; then
        echo "test-kernels: see $to.new" >&2
        continue
      fi
      # The doctor prints one JSON document: of an incomplete one nothing can be read.
      if [[ $part == doctor* ]] && [ -f "$to" ] && ! grep -q '^@unfinished ' "$to"; then
        echo "test-kernels: kept the earlier $to, see $to.new" >&2
        continue
      fi
    fi
    case $part in
      test=*) cat "$to.new" >>"$results/$kernel.tests" && rm "$to.new" ;;
      test@*) cat "$to.new" >>"$to" && rm "$to.new" ;;
      tests)
        mv "$to.new" "$to"
        # They were found by earlier programs.
        [ $status -ne 0 ] || rm -f "$results/$kernel".test@*
        ;;
      *) mv "$to.new" "$to" ;;
    esac
  done
done
with_results=0
for of in "$results"/{6.1,6.12,7.2}"$suffix"; do
  if [ -f "$of.doctor" ] && [ -f "$of.tests" ]; then with_results=$((with_results + 1)); fi
done
if [ $with_results -ge $needed ]; then
  python3 "$here/kernels/report.py" "$results" {6.1,6.12,7.2}"$suffix" >"$work/page"
  mv "$work/page" "$page"
  echo "test-kernels: wrote $page"
fi
exit $failed
