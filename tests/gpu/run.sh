#!/usr/bin/env bash
# On the GPU machine, in the repository's root: unpacks what .device brings and runs one part of the GPU tests.
#   tests/gpu/run.sh lean|trt10 [--quick]      results in $OUT (gpu-out), see tests/gpu/README.md
set -euo pipefail
cd "$(dirname "$0")/../.."
part=${1:?lean or trt10}; shift
work=${TIDEMARK_GPU_WORK:-/tmp/tidemark-gpu}
out=${OUT:-gpu-out}
mkdir -p "$work" "$out"
# In Python, for machines without xz.
python3 - "$work" .device/*.xz <<'PYTHON'
import lzma, os, pathlib, shutil, sys, tarfile
work = pathlib.Path(sys.argv[1])
for archive in map(pathlib.Path, sys.argv[2:]):
    if archive.name.endswith(".tar.xz"):
        with tarfile.open(archive, "r:xz") as packed:
            packed.extractall(work)
    elif archive.name == "trt10.so.xz":
        (work / "trt").mkdir(exist_ok=True)
        with lzma.open(archive) as packed, open(work / "trt" / "libnvinfer.so.10", "wb") as library:
            shutil.copyfileobj(packed, library, 1 << 20)
PYTHON
PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 python3 tests/gpu/run.py "$part" --work "$work" --out "$out" "$@" 2>&1 | tee "$out/run-$part.log"
exit "${PIPESTATUS[0]}"
