#!/usr/bin/env bash
# On the GPU machine, in the repository's root: unpacks what .device brings and runs one part of the GPU tests.
#   tests/gpu/run.sh lean|trt10 [--quick]      results in $OUT (gpu-out), see tests/gpu/README.md
set -euo pipefail
cd "$(dirname "$0")/../.."
part=${1:?lean or trt10}; shift
work=${TIDEMARK_GPU_WORK:-/tmp/tidemark-gpu}
out=${OUT:-gpu-out}
mkdir -p "$work" "$out"
for archive in .device/*.tar.xz; do
  [ -e "$archive" ] || continue
  # In Python, for machines without xz.
  python3 - "$archive" "$work" <<'PYTHON'
import sys, tarfile
with tarfile.open(sys.argv[1], "r:xz") as archive:
    archive.extractall(sys.argv[2])
PYTHON
done
PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 python3 tests/gpu/run.py "$part" --work "$work" --out "$out" "$@" 2>&1 | tee "$out/run-$part.log"
exit "${PIPESTATUS[0]}"
