"""Every public method of the unmodified tritonclient.grpc (sync and aio), health and reflection, against the server."""

import asyncio
import inspect
import json
import queue
import subprocess

import grpc
import numpy as np
import pytest
import tritonclient.grpc as sync_client
import tritonclient.grpc.aio as aio_client
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from onnx_models import DTYPES, addsub_model
from served import Served, make_model, test_program
from test_tritonclient_http import samples
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

# Called by the tests below. test_no_method_is_left_out holds this list against the client.
CALLED = {
    "is_server_live", "is_server_ready", "is_model_ready", "get_server_metadata", "get_model_metadata",
    "get_model_config", "get_model_repository_index", "load_model", "unload_model", "get_inference_statistics",
    "update_trace_settings", "get_trace_settings", "update_log_settings", "get_log_settings",
    "get_system_shared_memory_status", "register_system_shared_memory", "unregister_system_shared_memory",
    "get_cuda_shared_memory_status", "register_cuda_shared_memory", "unregister_cuda_shared_memory",
    "infer", "async_infer", "start_stream", "stop_stream", "async_stream_infer", "stream_infer", "close",
    "register_plugin", "unregister_plugin", "plugin",
}
ADDSUB = "addsub"
REPEAT = """backend: "repeat" model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: -1 } input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 }
input { name: "WAIT" data_type: TYPE_UINT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 } output { name: "IDX" data_type: TYPE_UINT32 dims: 1 }"""
IDENTITY = ('backend: "identity" input {{ name: "INPUT0" data_type: TYPE_{0} dims: -1 }} '
            'output {{ name: "OUTPUT0" data_type: TYPE_{0} dims: -1 }}')
HOUR_MS = 3_600_000


@pytest.fixture
def client(server):
    with sync_client.InferenceServerClient(server.grpc_url) as opened:
        yield opened


@pytest.fixture(scope="session")
def decoupled(tmp_path_factory):
    root = tmp_path_factory.mktemp("decoupled")
    make_model(root, "repeat", b"", filename="unused", config=REPEAT)
    make_model(root, "identity", b"", filename="unused", config=IDENTITY.format("INT32"))
    with Served(root, "--load-model=*", program=test_program(),
                log=tmp_path_factory.mktemp("log") / "server.log") as running:
        yield running
        assert running.stop() == 0, running.log()


def tensor(module, name, array, kserve):
    made = module.InferInput(name, list(array.shape), kserve)
    made.set_data_from_numpy(array)
    return made


def addsub_inputs(module):
    a = np.arange(32, dtype=np.float32).reshape(2, 16)
    b = np.full((2, 16), 0.1, dtype=np.float32)
    return a, b, [tensor(module, "INPUT0", a, "FP32"), tensor(module, "INPUT1", b, "FP32")]


def repeat_inputs(values, delay_ms=0):
    return [tensor(sync_client, "IN", np.array(values, dtype=np.int32), "INT32"),
            tensor(sync_client, "DELAY", np.full(len(values), delay_ms, dtype=np.uint32), "UINT32"),
            tensor(sync_client, "WAIT", np.zeros(1, dtype=np.uint32), "UINT32")]


class Stream:
    """An open ModelStreamInfer whose answers are read one by one."""

    def __init__(self, client, **options):
        self.answers = queue.Queue()
        self.client = client
        client.start_stream(lambda result, error: self.answers.put((result, error)), **options)

    def next(self):
        result, error = self.answers.get(timeout=60)
        if error is not None:
            raise error
        return result

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.stop_stream()


def test_no_method_is_left_out():
    for module in (sync_client, aio_client):
        public = {name for name, _ in inspect.getmembers(module.InferenceServerClient, callable)
                  if not name.startswith("_")}
        assert public <= CALLED, f"{module.__name__}: not called by any test: {public - CALLED}"


