#!/usr/bin/env python3
"""third-party.py --target TARGET: prints the libraries that are built into `hawkeye` for that target of Rust, with
licences and their texts."""

import argparse
import json
import pathlib
import subprocess
import sys

NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE")


def built_in(target):
    """Names and versions of linked libraries, without those for builds only."""
    command = ["cargo", "tree", "--package", "hawkeye-cli", "--target", target]
    command += ["--edges", "normal", "--prefix", "none", "--format", "{p}"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {(words[0], words[1].removeprefix("v")) for words in map(str.split, filter(None, lines))}


def packages():
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["packages"]


def texts(folder):
    return sorted(file for file in folder.iterdir() if file.is_file() and file.name.upper().startswith(NAMES))


arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--target", required=True)
wanted = built_in(arguments.parse_args().target)
known = set()
for package in sorted(packages(), key=lambda package: (package["name"], package["version"])):
    # Packages without a source are our own.
    if (package["name"], package["version"]) not in wanted or package["source"] is None:
        continue
    licence = package["license"]
    if licence is None:
        sys.exit(f"third-party: {package['name']} {package['version']} names no licence")
    print(f"{'=' * 100}\n{package['name']} {package['version']}: {licence}\n{package['repository'] or ''}\n")
    for file in texts(pathlib.Path(package["manifest_path"]).parent):
        text = file.read_text(encoding="utf-8", errors="replace").strip()
        if text in known:
            print(f"{file.name}: as printed above\n")
            continue
        known.add(text)
        print(f"{file.name}:\n\n{text}\n")
