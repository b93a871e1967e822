"""Faults that were met in another server of this protocol. Each test is named after one and shows that it is not here."""

import json
import os
import pathlib
import socket

import numpy as np
import pytest
import tritonclient.http as triton
from onnx_models import addsub_model
from served import Served, make_model

SHM = pathlib.Path("/dev/shm")
IDENTITY = """backend: "identity"
input {{ name: "IN" data_type: {dtype} dims: -1 }}
output {{ name: "OUT" data_type: {dtype} dims: -1 }}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_model(root, "floats", b"", filename="unused", config=IDENTITY.format(dtype="TYPE_FP32"))
    make_model(root, "strings", b"", filename="unused", config=IDENTITY.format(dtype="TYPE_STRING"))
    make_model(root, "addsub", addsub_model())
    make_model(root, "refused", addsub_model(), config='backend: "onnxruntime" max_batch_size: 4\n'
               'output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 }\n')
    with Served(root, "--load-model=floats", "--load-model=strings", "--allow-client-shm=true") as running:
        yield running
        assert running.stop() == 0, running.log()


class Object:
    """A shared-memory object of the test's own."""

    def __init__(self, size):
        self.key = f"/tidemark_test_{os.getpid()}_fault"
        (SHM / self.key[1:]).write_bytes(bytes(size))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        (SHM / self.key[1:]).unlink()


def register(server, name, key, byte_size, offset=0):
    status, body = server.post(f"/v2/systemsharedmemory/region/{name}/register",
                               {"key": key, "byte_size": byte_size, "offset": offset})
    return status, json.loads(body)["error"] if body else ""


def unregister(server):
    assert server.post("/v2/systemsharedmemory/unregister")[0] == 200


def shm_descriptors(server):
    return sum(target.startswith(str(SHM)) for target in server.open_files())


@pytest.mark.parametrize("model", ["floats", "addsub"])
def test_unload_right_after_load_does_not_crash(server, model):
    for _ in range(300):
        assert server.load(model) == (200, "")
        assert server.unload(model) == (200, "")
    assert server.process.poll() is None
    assert server.load("floats") == (200, "")


def test_classification_of_a_bytes_output_is_an_error_and_no_crash(server):
    request = {"inputs": [{"name": "IN", "datatype": "BYTES", "shape": [1], "data": ["a"]}],
               "outputs": [{"name": "OUT", "parameters": {"classification": 1}}]}
    status, body = server.post("/v2/models/strings/infer", request)
    assert status == 400
    assert json.loads(body)["error"] == "class result not available for output due to unsupported type 'BYTES'"
    assert server.get("/v2/health/live")[0] == 200


def test_descriptor_of_a_refused_or_removed_region_is_not_used_again(server):
    """Refused, registered and removed in turn, with the same key, beside a connection that must live through it."""
    bystander = triton.InferenceServerClient(server.url)
    assert bystander.is_server_live()
    with Object(4096) as thing:
        for _ in range(5):
            assert register(server, "r", thing.key, 8192)[0] == 400
            assert register(server, "r", thing.key, 0)[0] == 400
            assert shm_descriptors(server) == 0, "a refused registration keeps nothing"
            assert register(server, "r", thing.key, 4096) == (200, "")
            assert shm_descriptors(server) == 1
            assert bystander.is_server_live()
            unregister(server)
            assert shm_descriptors(server) == 0
    bystander.close()


def test_region_whose_offset_and_size_wrap_around_is_refused_by_the_check(server):
    with Object(8192) as thing:
        for offset, size in ((4096, 2**64 - 4096), (4096, 2**64 - 1), (2**64 - 4096, 4096), (2**64 - 1, 2)):
            status, error = register(server, "wrap", thing.key, size, offset)
            assert status == 400
            assert error.startswith("failed to register shared memory region 'wrap': invalid args")
    assert json.loads(server.get("/v2/systemsharedmemory/status")[1]) == []


def test_failed_load_of_one_model_does_not_stop_the_serving_ones(server):
    """A refused load shows in strict readiness, as documented; what serves goes on, and one unload or `strict-readiness=false`
    clears it."""
    try:
        assert server.load("refused")[0] == 400
        assert server.get("/v2/health/live")[0] == 200
        assert server.get("/v2/models/floats/ready")[0] == 200
        with server.client() as client:
            tensor = triton.InferInput("IN", [2], "FP32")
            tensor.set_data_from_numpy(np.ones(2, dtype=np.float32))
            assert client.infer("floats", [tensor]).as_numpy("OUT").tolist() == [1, 1]
    finally:
        server.unload("refused")
    assert server.get("/v2/health/ready")[0] == 200


def test_failed_reload_keeps_the_server_ready(server, tmp_path):
    """The old version serves on, so that nothing is missing."""
    assert server.get("/v2/health/ready")[0] == 200
    status, error = server.load("floats", config='{"backend": "identity", "input": [], "max_batch_size": -1}')
    assert status == 400 and error
    assert server.get("/v2/models/floats/ready")[0] == 200
    assert server.get("/v2/health/ready")[0] == 200


def test_failed_load_leaves_readiness_alone_when_it_is_not_strict(tmp_path):
    make_model(tmp_path, "floats", b"", filename="unused", config=IDENTITY.format(dtype="TYPE_FP32"))
    make_model(tmp_path, "broken", b"", filename="unused", config='backend: "nobody"\n')
    with Served(tmp_path, "--load-model=floats", "--strict-readiness=false") as lenient:
        assert lenient.load("broken")[0] == 400
        assert lenient.get("/v2/health/ready")[0] == 200


def test_identity_model_with_control_inputs_does_not_abort(server, tmp_path):
    control = ('sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } } '
               'control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [0, 1] } } }\n')
    make_model(tmp_path, "sequence", b"", filename="unused",
               config=IDENTITY.format(dtype="TYPE_FP32") + "max_batch_size: 4\n" + control)
    with Served(tmp_path) as other:
        status, _ = other.load("sequence")
        if status == 200:
            request = {"parameters": {"sequence_id": 1, "sequence_start": True, "sequence_end": True},
                       "inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
            status, body = other.post("/v2/models/sequence/infer", request)
            assert status == 200 and json.loads(body)["outputs"][0]["data"] == [1.0, 2.0]
        assert other.get("/v2/health/live")[0] == 200
        assert other.stop() == 0


def test_empty_compressed_or_cut_bodies_are_refused(server):
    for headers, body in (({"Content-Encoding": "gzip"}, b""), ({"Content-Encoding": "gzip"}, b"no gzip"),
                          ({"Inference-Header-Content-Length": "96x"}, b"{}"), ({"Inference-Header-Content-Length": ""}, b"{}")):
        status, answer = server.request("POST", "/v2/models/floats/infer", body, headers)
        assert status == 400 and json.loads(answer)["error"], headers


def test_connection_of_another_client_survives_a_region_of_size_zero(server):
    """A raw idle connection: nothing but the server's own mistake could close it."""
    with socket.create_connection(("127.0.0.1", server.port)) as idle, Object(4096) as thing:
        idle.sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
        assert idle.recv(4096).startswith(b"HTTP/1.1 200")
        for _ in range(20):
            assert register(server, "zero", thing.key, 0)[0] == 400
        idle.sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
        assert idle.recv(4096).startswith(b"HTTP/1.1 200")