def test_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready(ADDSUB) and client.is_model_ready(ADDSUB, "1")
    metadata = client.get_server_metadata(as_json=True)
    assert metadata["name"] == "triton" and "binary_tensor_data" in metadata["extensions"]
    model = client.get_model_metadata(ADDSUB, as_json=True)
    assert model["name"] == ADDSUB and model["versions"] == ["1"] and model["platform"] == "onnxruntime_onnx"
    assert {"name": "INPUT0", "datatype": "FP32", "shape": ["-1", "16"]} in model["inputs"]
    config = client.get_model_config(ADDSUB).config
    assert config.max_batch_size == 4 and config.backend == "onnxruntime"


def test_both_protocols_list_the_same_extensions(server, client):
    over_http = json.loads(server.get("/v2")[1])
    metadata = client.get_server_metadata()
    assert list(metadata.extensions) == over_http["extensions"] and "memory" in over_http["extensions"]
    assert (metadata.name, metadata.version) == (over_http["name"], over_http["version"])


@pytest.mark.parametrize("call, code, text", [
    (lambda c: c.is_model_ready("nobody"), "NOT_FOUND", "Request for unknown model: 'nobody' is not found"),
    (lambda c: c.get_model_metadata(ADDSUB, "7"), "NOT_FOUND", "Request for unknown model: 'addsub' version 7 is not found"),
    (lambda c: c.get_model_config(ADDSUB, "x"), "INVALID_ARGUMENT",
     "failed to get model version from specified version string 'x' (details: stol), version should be an integral value > 0"),
    (lambda c: c.get_model_config(ADDSUB, "-2"), "INVALID_ARGUMENT",
     "invalid model version specified '-2' , version should be an integral value > 0"),
    (lambda c: c.get_inference_statistics("nobody"), "INVALID_ARGUMENT", "requested model 'nobody' is not available"),
    (lambda c: c.get_inference_statistics(ADDSUB, "9"), "INVALID_ARGUMENT",
     "requested model version is not available for model 'addsub'"),
    (lambda c: c.load_model("nobody"), "NOT_FOUND", "failed to load 'nobody', failed to poll from model repository"),
    (lambda c: c.update_log_settings({"log_file": "/x"}), "UNIMPLEMENTED",
     "log file location can not be updated through network protocol"),
    (lambda c: c.update_log_settings({"log_format": "other"}), "INVALID_ARGUMENT",
     "invalid argument for log_format, got: other"),
    (lambda c: c.update_trace_settings(settings={"trace_rate": "x"}), "INVALID_ARGUMENT",
     "Unable to parse 'trace_rate', got: x"),
    (lambda c: c.update_trace_settings(settings={"trace_count": "-5"}), "INVALID_ARGUMENT",
     "Unable to parse 'trace_count'. Expecting value >= -1, got: -5"),
    (lambda c: c.update_trace_settings(settings={"trace_rate": ["1", "2"]}), "INVALID_ARGUMENT",
     "expect only 1 value for 'trace_rate'"),
    (lambda c: c.get_trace_settings("nobody"), "NOT_FOUND", "Request for unknown model: 'nobody' is not found"),
])
def test_errors_have_tritons_codes_and_texts(client, call, code, text):
    with pytest.raises(InferenceServerException) as caught:
        call(client)
    assert caught.value.status() == f"StatusCode.{code}"
    assert text in caught.value.message()


@pytest.mark.parametrize("kserve", DTYPES)
def test_every_datatype_comes_back(client, kserve):
    array = samples(kserve, DTYPES[kserve][1])
    answer = client.infer(f"identity_{kserve.lower()}", [tensor(sync_client, "INPUT0", array, kserve)])
    got = answer.as_numpy("OUTPUT0")
    assert got.shape == array.shape and (got == array).all()


CONTENTS = {"BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
            "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
            "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents"}


