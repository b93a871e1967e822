"""`tidemark engine … -o model.plan`: by the fake builder, and by a real one that starts without a GPU (TensorRT for RTX)."""

import os
import pathlib
import subprocess

import pytest
from served import ROOT, binary

FAKES = pathlib.Path(os.environ.get("TIDEMARK_FAKE_GPU", binary().parent / "fake_gpu"))
RTX = pathlib.Path(os.environ.get("TIDEMARK_RTX", ROOT / ".deps/tensorrt_rtx")) / "libtensorrt_rtx.so.1"


def engine(*words, **more):
    return subprocess.run([binary(), "engine", *map(str, words)], capture_output=True, text=True, timeout=600, check=False, **more)


@pytest.fixture(name="fake")
def fake_library():
    if not (FAKES / "libnvinfer.so.11").exists():
        pytest.skip("only a whole build has the fakes")
    return FAKES / "libnvinfer.so.11"


@pytest.fixture(name="rtx")
def rtx_library():
    if not RTX.exists():
        pytest.skip(f"no {RTX}: tools/setup.sh test fetches it")
    return RTX


def test_a_plan_and_its_configuration_by_the_fake_builder(tmp_path, fake):
    answer = engine("identity", "--elements", 16777216, "--dtype", "FP32", "-o", tmp_path / "m/1/model.plan", "--config",
                    tmp_path / "m/config.pbtxt", "--name", "m", "--library", fake)
    assert answer.returncode == 0, answer.stderr
    plan = (tmp_path / "m/1/model.plan").read_bytes()
    assert plan.startswith(b"ftrt") and b"tensor INPUT0 in 0 16777216\n" in plan
    assert 'platform: "tensorrt_plan"' in (tmp_path / "m/config.pbtxt").read_text()


def test_options_reach_the_fake_builder(tmp_path, fake):
    answer = engine("addsub", "--batch", "-o", tmp_path / "m.plan", "--library", fake, "--shapes", "INPUT0:1x16/4x16/8x16", "--shapes",
                    "INPUT1:1x16/4x16/8x16", "--version-compatible", "--hardware-compatibility", "ampere-plus")
    assert answer.returncode == 0, answer.stderr
    plan = (tmp_path / "m.plan").read_bytes()
    assert b"profile 0 INPUT1 1,16 4,16 8,16\n" in plan and b"hardware 1\n" in plan


def test_what_is_wrong_is_named_and_nothing_is_written(tmp_path, fake):
    answer = engine("addsub", "--batch", "-o", tmp_path / "m.plan", "--library", fake, "--shapes", "INPUT0:4x16/2x16/8x16")
    assert answer.returncode == 1 and "min <= opt <= max does not hold" in answer.stderr
    answer = engine("identity", "-o", tmp_path / "m.plan", "--library", tmp_path / "libnvinfer.so.11")
    assert answer.returncode == 1 and "libnvinfer.so.11" in answer.stderr
    assert not (tmp_path / "m.plan").exists()


@pytest.mark.parametrize("kind", ["identity", "addsub"])
def test_plans_by_a_real_builder(tmp_path, rtx, kind):
    answer = engine(kind, "--elements", 256, "--batch", "-o", tmp_path / "m.plan", "--library", rtx, "--assume-major", 11)
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "m.plan").read_bytes()[1:4] == b"trt"


def test_a_library_of_another_product_is_refused_by_name(tmp_path, rtx):
    answer = engine("identity", "-o", tmp_path / "m.plan", "--library", rtx)
    assert answer.returncode == 1
    assert "is version 1.7.1; expected TensorRT 10.1 or later, or 11" in answer.stderr
    assert not (tmp_path / "m.plan").exists()
