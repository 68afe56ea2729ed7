#!/usr/bin/env python3
"""Checks two claims about the structure of the code.

  lint-imports.py          fails where files of a crate import each other in a circle, and where
                           ARCHITECTURE.md names a function that is not in the file beside it

Imports are the paths that begin with `crate::` or `super::`. Where a module takes a name from
another one (`use`), an import of that name is of the other one; names that come by `*` are of the
module that passes them on. A module and the modules inside it may import each other. Test modules
are not counted, nor circles through `HUBS`.
"""
import os
import re
import sys
from pathlib import Path

MAP = "ARCHITECTURE.md"
# Structs that many files extend. Some of these files define parts of their state, too.
HUBS = {"lab/sim": {("kernel", "simulated_kernel"), ("engine", "machine")}}
PATH_HEADING = "## From a sampled region to the system call"
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]*);", re.MULTILINE)
PATH = re.compile(r"\b(?:crate|super)(?:::\w+)+")
TEST_MODULE = re.compile(r"^( *)#\[cfg\(test\)\]\n(?: *#\[.*\n)*\1(?:pub(?:\([^)]*\))? )?mod (\w+)( \{\n|;)", re.MULTILINE)
FUNCTION = re.compile(r"([\w:]+)\s+(\w+/src/[\w/]+\.rs)$")


def split_at_commas(text):
    """The parts of a list, with the commas inside braces left alone."""
    parts, depth = [""], 0
    for character in text:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def imported_paths(tree):
    """The paths that `a::{b, c::d}` stands for, as lists of names."""
    before, brace, rest = tree.partition("{")
    names = [name for name in before.split("::") if name]
    if not brace:
        return [names]
    inside = rest.rpartition("}")[0]
    return [names + path for part in split_at_commas(inside) for path in imported_paths(part)]


def without_test_modules(module, text, test_modules):
    """A file's text without its test modules; adds those that are files to `test_modules`."""
    while found := TEST_MODULE.search(text):
        indent, name, opening = found.groups()
        end = found.end()
        if opening == ";":
            test_modules.add((*module, name))
        else:
            end = text.index(f"\n{indent}}}\n", found.start()) + len(indent) + 3
        text = text[: found.start()] + text[end:]
    return text


def is_within(module, others):
    return any(module[:length] in others for length in range(1, len(module) + 1))


def modules_of_crate(source):
    """Each module that is a file, by its path from the crate's root: the file, and its text."""
    modules, test_modules = {}, set()
    for file in sorted(source.rglob("*.rs")):
        names = file.relative_to(source).with_suffix("").parts
        module = () if names in (("lib",), ("main",)) else names
        text = COMMENT.sub("", file.read_text(encoding="utf-8"))
        text = without_test_modules(module, text, test_modules)
        modules[module] = (file, modules.get(module, ("", ""))[1] + text)
    return {module: found for module, found in modules.items() if not is_within(module, test_modules)}


def used_names(text):
    """What the `use` lines of a file name: the path of each, and the name that it gets there."""
    used = []
    for tree in USE.findall(text):
        for path in imported_paths(" ".join(tree.split())):
            *parents, last = [name.strip() for name in path]
            if last == "self":
                *parents, last = parents
            name, _, alias = last.partition(" as ")
            if name:
                used.append(([*parents, name], alias.strip() or name))
    return used


def resolve(module, path, modules, elsewhere):
    """The module that a path in `module` refers to: the longest part of the path that is one."""
    target = module
    for index, name in enumerate(path):
        if name == "crate":
            target = ()
        elif name == "super":
            target = target[:-1]
        elif (*target, name) in modules:
            target = (*target, name)
        elif name in elsewhere[target] and elsewhere[target][name][0] != name:
            # Each step leads closer to the definition, so this ends.
            return resolve(target, elsewhere[target][name] + path[index + 1 :], modules, elsewhere)
        elif name != "self":
            break
    return target


def import_graph(modules):
    """For each module the modules that it imports, except those that it is in or that are in it."""
    used = {module: used_names(text) for module, (_, text) in modules.items()}
    # A path of one name is a macro or a crate.
    elsewhere = {module: {name: path for path, name in names if len(path) > 1} for module, names in used.items()}
    graph = {}
    for module, (_, text) in modules.items():
        graph[module] = set()
        paths = [path for path, _ in used[module] if path[0] in ("crate", "super")]
        for path in paths + [found.split("::") for found in PATH.findall(text)]:
            target = resolve(module, path, modules, elsewhere)
            shorter = min(len(target), len(module))
            if target[:shorter] != module[:shorter]:
                graph[module].add(target)
    return graph


def reachable(graph, start):
    """The modules that `start` imports, directly or through others."""
    found, waiting = set(), [start]
    while waiting:
        for target in graph.get(waiting.pop(), ()):
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def cycles(graph):
    """Sets of modules that all import each other, directly or through others in the set."""
    reached = {module: reachable(graph, module) for module in graph}
    groups = {frozenset({module} | {it for it in reached[module] if module in reached[it]}) for module in graph}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def import_errors():
    for source in sorted([*Path("crates").glob("*/src"), *Path("lab").glob("*/src")]):
        modules = modules_of_crate(source)
        hubs = HUBS.get(str(source.parent), set())
        graph = import_graph(modules)
        graph = {module: targets - hubs for module, targets in graph.items() if module not in hubs}
        for group in cycles(graph):
            files = ", ".join(str(modules[module][0]) for module in group)
            yield f"these files import each other: {files}"


def path_errors():
    """Functions of the path in ARCHITECTURE.md that are not in the file beside their name."""
    _, _, section = Path(MAP).read_text(encoding="utf-8").partition(PATH_HEADING)
    named = [found.groups() for line in section.split("\n## ")[0].splitlines() if (found := FUNCTION.search(line))]
    if not named:
        yield f'{MAP} names no function under "{PATH_HEADING}"'
    for name, path in named:
        file = Path("crates") / path
        owner, _, function = name.rpartition("::")
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        is_owner_there = not owner or re.search(rf"^impl\b.*\b{owner}\b", text, re.MULTILINE)
        if not is_owner_there or not re.search(rf"\bfn {function}\b", text):
            yield f"{MAP}: {name} is not in {file}"


def main():
    os.chdir(Path(__file__).resolve().parent.parent)
    errors = [*import_errors(), *path_errors()]
    for error in errors:
        print(f"lint-imports: {error}", file=sys.stderr)
    return 1 if errors else 0


sys.exit(main())
