"""Every public method of the unmodified tritonclient.http (sync and aio) against the server."""

import asyncio
import base64
import copy
import inspect
import json

import numpy as np
import pytest
import tritonclient.http as sync_client
import tritonclient.http.aio as aio_client
from onnx_models import DTYPES, addsub_model
from tritonclient.utils import InferenceServerException

# Called by the tests below. test_no_method_is_left_out holds this list against the client.
CALLED = {
    "is_server_live", "is_server_ready", "is_model_ready", "get_server_metadata", "get_model_metadata",
    "get_model_config", "get_model_repository_index", "load_model", "unload_model", "get_inference_statistics",
    "update_trace_settings", "get_trace_settings", "update_log_settings", "get_log_settings",
    "get_system_shared_memory_status", "register_system_shared_memory", "unregister_system_shared_memory",
    "get_cuda_shared_memory_status", "register_cuda_shared_memory", "unregister_cuda_shared_memory",
    "generate_request_body", "parse_response_body", "infer", "async_infer", "close", "register_plugin",
    "unregister_plugin", "plugin",
}


@pytest.fixture
def client(server):
    with server.client(concurrency=4) as opened:
        yield opened


def samples(kserve, numpy_type):
    if kserve == "BYTES":
        return np.array([b"", b"a\0b", "größe".encode(), b"\xff\xfe", b"x" * 70000], dtype=np.object_)
    if kserve == "BOOL":
        return np.array([True, False, True])
    if np.issubdtype(numpy_type, np.integer):
        info = np.iinfo(numpy_type)
        return np.array([info.min, info.max, 0, 1], dtype=numpy_type)
    return np.array([0.0, -1.5, np.inf, -np.inf, np.finfo(numpy_type).max], dtype=numpy_type)


def tensor(module, name, array, kserve, binary=True):
    made = module.InferInput(name, list(array.shape), kserve)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def addsub_inputs(module, binary=True):
    a = np.arange(32, dtype=np.float32).reshape(2, 16)
    b = np.full((2, 16), 0.1, dtype=np.float32)
    return a, b, [tensor(module, "INPUT0", a, "FP32", binary), tensor(module, "INPUT1", b, "FP32", binary)]


def test_no_method_is_left_out():
    for module in (sync_client, aio_client):
        public = {name for name, _ in inspect.getmembers(module.InferenceServerClient, callable)
                  if not name.startswith("_")}
        assert public <= CALLED, f"{module.__name__}: not called by any test: {public - CALLED}"


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("addsub") and client.is_model_ready("addsub", "1")
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found"):
        client.get_model_metadata("nobody")
    metadata = client.get_server_metadata()
    assert metadata["name"] == "triton" and "binary_tensor_data" in metadata["extensions"]
    model = client.get_model_metadata("addsub")
    assert model["name"] == "addsub" and model["versions"] == ["1"] and model["platform"] == "onnxruntime_onnx"
    assert {"name": "INPUT0", "datatype": "FP32", "shape": [-1, 16]} in model["inputs"]
    config = client.get_model_config("addsub")
    assert config["max_batch_size"] == 4 and config["backend"] == "onnxruntime"
    assert config["input"][0]["data_type"] == "TYPE_FP32"


# tritonclient itself refuses FP16 in JSON.
@pytest.mark.parametrize("kserve, binary_in, binary_out", [
    (kserve, binary_in, binary_out) for kserve in DTYPES for binary_in in (True, False) for binary_out in (True, False)
    if kserve != "FP16" or (binary_in and binary_out)])
def test_every_datatype_comes_back(client, kserve, binary_in, binary_out):
    array = samples(kserve, DTYPES[kserve][1])
    if kserve == "BYTES" and not (binary_in and binary_out):
        array = np.array([b"plain", b"", "größe".encode()], dtype=np.object_)  # JSON carries text
    if array.dtype.kind == "f" and not (binary_in and binary_out):
        array = array[np.isfinite(array)]
    answer = client.infer(f"identity_{kserve.lower()}",
                          [tensor(sync_client, "INPUT0", array, kserve, binary_in)],
                          outputs=[sync_client.InferRequestedOutput("OUTPUT0", binary_data=binary_out)])
    got = answer.as_numpy("OUTPUT0")
    if kserve == "BYTES" and not binary_out:
        got = np.array([item if isinstance(item, bytes) else item.encode() for item in got], dtype=np.object_)
    assert got.shape == array.shape
    assert (got == array).all()


