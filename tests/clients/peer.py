"""NVIDIA's own tritonserver as a child process: what tools/setup.sh bench puts into .deps/tritonserver.

The wheel carries the Python backend only. Its stub belongs to one version of Python, and its interface to numpy before 2
(with a newer one every output has 0 bytes), so that numpy 1 lies beside it.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

from served import ROOT, Served

WHEEL = pathlib.Path(os.environ.get("TIDEMARK_DEPS", ROOT / ".deps")) / "tritonserver"
NUMPY = WHEEL / "python"
STUB = (WHEEL / "pytriton" / "tritonserver" / "python_backend_stubs" / f"{sys.version_info.major}.{sys.version_info.minor}" /
        "triton_python_backend_stub")

# A Python model that answers output i with input i, of any datatype.
ECHO = f"""import json, sys
sys.path.insert(0, {str(NUMPY)!r})  # the stub's own interpreter does not look there
import triton_python_backend_utils as pb
class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.source = dict(zip([o["name"] for o in config["output"]], [i["name"] for i in config["input"]]))
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor(o, pb.get_input_tensor_by_name(r, self.source[o]).as_numpy())
                                      for o in sorted(r.requested_output_names())]) for r in requests]  # it is a set
"""


def missing():
    """Why there is no peer; empty when there is one."""
    for path in (WHEEL / "pytriton", NUMPY, STUB):
        if not path.exists():
            return f"no {path}: run tools/setup.sh bench"
    return ""


class Peer:
    """The server over `repository`, with Served's way of asking. Python models are made by make_python."""

    def __init__(self, repository, log, *options):
        with socket.socket() as free, socket.socket() as other:
            free.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            self.port, grpc_port = free.getsockname()[1], other.getsockname()[1]
        self.url, self.grpc_url = f"127.0.0.1:{self.port}", f"127.0.0.1:{grpc_port}"
        home = WHEEL / "pytriton" / "tritonserver"
        # The Python backend wants its stub beside itself.
        backend = pathlib.Path(repository).parent / "backends" / "python"
        backend.mkdir(parents=True, exist_ok=True)
        for file in [*(home / "backends" / "python").iterdir(), STUB]:
            shutil.copy(file, backend)
        (backend / STUB.name).chmod(0o755)
        environment = dict(os.environ, LD_LIBRARY_PATH=str(WHEEL / "nvidia_pytriton.libs"))
        self._log = open(log, "wb")
        self.process = subprocess.Popen(
            [str(home / "bin" / "tritonserver"), f"--model-repository={repository}", "--http-address=127.0.0.1",
             f"--http-port={self.port}", "--grpc-address=127.0.0.1", f"--grpc-port={grpc_port}", "--allow-metrics=false", "--model-control-mode=explicit",
             f"--backend-directory={backend.parent}", *options],
            env=environment, stdout=self._log, stderr=subprocess.STDOUT)
        end = time.monotonic() + 600
        while self.get("/v2/health/live")[0] != 200:
            if time.monotonic() > end or self.process.poll() is not None:
                self.process.kill()
                raise RuntimeError("the peer did not start:\n" + pathlib.Path(log).read_text(errors="replace"))
            time.sleep(0.05)

    request, post, load, unload = Served.request, Served.post, Served.load, Served.unload

    def get(self, path):
        try:
            return self.request("GET", path)
        except OSError:
            return 0, b""

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(120)
        finally:
            self._log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


# What tests/support/README.md says of "repeat", but for a request that is cancelled.
REPEAT = f"""import sys, time
sys.path.insert(0, {str(NUMPY)!r})
import numpy as np
import triton_python_backend_utils as pb
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            values, delays, wait = (pb.get_input_tensor_by_name(request, n).as_numpy() for n in ("IN", "DELAY", "WAIT"))
            failed = False
            for i, (value, delay) in enumerate(zip(values, delays)):
                time.sleep(int(delay) / 1000)
                if value < 0:
                    sender.send(pb.InferenceResponse(error=pb.TritonError("negative element", pb.TritonError.INVALID_ARG)),
                                flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                    failed = True
                    break
                sender.send(pb.InferenceResponse([pb.Tensor("OUT", np.array([value], np.int32)),
                                                  pb.Tensor("IDX", np.array([i], np.uint32))]))
            if not failed:
                sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def make_python(repository, name, config, source=ECHO):
    """A Python model of one version; `config` without its backend."""
    folder = pathlib.Path(repository) / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(source)
    (folder.parent / "config.pbtxt").write_text('backend: "python"\n' + config)
