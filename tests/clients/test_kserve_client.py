"""KServe's own client against this server: the cases of kserve_cases.py."""

import pathlib
import subprocess
import sys

CASES = pathlib.Path(__file__).with_name("kserve_cases.py")


def test_all_cases_pass_in_a_process_of_their_own():
    """KServe's messages have the names of tritonclient's: one process can have either, not both."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
