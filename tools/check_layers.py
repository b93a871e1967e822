#!/usr/bin/env python3
"""Holds the #includes of src/ and backends/ against the table "Who may include whom" in docs/architecture.md."""

import pathlib
import re
import sys

ROW = re.compile(r"^\|\s*(?P<who>`[^|]*)\|\s*(?P<may>[^|]*)\|\s*$")
NAME = re.compile(r"`([a-z_/*]+)`")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
TEST_ONLY = {"tests/support"}


def read_table(text):
    """Folder -> the set of folders it may include; the section's table is the only source."""
    section = text.split("Who may include whom", 1)
    if len(section) != 2:
        raise ValueError('docs/architecture.md: no section "Who may include whom"')
    table = {}
    for line in section[1].splitlines():
        if line.startswith("#"):
            break
        row = ROW.match(line)
        if row:
            for folder in NAME.findall(row["who"]):
                table[folder] = set(NAME.findall(row["may"]))
    if not table:
        raise ValueError('docs/architecture.md: "Who may include whom" has no rows')
    return table


def folder_of(include, folders):
    """The layer that an include path belongs to; None for third-party and same-folder names."""
    parts = include.split("/")
    if parts[0] == "backends" and len(parts) > 2:
        return "/".join(parts[:2])
    if parts[0] == "tests" and len(parts) > 2:
        return "/".join(parts[:2])
    return parts[0] if len(parts) > 1 and parts[0] in folders else None


def allowed(who, target, table, is_test):
    if who == target or (is_test and target in TEST_ONLY):
        return True
    row = table.get(who, table.get("backends/*") if who.startswith("backends/") else None)
    if row is None:
        return False
    return target in row or (target.startswith("backends/") and "backends/*" in row)


def check_file(name, text, table):
    """Findings of one file; name is relative to the root, with slashes."""
    parts = name.split("/")
    who = parts[1] if parts[0] == "src" else "/".join(parts[:2])
    if who not in table and not (who.startswith("backends/") and "backends/*" in table):
        return [f"{name}: folder '{who}' has no row in the table of docs/architecture.md"]
    findings = []
    for number, line in enumerate(text.splitlines(), 1):
        include = INCLUDE.match(line)
        target = include and folder_of(include[1], table.keys() | {"proto"})
        if target and not allowed(who, target, table, name.endswith("_test.cc") or "_test/" in name):
            findings.append(f"{name}:{number}: '{who}' may not include '{target}' ({include[1]})")
    return findings


def main(root):
    table = read_table((root / "docs" / "architecture.md").read_text())
    files = sorted(f for top in ("src", "backends") for f in (root / top).rglob("*") if f.suffix in (".h", ".cc"))
    findings = []
    for file in files:
        findings += check_file(file.relative_to(root).as_posix(), file.read_text(), table)
    for finding in findings:
        print(finding)
    print(f"check_layers: {len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(__file__).resolve().parents[1]))
