"""`tidemark check` and load?dry_run=true: every mistake of a user's first configuration, with its place and its repair."""

import json
import pathlib
import shutil
import subprocess

import pytest
from served import Served, binary, make_model

import onnx_models as models
from test_memory import Mark

BROKEN = """# a first try
nam: "m"
backend: "onnxruntime"
max_batch_size: 8
input [
  { name: "INPUT0" data_type: TYPE_FLOAT dims: [ 16 ] },  # the left one
  { name: "INPUT1" data_type: TYPE_INT64 dims: [ -1, 16 ] }
]
output { name: "OUTPUT_0" data_type: TYPE_FP32 dims: [ 16 ] }
output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] }
instance_group { kind: KIND_GPU }
dynamic_batching { preferred_batch_size: [ 4, 16 ] }
"""
PLACES = [
    ("2:1", "nam: found 'nam', expected 'name'"),
    ("6:31", "input[0].data_type: found TYPE_FLOAT, expected TYPE_FP32"),
    ("7:31", "input[1].data_type: found TYPE_INT64, expected TYPE_FP32, as the model has"),
    ("7:48", "input[1].dims: found [ -1, 16 ], expected [ 16 ], as the model has behind the batch dimension"),
    ("9:16", "output[0].name: found 'OUTPUT_0', expected one of the model's: OUTPUT0, OUTPUT1"),
    ("11:24", "instance_group[0].kind: found KIND_GPU, expected KIND_CPU, as this server has no GPUs"),
    ("12:47", "dynamic_batching.preferred_batch_size[1]: found 16, expected from 1 to max_batch_size, 8"),
]
REPAIRED = """# a first try
name: "m"
backend: "onnxruntime"
max_batch_size: 8
input [
  { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] },  # the left one
  { name: "INPUT1" data_type: TYPE_FP32 dims: [ 16 ] }
]
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }
output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] }
instance_group { kind: KIND_CPU }
dynamic_batching { preferred_batch_size: [ 4, 8 ] }
"""


@pytest.fixture
def repository(tmp_path):
    # float32 [n, 16]: INPUT0 + INPUT1 = OUTPUT0, INPUT0 - INPUT1 = OUTPUT1
    subprocess.run([binary(), "engine", "addsub", "--batch", "-o", tmp_path / "m" / "1" / "model.onnx"], check=True)
    (tmp_path / "m" / "config.pbtxt").write_text(BROKEN)
    return tmp_path


def check(*args, answer=""):
    return subprocess.run([binary(), "check", "--cuda-library=none", *args], capture_output=True, text=True, input=answer)


def test_every_mistake_has_its_place_and_its_repair(repository):
    file = repository / "m" / "config.pbtxt"
    done = check(repository)
    assert done.returncode == 1
    lines = [line for line in done.stdout.splitlines() if line.startswith(str(file))]
    assert lines == [f"{file}:{place}: {fault}" for place, fault in PLACES]
    for text in ("write: name", "write: data_type: TYPE_FP32", "write: dims: [ 16 ]", 'write: name: "OUTPUT0"',
                 "write: kind: KIND_CPU", "dynamic batching preferred size must be <= max batch size for m"):
        assert f"    {text}\n" in done.stdout
    assert done.stdout.endswith("1 model checked: 7 errors, 0 warnings\n")
    assert file.read_text() == BROKEN


def test_the_same_as_json_and_as_annotations(repository):
    document = json.loads(check("--format", "json", repository / "m").stdout)
    assert document["errors"] == 7 and document["models"][0]["name"] == "m"
    assert document["models"][0]["findings"][1] == {
        "severity": "error", "field": "input[0].data_type", "found": "TYPE_FLOAT", "expected": "TYPE_FP32",
        "message": 'Unknown enumeration value of "TYPE_FLOAT" for field "data_type". Did you mean "TYPE_FP32"?',
        "fix": "data_type: TYPE_FP32", "file": str(repository / "m" / "config.pbtxt"), "line": 6, "column": 31}
    annotations = check("--format=github", repository / "m").stdout.splitlines()
    assert len(annotations) == 7
    assert annotations[0].startswith(f"::error file={repository}/m/config.pbtxt,line=2,col=1,title=nam::nam: found")
    assert "%0Awrite: name" in annotations[0]


def test_fix_writes_only_after_yes_and_keeps_comments(repository):
    file = repository / "m" / "config.pbtxt"
    assert check("--fix", repository, answer="n\n").returncode == 1
    assert file.read_text() == BROKEN
    done = check("--fix", repository, answer="y\n")
    assert done.returncode == 0, done.stdout
    assert "    2 - nam: \"m\"\n    2 + name: \"m\"\n" in done.stdout
    assert file.read_text() == REPAIRED
    assert check("--fix", "--yes", repository).stdout == "1 model checked: 0 errors, 0 warnings\n"


