#!/usr/bin/env bash
# install-deps.sh [PURPOSE]: installs the missing Debian packages for a build, and for PURPOSE:
#   test       tests on this kernel; they go on without programs that only some tests use
#   selftests  the kernel's selftests
#   kernels    tests on other kernels
#   kernel     builds of the kernels of kernel/
#   lint       lints
#   cross      checks for arm64
#   arm64      builds for arm64 on another architecture
#   deb        the package
#   packages   checks of everything that is shipped
# Does nothing where nothing is missing, on any distribution.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "install-deps: $*" >&2; exit 1; }

# installed PACKAGE
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()

# need_command COMMAND PACKAGE
need_command() { command -v "$1" >/dev/null || missing+=("$2"); }

# need_header HEADER PACKAGE
need_header() {
  cc -E -include "$1" -x c /dev/null >/dev/null 2>&1 || installed "$2" || missing+=("$2")
}

# need_cargo COMMAND PACKAGE: a part of cargo; PACKAGE is only for Debian's own cargo
need_cargo() {
  if cargo "$1" --version >/dev/null 2>&1; then return; fi
  case $(dpkg-query -S "$(command -v cargo)" 2>/dev/null) in
    cargo:*) missing+=("$2") ;;
    *) die "this cargo has no '$1'; install it with rustup (https://rustup.rs): 'rustup component add rustfmt clippy'" ;;
  esac
}

root=()

# become_root PACKAGE...: fails where these can't be installed
become_root() {
  command -v apt-get >/dev/null ||
    die "apt-get is missing; install these packages (Debian's names) by other means: $*"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "root or sudo is needed to install missing packages; as root, run 'apt-get install $*'"
    root=(sudo)
  fi
}

# install PACKAGE...
install() {
  become_root "$@"
  echo "install-deps: installing $*" >&2
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  # Where one of several sources cannot be reached, the others may have the packages.
  "${apt[@]}" update </dev/null >&2 || true
  "${apt[@]}" install -y --no-install-recommends "$@" </dev/null >&2 ||
    die "apt-get could not install $*; its messages are above"
}

# install_stopped PACKAGE...: as install, but starts none of their services: Debian asks policy-rc.d
# before it starts one
install_stopped() {
  local ask=/usr/sbin/policy-rc.d
  become_root "$@"
  if ! [ -e $ask ]; then
    # shellcheck disable=SC2064
    trap "${root[*]} rm -f $ask" EXIT
    printf '#!/bin/sh\n# While scripts/install-deps.sh runs: start nothing.\nexit 101\n' | "${root[@]}" tee $ask >/dev/null
    "${root[@]}" chmod 755 $ask
  fi
  install "$@"
}

wanted=$(sed -nE 's/^rust-version = "(.*)"/\1/p' Cargo.toml)
where="install it with 'apt-get install cargo-web' on Debian 12, 'apt-get install cargo' on Debian 13, or rustup (https://rustup.rs) anywhere"
command -v cargo >/dev/null || die "cargo $wanted or newer is needed, but cargo is missing; $where"
found=$(cargo --version | cut -d ' ' -f 2)
[ "$(printf '%s\n' "$wanted" "${found%%-*}" | sort -V | head -n 1)" = "$wanted" ] ||
  die "cargo $wanted or newer is needed, but this is cargo $found; $where"

need_command clang clang
need_command cc gcc
need_command make make
need_command pkg-config pkg-config
need_header stdio.h libc6-dev
need_header linux/bpf.h linux-libc-dev
need_header gelf.h libelf-dev
need_header zlib.h zlib1g-dev
if [ "${1-}" = lint ]; then
  need_command shellcheck shellcheck
  need_cargo fmt rustfmt
  need_cargo clippy rust-clippy
  # .ci/run checks that the kernel's patches apply.
  need_command patch patch
  need_command xz xz-utils
fi
case ${1-} in deb | packages)
  need_command dpkg-buildpackage dpkg-dev
  need_command dh debhelper
  ;;
esac
case ${1-} in kernels | lint | deb | packages) need_command python3 python3 ;; esac
if [ "${1-}" = packages ]; then
  need_command lintian lintian
  need_command mandoc mandoc
  need_command man man-db
  need_command systemd-analyze systemd
  need_command systemd-nspawn systemd-container
  need_command debootstrap debootstrap
  need_command script bsdutils
  python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
fi
if [ "${1-}" = selftests ]; then
  need_command xz xz-utils
  need_command python3 python3
  need_header sys/capability.h libcap-dev
  need_header numa.h libnuma-dev
  need_header liburing.h liburing-dev
fi
if [ "${1-}" = kernel ]; then
  need_command flex flex
  need_command bison bison
  need_command bc bc
  need_command patch patch
  need_command xz xz-utils
  need_command cpio cpio
  need_command python3 python3
  need_command perl perl
  need_command qemu-system-x86_64 qemu-system-x86
  need_command busybox busybox-static
  need_command depmod kmod
  need_header openssl/opensslv.h libssl-dev
fi
case ${1-} in cross | arm64)
  # rustup would need its own servers. Debian 12 has a new Rust only as rustc-web.
  if ! scripts/cross.sh find >/dev/null 2>&1; then
    web=$(apt-cache --names-only search '^rustc-web$')
    missing+=("rustc${web:+-web}" "libstd-rust${web:+-web}-dev:arm64")
  fi
  if [ "$1" = arm64 ]; then
    need_command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    installed libc6-dev-arm64-cross || missing+=(libc6-dev-arm64-cross)
    for package in libelf-dev:arm64 zlib1g-dev:arm64; do installed $package || missing+=("$package"); done
  fi
  if [ ${#missing[@]} -gt 0 ]; then
    become_root "${missing[@]}"
    "${root[@]}" dpkg --add-architecture arm64
  fi
  ;;
esac
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"
if [ "${1-}" = test ]; then
  missing=()
  # Tests open the page that 'hawkeye report' writes in it.
  need_command chromium chromium
  # Programs that experiments measure.
  need_command redis-server redis-server
  need_command memcached memcached
  need_command stress-ng stress-ng
  # Pods of Kubernetes, without a cluster.
  need_command containerd containerd
  need_command runc runc
  need_command javac default-jdk-headless
  # Virtual machines that share their memory with another process.
  case $(uname -m) in
    x86_64) need_command qemu-system-x86_64 qemu-system-x86 ;;
    aarch64) need_command qemu-system-aarch64 qemu-system-arm ;;
  esac
  installed postgresql || missing+=(postgresql)
  installed libsparsehash-dev || missing+=(libsparsehash-dev)
  need_command g++ g++
  need_command db_bench rocksdb-tools
  need_command mariadbd mariadb-server
  need_command sysbench sysbench
  installed libjemalloc2 || missing+=(libjemalloc2)
  # Not every release has it, and one unknown name would keep apt-get from installing the others.
  installed libmimalloc2.0 || ! apt-cache show libmimalloc2.0 >/dev/null 2>&1 || missing+=(libmimalloc2.0)
  [ -x /usr/local/go/bin/go ] || need_command go golang-go
  /usr/bin/python3 -c 'import scipy' 2>/dev/null || missing+=(python3-scipy)
  if [ ${#missing[@]} -gt 0 ] && ! (install_stopped "${missing[@]}"); then
    echo "install-deps: continuing without ${missing[*]}; tests that use them are skipped" >&2
  fi
fi
