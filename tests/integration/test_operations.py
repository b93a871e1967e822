"""What operators look at: the memory extension, readiness, the dashboard, the log, and what deploy/ is made for."""

import asyncio
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from onnx import TensorProto
from served import ROOT, Served, ServedSession, binary, make_model, sample

import onnx_models as models

MIB = 1 << 20
IDENTITY = ('backend: "identity"\ninput {{ name: "INPUT0" data_type: TYPE_INT32 dims: -1 }}\n'
            'output {{ name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 }}\n{}')
REQUEST = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "data": [1, 2]}]}).encode()


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_model(root, "plain", b"", IDENTITY.format(""), filename="unused")
    make_model(root, "late", b"", IDENTITY.format(parameter("creation_delay_sec", "3600")), filename="unused")
    make_model(root, "slow", b"", IDENTITY.format(parameter("execute_delay_ms", "6000")), filename="unused")
    make_model(root, "weights", models.weights_model(64),
               'backend: "onnxruntime" max_batch_size: 4\ninput { name: "INPUT0" data_type: TYPE_FP32 dims: 1024 }\n'
               'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16384 }\n' + parameter("map-weights", "false"))
    make_model(root, "text", models.identity_model(TensorProto.STRING, ("n", "m")),
               'backend: "onnxruntime" max_batch_size: 0\ninput { name: "INPUT0" data_type: TYPE_STRING dims: [ -1, -1 ] }\n'
               'output { name: "OUTPUT0" data_type: TYPE_STRING dims: [ -1, -1 ] }\n')
    make_model(root, "broken", b"garbage" * 100, filename="model.onnx", config='backend: "onnxruntime"\n')
    return root


@pytest.fixture
def server(repository):
    with Served(repository) as running:
        yield running
        assert running.stop() == 0, running.log()


def get(server, path):
    status, body = server.get(path)
    assert status == 200, body
    return json.loads(body)


# Memory ---------------------------------------------------------------------------------------------------------------


def test_memory_is_named_as_an_extension(server):
    assert get(server, "/v2")["extensions"][-1] == "memory"


def test_the_memory_of_the_server_adds_up(server):
    assert server.load("weights")[0] == 200
    document = get(server, "/v2/memory")
    host = document["devices"][0]
    assert host["device"] == "host" and host["witness"] == "kernel"
    assert host["unattributed_bytes"] == host["witness_bytes"] - host["ledger_bytes"] - host["request_bytes"]
    assert host["ledger_bytes"] >= 64 * MIB and host["high_water_bytes"] >= host["ledger_bytes"]
    memory_kinds = ("host_memory", "small_heap", "engine_object", "pinned_memory")
    assert sum(host["kinds"].get(kind, {"bytes": 0})["bytes"] for kind in memory_kinds) == host["ledger_bytes"]
    resident = sum(entry["bytes"].get("host", 0) for entry in document["resident"])
    version = document["models"][0]["versions"][0]
    assert version["memory"][0]["bytes"] + resident == host["ledger_bytes"]
    assert document["stranded"] == [] and document["ready"] is True
    assert document["rows"] == version["rows"]


def test_the_memory_of_a_model_is_split_and_adds_up(server):
    assert server.load("weights")[0] == 200
    idle = get(server, "/v2/models/weights/versions/1/memory")["versions"][0]["memory"][0]
    assert idle["weights_bytes"] + idle["working_bytes"] + idle["cached_bytes"] == idle["bytes"]
    assert idle["weights_bytes"] >= 64 * MIB * 0.95
    with server.client() as client:
        ServedSession(client, "weights", {"INPUT0": np.float32}).run(["OUTPUT0"], {"INPUT0": np.ones((4, 1024), np.float32)})
    version = get(server, "/v2/models/weights/memory")["versions"][0]
    after = version["memory"][0]
    assert after["weights_bytes"] + after["working_bytes"] + after["cached_bytes"] == after["bytes"]
    assert after["high_water_bytes"] >= after["bytes"]
    load = version["last_load"]
    assert load["result"] == "ready" and load["seconds"] > 0 and load["taken_bytes"]["host"] >= 64 * MIB * 0.95
    assert load["witness_bytes"]["host"] >= 64 * MIB * 0.95


def test_a_failed_load_is_remembered_with_its_reason(server):
    assert server.load("broken")[0] == 400
    load = get(server, "/v2/models/broken/memory")["versions"][0]["last_load"]
    assert load["result"] == "failed" and load["reason"] and load["rows_left"] == 0 and load["taken_bytes"] == {}
    event = get(server, "/v2/memory")["events"][0]
    assert (event["operation"], event["ok"], event["model"]) == ("load", False, "broken")


