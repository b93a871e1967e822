"""`tidemark check` and refused loads of TensorRT plans, over the fake GPU libraries: all mistakes, with places and repairs."""

import os
import pathlib
import subprocess
import sys

import pytest
from served import ROOT, binary

sys.path.insert(0, str(ROOT / "tests" / "gpu"))
import plans  # noqa: E402

FAKES = pathlib.Path(os.environ.get("TIDEMARK_FAKE_GPU", binary().parent / "fake_gpu"))
BROKEN = """platform: "tensorrt_plan"
max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP16 dims: [ 16 ] }  # the left one
input { name: "INPVT1" data_type: TYPE_FP32 dims: [ 16 ] }
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 7 ] } ]
output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [ 16 ] is_shape_tensor: true }
instance_group { kind: KIND_GPU count: 2 }
"""
FAULTS = [
    ("3:35", "input[0].data_type: found TYPE_FP16, expected TYPE_FP32, as the plan has"),
    ("4:15", "input[1].name: found 'INPVT1', expected one of the plan's: INPUT0, INPUT1"),
    ("5:39", "output[0].data_type: found TYPE_INT32, expected TYPE_FP32, as the plan has"),
    ("5:56", "output[0].dims: found [ 7 ], expected [ 16 ], as the plan has behind the batch dimension"),
    ("6:77", "output[1].is_shape_tensor: found true, expected false, as the plan has"),
]


@pytest.fixture(name="repository")
def broken_repository(tmp_path):
    if not (FAKES / "libnvinfer.so.11").exists():
        pytest.skip("only a whole build has the fakes")
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.plan").write_bytes(plans.fake_plan("addsub"))
    (tmp_path / "m" / "config.pbtxt").write_text(BROKEN)
    return tmp_path


def check(tmp_path, *args):
    environment = os.environ | {"LD_LIBRARY_PATH": str(FAKES), "FAKE_GPU_STATE": str(tmp_path / "state")}
    return subprocess.run([binary(), "check", *args], capture_output=True, text=True, env=environment, timeout=600, check=False)


def test_every_mistake_of_a_plans_configuration_has_its_place(repository, tmp_path_factory):
    file = repository / "m" / "config.pbtxt"
    done = check(tmp_path_factory.mktemp("gpu"), "--disable-auto-complete-config", repository)
    lines = [line for line in done.stdout.splitlines() if line.startswith(str(file))]
    for place, fault in FAULTS:
        assert f"{file}:{place}: {fault}" in lines, done.stdout + done.stderr
    for text in ("write: data_type: TYPE_FP32", 'write: name: "INPUT1"', "write: dims: [ 16 ]", "write: is_shape_tensor: false"):
        assert f"    {text}\n" in done.stdout


def test_the_repairs_make_it_load(repository, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("gpu")
    for _ in range(3):  # a name that was wrong hides what is wrong with its tensor
        if check(scratch, "--fix", "--yes", repository).returncode == 0:
            break
    done = check(scratch, repository)
    assert done.returncode == 0, done.stdout + (repository / "m" / "config.pbtxt").read_text()
    assert "# the left one" in (repository / "m" / "config.pbtxt").read_text()
