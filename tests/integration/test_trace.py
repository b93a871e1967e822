"""Traces of a real server: files in Triton's form, settings at run time, OpenTelemetry to a collector."""

import http.server
import json
import queue
import threading
import time

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from onnx import TensorProto

from onnx_models import identity_model
from served import Served, make_model

BODY = {"id": "q", "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [0.5, 2]}]}


@pytest.fixture
def repository(tmp_path):
    make_model(tmp_path / "models", "m", identity_model(TensorProto.FLOAT),
               config='backend: "onnxruntime"\ninput { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }\n'
                      'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }\n')
    return tmp_path / "models"


def infer(server, headers=None, expect=200):
    status, body = server.request("POST", "/v2/models/m/infer", json.dumps(BODY).encode(), headers)
    assert status == expect, body


def settings(server, path="/v2/trace/setting", **changes):
    status, body = server.post(path, changes) if changes else server.get(path)
    return status, json.loads(body)


def read(path):
    """The traces of a file by id: names of their timestamps, and the tensors."""
    traces = {}
    for item in json.loads(path.read_text()):
        trace = traces.setdefault(item["id"], {"timestamps": [], "tensors": {}})
        trace["timestamps"] += [entry["name"] for entry in item.get("timestamps", [])]
        if "tensor" in item:
            trace["tensors"][item["activity"]] = item["tensor"]
        trace.update({key: item[key] for key in ("model_name", "model_version", "request_id") if key in item})
    return traces


def test_trace_files_and_settings(repository, tmp_path):
    file = tmp_path / "trace.json"
    with Served(repository, "--load-model=m", f"--trace-config=triton,file={file}", "--trace-config=level=TIMESTAMPS",
                "--trace-config=level=TENSORS", "--trace-config=rate=2", "--trace-config=count=3",
                "--trace-config=triton,log-frequency=2", "--http-thread-count=1") as server:
        # One loop: a trace, which ends when its answer is written, is in its file before the next request is looked at.
        assert settings(server) == (200, {"trace_level": ["TIMESTAMPS", "TENSORS"], "trace_rate": "2", "trace_count": "3",
                                          "log_frequency": "2", "trace_file": str(file), "trace_mode": "triton"})
        for _ in range(10):
            infer(server)
        assert settings(server)[1]["trace_count"] == "0"
        status, _ = settings(server, "/v2/models/m/trace/setting", trace_level=["TIMESTAMPS"], trace_rate="1", trace_count="1",
                             log_frequency="0")
        assert status == 200
        infer(server)
        infer(server)
        assert settings(server, "/v2/models/m/trace/setting")[1]["trace_count"] == "0"
        assert settings(server, "/v2/models/m/trace/setting", trace_level=None, trace_rate=None, trace_count=None,
                        log_frequency=None)[1] == settings(server)[1]
        assert server.stop() == 0
    first = read(tmp_path / "trace.json.0")
    assert sorted(first) == [1, 2]
    assert first[1]["model_name"] == "m" and first[1]["model_version"] == 1 and first[1]["request_id"] == "q"
    assert set(first[1]["timestamps"]) == {
        "HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END",
        "COMPUTE_OUTPUT_START", "COMPUTE_END", "INFER_RESPONSE_COMPLETE", "REQUEST_END", "HTTP_SEND_START", "HTTP_SEND_END"}
    assert first[1]["tensors"]["TENSOR_QUEUE_INPUT"] == {"name": "INPUT0", "data": "0.5,2", "shape": "2", "dtype": "FP32"}
    assert first[1]["tensors"]["TENSOR_BACKEND_OUTPUT"]["data"] == "0.5,2"
    assert sorted(read(tmp_path / "trace.json.1")) == [3]  # what was left when the server ended
    assert sorted(read(file)) == [4]
    assert read(file)[4]["tensors"] == {}


def test_generate_is_traced_like_inference(repository, tmp_path):
    file = tmp_path / "trace.json"
    with Served(repository, "--load-model=m", f"--trace-config=triton,file={file}", "--trace-config=level=TIMESTAMPS",
                "--trace-config=rate=1") as server:
        assert server.post("/v2/models/m/generate", {"id": "g", "INPUT0": [0.5, 2]})[0] == 200
        assert server.stop() == 0
    trace = read(file)[1]
    assert trace["request_id"] == "g"
    assert {"HTTP_RECV_START", "COMPUTE_START", "COMPUTE_END", "HTTP_SEND_START", "HTTP_SEND_END"} <= set(trace["timestamps"])


class Collector:
    def __init__(self):
        self.messages = queue.Queue()
        self.refuse = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(503 if outer.refuse else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                if not outer.refuse:
                    outer.messages.put((self.path, self.headers["Content-Type"], json.loads(body)))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"

    def spans(self):
        path, kind, message = self.messages.get(timeout=60)
        assert (path, kind) == ("/v1/traces", "application/json")
        attributes = {item["key"]: item["value"] for item in message["resourceSpans"][0]["resource"]["attributes"]}
        return attributes, {span["name"]: span for span in message["resourceSpans"][0]["scopeSpans"][0]["spans"]}


def test_opentelemetry_reaches_a_collector_that_comes_back(repository):
    collector = Collector()
    collector.refuse = True
    with Served(repository, "--load-model=m", "--trace-config=mode=opentelemetry", f"--trace-config=opentelemetry,url={collector.url}",
                "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1000", "--trace-config=opentelemetry,bsp_schedule_delay=50",
                "--trace-config=opentelemetry,resource=service.name=svc") as server:
        before = time.time_ns()
        infer(server, {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
        infer(server)  # not its turn
        collector.refuse = False
        attributes, spans = collector.spans()
        assert attributes["service.name"] == {"stringValue": "svc"}
        assert sorted(spans) == ["InferRequest", "compute", "m"]
        root = spans["InferRequest"]
        assert root["traceId"] == "0af7651916cd43dd8448eb211c80319c" and root["parentSpanId"] == "b7ad6b7169203331"
        assert before - 10**9 < int(root["startTimeUnixNano"]) <= int(root["endTimeUnixNano"]) < time.time_ns() + 10**9
        assert {event["name"] for event in root["events"]} >= {"HTTP_RECV_START", "HTTP_SEND_END"}
        found = settings(server)[1]
        assert found["trace_mode"] == "opentelemetry" and found["url"] == collector.url and found["bsp_max_queue_size"] == "2048"
        assert "log_frequency" not in found and "trace_file" not in found


def test_a_level_without_a_file_ends_the_start(repository):
    with pytest.raises(RuntimeError, match="trace file name is not given"):
        Served(repository, "--trace-config=level=TIMESTAMPS")


def test_grpc_requests_are_traced(repository, tmp_path):
    file = tmp_path / "trace.json"
    with Served(repository, "--load-model=m", f"--trace-config=triton,file={file}", "--trace-config=level=TIMESTAMPS",
                "--trace-config=rate=1") as server:
        client = grpcclient.InferenceServerClient(server.grpc_url)
        tensor = grpcclient.InferInput("INPUT0", [2], "FP32")
        tensor.set_data_from_numpy(np.array([0.5, 2], np.float32))
        client.infer("m", [tensor], request_id="g")
        answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("m", [tensor], request_id="s")
        assert answers.get(timeout=60)[1] is None
        client.stop_stream()
        client.close()
        assert server.stop() == 0
    traces = read(file)
    assert [traces[i]["request_id"] for i in (1, 2)] == ["g", "s"]
    assert {"GRPC_WAITREAD_END", "REQUEST_START", "COMPUTE_END", "GRPC_SEND_START", "GRPC_SEND_END"} <= set(traces[1]["timestamps"])
    assert {"GRPC_WAITREAD_END", "REQUEST_START", "COMPUTE_END"} <= set(traces[2]["timestamps"])
