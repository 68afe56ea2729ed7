#!/usr/bin/env python3
"""report.py FOLDER KERNEL...: prints docs/kernels.md from the output of test-kernels.sh, or with
kernels for arm64 docs/kernels-arm64.md. What did not run or finish is reported as such."""

import json
import re
import sys
import textwrap
from pathlib import Path

# Exit statuses of run.sh.
ENDS = {"124": "out of time", "125": "the machine failed"}
# Times of an emulated machine mean nothing, and would change with every run.
TIMES = re.compile(r"; a first touch after a clear costs \d+ ns")


def by_name(doctor):
    return {c["name"]: c for c in doctor["capabilities"]}


class Kernel:
    """The output on one kernel."""

    def __init__(self, folder, kernel):
        self.name = kernel.removesuffix("-arm64")
        self.arm64 = kernel != self.name
        self.release = self.enabled = None
        self.tests, self.peers, self.doctor = {}, [], None
        # A kernel of this series with other base pages: its release, what HawkEye said there.
        self.pages_release, self.pages, self.pages_tests = None, [], {}
        self.runs = set()
        # Number of live tests that there are.
        self.listed = 0
        # Part -> how its machine ended before the part did.
        self.unfinished = {}
        # The doctor's findings on other processors than the one on which the tests run.
        self.processors = {}
        for file in sorted(Path(folder).glob(f"{kernel}.doctor=*")):
            if file.suffix == ".new":
                continue
            self.doctor = None
            self.read(file.name.removeprefix(f"{kernel}."), file.read_text(errors="replace"))
            if self.doctor:
                self.processors[file.name.partition("=")[2]] = self.doctor
        self.doctor = None
        # Processor -> outcomes of the live tests that ran on it.
        self.tests_on = {}
        for file in sorted(Path(folder).glob(f"{kernel}.test@*")):
            if file.suffix == ".new":
                continue
            self.read("tests", file.read_text(errors="replace"))
            ended = self.unfinished.pop("tests", None)
            # Later runs of the same tests may have completed it.
            if ended and self.count("unfinished"):
                self.unfinished[file.name.removeprefix(f"{kernel}.")] = ended
            self.tests_on[file.name.partition("@")[2]], self.tests = self.tests, {}
        self.listed = 0
        for part in ("doctor", "tests", "peers", "pages"):
            file = Path(folder) / f"{kernel}.{part}"
            self.read(part, file.read_text(errors="replace") if file.exists() else "")
        if self.count("unfinished") == 0 and len(self.tests) >= self.listed:
            # Later runs of single tests completed it.
            self.unfinished.pop("tests", None)
        self.capabilities = by_name(self.doctor) if self.doctor else {}

    def read(self, part, text):
        doctor = None
        for line in text.splitlines():
            line = line.rstrip("\r")
            if line == "@doctor":
                doctor = []
            elif line == "@end":
                self.doctor, doctor = json.loads("\n".join(doctor)), None
            elif line.startswith("@unfinished "):
                status = line.split()[2]
                self.unfinished[part] = ENDS.get(status, f"exit status {status}")
            elif doctor is not None:
                doctor.append(line)
            elif line.startswith("@commit "):
                self.runs.add(tuple(line.split()[1:]))
            elif line.startswith("@listed "):
                self.listed = int(line.split()[1])
            elif line.startswith("@kernel ") and part == "pages":
                self.pages_release = line.split()[1]
            elif line.startswith("@pages "):
                self.pages.append([part.strip() for part in line.removeprefix("@pages ").split("|", 2)])
            elif line.startswith("@kernel "):
                _, self.release, self.enabled = line.split()
            elif line.startswith("@begun ") and part == "tests":
                self.tests[line.split()[1]] = ("unfinished", "")
            elif line.startswith("@test ") and part == "tests":
                _, name, outcome, _seconds, *why = line.split(" ", 4)
                self.tests[name] = (outcome, " ".join(why).strip())
            elif line.startswith("@test ") and part == "pages":
                _, name, outcome, _seconds, *why = line.split(" ", 4)
                said = re.sub(r"^test \S+ \.\.\. ", "", " ".join(why).strip())
                self.pages_tests[name] = (outcome, said)
            elif line.startswith("@peer ") and part == "peers":
                about, manager, what = (part.strip() for part in line.split("|", 2))
                self.peers.append((about.split()[1], manager, what))

    def count(self, outcome):
        return sum(1 for found, _ in self.tests.values() if found == outcome)


def cell(text):
    text = text if len(text) < 160 else text[:150] + " ..."
    return text.replace("|", "\\|").replace("\n", " ")


def capability(kernel, name):
    return finding(kernel.capabilities[name]) if kernel.doctor else "not run"


