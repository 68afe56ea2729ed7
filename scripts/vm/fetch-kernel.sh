#!/usr/bin/env bash
# fetch-kernel.sh KERNEL DIRECTORY: puts Debian's cloud kernel of that series into DIRECTORY, unless one is there:
#   vmlinuz, config, release (as in uname -r), lib/modules/RELEASE
# Delete DIRECTORY to fetch again. apt runs on sources and lists of its own; the system's stay as they are.
set -euo pipefail

kernel=$1 directory=$2
case $kernel in
  6.1) suite=bookworm ;;
  6.12) suite=bookworm-backports ;;
  *) echo "fetch-kernel: no such kernel: $kernel" >&2; exit 2 ;;
esac
[ ! -f "$directory/release" ] || exit 0

mkdir -p "$directory"
work=$(mktemp -d "$directory.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work"/{lists,cache,image}

echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" >"$work/sources.list"
options=(
  -q
  -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
  -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache"
  -o Acquire::Languages=none -o APT::Update::Post-Invoke-Success::=
  -o APT::Sandbox::User=root
)
apt-get "${options[@]}" update
package=$(apt-cache "${options[@]}" depends linux-image-cloud-amd64 | sed -n "s/^ *Depends: \(linux-image-${kernel//./\\.}\..*\)/\1/p" | head -n 1)
[ -n "$package" ] || { echo "fetch-kernel: $suite has no cloud kernel $kernel" >&2; exit 1; }
(cd "$work" && apt-get "${options[@]}" download "$package")
dpkg-deb -x "$work/$package"_*.deb "$work/image"

release=${package#linux-image-}
mkdir -p "$directory/lib/modules"
mv "$work/image/boot/vmlinuz-$release" "$directory/vmlinuz"
mv "$work/image/boot/config-$release" "$directory/config"
mv "$work/image"/{,usr/}lib/modules/"$release" "$directory/lib/modules/" 2>/dev/null || [ -d "$directory/lib/modules/$release" ]
depmod -b "$directory" "$release"
echo "$release" >"$directory/release"
