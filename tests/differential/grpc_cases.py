"""gRPC calls that both servers are asked: (name, rpc, messages, metadata); a message may be plain bytes.

Every ModelInfer is asked once more as a ModelStreamInfer of one request, see test_grpc.py.
"""

import struct

import numpy as np
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import serialize_byte_tensor

SERVICE = "/inference.GRPCInferenceService/"
INTS = struct.pack("<4i", 1, -2, 3, 4)
VERSIONS = ("", "1", "01", "0", "2", "-1", "x", "1x", " 1", "+1", "99999999999999999999")
# datatype: (model, contents field, values, raw bytes)
TYPES = {
    "BOOL": ("bool", "bool_contents", [True, False], b"\1\0"),
    "INT8": ("int8", "int_contents", [-128, 127], b"\x80\x7f"),
    "UINT8": ("uint8", "uint_contents", [0, 255], b"\0\xff"),
    "INT32": ("int32", "int_contents", [-5, 7], struct.pack("<2i", -5, 7)),
    "INT64": ("int64", "int64_contents", [-2**63, 2**63 - 1], struct.pack("<2q", -2**63, 2**63 - 1)),
    "FP32": ("fp32", "fp32_contents", [0.1, float("inf")], struct.pack("<2f", 0.1, float("inf"))),
    "FP64": ("fp64", "fp64_contents", [0.1, 1e300], struct.pack("<2d", 0.1, 1e300)),
    "BYTES": ("bytes", "bytes_contents", [b"a\0", b""], b"\2\0\0\0a\0\0\0\0\0"),
}


def put(parameters, **values):
    for key, value in values.items():
        kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}.get(type(value))
        if kind is None:
            kind, value = value
        setattr(parameters[key], kind, value)


def infer(model="int32", raw=(INTS,), datatype="INT32", shape=(4,), version="", id="i", inputs=("INPUT0",), outputs=(), **parameters):
    request = pb.ModelInferRequest(model_name=model, model_version=version, id=id, raw_input_contents=list(raw))
    for name in inputs:
        request.inputs.add(name=name, datatype=datatype, shape=list(shape))
    for name in outputs:
        request.outputs.add(name=name)
    put(request.parameters, **parameters)
    return request


def changed(change, **made):
    request = infer(**made)
    change(request)
    return request


def typed(datatype, field, values, model, shape=None):
    request = infer(model, raw=(), datatype=datatype, shape=shape or (len(values),))
    getattr(request.inputs[0].contents, field).extend(values)
    return request


def region(name="INPUT0", outputs=(), raw=(), **parameters):
    """A request whose INPUT0 has these parameters and no data."""
    request = infer(raw=raw)
    put(request.inputs[0].parameters, **parameters)
    for output, more in outputs:
        put(request.outputs.add(name=output).parameters, **more)
    return request


def classify(value, model="fp32", datatype="FP32", raw=struct.pack("<4f", 0.5, 3, -1, 2), **more):
    request = infer(model, raw=(raw,), datatype=datatype, **more)
    put(request.outputs.add(name="OUTPUT0").parameters, classification=value)
    return request


