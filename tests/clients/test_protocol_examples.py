"""What the examples of the Open Inference Protocol (KServe V2) do, with requests and grpcio and nothing of Triton's, and what
grpcurl does: list, describe and call, with what server reflection tells."""

import json
import struct

import grpc
import numpy as np
import pytest
import requests
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "inference.GRPCInferenceService"


def addsub_document(**more):
    a, b = list(range(16)), [1] * 16
    return {"id": "42", "inputs": [{"name": "INPUT0", "shape": [1, 16], "datatype": "FP32", "data": a},
                                   {"name": "INPUT1", "shape": [1, 16], "datatype": "FP32", "data": b}], **more}


# ---- HTTP/REST, in the order of the protocol's document.

def test_health_of_the_examples(server):
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/addsub/ready", "/v2/models/addsub/versions/1/ready"):
        assert requests.get(f"http://{server.url}{path}", timeout=60).status_code == 200
    assert requests.get(f"http://{server.url}/v2/models/nobody/ready", timeout=60).status_code == 404


def test_metadata_of_the_examples(server):
    answer = requests.get(f"http://{server.url}/v2", timeout=60)
    assert answer.headers["Content-Type"] == "application/json"
    assert set(answer.json()) == {"name", "version", "extensions"}
    for path in ("/v2/models/addsub", "/v2/models/addsub/versions/1"):
        model = requests.get(f"http://{server.url}{path}", timeout=60).json()
        assert set(model) == {"name", "versions", "platform", "inputs", "outputs"}
        assert {"name": "INPUT0", "datatype": "FP32", "shape": [-1, 16]} in model["inputs"]


def test_inference_of_the_examples(server):
    for path in ("/v2/models/addsub/infer", "/v2/models/addsub/versions/1/infer"):
        answer = requests.post(f"http://{server.url}{path}", json=addsub_document(outputs=[{"name": "OUTPUT0"}]), timeout=60)
        assert answer.status_code == 200
        document = answer.json()
        assert (document["model_name"], document["model_version"], document["id"]) == ("addsub", "1", "42")
        (output,) = document["outputs"]
        assert output == {"name": "OUTPUT0", "shape": [1, 16], "datatype": "FP32", "data": [i + 1.0 for i in range(16)]}


def test_tensor_data_may_be_nested_as_in_the_protocol(server):
    flat = requests.post(f"http://{server.url}/v2/models/addsub/infer", json=addsub_document(), timeout=60).json()
    nested = addsub_document()
    for tensor in nested["inputs"]:
        tensor["data"] = [tensor["data"]]
    assert requests.post(f"http://{server.url}/v2/models/addsub/infer", json=nested, timeout=60).json() == flat


def test_errors_are_objects_with_an_error(server):
    for document, status in ((addsub_document(inputs=[]), 400), ({"inputs": "x"}, 400)):
        answer = requests.post(f"http://{server.url}/v2/models/addsub/infer", json=document, timeout=60)
        assert answer.status_code == status and set(answer.json()) == {"error"} and answer.json()["error"]
    assert requests.post(f"http://{server.url}/v2/models/nobody/infer", json=addsub_document(), timeout=60).status_code == 404


def test_binary_extension_by_hand(server):
    a, b = np.arange(16, dtype=np.float32), np.ones(16, dtype=np.float32)
    head = json.dumps({"inputs": [{"name": name, "shape": [1, 16], "datatype": "FP32", "parameters": {"binary_data_size": 64}}
                                  for name in ("INPUT0", "INPUT1")], "parameters": {"binary_data_output": True}}).encode()
    answer = requests.post(f"http://{server.url}/v2/models/addsub/infer", data=head + a.tobytes() + b.tobytes(), timeout=60,
                           headers={"Inference-Header-Content-Length": str(len(head))})
    size = int(answer.headers["Inference-Header-Content-Length"])
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert [o["parameters"]["binary_data_size"] for o in json.loads(answer.content[:size])["outputs"]] == [64, 64]
    assert answer.content[size:] == (a + b).tobytes() + (a - b).tobytes()


# ---- gRPC, with nothing but what reflection tells.