@pytest.mark.parametrize("kserve", CONTENTS)
def test_typed_contents_come_back_as_raw_ones(server, client, kserve):
    array = samples(kserve, DTYPES[kserve][1])
    request = service_pb2.ModelInferRequest(model_name=f"identity_{kserve.lower()}")
    given = request.inputs.add(name="INPUT0", datatype=kserve, shape=array.shape)
    getattr(given.contents, CONTENTS[kserve]).extend(array.tolist())
    raw = client.infer(f"identity_{kserve.lower()}", [tensor(sync_client, "INPUT0", array, kserve)])
    with grpc.insecure_channel(server.grpc_url) as channel:
        answer = sync_client.service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    assert list(answer.raw_output_contents) == list(raw.get_response().raw_output_contents)


def test_a_long_string_and_a_large_tensor(client):
    for array, kserve in ((np.array([b"x" * (1 << 20)], dtype=np.object_), "BYTES"),
                          (np.random.default_rng(0).random(4 << 20, dtype=np.float32), "FP32"),
                          (np.zeros(0, dtype=np.float32), "FP32")):
        answer = client.infer(f"identity_{kserve.lower()}", [tensor(sync_client, "INPUT0", array, kserve)])
        assert (answer.as_numpy("OUTPUT0") == array).all()


@pytest.mark.parametrize("options", [
    {}, {"compression_algorithm": "gzip"}, {"compression_algorithm": "deflate"}, {"request_id": "r-1"},
    {"headers": {"some": "thing"}}, {"model_version": "1"}, {"parameters": {"custom": "value", "number": 7, "on": True}},
    {"timeout": 1000000, "priority": 0}, {"client_timeout": 60}, {"sequence_id": 7, "sequence_start": True},
    {"sequence_id": "seven", "sequence_end": True},
])
def test_infer_options(client, options):
    a, b, inputs = addsub_inputs(sync_client)
    answer = client.infer(ADDSUB, inputs, **options)
    assert np.array_equal(answer.as_numpy("OUTPUT0"), a + b) and np.array_equal(answer.as_numpy("OUTPUT1"), a - b)
    response = answer.get_response()
    assert response.model_name == ADDSUB and response.model_version == "1"
    assert response.id == options.get("request_id", "")


def test_one_requested_output_and_classes(client):
    _, _, inputs = addsub_inputs(sync_client)
    answer = client.infer(ADDSUB, inputs, outputs=[sync_client.InferRequestedOutput("OUTPUT1")])
    assert [output.name for output in answer.get_response().outputs] == ["OUTPUT1"]
    array = np.array([[0.1, 0.9, 0.3, 0.2, 0.8]], dtype=np.float32)
    answer = client.infer("classes", [tensor(sync_client, "INPUT0", array, "FP32")],
                          outputs=[sync_client.InferRequestedOutput("OUTPUT0", class_count=2)])
    assert answer.as_numpy("OUTPUT0")[0].tolist() == [b"0.900000:1:bee", b"0.800000:4:eel"]


def test_async_infer(client):
    a, b, inputs = addsub_inputs(sync_client)
    answers = queue.Queue()
    for _ in range(32):
        client.async_infer(ADDSUB, inputs, callback=lambda result, error: answers.put((result, error)))
    for _ in range(32):
        result, error = answers.get(timeout=60)
        assert error is None and np.array_equal(result.as_numpy("OUTPUT0"), a + b)


def request_of(**parameters):
    request = service_pb2.ModelInferRequest(model_name="identity_fp32", id="i", raw_input_contents=[bytes(4)])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[1])
    for key, (kind, value) in parameters.items():
        setattr(request.parameters[key], kind, value)
    return request


def with_input(change):
    request = request_of()
    change(request, request.inputs[0])
    return request


def region(tensor, **values):
    for key, (kind, value) in values.items():
        setattr(tensor.parameters[key], kind, value)


