#!/usr/bin/env bash
# test-deb-inside.sh: the tests that systemd runs as root in the container of test-deb.sh, with
# /shared/{first,next}.deb
set -euo pipefail

die() { echo "FAILED: $*" >&2; exit 1; }
done_with() { echo "ok: $*"; }

# until_true SECONDS COMMAND...
until_true() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || die "timed out waiting for: $*"
    sleep 0.2
  done
}

# Only writable files: the others are counters.
settings() { find /sys/kernel/mm/transparent_hugepage -type f -perm -200 ! -path '*/stats/*' -exec grep -H . {} + | sort; }
apt() { apt-get -q -y -o DPkg::Options::=--force-confold "$@" </dev/null >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; die "apt-get $*"; }; }
active() { systemctl is-active --quiet hawkeye; }
inactive() { ! active; }
main_pid() { systemctl show --value --property MainPID hawkeye; }
promoted() { hawkeye status --json | grep -Eq '"promoted": ?[1-9]'; }
same() { [ "$(settings)" = "$found" ]; }
as_found() { same || { diff <(echo "$found") <(settings); die "settings are not as they were found"; }; }

export DEBIAN_FRONTEND=noninteractive
found=$(settings)
apt update

apt install /shared/first.deb
[ "$(systemctl is-enabled hawkeye || true)" = disabled ] || die "the installation enabled the unit"
inactive || die "the installation started the unit"
hawkeye daemon --check | grep -q /etc/hawkeye/hawkeye.toml
dpkg-query --show --showformat '${Conffiles}' hawkeye | grep -q /etc/hawkeye/hawkeye.toml
for file in man/man1/hawkeye.1.gz man/man1/hawkeye-run.1.gz bash-completion/completions/hawkeye zsh/vendor-completions/_hawkeye \
  fish/vendor_completions.d/hawkeye.fish hawkeye/prometheus/hawkeye-alerts.yml hawkeye/grafana/hawkeye-dashboard.json doc/hawkeye/copyright; do
  [ -s "/usr/share/$file" ] || die "/usr/share/$file is missing"
done
for path in $(dpkg-query --listfiles hawkeye); do
  case $path in *hawkeye-lab*) die "$path belongs in the package hawkeye-lab" ;; esac
done
as_found
done_with "installed; off until enabled"

# A program of another user, with all of its memory in use.
{ echo go; sleep 120; } | setpriv --reuid nobody --regid nogroup --clear-groups -- \
  hawkeye demo-program reader --mib 64 --hot-mib 16 --hot-percent 90 >/dev/null &
cat >/etc/hawkeye/hawkeye.toml <<'C'
# of this test
policy = "hawkeye-g"
sampling.period = "1 s"
sampling.window = "50 ms"
limits.cpu_percent = 50
selection.min_resident = "16 MiB"
selection.look_every = "1 s"
metrics.listen = "127.0.0.1:9754"
C
systemctl enable --now --quiet hawkeye
active || die "the unit does not run"
until_true 30 promoted
[ "$(settings)" != "$found" ] || die "the daemon has changed no setting"
status=/proc/$(main_pid)/status
grep -Eq '^NoNewPrivs:\s1$' "$status" || die "the daemon may gain privileges"
grep -Eq '^Seccomp:\s2$' "$status" || die "the daemon's system calls are not filtered"
echo "    confined: $(grep -E '^(CapBnd|Seccomp|NoNewPrivs):' "$status" | tr -s '\t\n' ' ')"
hawkeye status | sed 's/^/    /'
exec 3<>/dev/tcp/127.0.0.1/9754
printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n' >&3
sed '1,/^\r$/d' <&3 >/shared/metrics.txt
grep -q '^hawkeye_promoted_regions_total' /shared/metrics.txt
done_with "enabled: the confined daemon promotes another user's memory"

before=$(main_pid)
systemctl reload hawkeye || die "a correct configuration is not reloaded"
cp /etc/hawkeye/hawkeye.toml /tmp/correct.toml
echo nonsense >>/etc/hawkeye/hawkeye.toml
! systemctl reload hawkeye 2>/dev/null || die "the reload of a configuration with a mistake succeeded"
cp /tmp/correct.toml /etc/hawkeye/hawkeye.toml
active || die "a refused reload ended the daemon"
[ "$(main_pid)" = "$before" ] || die "a refused reload restarted the daemon"
done_with "reloaded; a configuration with a mistake is refused"

before=$(main_pid)
apt install /shared/next.deb
active || die "the unit does not run after the upgrade"
[ "$(main_pid)" != "$before" ] || die "the old daemon still runs"
grep -q 'of this test' /etc/hawkeye/hawkeye.toml || die "the configuration was replaced"
until_true 30 promoted
done_with "upgraded: the running daemon was restarted, the configuration kept"

systemctl stop hawkeye
as_found
apt install --reinstall /shared/next.deb
inactive || die "the second installation started the stopped daemon"
done_with "stopped: settings are as they were found; installed again: it stays stopped"

systemctl start hawkeye
kill -KILL "$(main_pid)"
# Before systemd starts it again, 5 s later.
until_true 4 same
until_true 20 active
done_with "killed: ExecStopPost restores settings, and systemd starts it again"

apt remove hawkeye
inactive || die "the daemon still runs"
as_found
[ ! -e /usr/bin/hawkeye ] || die "/usr/bin/hawkeye still exists"
[ -e /etc/hawkeye/hawkeye.toml ] || die "the configuration is gone"
done_with "removed: stopped, settings as they were found, the configuration is still there"

apt install /shared/first.deb
systemctl stop hawkeye
hawkeye run -- sleep 60 </dev/null >/dev/null 2>&1 &
changed() { [ "$(settings)" != "$found" ]; }
until_true 20 changed
kill -KILL $!
mkdir -p /var/lib/hawkeye/learned /var/log/hawkeye
apt purge hawkeye
as_found
for gone in /etc/hawkeye /var/lib/hawkeye /var/log/hawkeye /run/hawkeye /usr/share/hawkeye /etc/systemd/system/multi-user.target.wants/hawkeye.service; do
  [ ! -e "$gone" ] || die "$gone still exists"
done
done_with "purged: settings that a killed 'hawkeye run' left changed are restored, no file is left"

apt install /shared/first.deb
hawkeye run -- sleep 60 </dev/null >/dev/null 2>&1 &
manager=$!
until_true 20 changed
apt purge hawkeye
grep -q 'a manager still runs' /tmp/apt.log || die "purging does not say that a manager still runs"
[ -e /run/hawkeye/manager.lock ] || die "purging removed the lock of a running manager"
kill "$manager"
wait "$manager" || true
as_found
done_with "purged beside a 'hawkeye run': it keeps its lock, and restores settings when it ends"
