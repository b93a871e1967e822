#!/usr/bin/env bash
# Runs the given make targets one after another, all of them whatever fails, and ends with one line that sums the
# JUnit files which they left: "N passed, N failed". Exit 0 only if every target and every test passed.
set -uo pipefail
cd "$(dirname "$0")/.."
rm -rf build/test-results
mkdir -p build/test-results
failed=()
for target in "$@"; do
  printf '\n== %s\n' "$target"
  start=$SECONDS
  "${MAKE:-make}" --no-print-directory "$target" || failed+=("$target")
  printf '== %s took %d s\n' "$target" $((SECONDS - start))
done
python3 tools/sum_results.py build/test-results "${failed[@]}"
