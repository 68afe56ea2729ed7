#!/usr/bin/env bash
# apply.sh VERSION             makes target/kernel/VERSION/patched from .../source (fetch-source.sh)
#                              and the series in patches/VERSION. Files with unchanged contents keep
#                              their time, so that the next build is short
# apply.sh --check [VERSION]   only checks that the series applies, on copies of the files it
#                              touches. Without VERSION it checks each series. It skips a series in
#                              two cases, and reports that: Debian no longer has its source, or it
#                              does not apply to a source that is newer than the one it was made for
#                              (patches/VERSION/made-for)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)

# patches VERSION: the files of the series, in order
patches() { sed "s#^#$here/patches/$1/#" "$here/patches/$1/series"; }

# files VERSION OLD|NEW: the files before or after the series, by the headers of its patches
files() {
  local all side=---
  [ "$2" = OLD ] || side=+++
  mapfile -t all < <(patches "$1")
  cat /dev/null "${all[@]}" | awk -v side="$side" '$1 == side && $2 ~ /^[ab]\// { print substr($2, 3) }' | sort -u
}

# found VERSION: the files that must exist before the series
found() { comm -23 <(files "$1" OLD) <(created "$1"); }

# created VERSION: the files that the series creates
created() {
  local all
  mapfile -t all < <(patches "$1")
  cat /dev/null "${all[@]}" | awk '$1 == "---" { new = $2 == "/dev/null" } $1 == "+++" && new { print substr($2, 3) }' | sort -u
}

# apply VERSION DIRECTORY: applies the series there, with exact context
apply() {
  local file
  while read -r file; do
    patch -d "$2" -p1 --fuzz=0 --no-backup-if-mismatch --reject-file=- -s <"$file" ||
      { echo "apply: $1: $(basename "$file") does not apply" >&2; return 1; }
  done < <(patches "$1")
}

check() {
  local files
  mapfile -t files < <(found "$1")
  local status=0
  "$here/fetch-source.sh" "$1" "$work/$1" "${files[@]}" || status=$?
  if [ $status -eq 3 ]; then
    echo "SKIPPED apply: $1: its source package is no longer in the archive"
    return
  fi
  [ $status -eq 0 ] || return $status
  local source made_for
  source=$(cat "$here/../target/kernel/$1/linux-source.version")
  made_for=$(cat "$here/patches/$1/made-for")
  if apply "$1" "$work/$1"; then
    echo "apply: $1: $(patches "$1" | wc -l) patches apply to linux-source $source"
  elif dpkg --compare-versions "$source" gt "$made_for"; then
    # The archive moves on; that does not make the series wrong.
    echo "SKIPPED apply: $1: made for linux-source $made_for, does not apply to $source, the version now in the archive"
  else
    return 1
  fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "${1-}" = --check ]; then
  for version in ${2:-6.12 7.2}; do check "$version"; done
  exit
fi

version=${1:?which kernel?}
directory=$here/../target/kernel/$version
"$here/fetch-source.sh" "$version"
cd "$directory"
exec 8>patched.lock
flock 8
if [ ! -d patched ]; then
  rm -rf patched.part
  cp -al source patched.part
  : >patched.files
  mv patched.part patched
fi

# The files that this series changes, and those that the previous one changed.
mapfile -t files < <({ cat patched.files; files "$version" NEW; } | sort -u)
for file in "${files[@]}"; do
  mkdir -p "$work/$(dirname "$file")"
  [ ! -f "source/$file" ] || cp -p "source/$file" "$work/$file"
done
apply "$version" "$work"
files "$version" NEW >patched.files.new
for file in "${files[@]}"; do
  if [ ! -f "$work/$file" ]; then
    rm -f "patched/$file"
  elif ! cmp -s "$work/$file" "patched/$file"; then
    # Never writes into the file itself: it is a hard link to the one in source.
    rm -f "patched/$file"
    mkdir -p "patched/$(dirname "$file")"
    cp "$work/$file" "patched/$file"
  fi
done
mv patched.files.new patched.files
