"""The front ends of SageMaker and Vertex AI, through the real process."""

import json
import subprocess
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.http as triton
from onnx import TensorProto
from onnx_models import addsub_model, identity_model, weights_model
from served import Served, binary, make_model

SAGEMAKER = "application/vnd.sagemaker-triton.binary+json;json-header-size="
VERTEX = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
REDIRECT = "X-Vertex-Ai-Triton-Redirect"
FLAT = ('backend: "onnxruntime" max_batch_size: 0\ninput { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }\n'
        'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }\n')
VALUES = np.arange(16, dtype=np.float32).reshape(1, 16)


def ask(port, method, path, body=None, headers=None):
    """Status, headers and body of an answer."""
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def error(answer):
    return answer[0], json.loads(answer[2])["error"]


def addsub_document():
    return {"inputs": [{"name": name, "shape": [1, 16], "datatype": "FP32", "data": VALUES.ravel().tolist()}
                       for name in ("INPUT0", "INPUT1")]}


def addsub_binary():
    """Body and number of JSON bytes of the same request with binary tensors, and outputs that are."""
    inputs = [triton.InferInput(name, [1, 16], "FP32") for name in ("INPUT0", "INPUT1")]
    for tensor in inputs:
        tensor.set_data_from_numpy(VALUES)
    outputs = [triton.InferRequestedOutput("OUTPUT0", binary_data=True)]
    return triton.InferenceServerClient.generate_request_body(inputs, outputs=outputs)


def check_json(answer):
    status, headers, body = answer
    assert (status, headers["Content-Type"]) == (200, "application/json"), body
    outputs = {output["name"]: output["data"] for output in json.loads(body)["outputs"]}
    assert outputs["OUTPUT0"] == (VALUES * 2).ravel().tolist()


def check_binary(answer, content_type):
    status, headers, body = answer
    assert status == 200, body
    assert headers["Content-Type"].startswith(content_type)
    assert headers["Inference-Header-Content-Length"] is None
    json_bytes = int(headers["Content-Type"].removeprefix(content_type))
    result = triton.InferenceServerClient.parse_response_body(body, header_length=json_bytes)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), VALUES * 2)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_model(root, "addsub", addsub_model())
    make_model(root, "other", identity_model(TensorProto.FLOAT), config=FLAT)
    return root


class Cloud(Served):
    """A server with one of the front ends; `cloud` is its port."""

    def __init__(self, kind, repository, folder, *options, **more):
        port_file = folder / f"{kind}-port"
        super().__init__(repository, f"--{kind}-port=0", f"--{kind}-port-file={port_file}", *options, **more)
        self.cloud = int(port_file.read_text())  # written before the HTTP port's file


@pytest.fixture
def sagemaker(repository, tmp_path):
    with Cloud("sagemaker", repository, tmp_path, "--allow-sagemaker=true", "--load-model=addsub") as server:
        yield server
        assert server.stop() == 0, server.log()


def test_sagemaker_pings_and_infers_with_the_only_model(sagemaker):
    port = sagemaker.cloud
    assert ask(port, "GET", "/ping")[0] == 200
    check_json(ask(port, "POST", "/invocations", addsub_document()))
    body, json_bytes = addsub_binary()
    check_binary(ask(port, "POST", "/invocations", body, {"Content-Type": f"{SAGEMAKER}{json_bytes}"}), SAGEMAKER)
    # The ordinary port keeps the ordinary form.
    status, headers, answer = ask(sagemaker.port, "POST", "/v2/models/addsub/infer", body,
                                  {"Inference-Header-Content-Length": str(json_bytes)})
    assert (status, headers["Content-Type"]) == (200, "application/octet-stream"), answer
    assert int(headers["Inference-Header-Content-Length"]) < len(answer)


