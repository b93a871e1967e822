"""System shared memory over gRPC, with the unmodified tritonclient: the same regions and the same rules as over HTTP."""

import os
import queue
import threading

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.utils.shared_memory as shm
from test_shared_memory import FLOATS, SIZE, Region
from test_shared_memory import server  # noqa: F401: the fixture
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, serialize_byte_tensor


@pytest.fixture
def client(server):  # noqa: F811
    with triton.InferenceServerClient(server.grpc_url) as opened:
        yield opened
        opened.unregister_system_shared_memory()


def request(dtype, shape, region, size, offset=0):
    tensor = triton.InferInput("IN", shape, dtype)
    tensor.set_shared_memory(region, size, offset)
    return tensor


def wanted(region, size, offset=0):
    output = triton.InferRequestedOutput("OUT")
    output.set_shared_memory(region, size, offset)
    return output


def test_tensors_travel_through_regions(client):
    values = np.arange(FLOATS, dtype=np.float32)
    with Region("gin", SIZE) as source, Region("gout", 2 * SIZE) as target:
        shm.set_shared_memory_region(source.handle, [values])
        client.register_system_shared_memory("in", source.key, SIZE)
        client.register_system_shared_memory("out", target.key, 2 * SIZE)
        answer = client.infer("floats", [request("FP32", [FLOATS], "in", SIZE)], outputs=[wanted("out", SIZE, SIZE)])
        response = answer.get_response()
        # An output in shared memory has its place in raw_output_contents, without bytes.
        assert list(response.raw_output_contents) == [b""] and response.outputs[0].shape == [FLOATS]
        assert np.array_equal(shm.get_contents_as_numpy(target.handle, np.float32, [FLOATS], offset=SIZE), values)
        answer = client.infer("floats", [request("FP32", [FLOATS], "in", SIZE)])
        assert np.array_equal(answer.as_numpy("OUT"), values)
        tensor = triton.InferInput("IN", [FLOATS], "FP32")
        tensor.set_data_from_numpy(values * 2)
        client.infer("floats", [tensor], outputs=[wanted("out", SIZE)])
        assert np.array_equal(shm.get_contents_as_numpy(target.handle, np.float32, [FLOATS]), values * 2)


def test_tensors_travel_through_regions_in_a_stream(client):
    with Region("gs", 20 * SIZE) as region:
        client.register_system_shared_memory("s", region.key, 20 * SIZE)
        answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        for i in range(10):
            shm.set_shared_memory_region(region.handle, [np.full(FLOATS, i, np.float32)], offset=i * SIZE)
            client.async_stream_infer("floats", [request("FP32", [FLOATS], "s", SIZE, i * SIZE)],
                                      outputs=[wanted("s", SIZE, (10 + i) * SIZE)], request_id=str(i))
        for i in range(10):
            result, error = answers.get(timeout=60)
            assert error is None and result.get_response().id == str(i)
            got = shm.get_contents_as_numpy(region.handle, np.float32, [FLOATS], offset=(10 + i) * SIZE)
            assert np.array_equal(got, np.full(FLOATS, i, np.float32))
        client.stop_stream()


def test_strings_travel_through_regions(client):
    values = np.array([b"", b"a\0b", b"\xff\xfe", b"x" * 1000], dtype=np.object_)
    size = sum(4 + len(value) for value in values)
    with Region("gt", 8192) as region:
        shm.set_shared_memory_region(region.handle, [serialize_byte_tensor(values)])
        client.register_system_shared_memory("t", region.key, 8192)
        client.infer("strings", [request("BYTES", [4], "t", size)], outputs=[wanted("t", 4096, 4096)])
        assert list(shm.get_contents_as_numpy(region.handle, np.object_, [4], offset=4096)) == list(values)


def test_both_protocols_see_the_same_regions(server, client):  # noqa: F811
    with Region("gb", SIZE) as region, server.client() as http:
        client.register_system_shared_memory("b", region.key, SIZE)
        assert http.get_system_shared_memory_status() == [{"name": "b", "key": region.key, "offset": 0, "byte_size": SIZE}]
        status = client.get_system_shared_memory_status("b").regions["b"]
        assert (status.name, status.key, status.offset, status.byte_size) == ("b", region.key, 0, SIZE)
        http.unregister_system_shared_memory("b")
        assert not client.get_system_shared_memory_status().regions


