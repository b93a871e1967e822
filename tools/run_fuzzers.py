#!/usr/bin/env python3
"""Runs every libFuzzer program of a build folder (…_fuzz, …_fuzzer) for a while, on its corpus; writes a JUnit file."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--junit", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    programs = sorted(p for p in arguments.build.rglob("*") if p.name.endswith(("_fuzz", "_fuzzer"))
                      and p.is_file() and os.access(p, os.X_OK))
    suite = xml.Element("testsuite", name="fuzz")
    failures = 0
    for program in programs:
        work = arguments.build.resolve() / "corpus" / program.name
        work.mkdir(parents=True, exist_ok=True)
        seed = ROOT / "tests" / "fuzz" / "corpus" / program.name
        artifacts = arguments.build.resolve() / "findings" / program.name
        shutil.rmtree(artifacts, ignore_errors=True)
        artifacts.mkdir(parents=True)
        command = [str(program), f"-max_total_time={arguments.seconds}", "-timeout=10", "-rss_limit_mb=2048",
                   "-print_final_stats=1", f"-artifact_prefix={artifacts}/", str(work)]
        run = subprocess.run(command + ([str(seed)] if seed.is_dir() else []), capture_output=True, text=True, errors="replace")
        good = run.returncode == 0
        runs = [line for line in run.stderr.splitlines() if "number_of_executed_units" in line]
        print(f"{program.name}: {'passed' if good else 'FAILED'} {runs[0] if runs else ''}", flush=True)
        case = xml.SubElement(suite, "testcase", classname="fuzz", name=program.name)
        if not good:
            failures += 1
            print(run.stderr[-6000:])
            xml.SubElement(case, "failure", message=f"exit status {run.returncode}; input in {artifacts}")
    xml.ElementTree(suite).write(arguments.junit)
    if not programs:
        print(f"no fuzzers in {arguments.build}")
    return 1 if failures or not programs else 0


if __name__ == "__main__":
    sys.exit(main())
