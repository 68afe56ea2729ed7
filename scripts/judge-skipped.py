#!/usr/bin/env python3
"""judge-skipped.py FILE: prints a line for each test that was skipped without a valid reason.

FILE holds a line "NAME: WHY" for each skipped test (scripts/test.sh). Standard input is the output
of `hawkeye doctor --json` on this machine. Where HawkEye can manage the machine, a test may be
skipped only "without CAPABILITY: ...", and only if the doctor does not find that capability either.
The capability "virtual machine" is QEMU for this processor's architecture in PATH.

judge-skipped.py --self-test: checks this program itself.
"""

import json
import platform
import shutil
import sys


def judge(doctor_text, programs, skipped):
    """The lines without a valid reason, by the doctor's report and the capabilities of programs."""
    try:
        doctor = json.loads(doctor_text)
        manageable = doctor["can_manage"]
        available = {c["name"]: c["available"] for c in doctor["capabilities"]} | programs
    except (ValueError, KeyError, TypeError):
        return ["hawkeye doctor --json did not report whether this machine can be managed"]
    if not manageable:
        return []
    wrong = []
    for line in skipped:
        test, found, why = line.rstrip("\n").partition(": ")
        if not found:
            wrong.append(f"a line about a skipped test has no reason: {line!r}")
            continue
        absent = [name for name in available if not available[name]]
        if not any(why.startswith(f"without {name}: ") for name in absent):
            wrong.append(f"{test} was skipped although this machine can be managed: {why}")
    return wrong


def capabilities_of_programs():
    """Capabilities that installed programs add, which the doctor does not look for."""
    qemu = f"qemu-system-{platform.machine()}"
    return {"virtual machine": shutil.which(qemu) is not None}


def self_test():
    """Fails where `judge` accepts an invalid reason, or rejects a valid one."""

    def doctor(can_manage, **available):
        capabilities = [{"name": name, "available": there} for name, there in available.items()]
        return json.dumps({"can_manage": can_manage, "capabilities": capabilities})

    skipped = "attach::it_ends: without damon: it is in use"
    programs = {"virtual machine": False, "other program": True}
    for doctor_text, lines, count in [
        (doctor(True, damon=True), [], 0),
        (doctor(True, damon=False), [skipped], 0),
        (doctor(False, damon=True), [skipped, "run::a: needs root"], 0),
        # The capability is available.
        (doctor(True, damon=True), [skipped], 1),
        # The doctor does not know the capability, or knows only the beginning of its name.
        (doctor(True, counters=False), [skipped], 1),
        (doctor(True, dam=False), [skipped], 1),
        # The capability is that of a program, which is missing or installed.
        (doctor(True), ["vm::a: without virtual machine: no QEMU"], 0),
        (doctor(True), ["vm::a: without other program: it is missing"], 1),
        # Any other reason, on a machine that can be managed.
        (doctor(True, damon=False), ["run::a: needs root", "run::b: too slow"], 2),
        (doctor(True, damon=False), ["no reason"], 1),
        ("", [], 1),
        ("{}", [], 1),
    ]:
        found = judge(doctor_text, programs, lines)
        if len(found) != count:
            sys.exit(f"judge-skipped: {lines} by {doctor_text!r}: expected {count} complaints, found {found}")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    elif len(sys.argv) == 2:
        with open(sys.argv[1], encoding="utf-8") as lines:
            for complaint in judge(sys.stdin.read(), capabilities_of_programs(), lines):
                print(complaint)
    else:
        sys.exit(__doc__)


main()
