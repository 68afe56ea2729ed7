#!/usr/bin/env python3
"""Runs the kernel's mm selftests without a manager and under HawkEye, and compares the results line by line.

Exits with 0 when no result differs, with 1 when one does, with 2 when the comparison could not be
made. Needs root. After each test it restores the kernel's settings.
"""

import argparse
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Tests that assert which pages are huge: a manager that promotes or splits pages changes their
# results. They run while the manager is paused. Each has the reason.
STATE = "asserts which pages are huge, and that only its own calls change that"
KHUGEPAGED = "asserts what khugepaged alone collapses"

# (program and arguments, huge pages of hugetlbfs that it needs, reason to pause the manager)
TESTS = [
    ("cow", 4, None),
    ("gup_longterm", 4, None),
    ("uffd-unit-tests", 8, None),
    ("uffd-stress anon 64 16", 0, None),
    ("uffd-stress shmem 20 16", 0, None),
    ("uffd-stress shmem-private 20 16", 0, None),
    ("uffd-stress hugetlb 32 16", 64, None),
    ("uffd-stress hugetlb-private 32 16", 64, None),
    ("mremap_test", 0, None),
    ("mremap_dontunmap", 0, None),
    ("ksm_tests -M -p 10", 0, None),
    ("ksm_tests -M -p 4096 -l 20", 0, None),
    ("ksm_tests -U", 0, None),
    ("ksm_tests -Z -p 10 -z 0", 0, None),
    ("ksm_tests -Z -p 10 -z 1", 0, None),
    ("ksm_functional_tests", 0, None),
    ("soft-dirty", 0, None),
    ("pagemap_ioctl", 8, None),
    ("guard-regions", 0, None),
    ("guard-pages", 0, None),
    ("madv_populate", 0, None),
    ("map_populate", 0, None),
    ("map_fixed_noreplace", 0, None),
    ("mlock-random-test", 0, None),
    ("mlock2-tests", 0, None),
    ("mrelease_test", 0, None),
    ("mkdirty", 0, None),
    ("mdwe_test", 0, None),
    ("mseal_test", 0, None),
    ("seal_elf", 0, None),
    ("memfd_secret", 0, None),
    ("droppable", 0, None),
    ("migration", 0, None),
    ("protection_keys_64", 4, None),
    ("pkey_sighandler_tests_64", 0, None),
    ("hugetlb-madvise", 64, None),
    ("hugetlb_madv_vs_map", 1, None),
    ("hugetlb_dio", 8, None),
    ("hugepage-mremap", 64, None),
    ("transhuge-stress -d 5", 0, None),
    ("split_huge_page_test", 0, STATE),
    ("khugepaged all:anon", 0, KHUGEPAGED),
    ("khugepaged -s 2 all:anon", 0, KHUGEPAGED),
]

# Settings that the tests change or may change.
SETTINGS = [
    "/sys/kernel/mm/transparent_hugepage/*",
    "/sys/kernel/mm/transparent_hugepage/khugepaged/*",
    "/sys/kernel/mm/transparent_hugepage/hugepages-*/*enabled",
    "/sys/kernel/mm/ksm/*",
    "/sys/kernel/mm/hugepages/*/nr_hugepages",
    "/sys/kernel/mm/hugepages/*/nr_overcommit_hugepages",
    "/sys/block/*/queue/read_ahead_kb",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/compact_unevictable_allowed",
    "/proc/sys/vm/enable_soft_offline",
    "/proc/sys/kernel/shmmax",
    "/proc/sys/kernel/shmall",
]
DEBUGFS = "/sys/kernel/debug"
HUGE_PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = "timed out"
# A test runs under the manager repeatedly until this many seconds have passed.
ENOUGH_SECONDS = 2
# Exit status of a selftest that can't run here (KSFT_SKIP).
SKIPPED = 4


def die(message):
    print(f"selftests: {message}", file=sys.stderr)
    sys.exit(2)


