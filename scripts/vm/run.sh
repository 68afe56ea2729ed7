#!/usr/bin/env bash
# Runs one command on another Linux kernel, in a virtual machine that ends with the command.
set -euo pipefail

usage() {
  cat <<'U'
usage: scripts/vm/run.sh KERNEL [OPTION]... -- COMMAND [ARG]...

KERNEL is 6.1, 6.12 or 7.2: Debian's cloud kernel for amd64, downloaded once to target/vm (see
fetch-kernel.sh). 6.1-arm64 and so on are those for arm64; FILEs must then be of that architecture.
6.12-16k-arm64 is Debian's kernel for arm64 with base pages of 16 KiB.
KERNEL may also be a folder with a / in its name that holds a kernel of kernel/build.sh.

  -f FILE      copy FILE to /vm in the machine, with a program's shared libraries. /vm is the
               working directory and first in PATH; a program with a name that busybox has too,
               such as stat, needs ./ before it (repeatable)
  -k MODULE    load a kernel module, such as zram, and its dependencies (repeatable)
  -a STRING    append STRING to the kernel's command line
  -c CPU       emulate this processor, for example neoverse-n1 [default: max]
  -m MIB       give the machine MIB of memory [default: 1024]
  -t SECONDS   end after SECONDS from boot [default: 300]
  -i           use one processor with a time stamp counter that counts instructions

COMMAND runs as root on busybox, with /proc, /sys, cgroup2, debugfs, tracefs, securityfs, bpf, and
tmpfs on /run, /tmp and /dev/shm. Its output goes to standard output; the kernel's output goes to
console.log in the kernel's folder (target/vm/KERNEL). run.sh exits with the status of COMMAND, with
124 when out of time, or with 125 when the machine failed. Only one machine runs at a time; a second
waits for the first. There is no KVM: measured times mean nothing.
U
}

die() { echo "vm: $*" >&2; exit 125; }
wrong_usage() { echo "vm: $*" >&2; usage >&2; exit 2; }

here=$(cd "$(dirname "$0")" && pwd)
cache=$(cd "$here/../.." && pwd)/target/vm

