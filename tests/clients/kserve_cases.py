"""KServe's own client of the Open Inference Protocol, unmodified, against this server: readiness and inference, both protocols.

`import kserve` would load KServe's server and Kubernetes' client, 100 MiB that no inference needs and that are not installed:
the package's __init__ is left out, its client's modules are as they come. Run by test_kserve_client.py.
"""

import asyncio
import importlib.util
import json
import sys
import types

import numpy as np
import pytest

if "kserve" not in sys.modules:
    spec = importlib.util.find_spec("kserve")
    assert spec is not None, "kserve is not there; tools/setup.sh installs it"
    package = types.ModuleType("kserve")
    package.__path__, package.__spec__ = list(spec.submodule_search_locations), spec
    sys.modules["kserve"] = package

import grpc  # noqa: E402
import httpx  # noqa: E402
from kserve.inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig  # noqa: E402
from kserve.protocol.infer_type import InferInput, InferRequest, RequestedOutput  # noqa: E402

VALUES = {
    "FP32": np.array([0.5, -1.25, 3.4e38, 0.0], np.float32),
    "INT64": np.array([-2**63, 2**63 - 1, 0, 2**53 + 1], np.int64),
    "BYTES": np.array([b"text", b"", "naïve ☃".encode(), b"x" * 300], np.object_),
}


def over_rest(server, call):
    async def run():
        client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
        try:
            return await call(client, f"http://{server.url}")
        finally:
            await client.close()

    return asyncio.run(run())


def over_grpc(server, call):
    async def run():
        async with InferenceGRPCClient(server.grpc_url, retries=0) as client:
            return await call(client)

    return asyncio.run(run())


def request_of(dtype, binary, **more):
    tensor = InferInput("INPUT0", list(VALUES[dtype].shape), dtype)
    tensor.set_data_from_numpy(VALUES[dtype], binary_data=binary)
    return InferRequest(f"identity_{dtype.lower()}", [tensor], request_id=f"id-{dtype}", **more)


def check(response, dtype):
    assert (response.id, response.model_name) == (f"id-{dtype}", f"identity_{dtype.lower()}")
    (output,) = response.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("OUTPUT0", dtype, [4])
    values = output.as_numpy()
    if dtype == "BYTES":  # text where it came as JSON
        values = np.array([v.encode() if isinstance(v, str) else bytes(v) for v in values.ravel()], np.object_)
    assert values.ravel().tolist() == VALUES[dtype].tolist()


@pytest.mark.parametrize("binary_output", [False, True], ids=["json-out", "binary-out"])
@pytest.mark.parametrize("binary_input", [False, True], ids=["json-in", "binary-in"])
@pytest.mark.parametrize("dtype", VALUES)
def test_infer_over_rest(server, dtype, binary_input, binary_output):
    request = request_of(dtype, binary_input,
                         request_outputs=[RequestedOutput("OUTPUT0", {"binary_data": binary_output})])
    headers = {}
    response = over_rest(server, lambda client, url: client.infer(
        url, request, model_name=request.model_name, response_headers=headers))
    check(response, dtype)
    assert ("inference-header-content-length" in headers) == binary_output


@pytest.mark.parametrize("raw", [False, True], ids=["contents", "raw"])
@pytest.mark.parametrize("dtype", VALUES)
def test_infer_over_grpc(server, dtype, raw):
    request = request_of(dtype, raw)
    check(over_grpc(server, lambda client: client.infer(request)), dtype)


def test_readiness_over_grpc(server):
    assert over_grpc(server, lambda client: client.is_server_live())
    assert over_grpc(server, lambda client: client.is_server_ready())
    assert over_grpc(server, lambda client: client.is_model_ready("addsub"))
    with pytest.raises(grpc.RpcError, match="Request for unknown model: 'nobody' is not found"):
        over_grpc(server, lambda client: client.is_model_ready("nobody"))


def test_readiness_over_rest_is_the_status(server):
    """KServe's servers answer health with a JSON document and its client wants one; Triton's answer, and ours, is the status."""
    assert over_rest(server, lambda client, url: client.is_model_ready(url, "addsub"))
    assert not over_rest(server, lambda client, url: client.is_model_ready(url, "nobody"))
    with pytest.raises(json.JSONDecodeError):
        over_rest(server, lambda client, url: client.is_server_ready(url))


def test_errors_arrive(server):
    """Over REST the client shows a text only where its type is JSON, which an error of Triton's, and ours, is not."""
    request = request_of("FP32", True)
    text = "Request for unknown model: 'nobody' is not found"
    with pytest.raises(httpx.HTTPStatusError, match="404 Not Found") as caught:
        over_rest(server, lambda client, url: client.infer(url, request, model_name="nobody"))
    assert caught.value.response.json() == {"error": text}
    with pytest.raises(grpc.RpcError, match=text):
        over_grpc(server, lambda client: client.infer(InferRequest("nobody", request.inputs)))
