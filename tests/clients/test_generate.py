"""generate and generate_stream, as curl and as event-stream clients see them: over raw sockets."""

import json
import socket

import pytest
from served import Served, make_model, test_program

LLM = """backend: "identity"
input { name: "text_input" data_type: TYPE_STRING dims: 1 }
output { name: "text_output" data_type: TYPE_STRING dims: 1 }
"""
FLOATS = """backend: "identity" max_batch_size: 4
input { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] }
"""
REPEAT = """backend: "repeat"
model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 }
input { name: "WAIT" data_type: TYPE_UINT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
output { name: "IDX" data_type: TYPE_UINT32 dims: 1 }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, config in (("llm", LLM), ("floats", FLOATS), ("repeat", REPEAT)):
        make_model(root, name, b"", filename="unused", config=config)
    with Served(root, "--load-model=*", program=test_program()) as running:
        yield running
        assert running.stop() == 0, running.log()


class Raw:
    """One connection; reads a chunked answer piece by piece."""

    def __init__(self, server, path, document, version="1.1", headers=""):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        self.send(path, document, version, headers)

    def send(self, path, document, version="1.1", headers=""):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.socket.sendall(f"POST {path} HTTP/{version}\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = {}
        while (line := self.file.readline()) != b"\r\n":
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value.strip()

    def chunk(self):
        """b"" for the last one."""
        size = int(self.file.readline(), 16)
        data = self.file.read(size)
        assert self.file.readline() == b"\r\n"
        return data

    def chunks(self):
        return list(iter(self.chunk, b""))

    def body(self):
        if "content-length" in self.headers:
            return self.file.read(int(self.headers["content-length"]))
        return b"".join(self.chunks())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()


def repeat(values, delay=0):
    return {"IN": values, "DELAY": [delay] * len(values), "WAIT": 0}


def test_generate_answers_one_flat_object(server):
    with Raw(server, "/v2/models/llm/generate", {"text_input": "hi", "parameters": {"stream": False, "max_tokens": 4}}) as raw:
        assert raw.status == 200
        assert raw.headers["transfer-encoding"] == "chunked" and raw.headers["content-type"] == "application/json"
        assert raw.body() == b'{"model_name":"llm","model_version":"1","text_output":"hi"}'
        raw.send("/v2/models/floats/versions/1/generate", {"id": "7", "IN": [1, 2, 3, 4]})
        assert raw.body() == b'{"OUT":[1.0,2.0,3.0,4.0],"id":"7","model_name":"floats","model_version":"1"}'


def test_long_prompt_is_answered_like_a_short_one(server):
    """It is decoded on another thread than the loop's."""
    prompt = "long " * 40_000
    with Raw(server, "/v2/models/llm/generate", {"text_input": prompt}) as raw:
        assert json.loads(raw.body())["text_output"] == prompt
        raw.send("/v2/models/llm/generate_stream", {"text_input": prompt})
        assert json.loads(b"".join(raw.chunks())[len(b"data: "):])["text_output"] == prompt
        raw.send("/v2/models/llm/generate", {"text_input": "again"})  # the connection goes on
        assert b'"again"' in raw.body()


def test_stream_of_an_ordinary_model_is_one_event(server):
    with Raw(server, "/v2/models/llm/generate_stream", {"text_input": "hi"}) as raw:
        assert raw.status == 200 and raw.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert raw.chunks() == [b'data: {"model_name":"llm","model_version":"1","text_output":"hi"}\n\n']
        raw.send("/v2/models/llm/generate", {"text_input": "again"})  # the connection goes on
        assert b'"again"' in raw.body()


def test_decoupled_model_streams_events_in_order(server):
    with Raw(server, "/v2/models/repeat/generate_stream", repeat([5, 6, 7])) as raw:
        events = raw.chunks()
        assert events == [f'data: {{"IDX":{i},"OUT":{i + 5},"model_name":"repeat","model_version":"1"}}\n\n'.encode() for i in range(3)]
        raw.send("/v2/models/repeat/generate_stream", repeat([]))
        assert raw.status == 200 and raw.chunks() == []