def infer_cases():
    """(name, request)"""
    for datatype, (model, field, values, raw) in TYPES.items():
        yield f"raw.{datatype}", infer(model, raw=(raw,), datatype=datatype, shape=(2,))
        yield f"typed.{datatype}", typed(datatype, field, values, model)
        yield f"typed.few.{datatype}", typed(datatype, field, values[:1], model, (2,))
        yield f"typed.many.{datatype}", typed(datatype, field, values + values, model, (2,))
        yield f"raw.short.{datatype}", infer(model, raw=(raw[:-1],), datatype=datatype, shape=(2,))
        yield f"raw.long.{datatype}", infer(model, raw=(raw + b"x",), datatype=datatype, shape=(2,))
        wrong = "fp64_contents" if field != "fp64_contents" else "int_contents"
        yield f"typed.wrong.{datatype}", typed(datatype, wrong, [1], model, (1,))
    yield "raw.FP16", infer("fp16", raw=(b"\x00\x3e\x00\xc0",), datatype="FP16", shape=(2,))
    yield "typed.FP16", typed("FP16", "fp32_contents", [1.0], "fp16")
    yield "typed.FP16.bytes", typed("FP16", "bytes_contents", [b"\x00\x3e"], "fp16")
    yield "typed.int8.overflow", typed("INT8", "int_contents", [128], "int8")
    yield "typed.uint8.overflow", typed("UINT8", "uint_contents", [256], "uint8")
    yield "typed.two.arrays", changed(lambda r: (r.inputs[0].contents.int_contents.append(1), r.inputs[0].contents.fp32_contents.append(1)),
                                      raw=(), shape=(1,))
    yield "typed.empty", changed(lambda r: r.inputs[0].contents.SetInParent(), raw=(), shape=(0,))
    yield "typed.empty.with.raw", changed(lambda r: r.inputs[0].contents.SetInParent())
    yield "typed.with.raw", changed(lambda r: r.inputs[0].contents.int_contents.append(1))
    yield "raw.none", infer(raw=())
    yield "raw.surplus", infer(raw=(INTS, b"nobody wants this"))
    yield "raw.empty", infer(raw=(b"",), shape=(0,))
    yield "raw.empty.no.shape", infer(raw=(b"",), shape=())
    yield "raw.large", infer(raw=(bytes(1 << 20),), shape=(1 << 18,))
    for bad, raw in {"cut.prefix": b"\1\0\0\0a\1\0", "few": b"\1\0\0\0a", "many": b"\1\0\0\0a" * 3, "cut": b"\x09\0\0\0abc" + b"\0\0\0\0"}.items():
        yield f"bytes.{bad}", infer("bytes", raw=(raw,), datatype="BYTES", shape=(2,))
    yield "bytes.big", infer("bytes", raw=(serialize_byte_tensor(np.array([b"x" * 70000, b"\xff\0"], dtype=np.object_)).item(),),
                             datatype="BYTES", shape=(2,))
    yield "id.none", infer(id="")
    yield "id.odd", infer(id="an id é\n\"")
    for version in VERSIONS:
        yield f"version.{version}", infer(version=version)
    for model in ("none", "unloaded", ""):
        yield f"model.{model}", infer(model)
        yield f"model.{model}.version", infer(model, version="1")
    for kind, value in {"bool": True, "int": -7, "double": 1.5, "string": "v", "uint": ("uint64_param", 7), "nothing": None}.items():
        def give(request, key, value=value):
            if value is None:
                request.parameters[key].SetInParent()
            else:
                put(request.parameters, **{key: value})
        for key in ("custom", "sequence_id", "sequence_start", "sequence_end", "priority", "timeout",
                    "triton_enable_empty_final_response", "triton_x", "binary_data_output", "headers"):
            yield f"parameter.{key}.{kind}", changed(lambda r: give(r, key))
    yield "parameter.timeout.zero", infer(timeout=0)
    yield "parameter.priority.zero", infer(priority=0)
    yield "parameter.many", infer(a="b", c=1, d=True, e=0.5)
    yield "batch.good", infer("batch", shape=(2, 2))
    yield "batch.too.large", infer("batch", raw=(bytes(40),), shape=(5, 2))
    yield "batch.no.shape", infer("batch", raw=(bytes(4),), shape=())
    yield "batch.wrong", infer("batch", raw=(bytes(12),), shape=(1, 3))
    yield "batch.rank", infer("batch", raw=(bytes(8),), shape=(2,))
    yield "batch.zero", infer("batch", raw=(b"",), shape=(0, 2))
    both = ("INPUT0", "INPUT1")
    yield "pair.good", infer("pair", (INTS, INTS[::-1]), inputs=both)
    yield "pair.reversed", infer("pair", (INTS, INTS[::-1]), inputs=both[::-1])
    yield "pair.one.output", infer("pair", (INTS, INTS), inputs=both, outputs=("OUTPUT1",))
    yield "pair.swapped.outputs", infer("pair", (INTS, INTS), inputs=both, outputs=("OUTPUT1", "OUTPUT0"))
    yield "pair.outputs.twice", infer("pair", (INTS, INTS), inputs=both, outputs=("OUTPUT0", "OUTPUT0"))
    yield "pair.missing", infer("pair")
    yield "pair.none", infer("pair", raw=(), inputs=())
    yield "pair.unknown", infer("pair", (INTS, INTS), inputs=("INPUT0", "INPUT7"))
    yield "pair.twice", infer("pair", (INTS, INTS), inputs=("INPUT0", "INPUT0"))
    yield "pair.raw.missing", infer("pair", (INTS,), inputs=both)
    yield "pair.mixed", changed(lambda r: r.inputs[0].contents.int_contents.extend([1, 2, 3, 4]), model="pair", raw=(INTS,), inputs=both)
    yield "too.many.inputs", infer(raw=(INTS, INTS), inputs=both)
    yield "output.unknown", infer(outputs=("NOPE",))
    yield "output.no.name", infer(outputs=("",))
    yield "output.named", infer(outputs=("OUTPUT0",))
    yield "output.parameter.unknown", changed(lambda r: put(r.outputs.add(name="OUTPUT0").parameters, x="y"))
    yield "input.no.name", infer(inputs=("",))
    yield "input.parameter.unknown", changed(lambda r: put(r.inputs[0].parameters, x="y"))
    yield "fixed.good", infer("fixed")
    yield "fixed.wrong", infer("fixed", raw=(bytes(12),), shape=(3,))
    yield "fixed.rank", infer("fixed", shape=(1, 4))
    yield "datatype.other", infer(datatype="FP32")
    yield "datatype.unknown", infer(datatype="INT31")
    yield "datatype.none", infer(datatype="")
    yield "datatype.case", infer(datatype="int32")
    yield "shape.negative", infer(shape=(-1,))
    yield "shape.huge", infer(shape=(2**62, 4))
    yield "shape.very.huge", infer(shape=(2**62, 2**62))
    yield "shape.longer", infer(shape=(5,))
    for value in (1, 2, 4, 9, 0, -1, "2", True):
        yield f"classification.{value!r}", classify(value)
    yield "classification.int", classify(2, "int32", "INT32", INTS)
    yield "classification.batch", classify(1, "batch", "INT32", INTS, shape=(2, 2))
    yield "region.unknown", region(shared_memory_region="r", shared_memory_byte_size=16)
    yield "region.no.size", region(shared_memory_region="r")
    yield "region.kind", region(shared_memory_region=1)
    yield "region.size.kind", region(shared_memory_region="r", shared_memory_byte_size="16")
    yield "region.offset.kind", region(shared_memory_region="r", shared_memory_byte_size=16, shared_memory_offset="0")
    yield "region.offset.alone", region(shared_memory_offset=0, raw=(INTS,))
    yield "region.size.alone", region(shared_memory_byte_size=0, raw=(INTS,))
    yield "region.with.raw", region(shared_memory_region="r", shared_memory_byte_size=16, raw=(INTS,))
    yield "region.with.contents", changed(lambda r: (put(r.inputs[0].parameters, shared_memory_region="r", shared_memory_byte_size=16),
                                                     r.inputs[0].contents.int_contents.append(1)), raw=())
    yield "region.output.unknown", changed(lambda r: put(r.outputs.add(name="OUTPUT0").parameters, shared_memory_region="r",
                                                         shared_memory_byte_size=16))
    yield "region.output.classification", changed(lambda r: put(r.outputs.add(name="OUTPUT0").parameters, shared_memory_region="r",
                                                                shared_memory_byte_size=16, classification=1))
    yield "region.output.no.size", changed(lambda r: put(r.outputs.add(name="OUTPUT0").parameters, shared_memory_region="r"))
    yield "decoupled", repeat(1)
    yield "nothing", pb.ModelInferRequest()


