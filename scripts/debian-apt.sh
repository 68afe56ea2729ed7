# Sourced. Runs apt with separate sources and lists, so that the system's stay unchanged.
# shellcheck shell=bash disable=SC2034

# debian_apt WORK SUITE [ARCHITECTURE]: fetches the lists of that suite of Debian to WORK, and sets
# `apt_options` for apt-get and apt-cache
debian_apt() {
  chmod 755 "$1"
  mkdir -p "$1"/{lists,cache}
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $2 main" >"$1/sources.list"
  apt_options=(
    -q
    -o "Dir::Etc::SourceList=$1/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
    -o "Dir::State::Lists=$1/lists" -o "Dir::Cache=$1/cache"
    -o Acquire::Languages=none -o APT::Update::Post-Invoke-Success::=
    -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any
  )
  [ $# -lt 3 ] || apt_options+=(-o "APT::Architecture=$3" -o "APT::Architectures::=$3")
  apt-get "${apt_options[@]}" update
}
