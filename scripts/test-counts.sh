#!/usr/bin/env bash
# test-counts.sh LOG SKIPPED STATUS: prints "N passed, N failed, N skipped" for a run of cargo test
# with the output LOG and the exit status STATUS. SKIPPED holds a line for each test that was
# skipped while it ran; cargo counts such a test as passed.
# test-counts.sh --self-test: checks this program itself.
set -euo pipefail

# total WORD LOG: sum of WORD over all lines "test result: ok. 3 passed; 0 failed; 1 ignored; ..."
total() {
  sed -nE "s/^test result: .* ([0-9]+) $1;.*/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'
}

counts() {
  local log=$1 unable status=$3 passed failed skipped
  unable=$(sort -u "$2" | wc -l)
  passed=$(($(total passed "$log") - unable)) failed=$(total failed "$log")
  skipped=$(($(total ignored "$log") + unable))
  # A crate that did not compile, or ended in the middle of its tests, prints no result.
  if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
  echo "$passed passed, $failed failed, $skipped skipped"
}

# expect COUNTS STATUS RESULT SKIPPED
expect() {
  local found
  printf '%b' "$3" >"$work/log"
  printf '%b' "$4" >"$work/skipped"
  found=$(counts "$work/log" "$work/skipped" "$2")
  if [ "$found" != "$1" ]; then
    echo "test-counts: expected $1, counted $found" >&2
    exit 1
  fi
}

if [ "${1-}" = --self-test ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  two='test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0\n'
  one='test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured\n'
  expect '5 passed, 1 failed, 1 skipped' 101 "$two" ''
  expect '3 passed, 1 failed, 3 skipped' 101 "$two" 'a::b: why\na::c: why\n'
  expect '2 passed, 0 failed, 1 skipped' 0 "$one" 'a::b: why\na::b: why\n'
  expect '3 passed, 1 failed, 0 skipped' 101 "$one" ''
  expect '0 passed, 1 failed, 0 skipped' 101 'error: could not compile\n' ''
else
  counts "$@"
fi
