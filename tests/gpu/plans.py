"""The plans that are served: a configuration where automatic completion does not do, requests, and exact answers."""

import array
import struct

DATATYPES = {"fp16": "FP16", "bf16": "BF16", "int32": "INT32", "int64": "INT64", "int8": "INT8", "bool": "BOOL",
             "uint8": "UINT8", "fp8": None}
FAKE_TYPES = {"fp16": 1, "int8": 2, "int32": 3, "bool": 4, "uint8": 5, "fp8": 6, "bf16": 7, "int64": 8}


def floats(count, seed=0):
    """Small multiples of 1/8: sums, differences and products with small integers are exact."""
    piece = [((i * 7 + seed) % 1001 - 500) / 8 for i in range(min(count, 1001 * 64))]
    values = array.array("f", piece)
    while len(values) < count:
        values.extend(values[:count - len(values)])
    return values


def numbers(kind, count):
    """`count` numbers of a type that survive a cast to FP32 and back."""
    def wide(i):
        return i * 7919 % (1 << 24) - (1 << 23)

    number = {"fp16": lambda i: ((i * 7) % 513 - 256) / 4, "bf16": lambda i: (i * 7) % 257 - 128, "int32": wide, "int64": wide,
              "int8": lambda i: i * 7 % 256 - 128, "uint8": lambda i: i * 7 % 256, "bool": lambda i: int(i * 5 % 3 == 0)}[kind]
    return [number(i) for i in range(count)]


def typed(kind, count, datatype=None):
    """Their bytes as a tensor of `datatype`, the kind's own unless one is given."""
    if kind == "fp8":
        return bytes(i % 0x7f for i in range(count))
    values = numbers(kind, count)
    datatype = datatype or DATATYPES[kind]
    if datatype == "FP16":
        return b"".join(struct.pack("<e", value) for value in values)
    if datatype == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    if datatype == "FP32":
        return array.array("f", values).tobytes()
    return array.array({"INT32": "i", "INT64": "q", "INT8": "b", "UINT8": "B", "BOOL": "B"}[datatype], values).tobytes()


def _identity(name="INPUT"):
    def case(shape):
        count = 1
        for d in shape:
            count *= d
        data = floats(count).tobytes()
        return [(name, "FP32", shape, data)], {"OUTPUT": (shape, data)}
    return case


def _cast(kind):
    """Through a cast to the type and back: what goes in and out may itself be FP32 (TensorRT 10.6's plans)."""
    def case(shape, takes, gives):
        count = shape[0] * shape[1]
        return ([("INPUT", takes["INPUT"], shape, typed(kind, count, takes["INPUT"]))],
                {"OUTPUT": (shape, typed(kind, count, gives["OUTPUT"]))})
    case.by_metadata = True
    return case


def _addsub(shape):
    a, b = floats(shape[0] * shape[1]), floats(shape[0] * shape[1], 333)
    return ([("INPUT0", "FP32", shape, a.tobytes()), ("INPUT1", "FP32", shape, b.tobytes())],
            {"OUTPUT0": (shape, array.array("f", map(float.__add__, a, b)).tobytes()),
             "OUTPUT1": (shape, array.array("f", map(float.__sub__, a, b)).tobytes())})


def _nonzero(shape):
    values = array.array("f", [0 if i % 3 == 1 else i + 1 for i in range(shape[0])])
    found = [i for i, value in enumerate(values) if value != 0]
    # The type of the indices is the plan's; the bytes for both.
    return ([("INPUT", "FP32", shape, values.tobytes())],
            {"OUTPUT": ([1, len(found)], {"INT32": array.array("i", found).tobytes(), "INT64": array.array("q", found).tobytes()})})


def _shapein(shape):
    rows, columns, to = shape
    data = floats(rows * columns).tobytes()
    return ([("INPUT", "FP32", [rows, columns], data), ("SHAPE", "INT64", [2], array.array("q", to).tobytes())],
            {"OUTPUT": (to, data)})


def _affine(shape):
    n = shape[1]
    x = array.array("f", [(i * 5) % 17 - 8 for i in range(shape[0] * n)])
    y = array.array("f", [x[r * n + i] * ((3 * i % 7) - 3) + ((i % 5) - 2) for r in range(shape[0]) for i in range(n)])
    return [("INPUT", "FP32", shape, x.tobytes())], {"OUTPUT": (shape, y.tobytes())}


def _gather(shape):
    ids = array.array("i", [i * 7919 % 65536 for i in range(shape[0])])
    rows = array.array("f", [((16 * r + c) % 251) - 125 for r in ids for c in range(16)])
    return [("IDS", "INT32", shape, ids.tobytes())], {"ROWS": ([shape[0], 16], rows.tobytes())}


def _batch(shape):
    n = shape[0]
    x = array.array("f", [(i * 5) % 9 - 4 for i in range(n * 64)])
    out = array.array("f")
    for r in range(n):
        for j in range(64):
            total = sum(x[r * 64 + i] * ((3 * i + 5 * j) % 7 - 3) for i in range(64)) + (j % 5 - 2)
            out.append(max(total, 0))
    return [("INPUT", "FP32", shape, x.tobytes())], {"OUTPUT": ([n, 64], out.tobytes())}


