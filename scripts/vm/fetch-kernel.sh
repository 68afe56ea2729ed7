#!/usr/bin/env bash
# fetch-kernel.sh KERNEL DIRECTORY: puts Debian's cloud kernel of that series into DIRECTORY, unless
# it has one:
#   vmlinuz, config, release (as in uname -r), lib/modules/RELEASE
# KERNEL is 6.1, 6.12 or 7.2 for amd64, 6.1-arm64 and so on for arm64. With these goes a busybox.
# 6.12-16k-arm64 has base pages of 16 KiB; it is no cloud kernel, and has run.sh's devices built in.
# Delete DIRECTORY to fetch again. apt uses separate sources and lists, and leaves the system's as
# they are.
set -euo pipefail
# shellcheck source=scripts/debian-apt.sh
. "$(dirname "$0")/../debian-apt.sh"

kernel=$1 directory=$(realpath -m "$2")
architecture=amd64
case $kernel in *-arm64) architecture=arm64 ;; esac
series=${kernel%-arm64} flavour=cloud-$architecture
case $series in *-16k) series=${series%-16k} flavour=$architecture-16k ;; esac
case $series in
  6.1) suite=bookworm ;;
  6.12) suite=bookworm-backports ;;
  7.2) suite=sid ;;
  *) echo "fetch-kernel: no such kernel: $kernel" >&2; exit 2 ;;
esac
[ ! -f "$directory/release" ] || exit 0

mkdir -p "$directory"
work=$(mktemp -d "$directory.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/image"
debian_apt "$work" "$suite" "$architecture"
# depends PACKAGE: its dependencies, one name per line
depends() { apt-cache "${apt_options[@]}" depends "$1" | sed -n 's/^ *Depends: //p'; }
package=$(depends "linux-image-$flavour" | grep -m 1 "^linux-image-${series//./\\.}\.") ||
  { echo "fetch-kernel: $suite has no kernel $kernel" >&2; exit 1; }
release=${package#linux-image-}
# In 7.2 the image's package is empty, and depends on three other packages.
mapfile -t packages < <(echo "$package"; depends "$package" | grep -E "^linux-(base|binary|modules)-${release//[.+]/\\&}$" || true)
(cd "$work" && apt-get "${apt_options[@]}" download "${packages[@]}")
for file in "$work"/*.deb; do dpkg-deb -x "$file" "$work/image"; done

mkdir -p "$directory/lib/modules"
mv "$work/image"/{,usr/}lib/modules/"$release" "$directory/lib/modules/" 2>/dev/null || [ -d "$directory/lib/modules/$release" ]
modules=$directory/lib/modules/$release
if [ -f "$modules/vmlinuz" ]; then
  mv "$modules/vmlinuz" "$modules/config" "$directory/"
else
  mv "$work/image/boot/vmlinuz-$release" "$directory/vmlinuz"
  mv "$work/image/boot/config-$release" "$directory/config"
fi
depmod -b "$directory" "$release"
if [ "$architecture" = arm64 ]; then
  mkdir "$work/busybox"
  debian_apt "$work/busybox" "${suite%-backports}" "$architecture"
  (cd "$work" && apt-get "${apt_options[@]}" download busybox-static)
  dpkg-deb --fsys-tarfile "$work"/busybox-static_*.deb | tar -xO --wildcards '*bin/busybox' >"$directory/busybox"
  chmod 755 "$directory/busybox"
fi
echo "$release" >"$directory/release"
