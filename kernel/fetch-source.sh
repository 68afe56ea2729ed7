#!/usr/bin/env bash
# fetch-source.sh VERSION                    unpacks Debian's linux-source-VERSION into
#                                            target/kernel/VERSION/source, unless it exists
# fetch-source.sh VERSION DIRECTORY FILE...  unpacks only these files of it, into DIRECTORY
# VERSION is 7.2 (from sid) or 6.12 (from trixie). The package is downloaded once, to
# target/kernel/VERSION/linux-source.deb; delete that and source to fetch again. Exits with 3 where
# Debian no longer has the package. apt uses separate sources and lists, and leaves the system's as
# they are.
set -euo pipefail
# shellcheck source=scripts/debian-apt.sh
. "$(dirname "$0")/../scripts/debian-apt.sh"

version=${1-}
case $version in
  6.12) suite=trixie ;;
  7.2) suite=sid ;;
  *) echo "fetch-source: no such kernel: '$version' (6.12 and 7.2 are known)" >&2; exit 2 ;;
esac
shift
directory=$(realpath -m "$(dirname "$0")/../target/kernel/$version")
package=linux-source-$version
mkdir -p "$directory"
exec 9>"$directory/source.lock"
flock 9

# download: gets linux-source.deb, and writes its version to linux-source.version
download() {
  local work file
  work=$(mktemp -d "$directory/fetch.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  {
    debian_apt "$work" "$suite"
    [ -n "$(apt-cache "${apt_options[@]}" show "$package" 2>/dev/null)" ] ||
      { echo "fetch-source: $suite no longer has $package" >&2; exit 3; }
    (cd "$work" && apt-get "${apt_options[@]}" download "$package")
  } >&2
  file=$(echo "$work/$package"_*.deb)
  dpkg-deb -f "$file" Version >"$directory/linux-source.version"
  mv "$file" "$directory/linux-source.deb"
  rm -rf "$work"
}

# unpack DIRECTORY [FILE]...: unpacks all of the source, or these files
unpack() {
  local to=$1
  shift
  dpkg-deb --fsys-tarfile "$directory/linux-source.deb" | tar -xO "./usr/src/$package.tar.xz" | xz -dc -T0 |
    tar -x -C "$to" --strip-components=1 "${@/#/$package/}"
}

[ -f "$directory/linux-source.deb" ] || download
if [ $# -gt 0 ]; then
  to=$1
  shift
  [ $# -gt 0 ] || { echo "fetch-source: no FILE given" >&2; exit 2; }
  mkdir -p "$to"
  unpack "$to" "$@"
elif [ ! -d "$directory/source" ]; then
  rm -rf "$directory/source.part"
  mkdir "$directory/source.part"
  unpack "$directory/source.part"
  mv "$directory/source.part" "$directory/source"
fi
