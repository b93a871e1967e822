"""Iterative sequences through Triton's own clients: requests without a correlation id that are executed many times."""

import json
import queue

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from served import Served, make_model, test_program

CONFIG = """backend: "iterate" max_batch_size: 4
input { name: "N" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
model_transaction_policy { decoupled: %s }
sequence_batching {
  iterative_sequence: true %s { }
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
  state { input_name: "STATE_IN" output_name: "STATE_OUT" data_type: TYPE_INT32 dims: 1 }
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for strategy in ("direct", "oldest"):
        for decoupled in ("true", "false"):
            name = f"{strategy}_{'stream' if decoupled == 'true' else 'once'}"
            make_model(root, name, b"", filename="unused", config=CONFIG % (decoupled, strategy))
    with Served(root, "--load-model=*", program=test_program()) as running:
        yield running
        assert running.stop() == 0, running.log()


def request(package, n):
    tensor = package.InferInput("N", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.array([[n]], dtype=np.int32))
    return [tensor]


@pytest.mark.parametrize("strategy", ["direct", "oldest"])
def test_request_without_an_id_is_answered_by_its_last_execution(server, strategy):
    model = f"{strategy}_once"
    with server.client() as client:
        for n in (1, 7):
            assert client.infer(model, request(http, n)).as_numpy("OUT").tolist() == [[n]]
    with grpc.InferenceServerClient(server.grpc_url) as client:
        assert client.infer(model, request(grpc, 3)).as_numpy("OUT").tolist() == [[3]]
    statistics = json.loads(server.get(f"/v2/models/{model}/stats")[1])["model_stats"][0]
    assert (statistics["inference_count"], statistics["execution_count"]) == (3, 11)
    assert statistics["inference_stats"]["success"]["count"] == 3


@pytest.mark.parametrize("strategy", ["direct", "oldest"])
def test_short_stream_ends_beside_an_endless_one(server, strategy):
    model = f"{strategy}_stream"
    answers = queue.Queue()
    endless = grpc.InferenceServerClient(server.grpc_url)
    endless.start_stream(lambda result, error: answers.put(error or int(result.as_numpy("OUT")[0][0])))
    endless.async_stream_infer(model, request(grpc, 2**31 - 1))
    assert answers.get(timeout=60) == 1
    status, body = server.post(f"/v2/models/{model}/generate_stream", {"N": 3})
    events = [json.loads(line.removeprefix("data: ")) for line in body.decode().splitlines() if line]
    assert (status, [event["OUT"] for event in events]) == (200, [1, 2, 3])
    while not answers.empty():
        assert isinstance(answers.get(), int), "an error"
    assert isinstance(answers.get(timeout=60), int), "it still runs"
    endless.stop_stream(cancel_requests=True)
    endless.close()
    assert server.unload(model) == (200, ""), "its slot and the request are gone"
