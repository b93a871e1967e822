#!/usr/bin/env python3
"""The same work against Tidemark and, where it is there, NVIDIA's tritonserver, in one run; prints ratios.

The peer is the `tritonserver` of PyPI's nvidia-pytriton wheel (tools/setup.sh bench puts it into .deps/tritonserver). It
carries the Python backend only, so its identity is a Python model; loads of ONNX models are compared with the bare engine
(an onnxruntime.InferenceSession of one thread in this process). CPU is the server's own, from schedstat of all its threads;
it tells more than latency on a machine that is shared. Rounds alternate between the servers; medians are printed.

Where CPU is measured the server has core 0 and the client core 1, and neither core ever idles: a process of the lowest
scheduling class (SCHED_IDLE) keeps each awake. A virtual machine's core that has gone to sleep makes whoever wakes it pay
several times what a small request costs. --idle-cores measures without. Waking a client on another core that is awake
still takes an interrupt, which leaves the virtual machine: with one connection there is one for each request, so that
this is measured on one core, too. bench/micro/epoll_floor, which answers without
reading, runs in the same rounds: nothing can cost less than it does on that machine.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "clients"))

from onnx_models import addsub_model, identity_model, weights_model  # noqa: E402
from onnx import TensorProto  # noqa: E402
import peer as real  # noqa: E402
from served import Served, binary, make_model  # noqa: E402

IDENTITY = ('backend: "{}"\ninput {{ name: "INPUT0" data_type: TYPE_FP32 dims: -1 }}\n'
            'output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }}\n')

FLOOR = binary().parent / "bench" / "epoll_floor"


@contextlib.contextmanager
def cores_awake(wanted=True):
    """No core idles meanwhile, and nobody who has work for one waits for what keeps it awake."""
    burners = []
    try:
        for core in range(os.cpu_count() if wanted else 0):
            def lowest(core=core):
                os.sched_setaffinity(0, {core})
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

            burners.append(subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=lowest))
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


class Floor:
    """bench/micro/epoll_floor with what wrk() wants to know of a server."""

    def __init__(self):
        self.process = subprocess.Popen([FLOOR], stdout=subprocess.PIPE, text=True)
        self.url = f"127.0.0.1:{int(self.process.stdout.readline().split()[1])}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def pin(pid, core):
    """All threads of a process to one core: what a request costs then does not hang on where threads wake up."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task.name), {core})


def server_cpu_ns(pid):
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total


