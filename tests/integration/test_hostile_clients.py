"""Crowds and floods. Each leaves another client's answers right and the server's memory where it was.

Memory is the kernel's figure of anonymous memory. Latencies are not asserted: a busy machine would decide such a test.
"""

import contextlib
import gzip
import json
import pathlib
import resource
import select
import socket
import time

import numpy as np
import pytest
import tritonclient.http as triton
from served import Served, make_model, sample

MIB = 1 << 20
CONFIG = """backend: "identity"
input { name: "IN" data_type: TYPE_FP32 dims: -1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_model(root, "floats", b"", filename="unused", config=CONFIG)
    with Served(root, "--load-model=*") as running:
        yield running
        assert running.stop() == 0, running.log()


def anonymous(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Anonymous:"))


class Bystander:
    """A client that wants nothing but right answers, before, during and after."""

    def __init__(self, server):
        self.server, self.client = server, triton.InferenceServerClient(server.url, connection_timeout=120, network_timeout=120)
        self.values = np.arange(4096, dtype=np.float32)
        self.ask()
        self.memory = anonymous(server)

    def ask(self, times=20):
        for _ in range(times):
            tensor = triton.InferInput("IN", [self.values.size], "FP32")
            tensor.set_data_from_numpy(self.values)
            assert np.array_equal(self.client.infer("floats", [tensor]).as_numpy("OUT"), self.values)

    def check_memory(self, tolerance=4 * MIB, limit_s=60):
        """Back where it was once the server has noticed that the others are gone."""
        end = time.monotonic() + limit_s
        while (grown := anonymous(self.server) - self.memory) > tolerance and time.monotonic() < end:
            self.ask(1)
        assert grown <= tolerance, f"{grown / MIB:.2f} MiB more than before"


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=120)


def read_answer(connection):
    """Status and body of an answer after which the server closes."""
    data = b""
    while piece := connection.recv(65536):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def test_500_slow_clients(server):
    """Half of them never finish their head, half of them their body; all send a byte now and then."""
    bystander = Bystander(server)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(500)]
        for i, connection in enumerate(slow):
            connection.sendall(b"POST /v2/models/floats/infer HTTP/1.1\r\n" +
                               (b"Content-Length: 100000\r\n\r\n{" if i % 2 else b"X: "))
        for _ in range(10):
            for connection in slow:
                with contextlib.suppress(ConnectionError):  # a client this slow may be over its time, and cut
                    connection.sendall(b" ")
            bystander.ask(5)
        assert anonymous(server) - bystander.memory < 500 * 40_000, "beyond a buffer for each of them"
    bystander.ask()
    bystander.check_memory()


def test_a_million_one_byte_chunks(server):
    bystander = Bystander(server)
    with connect(server) as connection:
        connection.sendall(b"POST /v2/models/floats/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):  # it may be cut while it sends on
            for _ in range(1000):
                connection.sendall(b"1\r\n \r\n" * 1000)
        try:
            status, error = read_answer(connection)
        except ConnectionError:
            pytest.fail("the answer was lost")
    assert status == 400
    assert error == ("Chunked request body exceeds maximum of 65536 non-empty chunks. Send fewer or larger HTTP chunks.")
    bystander.ask()
    bystander.check_memory()


def test_announced_lengths_of_5_gb_are_refused_before_a_byte_is_kept(server):
    bystander = Bystander(server)
    for length in (5_000_000_000, 2**31, 2**63 - 1):
        for _ in range(50):
            with connect(server) as connection:
                connection.sendall(f"POST /v2/models/floats/infer HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
                status, error = read_answer(connection)
                assert status == 413 and str(length) in error
    for length in (2**63, 10**30, "5e9", "-1"):
        with connect(server) as connection:
            connection.sendall(f"POST /v2/models/floats/infer HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
            assert read_answer(connection)[0] == 400
    bystander.ask()
    bystander.check_memory()


def test_announced_lengths_of_2_gb_that_never_come_leave_room_for_others(server):
    """As many as there are: the first ones get the room there is for large bodies, the others wait; small ones are served."""
    bystander = Bystander(server)
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            connection = stack.enter_context(connect(server))
            connection.sendall(b"POST /v2/models/floats/infer HTTP/1.1\r\nContent-Length: 2147483647\r\n\r\n{")
        bystander.ask(50)
        assert anonymous(server) - bystander.memory < 32 * MIB, "what was only announced takes no memory"
    bystander.ask()
    bystander.check_memory()


def test_a_crowd_of_10000_connections(server):
    wanted = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted + 1000:
        pytest.skip(f"this machine allows {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    bystander = Bystander(server)

    def await_connections(count):
        server._await(lambda: sample(server.metrics(), "tidemark_connections") == count, 120, f"see {count} connections")

    await_connections(1)  # those of other tests are gone
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        crowd = []
        for _ in range(wanted - 1):  # with the bystander they are as many as may be
            crowd.append(stack.enter_context(connect(server)))
        for connection in crowd[::100]:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        bystander.ask()
        await_connections(wanted)  # each loop accepts for itself
        assert anonymous(server) - bystander.memory < wanted * 4096, "an idle connection costs less than a page"
        with connect(server) as one_more:
            assert read_answer(one_more)[0] == 503
        bystander.ask()
    # Room again once the server has seen them go.
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(Exception):
            if server.get("/v2/health/live")[0] == 200:
                break
        assert time.monotonic() < end
    bystander.ask()
    bystander.check_memory(tolerance=MIB)  # the heap is trimmed when the crowd is seen to be gone


def thread_name(task):
    """Of a folder in /proc/PID/task; None when the thread has ended by now."""
    try:
        return (task / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None


def thread_time(server, name):
    """Nanoseconds on a processor, and how often on one, of the server's threads of that name, once they sleep."""
    tasks = [task for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir() if thread_name(task) == name]
    assert tasks
    end = time.monotonic() + 60
    while any((task / "stat").read_text().rpartition(")")[2].split()[0] != "S" for task in tasks):
        assert time.monotonic() < end, f"a thread '{name}' does not come to rest"
    figures = [(task / "schedstat").read_text().split() for task in tasks]
    return sum(int(spent) for spent, _, _ in figures), sum(int(turns) for _, _, turns in figures)


