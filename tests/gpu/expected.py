#!/usr/bin/env python3
"""Writes inputs and ONNX Runtime's outputs for the real models of the TensorRT 10.6 part: expected.py FOLDER.

Runs in the Python environment of `tools/setup.sh test`, which has the packages that ship the models.
"""

import importlib.util
import json
import pathlib
import sys

import numpy as np
import onnxruntime


def package(name):
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    magika = next(package("magika").rglob("model.onnx"))
    ocr = next(package("rapidocr").rglob("PP-OCRv6_det_small.onnx"))
    text = b"#include <vector>\nint main() { return 0; }\n" * 30
    features = np.full((8, 2048), 256, np.int32)  # 256 is the padding
    for row in range(8):
        piece = text[row * 11:][:1024]
        features[row, :len(piece)] = np.frombuffer(piece, np.uint8)
        features[row, 2048 - len(piece):] = np.frombuffer(piece[::-1], np.uint8)
    pictures = {shape: random.normal(0, 1, shape).astype(np.float32) for shape in ((1, 3, 64, 64), (1, 3, 320, 320), (2, 3, 320, 320))}
    cases = []
    for model, path, feed, datatype, tolerance in (
            [("magika", magika, features[:n], "INT32", 2e-3) for n in (1, 8)] +
            [("ocrdet", ocr, picture, "FP32", 2e-2) for picture in pictures.values()]):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        outputs = session.run(None, {name: feed})
        number = len(cases)
        feed.tofile(folder / f"{number}-in.bin")
        case = {"model": model, "tolerance": tolerance, "outputs": [],
                "inputs": [{"name": name, "datatype": datatype, "shape": list(feed.shape), "file": f"{number}-in.bin"}]}
        for i, (meta, value) in enumerate(zip(session.get_outputs(), outputs)):
            value.astype(np.float32).tofile(folder / f"{number}-out{i}.bin")
            case["outputs"].append({"name": meta.name, "shape": list(value.shape), "file": f"{number}-out{i}.bin"})
        cases.append(case)
    (folder / "cases.json").write_text(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