class Settings:
    """Saves the kernel's settings, to restore them."""

    def __init__(self):
        self.found = {}
        for pattern in SETTINGS:
            for path in glob.glob(pattern):
                if os.path.isfile(path) and os.access(path, os.W_OK) and os.stat(path).st_mode & 0o200:
                    self.found[path] = self.read(path)

    @staticmethod
    def read(path):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            return None
        chosen = re.search(r"\[([^\]]+)\]", text)
        return chosen.group(1) if chosen else text

    def restore(self):
        for path, value in self.found.items():
            if value is None or self.read(path) == value:
                continue
            if path.endswith("/ksm/run"):
                # First unmerges pages that a test left merged.
                self.write(path, "2")
            self.write(path, value)

    @staticmethod
    def write(path, value):
        try:
            Path(path).write_text(value)
        except OSError as error:
            print(f"selftests: {path} could not be set to {value}: {error}", file=sys.stderr)


def status_name(code):
    if code == 0:
        return "pass"
    if code == SKIPPED:
        return "skip"
    if code == TIMEOUT:
        return TIMEOUT
    if code < 0 or code > 128:
        return f"signal {-code if code < 0 else code - 128}"
    return f"fail {code}"


TAP = re.compile(r"^(?:#\s*)?(ok|not ok)\s+\d+\s*(?:-\s*)?(.*)$")
RUN = re.compile(r"^(?:#\s*\[RUN\]|Run test:)\s*(.*)$")
UFFD = re.compile(r"^Testing (.+?)\.\.\. (done|skipped|failed)")
STEP = re.compile(r"^(\S.*?)\.{3,}\s*(OK|Fail|Skip|Timeout)$")
BRACKETS = re.compile(r"^(.*\S)\s+\[(PASS|OK|FAIL|SKIP)\]\s*$|^\[(PASS|OK|FAIL|SKIP)\]\s*(.*)$")
WORDS = {"ok": "pass", "not ok": "fail", "done": "pass", "skipped": "skip", "failed": "fail"}
WORDS |= {"Fail": "fail", "Skip": "skip", "Timeout": "fail"}
WORDS |= {"PASS": "pass", "OK": "pass", "FAIL": "fail", "SKIP": "skip"}


def results(output, code, labels):
    """The result of each line that has one, and the exit status, by the subject of the test.

    Keys hold no numbers: addresses, durations and counts differ from run to run. `labels` gets the
    first line of each key."""
    found = {}

    def add(label, result):
        label = " ".join(label.split()) or "(no name)"
        name = re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "N", label)
        key, n = name, 1
        while key in found:
            n += 1
            key = f"{name} ({n})"
        labels.setdefault(key, label)
        found[key] = result

    run = ""
    for line in output.splitlines():
        # Without colours.
        line = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
        if match := RUN.match(line):
            run = match.group(1)
        elif match := TAP.match(line):
            word, rest = match.groups()
            label, _, directive = rest.partition("#")
            # A result may have no name of its own; then the line before it has the name.
            label, run = f"{run} {label}".strip(), ""
            if directive.strip().upper().startswith("SKIP"):
                # The reason of a skipped test may follow its name.
                add(label or directive, "skip")
            elif directive.strip().upper().startswith("XFAIL"):
                add(label or directive, "expected fail")
            else:
                add(label or directive, WORDS[word])
        elif match := UFFD.match(line):
            add(match.group(1), WORDS[match.group(2)])
        elif match := STEP.match(line):
            # Several steps may follow one name.
            add(f"{run} {match.group(1)}".strip(), WORDS[match.group(2)])
        elif match := BRACKETS.match(line):
            add(match.group(1) or match.group(4) or "", WORDS[match.group(2) or match.group(3)])
    labels["exit status"] = "exit status"
    found["exit status"] = status_name(code)
    return found