def test_sagemaker_names_what_is_wrong(sagemaker):
    port = sagemaker.cloud
    body, json_bytes = addsub_binary()
    assert error(ask(port, "POST", "/invocations", body, {"Content-Type": f"{SAGEMAKER}x"})) == (
        400, "Content-Type: found json-header-size 'x', expected the number of JSON bytes")
    assert ask(port, "POST", "/invocations", body, {"Content-Type": f"{SAGEMAKER}{len(body) + 1}"})[0] == 400
    status, headers, _ = ask(port, "GET", "/invocations")
    assert (status, headers["Allow"]) == (405, "POST")
    status, headers, _ = ask(port, "PUT", "/models")
    assert (status, headers["Allow"]) == (405, "GET, POST")
    assert error(ask(port, "GET", "/v2")) == (400, "SageMaker: found path '/v2', expected /ping, /invocations or /models…")
    assert error(ask(port, "POST", "/models", {"url": "/x"})) == (
        400, "load model: member 'model_name' is missing or empty")
    assert ask(port, "POST", "/models", b"{")[0] == 400
    for url in ("relative", "/dev", "/proc/self", "/no/such/folder"):
        assert ask(port, "POST", "/models", {"model_name": "m", "url": url})[0] == 400
    assert sagemaker.load("other") == (200, "")
    assert error(ask(port, "POST", "/invocations", addsub_document())) == (
        400, "the request names no model: found 2 models that are ready, expected one, or "
             "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME")


def test_sagemaker_infers_with_the_model_of_the_environment(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "addsub")
    with Cloud("sagemaker", repository, tmp_path, "--allow-sagemaker=true", "--load-model=*") as server:
        check_json(ask(server.cloud, "POST", "/invocations", addsub_document()))