BAD = [
    (request_of(sequence_id=("bool_param", True)),
     "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."),
    (request_of(sequence_start=("int64_param", 1)), "invalid value type for 'sequence_start' parameter, expected bool_param."),
    (request_of(sequence_end=("int64_param", 1)), "invalid value type for 'sequence_end' parameter, expected bool_param."),
    (request_of(priority=("int64_param", -1)), "invalid value for 'priority', expected value >= 0."),
    (request_of(priority=("string_param", "1")),
     "invalid value type for 'priority' parameter, expected int64_param or uint64_param."),
    (request_of(timeout=("uint64_param", 1)), "invalid value type for 'timeout' parameter, expected int64_param."),
    (request_of(triton_enable_empty_final_response=("int64_param", 1)),
     "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param."),
    (request_of(triton_x=("bool_param", True)),
     "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting with "
     "'triton_' are allowed: triton_enable_empty_final_response"),
    (request_of(custom=("uint64_param", 1)),
     "invalid value type for 'custom' parameter, expected int64_param, bool_param, or string_param."),
    (with_input(lambda r, i: i.contents.fp32_contents.append(1)),
     "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'identity_fp32'"),
    (with_input(lambda r, i: (i.contents.SetInParent(),)),
     "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'identity_fp32'"),
    (with_input(lambda r, i: r.ClearField("raw_input_contents")),
     "unable to find data for input tensor 'INPUT0' for model 'identity_fp32' in request."),
    (with_input(lambda r, i: (r.ClearField("raw_input_contents"), i.contents.int_contents.append(1))),
     "unexpected explicit tensor data for input tensor 'INPUT0' for model 'identity_fp32' of type 'INT32', expected "
     "datatype 'FP32'"),
    (with_input(lambda r, i: region(i, shared_memory_region=("int64_param", 1))),
     "invalid value type for 'shared_memory_region' parameter for tensor 'INPUT0', expected string_param."),
    (with_input(lambda r, i: region(i, shared_memory_offset=("int64_param", 1))),
     "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for tensor 'INPUT0'"),
    (with_input(lambda r, i: region(i, shared_memory_byte_size=("int64_param", 1))),
     "'shared_memory_byte_size' can not be specified without 'shared_memory_region' parameter for tensor 'INPUT0'"),
    (with_input(lambda r, i: region(i, shared_memory_region=("string_param", "r"))),
     "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'INPUT0'"),
    (with_input(lambda r, i: region(r.outputs.add(name="OUTPUT0"), classification=("string_param", "r"))),
     "invalid value type for 'classification' parameter, expected int64_param"),
    (with_input(lambda r, i: region(r.outputs.add(name="OUTPUT0"), classification=("int64_param", 0))),
     "invalid value for 'classification' parameter, expected >= 0"),
    (with_input(lambda r, i: r.inputs.add(name="INPUT0", datatype="FP32", shape=[0]) and
                r.raw_input_contents.append(b"")), "[request id: i] input 'INPUT0' already exists in request"),
    (with_input(lambda r, i: r.outputs.add(name="NONE")), "unexpected inference output 'NONE' for model 'identity_fp32'"),
    (with_input(lambda r, i: setattr(i, "name", "X")), "unexpected inference input 'X' for model 'identity_fp32'"),
    (with_input(lambda r, i: setattr(i, "datatype", "INT32")),
     "[request id: i] inference input 'INPUT0' data-type is 'INT32', but model 'identity_fp32' expects 'FP32'"),
    (with_input(lambda r, i: i.shape.append(-1)), "[request id: i] All input dimensions should be specified"),
    (with_input(lambda r, i: r.raw_input_contents.__setitem__(0, b"xyz")),
     "[request id: i] input byte size mismatch for input 'INPUT0' for model 'identity_fp32'. Expected 4, got 3"),
]


@pytest.mark.parametrize("request_, text", BAD, ids=range(len(BAD)))
def test_wrong_requests_are_refused_by_name_in_both_forms(server, request_, text):
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = sync_client.service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request_)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT and text in caught.value.details()
        (answer,) = stub.ModelStreamInfer(iter([request_]))
        assert text in answer.error_message
        assert answer.HasField("infer_response") and answer.infer_response.id == "i"
        assert not answer.infer_response.model_name and not answer.infer_response.parameters


