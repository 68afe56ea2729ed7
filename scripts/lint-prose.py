#!/usr/bin/env python3
"""Checks the language of documents, comments and texts that users see (CONTRIBUTING.md, "Language").

  lint-prose.py            fails where scripts/prose-allowed.txt has another count than the file has
                           findings
  lint-prose.py --list     prints every finding as FILE:LINE: RULE: TEXT
  lint-prose.py --allow    writes today's counts to scripts/prose-allowed.txt

Rules for all prose: the phrases below, and lines of at most 100 columns (tables, links and
outputs aside).
Rules for documents: sentences of at most 30 words, and links within the repository that lead
somewhere. A page of docs/ links only to files below docs/, and to pages that docs/SUMMARY.md lists:
the book contains nothing else. Paths of source files in ARCHITECTURE.md and CONTRIBUTING.md must
exist. A file has exactly the findings that it is allowed; a file that is not listed may have none.
"""
import collections
import functools
import glob
import os
import re
import subprocess
import sys

ALLOWED = "scripts/prose-allowed.txt"
MOST_COLUMNS = 100
MOST_WORDS = 30

PHRASES = {
    "a thing is not a person": r"\b(who|whoever|whose|whom|(some|no|any|every)body)\b",
    "say the number": r"\bso (many|much|long|few)\b(?! as| that)",
    "say twice": r"\bas (much|many|long) again\b",
    "say report, show, mean": r"\b(is|are|was|were|be|been) told\b|\btells? (it|them|of|what|how|when)\b",
    "say learn, notice": r"\bhears? of\b|\bheard of\b",
    "say must, or what does it": r"\b(is|are) to be (?!root)\w+",
    "say value, result": r"\bwhat (it|that) is worth\b|\bbecomes? of\b",
    "plain word order": r"\bthere where\b|\bfor of\b|\bbut for\b",
}
RULES = {name: re.compile(rule, re.IGNORECASE) for name, rule in PHRASES.items()}

