"""--control-access and HTTPS on a real server: doors, keys, every spelling of a path, secrets that change."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import time

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from onnx import TensorProto

from onnx_models import identity_model
from served import Served, make_model

CONTROL = [("POST", "/v2/repository/index"), ("POST", "/v2/repository/models/m/load"),
           ("POST", "/v2/repository/models/m/unload"), ("GET", "/v2/logging"), ("POST", "/v2/logging"),
           ("GET", "/v2/trace/setting"), ("POST", "/v2/trace/setting"), ("GET", "/v2/models/m/trace/setting"),
           ("GET", "/v2/systemsharedmemory/status"), ("POST", "/v2/systemsharedmemory/region/r/register"),
           ("POST", "/v2/cudasharedmemory/unregister"), ("GET", "/v2/cudasharedmemory/region/r/status")]
OPEN = [("GET", "/v2"), ("GET", "/v2/health/live"), ("GET", "/v2/models/m"), ("GET", "/v2/models/m/ready"),
        ("GET", "/v2/models/m/config"), ("GET", "/v2/models/m/stats"), ("GET", "/v2/models/stats")]
KEY = "0123456789abcdef"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def ask(connection, method, path, body=None, **headers):
    """Status and body; the connection is kept."""
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.fixture
def repository(tmp_path):
    make_model(tmp_path / "models", "m", identity_model(TensorProto.FLOAT))
    return tmp_path / "models"


def test_control_is_served_at_its_own_door_only(repository, tmp_path):
    door = tmp_path / "control.sock"
    with Served(repository, "--load-model=m", f"--control-access=unix:{door}", wait_ready=False) as server:
        service, control = http.client.HTTPConnection(server.url), UnixConnection(door)
        while ask(control, "POST", "/v2/repository/index")[0] != 200:
            pass
        for method, path in CONTROL:
            status, body = ask(service, method, path, "{}" if method == "POST" else None)
            assert (status, json.loads(body)["error"]) == (
                403, "This API is restricted, it is served at its own address (--control-access)"), path
        for method, path in OPEN:
            assert ask(service, method, path)[0] == 200, path
            assert ask(control, method, path)[0] == 200, path
        for method, path in CONTROL:
            assert ask(control, method, path, "{}" if method == "POST" else None)[0] not in (401, 403), path


def spellings(path):
    """The same path as some proxy, file system or decoder might read it."""
    parts = path.strip("/").split("/")
    yield path.upper()
    yield "/" + "/".join(p.capitalize() for p in parts)
    yield path.replace("/", "//")
    yield "/" + path
    yield path + "/"
    yield path + "/."
    yield path + "/../" + parts[-1]
    yield "/." + path
    yield "/v2/../" + path.lstrip("/")
    yield "/v2/health/live/../../" + "/".join(parts[1:])
    yield "/v2/models/m/../../" + "/".join(parts[1:])
    yield path.replace("/v2/", "/v2/%2e/")
    yield path.replace("/v2/", "/v2/%2e%2e/v2/")
    yield path.replace("/", "%2f")
    yield path.replace("/v2/", "/v2%2F")
    yield path.replace("/v2/", "/v2\\")
    yield path.replace("/v2", "/%762")
    yield path.replace("/v2", "/v%32")
    yield path[:4] + "".join(f"%{ord(c):02x}" for c in path[4:])
    yield path[:-1] + f"%{ord(path[-1]):02x}"
    yield path[:-1] + f"%25{ord(path[-1]):02x}"
    yield path + "%00"
    yield path + "%20"
    yield path + ";x=y"
    yield path + ";"
    yield path.replace("/v2/", "/v2/;a=b/")
    yield path + "%3f"
    yield path + "?"
    yield path + "?x=/v2/health/live"
    yield path + "#/v2/health/live"
    yield path + ".json"
    yield "/v2/repository/../" + "/".join(parts[1:])
    yield "http://localhost" + path
    yield "HTTP://LOCALHOST" + path
    yield "http://localhost/v2/health/live/.." + path
    yield path.replace("a", "\xe1", 1)


def raw(url, request):
    """What a server answers to these bytes: the status, or 0 when it closed."""
    host, port = url.split(":")
    with socket.create_connection((host, int(port))) as connection:
        try:
            connection.sendall(request)
            data = connection.makefile("rb").readline()
        except ConnectionError:
            return 0
        return int(data.split()[1]) if data else 0


@pytest.mark.parametrize("rule", ["off", "keys"])
def test_no_spelling_of_a_path_gets_around_the_policy(repository, tmp_path, rule):
    (tmp_path / "keys").write_text(f"ops {KEY}\n")
    access = "off" if rule == "off" else f"keys:{tmp_path / 'keys'}"
    with Served(repository, "--load-model=m", f"--control-access={access}", wait_ready=False) as server:
        paths = {path for _, path in CONTROL}
        requests = [(method, spelling) for path in paths for spelling in spellings(path) for method in ("GET", "POST")]
        methods = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "post", "gEt")
        requests += [(method, path) for path in paths for method in methods]
        for method, path in requests:
            head = (f"{method} {path} HTTP/1.1\r\nHost: x\r\nX-HTTP-Method-Override: GET\r\nX-Original-URL: /v2/health/live\r\n"
                    "X-Forwarded-For: 127.0.0.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            status = raw(server.url, head.encode("latin-1"))
            assert status in {400, 401, 403, 404, 405, 0}, (method, path, status)
        while server.get("/v2/models/m/ready")[0] != 200:  # the model still serves, so that nobody unloaded it
            pass


def test_keys_are_asked_for_and_read_again(repository, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"ops {KEY}\ntracer another-long-key trace\n")
    keys.chmod(0o600)
    with Served(repository, "--load-model=m", f"--control-access=keys:{keys}", "--log-verbose=9", wait_ready=False) as server:
        connection = http.client.HTTPConnection(server.url)

        def status(path, key=None, method="GET"):
            return ask(connection, method, path, **({"Authorization": f"Bearer {key}"} if key else {}))[0]

        assert status("/v2/logging") == 401
        assert status("/v2/logging", "wrong-wrong-wrong-wrong") == 401
        assert status("/v2/logging", KEY) == 200
        status("/v2/logging", KEY, "POST")  # a change: the log says whose
        assert status("/v2/logging", "another-long-key") == 403
        assert status("/v2/trace/setting", "another-long-key") == 200
        assert status("/v2/health/live") == 200
        keys.write_text("ops a-new-key-for-the-night\n")
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 120
        while status("/v2/logging", "a-new-key-for-the-night") != 200:
            assert time.monotonic() < end
        assert status("/v2/logging", KEY) == 401
        keys.write_text("ops short\n")  # wrong: the old ones stay
        server.process.send_signal(signal.SIGHUP)
        assert status("/v2/logging", "a-new-key-for-the-night") == 200
        assert server.process.poll() is None
        log = server.log()
        assert "API key 'ops'" in log and "an unknown API key was presented" in log
        for key in (KEY, "another-long-key", "wrong-wrong-wrong-wrong", "a-new-key-for-the-night"):
            assert key not in log, "the log has names of keys, and no key, good or wrong"


@pytest.mark.parametrize("access, text", [
    ("nonsense", "--control-access: cannot understand 'nonsense'"),
    ("keys:/no/such/file", "cannot read the API keys in '/no/such/file'"),
    ("http:nowhere", "--control-access: 'http:nowhere' names no address and port"),
])
def test_bad_rules_end_the_start(repository, access, text):
    with pytest.raises(RuntimeError, match=text.split("'")[0]) as error:
        Served(repository, f"--control-access={access}")
    assert text in str(error.value)


def certificate(folder, name):
    """A self-signed certificate and its key, new files moved into their places."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.new",
                    "-out", folder / "cert.new"], check=True, capture_output=True)
    os.rename(folder / "key.new", folder / "key.pem")
    os.rename(folder / "cert.new", folder / "cert.pem")