class Reflected:
    """Calls methods by name with JSON, as grpcurl does."""

    def __init__(self, channel):
        self.channel = channel
        self.pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))

    def call(self, method, document):
        service, name = method.rsplit("/", 1)
        described = self.pool.FindServiceByName(service).FindMethodByName(name)
        request = json_format.ParseDict(document, GetMessageClass(described.input_type)())
        answer = GetMessageClass(described.output_type)
        options = {"request_serializer": lambda message: message.SerializeToString(), "response_deserializer": answer.FromString}
        if described.client_streaming:
            return [json_format.MessageToDict(got, preserving_proto_field_name=True)
                    for got in self.channel.stream_stream(f"/{method}", **options)(iter([request]), timeout=60)]
        got = self.channel.unary_unary(f"/{method}", **options)(request, timeout=60)
        return json_format.MessageToDict(got, preserving_proto_field_name=True)


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.grpc_url) as opened:
        yield opened


@pytest.fixture
def reflected(channel):
    return Reflected(channel)


def ask(channel, **what):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    (answer,) = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**what)]), timeout=60)
    return answer


def test_list(channel):
    listed = [service.name for service in ask(channel, list_services="*").list_services_response.service]
    assert listed == sorted(listed)
    assert set(listed) >= {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                           "grpc.reflection.v1alpha.ServerReflection"}


@pytest.mark.parametrize("symbol", [SERVICE, f"{SERVICE}.ModelInfer", "inference.ModelInferRequest",
                                    "inference.ModelInferRequest.InferInputTensor", "inference.ModelConfig", "grpc.health.v1.Health"])
def test_describe(channel, symbol):
    files = ask(channel, file_containing_symbol=symbol).file_descriptor_response.file_descriptor_proto
    assert files


def test_describe_of_what_is_not_there_is_not_found(channel):
    for what in ({"file_containing_symbol": "no.such.Symbol"}, {"file_by_filename": "no/such.proto"}):
        assert ask(channel, **what).error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_one_stream_answers_many_questions_in_order(channel):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE if i % 2 else "nothing") for i in range(20)]
    answers = list(stub.ServerReflectionInfo(iter(asked), timeout=60))
    assert [answer.WhichOneof("message_response") for answer in answers] == ["error_response", "file_descriptor_response"] * 10
    assert [answer.original_request for answer in answers] == asked


def test_calls_by_reflected_descriptors(reflected):
    assert reflected.call(f"{SERVICE}/ServerLive", {}) == {"live": True}
    assert reflected.call(f"{SERVICE}/ServerReady", {}) == {"ready": True}
    assert reflected.call(f"{SERVICE}/ModelReady", {"name": "addsub"}) == {"ready": True}
    assert reflected.call("grpc.health.v1.Health/Check", {}) == {"status": "SERVING"}
    model = reflected.call(f"{SERVICE}/ModelMetadata", {"name": "addsub", "version": "1"})
    assert {"name": "INPUT0", "datatype": "FP32", "shape": ["-1", "16"]} in model["inputs"]
    contents = {"fp32_contents": [1.5] * 16}
    asked = {"model_name": "addsub", "id": "7", "inputs": [{"name": name, "datatype": "FP32", "shape": [1, 16], "contents": contents}
                                                            for name in ("INPUT0", "INPUT1")]}
    answer = reflected.call(f"{SERVICE}/ModelInfer", asked)
    assert answer["id"] == "7" and [output["shape"] for output in answer["outputs"]] == [["1", "16"]] * 2
    assert len(answer["raw_output_contents"]) == 2
    (streamed,) = reflected.call(f"{SERVICE}/ModelStreamInfer", asked)
    assert streamed["infer_response"]["raw_output_contents"] == answer["raw_output_contents"]
    assert reflected.call(f"{SERVICE}/RepositoryIndex", {"ready": True})["models"]


def test_raw_contents_of_the_protocols_example(reflected):
    """The protocol's own gRPC example gives tensors as raw bytes."""
    channel, pool = reflected.channel, reflected.pool
    method = pool.FindServiceByName(SERVICE).FindMethodByName("ModelInfer")
    request, answer = GetMessageClass(method.input_type)(model_name="addsub"), GetMessageClass(method.output_type)
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="FP32", shape=[1, 16])
        request.raw_input_contents.append(struct.pack("<16f", *range(16)))
    got = channel.unary_unary(f"/{SERVICE}/ModelInfer", request_serializer=lambda m: m.SerializeToString(),
                              response_deserializer=answer.FromString)(request, timeout=60)
    assert struct.unpack("<16f", got.raw_output_contents[0]) == tuple(2.0 * i for i in range(16))