CODE = (".rs", ".c", ".h", ".sh", ".py", ".toml", ".js", ".html", ".service", ".yaml", ".yml")
# Licences, patches in the kernel's own style, what programs generate, and this file.
SKIPPED = re.compile(r"LICEN|kernel/patches/|docs/results|Cargo\.lock|.*\.snap$|scripts/lint-prose\.py")
COMMENT = re.compile(r"(//[/!]?|/?\*|#(?!\[|!|include|define|if|end))")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
MAPS = ("ARCHITECTURE.md", "CONTRIBUTING.md")
PATH = re.compile(r"`([\w.-]+/[^`\s]*(?:\.rs|\.c|\.h|/))`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# The text of a link may begin on the line before.
TARGET = re.compile(r"\]\(([^)\s]+)\)")
SUMMARY = "docs/SUMMARY.md"


def prose(path, line):
    """What people read of a line: all of a document, comments and strings of code."""
    if path.endswith(".md"):
        return line
    stripped = line.strip()
    if COMMENT.match(stripped):
        return stripped
    behind = stripped.split("//", 1)[1] if "//" in stripped else ""
    return " ".join(STRING.findall(stripped)) + " " + behind


def is_wide(path, line):
    is_prose = path.endswith(".md") or COMMENT.match(line.strip())
    is_table = re.match(r"\s*(//[/!] )?\|", line)
    return is_prose and len(line) > MOST_COLUMNS and not is_table and "](" not in line and "://" not in line


def paragraphs(lines):
    """The sentences' text of a document, each paragraph with its first line; no code, tables or headings."""
    in_code, start, words = False, 0, []
    for number, line in enumerate([*lines, ""], 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            in_code = not in_code
        ends = not stripped or in_code or stripped.startswith(("```", "|", "#", "<", "!["))
        begins = re.match(r"([-*+]|\d+\.)\s", stripped)
        if (ends or begins) and words:
            yield start, " ".join(words)
            words = []
        if not ends:
            start = start if words else number
            words.append(re.sub(r"^([-*+]|\d+\.|>)\s+", "", stripped))


def long_sentences(lines):
    for number, text in paragraphs(lines):
        text = LINK.sub(lambda link: link.group(0).split("](")[0].lstrip("["), text)
        text = re.sub(r"`[^`]*`", "code", text)
        for sentence in re.split(r"(?<=[.!?])\s+", text):
            count = sum(1 for word in sentence.split() if re.search(r"\w", word))
            if count > MOST_WORDS:
                yield number, f"{count} words: {sentence}"


@functools.cache
def anchors(path):
    """The anchors of a document's headings, as mdBook and GitHub make them."""
    with open(path, encoding="utf-8") as file:
        headings = re.findall(r"^#+\s+(.*)$", file.read(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@functools.cache
def pages_of_book():
    """The pages that mdBook renders; it turns no other Markdown file into HTML."""
    with open(SUMMARY, encoding="utf-8") as file:
        return {os.path.normpath(os.path.join("docs", page)) for page in TARGET.findall(file.read())}


def dead_links(path, lines):
    """Links that lead nowhere in the repository, or nowhere in the book."""
    for number, line in enumerate(lines, 1):
        for target in TARGET.findall(re.sub(r"`[^`]*`", "", line)):
            if "://" in target or target.startswith("mailto:"):
                continue
            file, _, anchor = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
            if not os.path.exists(file) or anchor and anchor not in anchors(file):
                yield number, "link to nothing", target
            elif not path.startswith("docs/"):
                continue
            elif not file.startswith("docs/"):
                yield number, "link out of the book", target
            elif file.endswith(".md") and file not in pages_of_book():
                yield number, f"link to a page that {SUMMARY} does not list", target


def without_braces(path):
    """The paths that `a/{b,c}.rs` stands for."""
    before, brace, rest = path.partition("{")
    inside, _, after = rest.partition("}")
    return [before + name + after for name in inside.split(",")] if brace else [path]


def missing_paths(lines):
    """Paths in backticks that begin with a folder of the repository and do not exist."""
    for number, line in enumerate(lines, 1):
        for path in (path for text in PATH.findall(line) for path in without_braces(text)):
            if os.path.isdir(path.split("/")[0]) and not glob.glob(path):
                yield number, path


def findings():
    tracked = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for path in subprocess.run(tracked, capture_output=True, text=True, check=True).stdout.splitlines():
        is_generated = SKIPPED.match(path)
        is_page = path.startswith("docs/") and path.endswith(".md")
        if not path.endswith((".md", *CODE)) or is_generated and not is_page or not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        if path.endswith(".md"):
            for number, rule, target in dead_links(path, lines):
                yield path, number, rule, target
        if is_generated:
            continue
        in_output = False
        for number, line in enumerate(lines, 1):
            if re.match(r"\s*(//[/!] ?)?```", line) and path.endswith((".md", ".rs")):
                in_output = not in_output
            text = "" if in_output and path.endswith(".md") else prose(path, line)
            for name, rule in RULES.items():
                if rule.search(text):
                    yield path, number, name, text.strip()
                    break
            if not in_output and is_wide(path, line):
                yield path, number, f"over {MOST_COLUMNS} columns", line.strip()
        if path.endswith(".md"):
            for number, sentence in long_sentences(lines):
                yield path, number, f"over {MOST_WORDS} words", sentence
        if path in MAPS:
            for number, missing in missing_paths(lines):
                yield path, number, "path that does not exist", missing


def allowed():
    counts = {}
    if os.path.exists(ALLOWED):
        with open(ALLOWED, encoding="utf-8") as file:
            for line in file:
                count, path = line.split(maxsplit=1)
                counts[path.strip()] = int(count)
    return counts


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    found = collections.defaultdict(list)
    for path, number, rule, text in findings():
        found[path].append(f"{path}:{number}: {rule}: {text[:120]}")
    if sys.argv[1:] == ["--list"]:
        for path in found:
            print(*found[path], sep="\n")
        return 0
    if sys.argv[1:] == ["--allow"]:
        with open(ALLOWED, "w", encoding="utf-8") as file:
            file.writelines(f"{len(found[path])} {path}\n" for path in sorted(found))
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    limits = allowed()
    counts = {path: len(found.get(path, ())) for path in sorted({*found, *limits})}
    wrong = {path: count for path, count in counts.items() if count != limits.get(path, 0)}
    for path, count in wrong.items():
        limit = limits.get(path, 0)
        # Slack would let new findings in.
        advice = "" if count > limit else f"; run scripts/lint-prose.py --allow to lower the number in {ALLOWED}"
        if count > limit:
            print(*found[path], sep="\n")
        print(f"lint-prose: {path} has {count} findings, {limit} are allowed{advice}", file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
