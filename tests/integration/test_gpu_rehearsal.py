"""tests/gpu/run.py over the fake GPU libraries: the whole GPU run, the reported scenario by `tidemark audit --spawn` with
probe gpu:0 among it, in processes of their own with NVML as the witness between them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from served import ROOT, binary

FAKES = pathlib.Path(os.environ.get("TIDEMARK_FAKE_GPU", binary().parent / "fake_gpu"))
PROGRAMS = {"tidemark": "tidemark", "tidemark-leaky-server": "tidemark-leaky-server",
            "tidemark_gpu_test": "tests/gpu/tidemark_gpu_test", "tidemark_gpu_bench": "bench/gpu/tidemark_gpu_bench"}


@pytest.fixture(scope="module", params=["lean", "trt10"])
def results(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu-" + request.param)
    build = binary().parent
    missing = [str(build / path) for path in PROGRAMS.values() if not (build / path).exists()]
    if missing or not (FAKES / "libcuda.so.1").exists():
        pytest.skip(f"only a whole build has the fakes and these: {missing}")
    (folder / "bin").mkdir()
    for name, path in PROGRAMS.items():
        (folder / "bin" / name).symlink_to(build / path)
    environment = {name: value for name, value in os.environ.items() if name != "FAKE_GPU_STATE"}
    subprocess.run([sys.executable, ROOT / "tests/gpu/run.py", request.param, "--work", folder, "--out", folder / "out", "--fake",
                    FAKES, "--quick"], env=environment, timeout=600, check=False)
    return json.loads((folder / "out" / f"results-{request.param}.json").read_text())


def test_every_section_passes(results):
    for name, entry in results["sections"].items():
        if name in ("ratios", "real_models"):
            continue  # figures of a CPU, and models that the fake has not
        assert entry["outcome"] == "passed", f"{name}: {entry.get('text')}"


def test_the_reported_scenario_ends_at_the_mark(results):
    scenario = results["sections"]["scenario"]["figures"]
    assert scenario["exit_code"] == 0
    assert scenario["gpu_process"]["above_mark"] == 0
    assert "expecting TYPE_INT32" in scenario["failed_text"]


def test_the_control_is_found_leaking(results):
    if results["part"] == "lean":
        assert "leak" in results["sections"]["control"]["figures"]["headline"].lower()
