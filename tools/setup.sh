#!/usr/bin/env bash
# Installs what Tidemark needs, on Debian 12 or 13 and Ubuntu 24.04, as root or with sudo.
#   tools/setup.sh build    Debian packages, and the engines' libraries into .deps/engines (default)
#   tools/setup.sh test     the same, a Python environment for the client tests and the demo in .venv, the tritonserver of
#                           NVIDIA's wheel in .deps/tritonserver, to compare with, perf_analyzer, and TensorRT for RTX
#   tools/setup.sh bench    the same, and wrk and h2load
# Everything but the packages stays inside this checkout. A second run looks and finds nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."
export DEBIAN_FRONTEND=noninteractive

mode=${1:-build}
case "$mode" in build|test|bench) ;; *) sed -n '2,6p' "$0"; exit 2;; esac

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

[ -r /etc/os-release ] || die "no /etc/os-release: this needs Debian 12 or 13, or Ubuntu 24.04"
. /etc/os-release
case "${ID:-}:${VERSION_ID:-}" in
  debian:12) clang_rt=libclang-rt-14-dev;;
  debian:13) clang_rt=libclang-rt-19-dev;;
  ubuntu:24.04) clang_rt=libclang-rt-18-dev;;
  *) die "found ${PRETTY_NAME:-an unknown system}; expected Debian 12 or 13, or Ubuntu 24.04";;
esac

packages=(g++ cmake ninja-build ccache pkg-config make git
  libabsl-dev libprotobuf-dev protobuf-compiler libspdlog-dev libfmt-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev
  zlib1g-dev libnghttp2-dev libssl-dev libcpp-httplib-dev libgtest-dev libgmock-dev prometheus-cpp-dev
  clang clang-format lld "$clang_rt" python3 python3-venv python3-pip curl unzip ca-certificates procps)

# name, version, platform's tag of the wheel, its sha256. Wheels are taken by the machine's platform; the Python tag
# only names one of several wheels that carry the same library.
case "$(uname -m)" in
  x86_64)
    ort_platform=manylinux_2_28_x86_64
    ort_sha=99e1074c4b2197accd5073052a465361be17b89c093b8ffb6e6bd8f986c52df8
    ov_platform=manylinux_2_28_x86_64
    ov_sha=6b4375c17ddcac83a5180349e2e2bb811185c261066e2a920659892d58ef0e3b;;
  aarch64)
    ort_platform=manylinux_2_28_aarch64
    ort_sha=e36c187006e7a7c8b8d6d57f1a209dd63f52430dca6c282b177718ad6b841054
    ov_platform=manylinux_2_35_aarch64
    ov_sha=82efccb2f9f1bdc7e5a1996e05a3b719ebff9232dd54b44150d6d2e983a86b7d;;
  *) die "no engine wheels for $(uname -m); expected x86_64 or aarch64";;
esac
ort_version=1.32.0
ov_version=2026.4.1
triton_version=0.7.0
triton_platform=manylinux_2_35_x86_64
triton_sha=21f063ff93bb426d0c06b7a55e7eb9efcfe62c0dddd9a908e9877e18710128df
# What that server's Python models need: newer numpys are unknown to it.
numpy_version=1.26.4
numpy_platform=manylinux_2_17_x86_64

# TensorRT for RTX: another product, but a real library of the family that starts without a GPU. For tests only.
rtx_version=1.7.1.116
rtx_platform=manylinux_2_28_x86_64
rtx_sha=e3fd45fed001240d63304e77a2d4006319b839994237cb294b6e7ad72acaabcd

# Triton's load generator, whose every protocol the tests drive the server by.
perf_version=2.60.0
perf_platform=manylinux_2_38_x86_64
perf_sha=23ef56b107ae9233e5cf09fbdf508dd9b936a52f1bae2f63f53c8117087b3f25
# perf_analyzer opens CUDA's runtime before it makes shared memory of any kind, a GPU or not.
cudart_version=12.9.79
cudart_platform=manylinux_2_17_x86_64
cudart_sha=25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo --preserve-env=DEBIAN_FRONTEND "$@"
  else die "packages are missing and this is neither root nor is there sudo: install them by hand: $*"; fi
}

