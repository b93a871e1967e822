"""The server as a process: command line, signals, start, stop, and what it leaves behind."""

import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading

import pytest
from served import Served, await_nothing_new_in_shm, binary, make_model

IDENTITY = ('backend: "identity"\ninput {{ name: "INPUT0" data_type: TYPE_INT32 dims: -1 }}\n'
            'output {{ name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 }}\n{}')
REQUEST = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "data": [1, 2]}]}).encode()


def parameter(key, value):
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "models"
    make_model(root, "plain", b"", IDENTITY.format(""), filename="unused")
    make_model(root, "slow", b"", IDENTITY.format(parameter("execute_delay_ms", "6000")), filename="unused")
    make_model(root, "brief", b"", IDENTITY.format(parameter("execute_delay_ms", "1500")), filename="unused")
    make_model(root, "endless", b"", IDENTITY.format(parameter("execute_delay_ms", "600000")), filename="unused")
    make_model(root, "late", b"", IDENTITY.format(parameter("creation_delay_sec", "3600")), filename="unused")
    return root


@pytest.fixture
def temp(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def in_background(call):
    """Runs `call` on a thread; returns a function that waits for its result."""
    result = []
    thread = threading.Thread(target=lambda: result.append(call()))
    thread.start()

    def wait():
        thread.join()
        return result[0]

    return wait


def infer(server, model):
    return server.request("POST", f"/v2/models/{model}/infer", REQUEST)


class Inside:
    """A request that is inside a model when the constructor returns.

    With one event loop the order is sure: the request goes out on a connection that the loop already knows, and a probe
    that is sent after it is answered only when the loop has handed the request to the model.
    """

    OPTION = "--http-thread-count=1"

    def __init__(self, server, model):
        self.connection = http.client.HTTPConnection(server.url, timeout=60)
        self.connection.request("GET", "/v2/health/live")
        self.connection.getresponse().read()
        self.connection.request("POST", f"/v2/models/{model}/infer", REQUEST)
        assert server.get("/v2/health/live")[0] == 200

    def status(self):
        answer = self.connection.getresponse()
        answer.read()
        return answer.status


def run(*arguments, name=None):
    program = name or str(binary())
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)


def test_bad_command_lines_say_what_is_wrong(repository):
    for arguments, text in [
        (["serve"], "--model-repository must be specified"),
        (["serve", "--model-repository", str(repository / "nowhere")], "repository path is not a valid directory"),
        (["serve", f"--model-repository={repository}", "--http-prot=1"], "did you mean '--http-port'"),
        (["serve", f"--model-repository={repository}", "--strict-readiness=maybe"], "invalid value for bool option"),
        (["serve", f"--model-repository={repository}", "--http-port=70000"], "out of bound"),
        (["serve", f"--model-repository={repository}", "stray"], "Unexpected argument: stray"),
        (["serve", f"--model-repository={repository}", "--load-model=x"], "requires setting '--model-control-mode"),
        (["serve", f"--model-repository={repository}", "--model-control-mode=sometimes"], "none, poll or explicit"),
    ]:
        done = run(*arguments)
        assert done.returncode == 1 and text in done.stderr, (arguments, done.stderr)


def test_help_and_the_name_tritonserver():
    assert "--model-control-mode" in run("serve", "--help").stderr
    assert "--model-control-mode" in run("--help", name=str(binary().parent / "tritonserver")).stderr


def test_a_taken_port_is_an_error_at_once(repository):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("serve", f"--model-repository={repository}", "--model-control-mode=explicit",
                   "--http-address=127.0.0.1", f"--http-port={port}", "--grpc-port=0")
        assert done.returncode == 1 and "already in use" in done.stderr, done.stderr


def test_options_that_do_nothing_are_named(repository):
    with Served(repository, "--grpc-infer-thread-count=4", "--log-verb=1") as server:
        assert "option '--grpc-infer-thread-count' has no effect" in server.log()
        assert server.stop() == 0


def test_a_failing_start_model_ends_the_server_unless_told_otherwise(repository):
    (repository / "plain" / "config.pbtxt").write_text(IDENTITY.format("").replace("TYPE_INT32", "TYPE_FP32", 1))
    done = run("serve", f"--model-repository={repository}", "--model-control-mode=explicit", "--load-model=plain",
               "--http-address=127.0.0.1", "--http-port=0", "--grpc-port=0")
    assert done.returncode == 1 and "failed to load all models" in done.stderr
    with Served(repository, "--load-model=plain", "--exit-on-error=false") as server:
        assert server.get("/v2/health/live")[0] == 200
        assert server.get("/v2/health/ready")[0] == 400
        assert server.stop() == 0


def test_probes_answer_while_models_load(repository):
    with Served(repository, "--load-model=late", wait_ready=False) as server:
        assert server.get("/v2/health/live")[0] == 200
        assert server.get("/v2/health/ready")[0] == 400
        assert server.post("/v2/repository/index")[0] == 503
        server.process.kill()  # nothing else ends a load of an hour at the start
    with Served(repository, "--load-model=plain") as server:
        assert server.get("/v2/health/ready")[0] == 200 and server.unload("plain")[0] == 200
        thread = threading.Thread(target=server.load, args=("late",))
        thread.start()
        server._await(lambda: b'"LOADING"' in server.post("/v2/repository/index")[1], 120, "begin the load")
        for _ in range(20):
            assert server.get("/v2/health/ready")[0] == 200 and server.get("/v2/health/live")[0] == 200
        assert thread.is_alive(), "the probes were answered while the load was running"
        assert server.stop() == 0, "that ends the load"
        thread.join()