def test_unknown_models_have_tritons_text(server):
    assert server.get("/v2/models/nobody/memory") == (
        404, b'{"error":"Request for unknown model: \'nobody\' is not found"}')
    assert server.load("plain")[0] == 200
    assert server.get("/v2/models/plain/versions/7/memory") == (
        404, b'{"error":"Request for unknown model: \'plain\' version 7 is not found"}')
    assert server.post("/v2/memory")[0] == 405


def test_an_unload_answers_with_its_verdict(server):
    assert server.load("weights")[0] == 200
    held = get(server, "/v2/models/weights/memory")["versions"][0]["memory"][0]["bytes"]
    status, body = server.post("/v2/repository/models/weights/unload")
    assert status == 200
    answer = json.loads(body)["unload"]
    assert answer["model"] == "weights" and [entry["version"] for entry in answer["versions"]] == ["1"]
    version = answer["versions"][0]
    assert version["verdict"] == "returned" and version["rows_left"] == 0
    assert version["held_bytes"]["host"] == version["returned_bytes"]["host"] >= held * 0.95
    assert version["witness_bytes"]["host"] >= held * 0.95
    remembered = get(server, "/v2/models/weights/memory")["versions"][0]["last_unload"]
    assert remembered == {key: value for key, value in version.items() if key != "version"}
    host = get(server, "/v2/memory")["devices"][0]
    assert host["high_water_bytes"] >= host["ledger_bytes"] + held, "what it was is not forgotten"
    assert sample(server.metrics(), "tidemark_memory_high_water_bytes", device="host") >= host["high_water_bytes"]
    status, body = server.post("/v2/repository/models/weights/unload")
    assert status == 200 and json.loads(body)["unload"]["versions"] == [], "there was nothing to unload"


def test_tritons_clients_do_not_mind_the_unloads_body(server):
    with triton.InferenceServerClient(server.url) as client:
        for _ in range(3):  # the connection stays usable
            client.load_model("plain")
            assert client.is_model_ready("plain")
            client.unload_model("plain")
            assert not client.is_model_ready("plain")

    async def asynchronous():
        async with triton_aio.InferenceServerClient(server.url) as client:
            for _ in range(2):
                await client.load_model("plain")
                await client.unload_model("plain")
                assert await client.is_server_live()

    asyncio.run(asynchronous())


# Readiness: one test for each row of the table in docs/operations.md ----------------------------------------------------


def probes(server, model="plain"):
    """(live, ready, meaning=server, =models, =draining, the model's) as status codes."""
    return tuple(server.get(path)[0] for path in (
        "/v2/health/live", "/v2/health/ready", "/v2/health/ready?meaning=server", "/v2/health/ready?meaning=models",
        "/v2/health/ready?meaning=draining", f"/v2/models/{model}/ready"))


def test_probes_at_the_start(repository):
    with Served(repository, "--load-model=late", wait_ready=False) as server:
        assert probes(server, "late")[:5] == (200, 400, 400, 400, 400)
        server.process.kill()  # nothing else ends a load of an hour at the start
    with Served(repository, "--load-model=plain", wait_ready=False) as server:
        server._await(lambda: server.get("/v2/health/ready")[0] == 200, 120, "become ready")
        assert probes(server) == (200, 200, 200, 200, 400, 200)
        assert server.stop() == 0


def test_probes_during_and_after_a_load_by_request(server):
    assert server.load("plain")[0] == 200
    assert probes(server) == (200, 200, 200, 200, 400, 200)
    thread = threading.Thread(target=server.load, args=("late",))
    thread.start()
    server._await(lambda: '"LOADING"' in server.post("/v2/repository/index")[1].decode(), 120, "begin the load")
    assert probes(server, "late") == (200, 200, 200, 200, 400, 400)
    assert thread.is_alive(), "the probes were answered while the load was running"
    assert server.stop() == 0, "that ends the load"
    thread.join()


def test_probes_after_a_failed_load(server):
    assert server.load("broken")[0] == 400
    assert probes(server, "broken") == (200, 400, 200, 400, 400, 400)
    assert server.unload("broken")[0] == 200
    assert probes(server, "broken") == (200, 200, 200, 200, 400, 400)


def test_probes_after_a_failed_load_without_strict_readiness(repository):
    with Served(repository, "--strict-readiness=false") as server:
        assert server.load("broken")[0] == 400
        assert probes(server, "broken") == (200, 200, 200, 400, 400, 400)
        assert server.stop() == 0


