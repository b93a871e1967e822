"""Hostile HTTP/2 on the gRPC port, frame by frame: it costs its own connection and nobody else's."""

import pathlib
import socket
import struct
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))

from served import Served, make_model  # noqa: E402

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CALM = 11
IDENTITY = ('backend: "identity" input { name: "INPUT0" data_type: TYPE_UINT8 dims: -1 } '
            'output { name: "OUTPUT0" data_type: TYPE_UINT8 dims: -1 }')


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_model(root, "identity", b"", filename="unused", config=IDENTITY)
    with Served(root, "--load-model=*") as running:
        yield running
        assert running.stop() == 0, running.log()


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name, value):
    """A literal header field without indexing; short strings only."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def head(path, *more):
    return b"".join(field(name, value) for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more))


LIVE = b"/inference.GRPCInferenceService/ServerLive"
STREAM = b"/inference.GRPCInferenceService/ModelStreamInfer"


class Client:
    def __init__(self, server, settings=b""):
        host, port = server.grpc_url.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=120)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
        self.buffer = b""

    def send(self, data):
        """False once the server does not take anything more."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def frames(self):
        """All frames until the server closes."""
        while True:
            while len(self.buffer) >= 9:
                size = int.from_bytes(self.buffer[:3], "big")
                if len(self.buffer) < 9 + size:
                    break
                kind, flags = self.buffer[3], self.buffer[4]
                stream = int.from_bytes(self.buffer[5:9], "big")
                payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
                yield kind, flags, stream, payload
            try:
                more = self.socket.recv(65536)
            except ConnectionError:
                return
            if not more:
                return
            self.buffer += more

    def goaway(self):
        """The code and text of the GOAWAY that ends the connection; None when it just ended."""
        last = None
        for kind, _, _, payload in self.frames():
            if kind == GOAWAY:
                last = int.from_bytes(payload[4:8], "big"), payload[8:].decode()
        return last


def live(server):
    client = Client(server)
    client.send(frame(HEADERS, END_HEADERS, 1, head(LIVE)) + frame(DATA, END_STREAM, 1, bytes(5)))
    for kind, flags, stream, payload in client.frames():
        if kind == DATA and stream == 1:
            assert payload == b"\0\0\0\0\2\x08\1"
            return True
    return False


FLOODS = {
    "settings": lambda i: frame(SETTINGS),
    "window updates": lambda i: frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_frames_that_carry_nothing_are_counted(server, flood):
    client = Client(server)
    client.send(b"".join(FLOODS[flood](i) for i in range(6000)))
    goaway = client.goaway()
    assert goaway is None or goaway[0] == CALM, goaway
    assert live(server)


def test_pings_that_come_too_early_get_strikes(server):
    client = Client(server)
    client.send(b"".join(frame(PING, 0, 0, bytes(8)) for _ in range(10)))
    assert client.goaway() == (CALM, "too_many_pings")
    assert live(server)


def test_rapid_resets_end_the_connection(server):
    client = Client(server)
    for i in range(4000):
        stream = 2 * i + 1
        if not client.send(frame(HEADERS, END_HEADERS, stream, head(STREAM)) +
                           frame(RST_STREAM, 0, stream, struct.pack(">I", 8))):
            break
    goaway = client.goaway()
    assert goaway is None or goaway[0] != 0
    assert live(server)


def test_empty_data_is_counted(server):
    client = Client(server)
    client.send(frame(HEADERS, END_HEADERS, 1, head(STREAM)) + frame(DATA, 0, 1) * 6000)
    goaway = client.goaway()
    assert goaway is None or goaway[0] == CALM
    assert live(server)


def test_endless_headers_end_the_connection(server):
    client = Client(server)
    client.send(frame(HEADERS, 0, 1, head(LIVE)))
    for _ in range(2000):
        if not client.send(frame(CONTINUATION, 0, 1, field(b"x" * 100, b"y" * 100) * 8)):
            break
    goaway = client.goaway()
    assert goaway is None or goaway[0] != 0
    assert live(server)


def test_too_much_metadata_is_refused_by_name(server):
    client = Client(server)
    more = [(b"k%d" % i, b"v" * 100) for i in range(140)]
    client.send(frame(HEADERS, 0, 1, head(LIVE)) +
                frame(CONTINUATION, END_HEADERS, 1, b"".join(field(n, v) for n, v in more)) +
                frame(DATA, END_STREAM, 1, bytes(5)))
    kinds = []
    for kind, flags, stream, payload in client.frames():
        kinds.append(kind)
        if stream == 1 and kind == HEADERS and flags & END_STREAM:
            break  # an error and nothing else
    assert DATA not in kinds
    assert live(server)


def infer_message(size):
    raw = bytes(size)
    body = b"\x0a\x08identity" + b"\x2a"
    tensor = b"\x0a\x06INPUT0\x12\x05UINT8\x1a" + bytes([len(varint(size))]) + varint(size)
    body += bytes([len(tensor)]) + tensor + b"\x3a" + varint(size) + raw
    return b"\0" + struct.pack(">I", len(body)) + body


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def test_a_client_with_a_window_of_nothing_gets_nothing_and_others_are_served(server):
    tiny = struct.pack(">HI", 4, 0)  # SETTINGS_INITIAL_WINDOW_SIZE
    client = Client(server, tiny)
    path = b"/inference.GRPCInferenceService/ModelInfer"
    for i in range(20):
        client.send(frame(HEADERS, END_HEADERS, 2 * i + 1, head(path)) +
                    frame(DATA, END_STREAM, 2 * i + 1, infer_message(4000)))
    seen = 0
    for kind, _, _, payload in client.frames():
        assert not (kind == DATA and payload)
        seen += kind == HEADERS
        if seen == 20:  # every call is answered and waits for room
            break
    assert live(server)
    client.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 20)))
    got = 0
    for kind, _, _, payload in client.frames():
        got += len(payload) if kind == DATA else 0
        if got >= 20 * 4000:
            break


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(64), PREFACE + bytes(9) * 3,
                                     PREFACE + frame(SETTINGS) + frame(DATA, 0, 1, b"x"),
                                     PREFACE + frame(SETTINGS) + b"\xff\xff\xff" + bytes(6)])
def test_garbage_ends_its_connection(server, garbage):
    host, port = server.grpc_url.split(":")
    with socket.create_connection((host, int(port)), timeout=120) as raw:
        raw.sendall(garbage)
        try:
            while raw.recv(65536):
                pass
        except ConnectionError:
            pass
    assert live(server)
