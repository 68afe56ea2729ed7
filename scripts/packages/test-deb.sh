#!/usr/bin/env bash
# test-deb.sh: installs, upgrades, removes and purges target/packages/hawkeye_*.deb in a clean
# Debian 12 that systemd boots in a container, as root. The tests are in test-deb-inside.sh. The
# kernel is this machine's: its huge-page settings change meanwhile, and it is an error if they
# differ afterwards. The output of the confined daemon's port stays in target/packages/metrics.txt.
set -euo pipefail
cd "$(dirname "$0")/../.."

die() { echo "test-deb: $*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || die "root is needed to boot a container"
version=$(sed -nE 's/^version = "(.*)"/\1/p' Cargo.toml | head -n 1)
packages=$PWD/target/packages
architecture=$(dpkg --print-architecture)
deb=$packages/hawkeye_${version}_$architecture.deb
[ -f "$deb" ] || die "$deb is missing; run 'make deb'"

base=$packages/bookworm
if [ ! -d "$base" ]; then
  rm -rf "$base.part"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus bookworm "$base.part" >"$packages/debootstrap.log" ||
    die "debootstrap failed: see $packages/debootstrap.log"
  mv "$base.part" "$base"
fi

shared=$(mktemp -d)
trap 'rm -rf "$shared"' EXIT
# The same package, as a newer version.
scripts/packages/deb.sh "$version+next" >/dev/null
mv "$packages/hawkeye_${version}+next_$architecture.deb" "$shared/next.deb"
cp "$deb" "$shared/first.deb"
cp scripts/packages/test-deb-inside.sh "$shared/inside.sh"
cat >"$shared/test.service" <<'U'
[Unit]
Requires=dbus.socket basic.target
After=basic.target
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
ExecStart=/bin/bash /shared/inside.sh
StandardOutput=file:/shared/log
StandardError=inherit
TimeoutStartSec=120
U

# The container's root is the base under a temporary layer. It has a terminal, because systemd
# prints to nothing else.
export SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
status=0
script --quiet --return --log-out "$packages/boot.log" --command "systemd-nspawn --quiet --directory='$base' --volatile=overlay \
  --register=no --keep-unit --capability=all --bind='$shared:/shared' \
  --bind-ro='$shared/test.service:/etc/systemd/system/test.service' --boot -- --unit=test.service" </dev/null >/dev/null || status=$?
cat "$shared/log" || die "the container did not boot: see $packages/boot.log"
[ "$status" -eq 0 ] || die "the tests failed; their output is above"
cp "$shared/metrics.txt" "$packages/metrics.txt"
