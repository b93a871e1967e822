"""The response cache (`--cache-config`), the rate limiter and a backend's own metrics, as clients and operators see them."""

import json
import subprocess
import threading

import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from onnx import TensorProto
from onnx_models import addsub_model, identity_model
from served import Served, binary, make_model, sample

CACHED = "response_cache { enable: true }\n"
IDENTITY = ('backend: "identity"\n{more}'
            'input {{ name: "INPUT0" data_type: TYPE_STRING dims: -1 }}\n'
            'output {{ name: "OUTPUT0" data_type: TYPE_STRING dims: -1 }}\n')


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_model(root, "addsub", addsub_model(),
               config='backend: "onnxruntime" max_batch_size: 8 dynamic_batching { }\n' + CACHED)
    make_model(root, "strings", b"", filename="unused", config=IDENTITY.format(more=CACHED))
    make_model(root, "plain", b"", filename="unused", config=IDENTITY.format(more=""))
    make_model(root, "both", b"", filename="unused", config=CACHED + (
        'platform: "ensemble" max_batch_size: 0\n'
        'input { name: "IN" data_type: TYPE_STRING dims: -1 }\noutput { name: "OUT" data_type: TYPE_STRING dims: -1 }\n'
        'ensemble_scheduling { step { model_name: "plain" model_version: -1 '
        'input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "OUT" } } }\n'))
    with Served(root, "--load-model=*", "--cache-config=local,size=1048576",
                "--metrics-config=summary_latencies=true") as server:
        yield server
        assert server.stop() == 0, server.log()


def statistics(server, model):
    return server.client().get_inference_statistics(model)["model_stats"][0]


def strings(module, text, name="INPUT0"):
    tensor = module.InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([text], dtype=np.object_))
    return tensor


def test_http_and_grpc_share_the_answers_of_a_batched_model(served):
    values = np.arange(32, dtype=np.float32).reshape(2, 16)
    answers = []
    for module, client in ((http, served.client()), (grpc, grpc.InferenceServerClient(served.grpc_url))):
        for _ in range(2):
            inputs = [module.InferInput(name, [2, 16], "FP32") for name in ("INPUT0", "INPUT1")]
            for tensor in inputs:
                tensor.set_data_from_numpy(values)
            answers.append(client.infer("addsub", inputs))
    for answer in answers:
        np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), values * 2)
        np.testing.assert_array_equal(answer.as_numpy("OUTPUT1"), values * 0)
    stats = statistics(served, "addsub")
    inference = stats["inference_stats"]
    assert (inference["success"]["count"], inference["queue"]["count"]) == (4, 4)
    assert (inference["cache_hit"]["count"], inference["cache_miss"]["count"]) == (3, 1)
    assert inference["compute_infer"]["count"] == 1
    assert (stats["inference_count"], stats["execution_count"]) == (2, 1)
    by_grpc = grpc.InferenceServerClient(served.grpc_url).get_inference_statistics("addsub").model_stats[0].inference_stats
    assert (by_grpc.cache_hit.count, by_grpc.cache_miss.count) == (3, 1)
    assert by_grpc.cache_hit.ns == inference["cache_hit"]["ns"] > 0
    metrics = served.metrics()
    labels = {"model": "addsub", "version": "1"}
    assert sample(metrics, "nv_inference_request_success", **labels) == 4
    assert sample(metrics, "nv_inference_count", **labels) == 2
    assert sample(metrics, "nv_inference_exec_count", **labels) == 1
    assert sample(metrics, "nv_cache_num_hits_per_model", **labels) == 3
    assert sample(metrics, "nv_cache_num_misses_per_model", **labels) == 1
    assert sample(metrics, "nv_cache_hit_duration_per_model", **labels) >= 0
    assert sample(metrics, "nv_cache_hit_summary_per_model_count", **labels) == 3
    assert sample(metrics, "nv_cache_miss_summary_per_model_count", **labels) == 1
    assert sample(metrics, "nv_inference_queue_summary_us_count", **labels) == 4


