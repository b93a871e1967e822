"""Small ONNX models, made in memory."""

import numpy as np
import onnx
from onnx import TensorProto, helper

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
