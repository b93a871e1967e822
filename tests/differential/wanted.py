"""Differences on purpose, by their rows in docs/compatibility.md: {row: {case: (our status, part of our text)}}.

SAME: our text begins with the peer's, only the status is another one.
"""

SAME = None
BAD_JSON = (400, SAME)

ROWS = {
    "malformed JSON, wrong JSON types, missing members, wrong number of elements in `data` (any route)": dict.fromkeys(
        ("shape.negative", "shape.text", "data.long", "data.string", "data.fraction", "data.null", "data.bool.as.int", "data.no.array",
         "data.scalar", "data.uint.negative", "data.bool.number", "data.bytes.number", "json.empty.object", "json.broken", "json.word",
         "json.array", "json.trailing", "json.comma", "json.inputs.object", "json.inputs.null", "json.no.name", "json.no.datatype",
         "json.no.shape", "json.id.number", "json.params.list", "json.sequence.start.text", "json.priority.text", "json.timeout.negative",
         "json.binary.output.text", "json.outputs.object", "json.output.no.name", "classification.text", "binary.data.text", "header.half",
         "gzip.error.is.plain", "index.broken", "load.broken", "logging.empty", "logging.text", "logging.level.negative", "trace.empty",
         "trace.rate.number", "trace.level.text", "load.parameter.number", "shm.register.empty", "generate.empty", "generate.broken"),
        BAD_JSON),
    "load of a model that is in no repository (`failed to load 'M', failed to poll from model repository`)": {
        "load.none": (404, SAME)},
    "load override that is refused": {
        "load.config.broken": (400, SAME),
        "load.file.alone": (400, SAME)},
    "unknown load parameter; a load parameter that is no string": {
        "load.parameter.unknown": (400, SAME)},
    "`unload_dependents` that is no boolean; malformed body of an unload": {
        "unload.broken": (400, "failed to parse the request JSON buffer"),
        "unload.dependents.text": (400, "Unable to parse 'unload_dependents'")},
    "shared-memory key that cannot be opened": {"shm.register": (400, SAME)},
    "body of an unload's answer": dict.fromkeys(("unload", "unload.again", "unload.none"), (200, "{'unload': {'model': ")),
    "bad `log_format`": {"logging.format": (400, SAME)},
    "body announced as gzip or deflate that is none, is cut, or is followed by other bytes": {
        "gzip.none": (400, "encountered inconsistent stream state during decompression: incorrect header check"),
        "gzip.cut": (400, "encountered inconsistent stream state during decompression: the stream is cut off")},
    "`Inference-Header-Content-Length: 96x`, `abc`, or empty": {
        "header.word": (400, "Unable to parse Inference-Header-Content-Length, got: abc"),
        "header.empty": (400, "Unable to parse Inference-Header-Content-Length, got: "),
        "header.garbage": (400, "Unable to parse Inference-Header-Content-Length, got: ")},
    "integer in JSON data outside its type's range": {
        "data.overflow": (400, "value 2147483648 of input 'INPUT0' is out of range for datatype INT32"),
        "data.int8.overflow": (400, "value 128 of input 'INPUT0' is out of range for datatype INT8")},
    "finite JSON number too big for FP32, FP64, FP16 or BF16": {
        "data.fp32.huge": (400, "value 1e39 of input 'INPUT0' is out of range for datatype FP32")},
    "FP16 and BF16 in JSON, both ways": {
        "fp16.json": (200, "[1.0]"),
        "binary.fp16.to.json": (200, "[1.5, -2.0]")},
    "FP32 outputs": {"good.fp32.tenth": (200, "[0.1]")},
    "list of missing inputs when too many were given": {
        "too.many.inputs": (400, "missing required input(s) []. Please provide")},
    "trace numbers with trailing garbage (`\"10abc\"`)": {"trace.rate.garbage": (400, "Unable to parse 'trace_rate', got: 10abc")},
    "an element of `inputs` that is no object": {
        "json.input.number": (400, "Unable to parse 'name': attempt to access non-existing object member 'name'")},
    "order of outputs in an answer": {
        "pair.swapped.outputs": (200, "[{'name': 'OUTPUT1'"),
        "binary.pair": (200, '"outputs":[{"name":"OUTPUT1"')},
    "raw request whose size does not fit": {
        "raw.size": (400, "input byte size mismatch for input 'INPUT0' for model 'fixed'. Expected 16, got 12"),
        "raw.odd": (400, "input byte size mismatch for input 'INPUT0' for model 'int32'. Expected 0, got 3")},
    # What 2.73 answers otherwise than 2.51, the newest version that there is as a wheel.
    "readiness of a model or version that is not known": dict.fromkeys(
        ("model.none.ready", "model.none.version.ready", "model.unloaded.ready", "model.unloaded.version.ready", "version.0.ready",
         "version.2.ready"), (404, "Request for unknown model: ")),
    "trace settings of a model that is not known": {"trace.none": (404, "Request for unknown model: 'none' is not found")},
    "output that is named twice": {"pair.outputs.twice": (400, "output 'OUTPUT0' already exists in request")},
    "fewer elements in `data` than the shape says": {
        "data.short": (400, "Failed to parse 'data' field: shape does not match true shape")},
    "more than 100 nested arrays in `data`": {
        "data.too.deep": (400, "Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)")},
    "shape with more than 2⁶³ elements": {"shape.huge": (400, "causes total element count to exceed maximum size of 9223372036854775807")},
    "`Inference-Header-Content-Length` beyond 32 bits": {
        "header.huge": (400, "value is out of range [ -2147483648, 2147483647 ], got: 99999999999")},
    "`ready` of an index request that is no boolean": {"index.ready.text": (400, "Invalid value for 'ready': expected a boolean")},
    "model name with `..` in a load": {"load.traversal": (400, "model name must not contain path traversal characters")},
    "negative trace rate": {"trace.rate.negative": (400, "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1")},
}

WANTED = {case: (row, expected) for row, differences in ROWS.items() for case, expected in differences.items()}
