"""Requests that both servers are asked: (name, method, path, headers, body)."""

import gzip
import json
import struct
import zlib


def tensor(name="INPUT0", datatype="INT32", shape=(4,), data=(1, 2, 3, 4), **more):
    document = {"name": name, "datatype": datatype, "shape": list(shape)}
    if data is not None:
        document["data"] = data if isinstance(data, (list, dict, str, int)) else list(data)
    return document | more


def request(*inputs, **more):
    return json.dumps({"inputs": list(inputs)} | more).encode()


def binary(*parts, **more):
    """Headers and body of a binary request; parts are (tensor, bytes)."""
    inputs = [dict(t, parameters={"binary_data_size": len(b)} | t.get("parameters", {})) for t, b in parts]
    head = request(*inputs, **more)
    return {"Inference-Header-Content-Length": str(len(head))}, head + b"".join(b for _, b in parts)


INTS = struct.pack("<4i", 1, -2, 3, 4)
GOOD = request(tensor())


def bytes_wire(*items):
    return b"".join(struct.pack("<I", len(item)) + item for item in items)


def cases():
    """Every case once; names are unique."""
    def get(name, path, method="GET", headers=None, body=None):
        return (name, method, path, headers or {}, body)

    def infer(name, body, model="int32", headers=None, path=None):
        return (name, "POST", path or f"/v2/models/{model}/infer", headers or {}, body)

    yield get("live", "/v2/health/live")
    yield get("ready", "/v2/health/ready")
    yield get("server", "/v2")
    yield get("server.query", "/v2?x=y")
    for name, path in {"slash": "/v2/", "live.slash": "/v2/health/live/", "models": "/v2/models", "root": "/", "v1": "/v1",
                       "case": "/V2", "double": "/v2//health/live", "encoded": "/v2/health/%6cive", "dots": "/v2/./health/live",
                       "model.slash": "/v2/models/int32/", "version.word": "/v2/models/int32/versions/v1",
                       "version.empty": "/v2/models/int32/versions/", "version.minus": "/v2/models/int32/versions/-1",
                       "trace.version": "/v2/models/int32/versions/1/trace/setting", "unknown.verb": "/v2/models/int32/explode",
                       "index.get.extra": "/v2/repository/index/x"}.items():
        yield get(f"path.{name}", path)
    for model in ("int32", "none", "unloaded"):
        for verb in ("", "/ready", "/config", "/stats"):
            yield get(f"model.{model}{verb.replace('/', '.')}", f"/v2/models/{model}{verb}")
        yield get(f"model.{model}.version.ready", f"/v2/models/{model}/versions/1/ready")
    for version in ("1", "01", "0", "2", "99999999999999999999"):
        for verb in ("", "/ready", "/config", "/stats"):
            yield get(f"version.{version}{verb.replace('/', '.')}", f"/v2/models/int32/versions/{version}{verb}")
    for name, method, path in (("live", "POST", "/v2/health/live"), ("ready", "PUT", "/v2/health/ready"), ("server", "POST", "/v2"),
                               ("infer", "GET", "/v2/models/int32/infer"), ("metadata", "DELETE", "/v2/models/int32"),
                               ("config", "POST", "/v2/models/int32/config"), ("stats", "POST", "/v2/models/stats"),
                               ("index", "GET", "/v2/repository/index"), ("load", "GET", "/v2/repository/models/int32/load"),
                               ("logging", "DELETE", "/v2/logging"), ("trace", "PUT", "/v2/trace/setting"),
                               ("options", "OPTIONS", "/v2/health/live"), ("patch", "PATCH", "/v2/models/int32/infer"),
                               ("shm", "POST", "/v2/systemsharedmemory/status"), ("unknown", "POST", "/v2/nothing")):
        yield get(f"method.{name}", path, method)

    yield infer("good", GOOD)
    yield infer("good.version", GOOD, path="/v2/models/int32/versions/1/infer")
    yield infer("good.id", request(tensor(), id="an id \u00e9\n"))
    yield infer("good.nested", request(tensor(shape=(4,), data=[[1, 2], [3, 4]])))
    yield infer("good.params", request(tensor(), parameters={"a": "b", "c": 1, "d": True}))
    yield infer("good.double.param", request(tensor(), parameters={"a": 1.5}))
    yield infer("good.outputs", request(tensor(), outputs=[{"name": "OUTPUT0"}]))
    yield infer("good.outputs.binary", request(tensor(), outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}}]))
    yield infer("good.binary.output", request(tensor(), parameters={"binary_data_output": True}))
    yield infer("good.content.type", GOOD, headers={"Content-Type": "text/nonsense"})
    yield infer("good.extra.members", request(tensor(), comment={"x": [1, None]}))
    yield infer("good.fp32", request(tensor(datatype="FP32", data=[0.5, -1, 1e10, 3])), "fp32")
    yield infer("good.fp32.tenth", request(tensor(datatype="FP32", shape=(1,), data=[0.1])), "fp32")
    yield infer("good.fp64", request(tensor(datatype="FP64", shape=(2,), data=[0.1, 1e300])), "fp64")
    yield infer("good.bool", request(tensor(datatype="BOOL", shape=(2,), data=[True, False])), "bool")
    yield infer("good.uint8", request(tensor(datatype="UINT8", shape=(2,), data=[0, 255])), "uint8")
    yield infer("good.int64", request(tensor(datatype="INT64", shape=(2,), data=[2**63 - 1, -2**63])), "int64")
    yield infer("good.bytes", request(tensor(datatype="BYTES", shape=(3,), data=["a", "", "\u00e9\u0000\""])), "bytes")
    yield infer("good.empty", request(tensor(shape=(0,), data=[])))
    yield infer("nan", b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[3],"data":[NaN,Infinity,-Infinity]}]}', "fp32")
    yield infer("batch.good", request(tensor(shape=(2, 2), data=[1, 2, 3, 4])), "batch")
    yield infer("batch.too.large", request(tensor(shape=(5, 2), data=list(range(10)))), "batch")
    yield infer("batch.no.shape", request(tensor(shape=(), data=[1])), "batch")
    yield infer("batch.wrong", request(tensor(shape=(1, 3), data=[1, 2, 3])), "batch")
    yield infer("batch.rank", request(tensor(shape=(2,), data=[1, 2])), "batch")
    yield infer("pair.good", request(tensor(), tensor("INPUT1", data=[5, 6, 7, 8])), "pair")
    yield infer("pair.swapped.outputs", request(tensor(), tensor("INPUT1", data=[5, 6, 7, 8]),
                                                outputs=[{"name": "OUTPUT1"}, {"name": "OUTPUT0"}]), "pair")
    yield infer("pair.missing", request(tensor()), "pair")
    yield infer("pair.none", request(), "pair")
    yield infer("pair.unknown", request(tensor(), tensor("INPUT7")), "pair")
    yield infer("pair.twice", request(tensor(), tensor()), "pair")
    yield infer("pair.outputs.twice", request(tensor(), tensor("INPUT1"), outputs=[{"name": "OUTPUT0"}, {"name": "OUTPUT0"}]), "pair")
    yield infer("output.unknown", request(tensor(), outputs=[{"name": "NOPE"}]))
    yield infer("fixed.wrong", request(tensor(shape=(3,), data=[1, 2, 3])), "fixed")
    yield infer("fixed.rank", request(tensor(shape=(1, 4))), "fixed")
    yield infer("too.many.inputs", request(tensor(), tensor("INPUT1")))
    yield infer("no.such.model", GOOD, "none")
    yield infer("unloaded.model", GOOD, "unloaded")
    yield infer("no.such.version", GOOD, path="/v2/models/int32/versions/2/infer")
    yield infer("dtype.mismatch", request(tensor(datatype="FP32")))
    yield infer("dtype.unknown", request(tensor(datatype="INT31")))
    yield infer("dtype.case", request(tensor(datatype="int32")))
    yield infer("shape.negative", request(tensor(shape=(-1,))))
    yield infer("shape.huge", request(tensor(shape=(2**62, 4))))
    yield infer("shape.text", request(tensor(shape=("4",))))
    yield infer("data.short", request(tensor(data=[1, 2, 3])))
    yield infer("data.long", request(tensor(data=[1, 2, 3, 4, 5])))
    yield infer("data.string", request(tensor(data=["1", "2", "3", "4"])))
    yield infer("data.fraction", request(tensor(data=[1.5, 2, 3, 4])))
    yield infer("data.null", request(tensor(data=[None, 2, 3, 4])))
    yield infer("data.bool.as.int", request(tensor(data=[True, 2, 3, 4])))
    yield infer("data.no.array", request(tensor(data={"a": 1})))
    yield infer("data.scalar", request(tensor(data=7)))
    yield infer("data.overflow", request(tensor(data=[2**31, 0, 0, 0])))
    yield infer("data.int8.overflow", request(tensor(datatype="INT8", shape=(1,), data=[128])), "int8")
    yield infer("data.uint.negative", request(tensor(datatype="UINT8", shape=(1,), data=[-1])), "uint8")
    yield infer("data.bool.number", request(tensor(datatype="BOOL", shape=(1,), data=[1])), "bool")
    yield infer("data.bytes.number", request(tensor(datatype="BYTES", shape=(1,), data=[1])), "bytes")
    yield infer("data.bytes.few", request(tensor(datatype="BYTES", shape=(2,), data=["a"])), "bytes")
    yield infer("data.bytes.many", request(tensor(datatype="BYTES", shape=(1,), data=["a", "b"])), "bytes")
    yield infer("data.deep", request(tensor(shape=(1,), data=json.loads("[" * 99 + "1" + "]" * 99))))
    yield infer("data.too.deep", request(tensor(shape=(1,), data=json.loads("[" * 101 + "1" + "]" * 101))))
    yield infer("data.fp32.huge", b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1e39]}]}', "fp32")
    yield infer("fp16.json", request(tensor(datatype="FP16", shape=(1,), data=[1])), "fp16")
    yield infer("no.data", request(tensor(data=None)))
    yield infer("two.sources", request(tensor(parameters={"binary_data_size": 16})))
    yield infer("shm.unknown", request(tensor(data=None, parameters={"shared_memory_region": "r", "shared_memory_byte_size": 16})))
    yield infer("json.empty.object", b"{}")
    yield infer("json.broken", b"{")
    yield infer("json.word", b"nonsense")
    yield infer("json.array", b"[]")
    yield infer("json.trailing", GOOD + b"x")
    yield infer("json.comma", b'{"inputs":[],}')
    yield infer("json.inputs.object", b'{"inputs":{}}')
    yield infer("json.inputs.null", b'{"inputs":null}')
    yield infer("json.input.number", b'{"inputs":[1]}')
    yield infer("json.no.name", b'{"inputs":[{"datatype":"INT32","shape":[1],"data":[1]}]}')
    yield infer("json.no.datatype", b'{"inputs":[{"name":"INPUT0","shape":[1],"data":[1]}]}')
    yield infer("json.no.shape", b'{"inputs":[{"name":"INPUT0","datatype":"INT32","data":[1]}]}')
    yield infer("json.id.number", request(tensor(), id=7))
    yield infer("json.params.list", request(tensor(), parameters=[1]))
    yield infer("json.param.null", request(tensor(), parameters={"a": None}))
    yield infer("json.param.object", request(tensor(), parameters={"a": {}}))
    yield infer("json.param.reserved", request(tensor(), parameters={"triton_x": 1}))
    yield infer("json.sequence.start.text", request(tensor(), parameters={"sequence_start": "yes"}))
    yield infer("json.priority.text", request(tensor(), parameters={"priority": "high"}))
    yield infer("json.timeout.negative", request(tensor(), parameters={"timeout": -1}))
    yield infer("json.binary.output.text", request(tensor(), parameters={"binary_data_output": "yes"}))
    yield infer("json.outputs.object", request(tensor(), outputs={}))
    yield infer("json.output.no.name", request(tensor(), outputs=[{}]))
    yield infer("classification", request(tensor(datatype="FP32", data=[0.5, 3, -1, 2]),
                                          outputs=[{"name": "OUTPUT0", "parameters": {"classification": 2}}]), "fp32")
    yield infer("classification.zero", request(tensor(), outputs=[{"name": "OUTPUT0", "parameters": {"classification": 0}}]))
    yield infer("classification.many", request(tensor(), outputs=[{"name": "OUTPUT0", "parameters": {"classification": 9}}]))
    yield infer("classification.text", request(tensor(), outputs=[{"name": "OUTPUT0", "parameters": {"classification": "2"}}]))
    yield infer("classification.binary", request(tensor(), outputs=[{"name": "OUTPUT0", "parameters": {"classification": 2, "binary_data": True}}]))
    yield infer("binary.data.text", request(tensor(), outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": "x"}}]))

    def packed(name, parts, model="int32", more=None, headers=None, tail=b""):
        head, body = binary(*parts, **(more or {}))
        return infer(name, body + tail, model, head | (headers or {}))

    yield packed("binary.good", [(tensor(data=None), INTS)])
    yield packed("binary.both", [(tensor(data=None), INTS)], more={"parameters": {"binary_data_output": True}})
    yield packed("binary.pair", [(tensor(data=None), INTS), (tensor("INPUT1", data=None), INTS)], "pair",
                 {"outputs": [{"name": "OUTPUT1", "parameters": {"binary_data": True}}, {"name": "OUTPUT0"}]})
    yield packed("binary.bytes", [(tensor(datatype="BYTES", shape=(2,), data=None), bytes_wire(b"\x00a", b""))], "bytes",
                 {"parameters": {"binary_data_output": True}})
    yield packed("binary.bytes.cut.prefix", [(tensor(datatype="BYTES", shape=(2,), data=None), bytes_wire(b"a") + b"\1\0")], "bytes")
    yield packed("binary.bytes.few", [(tensor(datatype="BYTES", shape=(3,), data=None), bytes_wire(b"a", b"b"))], "bytes")
    yield packed("binary.bytes.many", [(tensor(datatype="BYTES", shape=(1,), data=None), bytes_wire(b"a", b"b"))], "bytes")
    yield packed("binary.fp16", [(tensor(datatype="FP16", shape=(2,), data=None), b"\x00\x3e\x00\xc0")], "fp16",
                 {"parameters": {"binary_data_output": True}})
    yield packed("binary.fp16.to.json", [(tensor(datatype="FP16", shape=(2,), data=None), b"\x00\x3e\x00\xc0")], "fp16")
    yield packed("binary.short", [(tensor(data=None), INTS[:12])])
    yield packed("binary.long", [(tensor(data=None), INTS + INTS)])
    yield packed("binary.trailing", [(tensor(data=None), INTS)], tail=b"xx")
    yield packed("binary.missing", [(tensor(data=None), INTS), (tensor("INPUT1", data=None, parameters={"binary_data_size": 16}), b"")], "pair")
    yield packed("binary.empty", [(tensor(shape=(0,), data=None), b"")], more={"parameters": {"binary_data_output": True}})
    head, body = binary((tensor(data=None), INTS))
    for name, value in {"word": "abc", "empty": "", "negative": "-1", "beyond": str(len(body) + 1), "huge": "99999999999",
                        "half": str(len(body) // 2), "garbage": str(len(body) - 16) + "x", "blank": " " + str(len(body) - 16)}.items():
        yield infer(f"header.{name}", body, headers={"Inference-Header-Content-Length": value})
    yield infer("raw.good", INTS, "fixed", {"Inference-Header-Content-Length": "0"})
    yield infer("raw.variable", INTS, headers={"Inference-Header-Content-Length": "0"})
    yield infer("raw.pair", INTS, "pair", {"Inference-Header-Content-Length": "0"})
    yield infer("raw.size", INTS[:12], "fixed", {"Inference-Header-Content-Length": "0"})
    yield infer("raw.odd", INTS[:3], headers={"Inference-Header-Content-Length": "0"})
    yield infer("empty.body", b"")
    yield infer("gzip.in", gzip.compress(GOOD), headers={"Content-Encoding": "gzip"})
    yield infer("deflate.in", zlib.compress(GOOD), headers={"Content-Encoding": "deflate"})
    yield infer("gzip.as.deflate", gzip.compress(GOOD), headers={"Content-Encoding": "deflate"})
    yield infer("gzip.out", GOOD, headers={"Accept-Encoding": "gzip"})
    yield infer("deflate.out", GOOD, headers={"Accept-Encoding": "deflate"})
    for name, value in {"weights": "gzip;q=0.5, deflate", "blank": "gzip; q=0.5", "star": "*", "identity": "identity, gzip",
                        "tie": "deflate,gzip", "zero": "gzip;q=0", "case": "GZIP", "br": "br, gzip;q=0.1", "nonsense": ";;,=q"}.items():
        yield infer(f"accept.{name}", GOOD, headers={"Accept-Encoding": value})
    yield infer("gzip.both.binary", gzip.compress(body), headers=head | {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"})
    yield infer("gzip.error.is.plain", b"{", headers={"Accept-Encoding": "gzip"})
    yield infer("encoding.unknown", GOOD, headers={"Content-Encoding": "br"})
    yield infer("encoding.case", GOOD, headers={"Content-Encoding": "GZIP"})
    yield infer("encoding.identity", GOOD, headers={"Content-Encoding": "identity"})
    yield infer("encoding.two", GOOD, headers={"Content-Encoding": "gzip, deflate"})
    yield infer("gzip.none", GOOD, headers={"Content-Encoding": "gzip"})
    yield infer("gzip.cut", gzip.compress(GOOD)[:-12], headers={"Content-Encoding": "gzip"})
    yield infer("gzip.empty", b"", headers={"Content-Encoding": "gzip"})

    def post(name, path, document=None, raw=None):
        body = raw if raw is not None else b"" if document is None else json.dumps(document).encode()
        return (name, "POST", path, {}, body)

    yield post("index", "/v2/repository/index")
    yield post("index.named", "/v2/repository/r/index")
    yield post("index.ready", "/v2/repository/index", {"ready": True})
    yield post("index.ready.text", "/v2/repository/index", {"ready": "yes"})
    yield post("index.broken", "/v2/repository/index", raw=b"{")
    yield post("load.again", "/v2/repository/models/spare/load")
    yield post("load.body", "/v2/repository/models/spare/load", {})
    yield post("load.none", "/v2/repository/models/none/load")
    yield post("load.traversal", "/v2/repository/models/../load")
    yield post("load.repository", "/v2/repository/r/models/spare/load")
    yield post("load.parameter.unknown", "/v2/repository/models/spare/load", {"parameters": {"nonsense": "x"}})
    yield post("load.parameter.number", "/v2/repository/models/spare/load", {"parameters": {"config": 7}})
    yield post("load.config.broken", "/v2/repository/models/spare/load", {"parameters": {"config": "{"}})
    yield post("load.file.alone", "/v2/repository/models/spare/load", {"parameters": {"file:1/model.py": "QQ=="}})
    yield post("load.broken", "/v2/repository/models/spare/load", raw=b"{")
    yield post("unload", "/v2/repository/models/spare/unload")
    yield post("unload.again", "/v2/repository/models/spare/unload")
    yield post("unload.none", "/v2/repository/models/none/unload")
    yield post("unload.repository", "/v2/repository/r/models/spare/unload")
    yield post("unload.broken", "/v2/repository/models/spare/unload", raw=b"{")
    yield post("unload.dependents.text", "/v2/repository/models/spare/unload", {"parameters": {"unload_dependents": "x"}})

    yield get("logging", "/v2/logging")
    yield post("logging.empty", "/v2/logging")
    yield post("logging.read", "/v2/logging", {})
    yield post("logging.set", "/v2/logging", {"log_verbose_level": 0, "log_info": True, "log_format": "default"})
    yield post("logging.null", "/v2/logging", {"log_info": None})
    yield post("logging.file", "/v2/logging", {"log_file": "/tmp/x"})
    yield post("logging.text", "/v2/logging", {"log_info": "yes"})
    yield post("logging.format", "/v2/logging", {"log_format": "pretty"})
    yield post("logging.unknown", "/v2/logging", {"log_colour": True})
    yield post("logging.level.negative", "/v2/logging", {"log_verbose_level": -1})
    yield get("trace", "/v2/trace/setting")
    yield get("trace.model", "/v2/models/int32/trace/setting")
    yield get("trace.none", "/v2/models/none/trace/setting")
    yield post("trace.empty", "/v2/trace/setting")
    yield post("trace.read", "/v2/trace/setting", {})
    yield post("trace.rate", "/v2/trace/setting", {"trace_rate": "500"})
    yield post("trace.rate.null", "/v2/trace/setting", {"trace_rate": None})
    yield post("trace.rate.number", "/v2/trace/setting", {"trace_rate": 5})
    yield post("trace.rate.word", "/v2/trace/setting", {"trace_rate": "abc"})
    yield post("trace.rate.garbage", "/v2/trace/setting", {"trace_rate": "10abc"})
    yield post("trace.rate.huge", "/v2/trace/setting", {"trace_rate": "99999999999"})
    yield post("trace.rate.negative", "/v2/trace/setting", {"trace_rate": "-1"})
    yield post("trace.reset", "/v2/trace/setting", {"trace_rate": None})
    yield post("trace.count.low", "/v2/trace/setting", {"trace_count": "-2"})
    yield post("trace.file", "/v2/trace/setting", {"trace_file": "/tmp/x"})
    yield post("trace.level.unknown", "/v2/trace/setting", {"trace_level": ["FOO"]})
    yield post("trace.level.off.and.on", "/v2/trace/setting", {"trace_level": ["OFF", "TIMESTAMPS"]})
    yield post("trace.level.text", "/v2/trace/setting", {"trace_level": "OFF"})
    yield post("trace.level.no.file", "/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]})
    yield post("trace.unknown", "/v2/trace/setting", {"trace_colour": "red"})
    yield post("trace.model.set", "/v2/models/int32/trace/setting", {"log_frequency": "7"})
    yield post("trace.model.clear", "/v2/models/int32/trace/setting", {"log_frequency": None})
    yield get("shm.status", "/v2/systemsharedmemory/status")
    yield get("shm.cuda.status", "/v2/cudasharedmemory/status")
    yield get("shm.region.status", "/v2/systemsharedmemory/region/r/status")
    yield post("shm.unregister", "/v2/systemsharedmemory/unregister")
    yield post("shm.unregister.one", "/v2/systemsharedmemory/region/r/unregister")
    yield post("shm.register", "/v2/systemsharedmemory/region/r/register", {"key": "/no_such_key", "byte_size": 64})
    yield post("shm.register.no.key", "/v2/systemsharedmemory/region/r/register", {"byte_size": 64})
    yield post("shm.register.no.region", "/v2/systemsharedmemory/register", {"key": "/k", "byte_size": 64})
    yield post("shm.register.empty", "/v2/systemsharedmemory/region/r/register")
    yield post("generate", "/v2/models/int32/generate", {"INPUT0": [1, 2, 3, 4]})
    yield post("generate.fixed", "/v2/models/fixed/generate", {"INPUT0": [1, 2, 3, 4]})
    yield post("generate.none", "/v2/models/none/generate", {"INPUT0": 1})
    yield post("generate.empty", "/v2/models/int32/generate")
    yield post("generate.broken", "/v2/models/int32/generate", raw=b"{")
    yield post("generate.unknown", "/v2/models/fixed/generate", {"NOPE": 1})