def test_warnings_alone_are_no_failure(repository):
    file = repository / "m" / "config.pbtxt"
    (repository / "m" / "labels.txt").write_text("one\n")
    file.write_text(REPAIRED.replace('OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ]',
                                     'OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] label_filename: "labels.txt"'))
    done = check(repository)
    assert done.returncode == 0
    assert "output[1].label_filename: found 1 labels, expected 16 (warning)" in done.stdout


def test_a_file_alone_is_checked_without_a_model(repository, tmp_path):
    file = tmp_path / "alone.pbtxt"
    file.write_text(BROKEN)
    shutil.rmtree(repository / "m")
    done = check(file)
    assert done.returncode == 1
    assert f"{file}:2:1: nam: found 'nam', expected 'name'" in done.stdout and "version" not in done.stdout


@pytest.mark.parametrize("args", [["nowhere"], [], ["--formt=json", "."], ["--format=xml", "."]])
def test_bad_command_lines(args):
    assert check(*args).returncode == 2


def test_a_load_that_the_engine_refuses_says_all_in_every_place(repository):
    """What the parser takes and the model does not have: the answer has all of it, the index and the log the reason."""
    wrong = REPAIRED.replace('"INPUT1" data_type: TYPE_FP32', '"INPUT1" data_type: TYPE_INT64').replace(
        '"OUTPUT0" data_type: TYPE_FP32', '"OUTPUT0" data_type: TYPE_INT32')
    (repository / "m" / "config.pbtxt").write_text(wrong)
    first = "unable to load model 'm', configuration expects datatype TYPE_INT64 for input 'INPUT1', model provides TYPE_FP32"
    with Served(repository, "--cuda-library=none") as server:
        for refusals in (1, 2):
            status, text = server.load("m")
            assert status == 400
            assert text.startswith(f"load failed for model 'm': version 1 is at UNAVAILABLE state: Invalid argument: {first};")
            for place, fault in (("7:31", "input[1].data_type: found TYPE_INT64, expected TYPE_FP32, as the model has"),
                                 ("9:37", "output[0].data_type: found TYPE_INT32, expected TYPE_FP32, as the model has")):
                assert f"m/config.pbtxt:{place}: {fault}" in text
            (entry,) = [e for e in json.loads(server.post("/v2/repository/index")[1]) if e["name"] == "m"]
            assert entry["state"] == "UNAVAILABLE" and entry["version"] == "1" and first in entry["reason"]
            assert server.log().count(first) == refusals, "the log has each refusal once"


def test_dry_run_says_all_and_leaves_nothing(repository):
    make_model(repository, "other", models.addsub_model())
    options = ["--cuda-library=none"]
    with Served(repository, *options) as server:
        assert server.load("other")[0] == 200 and server.unload("other")[0] == 200

        def dry_run(model, query="dry_run=true", **parameters):
            status, body = server.post(f"/v2/repository/models/{model}/load?{query}",
                                       {"parameters": parameters} if parameters else None)
            return status, json.loads(body)

        def checks(times):
            for _ in range(times):
                status, answer = dry_run("m")
                assert status == 400 and len(answer["findings"]) == 7
                assert answer["error"].startswith("model 'm' would not load: Message type")
                assert all(fault in answer["error"] for _, fault in PLACES)
                assert dry_run("other") == (200, {"findings": []})

        checks(2)
        mark = Mark(server)
        checks(10)
        mark.check()
        states = {entry["name"]: entry for entry in json.loads(server.post("/v2/repository/index")[1])}
        assert states["m"] == {"name": "m"} and states["other"]["reason"] == "unloaded"
        assert dry_run("nobody")[0] == 404
        assert dry_run("m", "dry_run=perhaps")[0] == 400
        fixed = json.dumps({"backend": "onnxruntime", "max_batch_size": 8})
        assert dry_run("m", config=fixed) == (200, {"findings": []})

        status, text = server.load("m")
        assert status == 400 and text.startswith("failed to load 'm', failed to poll from model repository")
        assert text.count("m/config.pbtxt:") == 3, "what the parser says, and what stands behind it"
        states = {entry["name"]: entry for entry in json.loads(server.post("/v2/repository/index")[1])}
        assert states["m"]["state"] == "UNAVAILABLE" and "Did you mean" in states["m"]["reason"]
        assert server.log().count("Unknown enumeration value") == 1, "the log has it once"
