#!/usr/bin/env python3
"""What Tidemark promises about TensorRT, on a real GPU, in one run of a few minutes.

    run.py PART --work FOLDER --out FOLDER [--fake FOLDER]

PART is `lean` (TensorRT 11 by its lean runtime: answers, the reported scenario, cycles, the sweep, memory, traffic,
speed) or `trt10` (TensorRT 10.6: convolutions and real models). FOLDER holds what tests/gpu/prepare.sh made. Results
go to results-PART.json, which is written after every section, and reports beside it. With --fake the same run is
rehearsed with the fake libraries of a build tree, and plans of their kind. Standard library only.
"""

import argparse
import base64
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
import traceback

import plans
from served import DeviceMemory, Nvml, Server

MIB = 1 << 20
FAULT = "unexpected datatype TYPE_FP32 for inference output 'OUTPUT', expecting TYPE_INT32"


class Check(Exception):
    """A promise that was not kept."""


def expect(condition, text):
    if not condition:
        raise Check(text)


class Run:
    def __init__(self, options):
        self.work, self.out, self.part = options.work.resolve(), options.out.resolve(), options.part
        self.fake = options.fake.resolve() if options.fake else None
        self.quick = options.quick
        self.only = options.only.split(",") if options.only else []
        self.out.mkdir(parents=True, exist_ok=True)
        self.scratch = self.work / ("scratch-" + self.part)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self.bin = pathlib.Path(options.bin).resolve() if options.bin else self.work / "bin"
        self.env = dict(os.environ)
        paths = [str(self.work / "lib")] if (self.work / "lib").is_dir() else []
        if self.fake:
            paths.insert(0, str(self.fake))
            self.env["FAKE_GPU_STATE"] = os.environ["FAKE_GPU_STATE"]
        self.env["LD_LIBRARY_PATH"] = ":".join(paths + [p for p in [os.environ.get("LD_LIBRARY_PATH")] if p])
        self.version = (11, 2, 1, 2) if self.part == "lean" else (10, 6, 0, 26)
        self.plans = self.work / ("plans" if self.part == "lean" else "plans-10.6")
        self.options = [] if self.fake else [f"--backend-config=tensorrt,library={self.work / 'trt' / self.library_name()}"]
        self.results = {"format": "tidemark-gpu", "version": 1, "part": self.part, "sections": {}}

    def library_name(self):
        return "libnvinfer_lean.so.11" if self.part == "lean" else "libnvinfer.so.10"

    # --- helpers -----------------------------------------------------------------------------------------------------

    def repository(self, name):
        folder = self.scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def plan_bytes(self, name):
        """Of plans/NAME.plan; None where it does not exist."""
        if self.fake:
            return plans.fake_plan(name.split(".")[0], self.version)
        path = self.plans / f"{name}.plan"
        return path.read_bytes() if path.exists() else None

    def plan(self, family):
        """The best form of a plan that is there."""
        kinds = [kind for kind in (".vconly", ".plain", "") if (self.plans / f"{family}{kind}.plan").exists()]
        return family + (kinds or [".vconly"])[0]

    def add_model(self, repository, model, plan, config=""):
        content = self.plan_bytes(plan)
        if content is None:
            return False
        folder = repository / model
        (folder / "1").mkdir(parents=True, exist_ok=True)
        (folder / "1" / "model.plan").write_bytes(content)
        (folder / "config.pbtxt").unlink(missing_ok=True)
        if config:
            (folder / "config.pbtxt").write_text(config)
        return True

    def serve(self, repository, *options, name="server"):
        return Server(self.bin / "tidemark", repository, [*self.options, *options], self.env, self.scratch / name)

    def run(self, command, **more):
        return subprocess.run([str(word) for word in command], env=self.env, capture_output=True, text=True,
                              errors="replace", **more)

    def section(self, name, function):
        if self.only and name not in self.only:
            return
        start = time.monotonic()
        entry = {"outcome": "passed"}
        self.results["sections"][name] = entry
        try:
            entry["figures"] = function() or {}
        except Check as broken:
            entry.update(outcome="failed", text=str(broken))
        except Exception:  # a section that breaks must not take the others with it
            entry.update(outcome="broken", text=traceback.format_exc()[-3000:])
        entry["seconds"] = round(time.monotonic() - start, 2)
        print(f"{name}: {entry['outcome']} in {entry['seconds']} s {entry.get('text', '')}", flush=True)
        self.write()

    def write(self):
        text = json.dumps(self.results, indent=1)
        (self.out / f"results-{self.part}.json").write_text(text)

    def good_config(self):
        return {"platform": "tensorrt_plan", "max_batch_size": 0,
                "input": [{"name": "INPUT", "data_type": "TYPE_FP32", "dims": [16777216]}],
                "output": [{"name": "OUTPUT", "data_type": "TYPE_FP32", "dims": [16777216]}]}

    def bad_config(self):
        config = self.good_config()
        config["output"][0]["data_type"] = "TYPE_INT32"
        return config

    def identity_pbtxt(self):
        return (plans.PLATFORM + "max_batch_size: 0\ninput { name: \"INPUT\" data_type: TYPE_FP32 dims: 16777216 }\n"
                "output { name: \"OUTPUT\" data_type: TYPE_FP32 dims: 16777216 }\n")

    # --- sections ----------------------------------------------------------------------------------------------------

    def environment(self):
        facts = {"kernel": platform.release(), "machine": platform.machine(), "libc": " ".join(platform.libc_ver()),
                 "cpus": os.cpu_count(), "library": self.library_name(), "fake": bool(self.fake)}
        huge = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
        facts["huge pages"] = huge.read_text().strip() if huge.exists() else "no"
        facts["cpu"] = next((line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                             if line.startswith("model name")), "unknown")
        nvml = Nvml()
        facts["gpus"] = nvml.count()
        facts["gpu"] = nvml.text("nvmlDeviceGetName")
        facts["driver"] = nvml.text("nvmlSystemGetDriverVersion")
        version = self.run([self.bin / "tidemark", "--version"])
        facts["tidemark"] = (version.stdout or version.stderr).strip()[:200]
        return facts

    def check_plan(self, server, repository, name):
        """Loads the plan, compares every answer, unloads. Returns a short text of what was done."""
        family = name.split(".")[0]
        configurations, make, shapes = plans.FAMILIES[family]
        model = name.replace(".", "_")
        text = ""
        for config in configurations:
            if not self.add_model(repository, model, name, config):
                return "no such plan"
            text = server.load(model)
            if not text:
                break
        expect(not text, f"{name}: load refused: {text}")
        described = server.get(f"/v2/models/{model}")[1]
        types = [{tensor["name"]: tensor["datatype"] for tensor in described[side]} for side in ("inputs", "outputs")]
        for shape in shapes:
            inputs, expected = make(shape, *types) if getattr(make, "by_metadata", False) else make(shape)
            outputs = server.infer(model, inputs)
            for output, (its_shape, data) in expected.items():
                datatype, got_shape, got = outputs[output]
                if isinstance(data, dict):
                    data = data[datatype]
                expect(got_shape == list(its_shape), f"{name} {shape}: {output} has shape {got_shape}, not {its_shape}")
                expect(got == data, f"{name} {shape}: {output} differs in the first bytes {got[:32].hex()} / {data[:32].hex()}")
        text = server.unload(model)
        expect(not text, f"{name}: unload: {text}")
        return f"{len(shapes)} shapes exact"

    def answers(self, names):
        repository, done, failures = self.repository("answers"), {}, []
        with self.serve(repository, name="answers-server") as server:
            for name in names:
                try:
                    done[name] = self.check_plan(server, repository, name)
                except (Check, RuntimeError, KeyError) as broken:
                    done[name] = "FAILED: " + str(broken)
                    failures.append(done[name])
                    server.unload(name.replace(".", "_"))
                    if server.process.poll() is not None:
                        raise Check(f"the server died at {name}: {server.log()[-1500:]}") from broken
        self.results["answers"] = done
        expect(not failures, "; ".join(failures)[:3000])
        return {"plans": len([text for text in done.values() if text.endswith("exact")]), "of": len(done)}

    def fp8(self):
        """A type that the protocol has no name for goes as its bytes (UINT8)."""
        repository = self.repository("fp8")
        if not self.add_model(repository, "fp8", self.plan("type_fp8")):
            return {"note": "no plan"}
        with self.serve(repository, name="fp8-server") as server:
            text = server.load("fp8")
            expect(not text, f"load refused: {text}")
            data = plans.typed("fp8", 7 * 16)
            datatype, shape, got = server.infer("fp8", [("INPUT", "UINT8", [7, 16], data)])["OUTPUT"]
            expect((datatype, shape, got) == ("UINT8", [7, 16], data), f"another answer: {datatype} {shape} {got[:32].hex()}")
            return {"bytes": len(data)}

    def audit(self, name, spawn, probe, repository, model, extra=(), cycles=6):
        out = self.scratch / name
        answer = self.run([self.bin / "tidemark", "audit", "--spawn", spawn, "--repository", repository, "--model", model,
                           "--probe", probe, "--baseline", 3, "--cycles", cycles, "--fault", "output-datatype",
                           "--plain", "-o", out, *extra], timeout=400)
        results = json.loads((out / "results.json").read_text()) if (out / "results.json").exists() else {}
        for file in ("report.html", "results.json"):
            if (out / file).exists():
                shutil.copyfile(out / file, self.out / f"{name}-{file}")
        return answer, results

    def scenario(self):
        repository = self.repository("scenario")
        self.add_model(repository, "identity", self.plan("identity"), self.identity_pbtxt())
        spawn = " ".join([str(self.bin / "tidemark"), "--model-repository={repository}", "--http-port={http_port}",
                          "--grpc-port={grpc_port}", "--metrics-port={metrics_port}", *self.options])
        answer, results = self.audit("audit", spawn, "gpu:0", repository, "identity")
        verdict = results.get("verdict", {})
        figures = {"headline": verdict.get("headline"), "exit_code": answer.returncode,
                   "device": results.get("environment", {}).get("machine", {}).get("gpu")}
        for judgement in verdict.get("judgements", []):
            figures[judgement["quantity"]] = {key: judgement.get(key) for key in
                                              ("mark", "final", "above_mark", "growth_per_failed_cycle")}
        failed = [cycle for cycle in results.get("cycles", []) if cycle["phase"] == "failed"]
        figures["failed_text"] = failed[0]["load_text"][:400] if failed else None
        figures["load_seconds"] = [round(cycle["load_seconds"], 4) for cycle in results.get("cycles", [])]
        expect(answer.returncode == 0, f"the audit says {figures['headline']}: {answer.stderr[-1500:]} {answer.stdout[-500:]}")
        expect(failed and all(FAULT in cycle["load_text"] for cycle in failed), f"another error: {figures['failed_text']}")
        return figures

    def control(self):
        """The same audit of a server that leaks device memory must say leak."""
        repository = self.repository("control")
        (repository / "identity" / "1").mkdir(parents=True, exist_ok=True)
        (repository / "identity" / "1" / "model.bin").write_bytes(b"m" * 4096)
        (repository / "identity" / "config.pbtxt").write_text(
            'backend: "identity"\ninput { name: "INPUT0" data_type: TYPE_FP32 dims: 16 }\n'
            'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 16 }\n')
        spawn = " ".join([str(self.bin / "tidemark-leaky-server"), "--repository", "{repository}", "--http-port", "{http_port}",
                          "--leak-bytes", "0", "--leak-device-bytes", str(66 * MIB)])
        answer, results = self.audit("control", spawn, "gpu:0", repository, "identity")
        headline = results.get("verdict", {}).get("headline")
        expect(answer.returncode == 1, f"exit {answer.returncode}, {headline}: {answer.stderr[-1500:]}")
        return {"headline": headline}

    def cycles(self):
        """Failed and good loads over HTTP: NVML's figure of the process must not move."""
        count = 20 if self.quick else 200
        repository = self.repository("cycles")
        self.add_model(repository, "identity", self.plan("identity"), self.identity_pbtxt())
        self.add_model(repository, "addsub", self.plan("addsub"))
        inputs, expected = plans.FAMILIES["addsub"][1]([7, 16])
        nvml, figures = Nvml(), {}
        with self.serve(repository, name="cycles-server") as server:
            pid = server.process.pid

            def good():
                for model in ("identity", "addsub"):
                    text = server.load(model)
                    expect(not text, f"load of {model}: {text}")
                outputs = server.infer("addsub", inputs)
                expect(outputs["OUTPUT1"][2] == expected["OUTPUT1"][1], "another answer")
                for model in ("identity", "addsub"):
                    text = server.unload(model)
                    expect(not text, f"unload of {model}: {text}")

            def failed():
                text = server.load("identity", self.bad_config())
                expect(FAULT in text, f"another error: {text or 'none'}")

            def settled():
                return nvml.process_bytes(pid), self.host_figures(pid)

            for _ in range(3):
                good()
                failed()
            mark, host_mark = settled()
            expect(mark, "NVML does not list the server")
            for name, cycle in (("failed", failed), ("good", good)):
                values, times = [], []
                for _ in range(count):
                    start = time.monotonic()
                    cycle()
                    times.append(time.monotonic() - start)
                    values.append(nvml.process_bytes(pid))
                host = self.host_figures(pid)
                figures[name] = {"cycles": count, "mark": mark, "last": values[-1], "highest": max(values),
                                 "slope_bytes_per_cycle": slope(values), "median_seconds": round(statistics.median(times), 5),
                                 "anonymous_growth": host["anonymous"] - host_mark["anonymous"],
                                 "descriptors": [host_mark["descriptors"], host["descriptors"]],
                                 "threads": [host_mark["threads"], host["threads"]]}
                expect(figures[name]["slope_bytes_per_cycle"] == 0, f"{name} loads: {figures[name]}")
                expect(values[-1] <= mark, f"{name} loads end above the mark: {figures[name]}")
                expect(host["threads"] == host_mark["threads"] and host["descriptors"] == host_mark["descriptors"],
                       f"{name} loads: {figures[name]}")
            status, memory = server.get("/v2/memory")
            if status == 200:
                figures["memory_api"] = trim_text(memory)
        return figures

    @staticmethod
    def host_figures(pid):
        proc = pathlib.Path(f"/proc/{pid}")
        anonymous = next((int(line.split()[1]) * 1024 for line in (proc / "smaps_rollup").read_text().splitlines()
                          if line.startswith("Anonymous:")), 0)
        descriptors = threads = 0
        for entry in (proc / "fd").iterdir():
            try:
                descriptors += not os.readlink(entry).startswith("socket:")
            except OSError:
                pass  # closed meanwhile
        for task in (proc / "task").iterdir():
            try:  # a thread that was joined stays for a moment: the kernel's flags of a task have PF_EXITING, 4
                threads += not int((task / "stat").read_text().rpartition(")")[2].split()[6]) & 4
            except OSError:
                pass
        return {"anonymous": anonymous, "descriptors": descriptors, "threads": threads}

    def traffic(self):
        """Reloads while eight clients ask: nobody notices."""
        repository = self.repository("traffic")
        self.add_model(repository, "addsub", self.plan("addsub"))
        inputs, expected = plans.FAMILIES["addsub"][1]([1, 16])
        stop, asked, errors = threading.Event(), [0] * 8, []
        with self.serve(repository, name="traffic-server") as server:
            text = server.load("addsub")
            expect(not text, text)

            def client(number):
                connection = server.connect()
                while not stop.is_set():
                    try:
                        outputs = server.infer("addsub", inputs, connection)
                        if outputs["OUTPUT0"][2] != expected["OUTPUT0"][1]:
                            errors.append("another answer")
                        asked[number] += 1
                    except Exception as broken:  # whatever a client can see counts
                        errors.append(str(broken)[:300])
                connection.close()

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                clients = [pool.submit(client, i) for i in range(8)]
                reloads = []
                for i in range(4 if self.quick else 20):
                    if i % 4 == 3:
                        os.utime(repository / "addsub" / "1" / "model.plan")
                        bad = server.load("addsub", {"platform": "tensorrt_plan", "max_batch_size": 64, "input": [
                            {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [16]}]})
                        expect(bad, "a bad configuration was taken")
                        continue
                    (repository / "addsub" / "1" / "model.plan").write_bytes(self.plan_bytes(self.plan("addsub")))
                    start = time.monotonic()
                    text = server.load("addsub", {"platform": "tensorrt_plan", "max_batch_size": 64 - i})
                    reloads.append(time.monotonic() - start)
                    expect(not text, f"reload {i}: {text}")
                stop.set()
                for each in clients:
                    each.result()
        expect(not errors, f"{len(errors)} of {sum(asked)} requests failed: {errors[:3]}")
        return {"requests": sum(asked), "reloads": len(reloads), "reload_median_seconds": round(statistics.median(reloads), 4)}

    def memory_limit(self):
        """A budget refuses a load with figures, leaves nothing, and the neighbour serves on."""
        repository = self.repository("limit")
        self.add_model(repository, "identity", self.plan("identity"), self.identity_pbtxt())
        self.add_model(repository, "addsub", self.plan("addsub"))
        inputs, expected = plans.FAMILIES["addsub"][1]([7, 16])
        nvml = Nvml()
        with self.serve(repository, f"--memory-limit=gpu:0:{64 * MIB}", name="limit-server") as server:
            text = server.load("addsub")
            expect(not text, f"addsub within the budget: {text}")
            before = nvml.process_bytes(server.process.pid)
            texts = [server.load("identity") for _ in range(5)]
            expect(all(texts), "a load beyond the budget was taken")
            after = nvml.process_bytes(server.process.pid)
            expect(after <= before + 2 * MIB, f"refused loads left {after - before} bytes")
            outputs = server.infer("addsub", inputs)
            expect(outputs["OUTPUT0"][2] == expected["OUTPUT0"][1], "another answer")
            return {"text": texts[0][:600], "left_bytes": after - before}

    def out_of_memory(self):
        """A device that is really full: the load fails, the neighbour serves, and once there is room all works."""
        repository = self.repository("oom")
        self.add_model(repository, "identity", self.plan("identity"), self.identity_pbtxt())
        self.add_model(repository, "addsub", self.plan("addsub"))
        inputs, expected = plans.FAMILIES["addsub"][1]([64, 16])
        figures = {}
        with self.serve(repository, name="oom-server") as server:
            text = server.load("addsub")
            expect(not text, text)
            # The hog is a process of its own: what it leaves, it leaves.
            hog = subprocess.Popen([sys.executable, pathlib.Path(__file__).parent / "hog.py", str(48 * MIB)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                figures["free_bytes"] = int(hog.stdout.readline())
                pid = server.process.pid
                before = Nvml().process_bytes(pid)
                texts = [server.load("identity") for _ in range(3)]
                expect(all(texts), "a load on a full device was taken")
                figures["text"] = texts[0][:600]
                figures["left_bytes"] = Nvml().process_bytes(pid) - before
                outputs = server.infer("addsub", inputs)
                expect(outputs["OUTPUT0"][2] == expected["OUTPUT0"][1], "the neighbour gives another answer")
            finally:
                hog.communicate("end\n", timeout=60)
            text = server.load("identity")
            expect(not text, f"with room again: {text}")
            inputs, expected = plans.FAMILIES["identity"][1]([16777216])
            expect(server.infer("identity", inputs)["OUTPUT"][2] == expected["OUTPUT"][1], "another answer")
            ready = server.get("/v2/health/ready")[0]
            expect(ready == 200, "the server is not ready after an out of memory")
        expect(figures["left_bytes"] <= 2 * MIB, f"refused loads left {figures['left_bytes']} bytes")
        return figures

    def instances(self):
        """Two instances, eight clients: every answer exact."""
        repository = self.repository("instances")
        config = plans.PLATFORM + "max_batch_size: 64\ninstance_group { kind: KIND_GPU count: 2 gpus: 0 }\n"
        self.add_model(repository, "addsub", self.plan("addsub"), config)
        return self.hammer(repository, "addsub", "instances-server")

    def graphs(self):
        """CUDA graphs on and off: the same answers; and what they cost and bring."""
        figures = {}
        for name, graphs in (("off", False), ("on", True)):
            repository = self.repository("graphs-" + name)
            config = plans.PLATFORM + "max_batch_size: 64\n" + ("optimization { cuda { graphs: true } }\n" if graphs else "")
            self.add_model(repository, "addsub", self.plan("addsub"), config)
            figures[name] = self.hammer(repository, "addsub", f"graphs-{name}-server")
        return figures

    def hammer(self, repository, model, name):
        cases = [plans.FAMILIES[model][1]([n, 16]) for n in (1, 2, 7, 33, 64)]
        total = 200 if self.quick else 4000
        with self.serve(repository, name=name) as server:
            text = server.load(model)
            expect(not text, text)

            def client(number):
                connection = server.connect()
                for i in range(total // 8):
                    inputs, expected = cases[(i + number) % len(cases)]
                    outputs = server.infer(model, inputs, connection)
                    for output, (_, data) in expected.items():
                        expect(outputs[output][2] == data, f"client {number}, request {i}: {output} differs")
                connection.close()

            start = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for each in [pool.submit(client, i) for i in range(8)]:
                    each.result()
            seconds = time.monotonic() - start
            expect(not server.unload(model), "the unload was refused")
            return {"requests": total, "per_second_by_python_clients": round(total / seconds)}

    def shared_memory(self):
        """CUDA shared memory, for real: this process allocates on the GPU and gives the server IPC handles. Inputs are read
        and outputs written where they lie, beside the same through the host."""
        if self.fake:
            return {"note": "the fakes' device memory belongs to one process"}
        repository, figures = self.repository("shared"), {}
        self.add_model(repository, "addsub", self.plan("addsub"))
        self.add_model(repository, "identity", self.plan("identity"), self.identity_pbtxt())
        with self.serve(repository, "--allow-client-shm=true", name="shared-server") as server:
            device = DeviceMemory()
            try:
                for model, shapes in (("addsub", ([1, 16], [64, 16])), ("identity", ([16777216],))):
                    text = server.load(model)
                    expect(not text, text)
                    for shape in shapes:
                        figures[f"{model} {shape}"] = self.ask_by_device_memory(server, device, model, shape)
                    expect(not server.unload(model), "the unload was refused")
                self.break_device_regions(server, device)
            finally:
                device.release()
        return figures

    def ask_by_device_memory(self, server, device, model, shape):
        inputs, expected = plans.FAMILIES[model][1](shape)
        blocks = {name: device.take(len(data)) for name, _, _, data in inputs}
        blocks |= {name: device.take(len(data)) for name, (_, data) in expected.items()}
        sizes = {name: len(data) for name, _, _, data in inputs} | {name: len(data) for name, (_, data) in expected.items()}
        for name, block in blocks.items():
            status, answer = server.post(f"/v2/cudasharedmemory/region/{name}/register", {
                "raw_handle": {"b64": device.handle(block)}, "device_id": 0, "byte_size": sizes[name]})
            expect(status == 200, f"register {name}: {status} {answer}")
        where = {name: {"shared_memory_region": name, "shared_memory_byte_size": size} for name, size in sizes.items()}
        body = {"inputs": [{"name": name, "datatype": datatype, "shape": list(of), "parameters": where[name]}
                           for name, datatype, of, _ in inputs],
                "outputs": [{"name": name, "parameters": where[name]} for name in expected]}
        times = []
        for turn in range(5 if self.quick else 50):
            for name, _, _, data in inputs if turn == 0 else ():
                device.write(blocks[name], data)
            start = time.monotonic()
            status, answer = server.post(f"/v2/models/{model}/infer", body)
            times.append(time.monotonic() - start)
            expect(status == 200, f"{model} {shape}: {status} {answer}")
            if turn > 2:
                continue
            for name, (_, data) in expected.items():
                expect(device.read(blocks[name], len(data)) == data, f"{model} {shape}: {name} differs")
                device.write(blocks[name], bytes(len(data)))
        # The same inputs from the same place, in the answer's body.
        status, _, answer = server.request("POST", f"/v2/models/{model}/infer", json.dumps(
            {"inputs": body["inputs"], "parameters": {"binary_data_output": True}}).encode())
        expect(status == 200 and answer.endswith(list(expected.values())[-1][1]), f"{model} {shape}: another answer in the body")
        for name, block in blocks.items():
            expect(server.post(f"/v2/cudasharedmemory/region/{name}/unregister")[0] == 200, f"unregister {name}")
            device.give_back(block)
        return {"median_us": round(statistics.median(times) * 1e6, 1), "bytes_in_and_out": sum(sizes.values())}

    @staticmethod
    def break_device_regions(server, device):
        """What a client gets wrong is refused by name, and the server lives on."""
        block = device.take(64)
        status, answer = server.post("/v2/cudasharedmemory/region/small/register", {
            "raw_handle": {"b64": device.handle(block)}, "device_id": 0, "byte_size": 64 << 30})
        expect(status == 400, f"a region larger than its allocation: {status} {answer}")
        status, answer = server.post("/v2/cudasharedmemory/region/nobody/register", {
            "raw_handle": {"b64": base64.b64encode(bytes(64)).decode()}, "device_id": 0, "byte_size": 64})
        expect(status == 400, f"a handle of nobody: {status} {answer}")
        device.give_back(block)
        expect(server.get("/v2/health/ready")[0] == 200, "the server is not ready")

    def gpus(self):
        """Instances on every GPU of the machine, one engine on each: exact answers, work on all, all back to the mark."""
        count = Nvml().count()
        repository = self.repository("gpus")
        config = plans.PLATFORM + "max_batch_size: 64\ndynamic_batching { }\ninstance_group { kind: KIND_GPU count: 2 gpus: [ %s ] }\n" % (
            ", ".join(map(str, range(count))))
        self.add_model(repository, "addsub", self.plan("addsub"), config)
        self.add_model(repository, "beyond", self.plan("addsub"), plans.PLATFORM + "max_batch_size: 64\n"
                       "instance_group { kind: KIND_GPU gpus: [ 0, %d ] }\n" % count)
        cases = [plans.FAMILIES["addsub"][1]([n, 16]) for n in (1, 7, 64)]
        total = 400 if self.quick else 4000
        with self.serve(repository, name="gpus-server") as server:
            def bytes_of_each():
                return [Nvml(index).process_bytes(server.process.pid) for index in range(count)]

            def cycle(requests):
                text = server.load("addsub")
                expect(not text, text)

                def client(number):
                    connection = server.connect()
                    for i in range(requests // 16):
                        inputs, expected = cases[(i + number) % len(cases)]
                        outputs = server.infer("addsub", inputs, connection)
                        for output, (_, data) in expected.items():
                            expect(outputs[output][2] == data, f"client {number}, request {i}: {output} differs")
                    connection.close()

                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    for each in [pool.submit(client, i) for i in range(16)]:
                        each.result()
                while_loaded = bytes_of_each()
                expect(not server.unload("addsub"), "the unload was refused")
                return while_loaded

            for _ in range(3):
                cycle(160)
            mark = bytes_of_each()
            start = time.monotonic()
            loaded = cycle(total)
            seconds = time.monotonic() - start
            for _ in range(3):
                cycle(160)
            after = bytes_of_each()
            text = server.load("beyond")
            expect(text, f"an instance on GPU {count} of {count} was taken")
            expect(bytes_of_each() == after, "a load that was refused left something on a GPU")
        expect(after == mark, f"memory of the GPUs {mark}, after more cycles {after}")
        expect(all(now > of for now, of in zip(loaded, mark)), f"not every GPU holds an instance: {mark}, loaded {loaded}")
        return {"gpus": count, "mark": mark, "loaded": loaded, "after": after, "refusal": text[:300],
                "per_second_by_python_clients": round(total / seconds)}

    def core(self):
        """The sweep, the cycles and the flush inside one process: tests/gpu/gpu_test.cc."""
        program = self.bin / "tidemark_gpu_test"
        output = self.scratch / "gpu_test.json"
        env = dict(self.env)
        if not self.fake:
            env |= {"TIDEMARK_GPU_LIBRARY": str(self.work / "trt" / self.library_name()), "TIDEMARK_GPU_PLANS": str(self.plans)}
        answer = subprocess.run([str(program), f"--gtest_output=json:{output}"], env=env, capture_output=True, text=True,
                                errors="replace", timeout=300)
        (self.out / f"gpu_test-{self.part}.log").write_text(answer.stdout[-200000:] + answer.stderr[-50000:])
        document = json.loads(output.read_text()) if output.exists() else {"testsuites": []}
        figures, failed = {}, []
        for suite in document["testsuites"]:
            for test in suite["testsuite"]:
                name = f"{suite['name']}.{test['name']}"
                known = {"name", "file", "line", "status", "result", "timestamp", "time", "classname", "value_param",
                         "type_param", "failures"}
                figures[name] = {"result": "failed" if "failures" in test else test["result"].lower(), "time": test["time"],
                                 **{key: value for key, value in test.items() if key not in known}}
                if "failures" in test:
                    failed.append(f"{name}: {test['failures'][0]['failure'][:600]}")
        expect(answer.returncode == 0 and document["testsuites"], f"exit {answer.returncode}: {failed[:4]} {answer.stderr[-800:]}")
        return figures

    def real_models(self):
        """Magika and PP-OCR detection, their answers beside ONNX Runtime's (precomputed by prepare.sh)."""
        expected = self.work / "expected"
        cases = json.loads((expected / "cases.json").read_text()) if (expected / "cases.json").exists() else []
        repository, figures = self.repository("real"), {}
        with self.serve(repository, name="real-server") as server:
            for case in cases:
                if not self.add_model(repository, case["model"], case["model"], case.get("config", "")):
                    continue
                text = server.load(case["model"])
                expect(not text, f"{case['model']}: {text}")
                inputs = [(i["name"], i["datatype"], i["shape"], (expected / i["file"]).read_bytes()) for i in case["inputs"]]
                start = time.monotonic()
                outputs = server.infer(case["model"], inputs)
                seconds = time.monotonic() - start
                for output in case["outputs"]:
                    _, shape, got = outputs[output["name"]]
                    expect(shape == output["shape"], f"{case['model']}: shape {shape}, not {output['shape']}")
                    want = memoryview((expected / output["file"]).read_bytes()).cast("f")
                    got = memoryview(got).cast("f")
                    worst = max(abs(a - b) for a, b in zip(got, want))
                    figures[f"{case['model']} {shape}"] = {"largest_difference": worst, "largest_value": max(map(abs, want)),
                                                           "seconds": round(seconds, 4)}
                    expect(worst <= case["tolerance"], f"{case['model']}: differs by {worst}")
                expect(not server.unload(case["model"]), "the unload was refused")
        expect(figures, "no case was run")
        return figures

    def speed(self):
        """bench/gpu: the bare loop and the server over the same plan, in one run."""
        figures = {}
        self.bench = self.bin / "tidemark_gpu_bench"
        expect(self.bench.exists(), f"no {self.bench}")
        library = [] if self.fake else ["--library", self.work / "trt" / self.library_name()]
        for plan in ("addsub", "identity"):
            path = self.scratch / (plan + ".plan")
            path.write_bytes(self.plan_bytes(self.plan(plan)))
            answer = self.run([self.bench, "bare", "--plan", path, *library, *(["--quick"] if self.quick else [])], timeout=120)
            expect(answer.returncode == 0, f"bare {plan}: {answer.stderr[-800:]}")
            figures["bare " + plan] = json.loads(answer.stdout)
        figures["driver us"] = self.driver_times()
        repository = self.repository("speed")
        self.add_model(repository, "addsub", self.plan("addsub"), plans.PLATFORM + "max_batch_size: 64\n")
        self.add_model(repository, "graphs", self.plan("addsub"),
                       plans.PLATFORM + "max_batch_size: 64\noptimization { cuda { graphs: true } }\n")
        for instances, name in ((2, "batching"), (4, "batching4")):
            self.add_model(repository, name, self.plan("addsub"), plans.PLATFORM + "max_batch_size: 64\n"
                           "dynamic_batching { }\ninstance_group { kind: KIND_GPU count: %d }\n" % instances)
        self.add_model(repository, "identity", self.plan("identity"), self.identity_pbtxt())
        tensors = "".join(f'{side} {{ name: "{side.upper()}{i}" data_type: TYPE_FP32 dims: 16 }}\n'
                          for i in (0, 1) for side in ("input", "output"))
        for name, more in (("host", ""), ("hostbatching", "dynamic_batching { }\ninstance_group { kind: KIND_CPU count: 2 }\n")):
            folder = repository / name
            (folder / "1").mkdir(parents=True, exist_ok=True)
            (folder / "config.pbtxt").write_text('backend: "identity"\nmax_batch_size: 64\n' + tensors + more)
        with self.serve(repository, name="speed-server") as server:
            figures["loads"] = {model: self.load_times(server, model, library) for model in ("addsub", "identity")}
            for model, connections in (("addsub", (1, 8, 32)), ("graphs", (1,)), ("batching", (1, 8, 32, 128)), ("batching4", (128,)),
                                       ("identity", (1, 4)), ("host", (1, 32, 128)), ("hostbatching", (32, 128))):
                self.measure(server, model, connections, figures)
        # Where the processors are the limit, fewer event loops may leave more for the rest.
        for threads in (4, 8):
            with self.serve(repository, f"--http-thread-count={threads}", name=f"speed-server-{threads}") as server:
                self.measure(server, "batching", (32, 128), figures, f" with {threads} loops")
        figures["load_steps_us"] = self.load_steps(repository)
        return figures

    def load_times(self, server, model, library):
        """Milliseconds of loads and unloads over HTTP and of the bare steps, in turns: the processors of a rented machine are not
        as fast in one second as in the next."""
        bare, least, gone, loads, unloads = [], [], [], [], []
        for _ in range(2 if self.quick else 8):
            answer = self.run([self.bench, "loads", "--plan", self.scratch / (model + ".plan"), *library, "--count", 8], timeout=60)
            expect(answer.returncode == 0, f"bare {model}: {answer.stderr[-800:]}")
            times = json.loads(answer.stdout)
            bare.append(times["load"])
            least.append(times["least"])
            gone.append(times["delete"])
            for counts in [False] + [True] * (2 if self.quick else 8):  # the bare loop has a first one, too
                start = time.monotonic()
                text = server.load(model)
                between = time.monotonic()
                text = text or server.unload(model)
                expect(not text, text)
                if counts:
                    loads.append((between - start) * 1000)
                    unloads.append((time.monotonic() - between) * 1000)
        both = [sum(pair) for pair in zip(loads, unloads)]
        return {name: round(value, 2) for name, value in (
            ("load", statistics.median(loads)), ("least_load", min(loads)), ("unload", statistics.median(unloads)),
            ("both", statistics.median(both)), ("least_both", min(both)),
            ("bare_load", statistics.median(bare)), ("bare_least_load", min(least)), ("bare_delete", statistics.median(gone)))}

    def measure(self, server, model, connections, figures, what="", tensors=None):
        """`tensors`: names of the inputs, datatype and shape; default: those of the plan "identity" or "addsub"."""
        text = server.load(model)
        expect(not text, f"{model}: {text}")
        names, datatype, shape = tensors or ((["INPUT"], "FP32", [16777216]) if model == "identity" else (["INPUT0", "INPUT1"], "FP32", [1, 16]))
        for count in connections:
            before, cpu = self.server_stats(server, model), cpu_seconds(server.process.pid)
            answer = self.run([self.bench, "load", "--port", server.port, "--model", model, "--inputs", ",".join(names), "--datatype", datatype,
                               "--shape", ",".join(map(str, shape)), "--connections", count, "--seconds", 0.3 if self.quick else 3], timeout=120)
            expect(answer.returncode == 0, f"{model} x {count}: {answer.stderr[-800:]}")
            after = self.server_stats(server, model)
            done = max(1, after["success"][0] - before["success"][0])
            inside = {name: round((after[name][1] - before[name][1]) / done / 1000, 2) for name in after}
            executions = max(1, after["executions"][0] - before["executions"][0])
            inside.pop("executions")
            figures[f"{model} x {count}{what}"] = json.loads(answer.stdout) | {
                "mean_us_inside": inside, "mean_batch": round(done / executions, 2),
                "cpu_us_per_request": round((cpu_seconds(server.process.pid) - cpu) / done * 1e6, 1)}
        server.unload(model)

    THROUGHPUT = {
        # family: inputs, datatype, shape of an item, free dimensions' size, largest batch, connections
        "magika": (["bytes"], "INT32", [2048], 1, 32, (8, 16, 64, 128)),
        "ocrdet": (["x"], "FP32", [3, 640, 640], 640, 2, (8, 16)),
        "convbatch": (["INPUT"], "FP32", [3, 32, 32], 1, 32, (8, 64)),
        "addsub": (["INPUT0", "INPUT1"], "FP32", [16], 1, 64, (64,)),  # nothing to compute: HTTP is the limit
    }

    def throughput(self):
        """Where the engine is the limit: items a second of the server with dynamic batching over those of the bare loop at its best batch."""
        self.bench = self.bin / "tidemark_gpu_bench"
        library = ["--library", (self.fake or self.work / "trt") / self.library_name()]
        repository, figures = self.repository("throughput"), {}
        for family, (names, datatype, item, side, most, connections) in self.THROUGHPUT.items():
            if not self.add_model(repository, family, self.plan(family) if self.fake else self.plan_name(family),
                                  plans.PLATFORM + f"max_batch_size: {most}\ndynamic_batching {{ }}\n"
                                  "instance_group { kind: KIND_GPU count: 2 }\n"):
                continue
            batches = [batch for batch in (1, 2, 8, 16, 32, 64) if batch <= most]
            answer = self.run([self.bench, "rates", "--plan", repository / family / "1" / "model.plan", *library, "--side", side,
                               "--batches", ",".join(map(str, batches)), *(["--quick"] if self.quick else [])], timeout=120)
            expect(answer.returncode == 0, f"bare {family}: {answer.stderr[-800:]}")
            loops = json.loads(answer.stdout)["loops"]
            best = max(loops, key=lambda loop: loop["items_per_second"])
            figures[family] = {"bare": loops, "served": {}}
            with self.serve(repository, name=f"throughput-{family}") as server:
                measured = {}
                self.measure(server, family, connections, measured, tensors=(names, datatype, [1, *item]))
            for count, one in zip(connections, measured.values()):
                expect(one["errors"] == 0, f"{family} x {count}: {one['errors']} errors")
                near = min(loops, key=lambda loop: abs(loop["batch"] - one["mean_batch"]))
                figures[family]["served"][count] = one | {
                    "over_bare": round(one["per_second"] / best["items_per_second"], 3),
                    "over_bare_of_its_batch": round(one["per_second"] / near["items_per_second"], 3), "its_batch": near["batch"]}
        expect(figures, "no plan was run")
        return figures

    def plan_name(self, family):
        """The plan of a family in its plain form, or under the family's own name."""
        return family if (self.plans / f"{family}.plan").exists() else self.plan(family)

    def driver_times(self):
        """Medians in microseconds of what an unload asks NVML, and of what it must not ask."""
        return Nvml().times(5 if self.quick else 40)

    def load_steps(self, repository):
        """What each step of a warm load and unload takes, by the server's own verbose log: {step: median us}."""
        figures = {}
        for model in ("addsub", "identity"):
            with self.serve(repository, "--log-verbose=1", name=f"steps-{model}") as server:
                for _ in range(3 if self.quick else 12):
                    text = server.load(model) or server.unload(model)
                    expect(not text, text)
                steps = {}
                for what, rest in re.findall(r"timing of an? (\w+): (.*)", server.log()):
                    for step, value in re.findall(r"([a-zA-Z -]+) (\d+) us", rest):
                        steps.setdefault(f"{what}: {step.strip()}", []).append(int(value))
                figures[model] = {step: round(statistics.median(values[1:] or values)) for step, values in steps.items()}
        return figures

    @staticmethod
    def server_stats(server, model):
        """{what: (count, nanoseconds)} of a model since it was loaded."""
        found = server.get(f"/v2/models/{model}/stats")[1]["model_stats"][0]
        stats = found["inference_stats"]
        return {name: (int(stats[name]["count"]), int(stats[name]["ns"]))
                for name in ("success", "queue", "compute_input", "compute_infer", "compute_output")} | {
                    "executions": (int(found["execution_count"]), 0)}

    def ratios(self):
        """What the server adds to the bare loop of the same plan, and the marks to beat."""
        found = self.results["sections"].get("speed", {}).get("figures") or {}
        expect("bare addsub" in found, "no speed was measured")
        bare, big = found["bare addsub"], found["bare identity"]
        one = next(loop for loop in bare["loops"] if loop["batch"] == 1)
        many = max(loop["items_per_second"] for loop in bare["loops"])
        fastest = max(found[name]["per_second"] for name in found if name.startswith(("batching", "addsub x")))
        loads = found["loads"]["addsub"]
        rows = {
            "server's time beyond the bare loop, 1 connection": (found["addsub x 1"]["mean_us_inside"]["success"] - one["us"], "<= 20 us"),
            "p50 over HTTP, 1 connection (us)": (min(found[name]["p50_us"] for name in ("addsub x 1", "graphs x 1")), "<= 80"),
            "requests/s over HTTP": (fastest, ">= 150000"),
            "requests/s over the bare loop's items/s": (fastest / many, "HTTP is the limit here: see Throughput of TensorRT 10.6"),
            "H2D from pinned memory (GB/s)": (big["h2d_gb_per_s"], ">= 50"),
            "D2H to pinned memory (GB/s)": (big["d2h_gb_per_s"], ">= 50"),
            "load over deserialize + context": (loads["load"] / loads["bare_load"], "<= 1.3"),
            "the least of each": (loads["least_load"] / loads["bare_least_load"], "<= 1.3"),
            "load and unload of add/sub (ms)": (loads["both"], "<= 11"),
            "64 MiB in and out over HTTP, p50 (ms)": (found["identity x 1"]["p50_us"] / 1000, "<= 40"),
        }
        return {name: {"value": round(value, 3), "wanted": wanted} for name, (value, wanted) in rows.items()}

    # --- the parts ---------------------------------------------------------------------------------------------------

    def plan_names(self):
        if self.fake:
            return [name for name in plans.FAMILIES if plans.fake_plan(name)]
        # What the lean runtime has runners for (tests/gpu/README.md); the others are the full library's.
        skipped = {"identity.hw", "type_int32.plain", "shapein.plain", "type_fp8.plain", self.plan("type_fp8")} if self.part == "lean" else set()
        names = sorted(path.name[:-5] for path in self.plans.glob("*.plan"))
        return [name for name in names if name.split(".")[0] in plans.FAMILIES and name not in skipped]

    def main(self):
        self.section("environment", self.environment)
        self.section("answers", lambda: self.answers(self.plan_names()))
        if self.part == "lean":
            self.section("scenario", self.scenario)
            self.section("control", self.control)
            self.section("core", self.core)
            self.section("cycles", self.cycles)
            self.section("speed", self.speed)
            self.section("ratios", self.ratios)
            self.section("traffic", self.traffic)
            self.section("instances", self.instances)
            self.section("gpus", self.gpus)
            self.section("shared_memory", self.shared_memory)
            self.section("graphs", self.graphs)
            self.section("memory_limit", self.memory_limit)
            self.section("out_of_memory", self.out_of_memory)
            self.section("fp8", self.fp8)
        else:
            self.section("real_models", self.real_models)
            self.section("throughput", self.throughput)
            self.section("scenario", self.scenario)
            self.section("core", self.core)
            self.section("graphs", self.graphs)
        outcomes = [entry["outcome"] for entry in self.results["sections"].values()]
        passed = outcomes.count("passed")
        print(f"{passed} passed, {len(outcomes) - passed} failed", flush=True)
        return 0 if passed == len(outcomes) else 1


def slope(values):
    """Theil-Sen's slope of the values over their index."""
    step = max(1, len(values) // 60)
    points = list(enumerate(values))[::step]
    return statistics.median((b - a) / (j - i) for k, (i, a) in enumerate(points) for j, b in points[k + 1:])


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def trim_text(document, limit=4000):
    text = json.dumps(document)
    return document if len(text) <= limit else text[:limit]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["lean", "trt10"])
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--bin", help="where the programs are (WORK/bin)")
    parser.add_argument("--fake", type=pathlib.Path, help="the folder of the fake libraries")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--only", help="sections, separated by commas")
    options = parser.parse_args()
    if options.fake and "FAKE_GPU_STATE" not in os.environ:
        # The loader reads LD_LIBRARY_PATH once, at the start: begin again with it, for NVML in this process.
        options.work.mkdir(parents=True, exist_ok=True)
        os.environ["FAKE_GPU_STATE"] = str((options.work / "gpu-state").resolve())
        os.environ["LD_LIBRARY_PATH"] = str(options.fake.resolve())
        os.execv(sys.executable, [sys.executable, *sys.argv])
    return Run(options).main()


if __name__ == "__main__":
    sys.exit(main())