def test_unknown_regions_and_surplus_raw_contents(server):
    bad = with_input(lambda r, i: (r.ClearField("raw_input_contents"), region(
        i, shared_memory_region=("string_param", "nowhere"), shared_memory_byte_size=("int64_param", 4))))
    good = with_input(lambda r, i: r.raw_input_contents.append(b"nobody wants this"))
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = sync_client.service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(bad)
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        assert caught.value.details() == "Unable to find shared memory region: 'nowhere'"
        assert stub.ModelInfer(good).raw_output_contents == [bytes(4)]


def test_statistics_count(client):
    _, _, inputs = addsub_inputs(sync_client)
    before = client.get_inference_statistics(ADDSUB).model_stats[0]
    for _ in range(3):
        client.infer(ADDSUB, inputs)
    after = client.get_inference_statistics(ADDSUB).model_stats[0]
    assert after.inference_count == before.inference_count + 6
    assert after.execution_count == before.execution_count + 3
    assert after.inference_stats.success.count == after.inference_stats.queue.count
    assert after.inference_stats.HasField("cache_hit") and {b.batch_size for b in after.batch_stats} >= {2}
    assert {m.name for m in client.get_inference_statistics().model_stats} >= {ADDSUB, "identity_fp32"}


def test_statistics_tell_the_memory_that_http_tells(server, client):
    over_http = json.loads(server.get(f"/v2/models/{ADDSUB}/stats")[1])["model_stats"][0]["memory_usage"]
    usage = client.get_inference_statistics(ADDSUB).model_stats[0].memory_usage
    assert over_http and [{"type": u.type, "id": u.id, "byte_size": u.byte_size} for u in usage] == over_http


def test_load_and_unload(client, repository):
    index = {m.name: m.state for m in client.get_model_repository_index().models}
    assert index[ADDSUB] == "READY"
    client.load_model("another", config=json.dumps({"backend": "onnxruntime", "max_batch_size": 2}),
                      files={"file:1/model.onnx": addsub_model()})
    assert client.is_model_ready("another") and client.get_model_config("another").config.max_batch_size == 2
    client.unload_model("another")
    with pytest.raises(InferenceServerException, match="'another' has no available versions"):
        client.get_model_metadata("another")
    client.unload_model(ADDSUB, unload_dependents=True)
    assert not client.is_model_ready(ADDSUB)
    client.load_model(ADDSUB)
    assert client.is_model_ready(ADDSUB)
    stub = client._client_stub
    for message, code, text in [
            (service_pb2.RepositoryModelLoadRequest(repository_name="r", model_name="m"), grpc.StatusCode.UNIMPLEMENTED,
             "'repository_name' specification is not supported"),
            (service_pb2.RepositoryModelLoadRequest(model_name="m", parameters={
                "x": service_pb2.ModelRepositoryParameter(bool_param=True)}), grpc.StatusCode.INVALID_ARGUMENT,
             "unrecognized load parameter 'x'."),
            (service_pb2.RepositoryModelLoadRequest(model_name="m", parameters={
                "config": service_pb2.ModelRepositoryParameter(bool_param=True)}), grpc.StatusCode.INVALID_ARGUMENT,
             "invalid value type for load parameter 'config', expected string_param."),
            (service_pb2.RepositoryModelLoadRequest(model_name="m", parameters={
                "file:1/x": service_pb2.ModelRepositoryParameter(string_param="x")}), grpc.StatusCode.INVALID_ARGUMENT,
             "invalid value type for load parameter 'file:1/x', expected bytes_param.")]:
        with pytest.raises(grpc.RpcError) as caught:
            stub.RepositoryModelLoad(message)
        assert (caught.value.code(), caught.value.details()) == (code, text)
    with pytest.raises(grpc.RpcError) as caught:
        stub.RepositoryModelUnload(service_pb2.RepositoryModelUnloadRequest(model_name="m", parameters={
            "unload_dependents": service_pb2.ModelRepositoryParameter(string_param="x")}))
    assert caught.value.details() == "invalid value type for 'unload_dependents' parameter, expected bool_param."
    with pytest.raises(grpc.RpcError) as caught:
        stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(repository_name="x"))
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_trace_and_log_settings(client):
    settings = client.get_trace_settings(as_json=True)["settings"]
    assert settings["trace_level"]["value"] == ["OFF"] and settings["trace_rate"]["value"] == ["1000"]
    client.update_trace_settings(settings={"trace_rate": "5", "trace_count": ["7"]})
    assert client.get_trace_settings(as_json=True)["settings"]["trace_rate"]["value"] == ["5"]
    client.update_trace_settings(settings={"trace_rate": None, "trace_count": None})
    assert client.get_trace_settings(as_json=True)["settings"]["trace_rate"]["value"] == ["1000"]
    assert client.get_trace_settings(ADDSUB, as_json=True)["settings"]["trace_rate"]["value"] == ["1000"]
    client.update_log_settings({"log_verbose_level": 2, "log_info": False})
    changed = client.get_log_settings().settings
    assert changed["log_verbose_level"].uint32_param == 2 and not changed["log_info"].bool_param
    client.update_log_settings({"log_verbose_level": 0, "log_info": True, "log_format": "default"})


