"""gRPC's transport options, from the command line to the wire: keep-alive, connection age, message sizes, deadlines."""

import pathlib
import select
import struct
import sys

import grpc
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))

import tritonclient.grpc as triton  # noqa: E402
from served import Served, make_model, sample, test_program  # noqa: E402
from test_grpc_floods import (  # noqa: E402
    ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, IDENTITY, PING, SETTINGS, STREAM, Client, frame, head, live)
from tritonclient.grpc import service_pb2, service_pb2_grpc  # noqa: E402

REPEAT = """backend: "repeat" model_transaction_policy { decoupled: true }
dynamic_batching { default_queue_policy { max_queue_size: 1 } }
input { name: "IN" data_type: TYPE_INT32 dims: -1 } input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 }
input { name: "WAIT" data_type: TYPE_UINT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 } output { name: "IDX" data_type: TYPE_UINT32 dims: 1 }"""
HOUR_MS = 3_600_000
MAX_CONCURRENT_STREAMS = 3  # in SETTINGS


@pytest.fixture
def start(tmp_path):
    running = []

    def start(*options, program=None, models=(("identity", IDENTITY),)):
        for name, config in models:
            make_model(tmp_path / "models", name, b"", filename="unused", config=config)
        running.append(Served(tmp_path / "models", "--load-model=*", *options, program=program))
        return running[-1]

    yield start
    for server in running:
        assert server.stop() == 0, server.log()


def test_silent_clients_are_asked_and_cut(start):
    server = start("--grpc-keepalive-time=20", "--grpc-keepalive-timeout=20", "--grpc-keepalive-permit-without-calls=true")
    silent = Client(server)
    kinds = [kind for kind, flags, _, _ in silent.frames() if not (kind == PING and flags & ACK)]  # until the end
    assert PING in kinds
    # This client does not answer PINGs either: where it is slower than they are, the next one comes through.
    server._await(lambda: live(server), 120, "serve others")


def test_clients_that_answer_stay(start):
    server = start("--grpc-keepalive-time=20", "--grpc-keepalive-timeout=60000", "--grpc-keepalive-permit-without-calls=true",
                   "--grpc-http2-max-pings-without-data=0")
    client, asked = Client(server), 0
    for kind, flags, _, payload in client.frames():
        if kind == PING and not flags & ACK:
            client.send(frame(PING, ACK, 0, payload))
            asked += 1
            if asked == 5:  # more than the two that go without data by default
                break
    assert asked == 5


def test_strikes_can_be_switched_off(start):
    server = start("--grpc-http2-max-ping-strikes=0")
    client = Client(server)
    client.send(b"".join(frame(PING, 0, 0, struct.pack(">Q", i)) for i in range(100)))
    for kind, flags, _, payload in client.frames():
        assert kind != GOAWAY
        if kind == PING and payload == struct.pack(">Q", 99):
            break


def settings_of(client):
    """The server's first SETTINGS, by number."""
    for kind, flags, _, payload in client.frames():
        if kind == SETTINGS and not flags & ACK:
            return {key: value for key, value in struct.iter_unpack(">HI", payload)}


def ping_and_wait(client, count):
    """Sends a PING each time that the one before was answered and two milliseconds have brought nothing more; False once
    the server has said that it goes."""
    for number in range(count):
        client.send(frame(PING, 0, 0, struct.pack(">Q", number)))
        for kind, flags, _, payload in client.frames():
            if kind == GOAWAY:
                return False
            if kind == PING and flags & ACK and payload == struct.pack(">Q", number):
                break
        else:
            return False
        select.select([client.socket], [], [], 0.002)
    return True


def test_pings_as_often_as_the_option_says_get_no_strikes(start):
    """And with an hour as the interval the same client is told to go."""
    pings = ("--grpc-keepalive-permit-without-calls=true", "--grpc-http2-min-recv-ping-interval-without-data={}")
    assert ping_and_wait(Client(start(pings[0], pings[1].format(1))), 20)
    assert not ping_and_wait(Client(start(pings[0], pings[1].format(HOUR_MS))), 20)


def test_limits_of_messages_and_of_calls_are_the_options(start):
    server = start("--grpc-max-message-size=4096", "--grpc-max-concurrent-streams=7")
    assert settings_of(Client(server))[MAX_CONCURRENT_STREAMS] == 7
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for size, compression in ((4000, grpc.Compression.NoCompression), (4096, grpc.Compression.NoCompression),
                                  (100_000, grpc.Compression.Gzip)):
            request = service_pb2.ModelInferRequest(model_name="identity", raw_input_contents=[bytes(size)])
            request.inputs.add(name="INPUT0", datatype="UINT8", shape=[size])
            if size == 4000:
                assert stub.ModelInfer(request).raw_output_contents[0] == bytes(size)
                continue
            with pytest.raises(grpc.RpcError) as refused:
                stub.ModelInfer(request, compression=compression)
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, refused.value


def test_old_connections_are_drained_and_cut_after_their_grace(start):
    server = start("--grpc-max-connection-age=20", "--grpc-max-connection-age-grace=20")
    client = Client(server)
    client.send(frame(HEADERS, END_HEADERS, 1, head(STREAM)))  # a call that does not end
    assert client.goaway() == (0, "")