def test_other_outputs_are_another_question(served):
    values = np.ones((1, 16), np.float32)
    inputs = [http.InferInput(name, [1, 16], "FP32") for name in ("INPUT0", "INPUT1")]
    for tensor in inputs:
        tensor.set_data_from_numpy(values)
    client = served.client()
    one = client.infer("addsub", inputs, outputs=[http.InferRequestedOutput("OUTPUT1")])
    assert one.as_numpy("OUTPUT0") is None and one.as_numpy("OUTPUT1").sum() == 0
    both = client.infer("addsub", inputs)
    assert both.as_numpy("OUTPUT0").sum() == 32, "Triton would answer with OUTPUT1 alone"


def test_an_ensemble_caches_its_own_answer(served):
    client = served.client()
    before = statistics(served, "plain")["execution_count"]
    for _ in range(3):
        assert client.infer("both", [strings(http, b"x", "IN")]).as_numpy("OUT")[0] == b"x"
    assert statistics(served, "plain")["execution_count"] == before + 1
    inference = statistics(served, "both")["inference_stats"]
    assert (inference["cache_hit"]["count"], inference["cache_miss"]["count"]) == (2, 1)


def test_unloading_a_model_brings_the_memory_of_its_answers_back(served):
    client = served.client()
    for i in range(10):
        client.infer("strings", [strings(http, b"%05d" % i * 4000)])
    memory = json.loads(served.get("/v2/models/strings/memory")[1])
    host = memory["versions"][0]["memory"][0]
    assert host["device"] == "host" and host["cached_bytes"] > 10 * 4000 * 5
    entries = sample(served.metrics(), "nv_cache_num_entries")
    status, body = served.post("/v2/repository/models/strings/unload")
    answer = json.loads(body)
    assert status == 200 and answer["unload"]["versions"][0]["returned_bytes"]["host"] >= host["cached_bytes"], answer
    metrics = served.metrics()
    assert sample(metrics, "nv_cache_num_entries") <= entries - 10
    assert 0 <= sample(metrics, "nv_cache_util") < 0.2
    served.load("strings")
    assert client.infer("strings", [strings(http, b"00001" * 4000)]).as_numpy("OUTPUT0")[0] == b"00001" * 4000


def test_server_wide_figures_add_up_and_uncached_models_have_none(served):
    metrics = served.metrics()
    lookups = sample(metrics, "nv_cache_num_lookups")
    assert lookups == sample(metrics, "nv_cache_num_hits") + sample(metrics, "nv_cache_num_misses") > 0
    assert sample(metrics, "nv_cache_lookup_duration") > 0 and sample(metrics, "nv_cache_insertion_duration") > 0
    assert sample(metrics, "nv_cache_num_evictions") >= 0
    assert {dict(labels)["model"] for labels in metrics["nv_cache_num_hits_per_model"]} == {"addsub", "strings", "both"}
    assert {dict(labels)["model"] for labels in metrics["nv_inference_request_summary_us_count"]} == {"plain"}


def test_the_identity_backend_shows_a_counter_of_its_own_until_it_is_unloaded(served):
    labels = {"model": "plain", "version": "1"}
    before = sample(served.metrics(), "input_byte_size_counter", **labels)
    served.client().infer("plain", [strings(http, b"12345678")])
    assert sample(served.metrics(), "input_byte_size_counter", **labels) == before + 12
    text = served.metrics_text()
    assert "# TYPE input_byte_size_counter counter" in text
    served.unload("plain")
    models = {dict(labels)["model"] for labels in served.metrics()["input_byte_size_counter"]}
    assert models == {"strings"}
    served.load("plain")
    assert sample(served.metrics(), "input_byte_size_counter", **labels) == 0
    served.load("both")


