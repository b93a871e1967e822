"""GET /metrics: names, types and help as Triton's, and figures that agree with what a client saw and what the kernel says."""

import json
import pathlib
import re
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest
from onnx import TensorProto, helper
from served import Served, ServedSession, binary, make_model, sample

import onnx_models as models

MIB = 1 << 20

# name -> (type, help), as a dashboard made for Triton expects them. Counters that --metrics-config can switch off apart.
TRITON = {
    "nv_inference_request_success": ("counter", "Number of successful inference requests, all batch sizes"),
    "nv_inference_request_failure": ("counter", "Number of failed inference requests, all batch sizes"),
    "nv_inference_count": ("counter", "Number of inferences performed (does not include cached requests)"),
    "nv_inference_exec_count": ("counter", "Number of model executions performed (does not include cached requests)"),
    "nv_inference_pending_request_count":
        ("gauge", "Instantaneous number of pending requests awaiting execution per-model."),
    "nv_model_load_duration_secs": ("gauge", "Model load time in seconds"),
    "nv_pinned_memory_pool_total_bytes": ("gauge", "Pinned memory pool total memory size, in bytes"),
    "nv_pinned_memory_pool_used_bytes": ("gauge", "Pinned memory pool used memory size, in bytes"),
    "nv_cpu_utilization": ("gauge", "CPU utilization rate [0.0 - 1.0]"),
    "nv_cpu_memory_total_bytes": ("gauge", "CPU total memory (RAM), in bytes"),
    "nv_cpu_memory_used_bytes": ("gauge", "CPU used memory (RAM), in bytes"),
}
DURATIONS = {
    "nv_inference_request_duration_us":
        ("counter", "Cumulative inference request duration in microseconds (includes cached requests)"),
    "nv_inference_queue_duration_us":
        ("counter", "Cumulative inference queuing duration in microseconds (includes cached requests)"),
    "nv_inference_compute_input_duration_us":
        ("counter", "Cumulative compute input duration in microseconds (does not include cached requests)"),
    "nv_inference_compute_infer_duration_us":
        ("counter", "Cumulative compute inference duration in microseconds (does not include cached requests)"),
    "nv_inference_compute_output_duration_us":
        ("counter", "Cumulative inference compute output duration in microseconds (does not include cached requests)"),
}
DISTRIBUTIONS = {
    "nv_inference_first_response_histogram_ms":
        ("histogram", "Duration from request to first response in milliseconds"),
    "nv_inference_request_summary_us":
        ("summary", "Summary of inference request duration in microseconds (includes cached requests)"),
    "nv_inference_queue_summary_us":
        ("summary", "Summary of inference queuing duration in microseconds (includes cached requests)"),
    "nv_inference_compute_input_summary_us":
        ("summary", "Cumulative compute input duration in microseconds (does not include cached requests)"),
    "nv_inference_compute_infer_summary_us":
        ("summary", "Cumulative compute inference duration in microseconds (does not include cached requests)"),
    "nv_inference_compute_output_summary_us":
        ("summary", "Cumulative inference compute output duration in microseconds (does not include cached requests)"),
}
PER_MODEL = [name for name in {**TRITON, **DURATIONS} if name.startswith(("nv_inference", "nv_model"))]

IDENTITY = ('backend: "identity"\ninput {{ name: "INPUT0" data_type: TYPE_INT32 dims: -1 }}\n'
            'output {{ name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 }}\n{}')