[ $# -gt 0 ] || wrong_usage "no KERNEL given"
case $1 in
  -h | --help) usage; exit 0 ;;
  6.1 | 6.12 | 7.2 | 6.1-arm64 | 6.12-arm64 | 6.12-16k-arm64 | 7.2-arm64) kernel=$1 folder=$cache/$1 image=$cache/$1/vmlinuz; shift ;;
  */*)
    kernel=$1 folder=$1 image=$1/bzImage cache=$1
    shift
    [ -f "$image" ] || die "no kernel in $folder"
    ;;
  *) wrong_usage "no such kernel: $1" ;;
esac
files=() modules=() append='' memory=1024 seconds=300 cpu=max processors=
while getopts f:k:a:c:m:t:i option; do
  case $option in
    f) [ -f "$OPTARG" ] || wrong_usage "no such file: $OPTARG"; files+=("$OPTARG") ;;
    k) modules+=("$OPTARG") ;;
    a) append=$OPTARG ;;
    c) cpu=$OPTARG ;;
    m) memory=$OPTARG ;;
    t) seconds=$OPTARG ;;
    i) processors="-accel tcg -smp 1 -icount shift=0,sleep=off" ;;
    *) wrong_usage "unknown option" ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || wrong_usage "no COMMAND given"

# The serial lines are the kernel's console, the command's output, its exit status.
case $kernel in
  *-arm64)
    qemu=qemu-system-aarch64 package=qemu-system-arm busybox=$folder/busybox console=ttyAMA0
    # At most returns, the kernel checks a signed address. QEMU computes the architecture's
    # signature in software, which takes most of the time, and has a cheaper one. The C library
    # copies with SVE where there is any; it is emulated slowly.
    [ "$cpu" != max ] || cpu=max,pauth-impdef=on,sve=off
    # The board's own line is the console; ttyS0 is the first of those on PCI.
    machine=(-M virt -cpu "$cpu" -chardev "null,id=unused" -serial "file:$folder/console.log")
    lines=(-device "pci-serial,chardev=unused,addr=4" -device "pci-serial,chardev=output,addr=5" -device "pci-serial,chardev=status,addr=6")
    : "${processors:=-accel tcg,thread=multi -smp 2}"
    ;;
  *)
    qemu=qemu-system-x86_64 package=qemu-system-x86 busybox=busybox console=ttyS0
    # Without cx16: Debian 12's QEMU 7.2 emulates cmpxchg16b wrongly. A kernel that uses it crashes
    # in its slab allocator sooner or later (with thread=multi during boot). thread=single uses one
    # core of the host.
    machine=(-M q35 -cpu "$cpu,-cx16" -serial "file:$folder/console.log")
    lines=(-serial chardev:output -serial chardev:status)
    : "${processors:=-accel tcg,thread=single -smp 2}"
    ;;
esac

# install_missing PROGRAM PACKAGE [PROGRAM PACKAGE]...
install_missing() {
  local missing=()
  for ((; $# > 0; )); do
    command -v "$1" >/dev/null || missing+=("$2")
    shift 2
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "vm: installing ${missing[*]}" >&2
  { apt-get update -q && apt-get install -q -y --no-install-recommends "${missing[@]}"; } >&2 ||
    die "could not install ${missing[*]}"
}

# add_file FILE: copies it to /vm, and the shared libraries that it needs to the same paths as here
add_file() {
  local library
  cp -L "$1" "$root/vm/"
  while read -r library; do
    mkdir -p "$root${library%/*}"
    cp -L "$library" "$root$library"
  done < <(shared_libraries "$1")
}

# shared_libraries FILE: the paths of those that it needs
shared_libraries() {
  case $qemu in
    *x86_64) ldd "$1" 2>/dev/null | sed -nE 's#^[^/]*(/[^ ]+) \(0x.*#\1#p' ;;
    *) arm64_libraries "$1" ;;
  esac
}

# The same where no loader here reads the file. Libraries need others in turn.
arm64_libraries() {
  local name library
  readelf -ld "$1" 2>/dev/null | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p; s/.*interpreter: (.*)\]/\1/p' | while read -r name; do
    case $name in
      /*) library=$name ;;
      *) library=/lib/aarch64-linux-gnu/$name && arm64_libraries "$library" ;;
    esac
    echo "$library"
  done | sort -u
}

# add_module MODULE: adds the module and its dependencies, decompressed, in loading order
add_module() {
  local list file
  list=$(modprobe --show-depends -d "$folder" -S "$(cat "$folder/release")" "$1") ||
    die "no module $1 in kernel $kernel"
  while read -r file; do
    case $file in
      *.xz) xz -dc "$file" ;;
      *) cat "$file" ;;
    esac >"$root/modules/$(basename "$file" .xz)"
    basename "$file" .xz >>"$root/modules/order"
  done < <(sed -n 's/^insmod \([^ ]*\).*/\1/p' <<<"$list")
}

build_initramfs() {
  local item
  mkdir -p "$root"/{bin,dev,proc,sys,run,tmp,root,etc,modules,vm}
  cp "$(command -v "$busybox")" "$root/bin/busybox"
  ln -s busybox "$root/bin/sh"
  install -m 755 "$here/init" "$root/init"
  for item in "${files[@]}"; do add_file "$item"; done
  for item in "${modules[@]}"; do add_module "$item"; done
  printf '%s ' "${@@Q}" >"$root/command"
  (cd "$root" && find . -print0 | cpio --null --create --format=newc --quiet) >"$work/initramfs"
}

install_missing "$qemu" "$package" busybox busybox-static cpio cpio xz xz-utils modprobe kmod flock util-linux
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
[ "$folder" = "$kernel" ] || "$here/fetch-kernel.sh" "$kernel" "$folder" >&2 || die "no kernel $kernel"

work=$(mktemp -d "$cache/run.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
build_initramfs "$@"

ended=0
# shellcheck disable=SC2086
timeout "$seconds" nice -n 10 "$qemu" \
  -nodefaults -no-user-config -display none -no-reboot "${machine[@]}" $processors -m "$memory" \
  -kernel "$image" -initrd "$work/initramfs" \
  -append "console=$console panic=-1 $append" \
  -chardev stdio,id=output,signal=off -chardev "file,id=status,path=$work/status" \
  "${lines[@]}" </dev/null 9>&- || ended=$?

[ "$ended" -ne 124 ] || { echo "vm: the command did not end within $seconds s" >&2; exit 124; }
status=$(tr -cd 0-9 <"$work/status" || true)
if [ "$ended" -ne 0 ] || [ -z "$status" ]; then
  tail -n 30 "$folder/console.log" >&2 || true
  die "the machine ended without a result (qemu: $ended)"
fi
exit "$status"
