#!/usr/bin/env bash
# test.sh [ARG]...: runs all tests, ARGs going to cargo test. The last line sums up: N passed, N failed, N skipped.
#
# A live test that this machine cannot run appends one line, "NAME: WHY", to the file $HAWKEYE_SKIPPED_TESTS and
# returns, so cargo counts it as passed. Tests marked #[ignore] are skipped too.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HAWKEYE_SKIPPED_TESTS=${HAWKEYE_SKIPPED_TESTS:-$work/skipped}
: >"$HAWKEYE_SKIPPED_TESTS"

status=0
cargo test --workspace --no-fail-fast "$@" 2>&1 | tee "$work/log" || status=$?

# total WORD: of all "test result: ok. 3 passed; 0 failed; 1 ignored; ..."
total() {
  sed -nE "s/^test result: .* ([0-9]+) $1;.*/\1/p" "$work/log" | awk '{ n += $1 } END { print n + 0 }'
}
unable=$(wc -l <"$HAWKEYE_SKIPPED_TESTS")
passed=$(($(total passed) - unable)) failed=$(total failed) skipped=$(($(total ignored) + unable))
# What did not compile, or ended in the middle of its tests, has no result of its own.
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi

echo
sed 's/^/SKIPPED /' "$HAWKEYE_SKIPPED_TESTS"
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