def control_cases():
    """(name, rpc, message)"""
    yield "live", "ServerLive", pb.ServerLiveRequest()
    yield "ready", "ServerReady", pb.ServerReadyRequest()
    yield "server", "ServerMetadata", pb.ServerMetadataRequest()
    for rpc, kind in (("ModelReady", pb.ModelReadyRequest), ("ModelMetadata", pb.ModelMetadataRequest),
                      ("ModelConfig", pb.ModelConfigRequest), ("ModelStatistics", pb.ModelStatisticsRequest)):
        for version in VERSIONS:
            yield f"{rpc}.version.{version}", rpc, kind(name="int32", version=version)
        for model in ("none", "unloaded", ""):
            yield f"{rpc}.model.{model}", rpc, kind(name=model)
            yield f"{rpc}.model.{model}.version", rpc, kind(name=model, version="1")
    yield "index", "RepositoryIndex", pb.RepositoryIndexRequest()
    yield "index.ready", "RepositoryIndex", pb.RepositoryIndexRequest(ready=True)
    yield "index.named", "RepositoryIndex", pb.RepositoryIndexRequest(repository_name="r")

    def load(model="spare", repository="", **parameters):
        request = pb.RepositoryModelLoadRequest(model_name=model, repository_name=repository)
        put(request.parameters, **parameters)
        return request

    yield "load.again", "RepositoryModelLoad", load()
    yield "load.none", "RepositoryModelLoad", load("none")
    yield "load.empty", "RepositoryModelLoad", load("")
    yield "load.traversal", "RepositoryModelLoad", load("..")
    yield "load.repository", "RepositoryModelLoad", load(repository="r")
    yield "load.parameter.unknown", "RepositoryModelLoad", load(nonsense="x")
    yield "load.parameter.kind", "RepositoryModelLoad", load(config=7)
    yield "load.config.broken", "RepositoryModelLoad", load(config="{")
    yield "load.file.kind", "RepositoryModelLoad", load(**{"file:1/model.py": "x"})
    yield "load.file.alone", "RepositoryModelLoad", load(**{"file:1/model.py": ("bytes_param", b"x")})

    def unload(model="spare", repository="", **parameters):
        request = pb.RepositoryModelUnloadRequest(model_name=model, repository_name=repository)
        put(request.parameters, **parameters)
        return request

    yield "unload", "RepositoryModelUnload", unload()
    yield "unload.again", "RepositoryModelUnload", unload()
    yield "unload.none", "RepositoryModelUnload", unload("none")
    yield "unload.repository", "RepositoryModelUnload", unload(repository="r")
    yield "unload.dependents", "RepositoryModelUnload", unload(unload_dependents=True)
    yield "unload.dependents.kind", "RepositoryModelUnload", unload(unload_dependents="x")
    yield "unload.parameter.unknown", "RepositoryModelUnload", unload(nonsense="x")

    def log(**settings):
        request = pb.LogSettingsRequest()
        for key, (kind, value) in settings.items():
            setattr(request.settings[key], kind, value)
        return request

    yield "log.read", "LogSettings", log()
    yield "log.set", "LogSettings", log(log_info=("bool_param", True), log_verbose_level=("uint32_param", 0),
                                         log_format=("string_param", "default"))
    yield "log.iso", "LogSettings", log(log_format=("string_param", "ISO8601"))
    yield "log.back", "LogSettings", log(log_format=("string_param", "default"))
    yield "log.info.kind", "LogSettings", log(log_info=("string_param", "yes"))
    yield "log.warning.kind", "LogSettings", log(log_warning=("uint32_param", 1))
    yield "log.error.kind", "LogSettings", log(log_error=("string_param", "x"))
    yield "log.level.kind", "LogSettings", log(log_verbose_level=("bool_param", True))
    yield "log.format.kind", "LogSettings", log(log_format=("bool_param", True))
    yield "log.format", "LogSettings", log(log_format=("string_param", "pretty"))
    yield "log.file", "LogSettings", log(log_file=("string_param", "/tmp/x"))
    yield "log.unknown", "LogSettings", log(log_colour=("bool_param", True))

    def trace(model="", **settings):
        request = pb.TraceSettingRequest(model_name=model)
        for key, values in settings.items():
            request.settings[key].SetInParent()
            request.settings[key].value.extend(values)
        return request

    yield "trace.read", "TraceSetting", trace()
    yield "trace.model", "TraceSetting", trace("int32")
    yield "trace.none", "TraceSetting", trace("none")
    yield "trace.rate", "TraceSetting", trace(trace_rate=["500"])
    yield "trace.rate.clear", "TraceSetting", trace(trace_rate=[])
    yield "trace.rate.two", "TraceSetting", trace(trace_rate=["1", "2"])
    yield "trace.rate.word", "TraceSetting", trace(trace_rate=["abc"])
    yield "trace.rate.garbage", "TraceSetting", trace(trace_rate=["10abc"])
    yield "trace.rate.huge", "TraceSetting", trace(trace_rate=["99999999999"])
    yield "trace.rate.negative", "TraceSetting", trace(trace_rate=["-1"])
    yield "trace.reset", "TraceSetting", trace(trace_rate=[])
    yield "trace.count.low", "TraceSetting", trace(trace_count=["-2"])
    yield "trace.count.word", "TraceSetting", trace(trace_count=["x"])
    yield "trace.log.frequency", "TraceSetting", trace("int32", log_frequency=["7"])
    yield "trace.log.frequency.clear", "TraceSetting", trace("int32", log_frequency=[])
    yield "trace.file", "TraceSetting", trace(trace_file=["/tmp/x"])
    yield "trace.level.unknown", "TraceSetting", trace(trace_level=["FOO"])
    yield "trace.level.off.and.on", "TraceSetting", trace(trace_level=["OFF", "TIMESTAMPS"])
    yield "trace.level.clear", "TraceSetting", trace(trace_level=[])
    yield "trace.unknown", "TraceSetting", trace(trace_colour=["red"])
    for kind in ("System", "Cuda"):
        yield f"memory.{kind}.status", f"{kind}SharedMemoryStatus", getattr(pb, f"{kind}SharedMemoryStatusRequest")()
        yield f"memory.{kind}.status.unknown", f"{kind}SharedMemoryStatus", getattr(pb, f"{kind}SharedMemoryStatusRequest")(name="r")
        yield f"memory.{kind}.unregister", f"{kind}SharedMemoryUnregister", getattr(pb, f"{kind}SharedMemoryUnregisterRequest")()
        yield f"memory.{kind}.unregister.unknown", f"{kind}SharedMemoryUnregister", getattr(pb, f"{kind}SharedMemoryUnregisterRequest")(name="r")
    system = pb.SystemSharedMemoryRegisterRequest
    yield "memory.register.no.object", "SystemSharedMemoryRegister", system(name="r", key="/no_such_key", byte_size=64)
    yield "memory.register.no.key", "SystemSharedMemoryRegister", system(name="r", byte_size=64)
    yield "memory.register.no.name", "SystemSharedMemoryRegister", system(key="/no_such_key", byte_size=64)