def available(kernel, name):
    return kernel.doctor is not None and kernel.capabilities[name]["available"]


def finding(found):
    """Works or absent, with the doctor's words."""
    words = TIMES.sub("", found["found"])
    if found["available"]:
        return "works" if words == "works" else f"works: {words.removeprefix('works, ')}"
    return words if words.startswith("not tried") else f"absent: {words}"


def coverage(kernel):
    if not kernel.doctor:
        return "not run"
    return {
        "access-bits": "works: access bits",
        "damon": "works differently: DAMON's estimate",
        "population": "works differently: only which pages are populated",
    }[kernel.doctor["sampler"]]


def recovery(kernel):
    if not kernel.doctor:
        return "not run"
    return {
        "split-remaps": "works: the split itself maps zero pages to the shared zero page",
        "split-and-page-out": "works differently: split, then zero pages are paged out (here into zram); without swap: absent",
        "none": "absent",
    }[kernel.doctor["recovery"]]


def fault_ahead(kernel):
    if not available(kernel, "fault-ahead by remote read"):
        return "absent" if kernel.doctor else "not run"
    collapse = available(kernel, "fault-ahead by collapse")
    return "works: by remote read" + (" and by collapse" if collapse else "")


def sizes(kernel):
    if not kernel.doctor:
        return "not run"
    tried = [s for s in kernel.doctor["facts"]["small_pages"] if s["tried"]["outcome"] == "works"]
    if not tried:
        return capability(kernel, "small pages")
    kib = sorted(s["page_bytes"] // 1024 for s in tried)
    return f"works: {len(kib)} sizes, {kib[0]} to {kib[-1]} KiB"


def by_tests(*names):
    """Works where all of these tests passed."""

    def judge(kernel):
        outcomes = [kernel.tests.get(name, NOT_RUN) for name in names]
        for outcome, why in outcomes:
            if outcome != "passed":
                return f"not shown: {why}" if outcome == "skipped" else f"{outcome}: {why}".removesuffix(": ")
        return "works"

    return judge


NOT_RUN = ("not run", "")
HARD = "torture::no_byte_changes_while_regions_are_promoted_and_split_as_fast_as_possible"

def cgroup_watermark(kernel):
    test = "safety::a_full_cgroup_stops_promotion_and_is_recovered_while_the_machine_has_free_memory"
    found = by_tests(test)(kernel)
    if found == "works" and kernel.doctor and kernel.doctor["recovery"] != "split-remaps":
        return "works differently: promotion stops; memory is recovered only if the cgroup may swap, else nothing is split"
    return found


def counters(kernel):
    # QEMU's arm64 counts no page walks either; its doctor says which event is missing.
    return capability(kernel, "hardware counters") if kernel.arm64 else "not tried: QEMU has none"


FEATURES = [
    ("promotion (`MADV_COLLAPSE` from outside)", lambda k: capability(k, "promotion")),
    ("coverage", coverage),
    ("page-table walk by BPF", lambda k: capability(k, "page-table walk")),
    ("access bits", lambda k: capability(k, "access bits")),
    ("DAMON as sampler", lambda k: capability(k, "DAMON")),
    ("split", lambda k: capability(k, "split")),
    ("bloat recovery", recovery),
    ("zero pages to swap", lambda k: capability(k, "zero pages to swap")),
    ("fault-ahead", fault_ahead),
    ("first touches seen", lambda k: capability(k, "first touches")),
    ("pages between 4 KiB and 2 MiB (`--small-pages`)", sizes),
    ("shared memory (doctor)", lambda k: capability(k, "shared memory")),
    ("a file of two processes: promoted once, huge in both", by_tests(
        "shared_files::a_file_of_two_processes_is_promoted_once_and_huge_in_both",
    )),
    ("a sparse file does not grow", by_tests(
        "shared_files::a_sparse_file_does_not_grow_and_shared_memory_is_left_alone_unless_wanted",
    )),
    ("no byte of shared memory changes", by_tests(
        "shared_files::no_byte_of_shared_memory_changes_while_it_is_promoted_and_split",
    )),
    ("program text on tmpfs (`hawkeye text`)", by_tests(
        # Trials need a machine at full speed.
        "text::a_signal_puts_the_text_back",
        "text::text_of_several_processes_is_promoted_only_for_good",
    )),
    ("memory pressure", lambda k: capability(k, "memory pressure")),
    ("cgroup limits", lambda k: capability(k, "cgroup limits")),
    ("a cgroup's watermark: promotion stops, memory is recovered", cgroup_watermark),
    (
        "a cgroup's watermark: fault-ahead stops",
        by_tests("prefault::a_warm_start_stops_at_the_low_watermark_of_a_cgroup"),
    ),
    (
        "`hawkeye run` inside a cgroup, with the program",
        by_tests("run::inside_a_cgroup_memory_is_recovered_before_the_limit"),
    ),
    ("settings restored, also after `kill -9`", by_tests(
        "safety::settings_are_restored_at_the_end",
        "safety::after_kill_9_the_next_start_restores_settings",
        "safety::after_kill_9_restore_restores_settings_and_reports_them",
    )),
    ("daemon", by_tests(
        "daemon::the_daemon_finds_and_promotes_a_process_and_explains_why",
        "daemon::only_root_may_pause_and_other_users_may_read",
    )),
    ("torture: no byte changes", by_tests(
        HARD,
        "torture::no_byte_changes_under_the_manager",
        "prefault::no_byte_changes_while_torture_is_prefaulted",
    )),
    ("hardware counters", counters),
]


def tortured(kernel):
    """The actions on the torture's memory, and how much of it was found right."""
    outcome, said = kernel.tests.get(HARD, NOT_RUN)
    found = re.search(r"(\d+) promoted, (\d+) split.*verified_bytes: (\d+)", said)
    if not found:
        return f"{outcome}: {said}".removesuffix(": ")
    promoted, split, verified = (int(number) for number in found.groups())
    return f"{outcome}: {promoted} promotions and {split} splits, {verified / 1e9:.1f} GB read back"


SAMPLED = "sampling::a_hundred_random_pages_are_found_after_a_clear"
SPLIT = "sampling::a_split_keeps_the_access_bit_for_all_pages_or_for_none"


def sampled(kernel):
    """What was found of pages that were read, in base pages and then in pages of 64 KiB."""
    outcome, said = kernel.tests.get(SAMPLED, NOT_RUN)
    counts = re.findall(r"(\d+) pages in (\d+) groups were read, (\d+) count as accessed (with\w*) contiguous", said)
    found = [f"{accessed} where {pages} pages in {groups} groups were read, {by} contiguous entries" for pages, groups, accessed, by in counts]
    return f"{outcome}: {'; '.join(found) or said}".removesuffix(": ")


def marked_after_split(kernel):
    outcome, said = kernel.tests.get(SPLIT, NOT_RUN)
    found = re.search(r"(\d+) base pages are marked", said)
    return f"{outcome}: {found[1]}" if found else f"{outcome}: {said}".removesuffix(": ")


NOTES = """\
What that means:

- **Before 6.12** HawkEye takes memory back only through swap. In a cgroup that may not swap
  (Kubernetes' default) it splits nothing, because that would free no memory. A program that bloats
  itself to its limit is then killed, as without a manager. Do not use `--warm` and `--huge-faults`
  there.
- **From 7.2 on** the kernel runs a DAMON session of its own (`damon_stat`), and no other session
  starts beside it. Only kernels without the page-table walk need DAMON;
  `echo N >/sys/module/damon_stat/parameters/enabled` frees it.
"""


def paragraph(text):
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False) + "\n"


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(cell(text) for text in row) + " |")
    print()


