"""Ragged batches on ONNX models: requests of different lengths in one execution, told apart by `batch_input`."""

import queue

import numpy as np
import pytest
import tritonclient.grpc as grpc
from onnx import TensorProto, helper
from onnx_models import graph, value
from served import Served, make_model

LENGTHS = (2, 4, 1, 3)
BATCHER = "max_batch_size: 4 dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 60000000 }\n"


def made(kind, target, dtype, source="RAGGED"):
    return (f'batch_input {{ kind: {kind} target_name: "{target}" data_type: {dtype} source_input: "{source}" }}\n')


def ragged_model():
    """Doubles its elements, and gives each request what it was told of it."""
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    zero = helper.make_tensor("zero", TensorProto.INT64, [1], [0])
    minus = helper.make_tensor("minus", TensorProto.INT64, [1], [-1])
    two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
    return graph(
        [helper.make_node("Mul", ["RAGGED", "two"], ["DOUBLED"]),
         helper.make_node("Unsqueeze", ["COUNT", "one"], ["COUNTED"]),
         helper.make_node("Unsqueeze", ["SUM", "one"], ["SUMMED"]),
         helper.make_node("Slice", ["STARTS", "zero", "minus"], ["begins"]),
         helper.make_node("Unsqueeze", ["begins", "one"], ["BEGIN"]),
         helper.make_node("Shape", ["MOST"], ["most"]),
         helper.make_node("Shape", ["COUNTED"], ["rows"]),
         helper.make_node("Expand", ["most", "rows"], ["LONGEST"])],
        [value("RAGGED", TensorProto.FLOAT, ["e"]), value("COUNT", TensorProto.INT32, ["n"]),
         value("SUM", TensorProto.FLOAT, ["n"]), value("STARTS", TensorProto.INT32, ["n1"]),
         value("MOST", TensorProto.FLOAT, ["m"])],
        [value("DOUBLED", TensorProto.FLOAT, ["e"]), value("COUNTED", TensorProto.INT32, ["n", 1]),
         value("SUMMED", TensorProto.FLOAT, ["n", 1]), value("BEGIN", TensorProto.INT32, ["b", 1]),
         value("LONGEST", TensorProto.INT64, ["n", 1])],
        [one, zero, minus, two])


RAGGED = ('backend: "onnxruntime"\n' + BATCHER +
          'input { name: "RAGGED" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }\n'
          'output { name: "DOUBLED" data_type: TYPE_FP32 dims: -1 }\n'
          'output { name: "COUNTED" data_type: TYPE_INT32 dims: 1 }\n'
          'output { name: "SUMMED" data_type: TYPE_FP32 dims: 1 }\n'
          'output { name: "BEGIN" data_type: TYPE_INT32 dims: 1 }\n'
          'output { name: "LONGEST" data_type: TYPE_INT64 dims: 1 }\n'
          'batch_output { target_name: "DOUBLED" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "RAGGED" }\n'
          'instance_group { count: 1 kind: KIND_CPU }\n' +
          made("BATCH_ELEMENT_COUNT", "COUNT", "TYPE_INT32") +
          made("BATCH_ACCUMULATED_ELEMENT_COUNT", "SUM", "TYPE_FP32") +
          made("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", "STARTS", "TYPE_INT32") +
          made("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", "MOST", "TYPE_FP32"))

# The shapes of the items of an input, as rows and flat (the flat ones put into rows again, to be seen).
SHAPES = ('backend: "onnxruntime"\n' + BATCHER +
          'input { name: "R" data_type: TYPE_FP32 dims: [ -1, -1 ] allow_ragged_batch: true }\n'
          'output { name: "SHAPE" data_type: TYPE_FP32 dims: 2 }\noutput { name: "FLAT" data_type: TYPE_INT32 dims: 2 }\n'
          'instance_group { count: 1 kind: KIND_CPU }\n' +
          made("BATCH_ITEM_SHAPE", "ITEM", "TYPE_FP32", "R") +
          made("BATCH_ITEM_SHAPE_FLATTEN", "ITEMS", "TYPE_INT32", "R"))