def raw_cases():
    """(name, path, bytes)"""
    for rpc in ("ServerLive", "ModelMetadata", "ModelInfer", "RepositoryIndex", "RepositoryModelLoad", "LogSettings", "TraceSetting"):
        yield f"wire.{rpc}.garbage", SERVICE + rpc, b"\xff\xff\xff\xff"
        yield f"wire.{rpc}.cut", SERVICE + rpc, b"\x0a\x05ab"
        yield f"wire.{rpc}.unknown.field", SERVICE + rpc, b"\xa2\x06\x01x"
    for rpc in ("ModelMetadata", "ModelInfer", "RepositoryModelLoad"):
        yield f"wire.{rpc}.no.utf8", SERVICE + rpc, b"\x0a\x01\xff"
    yield "wire.ModelInfer.group", SERVICE + "ModelInfer", b"\x0b\x0c"
    yield "path.method", SERVICE + "Nothing", b""
    yield "path.service", "/other.Service/ModelInfer", b""
    yield "path.case", "/inference.grpcinferenceservice/ServerLive", b""
    yield "path.health", "/grpc.health.v1.Health/Check", b""
    yield "path.health.service", "/grpc.health.v1.Health/Check", b"\x0a\x03any"


def repeat(*values, id="1", version="", datatype="INT32", delays=None, **parameters):
    """A request that the decoupled model answers once for each value."""
    request = pb.ModelInferRequest(model_name="decoupled", model_version=version, id=id)
    for name, kind, data in (("IN", datatype, struct.pack(f"<{len(values)}i", *values)),
                             ("DELAY", "UINT32", struct.pack(f"<{len(values)}I", *(delays or [0] * len(values)))),
                             ("WAIT", "UINT32", bytes(4))):
        request.inputs.add(name=name, datatype=kind, shape=[len(data) // 4])
        request.raw_input_contents.append(data)
    put(request.parameters, **parameters)
    return request


def streams():
    """(name, [requests]): what one stream sends"""
    final = {"triton_enable_empty_final_response": True}
    yield "empty", []
    yield "three", [infer(id=str(i)) for i in range(3)]
    yield "errors.between", [infer(id="1"), infer("none", id="2"), infer(id="3"), infer(raw=(), id="4"), infer(id="5")]
    yield "models.mixed", [infer(id="1"), infer("fp32", datatype="FP32", id="2"), infer("fixed", id="3")]
    yield "final.wanted", [infer(id="1", **final)]
    yield "decoupled", [repeat(4, 2, 0)]
    yield "decoupled.final", [repeat(4, 2, 0, **final)]
    yield "decoupled.version", [repeat(7, version="1", **final)]
    yield "decoupled.none", [repeat()]
    yield "decoupled.none.final", [repeat(**final)]
    yield "decoupled.error", [repeat(3, -1)]
    yield "decoupled.error.final", [repeat(3, -1, version="1", **final)]
    yield "decoupled.refused", [repeat(3, datatype="FP32")]
    yield "decoupled.id.none", [repeat(3, id="", **final)]