def wrk(server, path, seconds, connections, body=None, header=0, core=1):
    """CPU µs a request, requests/s, p50 µs and p99 µs of `connections` closed loops; the client is on `core`."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        if body is not None:
            with tempfile.NamedTemporaryFile(delete=False) as data:
                data.write(body)
            script.write(f'local f = io.open("{data.name}", "rb")\nwrk.method = "POST"\nwrk.body = f:read("*a")\n'
                         f'wrk.headers["Inference-Header-Content-Length"] = "{header}"\n')
        script.write('function done(s, l, r) io.write(string.format("RESULT %d %d %f %f %d\\n", s.requests, s.duration, '
                     'l:percentile(50), l:percentile(99), s.errors.status + s.errors.read + s.errors.timeout)) end\n')
        script.flush()
        before = server_cpu_ns(server.process.pid)
        answer = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", script.name,
                                 f"http://{server.url}{path}"], capture_output=True, text=True, check=True,
                                preexec_fn=lambda: os.sched_setaffinity(0, {core})).stdout
        cpu = server_cpu_ns(server.process.pid) - before
    if body is not None:
        os.unlink(data.name)
    requests, micros, p50, p99, errors = (float(x) for x in re.search(r"RESULT (.*)", answer).group(1).split())
    if errors:
        raise RuntimeError(f"{int(errors)} errors from {path}: {answer}")
    return {"CPU µs": cpu / 1000 / requests, "req/s": requests / micros * 1e6, "p50 µs": p50, "p99 µs": p99}


def h2load(server, message, seconds, connections):
    """The same for ModelInfer over gRPC: one call at a time on each connection; `message` is a framed ModelInferRequest."""
    with tempfile.NamedTemporaryFile() as data, tempfile.NamedTemporaryFile() as log:
        data.write(message)
        data.flush()
        before = server_cpu_ns(server.process.pid)
        answer = subprocess.run(["h2load", "-t1", f"-c{connections}", "-m1", f"-D{seconds}", "-d", data.name, f"--log-file={log.name}",
                                 "-H", "content-type: application/grpc", "-H", "te: trailers",
                                 f"http://{server.grpc_url}/inference.GRPCInferenceService/ModelInfer"],
                                capture_output=True, text=True, check=True,
                                preexec_fn=lambda: os.sched_setaffinity(0, {1})).stdout
        cpu = server_cpu_ns(server.process.pid) - before
        micros = sorted(int(line.split()[2]) for line in pathlib.Path(log.name).read_text().splitlines())
    done, failed = (int(re.search(rf"(\d+) {what}", answer).group(1)) for what in ("succeeded", "failed"))
    answered = int(re.search(r"\((\d+)\) data", answer).group(1))
    if not done or failed or answered < done * 0.9 * len(message):  # an error of gRPC is a 200 without the tensor
        raise RuntimeError(f"errors from ModelInfer: {answer}")
    return {"CPU µs": cpu / 1000 / done, "req/s": done / seconds, "p50 µs": micros[len(micros) // 2],
            "p99 µs": micros[len(micros) * 99 // 100]}


def infer_message(elements):
    """The ModelInferRequest of infer_body, with gRPC's prefix."""
    def varint(number):
        out = b""
        while number >= 0x80:
            out += bytes([number & 0x7F | 0x80])
            number >>= 7
        return out + bytes([number])

    def text(field, value):
        return bytes([field << 3 | 2]) + varint(len(value)) + value

    tensor = text(1, b"INPUT0") + text(2, b"FP32") + text(3, varint(elements))
    message = text(1, b"identity") + text(5, tensor) + text(7, bytes(4 * elements))
    return b"\0" + len(message).to_bytes(4, "big") + message


def infer_body(elements):
    size = 4 * elements
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [elements],
                                   "parameters": {"binary_data_size": size}}],
                       "parameters": {"binary_data_output": True}}).encode()
    return head + bytes(size), len(head)


class Cycles:
    """Loads and unloads over one kept-alive connection, timed from the first byte sent to the last one received. A plain
    socket: http.client spends 0.1 ms of its own on each request."""

    def __init__(self, server):
        host, _, port = server.url.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path):
        request = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n".encode()
        answer, missing = b"", 1
        start = time.perf_counter()
        self.socket.sendall(request)
        while missing > 0:
            if not (piece := self.socket.recv(1 << 16)):
                raise RuntimeError(f"{path}: the connection was closed")
            end = time.perf_counter()
            answer += piece
            head, blank, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            missing = (int(length[1]) if length else 0) - len(body) if blank else 1
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise RuntimeError(f"{path}: {answer.decode()}")
        return (end - start) * 1000

    def cycle(self, model):
        return {"load ms": self.post(f"/v2/repository/models/{model}/load"),
                "unload ms": self.post(f"/v2/repository/models/{model}/unload")}


def median_of(rows):
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def show(title, ours, other=None, other_name="tritonserver", floor=None):
    print(f"\n{title}")
    for key, value in ours.items():
        line = f"  {key:<10} tidemark {value:>12,.2f}"
        if other and key in other:
            line += f"   {other_name} {other[key]:>12,.2f}   ratio {value / other[key]:.3f}"
        if floor:
            line += f"   floor {floor[key]:>12,.2f}"
        print(line, flush=True)


def bare_session_ms(path, rounds):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        session = onnxruntime.InferenceSession(str(path), options)
        loaded = time.perf_counter()
        del session
        times.append({"load ms": (loaded - start) * 1000, "unload ms": (time.perf_counter() - loaded) * 1000})
    return median_of(times)


