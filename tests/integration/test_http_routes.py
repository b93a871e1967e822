"""Every HTTP route over the wire: statuses, bodies, headers and error texts (docs/compatibility.md)."""

import base64
import gzip
import http.client
import json
import struct
import zlib

import pytest
from served import Served, make_model

ONE = ('backend: "identity"\nmax_batch_size: {}\ninput {{ name: "INPUT0" data_type: TYPE_{} dims: {} }}\n'
       'output {{ name: "OUTPUT0" data_type: TYPE_{} dims: {} }}\n')


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, batch, dtype, dims in (("ints", 0, "INT32", -1), ("floats", 8, "FP32", 4), ("texts", 0, "STRING", -1),
                                     ("word", 0, "STRING", 1), ("halves", 0, "FP16", -1), ("gone", 0, "INT32", -1)):
        make_model(root, name, b"", ONE.format(batch, dtype, dims, dtype, dims), filename="unused")
    make_model(root, "decoupled", b"", ONE.format(0, "INT32", -1, "INT32", -1) +
               "model_transaction_policy { decoupled: true }\n", filename="unused")
    make_model(root, "untouched", b"", ONE.format(0, "INT32", -1, "INT32", -1), filename="unused")
    return root


@pytest.fixture(scope="module")
def server(repository):
    options = [f"--load-model={name}" for name in ("ints", "floats", "texts", "word", "halves", "gone")]
    with Served(repository, *options, "--http-max-input-size=1000000") as running:
        assert running.unload("gone")[0] == 200
        yield running
        assert running.stop() == 0, running.log()


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        assert list(self.json) == ["error"]
        return self.json["error"]