def test_shared_memory_is_off_unless_allowed(client):
    assert not client.get_system_shared_memory_status().regions
    assert not client.get_cuda_shared_memory_status().regions
    for call in (lambda: client.register_system_shared_memory("r", "/k", 64), client.unregister_system_shared_memory,
                 lambda: client.register_cuda_shared_memory("r", b"eA==", 0, 64), client.unregister_cuda_shared_memory):
        with pytest.raises(InferenceServerException, match="Client shared memory is disabled") as caught:
            call()
        assert caught.value.status() == "StatusCode.UNIMPLEMENTED"


def test_plugin(client):
    class Plugin(sync_client.InferenceServerClientPlugin if hasattr(sync_client, "InferenceServerClientPlugin")
                 else __import__("tritonclient._plugin", fromlist=["x"]).InferenceServerClientPlugin):
        calls = 0

        def __call__(self, request):
            self.calls += 1

    plugin = Plugin()
    client.register_plugin(plugin)
    assert client.plugin() is plugin and client.is_server_live() and plugin.calls > 0
    client.unregister_plugin()


def test_a_stream_answers_in_order_and_goes_on_after_errors(client):
    a, b, inputs = addsub_inputs(sync_client)
    with Stream(client) as stream:
        for i in range(40):
            client.async_stream_infer("nobody" if i % 5 == 3 else ADDSUB, inputs, request_id=str(i))
        for i in range(40):
            if i % 5 == 3:
                with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found"):
                    stream.next()
                continue
            answer = stream.next()
            response = answer.get_response()
            assert response.id == str(i) and np.array_equal(answer.as_numpy("OUTPUT0"), a + b)
            assert response.parameters["triton_final_response"].bool_param


def test_decoupled_answers(decoupled):
    with sync_client.InferenceServerClient(decoupled.grpc_url) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.infer("repeat", repeat_inputs([1]))
        assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
        assert caught.value.message() == "ModelInfer RPC doesn't support models with decoupled transaction policy"
        with Stream(client) as stream:
            client.async_stream_infer("repeat", repeat_inputs([4, 2, 0]), request_id="a")
            for value in (4, 2, 0):
                answer = stream.next()
                response = answer.get_response()
                assert answer.as_numpy("OUT").tolist() == [value] and response.id == "a"
                assert not response.parameters["triton_final_response"].bool_param
            client.async_stream_infer("repeat", repeat_inputs([]), request_id="none")  # answers nothing
            client.async_stream_infer("repeat", repeat_inputs([7]), request_id="b", enable_empty_final_response=True)
            assert stream.next().as_numpy("OUT").tolist() == [7]
            final = stream.next().get_response()
            assert final.id == "b" and final.model_name == "repeat" and not final.outputs
            assert final.parameters["triton_final_response"].bool_param
            # An error ends one request, after what it had answered, and not the stream.
            client.async_stream_infer("repeat", repeat_inputs([1, -1, 2]), request_id="c")
            assert stream.next().as_numpy("OUT").tolist() == [1]
            with pytest.raises(InferenceServerException, match="negative element"):
                stream.next()
            client.async_stream_infer("repeat", repeat_inputs([9]), request_id="d")
            assert stream.next().as_numpy("OUT").tolist() == [9]