def test_calls_go_on_over_connections_of_a_short_life(start):
    server = start("--grpc-max-connection-age=100")
    values = np.arange(1000, dtype=np.uint8)
    tensor = triton.InferInput("INPUT0", [1000], "UINT8")
    tensor.set_data_from_numpy(values)
    with triton.InferenceServerClient(server.grpc_url) as client:
        for _ in range(1000):
            assert (client.infer("identity", [tensor]).as_numpy("OUTPUT0") == values).all()


def test_message_beyond_the_limit_is_refused_by_its_prefix(start):
    server = start()
    client = Client(server)
    client.send(frame(HEADERS, END_HEADERS, 1, head(b"/inference.GRPCInferenceService/ModelInfer")) +
                frame(DATA, 0, 1, b"\0\xff\xff\xff\xff"))
    for kind, flags, stream, _ in client.frames():
        if kind == HEADERS and stream == 1:
            assert flags & END_STREAM  # an error and nothing else
            break
    assert live(server)
    with grpc.insecure_channel(server.grpc_url, options=[("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="identity", raw_input_contents=[bytes(64 << 20)])
        request.inputs.add(name="INPUT0", datatype="UINT8", shape=[64 << 20])
        assert len(stub.ModelInfer(request).raw_output_contents[0]) == 64 << 20


def repeat(values, delays, id):
    request = service_pb2.ModelInferRequest(model_name="repeat", id=id)
    for name, kind, data in (("IN", "INT32", np.array(values, np.int32)), ("DELAY", "UINT32", np.array(delays, np.uint32)),
                             ("WAIT", "UINT32", np.zeros(1, np.uint32))):
        request.inputs.add(name=name, datatype=kind, shape=data.shape)
        request.raw_input_contents.append(data.tobytes())
    return request


def await_pending(server, count):
    """Waits until so many requests wait for the model."""
    while sample(server.metrics(), "nv_inference_pending_request_count", model="repeat") != count:
        pass


def test_deadline_ends_a_request_that_waits_in_the_queue(start):
    server = start(program=test_program(), models=[("repeat", REPEAT)])
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        holder = stub.ModelStreamInfer(iter([repeat([1, 2], [0, HOUR_MS], "holder")]))
        assert next(holder).infer_response.id == "holder"  # it has the only instance, for an hour
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.ModelStreamInfer(iter([repeat([3], [0], "late")]), timeout=1))
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        # The client gives up by itself; the server does so, too, and the place in the queue is free again.
        await_pending(server, 0)
        waiting = stub.ModelStreamInfer(iter([repeat([4], [0], "next")]))
        await_pending(server, 1)
        holder.cancel()
        assert [answer.infer_response.id for answer in waiting] == ["next"]
    metrics = server.metrics()
    assert sample(metrics, "nv_inference_request_failure", model="repeat", reason="CANCELED") >= 1  # on a slow machine "late" may not have come in time
    assert sample(metrics, "nv_inference_request_success", model="repeat") == 1  # "next": nothing that was late was executed


def test_requests_say_how_urgent_they_are_and_how_long_they_wait(start):
    """The parameters `priority` and `timeout` of a request, as the queue of its model lets them count."""
    queue = """dynamic_batching { priority_levels: 2 default_priority_level: 2 default_queue_policy {
        default_timeout_microseconds: 3600000000 allow_timeout_override: true } }"""
    config = REPEAT.replace("dynamic_batching { default_queue_policy { max_queue_size: 1 } }", queue)
    assert config != REPEAT
    server = start(program=test_program(), models=[("repeat", config)])
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        holder = stub.ModelStreamInfer(iter([repeat([1, 2], [0, HOUR_MS], "holder")]))
        assert next(holder).infer_response.id == "holder"
        hasty = repeat([3], [0], "hasty")
        hasty.parameters["timeout"].int64_param = 1000
        (expired,) = stub.ModelStreamInfer(iter([hasty]))
        assert expired.error_message == "Request timeout expired", expired
        ordinary, urgent = repeat([4], [0], "ordinary"), repeat([5], [0], "urgent")
        urgent.parameters["priority"].int64_param = 1
        answers = stub.ModelStreamInfer(iter([ordinary, urgent]))
        await_pending(server, 2)
        holder.cancel()
        assert [answer.infer_response.id for answer in answers] == ["urgent", "ordinary"]


def test_refused_by_a_full_queue_looks_as_before_an_execution(start):
    """As the real server: the text and the id, no model and no triton_final_response (tests/differential)."""
    server = start(program=test_program(), models=[("repeat", REPEAT)])
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        calls = [stub.ModelStreamInfer(iter([repeat([1, 2], [0, HOUR_MS], "holder")]))]
        assert next(calls[0]).infer_response.id == "holder"
        calls.append(stub.ModelStreamInfer(iter([repeat([3], [0], "waits")])))
        await_pending(server, 1)
        (refused,) = stub.ModelStreamInfer(iter([repeat([4], [0], "refused")]))
        assert refused.error_message == "[request id: refused] Exceeds maximum queue size"
        assert refused.infer_response == service_pb2.ModelInferResponse(id="refused")
        for call in calls:
            call.cancel()