def shapes_model():
    pairs = helper.make_tensor("pairs", TensorProto.INT64, [2], [-1, 2])
    return graph([helper.make_node("ReduceSum", ["R"], ["sum"], keepdims=0),
                  helper.make_node("Mul", ["sum", "nothing"], ["none"]),
                  helper.make_node("Add", ["ITEM", "none"], ["SHAPE"]),
                  helper.make_node("Reshape", ["ITEMS", "pairs"], ["FLAT"])],
                 [value("R", TensorProto.FLOAT, ["e"]), value("ITEM", TensorProto.FLOAT, ["n", 2]),
                  value("ITEMS", TensorProto.INT32, ["f"])],
                 [value("SHAPE", TensorProto.FLOAT, ["n", 2]), value("FLAT", TensorProto.INT32, ["k", 2])],
                 [pairs, helper.make_tensor("nothing", TensorProto.FLOAT, [], [0.0])])


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_model(root, "ragged", ragged_model(), config=RAGGED)
    make_model(root, "shapes", shapes_model(), config=SHAPES)
    make_model(root, "missing", ragged_model(), config=RAGGED.replace('target_name: "COUNT"', 'target_name: "COUNTS"'))
    make_model(root, "identity", b"", filename="unused", config=(
        'backend: "identity" max_batch_size: 2\n'
        'input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }\n'
        'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }\n'))
    with Served(root, "--load-model=ragged", "--load-model=shapes") as server:
        yield server
        assert server.stop() == 0, server.log()


def stream(server, model, name, tensors):
    """Sends all on one stream, in this order; the answers in the same."""
    answers = queue.Queue()
    client = grpc.InferenceServerClient(server.grpc_url)
    client.start_stream(lambda result, error: answers.put((result, error)))
    for i, tensor in enumerate(tensors):
        given = grpc.InferInput(name, tensor.shape, "FP32")
        given.set_data_from_numpy(tensor)
        client.async_stream_infer(model, [given], request_id=str(i))
    results = [answers.get(timeout=60) for _ in tensors]
    client.stop_stream()
    assert [error for _, error in results] == [None] * len(tensors)
    return [result for result, _ in results]


def executions(server, model):
    return server.client().get_inference_statistics(model)["model_stats"][0]["execution_count"]


def test_requests_of_different_lengths_run_as_one_and_get_their_own_parts(served):
    tensors = [np.arange(length, dtype=np.float32).reshape(1, length) + 10 * length for length in LENGTHS]
    results = stream(served, "ragged", "RAGGED", tensors)
    assert executions(served, "ragged") == 1
    for tensor, result in zip(tensors, results):
        np.testing.assert_array_equal(result.as_numpy("DOUBLED"), tensor * 2)
    assert [int(result.as_numpy("COUNTED")[0, 0]) for result in results] == [2, 4, 1, 3]
    assert [int(result.as_numpy("SUMMED")[0, 0]) for result in results] == [2, 6, 7, 10]
    assert [int(result.as_numpy("BEGIN")[0, 0]) for result in results] == [0, 2, 6, 7]
    assert [int(result.as_numpy("LONGEST")[0, 0]) for result in results] == [4] * 4


def test_items_have_their_shapes(served):
    results = stream(served, "shapes", "R", [np.ones(shape, np.float32) for shape in ((2, 1, 2), (1, 1, 2), (1, 2, 2))])
    assert executions(served, "shapes") == 1
    expected = ([[1, 2], [1, 2]], [[1, 2]], [[2, 2]])
    for result, rows in zip(results, expected):
        np.testing.assert_array_equal(result.as_numpy("SHAPE"), rows)
        np.testing.assert_array_equal(result.as_numpy("FLAT"), rows)


def test_what_does_not_fit_the_model_or_the_backend_is_refused_by_name(served):
    status, error = served.load("missing")
    assert status == 400 and "unexpected inference input 'COUNTS', allowed inputs are: " in error
    status, error = served.load("identity")
    assert status >= 400 and "the backend 'identity' does not batch ragged inputs" in error
