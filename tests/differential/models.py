"""The same models for both servers."""

from peer import REPEAT, make_python

ONE = 'input {{ name: "INPUT0" data_type: {0} dims: {1} }}\noutput {{ name: "OUTPUT0" data_type: {0} dims: {1} {2} }}\n'
MODELS = {
    **{name: ONE.format(f"TYPE_{name.upper()}" if name != "bytes" else "TYPE_STRING", -1, "")
       for name in ("int32", "int64", "int8", "uint8", "fp64", "fp16", "bool", "bytes")},
    "fp32": ONE.format("TYPE_FP32", -1, 'label_filename: "labels.txt"'),
    "fixed": ONE.format("TYPE_INT32", 4, ""),
    "batch": "max_batch_size: 4\n" + ONE.format("TYPE_INT32", 2, ""),
    "pair": "".join(f'{side.lower()} {{ name: "{side}{i}" data_type: TYPE_INT32 dims: -1 }}\n' for i in (0, 1) for side in ("INPUT", "OUTPUT")),
    "spare": ONE.format("TYPE_INT32", -1, ""),
    "unloaded": ONE.format("TYPE_INT32", -1, ""),
}
DECOUPLED = """model_transaction_policy { decoupled: true }
dynamic_batching { default_queue_policy { max_queue_size: 1 } }
input { name: "IN" data_type: TYPE_INT32 dims: -1 } input { name: "DELAY" data_type: TYPE_UINT32 dims: -1 }
input { name: "WAIT" data_type: TYPE_UINT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 } output { name: "IDX" data_type: TYPE_UINT32 dims: 1 }
"""


def make_models(root, ours, decoupled=False):
    for name, config in MODELS.items():
        if ours:
            (root / name / "1").mkdir(parents=True)
            (root / name / "config.pbtxt").write_text('backend: "identity"\n' + config)
        else:
            make_python(root, name, config)
        (root / name / "labels.txt").write_text("zero\none\ntwo\n")
    if not decoupled:
        return
    if ours:
        (root / "decoupled" / "1").mkdir(parents=True)
        (root / "decoupled" / "config.pbtxt").write_text('backend: "repeat"\n' + DECOUPLED)
    else:
        make_python(root, "decoupled", DECOUPLED, REPEAT)