def main():
    kernels = [Kernel(sys.argv[1], name) for name in sys.argv[2:]]
    ran = [kernel for kernel in kernels if kernel.release]
    if not ran:
        sys.exit(f"report: {sys.argv[1]} has no results of {' or '.join(sys.argv[2:])}")
    commits, dates = zip(*sorted({run for kernel in kernels for run in kernel.runs}))
    names = [kernel.name for kernel in kernels]

    arm64 = kernels[0].arm64
    command = "`make test-kernels ARCH=arm64`" if arm64 else "`make test-kernels`"
    print("# What works on which kernel" + (" for arm64" if arm64 else "") + "\n")
    if arm64:
        print("**Nothing here ran on Arm hardware.** All of it ran in QEMU's emulation.\n")
    peers = ", and the kernel's own managers of huge pages beside HawkEye" if any(k.peers for k in kernels) else ""
    print(paragraph(
        f"Written by {command} on {' and '.join(sorted(set(dates)))}. Tree {', '.join(sorted(set(commits)))}. The kernels are "
        f"Debian's cloud kernels {', '.join(kernel.release for kernel in ran)}. Each ran in QEMU: no KVM, two "
        f"emulated processors{' (`-cpu max,pauth-impdef=on,sve=off`)' if arm64 else ''}, 5 GiB of memory, a swap device in zram, cgroup version 2. On each, "
        f"`hawkeye doctor` and every live test with the torture test ran{peers}. An emulated machine shows what works, not how fast it "
        f"is. Transparent huge pages are `{ran[0].enabled}` for the doctor, the kernels' value after boot, and `madvise` for the tests."))
    ended = [f"`{part}` on {k.name} ({why})" for k in kernels for part, why in k.unfinished.items()]
    if ended:
        print(paragraph(f"**Did not finish:** {', '.join(ended)}."))
    table(["feature", *names], [[name, *(of(k) for k in kernels)] for name, of in FEATURES])

    if any(k.processors for k in kernels):
        print("## Other processors\n")
        print(paragraph("What the doctor found on a processor that QEMU emulates by its model:"))
        shown = ("promotion", "page-table walk", "access bits", "first touches", "hardware counters")
        rows = [
            [cpu, k.name, *(finding(by_name(doctor)[name]) for name in shown)]
            for k in kernels
            for cpu, doctor in k.processors.items()
        ]
        table(["processor", "kernel", *shown], rows)
    on = [(cpu, k, tests) for k in kernels for cpu, tests in k.tests_on.items()]
    if on:
        print("Live tests on these processors:\n")
        table(["processor", "kernel", "test", "outcome"], [
            [cpu, k.name, f"`{name}`", f"{outcome}: {why.partition(' ... ')[2] or why}" if why else outcome]
            for cpu, k, tests in on
            for name, (outcome, why) in sorted(tests.items())
        ])

    for kernel in (k for k in kernels if k.pages):
        print("## Base pages of 16 KiB\n")
        print(paragraph(
            f"What the commands said on Debian's kernel {kernel.pages_release}, beside a program of 512 MiB in a cgroup with a limit of 1 GiB "
            "([why some of them refuse](design/probe.md#other-page-sizes)):"))
        table(["command", "exit status", "beginning of what it said"], [[f"`{name}`", *said] for name, *said in kernel.pages])
        if kernel.pages_tests:
            print("Live tests of what the profile `guard` needs, on the same kernel:\n")
            table(["test", "outcome"], [[f"`{name}`", f"{outcome}: {why}" if why else outcome] for name, (outcome, why) in kernel.pages_tests.items()])

    print(NOTES)
    print("## Live tests\n")
    everything = sorted({name for k in kernels for name in k.tests})
    listed = max(len(everything), *(k.listed for k in kernels))
    table(
        ["", *names],
        [[outcome, *(str(k.count(outcome)) for k in kernels)] for outcome in ("passed", "failed", "skipped", "unfinished")]
        + [["not run", *(str(listed - len(k.tests)) for k in kernels)]],
    )
    print("The torture test runs for 40 s with 8 threads over 2 GiB, and checks every byte:\n")
    table(["kernel", ""], [[k.name, tortured(k)] for k in kernels])
    print(paragraph(
        "A hundred random pages of 512 are read after a clear: base pages, and then memory that may get pages of 64 KiB. Of "
        "contiguous entries all 16 pages of a group count as accessed. A huge page that was accessed is split: all of its base pages but one stay "
        "marked, or none ([why](design/sampling.md#a-split-in-a-window)):"))
    table(["kernel", "found accessed", "marked after a split"], [[k.name, sampled(k), marked_after_split(k)] for k in kernels])
    complete = all(len(k.tests) >= listed for k in kernels)
    odd = [n for n in everything if any(k.tests.get(n, NOT_RUN)[0] not in ("passed", "not run") for k in kernels)]
    if not complete:
        odd = everything
    if odd:
        print("Failed or skipped on at least one kernel:\n" if complete else "Tests that ran on at least one kernel:\n")

        def test_result(kernel, name):
            outcome, why = kernel.tests.get(name, NOT_RUN)
            return outcome if outcome == "passed" or not why else f"{outcome}: {why}"

        table(["test", *names], [[f"`{n}`", *(test_result(k, n) for k in kernels)] for n in odd])

    if not any(k.peers for k in kernels):
        return
    print("## The kernel's own managers beside HawkEye\n")
    print(paragraph(
        "In each comparison, all managers ran on the same program in the same virtual machine (`scripts/vm/peers/`). DAMON's scheme `hugepage` "
        "requests huge pages where at least 5 of 20 samples found accesses; khugepaged, at its fastest, makes them. The scheme `collapse` makes "
        "huge pages there at once. `nohugepage` excludes memory in which no sample found an access. The shrinker splits huge pages with more "
        "than `max_ptes_none` zero-filled base pages while their cgroup reclaims memory. In `damon-nohugepage` a program grows to the limit of "
        "its cgroup in huge pages that it hardly uses; there memory is cold where no sample found an access for 5 s."))
    rows = []
    for script in dict.fromkeys(script for k in kernels for script, _, _ in k.peers):
        for kernel in kernels:
            rows += [[script, kernel.name, manager, what] for of, manager, what in kernel.peers if of == script]
    table(["", "kernel", "manager", "state of the program afterwards"], rows)


main()
