#!/bin/busybox sh
# Functions for the plans of this folder. The plans run on busybox in the virtual machine, and print
# lines for kernel/test/report.py:
#   @check NAME ok|FAILED|skipped|noted WHY...   (noted: found on a kernel without the series)
#   @figure NAME VALUE
echo "@kernel $(uname -r)"
echo "@arguments $(cat /proc/cmdline)"
prezero=/sys/kernel/mm/prezero
thp=/sys/kernel/mm/transparent_hugepage

say() { echo "$(cut -d ' ' -f 1 /proc/uptime) $*"; }

# check NAME WHY...: uses the last command's status, so WHY must not have a command substitution
check() { if [ $? -eq 0 ]; then passed "$@"; else failed "$@"; fi; }
passed() { echo "@check $1 ok $(shift; echo "$*")"; }
failed() { echo "@check $1 FAILED $(shift; echo "$*")"; }
skipped() { echo "@check $1 skipped $(shift; echo "$*")"; }

# figures PREFIX: prints figures from the lines `NAME VALUE` on standard input
figures() {
  while read -r name value rest; do
    case $value in '' | *[!0-9.-]*) echo "$name $value $rest" ;; *) echo "@figure $1.$name $value" ;; esac
  done
}

# counter NAME: base pages, summed over all zones
counter() {
  sum=0
  for file in "$prezero"/node*/"$1"; do sum=$((sum + $(cat "$file"))); done
  echo $sum
}

# meminfo NAME: KiB
meminfo() { awk -v name="$1:" '$1 == name { print $2 }' /proc/meminfo; }

# on_lists: base pages on per-CPU lists
on_lists() { awk '$1 == "count:" { n += $2 } END { print n + 0 }' /proc/zoneinfo; }

# symbol NAME: its address, or 0 where there is none
symbol() {
  address=$(awk -v name="$1" '$3 == name { print "0x" $1; exit }' /proc/kallsyms)
  echo "${address:-0}"
}

set_parameter() { echo "$2" >/sys/module/prezero/parameters/"$1"; }

load_device() { insmod prezero.ko "$@"; }
unload_device() { if [ -d /sys/module/prezero ]; then rmmod prezero; fi; }

# settle SECONDS: waits until nearly all free memory is zeroed, or nothing was zeroed for 6 s, at
# most SECONDS
settle() {
  last=-1 calm=0 left=$1
  while [ "$left" -gt 0 ] && [ $calm -lt 3 ]; do
    sleep 2
    left=$((left - 2)) new=$(counter zeroed)
    if [ "$new" = "$last" ]; then calm=$((calm + 1)); else calm=0; fi
    last=$new
    [ $(($(counter free) * 400)) -lt $(($(meminfo MemFree) * 98)) ] || break
  done
}

# await_threads: waits until prezero_stress has finished, at most a minute
await_threads() {
  left=60
  while [ $left -gt 0 ] && [ "$(cat /sys/module/prezero_stress/parameters/running)" != 0 ]; do
    sleep 1
    left=$((left - 1))
  done
}

# prepare: sets up file systems, and huge pages of all kinds
prepare() {
  mkdir -p /tmp/base /tmp/huge
  mount -t tmpfs -o size=50% base /tmp/base
  mount -t tmpfs -o size=128m,huge=always huge /tmp/huge
  for directory in "$thp"/hugepages-*; do
    [ ! -e "$directory/enabled" ] || echo madvise >"$directory/enabled"
    [ ! -e "$directory/shmem_enabled" ] || echo advise >"$directory/shmem_enabled"
  done
  echo madvise >$thp/enabled
  echo advise >$thp/shmem_enabled || true
  # khugepaged must not act during measurements; the tests call for its work themselves.
  echo 0 >$thp/khugepaged/defrag
}
