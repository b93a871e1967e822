#!/usr/bin/env bash
# Fills .device with what tests/gpu/run.sh needs on a machine with a GPU that can fetch nothing:
#   tests/gpu/prepare.sh base  BUILD           the programs of a build folder (stripped) and their shared libraries
#   tests/gpu/prepare.sh lean  PLANS           TensorRT 11.2.1.2's lean runtime (PyPI) and the plans of that folder
#   tests/gpu/prepare.sh trt10 PLANS [LIBRARY] TensorRT 10.6's runtime (Maven), plans, and ONNX Runtime's answers
# Each becomes .device/NAME.tar.xz, and the library of trt10 .device/trt10.so.xz: two calls of 64 MiB carry everything.
# LIBRARY is a libnvinfer.so.10, plain or .xz, that is already there.
set -euo pipefail
cd "$(dirname "$0")/../.."
part=${1:?base, lean or trt10}; from=${2:?a folder}
work=.device/work-$part
rm -rf "$work"; mkdir -p "$work"
pack() {
  tar -C "$work" --owner=0 --group=0 -cf - . | nice xz -T0 --x86 --lzma2=preset=6,dict=64MiB > ".device/$part.tar.xz"
  rm -rf "$work"
  ls -la ".device/$part.tar.xz"
}

case "$part" in
base)
  mkdir -p "$work/bin" "$work/lib"
  for program in tidemark tidemark-leaky-server tests/gpu/tidemark_gpu_test bench/gpu/tidemark_gpu_bench; do
    [ -x "$from/$program" ] || { echo "prepare: no $from/$program" >&2; exit 1; }
    strip -o "$work/bin/$(basename "$program")" "$from/$program"
  done
  # All but the C and C++ libraries, which the machine has.
  for program in "$work"/bin/*; do
    ldd "$from/tidemark" "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
  done | sort -u | grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)\.so' | xargs -I{} cp -L {} "$work/lib/"
  # The state library of the fakes is linked by the test; it is not what is tested there.
  cp -L "$from"/fake_gpu/libtidemark_fake_gpu.so "$work/lib/" 2>/dev/null || true
  ;;
lean)
  wheel=tensorrt-lean-cu13-libs version=11.2.1.2 sha=52641b1d5370af7035338aafdca81c0e493b7adffa82a5b45e016871b4df558e
  [ -x .deps/pip/bin/pip ] || python3 -m venv .deps/pip
  printf '%s==%s --hash=sha256:%s\n' $wheel $version $sha > "$work/requirements.txt"
  .deps/pip/bin/pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --platform manylinux_2_28_x86_64 --python-version 312 -d "$work" -r "$work/requirements.txt"
  mkdir -p "$work/trt" "$work/plans"
  unzip -q -j "$work"/*.whl '*/libnvinfer_lean.so.11' '*/LICENSE.txt' -d "$work/trt"
  rm "$work"/*.whl "$work/requirements.txt"
  cp "$from"/*.plan "$work/plans/"
  ;;
trt10)
  mkdir -p "$work/plans-10.6" "$work/expected"
  library=${3:-}
  if [ -z "$library" ]; then
    # 1.1 GB, of which one file is needed.
    artifact=org.bytedeco:tensorrt:10.6-1.5.11:jar:linux-x86_64-redist
    mvn -q -B dependency:get -Dmaven.repo.local="$PWD/.device/m2" -Dtransitive=false -Dartifact=$artifact
    jar=$(find .device/m2 -name 'tensorrt-10.6-*-linux-x86_64-redist.jar')
    echo "e7979693541f996bc284335b05f5e890a82b8b3aba50d680e1343a139cf291c4  $jar" | sha256sum -c --quiet -
    unzip -q -o -j "$jar" '*/libnvinfer.so.10' -d .device/
    library=.device/libnvinfer.so.10
  fi
  case "$library" in
    *.xz) cp "$library" .device/trt10.so.xz;;
    *) nice xz -c -T0 --x86 --lzma2=preset=6,dict=64MiB "$library" > .device/trt10.so.xz;;
  esac
  cp "$from"/*.plan "$work/plans-10.6/"
  .venv/bin/python tests/gpu/expected.py "$work/expected"
  ls -la .device/trt10.so.xz
  ;;
*) sed -n '2,9p' "$0"; exit 2;;
esac
pack
