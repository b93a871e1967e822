"""The rows of the truth table in docs/operations.md that need something to break: an instance, a device, a release."""

import json
import os
import pathlib
import sys

import pytest
from served import ROOT, Served, binary, make_model, sample, test_program

sys.path.insert(0, str(ROOT / "tests" / "gpu"))
import plans  # noqa: E402

FAKES = pathlib.Path(os.environ.get("TIDEMARK_FAKE_GPU", binary().parent / "fake_gpu"))
FAULTY = ('backend: "faulty"\ninput { name: "IN" data_type: TYPE_INT32 dims: 1 }\n'
          'output { name: "OUT" data_type: TYPE_INT32 dims: 1 }\n')
MEANINGS = ("server", "models", "draining")
WELL = {"live": 200, "ready": 200, "server": 200, "models": 200, "draining": 400}


@pytest.fixture
def repository(tmp_path):
    make_model(tmp_path, "m", b"", FAULTY, filename="unused")
    make_model(tmp_path, "other", b"", FAULTY, filename="unused")
    return tmp_path


def health(server):
    """A row of the table."""
    row = {meaning: server.get(f"/v2/health/ready?meaning={meaning}")[0] for meaning in MEANINGS}
    return row | {"live": server.get("/v2/health/live")[0], "ready": server.get("/v2/health/ready")[0]}


def model_ready(server, model):
    status = server.get(f"/v2/models/{model}/ready")[0]
    assert server.get(f"/v2/models/{model}/versions/1/ready")[0] == status
    assert sample(server.metrics(), "tidemark_model_ready", model=model) == (status == 200), "the metric says the same"
    return status


def ask(server, model, value):
    body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [value]}]}
    status, answer = server.post(f"/v2/models/{model}/infer", body)
    return status, json.loads(answer)


def index(server, model, **filters):
    entries = json.loads(server.post("/v2/repository/index", filters)[1])
    return [entry for entry in entries if entry["name"] == model]


def memory(server):
    return json.loads(server.get("/v2/memory")[1])


@pytest.mark.parametrize("strict", [True, False])
def test_an_instance_that_can_serve_no_more(repository, strict):
    with Served(repository, "--load-model=*", f"--strict-readiness={str(strict).lower()}", program=test_program()) as server:
        assert health(server) == WELL and model_ready(server, "m") == 200
        assert ask(server, "m", 7)[1]["outputs"][0]["data"] == [7]
        status, answer = ask(server, "m", -1)
        assert status == 503 and "the device is lost" in answer["error"]
        assert health(server) == WELL | {"ready": 400 if strict else 200, "models": 400}
        assert model_ready(server, "m") == 400 and model_ready(server, "other") == 200
        assert ask(server, "other", 7)[0] == 200, "others are unchanged"
        (entry,) = index(server, "m")
        assert entry["state"] == "UNAVAILABLE" and "the device is lost" in entry["reason"] and "m_0" in entry["reason"]
        assert index(server, "m", ready=True) == [] and index(server, "other")[0]["state"] == "READY"
        document = memory(server)
        failures = {model["name"]: model["versions"][0].get("failure") for model in document["models"]}
        assert "the device is lost" in failures["m"] and failures["other"] is None
        assert document["ready"] is not strict and sample(server.metrics(), "tidemark_ready") == (not strict)
        # Loaded anew, its instances are new ones.
        assert server.unload("m")[0] == 200 and health(server) == WELL
        assert server.load("m")[0] == 200 and model_ready(server, "m") == 200 and health(server) == WELL
        assert index(server, "m")[0]["state"] == "READY"
        assert server.stop() == 0


@pytest.mark.parametrize("strict", [True, False])
def test_a_release_that_failed(repository, strict):
    with Served(repository, "--load-model=*", f"--strict-readiness={str(strict).lower()}", program=test_program()) as server:
        assert ask(server, "m", -2)[0] == 200
        assert health(server) == WELL and sample(server.metrics(), "tidemark_stranded_rows") == 0
        status, body = server.post("/v2/repository/models/m/unload")
        assert status == 200
        (version,) = json.loads(body)["unload"]["versions"]
        assert version["verdict"] == "stranded" and version["rows_left"] == 1
        # For good, strict or not; only readiness, whose answer is to send no more here.
        for _ in range(2):
            assert health(server) == WELL | {"ready": 400}
            (row,) = memory(server)["stranded"]
            assert row["site"] == "session" and row["bytes"] == 4096 and row["owner"].startswith("model/m/1/")
            assert "the driver refused" in row["reason"]
            metrics = server.metrics()
            assert sample(metrics, "tidemark_stranded_rows") == 1 and sample(metrics, "tidemark_ready") == 0
            assert sample(metrics, "tidemark_unloads_total", verdict="stranded") == 1
            assert ask(server, "other", 7)[0] == 200 and model_ready(server, "other") == 200
            assert server.load("m")[0] == 200 and ask(server, "m", 7)[0] == 200, "it loads and serves all the same"
        assert server.log().count("could not be given back: the driver refused") == 1


@pytest.mark.skipif(not (FAKES / "libnvinfer.so.11").exists(), reason="only a whole build has the fake GPU libraries")
def test_a_gpu_that_is_lost(repository, monkeypatch):
    """An illegal address, from some call of an execution on: CUDA answers nothing else any more."""
    make_model(repository, "plan", plans.fake_plan("type_fp16"), filename="model.plan")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FAKES))
    monkeypatch.setenv("FAKE_GPU_FAIL", "*:2000:always:700")
    monkeypatch.delenv("FAKE_GPU_STATE", raising=False)
    request = json.dumps({"inputs": [{"name": "INPUT", "datatype": "FP16", "shape": [1, 16],
                                      "parameters": {"binary_data_size": 32}}]}).encode()

    def infer():
        return server.request("POST", "/v2/models/plan/infer", request + bytes(32),
                              {"Inference-Header-Content-Length": str(len(request))})

    with Served(repository, "--load-model=m", "--load-model=plan", program=test_program()) as server:
        assert health(server) == WELL and model_ready(server, "plan") == 200 and infer()[0] == 200
        for _ in range(2000):
            status, _ = infer()
            if status not in (200, 500):  # 500: TensorRT met it first, and says no more than that it failed
                break
        assert status == 503 and "until this process is restarted" in json.loads(infer()[1])["error"]
        assert health(server) == WELL | {"ready": 400, "models": 400}
        assert model_ready(server, "plan") == 400 and model_ready(server, "m") == 200 and ask(server, "m", 7)[0] == 200
        (entry,) = index(server, "plan")
        assert entry["state"] == "UNAVAILABLE" and "GPU 0 is lost until this process is restarted" in entry["reason"]
        # What lies on it cannot be given back: the second row of the table follows from the first.
        assert server.unload("plan")[0] == 200
        assert health(server) == WELL | {"ready": 400}
        assert all("gpu:0" == row["device"] or row["reason"] for row in memory(server)["stranded"])
        assert sample(server.metrics(), "tidemark_stranded_rows") == len(memory(server)["stranded"]) > 0