REQUEST = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "data": [1, 2]}]}).encode()


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def mismatch_model():
    """Adds two rows of lengths that the engine meets only when it runs: unequal ones fail there."""
    return models.graph([helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"])],
                        [models.value("INPUT0", TensorProto.FLOAT, (1, "n")), models.value("INPUT1", TensorProto.FLOAT, (1, "m"))],
                        [models.value("OUTPUT0", TensorProto.FLOAT, (1, "k"))])


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_model(root, "plain", b"", IDENTITY.format('metric_tags { key: "team" value: "blue" }\n'), filename="unused")
    make_model(root, "late", b"", IDENTITY.format(parameter("creation_delay_sec", "2")), filename="unused")
    make_model(root, "endless", b"", IDENTITY.format(parameter("creation_delay_sec", "3600")), filename="unused")
    make_model(root, "slow", b"", IDENTITY.format(parameter("execute_delay_ms", "60000")), filename="unused")
    make_model(root, "add", mismatch_model())
    make_model(root, "weights", models.weights_model(64),
               'backend: "onnxruntime" max_batch_size: 4\ninput { name: "INPUT0" data_type: TYPE_FP32 dims: 1024 }\n'
               'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16384 }\n'
               'parameters { key: "map-weights" value { string_value: "false" } }\n')
    make_model(root, "broken", b"garbage" * 100, filename="model.onnx", config='backend: "onnxruntime"\n')
    return root


@pytest.fixture
def server(repository):
    with Served(repository) as running:
        yield running
        assert running.stop() == 0, running.log()


def described(text):
    """name -> (type, help)"""
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    return {name: (kind, helps[name]) for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)}


def series(metrics):
    return {(name, labels) for name, all_labels in metrics.items() for labels in all_labels}


def test_names_types_help_and_labels_are_tritons(server):
    assert server.load("plain")[0] == 200
    text = server.metrics_text()
    found = described(text)
    for name, expected in {**TRITON, **DURATIONS}.items():
        assert found.get(name) == expected, name
    assert not set(DISTRIBUTIONS) & set(found)
    metrics = server.metrics()
    for name in PER_MODEL:
        for labels in metrics[name]:
            expected = {("model", "plain"), ("version", "1"), ("_team", "blue")}
            assert {pair for pair in labels if pair[0] != "reason"} == expected, name
    reasons = {dict(labels)["reason"] for labels in metrics["nv_inference_request_failure"]}
    assert reasons == {"REJECTED", "CANCELED", "BACKEND", "OTHER"}
    # Labels in the order of their names, as Triton prints them.
    assert 'nv_inference_request_failure{_team="blue",model="plain",reason="OTHER",version="1"} 0\n' in text


def test_every_series_is_there_from_the_first_scrape(server):
    assert server.load("plain")[0] == 200
    first = server.metrics()
    assert sample(first, "nv_inference_request_success", model="plain") == 0
    assert server.request("POST", "/v2/models/plain/infer", REQUEST)[0] == 200
    assert server.load("plain", config=json.dumps({"backend": "identity", "input": [
        {"name": "INPUT0", "data_type": "TYPE_INT64", "dims": [-1]}], "output": [
        {"name": "OUTPUT0", "data_type": "TYPE_INT64", "dims": [-1]}], "metric_tags": {"team": "blue"}}))[0] == 200
    assert server.load("broken")[0] == 400
    later = {entry for entry in series(server.metrics()) if "broken" not in dict(entry[1]).values()}
    kinds = {entry for entry in later if entry[0].startswith("tidemark_ledger")}  # kinds are named beforehand, too
    assert kinds <= series(first)
    assert later == series(first)


