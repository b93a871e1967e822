#!/usr/bin/env python3
"""sum_results.py DIR [FAILED_TARGET...]: adds up DIR/*.xml (JUnit); the last line is "N passed, N failed".

Each failed test is named, with the end of what it said, so that a log of which only the last part was kept is still enough.
A target that failed without a failed test in its file (a build that broke, a check) counts as one failure.
"""

import pathlib
import sys
import xml.etree.ElementTree as xml

# Characters of a failed test's words that are repeated.
SAID_LIMIT = 3000


def counts(text):
    """(passed, failed, skipped) of one JUnit document."""
    passed = failed = skipped = 0
    for case in xml.fromstring(text).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("disabled", "notrun"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def failures(text):
    """(name, what it said) of each failed test of one JUnit document."""
    for case in xml.fromstring(text).iter("testcase"):
        said = [case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None]
        if not said and case.get("status") != "fail":
            continue
        output = case.find("system-out")
        texts = [node.text or node.get("message") or "" for node in [*said, output] if node is not None]
        yield f"{case.get('classname', '')}::{case.get('name')}", "\n".join(filter(None, texts))


def main(folder, failed_targets):
    passed = failed = 0
    for file in sorted(pathlib.Path(folder).glob("*.xml")):
        good, bad, skipped = counts(file.read_text())
        for name, said in failures(file.read_text()):
            print(f"FAILED {file.stem}: {name}\n{said[-SAID_LIMIT:]}")
        print(f"{file.stem}: {good} passed, {bad} failed, {skipped} skipped")
        passed, failed = passed + good, failed + bad
        target = "test-" + file.stem
        if bad and target in failed_targets:
            failed_targets.remove(target)
    for target in failed_targets:
        print(f"{target}: failed")
    failed += len(failed_targets)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
