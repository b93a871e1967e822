"""Shared memory through the unmodified tritonclient.http and tritonclient.utils.shared_memory."""

import asyncio
import base64
import json
import mmap
import os
import pathlib
import threading

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as aio
import tritonclient.utils.shared_memory as shm
from served import Served, await_nothing_new_in_shm, make_model
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

SHM = pathlib.Path("/dev/shm")
FLOATS = 16
SIZE = 4 * FLOATS


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, dtype in (("floats", "TYPE_FP32"), ("strings", "TYPE_STRING")):
        make_model(root, name, b"", filename="unused", config=(
            f'backend: "identity"\ninput {{ name: "IN" data_type: {dtype} dims: -1 }}\n'
            f'output {{ name: "OUT" data_type: {dtype} dims: -1 }}\n'))
    before = set(SHM.iterdir())
    with Served(root, "--load-model=*", "--allow-client-shm=true") as running:
        yield running
        assert running.stop() == 0, running.log()
    await_nothing_new_in_shm(before)


@pytest.fixture
def client(server):
    with server.client(concurrency=4) as opened:
        yield opened
        opened.unregister_system_shared_memory()


class Region:
    """A client's own shared-memory object, by tritonclient's helper; registered as `name`."""

    def __init__(self, name, size):
        self.name, self.key, self.size = name, f"/tidemark_test_{os.getpid()}_{name}", size
        self.handle = shm.create_shared_memory_region(name, self.key, size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shm.destroy_shared_memory_region(self.handle)


def request(name, dtype, shape, region, size, offset=0):
    tensor = triton.InferInput("IN", shape, dtype)
    tensor.set_shared_memory(region, size, offset)
    return tensor


def wanted(region, size, offset=0):
    output = triton.InferRequestedOutput("OUT")
    output.set_shared_memory(region, size, offset)
    return output


def test_tensors_travel_through_regions(client):
    values = np.arange(FLOATS, dtype=np.float32)
    with Region("in", SIZE) as source, Region("out", SIZE) as target:
        shm.set_shared_memory_region(source.handle, [values])
        client.register_system_shared_memory("in", source.key, SIZE)
        client.register_system_shared_memory("out", target.key, SIZE)
        answer = client.infer("floats", [request("IN", "FP32", [FLOATS], "in", SIZE)], outputs=[wanted("out", SIZE)])
        assert answer.get_output("OUT") == {"name": "OUT", "datatype": "FP32", "shape": [FLOATS]}
        assert np.array_equal(shm.get_contents_as_numpy(target.handle, np.float32, [FLOATS]), values)
        # In by region and out by value, and the other way round.
        answer = client.infer("floats", [request("IN", "FP32", [FLOATS], "in", SIZE)])
        assert np.array_equal(answer.as_numpy("OUT"), values)
        tensor = triton.InferInput("IN", [FLOATS], "FP32")
        tensor.set_data_from_numpy(values * 2)
        client.infer("floats", [tensor], outputs=[wanted("out", SIZE)])
        assert np.array_equal(shm.get_contents_as_numpy(target.handle, np.float32, [FLOATS]), values * 2)


def test_one_region_holds_input_and_output(client):
    """Beside each other, at odd places, and one over the other."""
    values = np.arange(FLOATS, dtype=np.float32)
    with Region("both", 4096) as both:
        client.register_system_shared_memory("both", both.key, 4096)
        for from_, to in ((0, 1024), (128, 128), (128, 132), (4, 2052)):
            shm.set_shared_memory_region(both.handle, [values], offset=from_)
            client.infer("floats", [request("IN", "FP32", [FLOATS], "both", SIZE, from_)],
                         outputs=[wanted("both", SIZE, to)])
            assert np.array_equal(shm.get_contents_as_numpy(both.handle, np.float32, [FLOATS], offset=to), values)


def test_strings_travel_through_regions(client):
    values = np.array([b"", b"a\0b", b"\xff\xfe", b"x" * 1000], dtype=np.object_)
    size = sum(4 + len(value) for value in values)
    with Region("s", 8192) as region:
        shm.set_shared_memory_region(region.handle, [serialize_byte_tensor(values)])
        client.register_system_shared_memory("s", region.key, 8192)
        answer = client.infer("strings", [request("IN", "BYTES", [4], "s", size)], outputs=[wanted("s", 4096, 4096)])
        assert answer.get_output("OUT")["shape"] == [4]
        got = shm.get_contents_as_numpy(region.handle, np.object_, [4], offset=4096)
        assert list(got) == list(values)


def test_offset_of_a_registration_counts(client):
    values = np.arange(FLOATS, dtype=np.float32)
    with Region("far", 3 * mmap.PAGESIZE) as region:
        shm.set_shared_memory_region(region.handle, [values], offset=mmap.PAGESIZE + 64)
        client.register_system_shared_memory("page", region.key, SIZE + 64, mmap.PAGESIZE)
        client.register_system_shared_memory("odd", region.key, SIZE, mmap.PAGESIZE + 64)
        for name, offset in (("page", 64), ("odd", 0)):
            answer = client.infer("floats", [request("IN", "FP32", [FLOATS], name, SIZE, offset)])
            assert np.array_equal(answer.as_numpy("OUT"), values)
        assert client.get_system_shared_memory_status() == [
            {"name": "odd", "key": region.key, "offset": mmap.PAGESIZE + 64, "byte_size": SIZE},
            {"name": "page", "key": region.key, "offset": mmap.PAGESIZE, "byte_size": SIZE + 64}]
        assert [r["name"] for r in client.get_system_shared_memory_status("odd")] == ["odd"]


def test_errors_are_tritons(client):
    with Region("r", SIZE) as region:
        client.register_system_shared_memory("r", region.key, SIZE)
        cases = [
            (lambda: client.register_system_shared_memory("r", region.key, SIZE), "shared memory region 'r' already in manager"),
            (lambda: client.register_system_shared_memory("x", "/test_shm", SIZE), "Unable to open shared memory region: '/test_shm'"),
            (lambda: client.register_system_shared_memory("x", region.key, SIZE + 1), "failed to register shared memory region 'x': invalid args"),
            (lambda: client.register_system_shared_memory("x", region.key, 2**64 - 1, mmap.PAGESIZE), "failed to register shared memory region 'x': invalid args"),
            (lambda: client.register_system_shared_memory("x", "/../etc/passwd", 1), "Unable to open shared memory region: '/../etc/passwd'"),
            (lambda: client.register_system_shared_memory("x", "/", 1), "cannot register shared memory region 'x' - invalid shm key '/'"),
            (lambda: client.get_system_shared_memory_status("x"), "Unable to find system shared memory region: 'x'"),
            (lambda: client.get_cuda_shared_memory_status("r"), "The region named 'r' is registered as system shared memory, not CUDA shared memory"),
            (lambda: client.infer("floats", [request("IN", "FP32", [FLOATS], "x", SIZE)]), "Unable to find shared memory region: 'x'"),
            (lambda: client.infer("floats", [request("IN", "FP32", [FLOATS], "r", SIZE, SIZE)]), "Invalid offset for shared memory region: 'r'"),
            (lambda: client.infer("floats", [request("IN", "FP32", [FLOATS], "r", SIZE, 4)]), r"Invalid offset \+ byte size for shared memory region: 'r'"),
            (lambda: client.infer("floats", [request("IN", "FP32", [FLOATS], "r", 2**64 - 1, 4)]), "Integer overflow detected: byte_size"),
            (lambda: client.infer("floats", [request("IN", "FP32", [8], "r", SIZE)]), "input byte size mismatch for input 'IN' for model 'floats'. Expected 32, got 64"),
            (lambda: client.infer("floats", [request("IN", "FP32", [FLOATS], "r", SIZE)], outputs=[wanted("r", 8)]),
             r"shared memory size specified with the request for output 'OUT' \(8 bytes\) should be at least 64 bytes to hold the results"),
        ]
        for call, text in cases:
            with pytest.raises(InferenceServerException, match=text):
                call()
        client.unregister_system_shared_memory("nobody")


def test_cuda_memory_is_refused_by_name_without_a_gpu(client):
    assert client.get_cuda_shared_memory_status() == []
    with pytest.raises(InferenceServerException, match="'c', GPUs not supported|failed to register shared memory region 'c': invalid args"):
        client.register_cuda_shared_memory("c", base64.b64encode(bytes(64)), 0, 64)
    with pytest.raises(InferenceServerException, match="'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"):
        client.register_cuda_shared_memory("c", base64.b64encode(bytes(63)), 0, 64)
    client.unregister_cuda_shared_memory("c")
    client.unregister_cuda_shared_memory()


def test_routes_answer_as_tritons(server):
    cases = [
        ("/v2/systemsharedmemory/register", b"{}", 400, "'region name' is necessary to register system shared memory region"),
        ("/v2/cudasharedmemory/register", b"{}", 400, "'region name' is necessary to register cuda shared memory region"),
        ("/v2/systemsharedmemory/region/x/register", b"", 400, "failed to parse the request JSON buffer: The document is empty. at 0"),
        ("/v2/systemsharedmemory/region/x/register", b"{}", 400, "Shared memory register request has no 'key' field"),
        ("/v2/systemsharedmemory/region/x/register", b'{"key":"/k"}', 400, "Shared memory register request has no 'byte_size' field"),
        ("/v2/cudasharedmemory/region/x/register", b"{}", 400, "Shared memory register request has no 'raw_handle' field"),
        ("/v2/systemsharedmemory/unregister", b"not read", 200, None),
        ("/v2/cudasharedmemory/region/x/unregister", b"", 200, None),
    ]
    for path, body, status, text in cases:
        got, answer = server.request("POST", path, body)
        assert got == status, (path, answer)
        if text:
            assert json.loads(answer)["error"] == text
    extensions = json.loads(server.get("/v2")[1])["extensions"]
    assert "system_shared_memory" in extensions and "cuda_shared_memory" in extensions


def test_unregistering_during_use_harms_no_request(server):
    """Requests over a region that is unregistered and registered all the time are right or refused, never wrong."""
    values = np.full(1 << 16, 7.0, dtype=np.float32)
    with Region("busy", values.nbytes) as region, server.client(concurrency=2) as client:
        shm.set_shared_memory_region(region.handle, [values])
        stop, outcomes = threading.Event(), []

        def ask():
            try:
                with server.client() as own:
                    for _ in range(60):
                        try:
                            answer = own.infer("floats", [request("IN", "FP32", [values.size], "busy", values.nbytes)])
                            outcomes.append(np.array_equal(answer.as_numpy("OUT"), values))
                        except InferenceServerException as error:
                            assert "Unable to find shared memory region: 'busy'" in str(error)
                            outcomes.append(None)
            finally:
                stop.set()

        asking = threading.Thread(target=ask)
        asking.start()
        while not stop.is_set():
            client.register_system_shared_memory("busy", region.key, values.nbytes)
            client.unregister_system_shared_memory("busy")
        asking.join()
        assert len(outcomes) == 60 and False not in outcomes


def test_cut_object_is_an_error_and_not_the_servers_end(server, client):
    values = np.zeros(1 << 16, dtype=np.float32)
    with Region("cut", values.nbytes) as region, Region("whole", SIZE) as whole:
        client.register_system_shared_memory("cut", region.key, values.nbytes)
        client.register_system_shared_memory("whole", whole.key, SIZE)
        os.truncate(SHM / region.key.lstrip("/"), 4096)
        for _ in range(2):
            with pytest.raises(InferenceServerException, match="'cut' is not what was registered any more: the object was cut to 4096 bytes"):
                client.infer("floats", [request("IN", "FP32", [values.size], "cut", values.nbytes)])
        assert client.infer("floats", [request("IN", "FP32", [FLOATS], "whole", SIZE)]).as_numpy("OUT").size == FLOATS
        os.truncate(SHM / region.key.lstrip("/"), values.nbytes)
        client.unregister_system_shared_memory("cut")
        client.register_system_shared_memory("cut", region.key, values.nbytes)
        assert client.infer("floats", [request("IN", "FP32", [4], "cut", 16)]).as_numpy("OUT").size == 4


def test_object_cut_again_and_again_under_requests(server):
    """No answer is guaranteed here, but one for every request, and a server that lives."""
    values = np.zeros(1 << 18, dtype=np.float32)
    with Region("saw", values.nbytes) as region:
        path, stop = SHM / region.key.lstrip("/"), threading.Event()

        def saw():
            while not stop.is_set():
                os.truncate(path, 4096)
                os.truncate(path, values.nbytes)

        sawing = threading.Thread(target=saw)
        sawing.start()
        try:
            with server.client() as client:
                good = 0
                for _ in range(200):
                    try:
                        client.register_system_shared_memory("saw", region.key, values.nbytes)
                        client.infer("floats", [request("IN", "FP32", [values.size], "saw", values.nbytes)],
                                     outputs=[wanted("saw", values.nbytes)])
                        good += 1
                    except InferenceServerException as error:
                        assert "saw" in str(error)
                    client.unregister_system_shared_memory("saw")
        finally:
            stop.set()
            sawing.join()
    assert server.get("/v2/health/live")[0] == 200


def test_mappings_are_gone_after_unregistering(server, client):
    def mapped():
        return pathlib.Path(f"/proc/{server.process.pid}/maps").read_text().count("tidemark_test_")

    def descriptors():
        return sum(target.startswith("/dev/shm") for target in server.open_files())

    # The request of a test before may live a little longer than its answer, and a region with it.
    server._await(lambda: mapped() == 0 and descriptors() == 0, 120, "let regions go")
    with Region("m", 1 << 20) as region:
        for _ in range(20):
            client.register_system_shared_memory("m", region.key, 1 << 20)
            with pytest.raises(InferenceServerException):
                client.register_system_shared_memory("n", region.key, 1 << 21)
            assert mapped() == 1 and descriptors() == 1
            client.unregister_system_shared_memory("m")
        assert mapped() == 0 and descriptors() == 0


def test_aio_client(server):
    async def run():
        values = np.arange(FLOATS, dtype=np.float32)
        with Region("aio", 2 * SIZE) as region:
            shm.set_shared_memory_region(region.handle, [values])
            async with aio.InferenceServerClient(server.url) as client:
                await client.register_system_shared_memory("aio", region.key, 2 * SIZE)
                assert (await client.get_system_shared_memory_status("aio"))[0]["byte_size"] == 2 * SIZE
                tensor = aio.InferInput("IN", [FLOATS], "FP32")
                tensor.set_shared_memory("aio", SIZE)
                output = aio.InferRequestedOutput("OUT")
                output.set_shared_memory("aio", SIZE, SIZE)
                await client.infer("floats", [tensor], outputs=[output])
                assert np.array_equal(shm.get_contents_as_numpy(region.handle, np.float32, [FLOATS], offset=SIZE), values)
                await client.unregister_system_shared_memory("aio")
                assert await client.get_system_shared_memory_status() == []

    asyncio.run(run())
