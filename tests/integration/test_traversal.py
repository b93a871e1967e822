"""Names, versions, override file names and shared-memory keys cannot leave their roots: a corpus of attempts."""

import base64
import http.client
import json
import pathlib
import socket

import pytest
from onnx import TensorProto

from onnx_models import identity_model
from served import Served, files_below, make_model

NAMES = ["..", ".", "...", "../secret", "../models/m", "..%2fsecret", "%2e%2e%2fsecret", "%2e%2e", "..\\secret", "..%5csecret", "m/..",
         "m/../../secret", "./m", "m/.", "//m", "m%00", "m%00.onnx", "m\x00", "%c0%ae%c0%ae%c0%afsecret", "..%252fsecret", "....//secret",
         "..;/secret", "%uff0e%uff0e/secret", "\xe2\x80\xa5/secret", "~", "~root", "$HOME", "${TMPDIR}", "file:///etc", "m ", " m", "m%20",
         "*", "m*", "?", "-", "--help", "a" * 300, "a" * 5000, "link", "secret"]
FILES = ["../escape", "../../escape", "../../../../../../../../escape", "1/../../escape", "1/../../../escape", "/escape", "//escape",
         "1/./../../escape", "..", ".", "", "/", "1/", "1/..", "1", "1/model.onnx/../../../escape", "..\\escape", "1\\..\\escape",
         "./../escape", "1/\x00/escape", "escape\x00", "a/" * 2000 + "escape", "1/" + "a" * 5000, "config.pbtxt/escape", "~/escape", "link/escape"]
KEYS = ["", "/", "//", "..", "/..", "../escape", "/../escape", "/../../etc/passwd", "/a/b", "a/b", "./escape", "/./escape", "\x00", "/escape\x00x",
        "a" * 5000, "triton_python_backend_shm_region_1", "/triton_python_backend_shm_region_1", "//triton_python_backend_shm_region_1",
        "/proc/self/mem", "..%2fescape"]
VERSIONS = ["..", ".", "../1", "1/..", "1%2f..", "-1", "+1", " 1", "1 ", "1.0", "0x1", "1e0", "\xd9\xa1", "18446744073709551617", "9" * 400]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A repository between things that must not be reached."""
    make_model(tmp_path / "models", "m", identity_model(TensorProto.FLOAT))
    make_model(tmp_path, "secret", identity_model(TensorProto.FLOAT))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path


def send(server, path, body=b""):
    """POST with the path as it stands, byte by byte; the status, 0 when the connection was closed."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        answer = http.client.HTTPResponse(connection)
        try:
            connection.sendall(b"POST " + path.encode("latin-1", "replace") + f" HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            answer.begin()
            answer.read()
        except (http.client.HTTPException, ConnectionError):
            return 0
        return answer.status


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in files_below(folder)
            if path.name not in ("server.log", "port") and "served-" not in str(path)}


def test_names_and_versions_stay_in_the_repository(place):
    with Served(place / "models", "--load-model=m") as server:
        before = tree(place)
        for name in NAMES:
            for verb in ("load", "unload"):
                status = send(server, f"/v2/repository/models/{name}/{verb}")
                # An unload of what is unknown succeeds, as in Triton.
                assert status in ({0, 400, 404, 414, 431, 501} | ({200} if verb == "unload" else set())), (name, verb, status)
            for verb in ("/config", "/infer", "/ready", "/stats", "", "/trace/setting"):
                assert send(server, f"/v2/models/{name}{verb}", b"{}") in {0, 400, 404, 405, 414, 431, 503}, (name, verb)
        for version in VERSIONS:
            assert send(server, f"/v2/models/m/versions/{version}/infer", b"{}") in {0, 400, 404, 431}, version
        index = json.loads(server.post("/v2/repository/index")[1])
        assert [(entry["name"], entry["state"]) for entry in index if "state" in entry] == [("m", "READY")]
        assert tree(place) == before
        assert server.process.poll() is None


def test_override_files_stay_in_their_model(place):
    config = json.dumps({"backend": "onnxruntime"})
    model = base64.b64encode(identity_model(TensorProto.FLOAT)).decode()
    with Served(place / "models", "--load-model=m") as server:
        before = tree(place / "models"), tree(place / "secret")
        for name in FILES:
            parameters = {"config": config, "file:1/model.onnx": model, f"file:{name}": base64.b64encode(b"escaped").decode()}
            status, text = server.load("m", **parameters)
            # The one place where overrides may lie is the model's own temporary directory.
            # (The directory of the version that was replaced may still be going, so this tolerates that it goes.)
            escaped = [path for path in files_below(place) if "escape" in path.name and
                       (path.relative_to(place).parts[0] != "tmp" or path.parent == place / "tmp")]
            assert not escaped, (name, escaped)
            odd = not name.startswith("/") and ".." not in name.split("/") and "\x00" not in name
            assert status in ({200, 400} if odd else {400}), (name, status, text)
            assert server.get("/v2/models/m/ready")[0] == 200, name  # the old one serves on
        assert (tree(place / "models"), tree(place / "secret")) == before
    assert tree(place / "tmp") == {}
    assert not pathlib.Path("/escape").exists()


def test_shared_memory_keys_are_names_and_no_paths(place):
    with Served(place / "models", "--load-model=m", "--allow-client-shm=true") as server:
        (place / "escape").write_bytes(bytes(4096))
        for key in KEYS:
            status, body = server.post("/v2/systemsharedmemory/region/r/register", {"key": key, "offset": 0, "byte_size": 64})
            assert status in {400, 404, 500, 501}, (key, status, body)
            assert json.loads(server.get("/v2/systemsharedmemory/status")[1]) == [], key
        assert server.process.poll() is None
