#!/usr/bin/env python3
"""Reports the results of kernel/test.sh.

report.py collect DIRECTORY     prints the checks and figures of target/kernel/VERSION/test, writes
                                DIRECTORY/results.json, and exits with 1 where a check failed
report.py document RESULTS...   prints docs/prezero.md from such files
"""

import json
import re
import statistics
import sys
import textwrap
from pathlib import Path

SPLAT = re.compile(
    r"BUG:|BUG at|WARNING:|KASAN|prezero: page not zero|WRONG BYTE|blocked for more than|INFO: rcu|rcu: INFO|possible recursive|possible circular"
    r"|inconsistent lock|Invalid wait context|Oops|general protection|Kernel panic|unable to handle|lockup|Bad page|refcount_t|list_(add|del) corruption"
    r"|Call Trace|corrupted"
)
# What a debug kernel logs about itself at boot.
HARMLESS = re.compile(r"lock_?dep.*(enabled|proving)|Lock dependency validator|\bkasan: |KernelAddressSanitizer initialized", re.I)


# Text of the document: what is counted, and what an allocation still costs.
COUNTED = """\
Faults and start-ups: all instructions of a machine with one processor (QEMU's -icount), a
nanosecond each. They include no other work of the host, and no noise. Kernels clear memory with
`rep stosb` where they can. The emulator counts it as an instruction a byte: 4.1 us for a base page.
A processor takes 0.45 us (the machine of docs/research/simulator.md) or 0.85 us (the paper's).
Everything else would be small beside 4.1 us. So these machines report that their processor has no
fast `rep stosb` (`clearcpuid=erms`), and kernels clear eight bytes an instruction: 0.5 us for a
base page. With that, a base-page fault that clears takes a tenth more than one that does not, and a
huge-page fault 35 times as much. In the paper's Table 1 it is a third more, and 36 times.

The table "Instructions" counts one allocation and the free that follows. It shows the least of 200
runs, in kernels that are compiled as distributions compile theirs (-O2, static keys). "held" is the
allocation alone, of pages that were not in use lately. A fault is counted from user space to user
space.

Kernels clear memory with `rep stosb` in that table. Rows in which something is cleared hide what
the series adds, and what they save is no measure of time. Rows in which nothing is cleared show the
cost.

What the series adds to an allocation that wants no zeros and is served by its processor's list:

- With the device off: a no-op at the static key, and the store of a flag that marks a list
  just filled.
- With the device on: instead of the no-op, a jump to code out of line, and two checks, each with a
  conditional jump. They check whether the first page of the list is marked, and whether zeros are
  wanted. The second jump leads back.

The compiler's output offsets most of that cost, or more than all of it. With the series the
refilling of a list has two callers and is no longer inlined. Values for it are then no longer
computed ahead in every allocation. The mark is in the page's `private` field, which the allocation
writes anyway. An allocation that wants no zeros does not read the mark again. The rest of the cost
stays: through it, allocations that overwrite memory find pages that are not zeroed.
"""


class Run:
    """What one virtual machine printed, and its kernel."""

    def __init__(self, folder):
        self.name = folder.name
        self.about, self.checks, self.figures, self.status = {}, [], {}, None
        for line in (folder / "out").read_text(errors="replace").splitlines():
            word, _, rest = line.strip().partition(" ")
            if word == "@check":
                name, result, *why = rest.split(" ", 2)
                self.checks.append((name, result, " ".join(why)))
            elif word == "@figure":
                name, _, value = rest.partition(" ")
                try:
                    self.figures[name] = float(value)
                except ValueError:
                    self.checks.append((name, "FAILED", f"not a number: '{value}'"))
            elif word == "@status":
                self.status = int(rest)
            elif word.startswith("@"):
                self.about[word[1:]] = rest
        console = (folder / "console").read_text(errors="replace").splitlines()
        splats = [line.strip() for line in console if SPLAT.search(line) and not HARMLESS.search(line)]
        self.checks.append(("ran-to-its-end", "ok" if self.status == 0 else "FAILED", f"exit status {self.status}"))
        if self.name in ("selfcheck-debug", "selfcheck-kasan"):
            found = any("prezero: page not zero" in line for line in splats)
            self.checks.append(("debug-check-reports", "ok" if found else "FAILED", "the console says 'prezero: page not zero'"))
        elif self.name == "selfcheck-minimal":
            found = any("WRONG BYTE" in line for line in splats)
            self.checks.append(("threads-report", "ok" if found else "FAILED", "the console names address and byte"))
        elif self.name == "isolation-stock":
            # Without the series a splat is upstream's, and is no failure here.
            self.checks += [("console", "noted", line) for line in splats if "WARNING:" in line or "BUG" in line]
        else:
            self.checks.append(("console", "FAILED" if splats else "ok", splats[0] if splats else f"{len(console)} lines without a splat"))

    def as_json(self):
        checks = [dict(zip(("name", "result", "why"), check)) for check in self.checks]
        return {"about": self.about, "status": self.status, "checks": checks, "figures": self.figures}


