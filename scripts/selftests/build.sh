#!/usr/bin/env bash
# build.sh [VERSION]: builds the kernel's mm selftests in target/selftests/VERSION and prints the
# folder of the programs.
#
# VERSION is one that kernel/fetch-source.sh knows (default 6.12). Programs that do not build are
# reported and left out. Tests skip what the running kernel does not have.
set -euo pipefail

version=${1:-6.12}
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)/target/selftests/$version
programs=$source/tools/testing/selftests/mm
# Files that the tests include, and sources of the user-space headers.
files=(
  Makefile Kbuild Kconfig scripts include usr arch/x86 arch/arm64 mm lib/test_hmm_uapi.h
  tools/testing/selftests tools/include tools/arch tools/scripts tools/build
)

mkdir -p "$source"
exec 9>"$source.lock"
flock 9
if ! [ -e "$source/built" ]; then
  rm -rf "$source"
  "$here/../../kernel/fetch-source.sh" "$version" "$source" "${files[@]}" >&2
  make -s -C "$source" headers >&2
  # 6.12.117: khugepaged.c uses KSFT_SKIP, but does not include kselftest.h.
  make -s -k -C "$programs" EXTRA_CFLAGS=-DKSFT_SKIP=4 >"$source/build.log" 2>&1 || true
  grep -oE '[^/ ]+\] Error [0-9]+' "$source/build.log" | sed 's/\].*//; s/^/selftests: does not build: /' >&2 || true
  [ -x "$programs/cow" ] || { echo "selftests: the tests did not build; see $source/build.log" >&2; exit 1; }
  touch "$source/built"
fi
echo "$programs"