def _conv(shape):
    n = shape[0]
    x = array.array("f", [(i * 5) % 7 - 3 for i in range(n * 3 * 32 * 32)])
    out = array.array("f")
    for b in range(n):
        image = [[[x[((b * 3 + c) * 32 + i) * 32 + j] for j in range(32)] for i in range(32)] for c in range(3)]
        first = []
        for o in range(8):
            plane = [[o % 3 - 1.0] * 32 for _ in range(32)]
            for c in range(3):
                for dj in range(3):
                    for di in range(3):
                        weight = (7 * o + 5 * c + 3 * dj + di) % 5 - 2
                        if weight == 0:
                            continue
                        for i in range(max(0, 1 - dj), min(32, 33 - dj)):
                            source, target = image[c][i + dj - 1], plane[i]
                            for j in range(max(0, 1 - di), min(32, 33 - di)):
                                target[j] += weight * source[j + di - 1]
            first.append([[max(0.0, plane[2 * i][2 * j], plane[2 * i][2 * j + 1], plane[2 * i + 1][2 * j],
                               plane[2 * i + 1][2 * j + 1]) for j in range(16)] for i in range(16)])
        for o in range(4):
            weights = [(3 * o + c) % 3 - 1 for c in range(8)]
            for i in range(16):
                for j in range(16):
                    out.append(sum(weights[c] * first[c][i][j] for c in range(8)) + o - 1)
    return [("INPUT", "FP32", shape, x.tobytes())], {"OUTPUT": ([n, 4, 16, 16], out.tobytes())}


def _io(name, datatype, dims, more=""):
    return f'{{ name: "{name}" data_type: TYPE_{datatype} dims: {dims} {more} }}'


PLATFORM = 'platform: "tensorrt_plan"\n'
NONZERO = [PLATFORM + f'max_batch_size: 0\ninput {_io("INPUT", "FP32", [-1])}\noutput {_io("OUTPUT", kind, [1, -1])}\n'
           for kind in ("INT64", "INT32")]
SHAPEIN = [PLATFORM + f'max_batch_size: 0\ninput [ {_io("INPUT", "FP32", [-1, 4])}, {_io("SHAPE", "INT64", [2], "is_shape_tensor: true")} ]\n'
           f'output {_io("OUTPUT", "FP32", [-1, 4])}\n']
TWOPROF = [PLATFORM + f'max_batch_size: 64\ninput {_io("INPUT", "FP32", [16])}\noutput {_io("OUTPUT", "FP32", [16])}\n'
           'instance_group { kind: KIND_GPU count: 1 profile: [ "0", "1" ] }\n']
GATHER = [PLATFORM + f'max_batch_size: 0\ninput {_io("IDS", "INT32", [-1])}\noutput {_io("ROWS", "FP32", [-1, 16])}\n']

# family: (configurations to try in turn, "" = automatic completion; case maker; shapes)
FAMILIES = {
    "identity": ([""], _identity(), [[16777216]]),
    "addsub": ([""], _addsub, [[1, 16], [7, 16], [64, 16]]),
    "nonzero": (NONZERO, _nonzero, [[1], [100], [1024]]),
    "shapein": (SHAPEIN, _shapein, [(8, 4, [8, 4]), (64, 4, [64, 4]), (1, 4, [1, 4])]),
    "twoprof": (TWOPROF, _identity(), [[1, 16], [8, 16], [9, 16], [64, 16]]),
    "affine4096": ([""], _affine, [[1, 4096], [8, 4096]]),
    "affine524288": ([""], _affine, [[2, 524288]]),
    "gather": (GATHER, _gather, [[1], [64], [1024]]),
    "conv": ([""], _conv, [[1, 3, 32, 32]]),
    "convbatch": ([""], _conv, [[1, 3, 32, 32], [3, 3, 32, 32], [32, 3, 32, 32]]),
    "batch": ([""], _batch, [[1, 64], [32, 64]]),
}
for _kind, _datatype in DATATYPES.items():
    if _datatype:
        FAMILIES["type_" + _kind] = ([""], _cast(_kind), [[1, 16], [64, 16]])


def fake_plan(family, version=(11, 2, 1, 2)):
    """A plan of tests/support/gpu_fakes with the same inputs and outputs; None for a network that the fake has not."""
    lines = {
        "identity": ["op identity", "tensor INPUT in 0 16777216", "tensor OUTPUT out 0 16777216"],
        "addsub": ["op addsub", *(f"tensor INPUT{i} in 0 -1,16" for i in (0, 1)), *(f"tensor OUTPUT{i} out 0 -1,16" for i in (0, 1)),
                   *(f"profile 0 INPUT{i} 1,16 8,16 64,16" for i in (0, 1))],
        "nonzero": ["op nonzero", "tensor INPUT in 0 -1", "tensor OUTPUT out 8 1,-1", "profile 0 INPUT 1 64 1024"],
        "shapein": ["op reshape", "tensor INPUT in 0 -1,4", "tensor SHAPE in 8 2", "host SHAPE", "tensor OUTPUT out 0 -1,4",
                    "profile 0 INPUT 1,4 8,4 64,4", "values 0 SHAPE 1,4 8,4 64,4"],
        "twoprof": ["op identity", "tensor INPUT in 0 -1,16", "tensor OUTPUT out 0 -1,16", "profile 0 INPUT 1,16 4,16 8,16",
                    "profile 1 INPUT 9,16 16,16 64,16"],
    }
    for kind, number in FAKE_TYPES.items():
        lines["type_" + kind] = ["op identity", f"tensor INPUT in {number} -1,16", f"tensor OUTPUT out {number} -1,16",
                                 "profile 0 INPUT 1,16 8,16 64,16"]
    if family not in lines:
        return None
    text = "\n".join(lines[family] + ["end", ""]).encode()
    return (b"ftrt" + bytes(4) + b"\x02" + bytes(7) + struct.pack("<Q", 64 + len(text)) + bytes(version)).ljust(64, b"\0") + text