@pytest.mark.parametrize("options", [
    {}, {"request_compression_algorithm": "gzip"}, {"request_compression_algorithm": "deflate"},
    {"response_compression_algorithm": "gzip"}, {"response_compression_algorithm": "deflate"},
    {"request_id": "r-1"}, {"query_params": {"a": "b"}}, {"headers": {"X-Some": "thing"}},
    {"model_version": "1"}, {"parameters": {"custom": "value", "number": 7}}, {"timeout": 1000000, "priority": 0},
])
@pytest.mark.parametrize("binary", [True, False])
def test_infer_options(client, options, binary):
    a, b, inputs = addsub_inputs(sync_client, binary)
    answer = client.infer("addsub", inputs, **copy.deepcopy(options))  # the client writes into `headers`
    assert np.array_equal(answer.as_numpy("OUTPUT0"), a + b) and np.array_equal(answer.as_numpy("OUTPUT1"), a - b)
    response = answer.get_response()
    assert response["model_name"] == "addsub" and response["model_version"] == "1"
    assert response.get("id", "") == options.get("request_id", "")


def test_one_requested_output(client):
    _, _, inputs = addsub_inputs(sync_client)
    answer = client.infer("addsub", inputs, outputs=[sync_client.InferRequestedOutput("OUTPUT1")])
    assert [output["name"] for output in answer.get_response()["outputs"]] == ["OUTPUT1"]


def test_classification_with_labels(client):
    array = np.array([[0.1, 0.9, 0.3, 0.2, 0.8]], dtype=np.float32)
    answer = client.infer("classes", [tensor(sync_client, "INPUT0", array, "FP32")],
                          outputs=[sync_client.InferRequestedOutput("OUTPUT0", class_count=2)])
    rows = [row.decode() if isinstance(row, bytes) else row for row in answer.as_numpy("OUTPUT0")[0]]
    assert rows == ["0.900000:1:bee", "0.800000:4:eel"]


def test_async_infer(client):
    a, b, inputs = addsub_inputs(sync_client)
    pending = [client.async_infer("addsub", inputs) for _ in range(16)]
    for one in pending:
        assert np.array_equal(one.get_result().as_numpy("OUTPUT0"), a + b)