def call(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(server.url, timeout=60)
    try:
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        connection.request(method, path, body, headers or {})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def infer_body(*data, shape=None, dtype="INT32", **more):
    return {"inputs": [{"name": "INPUT0", "datatype": dtype, "shape": shape or [len(data)], "data": list(data)}], **more}


def test_health_is_empty_plain_text(server):
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/ints/ready", "/v2/models/ints/versions/1/ready"):
        answer = call(server, "GET", path)
        assert (answer.status, answer.body) == (200, b""), path
        assert answer.headers["Content-Type"] == "text/plain" and answer.headers["Content-Length"] == "0"


def test_server_metadata(server):
    answer = call(server, "GET", "/v2?query=is&ignored")
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/json"
    assert list(answer.json) == ["name", "version", "extensions"] and answer.json["name"] == "triton"
    assert "statistics" in answer.json["extensions"]


def test_model_metadata_and_config(server):
    answer = call(server, "GET", "/v2/models/floats")
    assert answer.json == {"name": "floats", "versions": ["1"], "platform": "identity",
                           "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, 4]}],
                           "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, 4]}]}
    config = call(server, "GET", "/v2/models/floats/versions/1/config").json
    assert config["name"] == "floats" and config["max_batch_size"] == 8 and config["input"][0]["dims"] == [4]
    assert config["instance_group"][0]["kind"] == "KIND_CPU"


@pytest.mark.parametrize("path", ["/", "/v2/", "/v2/health/live/", "/v2/models", "/v2/models/ints/", "/v2/models//infer",
                                  "/v2/models/ints/versions/v1/ready", "/v2/models/ints/versions/1/trace/setting",
                                  "/v2/repository", "/nothing"])
def test_other_paths_are_not_found(server, path):
    answer = call(server, "GET", path)
    assert (answer.status, answer.error) == (404, "Not Found")


@pytest.mark.parametrize("method, path", [("POST", "/v2"), ("PUT", "/v2/health/live"), ("GET", "/v2/models/ints/infer"),
                                          ("GET", "/v2/repository/index"), ("POST", "/v2/models/stats"),
                                          ("DELETE", "/v2/logging"), ("GET", "/v2/models/nobody/infer")])
def test_wrong_methods(server, method, path):
    answer = call(server, method, path)
    assert (answer.status, answer.error) == (405, "Method Not Allowed")


HUGE = "99999999999999999999"


@pytest.mark.parametrize("path, status, text", [
    ("/v2/models/nobody", 404, "Request for unknown model: 'nobody' is not found"),
    ("/v2/models/a%20b", 404, "Request for unknown model: 'a%20b' is not found"),
    ("/v2/models/nobody/ready", 404, "Request for unknown model: 'nobody' is not found"),
    ("/v2/models/nobody/config", 404, "Request for unknown model: 'nobody' is not found"),
    ("/v2/models/ints/versions/9", 404, "Request for unknown model: 'ints' version 9 is not found"),
    ("/v2/models/ints/versions/9/ready", 404, "Request for unknown model: 'ints' version 9 is not found"),
    ("/v2/models/gone", 404, "Request for unknown model: 'gone' has no available versions"),
    ("/v2/models/gone/versions/1", 503, "Request for unknown model: 'gone' version 1 is not at ready state"),
    ("/v2/models/gone/ready", 400, "Model version not ready"),
    ("/v2/models/gone/versions/1/ready", 400, "Model version not ready"),
    ("/v2/models/nobody/stats", 400, "requested model 'nobody' is not available"),
    ("/v2/models/gone/stats", 400, "requested model 'gone' is not available"),
    ("/v2/models/ints/versions/9/stats", 400, "requested model version is not available for model 'ints'"),
    (f"/v2/models/ints/versions/{HUGE}/ready", 400,
     f"failed to get model version from specified version string '{HUGE}' (details: stol), version should be an integral "
     "value > 0"),
    ("/v2/models/nobody/trace/setting", 404, "Request for unknown model: 'nobody' is not found"),
    ("/v2/models/gone/trace/setting", 400, "Request for unknown model : gone"),
    ("/v2/systemsharedmemory/region/r/status", 404, "Unable to find system shared memory region: 'r'"),
    ("/v2/cudasharedmemory/region/r/status", 404, "Unable to find cuda shared memory region: 'r'"),
])
def test_lookups_that_find_nothing(server, path, status, text):
    answer = call(server, "GET", path)
    assert (answer.status, answer.error) == (status, text)


def test_json_inference(server):
    answer = call(server, "POST", "/v2/models/ints/infer", infer_body(1, -2, 3, id="7"))
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Inference-Header-Content-Length"] is None
    assert answer.body == (b'{"id":"7","model_name":"ints","model_version":"1","outputs":[{"name":"OUTPUT0",'
                           b'"datatype":"INT32","shape":[3],"data":[1,-2,3]}]}')


def test_bare_nan_and_infinities_come_back(server):
    body = (b'{"inputs":[{"data":[[NaN,Infinity,-Infinity,0.1]],"shape":[1,4],"datatype":"FP32","name":"INPUT0"}]}')
    answer = call(server, "POST", "/v2/models/floats/infer", body)
    assert answer.status == 200 and b'"data":[NaN,Infinity,-Infinity,0.1]' in answer.body


def test_halves_travel_in_json(server):
    answer = call(server, "POST", "/v2/models/halves/infer", infer_body(1, 0.1, dtype="FP16"))
    assert answer.json["outputs"][0]["data"] == [1.0, 0.099975586]


def binary_request(data, size=None, shape=None, outputs=None):
    document = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": shape or [len(data) // 4],
                            "parameters": {"binary_data_size": len(data) if size is None else size}}]}
    if outputs is None:
        document["parameters"] = {"binary_data_output": True}
    else:
        document["outputs"] = outputs
    head = json.dumps(document).encode()
    return head + data, {"Inference-Header-Content-Length": str(len(head))}


def test_binary_inference_both_ways(server):
    data = struct.pack("<4i", 1, 2, 3, -4)
    body, headers = binary_request(data)
    answer = call(server, "POST", "/v2/models/ints/infer", body, headers)
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/octet-stream"
    length = int(answer.headers["Inference-Header-Content-Length"])
    assert json.loads(answer.body[:length])["outputs"][0] == {
        "name": "OUTPUT0", "datatype": "INT32", "shape": [4], "parameters": {"binary_data_size": 16}}
    assert answer.body[length:] == data


def test_an_empty_binary_output_has_no_header_length(server):
    body, headers = binary_request(b"", shape=[0])
    answer = call(server, "POST", "/v2/models/ints/infer", body, headers)
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Inference-Header-Content-Length"] is None
    assert answer.json["outputs"][0]["parameters"] == {"binary_data_size": 0}


def test_binary_in_and_json_out(server):
    body, headers = binary_request(struct.pack("<i", 5), outputs=[{"name": "OUTPUT0"}])
    assert call(server, "POST", "/v2/models/ints/infer", body, headers).json["outputs"][0]["data"] == [5]


def test_raw_requests_take_their_shape_from_the_model(server):
    data = struct.pack("<4f", 1, 2, 3, 4)
    answer = call(server, "POST", "/v2/models/floats/infer", data, {"Inference-Header-Content-Length": "0"})
    length = int(answer.headers["Inference-Header-Content-Length"])
    assert json.loads(answer.body[:length])["outputs"][0]["shape"] == [1, 4] and answer.body[length:] == data
    answer = call(server, "POST", "/v2/models/word/infer", b"abc", {"Inference-Header-Content-Length": "0"})
    assert answer.body.endswith(b"\x03\0\0\0abc")


