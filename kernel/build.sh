#!/usr/bin/env bash
# build.sh VERSION CONFIG: builds Debian's kernel source VERSION (7.2 or 6.12) with the series, to
# target/kernel/VERSION/CONFIG:
#   bzImage, vmlinux, config, modules/*.ko (the kernel's own, of kernel/module, and of
#   kernel/test/module if it exists)
# CONFIG is one of
#   minimal             compiled as distributions compile theirs
#   debug, kasan        with checks
#   stock, stock-debug  minimal and debug without the series, for comparison
# Does nothing where the result was made from the same source, series, configuration and modules.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
version=${1:?which kernel?} config=${2:?which configuration?}
case $config in
  minimal | stock) fragments=(minimal optimized) ;;
  debug | stock-debug) fragments=(minimal debug) ;;
  kasan) fragments=(minimal debug kasan) ;;
  *) [ -f "$here/config/$config" ] || { echo "build: no such configuration: $config" >&2; exit 2; }
    fragments=(minimal "$config") ;;
esac
tree=patched modules=("$here"/module "$here"/test/module)
case $config in stock*) tree=source modules=("$here"/test/module) ;; esac

cd "$here"
"$here/fetch-source.sh" "$version"
directory=$(realpath "$here/../target/kernel/$version")
out=$directory/$config

# fingerprint: of everything that the build reads
fingerprint() {
  cat "$directory/linux-source.version"
  gcc --version | head -n 1
  {
    printf '%s\0' "$here/build.sh" "${fragments[@]/#/$here/config/}"
    [ "$tree" = source ] || find "$here/patches/$version" -type f -print0
    for module in "${modules[@]}"; do [ ! -f "$module/Kbuild" ] || find "$module" -type f -print0; done
  } | sort -z | xargs -0 sha256sum
}

mkdir -p "$out/build" "$out/modules"
exec 7>"$out/lock"
flock 7
now=$(fingerprint)
if [ -f "$out/fingerprint" ] && [ "$now" = "$(cat "$out/fingerprint")" ]; then exit 0; fi
rm -f "$out/fingerprint"
[ "$tree" = source ] || "$here/apply.sh" "$version"

run_make() { make -s -C "$directory/$tree" O="$out/build" -j "$(nproc)" KBUILD_BUILD_USER=hawkeye KBUILD_BUILD_HOST=kernel "$@"; }

# The result may differ from a fragment only in options that the stock kernel cannot have.
configure() {
  local line wrong=0
  run_make tinyconfig
  for fragment in "${fragments[@]}"; do cat "$here/config/$fragment"; done >>"$out/build/.config"
  run_make olddefconfig 2>"$out/olddefconfig.log"
  while read -r line; do
    case $line in
      *CONFIG_PREZERO*) [ "$tree" != source ] || continue ;;
      CONFIG_* | '# CONFIG_'*' is not set') ;;
      *) continue ;;
    esac
    grep -qxF "$line" "$out/build/.config" && continue
    # A symbol that does not exist, or that lacks a dependency, has no line at all.
    case $line in '# '*) ! grep -q "^${line:2:-11}=" "$out/build/.config" && continue ;; esac
    echo "build: the configuration lacks '$line'" >&2
    wrong=1
  done < <(for fragment in "${fragments[@]}"; do sed 's/ *$//' "$here/config/$fragment"; done)
  return $wrong
}

configure
run_make bzImage modules
cp "$out/build/arch/x86/boot/bzImage" "$out/bzImage"
cp "$out/build/.config" "$out/config"
ln -sf build/vmlinux "$out/vmlinux"

rm -rf "$out/modules" "$out/module-build"
mkdir "$out/modules"
find "$out/build" -name '*.ko' -exec cp {} "$out/modules/" \;
for module in "${modules[@]}"; do
  [ -f "$module/Kbuild" ] || continue
  # Builds in a copy, because only newer kernels can put a module's objects elsewhere.
  copy=$out/module-build/$(basename "$(dirname "$module")")-$(basename "$module")
  mkdir -p "$copy"
  cp -a "$module/." "$copy/"
  run_make M="$copy" modules
  cp "$copy"/*.ko "$out/modules/"
done
echo "$now" >"$out/fingerprint"
