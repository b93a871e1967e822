#!/usr/bin/env bash
# The main job on real input: serve real models, refuse a broken configuration six times while the good one serves,
# and let the auditor say whether the memory came back. Everything it writes is under demo-out/.
set -euo pipefail
cd "$(dirname "$0")/.."
exec .venv/bin/python tools/demo.py "$@"
