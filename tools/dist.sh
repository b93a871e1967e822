#!/usr/bin/env bash
# Packs the installed tree of build/release into build/tidemark-VERSION-ARCH.tar.gz.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -nE 's/^project\(tidemark VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
name=tidemark-$version-$(uname -m)
rm -rf build/dist
cmake --install build/release --prefix "$PWD/build/dist/$name" >/dev/null
tar -C build/dist --owner=0 --group=0 -czf "build/$name.tar.gz" "$name"
printf 'build/%s.tar.gz\n' "$name"
