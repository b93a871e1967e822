#!/usr/bin/env python3
"""A ratchet: calls that take resources past the platform are errors outside the files of tools/source_allowlist.txt.

An entry there, "pattern path", that is not needed any more is an error, too: the list only shrinks.
"""

import pathlib
import re
import sys

PATTERNS = {
    "cudaMalloc": re.compile(r"\bcudaMalloc\w*\s*\("),
    "cuMem": re.compile(r"\bcuMem[A-Z]\w*\s*\("),
    "cudaStreamCreate": re.compile(r"\bcudaStreamCreate\w*\s*\("),
    "dlopen": re.compile(r"\bdlopen\s*\("),
    "mmap": re.compile(r"\bmmap\s*\("),
    "open": re.compile(r"(?<![\w.>])open\s*\("),
    "mkdtemp": re.compile(r"\bmkdtemp\s*\("),
    "thread": re.compile(r"\bstd::j?thread\b(?!::)|\bpthread_create\b"),
    "new": re.compile(r"(?<!::)\bnew\s+(?:\([^)]*\)\s*)?[A-Za-z_:]"),
    "getenv": re.compile(r"\bgetenv\s*\("),
    "sleep_for": re.compile(r"\bsleep_for\b"),
}
# Comments, string and character literals, in the order in which they are met. Raw strings first.
SKIP = re.compile(r'R"(?P<d>[^()\s\\]{0,16})\(.*?\)(?P=d)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'
                  r"(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.DOTALL)


def code_only(text):
    """The text with comments and literals blanked out, lines kept."""
    return SKIP.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def is_test(name):
    return name.endswith("_test.cc") or name.startswith(("tests/", "bench/"))


def check_file(name, text):
    """(pattern, line number) of every use; tests may do all but sleep."""
    found = []
    for number, line in enumerate(code_only(text).splitlines(), 1):
        for pattern, expression in PATTERNS.items():
            if (pattern == "sleep_for" or not is_test(name)) and expression.search(line):
                found.append((pattern, number))
    return found


def read_allowlist(text):
    lines = (line.split("#", 1)[0].split() for line in text.splitlines())
    return {(entry[0], entry[1]) for entry in lines if entry}


def judge(found, allowlist):
    """found: {name: [(pattern, line)]}. Returns the findings as texts."""
    findings, used = [], set()
    for name, uses in sorted(found.items()):
        for pattern, number in uses:
            if (pattern, name) in allowlist:
                used.add((pattern, name))
            else:
                findings.append(f"{name}:{number}: '{pattern}' outside the platform (docs/architecture.md, invariants)")
    for pattern, name in sorted(allowlist - used):
        findings.append(f"tools/source_allowlist.txt: '{pattern} {name}' is not needed any more: delete it")
    return findings


def main(root):
    found = {}
    for top in ("src", "backends", "tests", "bench"):
        for file in (root / top).rglob("*"):
            if file.suffix in (".h", ".cc"):
                name = file.relative_to(root).as_posix()
                found[name] = check_file(name, file.read_text())
    findings = judge(found, read_allowlist((root / "tools" / "source_allowlist.txt").read_text()))
    for finding in findings:
        print(finding)
    print(f"check_source: {len(found)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(__file__).resolve().parents[1]))
