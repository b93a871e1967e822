#!/usr/bin/env python3
"""What a flood costs somebody else: latencies of a client that wants 1 KiB inferences, beside hostile clients.

Three figures for each flood, in turns: quiet; beside the same flood against another server of the same machine; beside
the flood against its own. The second one is what the machine's processors make of it, and the ratio of the third to the
second what the server does. Bystander and flood are processes of their own. Printed is the least of the rounds: on a shared machine other
work decides a p99 far more than any of this, and never makes it smaller. With more rounds there are more quiet ones.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import resource
import select
import socket
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "clients"))

from served import Served, binary, make_model  # noqa: E402

CONFIG = ('backend: "identity"\ninput { name: "IN" data_type: TYPE_FP32 dims: -1 }\n'
          'output { name: "OUT" data_type: TYPE_FP32 dims: -1 }\n')
POST = b"POST /v2/models/floats/infer HTTP/1.1\r\n"


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def bystander(port, seconds, results):
    """p50 and p99 in microseconds of requests that follow one another with half a millisecond between them."""
    head = json.dumps({"inputs": [{"name": "IN", "datatype": "FP32", "shape": [256], "parameters": {"binary_data_size": 1024}}],
                       "parameters": {"binary_data_output": True}}).encode()
    request = (POST + f"Inference-Header-Content-Length: {len(head)}\r\nContent-Length: {len(head) + 1024}\r\n\r\n".encode() +
               head + bytes(1024))
    connection = connect(port)

    def ask():
        connection.sendall(request)
        data = connection.recv(65536)
        end = data.index(b"\r\n\r\n") + 4
        size = end + int(data[:end].lower().split(b"content-length:")[1].split()[0])
        while len(data) < size:
            data += connection.recv(65536)
        assert data.startswith(b"HTTP/1.1 200"), data[:200]

    for _ in range(200):
        ask()
    times = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        ask()
        times.append((time.perf_counter() - start) * 1e6)
        time.sleep(0.0005)
    times.sort()
    results.put((times[len(times) // 2], times[int(len(times) * 0.99)]))


# Floods: called with a port and an event that says that the bystander has all it wants; `begun` is set when at full height.


def slow_clients(port, stop, begun):
    """500 connections that send a byte now and then, half of them into a head, half into a body."""
    slow = [connect(port) for _ in range(500)]
    for i, connection in enumerate(slow):
        connection.sendall(POST + (b"Content-Length: 100000\r\n\r\n{" if i % 2 else b"X: "))
    begun.set()
    while not stop.wait(0.1):
        for connection in slow:
            connection.sendall(b" ")


def one_byte_chunks(port, stop, begun):
    """Chunks of one byte, as many as the server takes, again and again: a million in some ten seconds."""
    begun.set()
    while not stop.is_set():
        with connect(port) as connection, contextlib.suppress(OSError):
            connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            while not stop.is_set() and not select.select([connection], [], [], 0)[0]:
                connection.sendall(b"1\r\n \r\n" * 1000)


def announced_5_gb(port, stop, begun):
    """Bodies of 5 GB, announced and refused, on a new connection each."""
    begun.set()
    while not stop.is_set():
        with connect(port) as connection, contextlib.suppress(OSError):
            connection.sendall(POST + b"Content-Length: 5000000000\r\n\r\n")
            connection.recv(65536)


def crowd(port, stop, begun):
    """9,900 connections, of which some come, ask and go all the time."""
    connections = [connect(port) for _ in range(9900)]
    begun.set()
    at = 0
    while not stop.is_set():
        connections[at].close()
        connections[at] = connect(port)
        connections[at].sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
        connections[at].recv(4096)
        at = (at + 1) % len(connections)
    for connection in connections:
        connection.close()


def large_json(port, stop, begun):
    """Requests with 8 MB of JSON, one after the other, on one connection; what is wrong with them stands at their end."""
    values = ",".join(["0.12345678"] * 720_000)
    body = f'{{"inputs":[{{"name":"IN","datatype":"FP32","shape":[720001],"data":[{values},"x"]}}]}}'.encode()
    request = POST + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    with connect(port) as connection:
        begun.set()
        while not stop.is_set():
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 400")


FLOODS = (slow_clients, one_byte_chunks, announced_5_gb, crowd, large_json)


def attack(flood, port, stop, begun):
    """Gives way to the servers and the bystander: a flood that comes over a network takes none of their processors."""
    os.nice(10)
    flood(port, stop, begun)


def measure(port, seconds, flood=None, flooded=None):
    context = multiprocessing.get_context("spawn")
    stop, begun, results = context.Event(), context.Event(), context.Queue()
    attacker = None
    if flood is not None:
        attacker = context.Process(target=attack, args=(flood, flooded, stop, begun))
        attacker.start()
        if not begun.wait(120):
            raise RuntimeError(f"{flood.__name__} did not get up")
    client = context.Process(target=bystander, args=(port, seconds, results))
    client.start()
    figures = results.get(timeout=seconds + 120)
    client.join()
    stop.set()
    if attacker is not None:
        attacker.join()
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--floods", default=",".join(flood.__name__ for flood in FLOODS))
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"tidemark: {binary()}")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        make_model(folder, "floats", b"", filename="unused", config=CONFIG)
        ours, other = (stack.enter_context(Served(folder, "--load-model=*")) for _ in range(2))
        for flood in FLOODS:
            if flood.__name__ not in arguments.floods.split(","):
                continue
            rows = {"quiet": [], "beside it": [], "under it": []}
            for _ in range(arguments.rounds):
                rows["quiet"].append(measure(ours.port, arguments.seconds))
                rows["beside it"].append(measure(ours.port, arguments.seconds, flood, other.port))
                rows["under it"].append(measure(ours.port, arguments.seconds, flood, ours.port))
            least = {name: [min(row[i] for row in row_list) for i in (0, 1)] for name, row_list in rows.items()}
            print(f"\n{flood.__name__}: {flood.__doc__.splitlines()[0]}")
            for name, (p50, p99) in least.items():
                print(f"  {name:<10} p50 {p50:>8,.0f} µs   p99 {p99:>8,.0f} µs")
            p50, p99 = (least["under it"][i] / least["beside it"][i] for i in (0, 1))
            print(f"  {'ratio':<10} p50 {p50:>8.2f}      p99 {p99:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