def test_static_body_helpers(server):
    a, b, inputs = addsub_inputs(sync_client)
    body, header = sync_client.InferenceServerClient.generate_request_body(inputs)
    status, answer = server.request("POST", "/v2/models/addsub/infer", body,
                                    {"Inference-Header-Content-Length": str(header)} if header else {})
    assert status == 200
    document = json.loads(answer) if answer.startswith(b"{") and not header else None
    assert document is None or document["model_name"] == "addsub"
    parsed = sync_client.InferenceServerClient.parse_response_body(
        json.dumps({"outputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [3]}]}).encode())
    assert parsed.as_numpy("X").tolist() == [3]


@pytest.mark.parametrize("change, text", [
    (lambda i: i.pop(), "expected 2 inputs but got 1 inputs for model 'addsub'"),
    (lambda i: i[0].set_shape([2, 15]), "unexpected shape for input|byte size mismatch|unexpected total byte size"),
])
def test_wrong_requests_are_refused_by_name(client, change, text):
    _, _, inputs = addsub_inputs(sync_client)
    change(inputs)
    with pytest.raises(InferenceServerException, match=text) as caught:
        client.infer("addsub", inputs)
    assert caught.value.status() in ("400", None)


def test_statistics_count(client):
    before = client.get_inference_statistics("addsub")["model_stats"][0]
    a, b, inputs = addsub_inputs(sync_client)
    for _ in range(5):
        client.infer("addsub", inputs)
    after = client.get_inference_statistics("addsub", "1")["model_stats"][0]
    assert after["inference_count"] - before["inference_count"] == 10
    assert after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"] == 5
    names = [entry["name"] for entry in client.get_inference_statistics()["model_stats"]]
    assert "addsub" in names and names == sorted(names)


def test_load_and_unload(client, repository):
    assert any(entry["name"] == "addsub" for entry in client.get_model_repository_index())
    client.unload_model("addsub")
    assert not client.is_model_ready("addsub")
    client.load_model("addsub")
    assert client.is_model_ready("addsub")
    config = json.dumps({"backend": "onnxruntime", "max_batch_size": 2,
                         "input": [{"name": n, "data_type": "TYPE_FP32", "dims": [16]} for n in ("INPUT0", "INPUT1")],
                         "output": [{"name": n, "data_type": "TYPE_FP32", "dims": [16]}
                                    for n in ("OUTPUT0", "OUTPUT1")]})
    client.load_model("addsub", config=config)
    assert client.get_model_config("addsub")["max_batch_size"] == 2
    client.load_model("addsub", config=config, files={"file:7/model.onnx": addsub_model()})
    assert client.get_model_metadata("addsub")["versions"] == ["7"]
    client.unload_model("addsub", unload_dependents=True)
    client.load_model("addsub")
    assert client.get_model_metadata("addsub")["versions"] == ["1"]
    with pytest.raises(InferenceServerException, match="failed to load 'nobody', failed to poll"):
        client.load_model("nobody")


def test_trace_and_log_settings(client):
    settings = client.get_trace_settings()
    assert settings["trace_level"] == ["OFF"] and settings["trace_rate"] == "1000"
    changed = client.update_trace_settings("addsub", {"trace_rate": "7"})
    assert changed["trace_rate"] == "7" and client.get_trace_settings("addsub")["trace_rate"] == "7"
    assert client.get_trace_settings()["trace_rate"] == "1000"
    client.update_trace_settings("addsub", {"trace_rate": None})
    log = client.get_log_settings()
    assert log["log_info"] is True
    assert client.update_log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1
    client.update_log_settings({"log_verbose_level": log["log_verbose_level"]})


def test_shared_memory_is_off_unless_allowed(client):
    assert client.get_system_shared_memory_status() == []
    assert client.get_cuda_shared_memory_status() == []
    for call in (lambda: client.register_system_shared_memory("r", "/k", 64),
                 lambda: client.unregister_system_shared_memory("r"),
                 lambda: client.register_cuda_shared_memory("r", base64.b64encode(bytes(64)), 0, 64),
                 lambda: client.unregister_cuda_shared_memory("r")):
        with pytest.raises(InferenceServerException, match="Client shared memory is disabled"):
            call()


def test_plugin(client):
    class Header(sync_client.InferenceServerClientPlugin if hasattr(sync_client, "InferenceServerClientPlugin")
                 else __import__("tritonclient._plugin", fromlist=["x"]).InferenceServerClientPlugin):
        seen = 0

        def __call__(self, request):
            self.seen += 1
            request.headers["X-Plugin"] = "1"

    plugin = Header()
    client.register_plugin(plugin)
    assert client.plugin() is plugin and client.is_server_live() and plugin.seen == 1
    client.unregister_plugin()


def test_everything_again_with_aio(server):
    async def run():
        async with aio_client.InferenceServerClient(server.url) as client:
            assert await client.is_server_live() and await client.is_server_ready()
            assert await client.is_model_ready("addsub")
            assert (await client.get_server_metadata())["name"] == "triton"
            assert (await client.get_model_metadata("addsub"))["name"] == "addsub"
            assert (await client.get_model_config("addsub"))["name"] == "addsub"
            assert await client.get_model_repository_index()
            await client.unload_model("addsub")
            await client.load_model("addsub")
            assert (await client.get_inference_statistics("addsub"))["model_stats"]
            assert (await client.get_trace_settings())["trace_level"] == ["OFF"]
            await client.update_trace_settings(settings={"trace_rate": "1000"})
            assert (await client.get_log_settings())["log_error"] is True
            await client.update_log_settings({"log_info": True})
            assert await client.get_system_shared_memory_status() == []
            assert await client.get_cuda_shared_memory_status() == []
            for call in (client.register_system_shared_memory("r", "/k", 64),
                         client.unregister_system_shared_memory("r"),
                         client.register_cuda_shared_memory("r", base64.b64encode(bytes(64)), 0, 64),
                         client.unregister_cuda_shared_memory("r")):
                with pytest.raises(InferenceServerException, match="Client shared memory is disabled"):
                    await call
            a, b, inputs = addsub_inputs(aio_client)
            for options in ({}, {"request_compression_algorithm": "gzip"}, {"response_compression_algorithm": "gzip"},
                            {"response_compression_algorithm": "deflate"}):
                answers = await asyncio.gather(*(client.infer("addsub", inputs, **options) for _ in range(8)))
                for answer in answers:
                    assert np.array_equal(answer.as_numpy("OUTPUT0"), a + b)
    asyncio.run(run())
