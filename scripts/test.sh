#!/usr/bin/env bash
# test.sh [ARG]...: runs all tests, and passes ARGs to cargo test. The last line is the sum:
# N passed, N failed, N skipped.
#
# A test that this machine cannot run returns at once, so cargo counts it as passed. It adds one
# line, "NAME: WHY", to the file $HAWKEYE_SKIPPED_TESTS; its name is the one that the test harness
# lists (crates/test-support/src/test_skips.rs). Tests marked #[ignore] are skipped too.
#
# HAWKEYE_TEST_PROMOTION_US=5000 gives policies a machine on which a promotion costs 5 ms.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HAWKEYE_SKIPPED_TESTS=${HAWKEYE_SKIPPED_TESTS:-$work/skipped}
: >"$HAWKEYE_SKIPPED_TESTS"

status=0
cargo test --workspace --no-fail-fast "$@" 2>&1 | tee "$work/log" || status=$?

echo
sed 's/^/SKIPPED /' "$HAWKEYE_SKIPPED_TESTS"
scripts/test-counts.sh "$work/log" "$HAWKEYE_SKIPPED_TESTS" "$status"
exit "$status"