def interleaved(servers, rounds, measure):
    """The median of each of `servers` (None stays None), measured in turns, in the other order every other round."""
    rows = [[] for _ in servers]
    for turn in range(rounds):
        order = [i for i, one in enumerate(servers) if one]
        for i in order if turn % 2 == 0 else order[::-1]:
            rows[i].append(measure(servers[i]))
    return [median_of(row) if row else None for row in rows]


def requests_part(server, peer, arguments):
    small, small_head = infer_body(256)
    large, large_head = infer_body(1 << 20)
    identity, onnx = "/v2/models/identity/infer", "/v2/models/onnx_identity/infer"
    same = "client on the server's core: nobody interrupts another core"
    no_peer = "no peer: the wheel has no ONNX backend"
    cases = [("1 KiB binary identity, 1 connection", identity, 1, small, small_head, 1),
             (f"1 KiB binary identity, 1 connection ({same})", identity, 1, small, small_head, 0),
             ("1 KiB binary identity, 16 connections", identity, 16, small, small_head, 1),
             (f"1 KiB binary ONNX identity, 1 connection ({no_peer})", onnx, 1, small, small_head, 1),
             (f"1 KiB binary ONNX identity, 1 connection ({same})", onnx, 1, small, small_head, 0),
             ("4 MiB binary identity, 1 connection", identity, 1, large, large_head, 1),
             ("health, 1 connection", "/v2/health/live", 1, None, 0, 1),
             ("health, 16 connections", "/v2/health/live", 16, None, 0, 1)]
    with contextlib.ExitStack() as stack:
        floor = stack.enter_context(Floor()) if FLOOR.exists() else None
        stack.enter_context(cores_awake(not arguments.idle_cores))
        for one in filter(None, (server, peer, floor)):  # server on one core, client on the other
            pin(one.process.pid, 0)
        for title, path, connections, body, head, core in cases:
            ours, theirs, least = interleaved(
                [server, peer if path != onnx else None, floor if body == small else None], arguments.rounds,
                lambda one: wrk(one, path, arguments.seconds, connections, body, head, core))  # noqa: B023
            show(title, ours, theirs, floor=least)
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {0, 1})


def grpc_part(server, peer, arguments):
    small, large = infer_message(256), infer_message(1 << 20)
    for one in filter(None, (server, peer)):
        pin(one.process.pid, 0)
    with cores_awake(not arguments.idle_cores):
        for title, message, connections in (("1 KiB gRPC identity, 1 connection", small, 1), ("1 KiB gRPC identity, 8 connections", small, 8),
                                            ("4 MiB gRPC identity, 1 connection", large, 1), ("4 MiB gRPC identity, 8 connections", large, 8)):
            ours, theirs = interleaved([server, peer], arguments.rounds,
                                       lambda one: h2load(one, message, arguments.seconds, connections))  # noqa: B023
            show(title, ours, theirs)
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {0, 1})


def loads_part(server, peer, repository, arguments):
    cycles = Cycles(server)
    server.unload("tiny")
    ours = median_of([cycles.cycle("tiny") for _ in range(arguments.cycles)])
    show("tiny ONNX: load + unload, unload answered when the memory is back; against the bare engine", ours,
         bare_session_ms(repository / "tiny" / "1" / "model.onnx", arguments.cycles), "bare session")
    if peer:
        theirs = Cycles(peer)
        peer.unload("identity")
        server.unload("identity")
        show("identity: load + unload (peer: a Python model, its unload answered before it is done)",
             median_of([cycles.cycle("identity") for _ in range(20)]),
             median_of([theirs.cycle("identity") for _ in range(5)]))
    for name, title in (("weights", "64 MiB ONNX, full configuration"), ("weights_bare", "64 MiB ONNX, no configuration")):
        server.unload(name)
        ours, bare = [], []
        for _ in range(arguments.rounds):
            ours.append(cycles.cycle(name))
            bare.append(bare_session_ms(repository / name / "1" / "model.onnx", 1))
        show(title + "; against the bare engine", median_of(ours), median_of(bare), "bare session")
    serial, together = [], []
    for _ in range(arguments.rounds):
        serial.append(sum(cycles.post(f"/v2/repository/models/{m}/load") for m in ("weights", "weights_bare")))
        for m in ("weights", "weights_bare"):
            cycles.post(f"/v2/repository/models/{m}/unload")
        threads = [threading.Thread(target=Cycles(server).post, args=(f"/v2/repository/models/{m}/load",))
                   for m in ("weights", "weights_bare")]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        together.append((time.perf_counter() - start) * 1000)
        for m in ("weights", "weights_bare"):
            cycles.post(f"/v2/repository/models/{m}/unload")
    print(f"\ntwo 64 MiB loads: one after the other {statistics.median(serial):.1f} ms, at once "
          f"{statistics.median(together):.1f} ms: {statistics.median(serial) / statistics.median(together):.2f}×")