def expect_decoded_beside_the_loops(server, path, sent, headers=None):
    """The loops take the bytes and no more: as many bytes that nobody decodes cost them as much, the least of some turns."""
    head = json.dumps({"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1],
                                   "parameters": {"binary_data_size": len(sent)}}]}).encode()

    def spent(*request):
        loops, decoders = thread_time(server, "event loop")[0], thread_time(server, "decode")[0]
        status, answer = server.request("POST", *request)
        assert status == 400, answer
        return thread_time(server, "event loop")[0] - loops, thread_time(server, "decode")[0] - decoders

    decoded, received = [], []
    for _ in range(5):
        decoded.append(spent(path, sent, headers))
        received.append(spent("/v2/models/floats/infer", head + bytes(len(sent)), {"Inference-Header-Content-Length": str(len(head))}))
    loop_ns, decode_ns = (min(times) for times in zip(*decoded))
    assert loop_ns - min(received)[0] < decode_ns / 2, (decoded, received)


@pytest.mark.parametrize("compressed", [False, True])
def test_large_bodies_are_decoded_beside_the_loops(server, compressed):
    """Whoever shares the loop with a client of large JSON does not wait for it."""
    values = ["0.12345678"] * (1000 if compressed else 2_000_000) + ['"no number"']  # read to its end, and a short answer
    body = f'{{"inputs":[{{"name":"IN","datatype":"FP32","shape":[{len(values)}],"data":[{",".join(values)}]}}]}}'.encode()
    body += b" " * (20_000_000 if compressed else 0)
    headers = {"Content-Encoding": "gzip"} if compressed else {}
    sent = gzip.compress(body) if compressed else body
    expect_decoded_beside_the_loops(server, "/v2/models/floats/infer", sent, headers)
    # Small ones are not handed over: each of them would wake a decoder.
    decoders = thread_time(server, "decode")
    Bystander(server).ask(100)
    assert thread_time(server, "decode")[1] - decoders[1] < 50


