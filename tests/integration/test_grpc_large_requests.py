"""Large gRPC requests are bound to their models beside the event loops, and nothing but the thread is different."""

import pathlib
import sys

import grpc
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))

from served import Served, make_model  # noqa: E402
from test_hostile_clients import thread_time  # noqa: E402
from tritonclient.grpc import service_pb2, service_pb2_grpc  # noqa: E402

ECHO = """backend: "identity"
input { name: "IN" data_type: TYPE_INT8 dims: -1 }
output { name: "OUT" data_type: TYPE_INT8 dims: -1 }
"""
SERVICE = "/inference.GRPCInferenceService/"
LARGE = 200_000  # elements: typed, more than 64 KiB; and twice that is more than the 256 KiB that are hashed on a loop
SMALL = 20  # requests


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_model(root, "echo", b"", filename="unused", config=ECHO)
    make_model(root, "cached", b"", filename="unused", config=ECHO + "response_cache { enable: true }\n")
    with Served(root, "--load-model=*", "--cache-config=local,size=67108864") as running:
        yield running
        assert running.stop() == 0, running.log()


@pytest.fixture
def channel(server):
    size = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(server.grpc_url, options=size) as channel:
        yield channel


def values_of(elements):
    return (np.arange(elements) % 127).astype(np.int8)


def request(elements, model="echo", typed=True, name="r", shape=None):
    message = service_pb2.ModelInferRequest(model_name=model, id=name)
    tensor = message.inputs.add(name="IN", datatype="INT8", shape=[elements if shape is None else shape])
    if typed:
        tensor.contents.int_contents.extend(values_of(elements).tolist())
    else:
        message.raw_input_contents.append(values_of(elements).tobytes())
    return message


def check(answer, elements):
    assert answer.raw_output_contents == [values_of(elements).tobytes()]


def turns(server):
    return thread_time(server, "decode")[1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model, typed, large", [("echo", True, LARGE), ("cached", True, LARGE), ("cached", False, 2 * LARGE)])
def test_large_requests_are_bound_beside_the_loops(server, channel, model, typed, large, stream):
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def infer(message):
        if not stream:
            return stub.ModelInfer(message)
        [answer] = stub.ModelStreamInfer(iter([message]))  # its half-close comes while the message is being decoded
        assert not answer.error_message
        return answer.infer_response

    for _ in range(2):  # the second one is answered from the cache, where there is one
        before = turns(server)
        check(infer(request(large, model, typed)), large)
        assert turns(server) > before
        # A thread that still tidies up after the last one may wake once or twice, but not for each request.
        before = turns(server)
        for _ in range(SMALL):
            check(infer(request(16, model, typed)), 16)
        assert turns(server) - before < SMALL, "small ones are not handed over"
    if not typed:
        before = turns(server)
        for _ in range(SMALL):
            check(infer(request(large, "echo", typed)), large)
        assert turns(server) - before < SMALL, "raw tensors that nobody reads go straight to the engine"


def test_requests_of_a_stream_keep_their_order(server, channel):
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    sizes = [LARGE, 1, 2, 2 * LARGE, 3, LARGE, LARGE, 4] * 3
    answers = stub.ModelStreamInfer(iter([request(size, name=str(i)) for i, size in enumerate(sizes)]))
    for i, (size, answer) in enumerate(zip(sizes, answers, strict=True)):
        assert (answer.error_message, answer.infer_response.id) == ("", str(i))
        check(answer.infer_response, size)


def test_errors_of_large_requests_are_those_of_small_ones(channel):
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def error(call):
        with pytest.raises(grpc.RpcError) as raised:
            call()
        return raised.value.code(), raised.value.details()

    def texts(elements, **change):
        """Of the call, and of a stream with another request behind it."""
        messages = [request(elements, **change), request(1)]
        first, second = stub.ModelStreamInfer(iter(messages))
        check(second.infer_response, 1)
        return (*error(lambda: stub.ModelInfer(messages[0])), first.error_message)

    assert texts(LARGE, model="nobody") == texts(1, model="nobody")
    code, text, streamed = texts(LARGE, shape=LARGE + 1)
    assert code == grpc.StatusCode.INVALID_ARGUMENT and str(LARGE) in text and streamed == text
    # What is no request at all ends a stream.
    for garbage in (b"\x0a" + b"\x80\x80\x08" + b"\xff" * (1 << 17), b"\x0a\x02\xff\xff"):
        unary = channel.unary_unary(SERVICE + "ModelInfer", lambda message: message, lambda answer: answer)
        stream = channel.stream_stream(SERVICE + "ModelStreamInfer", lambda message: message, lambda answer: answer)
        called = error(lambda: unary(garbage))
        assert called[0] == grpc.StatusCode.INVALID_ARGUMENT
        assert error(lambda: list(stream(iter([garbage])))) == called
