"""A Tidemark server as a child process, its HTTP interface with binary tensors, and NVML; standard library only."""

import base64
import ctypes
import http.client
import json
import os
import pathlib
import signal
import statistics
import subprocess
import time


class Server:
    """`binary serve` over `repository` on a free port. Used with `with`; SIGTERM at the end."""

    def __init__(self, binary, repository, options, env, folder, start_limit_s=90):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.log_path = folder / "server.log"
        port_file = folder / "port"
        port_file.unlink(missing_ok=True)
        command = [str(binary), "serve", f"--model-repository={repository}", "--http-address=127.0.0.1", "--http-port=0",
                   "--grpc-port=0", f"--http-port-file={port_file}", "--model-control-mode=explicit", *options]
        self._log = open(self.log_path, "ab")
        self.process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT, env=env)
        self._await(port_file.exists, start_limit_s)
        self.port = int(port_file.read_text())
        self._connection = None
        self._await(lambda: self.post("/v2/repository/index")[0] == 200, start_limit_s)

    def _await(self, condition, limit_s):
        end = time.monotonic() + limit_s
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the server did not start; its log ends: " + self.log()[-2000:])
            time.sleep(0.02)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def request(self, method, path, body=None, headers=None, connection=None):
        """Status, headers and body, over a kept connection (that of this object unless one is given)."""
        for attempt in (0, 1):
            if connection is None and self._connection is None:
                self._connection = self.connect()
            use = connection or self._connection
            try:
                use.request(method, path, body=body, headers=headers or {})
                answer = use.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            except (http.client.HTTPException, OSError):
                use.close()
                if attempt == 1:
                    raise
        raise AssertionError

    def get(self, path):
        status, _, body = self.request("GET", path)
        return status, json.loads(body) if body else None

    def post(self, path, document=None):
        body = b"" if document is None else json.dumps(document).encode()
        status, _, answer = self.request("POST", path, body, {"Content-Type": "application/json"})
        return status, json.loads(answer) if answer else None

    def load(self, model, config=None):
        """'' or the error's text."""
        document = {"parameters": {"config": json.dumps(config)}} if config is not None else None
        status, answer = self.post(f"/v2/repository/models/{model}/load", document)
        return "" if status == 200 else f"{status} {(answer or {}).get('error', '')}"

    def unload(self, model):
        status, answer = self.post(f"/v2/repository/models/{model}/unload")
        return "" if status == 200 else f"{status} {(answer or {}).get('error', '')}"

    def infer(self, model, inputs, connection=None):
        """inputs: [(name, datatype, shape, bytes)]. Returns {name: (datatype, shape, bytes)}; RuntimeError with the
        server's text when it is refused."""
        head = json.dumps({
            "inputs": [{"name": name, "datatype": datatype, "shape": list(shape),
                        "parameters": {"binary_data_size": len(data)}} for name, datatype, shape, data in inputs],
            "parameters": {"binary_data_output": True}}).encode()
        body = head + b"".join(bytes(data) for _, _, _, data in inputs)
        status, headers, answer = self.request(
            "POST", f"/v2/models/{model}/infer", body,
            {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}, connection)
        if status != 200:
            raise RuntimeError(f"{status} {answer[:500].decode(errors='replace')}")
        length = int({name.lower(): value for name, value in headers.items()}["inference-header-content-length"])
        outputs, at = {}, length
        for output in json.loads(answer[:length])["outputs"]:
            size = output["parameters"]["binary_data_size"]
            outputs[output["name"]] = (output["datatype"], output["shape"], answer[at:at + size])
            at += size
        return outputs

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self._log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class _ProcessInfo(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Nvml:
    """What NVIDIA's management library says about one GPU."""

    def __init__(self, index=0):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self._check(self.library.nvmlInit_v2())
        self.device = ctypes.c_void_p()
        self._check(self.library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(self.device)))

    @staticmethod
    def _check(result):
        if result != 0:
            raise RuntimeError(f"NVML error {result}")

    def process_bytes(self, pid):
        """Of one process; 0 when NVML lists it not, None when it lists nobody's figure."""
        infos, count = (_ProcessInfo * 64)(), ctypes.c_uint(64)
        self._check(self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), infos))
        for info in infos[:count.value]:
            if info.pid == pid:
                return None if info.used == 0xffffffffffffffff else info.used
        return 0

    def device_bytes(self):
        memory = _Memory()
        self._check(self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)))
        return memory.used

    def free_bytes(self):
        memory = _Memory()
        self._check(self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)))
        return memory.free

    def count(self):
        count = ctypes.c_uint()
        self._check(self.library.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        return count.value

    def times(self, rounds):
        """{question: median microseconds}; questions that the driver does not answer are left out."""
        memory, infos, value, rates = _Memory(), (_ProcessInfo * 64)(), ctypes.c_ulonglong(), (ctypes.c_uint * 2)()
        text = ctypes.create_string_buffer(96)

        def processes():
            count = ctypes.c_uint(64)
            return self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), infos)

        questions = {
            "processes": processes,
            "memory": lambda: self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)),
            "uuid": lambda: self.library.nvmlDeviceGetUUID(self.device, text, ctypes.c_uint(96)),
            "utilization": lambda: self.library.nvmlDeviceGetUtilizationRates(self.device, rates),
            "power": lambda: self.library.nvmlDeviceGetPowerUsage(self.device, ctypes.byref(value)),
            "power limit": lambda: self.library.nvmlDeviceGetEnforcedPowerLimit(self.device, ctypes.byref(value)),
            "energy": lambda: self.library.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(value)),
        }
        found = {}
        for name, ask in questions.items():
            spent = []
            try:
                for _ in range(rounds):
                    start = time.perf_counter()
                    if ask() != 0:
                        break
                    spent.append(time.perf_counter() - start)
            except AttributeError:
                continue
            if len(spent) == rounds:
                found[name] = round(statistics.median(spent) * 1e6, 1)
        return found

    def text(self, function):
        text = ctypes.create_string_buffer(96)
        if function == "nvmlSystemGetDriverVersion":
            self._check(self.library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(96)))
        else:
            self._check(getattr(self.library, function)(self.device, text, ctypes.c_uint(96)))
        return text.value.decode()


