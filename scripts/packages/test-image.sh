#!/usr/bin/env bash
# test-image.sh: acts as the container engine that packaging/container/Containerfile and
# packaging/kubernetes/hawkeye.yaml need, where there is none. It runs as root:
#   - it builds the image's last stage on Debian's base, read-only
#   - it runs the daemon there with the capabilities of the manifest, without new privileges, and in
#     a cgroup and a cgroup namespace of its own, with the host's cgroups mounted read-only
#   - in /sys the daemon may write only to the mounted settings
# The daemon must promote in a program of another user on this machine, and see the memory limit of
# its cgroup. This does not test the build in Debian 13, nor the runtime's seccomp profile.
set -euo pipefail
cd "$(dirname "$0")/../.."

die() { echo "test-image: $*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || die "root is needed"
base=target/packages/bookworm
hawkeye=${CARGO_TARGET_DIR:-target}/release/hawkeye
[ -d "$base" ] || die "$base is missing; run test-deb.sh, which creates it"

# Only writable files: the others are counters.
settings() { find /sys/kernel/mm/transparent_hugepage -type f -perm -200 ! -path '*/stats/*' -exec grep -H . {} + | sort; }

# The hierarchy of cgroups that limits memory, and the file of the limit.
if grep -qsw memory /sys/fs/cgroup/cgroup.controllers; then
  hierarchy=/sys/fs/cgroup limit=memory.max
  echo +memory >/sys/fs/cgroup/cgroup.subtree_control || die "memory of cgroups cannot be limited"
else
  hierarchy=/sys/fs/cgroup/memory limit=memory.limit_in_bytes
fi

work=$(mktemp -d)
found=$(settings)
program='' daemon=''
cleanup() {
  if [ -n "$daemon" ]; then
    kill "$daemon" 2>/dev/null || true
    (sleep 10; kill -KILL "$daemon") >/dev/null 2>&1 &
    local late=$!
    wait "$daemon" || true
    kill "$late" || true
    # Where it did not do that itself.
    HAWKEYE_STATE_DIR=$work/state "$hawkeye" restore >/dev/null || true
  fi
  if [ -n "$program" ]; then
    kill "$program" 2>/dev/null || true
    wait "$program" || true
  fi
  rmdir "$hierarchy"/hawkeye-image-{daemon,program} 2>/dev/null || true
  mountpoint -q "$work/root" && umount "$work/root"
  umount "$work/layer" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

# The capabilities of the manifest, as setpriv writes them.
mapfile -t capabilities < <(sed -nE 's/^ *add: \[(.*)\]$/\1/p' packaging/kubernetes/hawkeye.yaml | tr -d ' ' | tr ',' '\n' | tr '[:upper:]' '[:lower:]')
[ ${#capabilities[@]} -gt 0 ] || die "the manifest adds no capabilities"
bounding=-all$(printf ',+%s' "${capabilities[@]}")

mkdir "$work/layer" "$work/root"
mount -t tmpfs tmpfs "$work/layer"
mkdir "$work/layer/upper" "$work/layer/work"
mount -t overlay overlay -o "lowerdir=$base,upperdir=$work/layer/upper,workdir=$work/layer/work" "$work/root"
cp /etc/resolv.conf "$work/root/etc/resolv.conf"
chroot "$work/root" sh -c 'apt-get -q update && apt-get -q install -y --no-install-recommends libelf1 zlib1g && rm -rf /var/lib/apt/lists/*' \
  </dev/null >"$work/apt.log" 2>&1 || { cat "$work/apt.log"; die "could not install the image's packages"; }
install -Dm755 "$hawkeye" "$work/root/usr/bin/hawkeye"
mkdir -p "$work/root/etc/hawkeye" "$work/root/run/hawkeye" "$work/state"
cat >"$work/root/etc/hawkeye/hawkeye.toml" <<'C'
policy = "hawkeye-g"
sampling.period = "1 s"
sampling.window = "50 ms"
limits.cpu_percent = 50
selection.min_resident = "16 MiB"
selection.look_every = "1 s"
selection.unmatched = "exclude"
[[rule]]
name = "the test's"
match.command = "image-minded"
action = "include"
C

mkdir "$hierarchy"/hawkeye-image-{daemon,program}
echo $((1 << 30)) >"$hierarchy/hawkeye-image-program/$limit" || die "the program's cgroup cannot be limited"
# in_cgroup NAME COMMAND...: becomes that command, in that cgroup
in_cgroup() {
  echo "$BASHPID" >"$hierarchy/hawkeye-image-$1/cgroup.procs"
  shift
  exec "$@"
}

# A program of another user, outside the container.
cp "$hawkeye" "$work/image-minded"
chmod 755 "$work"
{ echo go; sleep 60; } | in_cgroup program setpriv --reuid nobody --regid nogroup --clear-groups -- \
  "$work/image-minded" demo-program reader --mib 64 --hot-mib 16 --hot-percent 90 >/dev/null &
program=$!

# Runs in the namespaces: makes the mounts, and replaces this shell by the daemon.
contained() {
  mount --make-rprivate /
  mount -o remount,bind,ro "$work/root"
  mount --rbind /proc "$work/root/proc"
  mount --bind /sys "$work/root/sys"
  mount -o remount,bind,ro "$work/root/sys"
  mount --bind /sys/kernel/mm/transparent_hugepage "$work/root/sys/kernel/mm/transparent_hugepage"
  mount --rbind /sys/fs/cgroup "$work/root/sys/fs/cgroup"
  mount -o remount,bind,ro "$work/root/sys/fs/cgroup"
  mount --bind "$work/state" "$work/root/run/hawkeye"
  mount --bind /dev "$work/root/dev"
  exec chroot "$work/root" setpriv --no-new-privs --bounding-set "$bounding" --inh-caps "$bounding" hawkeye "$@"
}
export -f contained
export work bounding
in_cgroup daemon unshare --mount --cgroup bash -c 'contained daemon' </dev/null >"$work/log" 2>&1 &
daemon=$!

ask() { HAWKEYE_STATE_DIR=$work/state "$hawkeye" status "$@" 2>/dev/null; }
deadline=$((SECONDS + 30))
until ask --json | grep -Eq '"promoted": ?[1-9]'; do
  if [ "$SECONDS" -ge "$deadline" ] || ! kill -0 "$daemon" 2>/dev/null; then
    cat "$work/log"
    die "the daemon ended early, or promoted nothing within 30 s"
  fi
  sleep 0.2
done
grep -E '^(CapBnd|CapEff|NoNewPrivs):' "/proc/$daemon/status" | tr -s '\t\n' ' '
echo
ask | tee "$work/status" | sed 's/^/    /'
grep -q hawkeye-image-program "$work/status" || die "the daemon does not see the memory limit of the program's cgroup"
kill "$daemon"
status=0
wait "$daemon" || status=$?
daemon=
[ "$status" -eq 0 ] || die "the daemon exited with an error: $(cat "$work/log")"
[ "$(settings)" = "$found" ] || die "settings are not as they were found"
echo "ok: with only ${capabilities[*]}, on a read-only root, the daemon promotes another user's memory and sees its cgroup's limit"