def test_errors_end_a_stream_that_asked_for_it(decoupled):
    with sync_client.InferenceServerClient(decoupled.grpc_url) as client:
        with Stream(client, headers={"triton_grpc_error": "true"}) as stream:
            client.async_stream_infer("nobody", repeat_inputs([1]))  # before execution: in the stream
            with pytest.raises(InferenceServerException, match="unknown model"):
                stream.next()
            client.async_stream_infer("repeat", repeat_inputs([-1]))
            with pytest.raises(InferenceServerException, match="negative element") as caught:
                stream.next()
            assert caught.value.status() != None  # noqa: E711: the status of the call, not of a message


def test_cancelled_and_late_calls_leave_the_model(decoupled):
    """The model sleeps for an hour unless it is cancelled; an unload waits for what is inside."""
    with sync_client.InferenceServerClient(decoupled.grpc_url) as client:
        request = service_pb2.ModelInferRequest(model_name="repeat")
        for name, kind, data in (("IN", "INT32", np.ones(2, np.int32)),
                                 ("DELAY", "UINT32", np.array([0, HOUR_MS], np.uint32)),
                                 ("WAIT", "UINT32", np.zeros(1, np.uint32))):
            request.inputs.add(name=name, datatype=kind, shape=data.shape)
            request.raw_input_contents.append(data.tobytes())
        with grpc.insecure_channel(decoupled.grpc_url) as channel:
            stub = sync_client.service_pb2_grpc.GRPCInferenceServiceStub(channel)
            call = stub.ModelStreamInfer(iter([request]))
            assert next(call).infer_response.outputs  # it is inside
            call.cancel()
            client.unload_model("repeat")
            client.load_model("repeat")
            with pytest.raises(grpc.RpcError) as caught:
                list(stub.ModelStreamInfer(iter([request]), timeout=0.3))
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            client.unload_model("repeat")
            client.load_model("repeat")
    # So does a client that is gone.
    with grpc.insecure_channel(decoupled.grpc_url) as channel:
        call = sync_client.service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request]))
        assert next(call).infer_response.outputs
    with sync_client.InferenceServerClient(decoupled.grpc_url) as client:
        client.unload_model("repeat")
        client.load_model("repeat")


def test_everything_again_with_aio(server):
    async def run():
        async with aio_client.InferenceServerClient(server.grpc_url) as client:
            assert await client.is_server_live() and await client.is_server_ready()
            assert await client.is_model_ready(ADDSUB)
            await client.get_server_metadata()
            await client.get_model_metadata(ADDSUB)
            await client.get_model_config(ADDSUB)
            assert len((await client.get_model_repository_index()).models) > 3
            await client.unload_model(ADDSUB)
            await client.load_model(ADDSUB)
            await client.get_inference_statistics()
            await client.update_trace_settings(settings={"trace_rate": None})
            await client.get_trace_settings()
            await client.update_log_settings({"log_info": True})
            await client.get_log_settings()
            await client.get_system_shared_memory_status()
            await client.get_cuda_shared_memory_status()
            for call in (client.register_system_shared_memory("r", "/k", 64), client.unregister_system_shared_memory(),
                         client.register_cuda_shared_memory("r", b"eA==", 0, 64),
                         client.unregister_cuda_shared_memory()):
                with pytest.raises(InferenceServerException, match="Client shared memory is disabled"):
                    await call
            a, b, inputs = addsub_inputs(aio_client)
            answers = await asyncio.gather(*(client.infer(ADDSUB, inputs) for _ in range(32)))
            assert all(np.array_equal(answer.as_numpy("OUTPUT0"), a + b) for answer in answers)

            async def requests():
                for i in range(8):
                    yield {"model_name": ADDSUB, "inputs": inputs, "request_id": str(i)}

            got = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                got.append(result.get_response().id)
            assert got == [str(i) for i in range(8)]

    asyncio.run(run())


