"""An answer whose memory an engine made, and which a slow client has not read yet, holds nothing of its model."""

import json
import re
import socket

import numpy as np
import pytest
from onnx import TensorProto, helper
from served import Served, make_model

import onnx_models as models

COUNT = 4 << 20  # the answer has eight bytes for each: more than any socket takes


@pytest.fixture
def server(tmp_path):
    nonzero = models.graph([helper.make_node("NonZero", ["X"], ["Y"])], [models.value("X", TensorProto.FLOAT, ["n"])],
                           [models.value("Y", TensorProto.INT64, [1, None])])
    make_model(tmp_path / "models", "nonzero", nonzero)
    with Served(tmp_path / "models", log=tmp_path / "log") as running:
        yield running
        assert running.stop() == 0


def memory(server):
    return json.loads(server.get("/v2/memory")[1])


def test_an_unload_does_not_wait_for_who_reads_slowly(server):
    assert server.load("nonzero")[0] == 200
    assert memory(server)["rows"] > 0
    head = json.dumps({"inputs": [{"name": "X", "datatype": "FP32", "shape": [COUNT],
                                   "parameters": {"binary_data_size": 4 * COUNT}}],
                       "parameters": {"binary_data_output": True}}).encode()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # before it connects: the window stays small
        slow.settimeout(60)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(b"POST /v2/models/nonzero/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\n"
                     b"Content-Length: %d\r\n\r\n" % (len(head), len(head) + 4 * COUNT) + head)
        slow.sendall(np.ones(COUNT, np.float32).tobytes())
        got = bytearray(slow.recv(4096))  # the execution has ended, the answer is on its way
        assert got.startswith(b"HTTP/1.1 200")

        assert server.unload("nonzero") == (200, "")
        after = memory(server)
        assert after["rows"] == 0, "nothing of the model is left"
        assert after["requests"]["used_bytes"] >= 8 * COUNT, "the answer is still there, and the server's"

        body = got.index(b"\r\n\r\n") + 4
        whole = body + int(re.search(rb"\r\nContent-Length: (\d+)", got).group(1))
        while len(got) < whole:
            got += slow.recv(1 << 20)
        values = np.frombuffer(bytes(got), np.int64, COUNT, whole - 8 * COUNT)
        assert np.array_equal(values, np.arange(COUNT))
    server._await(lambda: memory(server)["requests"]["used_bytes"] < 8 * COUNT, 120, "give the answer's memory back")