@pytest.mark.parametrize("route", ["generate", "generate_stream"])
def test_large_generate_bodies_are_decoded_beside_the_loops(server, route):
    body = b'{"IN":[' + b",".join([b"0.12345678"] * 2_000_000) + b',"no number"]}'
    expect_decoded_beside_the_loops(server, f"/v2/models/floats/{route}", body)


@pytest.mark.parametrize("options, request_bytes, status, text", [
    (["--http-max-head-size=1024"], b"GET /v2 HTTP/1.1\r\nA: " + b"x" * 2000, 431, "1024 bytes"),
    (["--http-max-header-count=9"], b"GET /v2 HTTP/1.1\r\n" + b"A: b\r\n" * 10 + b"\r\n", 431, "more than 9 headers"),
    (["--http-max-body-size=100"], b"POST /v2/repository/index HTTP/1.1\r\nContent-Length: 101\r\n\r\n", 413, "101 bytes"),
    (["--http-max-body-size=100"],
     b"POST /v2/repository/index HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b" " * 101, 413, "100 bytes"),
    (["--http-head-timeout-secs=1"], b"GET /v2 HTTP/1.1\r\nA", 408, "head was not complete within 1000 ms"),
    (["--http-body-timeout-secs=1", "--http-progress-window-secs=0"],
     b"POST /v2/repository/index HTTP/1.1\r\nContent-Length: 10\r\n\r\n{", 408, "body was not complete within 1000 ms"),
    (["--http-progress-window-secs=1", "--http-progress-size=5"],
     b"POST /v2/repository/index HTTP/1.1\r\nContent-Length: 10\r\n\r\n{", 408, "at least 5 are expected"),
])
def test_over_a_limit_a_client_gets_its_status_and_is_closed(tmp_path, options, request_bytes, status, text):
    with Served(tmp_path, *options) as limited, connect(limited) as connection:
        connection.sendall(request_bytes)
        got, error = read_answer(connection)
        assert got == status and text in error
        assert limited.get("/v2/health/live")[0] == 200


def test_connections_over_their_limit_get_503(tmp_path):
    with Served(tmp_path, "--http-max-connections=2") as limited:
        limited._await(lambda: sample(limited.metrics(), "tidemark_connections") == 0, 120, "see that nobody is connected any more")
        with connect(limited) as first, connect(limited) as second, connect(limited) as third:
            # Each loop takes its own connections: any of the three may be the one too many.
            refused, _, _ = select.select([first, second, third], [], [], 120)
            assert len(refused) == 1 and read_answer(refused[0])[0] == 503
        limited._await(lambda: sample(limited.metrics(), "tidemark_connections") == 0, 120, "see that they are gone")
        assert limited.get("/v2/health/live")[0] == 200


def test_json_deeper_or_longer_than_its_limits_is_refused(tmp_path):
    make_model(tmp_path, "floats", b"", filename="unused", config=CONFIG)

    def ask(served, data, count):
        body = f'{{"inputs":[{{"name":"IN","datatype":"FP32","shape":[{count}],"data":{data}}}]}}'.encode()
        status, answer = served.request("POST", "/v2/models/floats/infer", body)
        return status, json.loads(answer).get("error", "")

    with Served(tmp_path, "--load-model=*", "--http-max-json-depth=4", "--http-max-json-elements=8") as limited:
        assert ask(limited, "[[[1]]]", 1)[0] == 200
        assert ask(limited, "[[[[1]]]]", 1) == (400, "Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (4)")
        assert ask(limited, "[1,2,3,4,5,6,7,8]", 8)[0] == 200
        status, error = ask(limited, "[1,2,3,4,5,6,7,8,9]", 9)
        assert status == 400 and "at most 8 are taken" in error
    with Served(tmp_path, "--load-model=*") as usual:
        deep = "[" * 100000
        assert ask(usual, deep, 1)[0] == 400
        assert ask(usual, "[" * 99 + "1" + "]" * 99, 1)[0] == 200