def test_counters_survive_a_reload_and_go_with_the_model(server):
    def loaded_anew(step):
        return server.load("plain", config=json.dumps({"backend": "identity", "parameters": {"step": {"string_value": step}},
            "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
            "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]}))[0] == 200

    assert loaded_anew("1")
    for count in range(1, 4):
        assert server.request("POST", "/v2/models/plain/infer", REQUEST)[0] == 200
        assert loaded_anew(str(count))
        assert sample(server.metrics(), "nv_inference_request_success", model="plain") == count
        stats = json.loads(server.get("/v2/models/plain/stats")[1])["model_stats"][0]
        assert stats["inference_stats"]["success"]["count"] == 0, "the statistics extension begins anew, as Triton's"
    assert server.unload("plain")[0] == 200
    gone = server.metrics()
    assert not any("plain" in dict(labels).values() for name in PER_MODEL for labels in gone.get(name, {}))
    assert sample(gone, "tidemark_model_ready", model="plain") == 0
    assert loaded_anew("5")
    assert sample(server.metrics(), "nv_inference_request_success", model="plain") == 3, "counters never go back"


def add(client, lengths):
    session = ServedSession(client, "add", {"INPUT0": np.float32, "INPUT1": np.float32})
    return session.run(["OUTPUT0"], {f"INPUT{i}": np.ones((1, length), np.float32) for i, length in enumerate(lengths)})


def test_reasons_add_up_to_what_a_client_counted(server):
    assert server.load("add")[0] == 200 and server.load("slow")[0] == 200
    good, failed = 0, 0
    with server.client() as client:
        for lengths in [(3, 3), (3, 2), (4, 4), (1, 4), (5, 7), (2, 2)]:
            try:
                add(client, lengths)
                good += 1
            except Exception as error:  # noqa: BLE001: counted
                assert "Add" in str(error), error
                failed += 1
        # A request that is refused before it reaches the model counts nowhere.
        assert server.request("POST", "/v2/models/add/infer", REQUEST)[0] == 400
    metrics = server.metrics()
    assert (good, failed) == (4, 2)
    assert sample(metrics, "nv_inference_request_success", model="add") == good
    assert sample(metrics, "nv_inference_request_failure", model="add") == failed
    assert sample(metrics, "nv_inference_request_failure", model="add", reason="BACKEND") == failed
    assert sample(metrics, "nv_inference_exec_count", model="add") >= good
    stats = json.loads(server.get("/v2/models/add/stats")[1])["model_stats"][0]["inference_stats"]
    assert (stats["success"]["count"], stats["fail"]["count"]) == (good, failed)

    import http.client
    connection = http.client.HTTPConnection(server.url, timeout=60)
    connection.request("POST", "/v2/models/slow/infer", REQUEST)
    server._await(lambda: sample(server.metrics(), "nv_inference_request_success", model="slow") == 0, 120, "count")
    connection.close()
    server._await(lambda: sample(server.metrics(), "nv_inference_request_failure", model="slow", reason="CANCELED") == 1,
                  120, "notice that the client has gone")
    assert sample(server.metrics(), "nv_inference_request_failure", model="slow") == 1


def test_requests_that_wait_are_pending(server):
    assert server.load("slow")[0] == 200
    import http.client
    connections = []
    for _ in range(3):
        connection = http.client.HTTPConnection(server.url, timeout=60)
        connection.request("POST", "/v2/models/slow/infer", REQUEST)
        connections.append(connection)
    # One is executed, two wait.
    server._await(lambda: sample(server.metrics(), "nv_inference_pending_request_count", model="slow") == 2, 120, "queue")
    for connection in connections:
        connection.close()
    server._await(lambda: sample(server.metrics(), "nv_inference_pending_request_count", model="slow") == 0, 120, "drain")
    server._await(lambda: sample(server.metrics(), "nv_inference_request_failure", model="slow") == 3, 120, "count")


def test_loads_are_counted_by_result_and_reason(server):
    assert server.load("plain")[0] == 200
    assert server.load("broken")[0] == 400
    assert server.load("broken")[0] == 400
    assert server.load("nobody")[0] == 404
    metrics = server.metrics()
    assert sample(metrics, "tidemark_loads_total") == 4
    assert sample(metrics, "tidemark_loads_total", result="success", reason="") == 1
    assert sample(metrics, "tidemark_loads_total", result="failure", reason="not_found") == 1
    assert sample(metrics, "tidemark_model_loads_total", model="broken", result="failure") == 2
    assert sample(metrics, "tidemark_model_loads_total", model="nobody") is None, "clients do not make series"
    assert sample(metrics, "tidemark_load_duration_seconds_count", result="success") == 1
    assert sample(metrics, "tidemark_load_duration_seconds_count", result="failure") == 2
    assert sample(metrics, "tidemark_ready") == 0, "a failed load turns readiness off"
    assert server.unload("broken")[0] == 200 and server.unload("plain")[0] == 200
    metrics = server.metrics()
    assert sample(metrics, "tidemark_ready") == 1
    assert sample(metrics, "tidemark_unloads_total") == sample(metrics, "tidemark_unloads_total", verdict="returned") == 1
    assert sample(metrics, "tidemark_unload_duration_seconds_count") == 1


def test_a_scrape_does_not_wait_for_a_load(server):
    thread = threading.Thread(target=server.load, args=("endless",))
    thread.start()
    server._await(lambda: sample(server.metrics(), "tidemark_model_ready", model="endless") == 0, 120, "begin the load")
    assert thread.is_alive(), "the scrape above was answered while the load was running"
    assert server.stop() == 0, "that ends the load"
    thread.join()


def test_the_duration_of_a_load_is_told(server):
    assert server.load("late")[0] == 200
    assert sample(server.metrics(), "tidemark_model_ready", model="late") == 1
    assert sample(server.metrics(), "nv_model_load_duration_secs", model="late") >= 2


def anonymous(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(("Anonymous:", "Swap:")))


# What ledger and kernel may disagree about, beyond what the engine took once: heap pages that are only partly used, thread
# stacks, and the server's own objects.
TOLERANCE = 4 * MIB


def test_kernel_and_ledger_agree_after_each_step(server):
    def unattributed():
        metrics = server.metrics()
        witness = sample(metrics, "tidemark_witness_bytes", device="host")
        assert abs(witness - anonymous(server)) < MIB, "the kernel's figure is the kernel's figure"
        attributed = sample(metrics, "tidemark_attributed_bytes", device="host")
        assert witness - attributed == sample(metrics, "tidemark_unattributed_bytes", device="host")
        return witness - attributed

    assert server.load("add")[0] == 200 and server.unload("add")[0] == 200  # the engine's one-time memory
    mark = unattributed()
    for turn in range(2):
        assert server.load("weights")[0] == 200
        assert abs(unattributed() - mark) < TOLERANCE, "after the load"
        held = sample(server.metrics(), "tidemark_model_memory_bytes", model="weights", use="weights")
        assert held > 64 * MIB * 0.95, "the weights are in the ledger"
        with server.client() as client:
            session = ServedSession(client, "weights", {"INPUT0": np.float32})
            session.run(["OUTPUT0"], {"INPUT0": np.ones((4, 1024), np.float32)})
        assert abs(unattributed() - mark) < TOLERANCE, "after an inference"
        assert server.load("broken")[0] == 400
        assert abs(unattributed() - mark) < TOLERANCE, "after a failed load"
        before = sample(server.metrics(), "tidemark_unload_returned_bytes_total", device="host")
        assert server.unload("weights")[0] == 200
        assert abs(unattributed() - mark) < TOLERANCE, "after the unload"
        metrics = server.metrics()
        assert sample(metrics, "tidemark_unload_returned_bytes_total", device="host") - before >= held
        assert sample(metrics, "tidemark_ledger_rows", resident="false") == 0
        assert sample(metrics, "tidemark_stranded_rows") == 0
        assert sample(metrics, "tidemark_unloads_total", verdict="returned") == turn + 2
    assert server.unload("broken")[0] == 200


def test_distributions_are_there_when_they_are_asked_for(repository):
    options = ["--metrics-config=histogram_latencies=true", "--metrics-config", "summary_latencies=true",
               "--metrics-config=summary_quantiles=0.5:0.05,0.9:0.01", "--metrics-config=counter_latencies=false"]
    with Served(repository, "--load-model=plain", *options) as server:
        found = described(server.metrics_text())
        for name, expected in DISTRIBUTIONS.items():
            assert found.get(name) == expected, name
        assert not set(DURATIONS) & set(found)
        assert sample(server.metrics(), "nv_inference_request_summary_us_count", model="plain") == 0
        for _ in range(5):
            assert server.request("POST", "/v2/models/plain/infer", REQUEST)[0] == 200
        metrics = server.metrics()
        buckets = {dict(labels)["le"]: count for labels, count in metrics["nv_inference_first_response_histogram_ms_bucket"].items()}
        assert set(buckets) == {"100", "500", "2000", "5000", "+Inf"} and buckets["+Inf"] == 5
        for name in DISTRIBUTIONS:
            assert sample(metrics, name + "_count", model="plain") == 5, name
        quantiles = {dict(labels)["quantile"] for labels in metrics["nv_inference_queue_summary_us"]}
        assert quantiles == {"0.5", "0.9"}
        assert server.stop() == 0


def test_the_metrics_port_answers_like_tritons(server):
    port = int((server.folder / "metrics-port").read_text())
    assert server.metrics_text("/metrics/").startswith("# HELP nv_inference_request_success")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready") as answer:
        assert answer.status == 200 and answer.read() == b""
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", method="POST", data=b"")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 405 and refused.value.read() == b'{"error":"Method Not Allowed"}'
    assert server.get("/metrics")[0] == 404, "not on the service's port"


GPU = {
    "nv_gpu_utilization": ("gauge", "GPU utilization rate [0.0 - 1.0)", 0.25),
    "nv_gpu_memory_total_bytes": ("gauge", "GPU total memory, in bytes", None),
    "nv_gpu_memory_used_bytes": ("gauge", "GPU used memory, in bytes", None),
    "nv_gpu_power_usage": ("gauge", "GPU power usage in watts", 70.5),
    "nv_gpu_power_limit": ("gauge", "GPU power management limit in watts", 700),
    "nv_energy_consumption": ("counter", "GPU energy consumption in joules since the Triton Server started", 0),
}


def test_gpus_have_tritons_series(repository, monkeypatch):
    fakes = binary().parent / "fake_gpu"
    if not (fakes / "libnvidia-ml.so.1").exists():
        pytest.skip("the fake GPU libraries are not built")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fakes))
    monkeypatch.setenv("FAKE_GPU_DEVICES", "2")
    with Served(repository) as server:
        text = server.metrics_text()
        found, metrics = described(text), server.metrics()
        for name, (kind, words, expected) in GPU.items():
            assert found[name] == (kind, words)
            values = {dict(labels)["gpu_uuid"]: value for labels, value in metrics[name].items()}
            assert len(values) == 2 and all(uuid.startswith("GPU-") for uuid in values), name
            assert expected is None or set(values.values()) == {expected}, name
        assert sample(metrics, "tidemark_witness_bytes", device="gpu:1") is not None
        assert sample(metrics, "tidemark_ledger_bytes", device="gpu:0", kind="device_memory") == 0
        devices = json.loads(server.get("/v2/memory")[1])["devices"]
        assert [entry["device"] for entry in devices] == ["host", "gpu:0", "gpu:1"]
        assert devices[1]["name"] == "Fake GPU" and devices[1]["witness"].startswith("driver")
        assert server.stop() == 0
    with Served(repository, "--allow-gpu-metrics=false") as server:
        assert "nv_gpu_" not in server.metrics_text()
        assert server.stop() == 0


def test_metrics_can_be_switched_off(repository):
    with Served(repository, "--allow-metrics=false") as server:
        assert not (server.folder / "metrics-port").exists()
        assert server.stop() == 0
    with Served(repository, "--allow-cpu-metrics=false", "--allow-gpu-metrics=false") as server:
        assert "nv_cpu_" not in server.metrics_text()
        assert server.stop() == 0


@pytest.mark.parametrize("option, text", [
    ("--metrics-config=nonsense", "--metrics-config option format is <setting>=<value>. Got nonsense"),
    ("--metrics-config=summary_latency=true", "has no setting 'summary_latency'"),
    ("--metrics-config=summary_quantiles=0.5", "is not <quantile>:<error>"),
    ("--metrics-config=summary_latencies=perhaps", "invalid value for bool option"),
    ("--metrics-port=70000", "out of bound"),
])
def test_bad_options_say_what_is_wrong(repository, option, text):
    import subprocess
    done = subprocess.run([str(binary()), "serve", f"--model-repository={repository}", option], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1 and text in done.stderr, done.stderr
