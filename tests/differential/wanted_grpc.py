"""Differences on purpose over gRPC, by their rows in docs/compatibility.md: {row: {case: (our code, part of our text)}}.

SAME: our text begins with the peer's. Of a stream the text is that of its one answer.
"""

from wanted import SAME

BAD = "INVALID_ARGUMENT"


def infer_and_stream(**cases):
    """What ModelInfer answers with an error ModelStreamInfer answers in the stream."""
    both = {}
    for name, (code, text) in cases.items():
        name = name.replace("__", ".")
        both |= {f"infer.{name}": (code, text), f"stream.{name}": ("OK", text)}
    return both


ROWS = {
    "load of a model that is in no repository": {"load.none": ("NOT_FOUND", SAME)},
    "load override that is refused": {"load.config.broken": (BAD, SAME), "load.file.alone": (BAD, SAME)},
    "trace numbers with trailing garbage (`\"10abc\"`)": {"trace.rate.garbage": (BAD, "Unable to parse 'trace_rate', got: 10abc")},
    "shared-memory key that cannot be opened": {
        "memory.register.no.object": (BAD, SAME), "memory.register.no.name": (BAD, SAME),
        "memory.register.no.key": (BAD, "cannot register shared memory region 'r' - invalid shm key ''")},
    "8- and 16-bit integers in typed contents outside their range": infer_and_stream(
        typed__int8__overflow=(BAD, "value 128 of input 'INPUT0' is out of range for datatype INT8"),
        typed__uint8__overflow=(BAD, "value 256 of input 'INPUT0' is out of range for datatype UINT8")),
    "BYTES tensor whose last string is cut short": infer_and_stream(bytes__cut=(BAD, "incomplete string data for inference input")),
    "order of outputs in an answer": infer_and_stream(pair__swapped__outputs=("OK", "'outputs': [{'name': 'OUTPUT1'")),
    "list of missing inputs when too many were given": infer_and_stream(
        too__many__inputs=(BAD, "missing required input(s) []. Please provide")),
    "batch without rows (`[0, …]`)": infer_and_stream(batch__zero=("OK", "'shape': ['0', '2']")),
    "a message that is no protobuf, or has strings that are no UTF-8": {
        f"wire.{rpc}.{kind}": (BAD, "the request is no ")
        for rpc in ("ServerLive", "ModelMetadata", "ModelInfer", "RepositoryIndex", "RepositoryModelLoad", "LogSettings", "TraceSetting")
        for kind in ("garbage", "cut", "no.utf8") if kind != "no.utf8" or rpc in ("ModelMetadata", "ModelInfer", "RepositoryModelLoad")},
    "a ModelInferRequest with groups, which proto3 has not": {"wire.ModelInfer.group": (BAD, "a field has an unknown type")},
    "unknown method": dict.fromkeys(("path.method", "path.service", "path.case"), ("UNIMPLEMENTED", "there is no method '/")),
    # What 2.73 answers otherwise than 2.51, the newest version that there is as a wheel.
    "readiness of a model or version that is not known": dict.fromkeys(
        [f"ModelReady.{which}" for which in ("version.0", "version.2", "model.none", "model.none.version", "model.unloaded",
                                             "model.unloaded.version", "model.", "model..version")],
        ("NOT_FOUND", "Request for unknown model: ")),
    "model name with `..` in a load": {"load.traversal": (BAD, "model name must not contain path traversal characters")},
    "load without a model's name": dict.fromkeys(
        ("load.empty", "wire.RepositoryModelLoad.unknown.field"), (BAD, "Model name cannot be empty. Please enter a valid name to deploy.")),
    "trace settings of a model that is not known": {"trace.none": ("NOT_FOUND", "Request for unknown model: 'none' is not found")},
    "negative trace rate": {"trace.rate.negative": (BAD, "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1")},
    "output that is named twice": infer_and_stream(pair__outputs__twice=(BAD, "output 'OUTPUT0' already exists in request")),
}

WANTED = {case: (row, expected) for row, differences in ROWS.items() for case, expected in differences.items()}