def median(figures, pattern):
    """The median over the rounds, for example of `faults.huge.off.*.us_per_fault`; None where there is none."""
    found = re.compile(re.escape(pattern).replace(r"\*", r"\d+"))
    values = [value for name, value in figures.items() if found.fullmatch(name)]
    return statistics.median(values) if values else None


def instruction_names(figures):
    return [m[1] for m in (re.fullmatch(r"instructions\.off\.([a-z0-9_]+)", name) for name in figures) if m]


def targets(runs):
    """Rows (what, wanted, found, result) for the targets of issue 9, from the figures."""
    rows = []

    def add(what, wanted, found, right):
        rows.append({"what": what, "wanted": wanted, "found": found, "result": "ok" if right else "FAILED"})

    for name in ("benchmarks", "benchmarks-init"):
        if name not in runs or not runs[name]["figures"]:
            continue
        figures = runs[name]["figures"]
        mode = "" if name == "benchmarks" else ", init_on_alloc=1"
        served, off, on = (median(figures, f"faults.huge.{x}") for x in ("on.*.served_percent", "off.*.us_per_fault", "on.*.us_per_fault"))
        add(f"huge-page faults served zeroed{mode}", ">= 97 %", f"{served:.2f} %", served >= 97)
        add(f"time of a huge-page fault, on / off{mode}", "<= 1/20", f"{on:.0f} / {off:.0f} us = 1/{off / on:.1f}", on * 20 <= off)
        served = median(figures, "faults.base.on.*.served_percent")
        add(f"base-page faults served zeroed{mode}", "reported", f"{served:.2f} %", True)
        columns = [("4k", "off"), ("4k", "on"), ("2m", "off"), ("2m", "on")]
        for what in ("touch", "kvm", "jvm", "populate"):
            seconds = [median(figures, f"startup.{what}.{size}.{device}.*.seconds") for size, device in columns]
            # The paper's programs had no call to populate memory.
            right = seconds == sorted(seconds, reverse=True)
            add(f"{what}: total time 4 KiB > 4 KiB zeroed > 2 MiB > 2 MiB zeroed{mode}", "reported" if what == "populate" else "the paper's order",
                (" > " if right else ", ").join(f"{s:.2f}" for s in seconds) + " s", right or what == "populate")
            if what == "touch":
                each = [median(figures, f"startup.{what}.{size}.{device}.*.us_per_fault") for size, device in columns[2:] + columns[:2]]
                add(f"{what}: time per fault 2 MiB > 2 MiB zeroed > 4 KiB > 4 KiB zeroed{mode}", "the paper's order",
                    " > ".join(f"{s:.1f}" for s in each) + " us", each == sorted(each, reverse=True))
            else:
                add(f"{what}-like start, 2 MiB, off / on{mode}", ">= 10", f"{seconds[2] / seconds[3]:.1f}", seconds[2] >= 10 * seconds[3])
        for what in ("file", "cow"):
            share, dirty, took = (median(figures, f"preference.{what}.*.{x}") for x in ("percent_of_zeroed", "dirty_before", "allocated"))
            add(f"{what}: share of the zeroed memory taken while there was dirty{mode}", "< 5 %",
                f"{share:.3f} % ({dirty:.0f} dirty base pages, {took:.0f} taken)", share < 5 and dirty > took)
    if "instructions" in runs and "instructions-stock" in runs:
        figures, stock = runs["instructions"]["figures"], runs["instructions-stock"]["figures"]
        for name in instruction_names(figures):
            for device in ("off", "on"):
                before, after = stock.get(f"instructions.off.{name}"), figures.get(f"instructions.{device}.{name}")
                # Order 5 is not on the per-CPU lists, so it is not on the fast path.
                wanted = "reported" if "order_5" in name else "<= 1.01"
                if before and after:
                    add(f"instructions, {name.replace('_', ' ')}, device {device}, with / without the series", wanted,
                        f"{after:.1f} / {before:.1f} = {after / before:.4f}", wanted == "reported" or after <= before * 1.01)
    return rows