def test_health_service(server):
    with grpc.insecure_channel(server.grpc_url) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest(service="anything"))
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection(server, version):
    with grpc.insecure_channel(server.grpc_url) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        if version == "v1":
            channel_call = channel.stream_stream(
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=database._stub.ServerReflectionInfo._response_deserializer)
            database._stub.ServerReflectionInfo = channel_call
        services = set(database.get_services())
        assert services >= {"inference.GRPCInferenceService", "grpc.health.v1.Health"}
        service = DescriptorPool(database).FindServiceByName("inference.GRPCInferenceService")
        ours = {method.name: (method.input_type.full_name, method.output_type.full_name) for method in service.methods}
        theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        assert ours == {m.name: (m.input_type.full_name, m.output_type.full_name) for m in theirs.methods}
        pool = service.file.pool if hasattr(service.file, "pool") else DescriptorPool(database)
        for name, message in service_pb2.DESCRIPTOR.message_types_by_name.items():
            mine = pool.FindMessageTypeByName(f"inference.{name}")
            assert {(f.name, f.number, f.type) for f in mine.fields} == {
                (f.name, f.number, f.type) for f in message.fields}, name


def test_unknown_methods_are_unimplemented(server):
    with grpc.insecure_channel(server.grpc_url) as channel:
        for path in ("/inference.GRPCInferenceService/Nothing", "/other.Service/ModelInfer"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(path)(b"")
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_tls_and_mutual_tls(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                   check=True, capture_output=True)
    make_model(tmp_path / "models", "identity", b"", filename="unused", config=IDENTITY.format("INT32"))
    array = np.arange(1 << 18, dtype=np.int32)
    own = {"private_key": str(key), "certificate_chain": str(cert)}
    for options, given in (([], {}), ([f"--grpc-root-cert={cert}", "--grpc-use-ssl-mutual=true"], own)):
        with Served(tmp_path / "models", "--load-model=*", "--grpc-use-ssl=true", f"--grpc-server-cert={cert}",
                    f"--grpc-server-key={key}", *options) as running:
            with sync_client.InferenceServerClient(running.grpc_url, ssl=True, root_certificates=str(cert),
                                                   **given) as client:
                answer = client.infer("identity", [tensor(sync_client, "INPUT0", array, "INT32")])
                assert (answer.as_numpy("OUTPUT0") == array).all()
            if given:  # without a certificate nobody comes in
                with sync_client.InferenceServerClient(running.grpc_url, ssl=True,
                                                       root_certificates=str(cert)) as client:
                    with pytest.raises(InferenceServerException):
                        client.is_server_live()
            assert running.stop() == 0


def test_unix_sockets_compressed_answers_and_restricted_protocols(tmp_path):
    make_model(tmp_path / "models", "identity", b"", filename="unused", config=IDENTITY.format("INT32"))
    array = np.zeros(1 << 18, dtype=np.int32)
    with Served(tmp_path / "models", "--load-model=*", "--grpc-infer-response-compression-level=high",
                f"--grpc-unix-socket={tmp_path / 'socket'}", "--grpc-restricted-protocol=model-config,logging:key=word",
                "--grpc-header-forward-pattern=x-.*") as running:
        with sync_client.InferenceServerClient(f"unix:{tmp_path / 'socket'}") as client:
            answer = client.infer("identity", [tensor(sync_client, "INPUT0", array, "INT32")], headers={"x-some": "thing"})
            assert (answer.as_numpy("OUTPUT0") == array).all()
            with pytest.raises(InferenceServerException) as caught:
                client.get_model_config("identity")
            assert caught.value.status() == "StatusCode.UNAVAILABLE"
            assert caught.value.message() == (
                "This protocol is restricted, expecting header 'triton-grpc-protocol-key'")
            assert client.get_model_config("identity", headers={"triton-grpc-protocol-key": "word"})