def https_get(port, path, root):
    context = ssl.create_default_context(cafile=root)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(connection.sock.getpeercert()["subject"][0])["commonName"]
    finally:
        connection.close()


def test_https_serves_and_takes_new_certificates(repository, tmp_path):
    certificate(tmp_path, "first")
    options = ["--http-use-ssl=true", f"--http-server-cert={tmp_path / 'cert.pem'}", f"--http-server-key={tmp_path / 'key.pem'}"]
    with Served(repository, "--load-model=m", *options, wait_ready=False) as server:
        status, body, name = https_get(server.port, "/v2", tmp_path / "cert.pem")
        assert (status, name, json.loads(body)["name"]) == (200, "first", "triton")
        with pytest.raises(OSError):  # no plain HTTP on that port
            connection = http.client.HTTPConnection(server.url)
            connection.request("GET", "/v2")
            connection.getresponse()
        certificate(tmp_path, "second")
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 120
        while True:
            try:
                if https_get(server.port, "/v2", tmp_path / "cert.pem")[2] == "second":
                    break
            except ssl.SSLError:
                pass
            assert time.monotonic() < end


def test_https_wants_its_files(repository):
    with pytest.raises(RuntimeError, match="--http-use-ssl needs --http-server-cert and --http-server-key"):
        Served(repository, "--http-use-ssl=true")


def test_grpc_follows_the_same_policy(repository, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"ops {KEY}\n")
    keys.chmod(0o600)
    with Served(repository, "--load-model=m", f"--control-access=keys:{keys}", wait_ready=False) as server:
        client = grpcclient.InferenceServerClient(server.grpc_url)
        assert client.is_server_live()
        for headers, code in (({}, "UNAUTHENTICATED"), ({"authorization": "Bearer wrong-wrong-wrong-wrong"}, "UNAUTHENTICATED")):
            for call in (client.get_log_settings, client.get_trace_settings, client.get_model_repository_index,
                         client.get_system_shared_memory_status):
                with pytest.raises(InferenceServerException) as error:
                    call(headers=headers)
                assert error.value.status() == f"StatusCode.{code}", call
        assert client.get_log_settings(headers={"authorization": f"Bearer {KEY}"})
        client.close()
    door = tmp_path / "control.sock"
    with Served(repository, "--load-model=m", f"--control-access=grpc-unix:{door}", wait_ready=False) as server:
        client, control = grpcclient.InferenceServerClient(server.grpc_url), grpcclient.InferenceServerClient(f"unix:{door}")
        with pytest.raises(InferenceServerException) as error:
            client.unload_model("m")
        assert error.value.status() == "StatusCode.PERMISSION_DENIED"
        assert control.get_log_settings()
        assert server.get("/v2/logging")[0] == 403  # nor by the other protocol
        client.close()
        control.close()
