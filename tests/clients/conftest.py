"""One explicit-mode server over small ONNX models for the whole session."""

import pathlib
import sys

import pytest
from onnx import TensorProto

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from onnx_models import DTYPES, addsub_model, identity_model  # noqa: E402
from served import Served, make_model  # noqa: E402

@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, (elem, _) in DTYPES.items():
        dtype = "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}"
        make_model(root, f"identity_{name.lower()}", identity_model(elem),
                   config=f'backend: "onnxruntime"\ninput {{ name: "INPUT0" data_type: {dtype} dims: -1 }}\n'
                          f'output {{ name: "OUTPUT0" data_type: {dtype} dims: -1 }}\n')
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
