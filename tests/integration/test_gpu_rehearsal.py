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


def rehearse(folder, part, *options, **environment):
    build = binary().parent
    missing = [str(build / path) for path in PROGRAMS.values() if not (build / path).exists()]
    if missing or not (FAKES / "libcuda.so.1").exists():
        pytest.skip(f"only a whole build has the fakes and these: {missing}")
    (folder / "bin").mkdir()
    for name, path in PROGRAMS.items():
        (folder / "bin" / name).symlink_to(build / path)
    environment |= {name: value for name, value in os.environ.items() if name != "FAKE_GPU_STATE"}
    subprocess.run([sys.executable, ROOT / "tests/gpu/run.py", part, "--work", folder, "--out", folder / "out", "--fake", FAKES, "--quick",
                    *options], env=environment, timeout=1800, check=False)
    return json.loads((folder / "out" / f"results-{part}.json").read_text())


@pytest.fixture(scope="module", params=["lean", "trt10"])
def results(request, tmp_path_factory):
    return rehearse(tmp_path_factory.mktemp("gpu-" + request.param), request.param)


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


def test_all_gpus_of_a_machine_with_two_are_used(tmp_path):
    section = rehearse(tmp_path, "lean", "--only", "gpus", FAKE_GPU_DEVICES="2")["sections"]["gpus"]
    assert section["outcome"] == "passed", section.get("text")
    assert section["figures"]["gpus"] == 2 and len(section["figures"]["mark"]) == 2


def test_the_whole_report_from_nothing(tmp_path):
    """`tidemark audit --engine tensorrt`: the engine by the (fake) builder in a process of its own, repository, server, verdict."""
    if not (FAKES / "libnvinfer.so.11").exists():
        pytest.skip("only a whole build has the fakes")
    environment = os.environ | {"LD_LIBRARY_PATH": str(FAKES), "FAKE_GPU_STATE": str(tmp_path / "state")}
    answer = subprocess.run([binary(), "audit", "--engine", "tensorrt", "--elements", "65536", "--quiet", "-o", tmp_path / "out"],
                            env=environment, capture_output=True, text=True, timeout=600)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["settings"]["probe"] == "gpu:0" and results["settings"]["failed_cycles"] == 6
    assert all("expecting TYPE_INT32" in cycle["load_text"] for cycle in results["cycles"] if cycle["phase"] == "failed")
