#!/usr/bin/env bash
# deb.sh [VERSION]: packs target/release/hawkeye, which must be built, as
# target/packages/hawkeye_VERSION_ARCHITECTURE.deb [default: the version of Cargo.toml, and this
# machine's architecture]. Tests of upgrades need a second VERSION. On amd64 it packs hawkeye-lab,
# too. There ARCH=arm64 packs the hawkeye that scripts/cross.sh built for arm64. The laboratory has
# no such package, because its experiments have not run there. For arm64 there is a second hawkeye,
# for kernels with base pages of 16 KiB, which the first one starts there.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=${1:-$(sed -nE 's/^version = "(.*)"/\1/p' Cargo.toml | head -n 1)}
release=${CARGO_TARGET_DIR:-target}/release
here=$(dpkg --print-architecture)
architecture=${ARCH:-$here}
built=$release programs=(hawkeye)
case $architecture in
  amd64) target=x86_64-unknown-linux-gnu programs+=(hawkeye-lab) ;;
  arm64) target=aarch64-unknown-linux-gnu ;;
  *) echo "deb: no such architecture: $architecture" >&2; exit 2 ;;
esac
case $here/$architecture in
  "$architecture/$architecture") built_16k=${CARGO_TARGET_DIR:-target}/16k/release ;;
  amd64/arm64)
    built=${CARGO_TARGET_DIR:-target}/cross/$target/release
    built_16k=${CARGO_TARGET_DIR:-target}/16k/cross/$target/release
    ;;
  *) echo "deb: packages for $architecture are not built on $here" >&2; exit 2 ;;
esac
# Manual pages are written by a program of this machine.
needed=("${programs[@]/#/$built/}" "$release/hawkeye-pages")
[ "$architecture" != arm64 ] || needed+=("$built_16k/hawkeye")
for program in "${needed[@]}"; do
  [ -x "$program" ] || { echo "deb: $program is missing; run 'make deb', which builds it" >&2; exit 1; }
done

# The same commit gives the same package.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH
day=$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)

packages=$PWD/target/packages
stage=$packages/build
rm -rf "$stage"
mkdir -p "$stage"
for program in "${programs[@]}"; do
  install -m755 "$built/$program" "$stage/$program"
done
if [ "$architecture" = arm64 ]; then
  install -m755 "$built_16k/hawkeye" "$stage/hawkeye-16k"
fi
"$release/hawkeye-pages" --date "$day" "$stage/generated"
scripts/packages/third-party.py --target "$target" >"$stage/THIRD-PARTY"
cp -r README.md CHANGELOG.md docs packaging/hawkeye.toml packaging/prometheus packaging/grafana packaging/debian "$stage"
cp packaging/hawkeye.service "$stage/debian/hawkeye.service"
cat >"$stage/debian/changelog" <<C
hawkeye ($version) unstable; urgency=medium

  * What changed is in /usr/share/doc/hawkeye/CHANGELOG.md.gz.

 -- $(sed -n 's/^Maintainer: //p' packaging/debian/control)  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
C

(cd "$stage" && dpkg-buildpackage --build=binary --host-arch="$architecture" --no-sign --no-check-builddeps) >"$packages/build.log" 2>&1 ||
  { cat "$packages/build.log" >&2; exit 1; }
for program in "${programs[@]}"; do
  deb=target/packages/${program}_${version}_$architecture.deb
  [ -f "$deb" ]
  echo "$deb: $(stat -c %s "$deb") bytes"
done
