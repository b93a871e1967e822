#!/usr/bin/env python3
"""Runs every libFuzzer program of a build folder (…_fuzz, …_fuzzer) for a while, on its corpus; writes a JUnit file."""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run(program, build, seconds):
    """Fuzzes `program` on its corpus and the repository's seeds; (exit status, what it wrote, where findings go)."""
    work = build / "corpus" / program.name
    work.mkdir(parents=True, exist_ok=True)
    seed = ROOT / "tests" / "fuzz" / "corpus" / program.name
    artifacts = build / "findings" / program.name
    shutil.rmtree(artifacts, ignore_errors=True)
    artifacts.mkdir(parents=True)
    command = [str(program), f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1",
               f"-artifact_prefix={artifacts}/", str(work)]
    done = subprocess.run(command + ([str(seed)] if seed.is_dir() else []), capture_output=True, text=True, errors="replace")
    text = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in done.stderr)  # what XML can hold
    return done.returncode, text, artifacts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=60, help="for each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="fuzzers at one time")
    parser.add_argument("--junit", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    programs = sorted(p for p in arguments.build.rglob("*") if p.name.endswith(("_fuzz", "_fuzzer"))
                      and p.is_file() and os.access(p, os.X_OK))
    suite = xml.Element("testsuite", name="fuzz")
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda program: run(program, arguments.build.resolve(), arguments.seconds), programs)
        for program, (status, text, artifacts) in zip(programs, results):
            runs = [line for line in text.splitlines() if "number_of_executed_units" in line]
            print(f"{program.name}: {'FAILED' if status else 'passed'} {runs[0] if runs else ''}", flush=True)
            case = xml.SubElement(suite, "testcase", classname="fuzz", name=program.name)
            if status:
                failures += 1
                print(text[-6000:])
                xml.SubElement(case, "failure", message=f"exit status {status}; input in {artifacts}").text = text[-6000:]
    xml.ElementTree(suite).write(arguments.junit)
    if not programs:
        print(f"no fuzzers in {arguments.build}")
    return 1 if failures or not programs else 0


if __name__ == "__main__":
    sys.exit(main())