def collect(directory):
    directory = Path(directory)
    found = [Run(folder) for folder in sorted((directory / "test").iterdir()) if (folder / "out").exists()]
    runs = {run.name: run.as_json() for run in found}
    results = {"version": directory.name, "runs": runs, "targets": targets(runs)}
    (directory / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    for run in found:
        for name, result, why in run.checks:
            print(f"{result:8} {directory.name} {run.name} {name}: {why}")
    for row in results["targets"]:
        print(f"{row['result']:8} {directory.name} {row['what']}: {row['found']} (wanted: {row['wanted']})")
    for run in found:
        print(f"\n{directory.name} {run.name} ({run.about.get('kernel')}, {run.about.get('emulator')}, emulated)")
        for name, value in run.figures.items():
            print(f"  {name:60} {value:g}")
    outcomes = [result for run in found for _, result, _ in run.checks] + [row["result"] for row in results["targets"]]
    print(f"\n{directory.name}: {outcomes.count('ok')} ok, {outcomes.count('FAILED')} failed, {outcomes.count('skipped')} skipped")
    return outcomes.count("FAILED") == 0


def number(value, digits=0):
    return "-" if value is None else f"{value:,.{digits}f}"


def paragraph(text):
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False) + "\n"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]) + "\n"


def startups(figures):
    """The paper's Table 1 and start-up rows of Table 8, in small."""
    columns = [("4k", "off"), ("2m", "off"), ("4k", "on"), ("2m", "on")]
    rows = []
    for label, what, value, digits in (
        ("touching 1 GiB: seconds", "touch", "seconds", 2), ("touching 1 GiB: us per fault", "touch", "us_per_fault", 1),
        ("touching 1 GiB: faults", "touch", "faults", 0), ("KVM-like start of 1 GiB: seconds", "kvm", "seconds", 2),
        ("the same, populated in one call: seconds", "populate", "seconds", 2),
        ("JVM-like start of 1 GiB: seconds", "jvm", "seconds", 2),
    ):
        rows.append([label] + [number(median(figures, f"startup.{what}.{size}.{device}.*.{value}"), digits) for size, device in columns])
    return table(["", "4 KiB", "2 MiB", "4 KiB, pre-zeroed", "2 MiB, pre-zeroed"], rows)


def faults(figures):
    rows = []
    for size, label in (("huge", "huge page"), ("base", "base page")):
        values = [median(figures, f"faults.{size}.{x}") for x in ("off.*.us_per_fault", "on.*.us_per_fault", "on.*.served_percent")]
        ratio = f"1/{values[0] / values[1]:.1f}" if values[0] and values[1] else "-"
        rows.append([label, number(values[0], 1), number(values[1], 1), ratio, number(values[2], 2) + " %"])
    return table(["fault", "us, device off", "us, device on", "on / off", "served zeroed"], rows)


