"""Self-tests of the summing of test results: a red run must not look green, and must say what failed."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import sum_results  # noqa: E402

CTEST = '<testsuite><testcase name="a" status="fail"><failure message=""/><system-out>boom</system-out></testcase></testsuite>'
PYTEST = ('<testsuites><testsuite><testcase classname="c" name="ok"/><testcase classname="c" name="red">'
          '<failure message="m">a trace</failure></testcase></testsuite></testsuites>')


class SumResults(unittest.TestCase):
    def run_on(self, files, targets=()):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
            for name, text in files.items():
                pathlib.Path(folder, name).write_text(text)
            code = sum_results.main(folder, list(targets))
        return code, out.getvalue()

    def test_failures_are_counted_and_named_with_what_they_said(self):
        code, out = self.run_on({"asan.xml": CTEST, "clients.xml": PYTEST})
        self.assertEqual(code, 1)
        self.assertEqual(out.splitlines()[-1], "1 passed, 2 failed")
        for part in ("FAILED asan: ::a", "boom", "FAILED clients: c::red", "a trace"):
            self.assertIn(part, out)

    def test_a_target_that_failed_without_a_failed_test_counts_once(self):
        code, out = self.run_on({"asan.xml": CTEST}, ["test-asan", "lint"])
        self.assertEqual((code, out.splitlines()[-1]), (1, "0 passed, 2 failed"))
        self.assertIn("lint: failed", out)


if __name__ == "__main__":
    unittest.main()
