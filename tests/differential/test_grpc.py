"""The real tritonserver and Tidemark are asked the same over gRPC; differences on purpose stand in wanted_grpc.py."""

import pathlib
import queue

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import service_pb2 as pb

from grpc_cases import SERVICE, control_cases, infer_cases, raw_cases, repeat, streams
from wanted import SAME
from wanted_grpc import ROWS, WANTED

METHODS = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name


class Caller:
    """One server's channel; answers are (code, details, message)."""

    def __init__(self, url):
        self.channel = grpc.insecure_channel(url, options=[("grpc.max_receive_message_length", -1)])

    def unary(self, path, wire):
        call = self.channel.unary_unary(path)  # bytes in, bytes out
        try:
            return "OK", "", call(wire, timeout=60)
        except grpc.RpcError as error:
            return error.code().name, error.details(), b""

    def stream(self, requests):
        call = self.channel.stream_stream(SERVICE + "ModelStreamInfer")
        answers = []
        try:
            for answer in call(iter([request.SerializeToString() for request in requests]), timeout=60):
                answers.append(readable("ModelStreamInfer", answer))
        except grpc.RpcError as error:
            return error.code().name, error.details(), answers
        return "OK", "", answers


@pytest.fixture(scope="module")
def both(start_both):
    with start_both(decoupled=True) as servers:
        callers = [Caller(server.grpc_url) for server in servers]
        yield callers
        for caller in callers:
            caller.channel.close()


# What is each server's own and says nothing: versions, clocks, names of backends, places of files.
def readable(rpc, wire):
    if rpc not in METHODS:
        return wire
    message = pb.__dict__[METHODS[rpc].output_type.name].FromString(wire)
    document = MessageToDict(message, preserving_proto_field_name=True)
    if rpc == "ServerMetadata":
        document.update(version="*", extensions="*")
    elif rpc == "ModelMetadata":
        document["platform"] = "*"
    elif rpc == "ModelConfig":
        document["config"] = {key: document["config"].get(key) for key in ("name", "max_batch_size", "input", "output")}
    elif rpc == "ModelStatistics":
        document = sorted((stats["name"], stats["version"]) for stats in document["model_stats"])
    elif rpc == "RepositoryIndex":
        document.get("models", []).sort(key=lambda model: model["name"])
    return document


def sent(path, wire):
    """Asks a server that; (code, details, answer)."""
    def ask(caller):
        code, details, answer = caller.unary(path, wire)
        return code, details, readable(path.removeprefix(SERVICE), answer) if code == "OK" else None

    return ask


def cases():
    for name, path, wire in raw_cases():  # first, while both are ready
        yield name, sent(path, wire)
    for name, rpc, message in control_cases():
        yield name, sent(SERVICE + rpc, message.SerializeToString())
    for name, message in infer_cases():
        yield f"infer.{name}", sent(SERVICE + "ModelInfer", message.SerializeToString())
        yield f"stream.{name}", lambda caller, message=message: caller.stream([message])
    for name, requests in streams():
        yield f"streams.{name}", lambda caller, requests=requests: caller.stream(requests)


CASES = dict(cases())


def test_cases_have_names_of_their_own():
    assert len(CASES) == len(list(cases())) and len(CASES) > 500
    assert set(WANTED) <= set(CASES)


def text_of(answer):
    code, details, message = answer
    if code == "OK" and isinstance(message, list) and len(message) == 1 and isinstance(message[0], dict):
        return message[0].get("error_message", str(message))
    return details if code != "OK" else str(message)


@pytest.mark.parametrize("name", CASES)
def test_answers_are_the_same(both, name):
    peer, ours = (CASES[name](caller) for caller in both)
    if name not in WANTED:
        assert ours == peer
        return
    row, (code, text) = WANTED[name]
    assert ours != peer, f"no difference any more: delete it from wanted_grpc.py ({row})"
    assert ours[0] == code, (peer, ours)
    found = text_of(ours)
    assert found.startswith(text_of(peer)) if text is SAME else text in found, (peer, ours)


def test_refused_by_a_full_queue_is_told_alike(both):
    """One request inside the model, one in its queue: the third is refused before it is executed."""
    told = []
    for caller in both:
        requests, answers = queue.Queue(), []
        call = caller.channel.stream_stream(SERVICE + "ModelStreamInfer")(iter(requests.get, None), timeout=60)
        requests.put(repeat(1, 2, delays=[0, 5000]).SerializeToString())
        answers.append(readable("ModelStreamInfer", next(call)))  # it is inside
        for id in ("2", "3"):
            requests.put(repeat(int(id), id=id).SerializeToString())
        requests.put(None)
        answers += [readable("ModelStreamInfer", answer) for answer in call]
        told.append(sorted(answers, key=lambda answer: (answer["infer_response"]["id"], str(answer))))
    peer, ours = told
    assert ours == peer
    (refused,) = [answer for answer in ours if answer["infer_response"]["id"] == "3"]
    assert refused == {"error_message": "[request id: 3] Exceeds maximum queue size", "infer_response": {"id": "3"}}


def test_every_wanted_difference_is_documented():
    document = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "compatibility.md").read_text()
    for row in ROWS:
        assert f"| {row} |" in document, row