def test_sigterm_finishes_what_is_inside_and_refuses_the_rest(repository):
    with Served(repository, Inside.OPTION, "--load-model=slow", "--load-model=plain") as server:
        inside = Inside(server, "slow")
        server.process.send_signal(signal.SIGTERM)
        server._await(lambda: server.get("/v2/health/ready")[0] != 200, 120, "go not ready")
        status, body = infer(server, "plain")
        assert status == 503, body
        assert inside.status() == 200
        assert server.process.wait(120) == 0, server.log()


def test_the_exit_timeout_bounds_the_stop(repository):
    with Served(repository, Inside.OPTION, "--load-model=endless", "--exit-timeout-secs=1") as server:
        inside = Inside(server, "endless")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 1  # the request would take ten minutes
        assert "Exit timeout expired" in server.log()
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            inside.status()


def test_a_second_signal_exits_at_once(repository):
    with Served(repository, Inside.OPTION, "--load-model=endless", "--exit-timeout-secs=600") as server:
        inside = Inside(server, "endless")
        server.process.send_signal(signal.SIGTERM)
        server._await(lambda: server.get("/v2/health/ready")[0] != 200, 120, "go not ready")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 1
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            inside.status()


def override(delay=""):
    config = {"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
              "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]}
    return {"config": json.dumps(config), "file:1/weights.bin": "AAAA"}


def test_nothing_is_left_in_the_temporary_folder(repository, temp):
    before = set(pathlib.Path("/dev/shm").iterdir())
    with Served(repository) as server:
        assert server.load("made", **override())[0] == 200
        assert len(list(temp.glob("tidemark-*"))) == 1
        assert server.unload("made")[0] == 200
        assert not list(temp.glob("tidemark-*"))
        assert server.load("made", **override())[0] == 200
        assert server.stop() == 0
    assert not list(temp.glob("tidemark-*"))
    await_nothing_new_in_shm(before)


def test_what_a_kill_left_goes_at_the_next_start(repository, temp):
    with Served(repository) as server:
        assert server.load("made", **override())[0] == 200
        server.process.kill()
        server.process.wait()
    assert list(temp.glob("tidemark-*"))
    with Served(repository) as other:
        assert not list(temp.glob("tidemark-*"))
        assert other.load("made", **override())[0] == 200
        with Served(repository) as beside:  # a living server's directory is not touched
            assert len(list(temp.glob("tidemark-*"))) == 1
            assert beside.stop() == 0
        assert other.stop() == 0


def test_the_unload_answer_comes_after_the_last_request(repository):
    with Served(repository, Inside.OPTION, "--load-model=brief") as server:
        inside = Inside(server, "brief")
        unload = in_background(lambda: server.unload("brief")[0])
        assert inside.status() == 200  # were the unload answered first, the instance would be gone and this a failure
        assert unload() == 200
        assert infer(server, "brief")[0] == 404
        assert server.stop() == 0


def test_an_unload_that_waits_too_long_says_so(repository):
    with Served(repository, Inside.OPTION, "--load-model=slow", "--unload-timeout-secs=0") as server:
        inside = Inside(server, "slow")
        status, text = server.unload("slow")
        assert status == 503 and "requests are still running" in text
        assert inside.status() == 200
        server._await(lambda: server.unload("slow")[0] == 200, 120, "finish the unload")
        assert server.stop() == 0


def test_unix_socket(repository, tmp_path):
    path = str(tmp_path / "http.sock")
    with Served(repository, "--load-model=plain", f"--http-unix-socket={path}") as server:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(path)
        connection.request("POST", "/v2/models/plain/infer", REQUEST)
        answer = connection.getresponse()
        assert answer.status == 200 and json.loads(answer.read())["outputs"][0]["data"] == [1, 2]
        assert server.stop() == 0
    assert not os.path.exists(path)


def test_poll_mode_follows_the_repository(repository):
    for name in ("slow", "brief", "endless", "late"):
        shutil.rmtree(repository / name)
    with Served(repository, "--model-control-mode=poll", "--repository-poll-secs=1", explicit=False) as server:
        ready = lambda name: server.get(f"/v2/models/{name}/ready")[0] == 200  # noqa: E731
        assert ready("plain")
        assert server.load("plain")[0] == 503
        make_model(repository, "added", b"", IDENTITY.format(""), filename="unused")
        server._await(lambda: ready("added"), 120, "find the new model")
        make_model(repository, "added", b"", IDENTITY.format(""), version=2, filename="unused")
        server._await(lambda: json.loads(server.get("/v2/models/added")[1]).get("versions") == ["2"], 120, "update")
        shutil.rmtree(repository / "added")
        server._await(lambda: not ready("added"), 120, "drop the removed model")
        server._await(lambda: server.get("/v2/health/ready")[0] == 200, 120, "be ready again")
        assert ready("plain")
        assert server.stop() == 0
