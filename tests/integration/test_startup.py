"""A server that is refused descriptors while it starts ends with a reason; it never hangs, aborts or half serves.

What it asks the platform for (threads) is refused in tests/fault/startup_test.cc.
"""

import os
import resource
import select
import subprocess
import time

import pytest
from served import binary, make_model

CONFIG = """backend: "identity"
input { name: "INPUT0" data_type: TYPE_INT32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 }
"""
LOADER = 4  # fewer, and the program itself cannot be loaded: the dynamic loader needs one
ENOUGH = 128


def start(folder, limit, *options):
    """The exit code (None: it serves, and stopped when told to) and what it said, with at most `limit` descriptors."""
    port_file = folder / f"port-{limit}"
    command = [str(binary()), "serve", f"--model-repository={folder / 'models'}", "--http-address=127.0.0.1",
               "--http-port=0", f"--http-unix-socket={folder / 'http.sock'}", "--http-thread-count=2",
               "--grpc-address=127.0.0.1", "--grpc-port=0", "--metrics-port=0", "--cuda-library=none",
               f"--http-port-file={port_file}", *options]
    log = folder / f"log-{limit}"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    ended = os.pidfd_open(process.pid)
    end = time.monotonic() + 60
    try:
        while not select.select([ended], [], [], 0.01)[0] and not port_file.exists():
            assert time.monotonic() < end, f"with {limit} descriptors it hangs: {log.read_text()}"
        if process.poll() is None:
            process.terminate()
        code = process.wait(60)
        return (None if code == 0 else code), log.read_text()
    finally:
        os.close(ended)
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_every_descriptor_may_be_refused(tmp_path, mode):
    make_model(tmp_path / "models", "m", b"", CONFIG, filename="unused")
    refused = 0
    for limit in range(LOADER, ENOUGH):
        code, text = start(tmp_path, limit, f"--model-control-mode={mode}")
        if code is None:
            break
        assert code == 1 and text.strip(), f"{limit} descriptors: exit code {code}, {text!r}"
        refused += 1
    assert limit < ENOUGH - 1
    assert refused >= 10, "epoll and wake-up of each loop, four listeners, an accept reserve"