def test_probes_during_and_after_an_update(server):
    def config(delay):
        return json.dumps({"backend": "identity", "parameters": {"creation_delay_sec": {"string_value": delay}},
                           "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
                           "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]})

    assert server.load("plain")[0] == 200 and server.load("plain", config=config("1"))[0] == 200
    assert probes(server) == (200, 200, 200, 200, 400, 200)
    broken = json.loads(config("0")) | {"max_batch_size": -1}
    assert server.load("plain", config=json.dumps(broken))[0] == 400
    assert probes(server) == (200, 200, 200, 200, 400, 200), "a failed update changes nothing"
    thread = threading.Thread(target=server.load, args=("plain",), kwargs={"config": config("3600")})
    thread.start()
    for _ in range(10):
        assert probes(server) == (200, 200, 200, 200, 400, 200), "the old version serves"
    assert thread.is_alive()
    assert server.stop() == 0, "that ends the load"
    thread.join()


def test_probes_after_an_unload(server):
    assert server.load("plain")[0] == 200 and server.unload("plain")[0] == 200
    assert probes(server) == (200, 200, 200, 200, 400, 400)


def test_probes_while_draining(repository):
    with Served(repository, "--http-thread-count=1", "--load-model=slow") as server:
        connection = http.client.HTTPConnection(server.url, timeout=60)
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        connection.request("POST", "/v2/models/slow/infer", REQUEST)
        assert server.get("/v2/health/live")[0] == 200  # the request is inside by now
        server.process.send_signal(signal.SIGTERM)
        server._await(lambda: server.get("/v2/health/ready?meaning=draining")[0] == 200, 120, "drain")
        assert probes(server, "slow") == (503, 503, 503, 503, 200, 503)
        assert connection.getresponse().status == 200
        assert server.process.wait(120) == 0


def test_an_unknown_meaning_is_refused(server):
    status, body = server.get("/v2/health/ready?meaning=everything")
    assert status == 400 and b"expected server, models or draining" in body
    assert server.get("/v2/health/ready?other=1")[0] == 200


# Dashboard --------------------------------------------------------------------------------------------------------------


def chromium():
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium here")


def browse(server, *options, path="/dashboard", profile=None):
    done = subprocess.run([chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           f"--user-data-dir={profile}", "--window-size=1400,1000", "--virtual-time-budget=9000", *options,
                           f"http://{server.url}{path}"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_asks_nothing_but_this_server(server):
    status, body = server.get("/dashboard")
    page = body.decode()
    assert status == 200
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page) and "@import" not in page and "url(" not in page
    urls = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert urls <= {"http://www.w3.org/2000/svg"}, "a name space, which nobody fetches"
    assert not re.search(r"\b(POST|PUT|DELETE|innerHTML|eval)\b", page), "read-only, and no text becomes HTML"
    assert server.post("/dashboard")[0] == 405


def test_the_dashboard_shows_what_there_is(server, tmp_path):
    assert server.load("weights")[0] == 200 and server.load("plain")[0] == 200
    assert server.load("broken")[0] == 400
    for _ in range(3):
        assert server.request("POST", "/v2/models/plain/infer", REQUEST)[0] == 200
    assert server.load("text")[0] == 200 and server.unload("text")[0] == 200
    dom = browse(server, "--dump-dom", profile=tmp_path / "profile")
    assert int(re.search(r'data-updates="(\d+)"', dom)[1]) >= 2, "it updates itself"
    assert re.search(r'<span id="error" role="alert"></span>', dom)
    text = re.sub(r"<script.*?</script>|<style.*?</style>", "", dom, flags=re.S)
    rows = [re.sub(r"<[^>]+>", "|", row) for row in re.findall(r"<tr>(.*?)</tr>", text, re.S)]

    def row(*parts):
        found = [line for line in rows if all(part in line for part in parts)]
        assert found, (parts, rows)
        return found[0]

    assert "not ready for traffic" in text, "a load failed"
    row("|weights|", "|READY|", "MiB", "ready in")
    assert "|3|" in row("|plain|", "|READY|"), "its requests"
    row("|broken|", "|UNAVAILABLE|", "failed in")
    row("|text|", "unloaded", "returned")
    row("unattributed"), row("ledger and requests"), row("high-water mark")
    row("load", "|broken|"), row("unload", "|text|", "returned")
    assert "polyline" in dom
    if kept := os.environ.get("TIDEMARK_SCREENSHOT"):  # how docs/dashboard.png is made
        browse(server, f"--screenshot={kept}", profile=tmp_path / "profile")


def test_the_dashboard_can_be_switched_off(repository):
    with Served(repository, "--allow-dashboard=false") as server:
        assert server.get("/dashboard")[0] == 404 and server.get("/v2/memory")[0] == 200
        assert server.stop() == 0


def test_a_restricted_api_is_not_shown_by_the_dashboard(repository):
    with Served(repository, "--http-restricted-api=statistics:key=secret") as server:
        assert server.get("/v2/memory")[0] == 403 and server.get("/dashboard")[0] == 403
        assert server.request("GET", "/v2/memory", headers={"key": "secret"})[0] == 200
        assert server.stop() == 0


# Log --------------------------------------------------------------------------------------------------------------------


def lines(log):
    return [line for line in log.read_text().splitlines() if line]


def test_log_lines_have_tritons_form(repository, tmp_path):
    log = tmp_path / "log"
    with Served(repository, "--log-verbose=1", log=log) as server:
        assert server.load("plain")[0] == 200
        assert server.load("broken")[0] == 400
        assert server.stop() == 0
    form = re.compile(rf'[IWE]\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} {server.process.pid} [a-z_]+\.cc:\d+\] (".*")')
    for line in lines(log):
        found = form.fullmatch(line)
        assert found, line
        json.loads(found[1])
    assert any(line.endswith("""] "successfully loaded 'plain'\"""") for line in lines(log))


def test_json_log_lines_are_objects_with_request_ids(repository, tmp_path):
    log = tmp_path / "log"
    body = json.dumps({"id": "request-7", "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [1]}]})
    with Served(repository, "--log-format=json", "--log-verbose=1", log=log) as server:
        assert json.loads(server.get("/v2/logging")[1])["log_format"] == "json"
        assert server.load("plain")[0] == 200
        assert server.request("POST", "/v2/models/plain/infer", body.encode())[0] == 200
        assert server.post("/v2/logging", {"log_format": "ISO8601"})[0] == 200
        assert server.post("/v2/logging", {"log_format": "json"})[0] == 200
        assert server.post("/v2/logging", {"log_format": "xml"})[0] == 400
        assert server.stop() == 0
    objects = [json.loads(line) for line in lines(log)]
    assert all({"time", "level", "pid", "thread", "file", "line", "message"} <= set(entry) for entry in objects)
    assert [entry for entry in objects if entry.get("request_id") == "request-7"]


def test_no_log_has_secrets_or_tensor_contents(repository, tmp_path):
    log = tmp_path / "log"
    secret, content = "s3cr3t-header-value", "t3ns0r-content"
    with Served(repository, "--log-verbose=9", f"--http-restricted-api=logging:key={secret}", log=log) as server:
        assert server.load("text")[0] == 200 and server.load("plain")[0] == 200
        headers = {"key": secret, "Authorization": f"Bearer {secret}", "X-Tidemark-Key": secret}
        assert server.request("GET", "/v2/logging", headers=headers)[0] == 200
        good = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1, 1], "data": [content]}]}
        assert server.request("POST", "/v2/models/text/infer", json.dumps(good).encode(), headers)[0] == 200
        for wrong in [good | {"inputs": [good["inputs"][0] | {"shape": [2]}]},
                      {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [content]}]},
                      {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [98765432109876]}]}]:
            for model in ("text", "plain"):
                server.request("POST", f"/v2/models/{model}/infer", json.dumps(wrong).encode(), headers)
        server.request("POST", "/v2/models/text/infer", content.encode() * 3, headers)
        server.request("POST", "/v2/repository/models/plain/load", json.dumps(
            {"parameters": {"config": "{}", "file:1/model": content}}).encode())
        assert server.stop() == 0
    text = log.read_text()
    assert "inference with 'text'" in text, "the log is as talkative as it can be"
    for kept_out in (secret, content, "98765432109876"):
        assert kept_out not in text


# deploy/ ----------------------------------------------------------------------------------------------------------------


def expressions():
    """Every PromQL expression of the rule file and of the dashboard."""
    import yaml
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus-rules.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule.get("alert") or rule.get("record")
            if rule.get("alert"):
                assert rule["annotations"]["summary"] and rule["labels"]["severity"] in ("warning", "critical")
            yield rule["expr"]
    dashboard = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text())
    assert dashboard["panels"]
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


def test_rules_and_grafanas_dashboard_name_series_that_exist(repository):
    with Served(repository, "--metrics-config=summary_latencies=true", "--load-model=plain") as server:
        metrics = server.metrics()
        recorded = set()
        for expression in expressions():
            names = set(re.findall(r"\b((?:nv|tidemark)_[a-z0-9_]+)", expression))
            assert names, expression
            for name in names - recorded:
                if name.startswith(("nv_gpu_", "nv_energy_")):
                    continue  # there only where there is a GPU
                assert name in metrics, f"{name}, of: {expression}"
        assert server.stop() == 0