def test_errors_have_tritons_codes_and_texts(server, client):  # noqa: F811
    with Region("ge", SIZE) as region:
        client.register_system_shared_memory("r", region.key, SIZE)
        cases = [
            (lambda: client.register_system_shared_memory("r", region.key, SIZE), "ALREADY_EXISTS",
             "shared memory region 'r' already in manager"),
            (lambda: client.register_system_shared_memory("x", region.key, SIZE + 1), "INVALID_ARGUMENT",
             "failed to register shared memory region 'x': invalid args"),
            (lambda: client.register_system_shared_memory("x", region.key, 2**64 - 1, 4096), "INVALID_ARGUMENT",
             "failed to register shared memory region 'x': invalid args"),
            (lambda: client.register_system_shared_memory("x", "/../etc/passwd", 1), "INVALID_ARGUMENT",
             "Unable to open shared memory region: '/../etc/passwd'"),
            (lambda: client.get_system_shared_memory_status("x"), "NOT_FOUND", "Unable to find system shared memory region: 'x'"),
            (lambda: client.infer("floats", [request("FP32", [FLOATS], "x", SIZE)]), "NOT_FOUND",
             "Unable to find shared memory region: 'x'"),
            (lambda: client.infer("floats", [request("FP32", [FLOATS], "r", SIZE, SIZE)]), "INVALID_ARGUMENT",
             "Invalid offset for shared memory region: 'r'"),
            (lambda: client.infer("floats", [request("FP32", [FLOATS], "r", SIZE, 4)]), "INVALID_ARGUMENT",
             "Invalid offset + byte size for shared memory region: 'r'"),
            (lambda: client.infer("floats", [request("FP32", [FLOATS], "r", SIZE)], outputs=[wanted("r", 8)]), "INVALID_ARGUMENT",
             "shared memory size specified with the request for output 'OUT' (8 bytes) should be at least 64 bytes to hold the results"),
        ]
        for call, code, text in cases:
            with pytest.raises(InferenceServerException) as caught:
                call()
            assert caught.value.status() == f"StatusCode.{code}" and text in caught.value.message(), caught.value


@pytest.mark.parametrize("offset, size", [(-1, SIZE), (-2**63, SIZE), (0, -1), (2**63 - 1, 2**63 - 1), (SIZE, 1), (-SIZE, 2 * SIZE)])
def test_nothing_outside_a_region_is_reached(server, client, offset, size):  # noqa: F811
    message = service_pb2.ModelInferRequest(model_name="floats")
    tensor = message.inputs.add(name="IN", datatype="FP32", shape=[FLOATS])
    tensor.parameters["shared_memory_region"].string_param = "r"
    tensor.parameters["shared_memory_offset"].int64_param = offset
    tensor.parameters["shared_memory_byte_size"].int64_param = size
    with Region("go", SIZE) as region, grpc.insecure_channel(server.grpc_url) as channel:
        client.register_system_shared_memory("r", region.key, SIZE)
        with pytest.raises(grpc.RpcError) as caught:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(message)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, caught.value


def test_unregistering_during_use_harms_no_request(server):  # noqa: F811
    """Requests over a region that is unregistered and registered all the time are right or refused, never wrong."""
    values = np.full(1 << 16, 7.0, dtype=np.float32)
    with Region("gbusy", 2 * values.nbytes) as region, triton.InferenceServerClient(server.grpc_url) as client:
        shm.set_shared_memory_region(region.handle, [values])
        stop, outcomes = threading.Event(), []

        def ask():
            try:
                with triton.InferenceServerClient(server.grpc_url) as own:
                    for _ in range(60):
                        try:
                            answer = own.infer("floats", [request("FP32", [values.size], "busy", values.nbytes)])
                            outcomes.append(np.array_equal(answer.as_numpy("OUT"), values))
                            # A region may be gone by now: then this one is refused.
                            own.infer("floats", [request("FP32", [values.size], "busy", values.nbytes)],
                                      outputs=[wanted("busy", values.nbytes, values.nbytes)])
                        except InferenceServerException as error:
                            assert "Unable to find shared memory region: 'busy'" in str(error)
                            outcomes.append(None)
            finally:
                stop.set()

        asking = threading.Thread(target=ask)
        asking.start()
        while not stop.is_set():
            client.register_system_shared_memory("busy", region.key, 2 * values.nbytes)
            client.unregister_system_shared_memory("busy")
        asking.join()
        assert len(outcomes) >= 60 and False not in outcomes


def test_cut_object_is_an_error_and_not_the_servers_end(server, client):  # noqa: F811
    values = np.zeros(1 << 16, dtype=np.float32)
    with Region("gcut", values.nbytes) as region:
        client.register_system_shared_memory("cut", region.key, values.nbytes)
        os.truncate("/dev/shm" + region.key, 4096)
        with pytest.raises(InferenceServerException, match="'cut' is not what was registered any more"):
            client.infer("floats", [request("FP32", [values.size], "cut", values.nbytes)])
        assert client.is_server_live()
