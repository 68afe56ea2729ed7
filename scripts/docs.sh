#!/usr/bin/env bash
# docs.sh: builds the book of docs/ into target/book. Where there is no mdbook, cargo installs one
# into target/tools, which takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.4.52
tools=$PWD/target/tools
export PATH="$tools/bin:$PATH"
command -v mdbook >/dev/null || {
  echo "docs: installing mdbook $version into target/tools" >&2
  cargo install --quiet --locked --no-default-features --version "$version" --root "$tools" mdbook
}
mdbook build docs
echo "docs: target/book/index.html"
