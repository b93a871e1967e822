"""The real tritonserver and Tidemark are asked the same; what differs on purpose stands in wanted.py, with its reason."""

import http.client
import json
import pathlib

import pytest

from http_cases import cases
from wanted import ROWS, SAME, WANTED

HEADERS = ("Content-Type", "Content-Encoding", "Inference-Header-Content-Length", "Accept-Encoding", "Connection")


@pytest.fixture(scope="module")
def both(start_both):
    with start_both() as servers:
        yield servers


def ask(server, method, path, headers, body):
    """Status, headers of interest and body; status 0 when the connection was closed without an answer."""
    connection = http.client.HTTPConnection(server.url, timeout=60)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body is not None or method in ("POST", "PUT"):
            connection.putheader("Content-Length", str(len(body or b"")))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, {name: answer.headers[name] for name in HEADERS if name in answer.headers}, answer.read()
    except (http.client.HTTPException, ConnectionError):
        return 0, {}, b""
    finally:
        connection.close()


# What is each server's own and says nothing: versions, clocks, names of backends, places of files.
def normalize(name, answer):
    status, headers, body = answer
    try:
        document = json.loads(body)
    except ValueError:
        return status, headers, body
    if isinstance(document, dict):
        if "extensions" in document:
            document.update(version="*", extensions="*")
        if "platform" in document and "inputs" in document:
            document["platform"] = "*"
        if "backend" in document:
            document = {key: document[key] for key in ("name", "max_batch_size", "input", "output") if key in document}
        for stats in document.get("model_stats", []):
            stats.update({key: "*" for key in ("last_inference", "inference_count", "execution_count", "inference_stats", "batch_stats",
                                               "memory_usage", "response_stats")})
        if "model_stats" in document:
            document["model_stats"].sort(key=lambda stats: (stats["name"], stats["version"]))
    if isinstance(document, list) and name.startswith("index"):
        document.sort(key=lambda entry: entry["name"])
    return status, headers, document


CASES = {case[0]: case[1:] for case in cases()}


def test_cases_have_names_of_their_own():
    assert len(CASES) == len(list(cases())) and len(CASES) > 200
    assert set(WANTED) <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_answers_are_the_same(both, name):
    peer, ours = (normalize(name, ask(server, *CASES[name])) for server in both)
    if name not in WANTED:
        assert ours == peer
        return
    row, (status, text) = WANTED[name]
    assert ours != peer, f"no difference any more: delete it from wanted.py ({row})"
    found = text_of(ours)
    assert ours[0] == status, ours
    assert found.startswith(text_of(peer)) if text is SAME else text in found, (peer, ours)


def text_of(answer):
    body = answer[2]
    return body["error"] if isinstance(body, dict) and "error" in body else str(body)


def test_every_wanted_difference_is_documented():
    document = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "compatibility.md").read_text()
    for row in ROWS:
        assert f"| {row} |" in document, row
