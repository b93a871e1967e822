"""Triton's own load generator, unmodified, profiles every protocol that it knows of this server without an error."""

import csv
import json
import os
import pathlib
import subprocess

import pytest
from served import ROOT, Served, make_model, test_program

HOME = ROOT / ".deps" / "perf_analyzer"
REQUESTS = 60

pytestmark = pytest.mark.skipif(not (HOME / "perf_analyzer").exists(),
                                reason="NVIDIA publishes perf_analyzer for x86_64 only, or its C library could not be had")


def command():
    """perf_analyzer; with its own C library where the system's is too old for it (tools/setup.sh)."""
    loaders = list(HOME.glob("runtime/**/x86_64-linux-gnu/ld-linux-x86-64.so.2"))
    program = str(HOME / "perf_analyzer")
    return [str(loaders[0]), "--library-path", f"{loaders[0].parent}:{HOME}", program] if loaders else [program]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    identity = ('backend: "identity" max_batch_size: {batch} input {{ name: "IN" data_type: TYPE_{dtype} dims: {dims} }} '
                'output {{ name: "OUT" data_type: TYPE_{dtype} dims: {dims} }} {more}')
    for name, values in {
        "floats": {"batch": 8, "dtype": "FP32", "dims": 16, "more": "dynamic_batching { }"},
        "strings": {"batch": 0, "dtype": "STRING", "dims": -1, "more": ""},
    }.items():
        make_model(root, name, b"", filename="unused", config=identity.format(**values))
    make_model(root, "square", b"", filename="unused", config=(
        'backend: "square" model_transaction_policy { decoupled: true } '
        'input { name: "IN" data_type: TYPE_INT32 dims: 1 } output { name: "OUT" data_type: TYPE_INT32 dims: 1 }'))
    make_model(root, "accumulate", b"", filename="unused", config=(
        'backend: "accumulate" max_batch_size: 4 '
        'input { name: "INPUT" data_type: TYPE_INT32 dims: 1 } output { name: "OUTPUT" data_type: TYPE_INT32 dims: 1 } '
        'sequence_batching { control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }'))
    with Served(root, "--load-model=*", "--allow-client-shm=true", program=test_program()) as running:
        yield running
        assert running.stop() == 0, running.log()


def profile(server, tmp_path, model, *options, protocol="http"):
    """Runs perf_analyzer; its summary's first row. A failed request is a failed run."""
    table = tmp_path / "table.csv"
    url = server.url if protocol == "http" else server.grpc_url
    done = subprocess.run([*command(), "-m", model, "-i", protocol, "-u", url, f"--request-count={REQUESTS}", "-f", table,
                           "--concurrency-range=2", "-s", "100", *options],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                          env=os.environ | {"LD_LIBRARY_PATH": str(HOME)})
    assert done.returncode == 0, done.stdout
    rows = list(csv.DictReader(pathlib.Path(table).read_text().splitlines()))
    assert len(rows) == 1 and float(rows[0]["Inferences/Second"]) > 0, done.stdout
    return rows[0]


def served(server, model):
    return sum(stats["inference_stats"]["success"]["count"]
               for stats in json.loads(server.get(f"/v2/models/{model}/stats")[1])["model_stats"])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("options", [(), ("-a",), ("-b", "4"), ("--shared-memory=system", "--output-shared-memory-size=65536")],
                         ids=["sync", "async", "batched", "shared-memory"])
def test_perf_analyzer_profiles(server, tmp_path, protocol, options):
    before = served(server, "floats")
    profile(server, tmp_path, "floats", *options, protocol=protocol)
    assert served(server, "floats") - before >= REQUESTS


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_perf_analyzer_sends_strings_of_a_dynamic_shape(server, tmp_path, protocol):
    profile(server, tmp_path, "strings", "--shape=IN:5", protocol=protocol)


def test_perf_analyzer_sends_json_tensors_and_compressed_bodies(server, tmp_path):
    profile(server, tmp_path, "floats", "--input-tensor-format=json", "--output-tensor-format=json")
    profile(server, tmp_path, "floats", "--grpc-compression-algorithm=gzip", protocol="grpc")


def test_perf_analyzer_streams_ordinary_and_decoupled_models(server, tmp_path):
    profile(server, tmp_path, "floats", "--streaming", protocol="grpc")
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"IN": [3]}, {"IN": [1]}]}))
    before = served(server, "square")
    profile(server, tmp_path, "square", "--streaming", "-a", f"--input-data={data}", protocol="grpc")
    assert served(server, "square") - before >= REQUESTS


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_perf_analyzer_drives_sequences(server, tmp_path, protocol):
    profile(server, tmp_path, "accumulate", "-a", "--sequence-length=5", protocol=protocol)


def test_perf_analyzer_reads_the_metrics(server, tmp_path):
    port = (server.folder / "metrics-port").read_text().strip()
    profile(server, tmp_path, "floats", "--collect-metrics", f"--metrics-url=127.0.0.1:{port}/metrics",
            "--metrics-interval=100")
