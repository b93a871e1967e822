"""A Tidemark server as a child process, and stand-ins that let a package run its own model on it."""

import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import numpy as np
import tritonclient.http as triton
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import np_to_triton_dtype

ROOT = pathlib.Path(__file__).resolve().parents[2]


def binary() -> pathlib.Path:
    """The server to test: $TIDEMARK_BINARY, else the release build."""
    return pathlib.Path(os.environ.get("TIDEMARK_BINARY", ROOT / "build" / "release" / "tidemark"))


def test_program() -> pathlib.Path:
    """The server with test backends (tests/support/README.md), beside the one to test."""
    return binary().parent / "tidemark_test_server"


test_program.__test__ = False  # no test, whatever its name says


class Served:
    """Starts `tidemark serve` on a free port over `repository`; stops it with SIGTERM at the end of a `with`.

    `log` is a file that gets the server's output. `ready` is awaited by polling the process and its port file.
    """

    def __init__(self, repository, *options, explicit=True, log=None, wait_ready=True, limit_s=300, program=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="served-"))
        self.log_path = pathlib.Path(log) if log else self.folder / "server.log"
        self.port_file = self.folder / "port"
        command = [str(program or binary()), *([] if program else ["serve"]), f"--model-repository={repository}", "--http-address=127.0.0.1",
                   "--http-port=0", f"--http-port-file={self.port_file}",
                   f"--metrics-port-file={self.folder / 'metrics-port'}", "--grpc-address=127.0.0.1",
                   "--grpc-port=0", f"--grpc-port-file={self.folder / 'grpc_port'}"]
        if explicit:
            command.append("--model-control-mode=explicit")
        command += options
        self._log = open(self.log_path, "ab")
        self.process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        self._await(lambda: self.port_file.exists(), limit_s, "open its port")
        self.port = int(self.port_file.read_text())
        self.url = f"127.0.0.1:{self.port}"
        if (self.folder / "grpc_port").exists():  # not with --allow-grpc=false; it is written first
            self.grpc_url = f"127.0.0.1:{int((self.folder / 'grpc_port').read_text())}"
        if wait_ready:
            self._await(lambda: self.get("/v2")[0] == 200 and self._started(), limit_s, "finish its start")

    def _started(self):
        # Anything but "Server not ready" from the index means that the start-up loads have ended.
        return self.post("/v2/repository/index")[0] == 200

    def _await(self, condition, limit_s, what):
        end = time.monotonic() + limit_s
        pidfd = os.pidfd_open(self.process.pid)
        try:
            while not condition():
                if select.select([pidfd], [], [], 0.01)[0] or time.monotonic() > end:
                    raise RuntimeError(f"the server did not {what}; its log:\n" + self.log())
        finally:
            os.close(pidfd)

    def metrics(self):
        """GET /metrics of the metrics port, as {name: {labels as a frozenset of pairs: value}}; see `sample`."""
        return parse_metrics(self.metrics_text())

    def metrics_text(self, path="/metrics"):
        port = int((self.folder / "metrics-port").read_text())  # written before the HTTP port's file
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.read().decode()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def request(self, method, path, body=None, headers=None):
        request = urllib.request.Request(f"http://{self.url}{path}", data=body, method=method, headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, document=None):
        body = b"" if document is None else json.dumps(document).encode()
        return self.request("POST", path, body, {"Content-Type": "application/json"})

    def load(self, model, **parameters):
        """Status and error text of a load."""
        document = {"parameters": parameters} if parameters else None
        status, body = self.post(f"/v2/repository/models/{model}/load", document)
        return status, json.loads(body)["error"] if body else ""

    def unload(self, model):
        status, body = self.post(f"/v2/repository/models/{model}/unload")
        return status, json.loads(body or b"{}").get("error", "")

    def open_files(self):
        """What the process' descriptors point to; one that is closed meanwhile is left out."""
        return [target for target in map(link_target, pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()) if target]

    def client(self, **options):
        return triton.InferenceServerClient(self.url, **options)

    def stop(self):
        """SIGTERM and the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self._log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def link_target(path):
    """Where a symbolic link points to, None when it is gone by now."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None


def files_below(folder):
    """Every file and folder below, sorted; folders may go while this looks (pathlib's rglob would raise)."""
    return sorted(pathlib.Path(at) / name for at, folders, files in os.walk(folder) for name in (*folders, *files))


def await_nothing_new_in_shm(before):
    """What other processes of the machine have there goes again; what a server left does not."""
    end = time.monotonic() + 60
    while new := set(pathlib.Path("/dev/shm").iterdir()) - before:
        assert time.monotonic() < end, f"left in /dev/shm: {new}"


def parse_metrics(text):
    """The samples of a scrape, read by Prometheus' own parser."""
    samples = {}
    written = set(re.findall(r"^([a-zA-Z_:][\w:]*)", text, re.M))
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser gives counters the ending that OpenMetrics wants; Triton's have none.
            name = sample.name if sample.name in written else sample.name.removesuffix("_total")
            series = samples.setdefault(name, {})
            key = frozenset(sample.labels.items())
            assert key not in series, f"{name} {sample.labels} is there twice"
            series[key] = sample.value
    return samples


def sample(metrics, name, **labels):
    """The sum of all series of that name that have these labels; None when there is none."""
    values = [value for key, value in metrics.get(name, {}).items() if set(labels.items()) <= key]
    return sum(values) if values else None


class ServedSession:
    """Looks like an onnxruntime.InferenceSession to a package, but asks the server."""

    def __init__(self, client, model, dtypes):
        self.client, self.model, self.dtypes = client, model, dtypes

    def run(self, output_names, feed, *_):
        inputs = []
        for name, value in feed.items():
            array = np.ascontiguousarray(np.asarray(value, dtype=self.dtypes[name]))
            tensor = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
            tensor.set_data_from_numpy(array)
            inputs.append(tensor)
        outputs = [triton.InferRequestedOutput(name) for name in output_names]
        answer = self.client.infer(self.model, inputs, outputs=outputs)
        return [answer.as_numpy(name) for name in output_names]


def make_model(repository, name, source, config="", version=1, filename="model.onnx"):
    """Puts a model into a repository: a copy of `source` (a path, or the file's bytes) and, if given, its config."""
    folder = pathlib.Path(repository) / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(source, bytes):
        (folder / filename).write_bytes(source)
    else:
        shutil.copyfile(source, folder / filename)
    if config:
        (folder.parent / "config.pbtxt").write_text(config)
    return folder.parent