@pytest.mark.parametrize("coding, pack", [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compression_both_ways(server, coding, pack):
    body, headers = binary_request(struct.pack("<4i", 1, 2, 3, 4))
    answer = call(server, "POST", "/v2/models/ints/infer", pack(body),
                  {**headers, "Content-Encoding": coding, "Accept-Encoding": coding})
    assert answer.status == 200 and answer.headers["Content-Encoding"] == coding
    plain = gzip.decompress(answer.body) if coding == "gzip" else zlib.decompress(answer.body)
    length = int(answer.headers["Inference-Header-Content-Length"])
    assert json.loads(plain[:length])["model_name"] == "ints" and plain[length:] == struct.pack("<4i", 1, 2, 3, 4)


def test_only_good_infer_answers_are_compressed(server):
    accept = {"Accept-Encoding": "gzip"}
    assert call(server, "GET", "/v2", headers=accept).headers["Content-Encoding"] is None
    answer = call(server, "POST", "/v2/models/ints/infer", b"{}", accept)
    assert answer.status == 400 and answer.headers["Content-Encoding"] is None and answer.error


@pytest.mark.parametrize("headers, body, status, text", [
    ({"Content-Encoding": "br"}, b"x", 501, "Unsupported compression type"),
    ({"Content-Encoding": "GZIP"}, b"x", 501, "Unsupported compression type"),
    ({"Content-Encoding": "gzip"}, b"", 400, "nothing to be decompressed"),
    ({"Content-Encoding": "gzip"}, b"no gzip at all", 400, "encountered inconsistent stream state during decompression"),
    ({"Content-Encoding": "gzip"}, gzip.compress(json.dumps(infer_body(1)).encode())[:-9], 400,
     "encountered inconsistent stream state during decompression"),
    ({"Content-Encoding": "gzip"}, gzip.compress(bytes(1000001)), 400,
     "Decompressed data size exceeds the maximum allowed value of 1000000 bytes. Use --http-max-input-size to increase the "
     "limit."),
    ({"Inference-Header-Content-Length": "96x"}, b"{}", 400,
     "Unable to parse Inference-Header-Content-Length, got: 96x"),
    ({"Inference-Header-Content-Length": "abc"}, b"{}", 400,
     "Unable to parse Inference-Header-Content-Length, got: abc"),
    ({"Inference-Header-Content-Length": "-1"}, b"{}", 400, "inference header size should be in range (0, 2), got: -1"),
    ({"Inference-Header-Content-Length": "3"}, b"{}", 400, "inference header size should be in range (0, 2), got: 3"),
    ({}, b"[" * 1000001, 400, "request JSON size of 1000001 bytes exceeds the maximum allowed input size of 1000000 bytes. "
                              "Use --http-max-input-size to increase the limit."),
    ({"Inference-Header-Content-Length": "0"}, bytes(1000004), 400,
     "Raw input has a byte_size (1000004 bytes) that exceeds the maximum allowed value of 1000000 bytes. Use "
     "--http-max-input-size to increase the limit."),
    ({}, b"{", 400, "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
    ({}, b"{}", 400, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
])
def test_framing_errors(server, headers, body, status, text):
    answer = call(server, "POST", "/v2/models/ints/infer", body, headers)
    assert answer.status == status
    assert answer.error.startswith(text) if "inconsistent" in text else answer.error == text
    if status == 501:
        assert answer.headers["Accept-Encoding"] == "gzip, deflate"


@pytest.mark.parametrize("path", [
    "/v2/repository/index", "/v2/repository/models/ints/load", "/v2/repository/models/ints/unload", "/v2/logging",
    "/v2/trace/setting", "/v2/models/ints/trace/setting"])
def test_documents_of_the_control_apis_have_the_same_limit(server, path):
    answer = call(server, "POST", path, b" " * 1000001, {})
    assert answer.status == 400
    assert answer.error == ("request JSON size of 1000001 bytes exceeds the maximum allowed input size of 1000000 bytes. Use "
                            "--http-max-input-size to increase the limit.")


P = "[request id: <id_unknown>] "


@pytest.mark.parametrize("model, body, text", [
    ("ints", {"inputs": []}, P + "expected 1 inputs but got 0 inputs for model 'ints'. Got input(s) [], but missing required "
                                 "input(s) ['INPUT0']. Please provide all required input(s)."),
    ("ints", infer_body(1.5), "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"),
    ("ints", infer_body(2**31), "Unable to parse 'data': value 2147483648 of input 'INPUT0' is out of range for datatype "
                                "INT32"),
    ("ints", infer_body(1, outputs=[{"name": "DUMMY"}]), "unexpected inference output 'DUMMY' for model 'ints'"),
    ("ints", infer_body(1, dtype="FP32"), P + "inference input 'INPUT0' data-type is 'FP32', but model 'ints' expects "
                                              "'INT32'"),
    ("ints", infer_body(1, 2, shape=[1, 2]), P + "unexpected shape for input 'INPUT0' for model 'ints'. Expected [-1], got "
                                                 "[1,2]. "),
    ("floats", infer_body(*range(36), shape=[9, 4], dtype="FP32"), P + "inference request batch-size must be <= 8 for "
                                                                       "'floats'"),
    ("texts", infer_body("a", "b", shape=[1], dtype="BYTES"), P + "unexpected number of string elements 2 for inference "
                                                                  "input 'INPUT0' for model 'texts', expecting 1"),
    ("texts", infer_body("a", dtype="BYTES", outputs=[{"name": "OUTPUT0", "parameters": {"classification": 1}}]),
     "class result not available for output due to unsupported type 'BYTES'"),
])
def test_requests_that_do_not_fit_the_model(server, model, body, text):
    answer = call(server, "POST", f"/v2/models/{model}/infer", body)
    assert (answer.status, answer.error) == (400, text)


def test_classification(server):
    body = infer_body(1, 4, 2, 4, shape=[1, 4], dtype="FP32",
                      outputs=[{"name": "OUTPUT0", "parameters": {"classification": 3}}])
    output = call(server, "POST", "/v2/models/floats/infer", body).json["outputs"][0]
    assert output == {"name": "OUTPUT0", "datatype": "BYTES", "shape": [1, 3],
                      "data": ["4.000000:1", "4.000000:3", "2.000000:2"]}


def test_decoupled_models_load_and_refuse_infer(server):
    assert server.load("decoupled")[0] == 200
    answer = call(server, "POST", "/v2/models/decoupled/infer", infer_body(1))
    assert (answer.status, answer.error) == (501, "HTTP end point doesn't support models with decoupled transaction policy")


def test_statistics(server):
    before = call(server, "GET", "/v2/models/floats/stats").json["model_stats"][0]
    call(server, "POST", "/v2/models/floats/infer", infer_body(*range(8), shape=[2, 4], dtype="FP32"))
    after = call(server, "GET", "/v2/models/floats/versions/1/stats").json["model_stats"][0]
    assert list(after) == ["name", "version", "last_inference", "inference_count", "execution_count", "inference_stats",
                           "response_stats", "batch_stats", "memory_usage"]
    assert after["inference_count"] == before["inference_count"] + 2
    assert after["execution_count"] == before["execution_count"] + 1
    assert after["inference_stats"]["success"]["count"] == before["inference_stats"]["success"]["count"] + 1
    assert after["inference_stats"]["queue"]["count"] == after["inference_stats"]["success"]["count"]
    assert any(row["batch_size"] == 2 for row in after["batch_stats"])
    every = call(server, "GET", "/v2/models/stats").json["model_stats"]
    assert "gone" not in [row["name"] for row in every]


def test_index(server):
    rows = call(server, "POST", "/v2/repository/index").json
    by_name = {row["name"]: row for row in rows}
    assert by_name["untouched"] == {"name": "untouched"}
    assert by_name["ints"] == {"name": "ints", "version": "1", "state": "READY"}
    assert by_name["gone"] == {"name": "gone", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
    ready = call(server, "POST", "/v2/repository/any/index", {"ready": True}).json
    assert {row["state"] for row in ready} == {"READY"}
    answer = call(server, "POST", "/v2/repository/index", {"ready": 1})
    assert (answer.status, answer.error) == (400, "Invalid value for 'ready': expected a boolean")


def test_load_and_unload(server):
    answer = call(server, "POST", "/v2/repository/models/untouched/load")
    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (200, b"", "application/json")
    answer = call(server, "POST", "/v2/repository/models/untouched/unload", {"parameters": {"unload_dependents": True}})
    assert answer.status == 200 and answer.json["unload"]["versions"][0]["verdict"] == "returned"
    assert call(server, "POST", "/v2/repository/models/nobody/unload").status == 200


def test_load_with_overrides(server):
    config = ONE.format(0, "UINT8", -1, "UINT8", -1)
    document = {"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_UINT8", "dims": [-1]}],
                "output": [{"name": "OUTPUT0", "data_type": "TYPE_UINT8", "dims": [-1]}]}
    parameters = {"config": json.dumps(document), "file:3/anything": base64.b64encode(config.encode()).decode()}
    assert server.load("overridden", **parameters) == (200, "")
    assert call(server, "GET", "/v2/models/overridden").json["versions"] == ["3"]
    assert server.unload("overridden")[0] == 200


@pytest.mark.parametrize("path, body, status, text", [
    ("/v2/repository/models/nobody/load", None, 404, "failed to load 'nobody', failed to poll from model repository"),
    ("/v2/repository/r/models/ints/load", None, 501, "'repository_name' specification is not supported"),
    ("/v2/repository/r/models/ints/unload", None, 501, "'repository_name' specification is not supported"),
    ("/v2/repository/models/../load", None, 400,
     "invalid model name '..', model name must not contain path traversal characters"),
    ("/v2/repository/models/ints/load", b"{", 400,
     "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
    ("/v2/repository/models/ints/load", {"parameters": {"config": 5}}, 400,
     "attempt to access JSON non-string as string"),
    ("/v2/repository/models/ints/load", {"parameters": {"file:1/x": "***"}}, 400, "'file:1/x' is not valid base64"),
    ("/v2/repository/models/ints/unload", {"parameters": {"unload_dependents": 1}}, 400,
     "Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean"),
    ("/v2/systemsharedmemory/region/r/register", b"", 501,
     "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."),
    ("/v2/cudasharedmemory/unregister", b"", 501,
     "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."),
    ("/v2/logging", b"", 400, "failed to parse the request JSON buffer: The document is empty. at 0"),
    ("/v2/logging", {"log_file": "x"}, 501, "log file location can not be updated through network protocol"),
    ("/v2/logging", {"log_format": "x"}, 400, "invalid argument for --log_format, got: x"),
    ("/v2/trace/setting", b"", 400, "failed to parse the request JSON buffer: The document is empty. at 0"),
    ("/v2/trace/setting", {"trace_rate": 5}, 400, "attempt to access JSON non-string as string"),
    ("/v2/trace/setting", {"trace_file": "x"}, 501, "trace file location can not be updated through network protocol"),
    ("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]}, 400,
     "Attempting to set invalid trace setting :trace file name is not given"),
])
def test_control_errors(server, path, body, status, text):
    answer = call(server, "POST", path, body)
    assert answer.status == status
    # An unknown model's text is followed by what the repository says.
    assert answer.error.startswith(text) if "nobody" in path else answer.error == text
    assert server.get("/v2/models/ints/ready")[0] == 200


def test_settings_come_back(server):
    assert call(server, "GET", "/v2/logging").json == {
        "log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0,
        "log_format": "default"}
    assert call(server, "POST", "/v2/logging", {"log_verbose_level": 1, "nobody": 1}).json["log_verbose_level"] == 1
    assert call(server, "POST", "/v2/logging", {"log_verbose_level": 0}).json["log_verbose_level"] == 0
    answer = call(server, "POST", "/v2/models/ints/trace/setting", {"trace_rate": "7", "trace_count": "3"}).json
    assert answer == {"trace_level": ["OFF"], "trace_rate": "7", "trace_count": "3", "log_frequency": "0", "trace_file": "",
                      "trace_mode": "triton"}
    assert call(server, "GET", "/v2/trace/setting").json["trace_rate"] == "1000"
    answer = call(server, "POST", "/v2/models/ints/trace/setting", {"trace_rate": None, "trace_count": None}).json
    assert answer["trace_rate"] == "1000"


def test_restricted_routes_want_their_header(repository):
    with Served(repository, "--load-model=ints", "--http-restricted-api=inference,logging:key=secret") as server:
        answer = call(server, "POST", "/v2/models/ints/infer", infer_body(1))
        assert (answer.status, answer.error) == (403, "This API is restricted, expecting header 'key'")
        assert call(server, "POST", "/v2/models/ints/infer", infer_body(1), {"KEY": "Secret"}).status == 403
        assert call(server, "POST", "/v2/models/ints/infer", infer_body(1), {"KEY": "secret"}).status == 200
        assert call(server, "DELETE", "/v2/logging").status == 403
        assert call(server, "GET", "/v2/health/live").status == 200


def test_other_control_modes_refuse_loads(repository):
    with Served(repository, "--exit-on-error=false", explicit=False) as server:
        answer = call(server, "POST", "/v2/repository/models/ints/load")
        assert (answer.status, answer.error) == (
            503, "explicit model load / unload is not allowed if polling is enabled")