def test_event_arrives_before_the_next_is_made(server):
    with Raw(server, "/v2/models/repeat/generate_stream",
             {"IN": [1, 2], "DELAY": [0, 3_600_000], "WAIT": 0}) as raw:  # the second would take an hour
        assert b'"OUT":1' in raw.chunk()


def test_leaving_the_stream_cancels_the_request(server):
    """One instance: were the first request still inside for its hour, the second could not run."""
    with Raw(server, "/v2/models/repeat/generate_stream", {"IN": [1, 2], "DELAY": [0, 3_600_000], "WAIT": 0}) as raw:
        raw.chunk()
    with Raw(server, "/v2/models/repeat/generate_stream", repeat([9])) as raw:
        assert b'"OUT":9' in raw.chunk()


def test_error_inside_a_stream_is_an_event(server):
    with Raw(server, "/v2/models/repeat/generate_stream", repeat([1, -1, 2])) as raw:
        assert raw.status == 200
        first, second = raw.chunks()
        assert b'"OUT":1' in first and second == b'data: {"error":"negative element"}\n\n'
        # As the first response it decides the status.
        raw.send("/v2/models/repeat/generate_stream", repeat([-1]))
        assert raw.status == 400 and raw.chunks() == [b'data: {"error":"negative element"}\n\n']


def test_generate_wants_exactly_one_response(server):
    text = (b'{"error":"generate expects model to produce exactly 1 response, use generate stream for model that generates '
            b'various number of responses"}')
    with Raw(server, "/v2/models/repeat/generate", repeat([5])) as raw:
        assert raw.status == 200 and json.loads(raw.body())["OUT"] == 5
        for values in ([1, 2], []):
            raw.send("/v2/models/repeat/generate", repeat(values))
            assert raw.status == 200 and raw.body() == text


@pytest.mark.parametrize("path, document, headers, status, text", [
    ("/v2/models/nobody/generate", {}, "", 404, "Request for unknown model: 'nobody' is not found"),
    ("/v2/models/llm/versions/9/generate", {}, "", 404, "Request for unknown model: 'llm' version 9 is not found"),
    ("/v2/models/llm/generate", {"text_input": "x"}, "Content-Encoding: gzip\r\n", 400,
     "Unsupported content-encoding, only 'identity' is supported."),
    ("/v2/models/llm/generate", b"", "", 400, "failed to parse the request JSON buffer: The document is empty. at 0"),
    ("/v2/models/llm/generate_stream", {"text_input": "x", "PARAMS": {}}, "", 400,
     "parameter 'PARAMS' has invalid type. It should be either 'int', 'bool', or 'string'."),
    ("/v2/models/llm/generate", {"text_input": "x", "parameters": 1}, "", 400,
     "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object"),
    ("/v2/models/llm/generate", {"text_input": "x", "parameters": {"nested": []}}, "", 400,
     "Converting keyword: 'parameters': parameter 'nested' has invalid type. It should be either 'int', 'bool', or 'string'."),
    ("/v2/models/llm/generate", {"text_input": ["a", "b"]}, "", 400,
     "The schema can not convert input 'text_input' to tensor with proper shape"),
    ("/v2/models/floats/generate", {"IN": [1, 2] * 5}, "", 400,
     "[request id: <id_unknown>] inference request batch-size must be <= 4 for 'floats'"),
])
def test_errors_before_the_first_response_are_ordinary_answers(server, path, document, headers, status, text):
    with Raw(server, path, document, headers=headers) as raw:
        assert raw.status == status and json.loads(raw.body())["error"] == text


def test_http_1_0_gets_a_body_that_ends_with_the_connection(server):
    with Raw(server, "/v2/models/llm/generate_stream", {"text_input": "old"}, version="1.0") as raw:
        assert "transfer-encoding" not in raw.headers and raw.headers["connection"] == "close"
        assert raw.file.read() == b'data: {"model_name":"llm","model_version":"1","text_output":"old"}\n\n'
