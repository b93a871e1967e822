"""What `make demo` runs; see tools/demo.sh."""

import collections
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import threading

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "clients"))

from served import Served, ServedSession, binary, make_model  # noqa: E402

OUT = ROOT / "demo-out"


def package_folder(name):
    """Where an installed package lies, without importing it (silero_vad would import torch)."""
    return pathlib.Path(importlib.util.find_spec(name).submodule_search_locations[0])


def say(text=""):
    print(text, flush=True)


def headline(number, text):
    say(f"\n── {number}. {text} " + "─" * max(0, 96 - len(text)))


def build_repository():
    repository = OUT / "models"
    magika = package_folder("magika")
    make_model(repository, "magika", next((magika / "models").glob("*/model.onnx")),
               config='backend: "onnxruntime"\nmax_batch_size: 1024\n'
                      'input { name: "bytes" data_type: TYPE_INT32 dims: 2048 }\n'
                      'output { name: "target_label" data_type: TYPE_FP32 dims: 214 }\n')
    make_model(repository, "silero_vad", package_folder("silero_vad") / "data" / "silero_vad.onnx")
    make_model(repository, "ocr_detection", package_folder("rapidocr") / "models" / "PP-OCRv6_det_small.onnx")
    return repository


def anonymous_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1])
    raise RuntimeError("no Anonymous line in smaps_rollup")


def name_file_types(server):
    """Magika, its own code and feature extraction, on the server's model instead of its own."""
    from magika import Magika

    own = Magika()
    served = Magika()
    served._onnx_session = ServedSession(server.client(network_timeout=120), "magika", {"bytes": np.int32})
    files = sorted(path for folder in ("src", "backends", "proto", "tools", "docs", "tests", "cmake")
                   for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    # In portions, so that no request takes long, however busy the machine is.
    portions = [files[at:at + 64] for at in range(0, len(files), 64)]
    answers = [answer for portion in portions for answer in served.identify_paths(portion)]
    expected = [answer for portion in portions for answer in own.identify_paths(portion)]
    types = collections.Counter(str(answer.output.label) for answer in answers)
    say(f"   {len(files)} files of this source tree, by type: "
        + ", ".join(f"{name} {count}" for name, count in types.most_common(8)))
    different = [path for path, a, b in zip(files, answers, expected)
                 if a.output.label != b.output.label or a.score != b.score]
    if different:
        raise SystemExit(f"the served model and the package disagree on {different}")
    say("   every label and every score is the one that the package's own session gives")


class Traffic:
    """Asks the served model without pause until stopped, and counts the answers."""

    def __init__(self, server):
        self.server, self.answers, self.failures = server, 0, []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        session = ServedSession(self.server.client(), "magika", {"bytes": np.int32})
        feed = {"bytes": np.zeros((1, 2048), np.int32)}
        while not self._stop.is_set():
            try:
                session.run(["target_label"], feed)
                self.answers += 1
            except Exception as error:  # noqa: BLE001: each failure is shown below
                self.failures.append(str(error))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def refuse_broken_configuration(server, repository):
    right = (repository / "magika" / "config.pbtxt").read_text()
    wrong = right.replace("TYPE_FP32", "TYPE_INT32")
    with Traffic(server) as traffic:
        for attempt in range(1, 7):
            (repository / "magika" / "config.pbtxt").write_text(wrong)
            status, text = server.load("magika")
            say(f"   attempt {attempt}: HTTP {status}, anonymous memory {anonymous_kib(server.process.pid):,} KiB")
            if status != 400:
                raise SystemExit(f"the broken configuration was not refused: {status} {text}")
        (repository / "magika" / "config.pbtxt").write_text(right)
        status, _ = server.load("magika")
    say("   the reason: " + text.strip())
    say(f"   meanwhile the good version gave {traffic.answers:,} answers, {len(traffic.failures)} failures")
    if traffic.failures or status != 200:
        raise SystemExit(f"the good version did not serve on: {status}, {traffic.failures[:3]}")


def audit():
    """The auditor, on a server that it starts itself; its exit status is the verdict."""
    out = OUT / "audit"
    command = [str(binary()), "audit", "--spawn",
               f"{binary()} serve --model-repository={{repository}} --http-address=127.0.0.1 --http-port={{http_port}} "
               "--grpc-port={grpc_port} --metrics-port={metrics_port} --model-control-mode=explicit --disable-auto-complete-config",
               "--repository", str(OUT / "models"), "--model", "magika", "--output", str(out)]
    status = subprocess.run(command, check=False).returncode
    say(f"   picture and table: {(out / 'report.html').relative_to(ROOT)}")
    return status


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    headline(1, "Three real models, unchanged, served over HTTP")
    repository = build_repository()
    with Served(repository, "--load-model=*", log=OUT / "server.log") as server:
        for entry in json.loads(server.post("/v2/repository/index")[1]):
            say(f"   {entry['name']}:{entry.get('version', '')} {entry.get('state', '')} {entry.get('reason', '')}")
        headline(2, "Real input: the type of every file in this source tree")
        name_file_types(server)
        headline(3, "A broken configuration, six times, while the good one serves")
        refuse_broken_configuration(server, repository)
        status = server.stop()
        say(f"   server stopped with exit status {status}")
    headline(4, "The auditor: does memory come back to the mark?")
    verdict = audit()
    say()
    return verdict


if __name__ == "__main__":
    sys.exit(main())