def test_a_default_model_may_have_any_name(tmp_path, monkeypatch):
    make_model(tmp_path / "models", "what?", addsub_model(), config='name: "what?" backend: "onnxruntime"\n')
    monkeypatch.setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "what?")
    with Cloud("sagemaker", tmp_path / "models", tmp_path, "--allow-sagemaker=true", "--load-model=*") as server:
        check_json(ask(server.cloud, "POST", "/invocations", addsub_document()))
    monkeypatch.setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "a/b")
    run = subprocess.run([binary(), "serve", f"--model-repository={tmp_path}", "--allow-sagemaker=true"],
                         capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (
        1, "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME: found 'a/b', expected the name of a model\n")


def test_sagemaker_loads_models_of_other_repositories_and_forgets_them(sagemaker, tmp_path):
    port = sagemaker.cloud
    url = tmp_path / "hash" / "model"
    make_model(url, "named_otherwise", addsub_model(), config='name: "named_otherwise" backend: "onnxruntime"\n')
    listed = {"modelName": "abc123", "modelUrl": str(url)}
    for _ in range(2):
        assert json.loads(ask(port, "GET", "/models")[2]) == {"models": []}
        assert ask(port, "GET", "/models/abc123")[0] == 404
        assert error(ask(port, "POST", "/models/abc123/invoke", addsub_document())) == (
            404, "model 'abc123' is not loaded")
        assert ask(port, "POST", "/models", {"model_name": "abc123", "url": str(url)})[0] == 200
        assert ask(port, "POST", "/models", {"model_name": "abc123", "url": str(url)})[0] == 409
        assert json.loads(ask(port, "GET", "/models")[2]) == {"models": [listed]}
        assert json.loads(ask(port, "GET", "/models/abc123")[2]) == listed
        check_json(ask(port, "POST", "/models/abc123/invoke", addsub_document()))
        body, json_bytes = addsub_binary()
        check_binary(ask(port, "POST", "/models/abc123/invoke", body, {"Content-Type": f"{SAGEMAKER}{json_bytes}"}),
                     SAGEMAKER)
        assert sagemaker.get("/v2/models/abc123/ready")[0] == 200
        assert ask(port, "DELETE", "/models/abc123")[0] == 200
        assert ask(port, "DELETE", "/models/abc123")[0] == 404
        assert sagemaker.get("/v2/models/abc123/ready")[0] == 404, "nobody knows the name any more"
    assert sagemaker.load("abc123")[0] != 200, "its repository is forgotten"


def test_sagemaker_loads_an_ensemble_with_its_members(sagemaker, tmp_path):
    url = tmp_path / "archive"
    make_model(url, "member", identity_model(TensorProto.FLOAT), config=FLAT)
    make_model(url, "whole", b"", filename="unused", config=(
        'platform: "ensemble" max_batch_size: 0\n'
        'input { name: "IN" data_type: TYPE_FP32 dims: -1 }\noutput { name: "OUT" data_type: TYPE_FP32 dims: -1 }\n'
        'ensemble_scheduling { step { model_name: "member" model_version: -1 '
        'input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "OUT" } } }\n'))
    port = sagemaker.cloud
    status, _, body = ask(port, "POST", "/models", {"model_name": "e", "url": str(url)})
    assert status == 200, body
    document = {"inputs": [{"name": "IN", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
    status, _, body = ask(port, "POST", "/models/e/invoke", document)
    assert status == 200 and json.loads(body)["outputs"][0]["data"] == [1, 2], body
    assert ask(port, "DELETE", "/models/e")[0] == 200
    assert sagemaker.get("/v2/models/member/ready")[0] != 200, "members go with their ensemble"


def test_names_of_sagemakers_models_leave_with_them(repository, tmp_path):
    with Cloud("sagemaker", repository, tmp_path, "--allow-sagemaker=true") as server:
        url = tmp_path / "r"
        make_model(url, "m", addsub_model())

        def rate(name):
            return json.loads(server.get(f"/v2/models/{name}/trace/setting")[1])["trace_rate"]

        def load(name):
            status, _, body = ask(server.cloud, "POST", "/models", {"model_name": name, "url": str(url)})
            assert status == 200, body
            check_json(ask(server.cloud, "POST", f"/models/{name}/invoke", addsub_document()))
            assert rate(name) == "1000", "settings do not outlive the name"
            assert server.post(f"/v2/models/{name}/trace/setting", {"trace_rate": "7"})[0] == 200
            assert rate(name) == "7"

        def index():
            return json.loads(server.post("/v2/repository/index")[1])

        def rows():
            return json.loads(server.get("/v2/memory")[1])["rows"]

        names = [f"named-{i}" for i in range(30)]
        mark = rows()
        for group in (names[:15], names[15:], names[:3]):  # the last ones come again
            for name in group:
                load(name)
            assert {entry["name"] for entry in index() if entry.get("state") == "READY"} == set(group)
            assert all(f'model="{name}"' in server.metrics_text() for name in group)
            for name in group:
                assert ask(server.cloud, "DELETE", f"/models/{name}")[0] == 200
            assert {entry["name"] for entry in index()} == {"addsub", "other"}, "those of the server's own repository"
            assert "named-" not in server.metrics_text()
            assert rows() == mark
        broken = tmp_path / "broken"
        make_model(broken, "m", b"no model")
        assert ask(server.cloud, "POST", "/models", {"model_name": "named-x", "url": str(broken)})[0] == 400
        assert {entry["name"] for entry in index()} == {"addsub", "other"}


def test_sagemaker_hears_507_when_there_is_no_room_and_nothing_stays(repository, tmp_path):
    with Cloud("sagemaker", repository, tmp_path, "--allow-sagemaker=true", "--host-memory-limit=1000000",
               "--strict-readiness=false") as server:
        url = tmp_path / "r"
        make_model(url, "m", weights_model(8))
        assert ask(server.cloud, "POST", "/models", {"model_name": "m", "url": str(url)})[0] == 507
        assert ask(server.cloud, "GET", "/models/m")[0] == 404
        assert json.loads(server.get("/v2/memory")[1])["rows"] == 0


def test_models_of_sagemaker_are_control(repository, tmp_path):
    with Cloud("sagemaker", repository, tmp_path, "--allow-sagemaker=true", "--control-access=off", "--load-model=addsub",
               wait_ready=False) as server:
        for method, path in (("GET", "/models"), ("POST", "/models"), ("GET", "/models/m"), ("DELETE", "/models/m")):
            assert ask(server.cloud, method, path)[0] == 403
        server._await(lambda: ask(server.cloud, "GET", "/ping")[0] == 200, 120, "finish its start")
        check_json(ask(server.cloud, "POST", "/invocations", addsub_document()))


def test_ports_outside_sagemakers_range_are_refused_by_name(repository):
    run = subprocess.run([binary(), "serve", f"--model-repository={repository}", "--allow-sagemaker=true",
                          "--sagemaker-port=8080", "--sagemaker-safe-port-range=8081-9000"],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert run.stderr == "--http-port: found port 8000, expected one of --sagemaker-safe-port-range, 8081 to 9000\n"


@pytest.fixture
def vertex_environment(monkeypatch):
    for name, value in (("AIP_MODE", "PREDICTION"), ("AIP_HTTP_PORT", "0"), ("AIP_HEALTH_ROUTE", "/health"),
                        ("AIP_PREDICT_ROUTE", "/predict")):
        monkeypatch.setenv(name, value)


@pytest.fixture
def vertex(repository, tmp_path, vertex_environment):
    with Cloud("vertex-ai", repository, tmp_path, "--allow-http=true", "--load-model=*",
               "--vertex-ai-default-model=addsub") as server:
        yield server
        assert server.stop() == 0, server.log()


def test_vertex_is_healthy_and_predicts(vertex):
    port = vertex.cloud
    assert ask(port, "GET", "/health")[0] == 200
    check_json(ask(port, "POST", "/predict", addsub_document()))
    body, json_bytes = addsub_binary()
    check_binary(ask(port, "POST", "/predict", body, {"Content-Type": f"{VERTEX}{json_bytes}"}), VERTEX)
    assert ask(port, "GET", "/predict")[0] == 405
    assert error(ask(port, "POST", "/other")) == (400, "Vertex AI: found path '/other', expected '/predict' or '/health'")
    assert ask(port, "POST", "/predict", body, {"Content-Type": f"{VERTEX}-1"})[0] == 400


def test_vertex_redirects_to_every_route(vertex):
    port = vertex.cloud

    def redirect(target, body=b"", **headers):
        return ask(port, "POST", "/predict", body, {REDIRECT: target, **headers})

    for target in ("v2", "v2/models/addsub", "v2/models/addsub/config", "v2/models/stats", "v2/logging"):
        status, _, body = redirect(target)
        assert (status, body) == vertex.get(f"/{target}"), target
    for target in ("v2/health/live", "v2/models/addsub/versions/1/ready"):
        assert redirect(target)[0] == 200, target
    assert {entry["name"] for entry in json.loads(redirect("v2/repository/index")[2])} == {"addsub", "other"}
    assert b"nv_inference_request_success" in redirect("metrics")[2]
    document = {"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [3]}]}
    status, _, body = redirect("v2/models/other/infer", json.dumps(document).encode())
    assert status == 200 and json.loads(body)["outputs"][0]["data"] == [3]
    binary_body, json_bytes = addsub_binary()
    check_binary(redirect("v2/models/addsub/infer", binary_body, **{"Content-Type": f"{VERTEX}{json_bytes}"}), VERTEX)
    assert redirect("v2/repository/models/other/unload")[0] == 200
    assert vertex.get("/v2/models/other/ready")[0] == 400
    assert error(redirect("v3")) == (
        400, "X-Vertex-Ai-Triton-Redirect: found 'v3', expected a path of this server, as in v2/models/M/infer")


def test_vertex_turns_http_off_unless_it_is_asked_for(repository, tmp_path, vertex_environment):
    port_file = tmp_path / "port"
    with Served(repository, f"--vertex-ai-port-file={port_file}", "--load-model=addsub", wait_ready=False) as server:
        assert server.port == 0, "HTTP is off"
        port = int(port_file.read_text())
        server._await(lambda: ask(port, "GET", "/health")[0] == 200, 120, "finish its start")
        check_json(ask(port, "POST", "/predict", addsub_document()))


def test_vertex_needs_its_routes(repository, vertex_environment, monkeypatch):
    monkeypatch.delenv("AIP_PREDICT_ROUTE")
    run = subprocess.run([binary(), "serve", f"--model-repository={repository}"], capture_output=True, text=True,
                         timeout=60)
    assert (run.returncode, run.stderr) == (1, "AIP_PREDICT_ROUTE is not defined for Vertex AI endpoint\n")
