#!/usr/bin/env python3
"""sum_results.py DIR [FAILED_TARGET...]: adds up DIR/*.xml (JUnit); the last line is "N passed, N failed".

A target that failed without a failed test in its file (a build that broke, a check) counts as one failure.
"""

import pathlib
import sys
import xml.etree.ElementTree as xml


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


def main(folder, failed_targets):
    passed = failed = 0
    for file in sorted(pathlib.Path(folder).glob("*.xml")):
        good, bad, skipped = counts(file.read_text())
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
