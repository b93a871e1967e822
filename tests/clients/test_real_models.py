"""Real models of PyPI packages, served by both CPU engines, against ONNX Runtime in Python.

onnxruntime is held to bit-exact answers, openvino to float rounding.
"""

import importlib.util
import json
import pathlib

import numpy as np
import onnxruntime
import pytest
from served import Served, ServedSession, make_model


def package_folder(name):
    return pathlib.Path(importlib.util.find_spec(name).submodule_search_locations[0])


def model_path(name):
    if name == "magika":
        return next((package_folder("magika") / "models").glob("*/model.onnx"))
    if name == "silero_vad":
        return package_folder("silero_vad") / "data" / "silero_vad.onnx"
    if name == "silero_vad_fixed":  # the package's own form for OpenVINO
        return package_folder("silero_vad") / "data" / "silero_vad_openvino_16k.onnx"
    return package_folder("rapidocr") / "models" / {"ocr_det": "PP-OCRv6_det_small.onnx",
                                                    "ocr_cls": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
                                                    "ocr_rec": "PP-OCRv6_rec_small.onnx"}[name]


def feeds(name):
    random = np.random.default_rng(7)
    if name == "magika":
        for batch in (1, 3, 4):  # without a config the largest batch is 4, as Triton has it
            yield {"bytes": random.integers(0, 257, (batch, 2048), dtype=np.int32)}
    elif name.startswith("ocr"):
        for shape in {"ocr_det": [(1, 3, 64, 64), (1, 3, 320, 160), (2, 3, 96, 96)],
                      "ocr_cls": [(1, 3, 48, 192), (4, 3, 48, 192)],
                      "ocr_rec": [(1, 3, 48, 320), (2, 3, 48, 96)]}[name]:
            yield {"x": random.standard_normal(shape, dtype=np.float32)}
    else:
        yield {"input": random.standard_normal((1, 576), dtype=np.float32),
               "state": np.zeros((2, 1, 128), np.float32)}


MODELS = [("magika", "onnxruntime"), ("silero_vad", "onnxruntime"), ("ocr_det", "onnxruntime"),
          ("ocr_cls", "onnxruntime"), ("ocr_rec", "onnxruntime"),
          ("magika", "openvino"), ("silero_vad_fixed", "openvino"), ("ocr_det", "openvino"),
          ("ocr_cls", "openvino"), ("ocr_rec", "openvino")]


@pytest.fixture(scope="module")
def real_server(tmp_path_factory):
    root = tmp_path_factory.mktemp("real")
    for name, engine in MODELS:
        config = "" if engine == "onnxruntime" else 'backend: "openvino" default_model_filename: "model.onnx"\n'
        make_model(root, f"{name}_{engine}", model_path(name), config)
    with Served(root, "--load-model=*", log=root / "server.log") as running:
        yield running
        assert running.stop() == 0, running.log()


@pytest.fixture(scope="module")
def oracle():
    sessions = {}

    def get(name):
        if name not in sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            options.log_severity_level = 3
            sessions[name] = onnxruntime.InferenceSession(str(model_path(name)), options)
        return sessions[name]

    return get


@pytest.mark.parametrize("name, engine", MODELS)
def test_answers_are_those_of_the_library(real_server, oracle, name, engine):
    session = oracle(name)
    dtypes = {"bytes": np.int32, "x": np.float32, "input": np.float32, "state": np.float32, "sr": np.int64}
    outputs = [output.name for output in session.get_outputs()]
    served = ServedSession(real_server.client(network_timeout=120), f"{name}_{engine}", dtypes)
    for feed in feeds(name):
        if any(i.name == "sr" for i in session.get_inputs()):
            feed["sr"] = np.array(16000, dtype=np.int64)
        expected = session.run(outputs, feed)
        if "sr" in feed:
            shape = next(i["shape"] for i in real_server.client().get_model_metadata(f"{name}_{engine}")["inputs"]
                         if i["name"] == "sr")
            feed["sr"] = feed["sr"].reshape(shape)
        got = served.run(outputs, feed)
        for label, a, b in zip(outputs, expected, got):
            assert a.shape == b.shape and a.dtype == b.dtype, label
            if engine == "onnxruntime":
                assert np.array_equal(a, b), f"{label} differs by {np.abs(a - b).max()}"
            else:
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4, err_msg=label)


def test_silero_hears_speech_state_step_by_step(real_server, oracle):
    """The stateful model, its state carried by the client over 20 chunks, as the package does it."""
    session = oracle("silero_vad")
    served = ServedSession(real_server.client(), "silero_vad_onnxruntime",
                           {"input": np.float32, "state": np.float32, "sr": np.int64})
    shape = next(i["shape"] for i in real_server.client().get_model_metadata("silero_vad_onnxruntime")["inputs"]
                 if i["name"] == "sr")
    rate = np.array(16000, np.int64)
    time = np.arange(512 * 20, dtype=np.float32) / 16000
    audio = (np.sin(2 * np.pi * 220 * time) * np.sin(2 * np.pi * 3 * time)).astype(np.float32)
    ours = theirs = np.zeros((2, 1, 128), np.float32)
    for step in range(20):
        chunk = audio[step * 512:(step + 1) * 512].reshape(1, -1)
        a, theirs = session.run(["output", "stateN"], {"input": chunk, "state": theirs, "sr": rate})
        b, ours = served.run(["output", "stateN"], {"input": chunk, "state": ours, "sr": rate.reshape(shape)})
        assert np.array_equal(a, b) and np.array_equal(theirs, ours), f"step {step}"


def test_magika_names_files_as_the_package_does(real_server, tmp_path):
    from magika import Magika

    own, served = Magika(), Magika()
    served._onnx_session = ServedSession(real_server.client(), "magika_onnxruntime", {"bytes": np.int32})
    texts = {"a.py": "import os\n\n\ndef main():\n    print(os.getcwd())\n" * 9, "b.json": json.dumps({"a": [1, 2]} ) * 9,
             "c.html": "<html><body><p>hello</p></body></html>" * 9, "d.cc": "#include <vector>\nint main() {}\n" * 9}
    paths = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        paths.append(tmp_path / name)
    for a, b in zip(own.identify_paths(paths), served.identify_paths(paths)):
        assert (a.output.label, a.score) == (b.output.label, b.score)
