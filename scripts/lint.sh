#!/usr/bin/env bash
# lint.sh: checks format, lints, documentation, imports, language, links, shell scripts, licence
# headers and the build for arm64. That build is another rustc's, so it runs beside the other
# checks, and its messages come at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

arm64_log=$(mktemp)
scripts/cross-check.sh >"$arm64_log" 2>&1 &
arm64=$!
trap 'kill "$arm64" 2>/dev/null || true; rm -f "$arm64_log"' EXIT

cargo fmt --all --check
cargo clippy --workspace --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --package hawkeye-cli --document-private-items
scripts/lint-files.sh
scripts/lint-imports.py
scripts/lint-prose.py
scripts/packages/check.sh quick

status=0
wait "$arm64" || status=$?
cat "$arm64_log"
exit "$status"