@pytest.mark.parametrize("options, text", [
    (["--cache-config=local,size=1", "--response-cache-byte-size=1"],
     "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide one or the "
     "other."),
    (["--cache-config=local,size=1", "--cache-config=redis,host=x"],
     "found multiple cache configurations, but only a single cache is currently supported"),
    (["--cache-config=redis,host=x", "--cache-directory=/c"],
     "unable to find 'libtritoncache_redis.so' for cache. Searched: /c"),
    (["--cache-config=local"], "--cache-config option format is '<cache name>,<setting>=<value>'. Got local"),
    (["--cache-config=local,bytes=1"], "has no setting 'bytes', expected size"),
    (["--cache-config=local,size=much"], "Invalid option value. Got much"),
    (["--rate-limit=always"], "expected off or execution_count"),
    (["--rate-limit-resource=R"], "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
                                  "'<resource_name>:<count>'. Got R"),
])
def test_bad_options_are_refused_by_name(tmp_path, options, text):
    done = subprocess.run([str(binary()), "serve", f"--model-repository={tmp_path}", *options], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1 and text in done.stdout + done.stderr


def test_the_deprecated_size_makes_the_same_cache_and_sequences_may_not_use_it(tmp_path):
    make_model(tmp_path, "m", identity_model(TensorProto.FLOAT), config='backend: "onnxruntime"\n' + CACHED)
    make_model(tmp_path, "s", identity_model(TensorProto.FLOAT, ("n", 1)), config=(
        'backend: "onnxruntime" max_batch_size: 1 sequence_batching { }\n'
        'input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 }\n'
        'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }\n') + CACHED)
    with Served(tmp_path, "--response-cache-byte-size=4096") as server:
        assert "'--response-cache-byte-size' has been deprecated" in server.log()
        server.load("m")
        status, error = server.load("s")
        assert status == 400
        assert "Response Cache does not currently support model s with sequence batching scheduler" in error
        tensor = http.InferInput("INPUT0", [4, 1], "FP32")
        tensor.set_data_from_numpy(np.zeros((4, 1), np.float32))
        for _ in range(2):
            server.client().infer("m", [tensor])
        assert sample(server.metrics(), "nv_cache_num_hits") == 1


LIMITED = ('backend: "identity"\nparameters {{ key: "execute_delay_ms" value {{ string_value: "20" }} }}\n'
           'input {{ name: "INPUT0" data_type: TYPE_STRING dims: -1 }}\n'
           'output {{ name: "OUTPUT0" data_type: TYPE_STRING dims: -1 }}\n'
           'instance_group {{ kind: KIND_CPU count: 1 rate_limiter {{ resources {{ name: "R" global: true count: {count} }} '
           'priority: {priority} }} }}\n')


def test_instances_take_turns_by_priority_where_they_share_a_resource(tmp_path):
    for name, count, priority in (("often", 2, 1), ("seldom", 2, 2), ("greedy", 3, 1)):
        make_model(tmp_path, name, b"", filename="unused", config=LIMITED.format(count=count, priority=priority))
    with Served(tmp_path, "--rate-limit=execution_count", "--rate-limit-resource=R:2") as server:
        server.load("often")
        server.load("seldom")
        status, error = server.load("greedy")
        assert status == 400 and ('Resource count for "R" is limited to 2 which will prevent scheduling of one or more '
                                  "model instances, the minimum required count is 3") in error
        stop = threading.Event()

        def send(model):
            client = server.client()
            while not stop.is_set():
                client.infer(model, [strings(http, b"x")])

        def executions():
            stats = server.client().get_inference_statistics()["model_stats"]
            return {entry["name"]: entry["execution_count"] for entry in stats}

        # So many that some of each model always wait, also while these threads or the server do not come to run. Counted
        # meanwhile: at the end those that wait are executed, as many of one as of the other.
        threads = [threading.Thread(target=send, args=(model,)) for model in ("often", "seldom") for _ in range(12)]
        for thread in threads:
            thread.start()
        try:
            server._await(lambda: executions()["seldom"] >= 40, 300, "execute")
            counts = executions()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert 1.6 < counts["often"] / counts["seldom"] < 2.4