def probe(server, seconds):
    """Milliseconds of readiness probes, one every 2 ms, on one kept-alive connection."""
    connection = http.client.HTTPConnection(server.url)
    times = []
    end = time.perf_counter() + seconds
    due = time.perf_counter()
    while due < end:
        time.sleep(max(0.0, due - time.perf_counter()))
        start = time.perf_counter()
        connection.request("GET", "/v2/health/ready")
        connection.getresponse().read()
        times.append((time.perf_counter() - start) * 1000)
        due = max(due + 0.002, time.perf_counter())
    return sorted(times)


def health_part(server, arguments):
    stop = threading.Event()
    loads = [0]

    def churn():
        cycles = Cycles(server)
        while not stop.is_set():
            cycles.cycle("weights")
            loads[0] += 1

    quiet = probe(server, arguments.seconds)
    thread = threading.Thread(target=churn)
    thread.start()
    busy = probe(server, arguments.seconds * 3)
    stop.set()
    thread.join()
    at = lambda times, part: times[int(len(times) * part)]  # noqa: E731
    print(f"\nhealth while a 64 MiB model loads and unloads {loads[0]} times: p50 {at(busy, 0.5):.3f} ms, "
          f"p99 {at(busy, 0.99):.3f} ms, max {busy[-1]:.3f} ms; quiet: p50 {at(quiet, 0.5):.3f}, p99 {at(quiet, 0.99):.3f}, "
          f"max {quiet[-1]:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--parts", default="requests,grpc,loads,health")
    parser.add_argument("--idle-cores", action="store_true", help="let cores sleep where CPU is measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        repository, theirs = pathlib.Path(folder, "ours"), pathlib.Path(folder, "peer")
        make_model(repository, "identity", b"", IDENTITY.format("identity"), filename="unused")
        real.make_python(theirs, "identity", IDENTITY.split("\n", 1)[1].format())
        make_model(repository, "onnx_identity", identity_model(TensorProto.FLOAT), IDENTITY.format("onnxruntime"))
        make_model(repository, "tiny", addsub_model())
        weights = weights_model(64)
        columns = 64 * 256
        make_model(repository, "weights", weights,
                   'backend: "onnxruntime" max_batch_size: 4\ninput { name: "INPUT0" data_type: TYPE_FP32 dims: 1024 }\n'
                   f'output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: {columns} }}\n')
        make_model(repository, "weights_bare", weights)
        del weights
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Served(repository, "--load-model=identity", "--load-model=onnx_identity",
                                                log=pathlib.Path(folder, "log")))
            peer = None
            if real.missing():
                print(f"no peer: {real.missing()}")
            else:
                peer = stack.enter_context(real.Peer(theirs, pathlib.Path(folder, "peer.log"), "--load-model=*"))
            print(f"tidemark: {binary()}")
            parts = arguments.parts.split(",")
            if "requests" in parts:
                requests_part(server, peer, arguments)
            if "grpc" in parts:
                grpc_part(server, peer, arguments)
            if "loads" in parts:
                loads_part(server, peer, repository, arguments)
            if "health" in parts:
                health_part(server, arguments)


if __name__ == "__main__":
    main()
