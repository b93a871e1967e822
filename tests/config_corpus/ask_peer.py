#!/usr/bin/env python3
"""Asks NVIDIA's tritonserver for the configurations of right/*.pbtxt and writes what it answers beside them.

The peer is tests/clients/peer.py's. It has the Python backend only, so files with `# listing:` or `# gpus:` (other engines, GPUs) are not asked for; what it
refuses is printed and gets no JSON. Run it again when files are added; the JSON files are committed.
"""

import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "clients"))

from peer import NUMPY, Peer  # noqa: E402

MODEL = """import sys
sys.path.insert(0, {site!r})  # the stub's own interpreter does not look there
import numpy as np
import triton_python_backend_utils as pb
class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("OUTPUT0", np.zeros((1, 4), np.float32))]) for _ in requests]
"""
MEMBER = ('backend: "python"\ninput { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] }\n'
          'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] }\n')


def headers(text):
    lines = [line[2:].split(": ", 1) for line in text.splitlines() if line.startswith("# ") and ": " in line]
    return {key: value for key, value in lines}


def add(repository, name, config, source, labels=()):
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(source)
    (folder.parent / "config.pbtxt").write_text(config)
    if labels:
        (folder.parent / "labels.txt").write_text("\n".join(labels) + "\n")


def main():
    source = MODEL.format(site=str(NUMPY))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="peer-"))
    repository = folder / "models"
    names = []
    for file in sorted((HERE / "right").glob("*.pbtxt")):
        head = headers(file.read_text())
        if "listing" in head or "gpus" in head:
            continue
        names.append(file.stem)
        add(repository, file.stem, file.read_text(), source, head.get("labels", "").split())
    add(repository, "member", MEMBER, source)
    # Nothing is loaded at the start: one model that fails must not take the server with it.
    server = Peer(repository, folder / "log", "--disable-auto-complete-config")
    refused = 0
    try:
        for name in names:
            target = HERE / "right" / f"{name}.json"
            status, body = server.request("POST", f"/v2/repository/models/{name}/load", b"")
            if status == 200:
                status, body = server.get(f"/v2/models/{name}/config")
            if status == 200:
                target.write_text(json.dumps(json.loads(body), indent=1, sort_keys=True) + "\n")
            else:
                refused += 1
                print(f"{name}: {status} {body.decode(errors='replace').strip()}")
            server.request("POST", f"/v2/repository/models/{name}/unload", b"")
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(names)} asked, {refused} refused")


if __name__ == "__main__":
    main()
