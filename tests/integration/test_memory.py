"""The promise, from outside: whatever is loaded, failed and unloaded, the process comes back to the mark.

Anonymous memory is the kernel's figure (smaps_rollup); descriptors and threads are counted in /proc. The mark is taken
after one good cycle of another model, so that an engine's one-time memory is in it.
"""

import collections
import json
import os
import pathlib
import time

import numpy as np
import pytest
from served import Served, ServedSession, make_model

import onnx_models as models
from onnx import TensorProto

MIB = 1 << 20


def anonymous(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Anonymous:"))


def counts(server):
    """Descriptors (without sockets: the clients' connections come and go by themselves) and threads."""
    found = collections.Counter(link for link in server.open_files() if not link.startswith("socket:"))
    found["threads"] = len(list(pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()))
    return found


class Mark:
    """Figures of the server now; `check` compares later ones.

    A thread that was joined stays in /proc for a moment longer, also when the mark is taken: fewer of them are right.
    """

    def __init__(self, server):
        self.server, self.memory, self.counts = server, anonymous(server), counts(server)

    def difference(self):
        now = counts(self.server)
        fewer = self.counts - now
        del fewer["threads"]
        return (now - self.counts) + fewer

    def check(self, tolerance=MIB):
        end = time.monotonic() + 60
        while (difference := self.difference()) and time.monotonic() < end:
            pass
        assert not difference
        grown = anonymous(self.server) - self.memory
        assert grown <= tolerance, f"{grown / MIB:.2f} MiB above the mark"


def config(engine, name, columns, fault=None):
    output, dims, inputs = "TYPE_FP32", columns, 1024 if name == "weights" else 16
    if fault == "datatype":
        output = "TYPE_INT32"
    if fault == "shape":
        dims += 1
    second = 'input { name: "INPUT1" data_type: TYPE_FP32 dims: 16 }\n' if name == "tiny" and fault != "input" else ""
    extra = 'output { name: "OUTPUT1" data_type: TYPE_FP32 dims: 16 }\n' if name == "tiny" else ""
    wrong = 'input { name: "NOBODY" data_type: TYPE_FP32 dims: 16 }\n' if fault == "input" else ""
    return (f'backend: "{engine}" max_batch_size: 4 default_model_filename: "model.onnx"\n'
            f'input {{ name: "INPUT0" data_type: TYPE_FP32 dims: {inputs} }}\n{second}{wrong}'
            f'output {{ name: "OUTPUT0" data_type: {output} dims: {dims} }}\n{extra}')


FILES = {"tiny": (models.addsub_model(), 16), "weights": (models.weights_model(64), 64 * 256)}
# $TIDEMARK_SOAK_CYCLES: as many for the large model, which takes minutes for each case.
CYCLES = {"tiny": 1000, "weights": int(os.environ.get("TIDEMARK_SOAK_CYCLES", "30"))}
TOLERANCE = {"onnxruntime": MIB, "openvino": 4 * MIB}


@pytest.fixture(scope="module", params=["onnxruntime", "openvino"])
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def server(engine, tmp_path_factory):
    root = tmp_path_factory.mktemp(engine)
    for name, (data, columns) in FILES.items():
        make_model(root, name, data, config(engine, name, columns))
        for fault in ("datatype", "shape", "input"):
            make_model(root, f"{name}_{fault}", data, config(engine, name, columns, fault).replace("name: \"model\"", ""))
        make_model(root, f"{name}_truncated", data[:len(data) // 2], config(engine, name, columns))
        make_model(root, f"{name}_garbage", b"garbage" * 100, config(engine, name, columns))
    make_model(root, "other", models.identity_model(TensorProto.FLOAT, ("n", 4)),
               f'backend: "{engine}" default_model_filename: "model.onnx" max_batch_size: 2\n'
               'input { name: "INPUT0" data_type: TYPE_FP32 dims: 4 }\n'
               'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 4 }\n')
    with Served(root, "--disable-auto-complete-config", log=root / "server.log") as running:
        assert running.load("other")[0] == 200, running.log()
        assert running.unload("other")[0] == 200
        yield running
        assert running.stop() == 0


def feed(name):
    if name == "tiny":
        return {"INPUT0": np.ones((1, 16), np.float32), "INPUT1": np.ones((1, 16), np.float32)}
    return {"INPUT0": np.ones((1, 1024), np.float32)}


@pytest.mark.parametrize("name", FILES)
def test_cycles_come_back_to_the_mark(server, engine, name):
    with server.client() as client:
        session = ServedSession(client, name, {"INPUT0": np.float32, "INPUT1": np.float32})
        for turn in range(CYCLES[name] + 3):
            if turn == 3:
                mark = Mark(server)
            assert server.load(name)[0] == 200
            session.run(["OUTPUT0"], feed(name))
            assert server.unload(name)[0] == 200
        mark.check(TOLERANCE[engine])


@pytest.mark.parametrize("fault", ["datatype", "shape", "input", "truncated", "garbage"])
@pytest.mark.parametrize("name", FILES)
def test_failed_loads_come_back_to_the_mark(server, engine, name, fault):
    model = f"{name}_{fault}"
    for turn in range(CYCLES[name] + 3):
        if turn == 3:
            mark = Mark(server)
        status, text = server.load(model)
        assert status == 400 and f"load failed for model '{model}'" in text, text
    mark.check(TOLERANCE[engine])
    assert server.unload(model)[0] == 200
    index = json.loads(server.post("/v2/repository/index")[1])
    assert next(entry for entry in index if entry["name"] == model)["reason"] == "unloaded"


def test_a_broken_update_changes_nothing_for_the_old_version(server, engine):
    columns = FILES["tiny"][1]
    assert server.load("tiny")[0] == 200
    overrides = json.dumps({"backend": engine, "max_batch_size": 4, "default_model_filename": "model.onnx",
                            "input": [{"name": n, "data_type": "TYPE_FP32", "dims": [16]} for n in ("INPUT0", "INPUT1")],
                            "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [columns]},
                                       {"name": "OUTPUT1", "data_type": "TYPE_FP32", "dims": [16]}]})
    with server.client() as client:
        session = ServedSession(client, "tiny", {"INPUT0": np.float32, "INPUT1": np.float32})
        session.run(["OUTPUT0"], feed("tiny"))
        for turn in range(23):
            if turn == 3:
                mark = Mark(server)
            status, text = server.load("tiny", config=overrides)
            assert status == 400 and "OUTPUT0" in text
            assert session.run(["OUTPUT0"], feed("tiny"))[0].tolist() == [[2.0] * 16]
        mark.check(TOLERANCE[engine])
    assert server.unload("tiny")[0] == 200