class _Device:
    """The primary context of the first GPU in this process, by the driver's library alone."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.blocks = []
        context = ctypes.c_void_p()
        self._check(self.cuda.cuInit(0))
        self._check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self._check(self.cuda.cuCtxSetCurrent(context))

    @staticmethod
    def _check(result):
        if result != 0:
            raise RuntimeError(f"CUDA error {result}")

    def release(self):
        for block in self.blocks:
            self.cuda.cuMemFree_v2(block)
        self.blocks = []
        self.cuda.cuDevicePrimaryCtxRelease_v2(0)


class _IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class DeviceMemory(_Device):
    """Device memory of this process that another one may open."""

    GRANULE = 2 << 20  # smaller blocks share an allocation, which another process could map once only

    def take(self, size):
        block = ctypes.c_uint64()
        self._check(self.cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(max(size, self.GRANULE))))
        self.blocks.append(block)
        return block

    def give_back(self, block):
        self.blocks.remove(block)
        self._check(self.cuda.cuMemFree_v2(block))

    def handle(self, block):
        """The IPC handle as the protocol takes it."""
        handle = _IpcHandle()
        self._check(self.cuda.cuIpcGetMemHandle(ctypes.byref(handle), block))
        return base64.b64encode(bytes(handle.bytes)).decode()

    def write(self, block, data):
        self._check(self.cuda.cuMemcpyHtoD_v2(block, bytes(data), ctypes.c_size_t(len(data))))
        self._check(self.cuda.cuCtxSynchronize())

    def read(self, block, size):
        data = ctypes.create_string_buffer(size)
        self._check(self.cuda.cuMemcpyDtoH_v2(data, block, ctypes.c_size_t(size)))
        return data.raw


class DeviceHog(_Device):
    """Takes device memory in this process until only about `leave` bytes are free."""

    def free_bytes(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check(self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return free.value

    def fill(self, leave):
        for step in (8 << 30, 256 << 20, 16 << 20):
            while self.free_bytes() > leave + step:
                block = ctypes.c_uint64()
                if self.cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(step)) != 0:
                    break
                self.blocks.append(block)