def counted(runs):
    with_series, stock = runs["instructions"]["figures"], runs["instructions-stock"]["figures"]
    rows = []
    for name in instruction_names(with_series):
        before, off, on = stock.get(f"instructions.off.{name}"), with_series[f"instructions.off.{name}"], with_series.get(f"instructions.on.{name}")
        rows.append([name.replace("_", " "), number(before, 1), number(off, 1), f"{off / before:.4f}" if before else "-",
                     number(on, 1), f"{on / before:.4f}" if before and on else "-"])
    for size in ("base", "huge"):
        name = f"fault_{size}.median_ticks"
        before, off, on = stock.get(f"instructions.off.{name}"), with_series.get(f"instructions.off.{name}"), with_series.get(f"instructions.on.{name}")
        if before and off and on:
            rows.append([f"a {size}-page fault (median)", number(before), number(off), f"{off / before:.4f}", number(on), f"{on / before:.4f}"])
    return table(["allocation and free", "without the series", "device off", "ratio", "device on", "ratio"], rows)


def correctness(runs):
    rows = []
    for name, run in runs.items():
        if not name.startswith(("correctness", "selfcheck", "isolation")):
            continue
        f = run["figures"]
        wrong = [check for check in run["checks"] if check["result"] == "FAILED"]
        noted = [re.sub(r"^\[ *[0-9.]+\] | at \+.*", "", check["why"]) for check in run["checks"] if check["result"] == "noted"]
        outcome = "all checks ok" if not wrong else "failed: " + "; ".join(f"{check['name']} ({check['why'][:80]})" for check in wrong)
        outcome = outcome if not noted else "without the series: " + "; ".join(noted)
        rows.append([name, run["about"].get("date", "-"), number(f.get("stress.zero_pages")), number(f.get("threads.allocations")),
                     number(f.get("threads.checked_pages")), number(f.get("counters.served")), outcome])
    return table(["run", "at", "pages read back, programs", "allocations, kernel threads", "pages read back, kernel threads",
                  "pages served zeroed", "outcome"], rows)


def document(files):
    print("# Pre-zeroed free pages: tests and figures\n")
    print(paragraph(
        "Written by `make kernel-test` (kernel/test.sh, kernel/test/report.py); not by hand. **All of it ran under emulation** (QEMU without "
        "KVM): counts are valid, times on a real machine were not measured. Seconds and microseconds of faults and start-ups are instructions, "
        "a nanosecond each (\"What is counted\", at the end). \"Off\" and \"on\" are measured in turn in the same boot; figures are medians "
        "of the rounds."))
    for file in files:
        results = json.loads(Path(file).read_text())
        runs = results["runs"]
        about = [run["about"] for run in runs.values()]
        every = {key: ", ".join(sorted({a[key] for a in about if key in a})) for key in ("tree", "kernel", "source", "emulator")}
        dates = sorted(a["date"] for a in about if "date" in a)
        print(f"## Linux {results['version']}\n")
        print(paragraph(f"Kernel {every['kernel']} of Debian's {every['source']} with `kernel/patches/{results['version']}`. "
                        f"Tree {every['tree']}. Measured {dates[0]} to {dates[-1]} UTC with {every['emulator']} (TCG)."))
        # Instructions without a target are in a table of their own.
        rows = [r for r in results["targets"] if not (r["what"].startswith("instructions") and r["wanted"] == "reported")]
        print(table(["target", "wanted", "found", ""], [[r["what"], r["wanted"], r["found"], r["result"]] for r in rows]))
        print("### Correctness\n")
        print(correctness(runs))
        for name, label in (("benchmarks", "init_on_alloc=0"), ("benchmarks-init", "init_on_alloc=1, Debian's default")):
            if name in runs and runs[name]["figures"]:
                print(f"### Faults and start-ups, {label}, counted\n")
                print(f"Measured {runs[name]['about'].get('date')} UTC, tree {runs[name]['about'].get('tree')}.\n")
                print(faults(runs[name]["figures"]))
                print(startups(runs[name]["figures"]))
        if "instructions" in runs and "instructions-stock" in runs:
            print("### Instructions\n")
            print(counted(runs))
    print("## What is counted\n")
    print(COUNTED, end="")


if len(sys.argv) == 3 and sys.argv[1] == "collect":
    sys.exit(0 if collect(sys.argv[2]) else 1)
elif len(sys.argv) > 2 and sys.argv[1] == "document":
    document(sys.argv[2:])
else:
    sys.exit(__doc__)