class Runner:
    """Runs tests one after the other, each in a scratch folder."""

    def __init__(self, programs, hawkeye, policy, seconds, scratch):
        self.programs, self.hawkeye, self.policy, self.seconds = programs, hawkeye, policy, seconds
        self.scratch = scratch
        self.settings = Settings()
        self.environment = os.environ | {"HAWKEYE_STATE_DIR": str(scratch / "state")}
        self.environment |= {"TMPDIR": str(scratch / "tmp"), "LC_ALL": "C"}
        self.logs = scratch.parent / "logs"
        for folder in (scratch / "state", scratch / "tmp", self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.labels = {}
        self.managed = {"samples": 0, "promoted": 0, "split": 0}
        # Number of runs of the last test under the manager.
        self.runs = 1

    def run(self, test, huge_pages, side, command=()):
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        words = test.split()
        shutil.copy(self.programs / words[0], folder)
        if huge_pages:
            have = int(Settings.read(HUGE_PAGES) or 0)
            Settings.write(HUGE_PAGES, str(max(have, huge_pages)))
        call = [f"./{words[0]}", *words[1:]]
        if command:
            # The manager's messages must not mix with the test's lines; the test's own errors
            # belong there.
            call = [*command, "sh", "-c", 'exec "$0" "$@" 2>&1', *call]
        errors = (self.scratch / "manager.log").open("w") if command else subprocess.STDOUT
        process = subprocess.Popen(
            call,
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        late = False
        try:
            output, _ = process.communicate(timeout=self.seconds)
        except subprocess.TimeoutExpired:
            late = True
            # A manager restores settings before it ends.
            process.terminate()
            try:
                output, _ = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
        finally:
            if command:
                errors.close()
            # Ends processes that the test left running.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.settings.restore()
        text = output.decode(errors="replace")
        name = re.sub(r"[^A-Za-z0-9]+", "-", test)
        (self.logs / f"{name}.{side}").write_text(text)
        shutil.rmtree(folder, ignore_errors=True)
        return results(text, TIMEOUT if late else process.returncode, self.labels)

    def run_managed(self, test, huge_pages, unmanaged):
        """Runs a test under the manager, repeatedly where it ends before the manager can act.

        Returns the first results that differ from those without a manager, or the last."""
        did = {"samples": 0, "promoted": 0, "split": 0}
        begun = time.monotonic()
        self.runs = 0
        while True:
            self.runs += 1
            found, did_now = self.run_managed_once(test, huge_pages)
            for key, value in did_now.items():
                did[key] += value
                self.managed[key] += value
            if found != unmanaged or time.monotonic() - begun > ENOUGH_SECONDS:
                return found, did

    def run_managed_once(self, test, huge_pages):
        summary = self.scratch / "summary.json"
        summary.unlink(missing_ok=True)
        options = f"run --policy {self.policy} --period 0.02 --window 0.002 --average 1 --cpu 100 --json {summary} --"
        found = self.run(test, huge_pages, "managed", [self.hawkeye, *options.split()])
        try:
            done = json.loads(summary.read_text())
        except (OSError, ValueError):
            die(f"{test}: the manager wrote no valid summary; see {self.logs}")
        return found, {key: int(done.get(key) or 0) for key in self.managed}

    def run_paused(self, test, huge_pages, _unmanaged):
        with Daemon(self.hawkeye, self.environment, self.scratch, self.policy):
            return self.run(test, huge_pages, "paused"), None


class VmRunner:
    """Results of tests on another kernel, all from one virtual machine (scripts/vm/run.sh)."""

    SIDES = ("unmanaged", "unmanaged-again", "managed")
    # An emulated processor is many times slower.
    SECONDS = 600
    OPTIONS = "run --policy {policy} --period 0.2 --window 0.02 --average 1 --cpu 100 --json summary.json --"

    def __init__(self, kernel, programs, hawkeye, policy, tests, scratch):
        self.labels = {}
        self.managed = {"samples": 0, "promoted": 0, "split": 0}
        self.found = {}
        self.runs = 1
        script = scratch / "all.sh"
        manager = f"./{hawkeye.name} {self.OPTIONS.format(policy=policy)}"
        script.write_text(self.script(tests, manager))
        files = [script, hawkeye, *{programs / test.split()[0] for test, _ in tests}]
        call = [str(ROOT / "scripts/vm/run.sh"), kernel, "-m", "3072", "-t", "10000"]
        call += [word for file in files for word in ("-f", str(file))]
        ended = subprocess.run([*call, "--", "sh", "./all.sh"], capture_output=True, check=False)
        output = ended.stdout.decode(errors="replace").replace("\r", "")
        (scratch.parent / "logs").mkdir(exist_ok=True)
        (scratch.parent / f"logs/{kernel}").write_text(output)
        parts = re.findall(r"^@@ begin (\d+) (\S+)\n(.*?)^@@ end (\d+)\n(.*?)^@@ done$", output, re.M | re.S)
        for n, side, text, code, summary in parts:
            self.found[tests[int(n)][0], side] = (text, int(code), summary)
        if ended.returncode != 0 or len(parts) != len(tests) * len(self.SIDES):
            die(f"the machine with Linux {kernel} ended before all tests: {ended.stderr.decode(errors='replace')[-500:]}")

    def script(self, tests, manager):
        lines = ["export HAWKEYE_STATE_DIR=/tmp/state TMPDIR=/tmp; mkdir -p /tmp/state"]
        for n, (test, huge_pages) in enumerate(tests):
            for side in self.SIDES:
                command = f"./{test} 2>&1"
                if side == "managed":
                    command = f"{manager} sh -c 'exec {command}' 2>/dev/null"
                lines += [
                    "rm -f summary.json",
                    f"echo {huge_pages} >{HUGE_PAGES}",
                    f"echo; echo '@@ begin {n} {side}'",
                    f"timeout -k 5 {self.SECONDS} {command}",
                    "code=$?; echo; echo @@ end $code; cat summary.json 2>/dev/null; echo; echo @@ done",
                ]
        return "\n".join(lines)

    def run(self, test, _huge_pages, side):
        # Another run is not possible: this returns the earlier result.
        text, code, _ = self.found[test, side if side in self.SIDES else "unmanaged"]
        return results(text, TIMEOUT if code in (124, 143) else code, self.labels)

    def run_managed(self, test, huge_pages, _unmanaged):
        try:
            done = json.loads(self.found[test, "managed"][2])
        except ValueError:
            die(f"{test}: the manager wrote no valid summary")
        did = {key: int(done.get(key) or 0) for key in self.managed}
        for key, value in did.items():
            self.managed[key] += value
        return self.run(test, huge_pages, "managed"), did


class Daemon:
    """A daemon that may manage every process, paused."""

    CONFIG = """policy = "{policy}"
khugepaged = "leave"
socket = "{socket}"
[sampling]
period = "100 ms"
window = "5 ms"
[limits]
cpu_percent = 100
[selection]
min_resident = "2 MiB"
look_every = "1 s"
unmatched = "exclude"
[[rule]]
name = "the selftests"
match.command = "{{split_huge_page*,khugepaged*}}"
action = "include"
"""

    def __init__(self, hawkeye, environment, scratch, policy):
        self.hawkeye, self.environment = hawkeye, environment
        self.config = scratch / "hawkeye.toml"
        self.config.write_text(self.CONFIG.format(policy=policy, socket=scratch / "state/hawkeye.sock"))

    def client(self, word):
        call = [self.hawkeye, word]
        return subprocess.run(call, env=self.environment, capture_output=True, check=False)

    def __enter__(self):
        call = [self.hawkeye, "daemon", "--config", str(self.config)]
        log = self.config.with_suffix(".log").open("w")
        self.process = subprocess.Popen(call, env=self.environment, stdout=log, stderr=log)
        for _ in range(600):
            if self.process.poll() is not None or self.client("status").returncode == 0:
                break
            time.sleep(0.1)
        if self.client("pause").returncode != 0:
            self.__exit__()
            die(f"the daemon could not be paused: {self.config.with_suffix('.log').read_text()}")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            die("the daemon did not end in 30 s")


def compare(runner, test, huge_pages, paused, rows):
    """Adds a row for each result of a test, and returns whether one differs."""
    runner.labels = {}
    first = runner.run(test, huge_pages, "unmanaged")
    again = runner.run(test, huge_pages, "unmanaged-again")
    managed, did = (runner.run_paused if paused else runner.run_managed)(test, huge_pages, first)
    labels = list(dict.fromkeys([*first, *again, *managed]))
    unstable = {label for label in labels if first.get(label) != again.get(label)}
    different = {label for label in labels if first.get(label) != managed.get(label)} - unstable
    # A difference may be as rare without a manager, so this adds as many runs without one, or more.
    for n in range(2 if paused else 2 * runner.runs):
        if not different:
            break
        more = runner.run(test, huge_pages, f"unmanaged-{n + 3}")
        moved = {label for label in different if more.get(label) != first.get(label)}
        if paused:
            # The manager did not act: how far khugepaged gets is chance. A real difference repeats.
            again, _ = runner.run_paused(test, huge_pages, first)
            moved |= {label for label in different if again.get(label) == first.get(label)}
        unstable |= moved
        different -= moved
    for label in labels:
        verdict = ""
        if label in unstable:
            verdict = "unstable without a manager"
        elif label in different:
            verdict = "DIFFERENT"
        rows.append((test, runner.labels[label], first.get(label, "-"), managed.get(label, "-"), verdict))
    how = "paused" if paused else "{samples} samples, {promoted} promoted, {split} split".format(**did)
    counts = f"{len(labels)} results, {len(unstable)} unstable, {len(different)} different"
    print(f"selftests: {test}: {counts} ({how})", file=sys.stderr, flush=True)
    return bool(different)


def print_table(rows, file):
    heads = ("test", "result of", "unmanaged", "managed", "")
    widths = [max(len(row[n]) for row in [heads, *rows]) for n in range(4)]
    for row in [heads, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        print("  ".join([*cells, row[4]]).rstrip(), file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=Path, help="folder of the built tests (build.sh prints it)")
    parser.add_argument("--hawkeye", default="hawkeye", help="the program [default: hawkeye]")
    parser.add_argument("--policy", default="hawkeye-g", help="policy of the manager [default: hawkeye-g]")
    parser.add_argument("--only", action="append", help="run only tests with this text in their command; may be repeated")
    parser.add_argument("--timeout", type=int, default=180, help="seconds before a test times out [default: 180]")
    parser.add_argument("--vm", metavar="KERNEL", help="run on this kernel in QEMU, without tests that need a paused manager")
    arguments = parser.parse_args()
    # The exit restores settings.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    if os.geteuid() != 0:
        die("root is needed: the tests change settings of the kernel")
    hawkeye = shutil.which(arguments.hawkeye) or die(f"no such program: {arguments.hawkeye}")
    folder = arguments.programs.resolve()
    where = ROOT / "target/selftests"
    scratch = Path(tempfile.mkdtemp(prefix="run.", dir=where))
    rows, differ = [], False
    built, missing = [], set()
    for test, huge_pages, paused in TESTS:
        if arguments.only and not any(part in test for part in arguments.only):
            continue
        if not (folder / test.split()[0]).exists():
            missing.add(test.split()[0])
        elif not (arguments.vm and paused):
            built.append((test, huge_pages, paused))
    # Some tests query the kernel through it.
    mounts_debugfs = not arguments.vm and not os.path.ismount(DEBUGFS)
    if mounts_debugfs:
        subprocess.run(["mount", "-t", "debugfs", "debugfs", DEBUGFS], check=False)
    try:
        if arguments.vm:
            tests = [(test, huge_pages) for test, huge_pages, _ in built]
            runner = VmRunner(arguments.vm, folder, Path(hawkeye), arguments.policy, tests, scratch)
        else:
            runner = Runner(folder, os.path.abspath(hawkeye), arguments.policy, arguments.timeout, scratch)
        for test, huge_pages, paused in built:
            differ |= compare(runner, test, huge_pages, paused, rows)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if mounts_debugfs:
            subprocess.run(["umount", DEBUGFS], check=False)
    if not rows:
        die("no test was run")
    with (where / "results.txt").open("w") as file:
        print_table(rows, file)
    print_table(rows, sys.stdout)
    print()
    for test, _, paused in built:
        if paused:
            print(f"Manager paused for {test}: it {paused}.")
    if missing:
        print(f"Not built from this source: {', '.join(sorted(missing))}.")
    different = sum(row[4] == "DIFFERENT" for row in rows)
    unstable = sum(row[4].startswith("unstable") for row in rows)
    did = runner.managed
    print(
        f"{len(rows)} results of {len({row[0] for row in rows})} tests: {different} different, {unstable} unstable without a manager; "
        f"the manager sampled {did['samples']} times, promoted {did['promoted']} regions and split {did['split']}."
    )
    if not (did["samples"] and did["promoted"]) and not arguments.only:
        die("the manager sampled or promoted nothing, so the comparison proves nothing")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
