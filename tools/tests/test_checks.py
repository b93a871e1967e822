"""Self-tests of the source checks: each must fail when what it guards is broken."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import check_layers  # noqa: E402
import check_source  # noqa: E402

TABLE = check_layers.read_table("""
### Who may include whom
| folder | may include |
| --- | --- |
| `base` | only the standard library |
| `resource` | `base` |
| `server`, `cli` | `base`, `resource`, `backends/*` |
| `backends/*` | `base` |
## Next
| `base` | `server` |
""")


class Layers(unittest.TestCase):
    def check(self, name, include):
        return check_layers.check_file(name, f'#include "{include}"\n', TABLE)

    def test_what_the_table_names_is_allowed(self):
        self.assertEqual(self.check("src/resource/ledger.h", "base/status.h"), [])
        self.assertEqual(self.check("src/cli/main.cc", "backends/identity/identity.h"), [])
        self.assertEqual(self.check("backends/identity/a.cc", "backends/identity/a.h"), [])

    def test_what_the_table_does_not_name_is_found_with_its_line(self):
        self.assertIn("src/base/status.h:1:", self.check("src/base/status.h", "resource/ledger.h")[0])
        self.assertTrue(self.check("backends/identity/a.cc", "resource/scope.h"))
        self.assertTrue(self.check("backends/identity/a.cc", "backends/openvino/a.h"))

    def test_a_folder_without_a_row_is_found(self):
        self.assertTrue(self.check("src/secret/a.cc", "base/status.h"))

    def test_only_tests_may_include_test_support(self):
        self.assertEqual(self.check("src/base/a_test.cc", "tests/support/fake.h"), [])
        self.assertTrue(self.check("src/base/a.cc", "tests/support/fake.h"))

    def test_third_party_headers_are_not_layers(self):
        self.assertEqual(self.check("src/base/a.cc", "absl/status/status.h"), [])


class Source(unittest.TestCase):
    def found(self, text, name="src/base/a.cc"):
        return [pattern for pattern, _ in check_source.check_file(name, text)]

    def test_each_pattern_is_found(self):
        for text, pattern in [("cudaMallocAsync(&p);", "cudaMalloc"), ("cuMemAlloc(&p, 1);", "cuMem"),
                              ("cudaStreamCreateWithFlags(s, 0);", "cudaStreamCreate"), ("::dlopen(p, 0);", "dlopen"),
                              ("mmap(nullptr);", "mmap"), ("int f = ::open(p);", "open"), ("mkdtemp(n);", "mkdtemp"),
                              ("std::thread t(f);", "thread"), ("auto* p = new Thing();", "new"),
                              ("std::getenv(n);", "getenv"), ("std::this_thread::sleep_for(d);", "sleep_for")]:
            self.assertEqual(self.found(text), [pattern], text)

    def test_comments_literals_and_look_alikes_are_not_found(self):
        for text in ["// a new one: open(", "/* mmap( */", 'Log("new thing open(x)");', "stream.open(p);", "reopen(p);",
                     "x->open(p);", "std::thread::hardware_concurrency()", "::new (memory) Header{}", "int news = 1'000;"]:
            self.assertEqual(self.found(text), [], text)

    def test_tests_may_do_all_but_sleep(self):
        self.assertEqual(self.found("open(p); new T; sleep_for(d);", "src/base/a_test.cc"), ["sleep_for"])

    def test_an_entry_that_is_not_needed_is_a_finding(self):
        allow = check_source.read_allowlist("# why\nopen src/a.cc\nmmap src/a.cc # both\n")
        self.assertEqual(check_source.judge({"src/a.cc": [("open", 1), ("mmap", 2)]}, allow), [])
        self.assertEqual(len(check_source.judge({"src/a.cc": [("open", 1)]}, allow)), 1)

    def test_a_use_without_entry_is_a_finding(self):
        self.assertIn("src/a.cc:7", check_source.judge({"src/a.cc": [("open", 7)]}, set())[0])


if __name__ == "__main__":
    unittest.main()
