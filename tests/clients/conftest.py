"""Fixtures: small ONNX models made in memory, and one explicit-mode server over them for the whole session."""

import pathlib
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from served import Served, make_model  # noqa: E402

# KServe name -> (ONNX element type, numpy type)
DTYPES = {
    "BOOL": (TensorProto.BOOL, np.bool_),
    "INT8": (TensorProto.INT8, np.int8), "INT16": (TensorProto.INT16, np.int16),
    "INT32": (TensorProto.INT32, np.int32), "INT64": (TensorProto.INT64, np.int64),
    "UINT8": (TensorProto.UINT8, np.uint8), "UINT16": (TensorProto.UINT16, np.uint16),
    "UINT32": (TensorProto.UINT32, np.uint32), "UINT64": (TensorProto.UINT64, np.uint64),
    "FP16": (TensorProto.FLOAT16, np.float16), "FP32": (TensorProto.FLOAT, np.float32),
    "FP64": (TensorProto.DOUBLE, np.float64), "BYTES": (TensorProto.STRING, np.object_),
}


def graph(nodes, inputs, outputs, initializers=()):
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, list(initializers)),
                              opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model.SerializeToString()


def value(name, elem, shape):
    return helper.make_tensor_value_info(name, elem, shape)


def identity_model(elem, shape=("n",)):
    return graph([helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])],
                 [value("INPUT0", elem, shape)], [value("OUTPUT0", elem, shape)])


def addsub_model(elem=TensorProto.FLOAT, shape=("n", 16)):
    return graph([helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
                  helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"])],
                 [value("INPUT0", elem, shape), value("INPUT1", elem, shape)],
                 [value("OUTPUT0", elem, shape), value("OUTPUT1", elem, shape)])


def weights_model(mib):
    """x [n, 1024] times a matrix of that many MiB, inline."""
    columns = mib * 256
    matrix = (np.arange(1024 * columns, dtype=np.int64) % 7 - 3).astype(np.float32).reshape(1024, columns)
    return graph([helper.make_node("MatMul", ["INPUT0", "W"], ["OUTPUT0"])],
                 [value("INPUT0", TensorProto.FLOAT, ("n", 1024))],
                 [value("OUTPUT0", TensorProto.FLOAT, ("n", columns))],
                 [helper.make_tensor("W", TensorProto.FLOAT, matrix.shape, matrix.tobytes(), raw=True)])


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, (elem, _) in DTYPES.items():
        make_model(root, f"identity_{name.lower()}", identity_model(elem))
    make_model(root, "addsub", addsub_model())
    folder = make_model(root, "classes", identity_model(TensorProto.FLOAT, ("n", 5)),
                        config='backend: "onnxruntime" max_batch_size: 8\n'
                               'input { name: "INPUT0" data_type: TYPE_FP32 dims: 5 }\n'
                               'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 5 '
                               'label_filename: "labels.txt" }\n')
    (folder / "labels.txt").write_text("ant\nbee\ncat\ndog\neel\n")
    folder = make_model(root, "core_identity", b"", filename="unused", config=(
        'backend: "identity"\nmax_batch_size: 0\n'
        'input { name: "INPUT0" data_type: TYPE_STRING dims: -1 }\n'
        'output { name: "OUTPUT0" data_type: TYPE_STRING dims: -1 }\n'))
    return root


@pytest.fixture(scope="session")
def server(repository, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "server.log"
    with Served(repository, "--load-model=*", log=log) as running:
        yield running
        assert running.stop() == 0, running.log()