install_packages() {
  local missing=() name
  for name in "${packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  if [ ${#missing[@]} = 0 ]; then say "${#packages[@]} packages: all installed"; return; fi
  say "installing ${#missing[@]} packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# stamped FOLDER TEXT: was FOLDER finished from exactly this TEXT?
stamped() { [ "$(cat "$1/.stamp" 2>/dev/null)" = "$2" ]; }

# fetch_wheel NAME VERSION PLATFORM SHA256 [PYTHON]: the wheel's path in $wheel, checked.
fetch_wheel() {
  mkdir -p .deps/wheels
  [ -x .deps/pip/bin/pip ] || python3 -m venv .deps/pip
  # pip itself checks the hash, before anything is unpacked.
  printf '%s==%s --hash=sha256:%s\n' "$1" "$2" "$4" > ".deps/wheels/$1.txt"
  say "fetching $1 $2 for $3"
  .deps/pip/bin/pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --platform "$3" --python-version "${5:-312}" -d .deps/wheels -r ".deps/wheels/$1.txt"
  wheel=$(ls .deps/wheels/"${1//-/_}"-"$2"*"$3"*.whl)
  printf '%s  %s\n' "$4" "$wheel" | sha256sum -c --quiet -
}

# Moves a finished folder into its place: a run that is interrupted leaves the old one or none.
put() { printf '%s' "$3" > "$1/.stamp"; rm -rf "$2"; mv "$1" "$2"; }

install_onnxruntime() {
  local to=.deps/engines/onnxruntime stamp="2 $ort_version $ort_sha"
  if stamped $to "$stamp"; then say "ONNX Runtime $ort_version: there"; return; fi
  fetch_wheel onnxruntime $ort_version $ort_platform $ort_sha
  rm -rf .deps/new && mkdir -p .deps/new .deps/engines
  unzip -q -j "$wheel" "onnxruntime/capi/libonnxruntime.so.$ort_version" onnxruntime/LICENSE onnxruntime/ThirdPartyNotices.txt -d .deps/new
  ln -s "libonnxruntime.so.$ort_version" .deps/new/libonnxruntime.so
  ln -s "libonnxruntime.so.$ort_version" .deps/new/libonnxruntime.so.1
  put .deps/new $to "$stamp"; rm -f "$wheel"
}

install_openvino() {
  local to=.deps/engines/openvino stamp="2 $ov_version $ov_sha" library
  if stamped $to "$stamp"; then say "OpenVINO $ov_version: there"; return; fi
  fetch_wheel openvino $ov_version $ov_platform $ov_sha
  rm -rf .deps/new .deps/unpacked && mkdir -p .deps/new/libs .deps/engines
  # The GPU and NPU plugins, other front ends and the Python modules stay behind; what the CMake package names is kept.
  unzip -q "$wheel" 'openvino/include/*' 'openvino/cmake/*' 'openvino/libs/*' 'openvino-*/*' -d .deps/unpacked
  mv .deps/unpacked/openvino/include .deps/unpacked/openvino/cmake .deps/new/
  for library in .deps/unpacked/openvino/libs/*; do
    case "$(basename "$library")" in
      *_gpu_plugin* | *_npu_plugin* | *_auto_*plugin* | *_hetero_plugin* | cache.json | *.pc) ;;
      *) mv "$library" .deps/new/libs/;;
    esac
  done
  mkdir -p .deps/new/licenses
  find .deps/unpacked/openvino-*.dist-info/licenses -type f -exec cp {} .deps/new/licenses/ \;
  put .deps/new $to "$stamp"; rm -rf .deps/unpacked "$wheel"
}

install_python() {
  local stamp; stamp=$(cat tests/clients/requirements.txt tests/clients/requirements-nodeps.txt tools/setup.sh <(python3 --version) | sha256sum)
  if stamped .venv "$stamp"; then say "Python environment: there"; return; fi
  say "making the Python environment .venv (client libraries and real models for tests and demo)"
  rm -rf .venv; python3 -m venv .venv
  .venv/bin/pip install -q --disable-pip-version-check -r tests/clients/requirements.txt
  # They ask for frameworks of gigabytes that are not needed for what is used of them.
  .venv/bin/pip install -q --disable-pip-version-check --no-deps -r tests/clients/requirements-nodeps.txt
  printf '%s' "$stamp" > .venv/.stamp
}

install_rtx() {
  local to=.deps/tensorrt_rtx stamp="1 $rtx_version $rtx_sha"
  [ "$(uname -m)" = x86_64 ] || { say "TensorRT for RTX: tests use it on x86_64 only: skipped"; return; }
  if stamped $to "$stamp"; then say "TensorRT for RTX $rtx_version: there"; return; fi
  fetch_wheel tensorrt-rtx-cu13-libs $rtx_version $rtx_platform $rtx_sha
  rm -rf .deps/new && mkdir -p .deps/new
  unzip -q -j "$wheel" '*/libtensorrt_rtx.so.1' '*/LICENSE.txt' -d .deps/new
  put .deps/new $to "$stamp"; rm -f "$wheel"
}

install_peer() {
  local to=.deps/tritonserver python numpy_sha stamp
  [ "$(uname -m)" = x86_64 ] || { say "the peer exists for x86_64 only: skipped, nothing will be compared with it"; return; }
  python=$(python3 -c 'import sys; print("%d%d" % sys.version_info[:2])')
  case "$python" in
    310) numpy_sha=ffa75af20b44f8dba823498024771d5ac50620e6915abac414251bd971b4529f;;
    311) numpy_sha=666dbfb6ec68962c033a450943ded891bed2d54e6755e35e5835d63f4f6931d5;;
    312) numpy_sha=675d61ffbfa78604709862923189bad94014bef562cc35cf61d3a07bba02a7ed;;
    *) say "the peer's models run on Python 3.10 to 3.12, this is $python: skipped, nothing will be compared with it"; return;;
  esac
  stamp="3 $triton_version $triton_sha $numpy_sha"
  if stamped $to "$stamp"; then say "tritonserver of nvidia-pytriton $triton_version: there"; return; fi
  rm -rf .deps/new && mkdir -p .deps/new/python
  fetch_wheel numpy $numpy_version $numpy_platform $numpy_sha "$python"
  unzip -q "$wheel" -d .deps/new/python; rm -f "$wheel"
  fetch_wheel nvidia-pytriton $triton_version $triton_platform $triton_sha
  unzip -q "$wheel" -d .deps/new; rm -f "$wheel"
  chmod +x .deps/new/pytriton/tritonserver/bin/*
  put .deps/new $to "$stamp"
}

# newer_libc FOLDER: Debian 13's C and C++ runtime, unpacked into FOLDER, for programs that are too new for this system;
# fetched by apt from this machine's own mirror and checked by Debian's signature.
newer_libc() {
  local mirror at; at=$(pwd)/.deps/apt
  mirror=$(grep -hoE '[a-z]+://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -1 || true)
  rm -rf "$at" && mkdir -p "$at/lists/partial" "$at/cache/archives/partial" "$1"
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s trixie main\n' "${mirror:-http://deb.debian.org/debian}" > "$at/sources.list"
  local apt=(apt-get -qq -o "Dir::Etc::SourceList=$at/sources.list" -o Dir::Etc::SourceParts=/dev/null
             -o "Dir::State::Lists=$at/lists" -o "Dir::Cache=$at/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1)
  "${apt[@]}" update || return 1
  (cd "$at" && "${apt[@]}" download libc6 libstdc++6 libgcc-s1 libssl3t64 zlib1g libzstd1) || return 1
  local package
  for package in "$at"/*.deb; do dpkg-deb -x "$package" "$1" || return 1; done
  rm -rf "$at"
}

install_perf_analyzer() {
  local to=.deps/perf_analyzer stamp="2 $perf_version $perf_sha $cudart_sha"
  [ "$(uname -m)" = x86_64 ] || { say "perf_analyzer exists for x86_64 only: skipped"; return; }
  if stamped $to "$stamp"; then say "perf_analyzer $perf_version: there"; return; fi
  fetch_wheel perf-analyzer $perf_version $perf_platform $perf_sha
  rm -rf .deps/new && mkdir -p .deps/new
  unzip -q -j "$wheel" perf_analyzer/bin/perf_analyzer '*/LICENSE' -d .deps/new
  chmod +x .deps/new/perf_analyzer
  if ! .deps/new/perf_analyzer --version >/dev/null 2>&1; then
    say "perf_analyzer needs a newer C library than this system's: fetching Debian 13's, for it alone"
    newer_libc .deps/new/runtime || { say "it cannot be had here: skipped, the tests with perf_analyzer too"; return; }
  fi
  rm -f "$wheel"
  fetch_wheel nvidia-cuda-runtime-cu12 $cudart_version $cudart_platform $cudart_sha
  unzip -q -j "$wheel" '*/libcudart.so.12' -d .deps/new
  ln -s libcudart.so.12 .deps/new/libcudart.so
  put .deps/new $to "$stamp"; rm -f "$wheel"
}

if [ "$mode" = bench ]; then packages+=(wrk nghttp2-client); fi
if [ "$mode" = test ]; then packages+=(libboost-dev); fi  # headers of Boost.Beast, for one fuzzer; 138 MB
# A browser for the test of the dashboard, 64 MiB to fetch; Ubuntu has none as a package, and the test is skipped there.
if [ "$mode" != build ] && [ "${ID:-}" = debian ] && ! command -v chromium >/dev/null; then
  packages+=(chromium-headless-shell)
fi
install_packages
install_onnxruntime
install_openvino
if [ "$mode" != build ]; then install_python; install_rtx; fi
if [ "$mode" != build ]; then install_peer; install_perf_analyzer; fi
say "ready ($mode)"
