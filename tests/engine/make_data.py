"""Writes tests/engine/data: small models that only an engine's values matter in.

Run from anywhere with a Python that has onnx, onnxruntime and numpy:  python tests/engine/make_data.py
"""
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
DTYPES = "FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 BFLOAT16".split()


def save(name, nodes, inputs, outputs, opset=21, ir=10):
    opsets = [h.make_opsetid("", opset), h.make_opsetid("com.microsoft", 1)]
    model = h.make_model(h.make_graph(nodes, name, inputs, outputs), opset_imports=opsets, ir_version=ir)
    path = os.path.join(HERE, name + ".onnx")
    with open(path, "wb") as f:
        f.write(model.SerializeToString())
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


info = h.make_tensor_value_info


def make_gqa():
    """One GroupQueryAttention: q [b, s, 16], k and v [b, s, 8], caches [b, 1, past, 8], two heads of size 8 over one."""
    nodes = [h.make_node("GroupQueryAttention", ["q", "k", "v", "past_key", "past_value", "seqlens_k", "total"],
                         ["out", "present_key", "present_value"], domain="com.microsoft", num_heads=2, kv_num_heads=1)]
    cache = ["b", 1, "p", 8]
    session = save("gqa", nodes,
                   [info("q", T.FLOAT, ["b", "s", 16]), info("k", T.FLOAT, ["b", "s", 8]), info("v", T.FLOAT, ["b", "s", 8]),
                    info("past_key", T.FLOAT, cache), info("past_value", T.FLOAT, cache), info("seqlens_k", T.INT32, ["b"]), info("total", T.INT32, [])],
                   [info("out", T.FLOAT, ["b", "s", 16]), info("present_key", T.FLOAT, ["b", 1, "t", 8]), info("present_value", T.FLOAT, ["b", 1, "t", 8])], 17, 8)
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((1, 5, d)).astype(np.float32) for d in (16, 8, 8))
    feed = {"q": q, "k": k, "v": v, "past_key": np.zeros((1, 1, 0, 8), np.float32), "past_value": np.zeros((1, 1, 0, 8), np.float32),
            "seqlens_k": np.array([4], np.int32), "total": np.array(5, np.int32)}
    for name, array in zip(("q", "k", "v", "out", "present_key", "present_value"), [q, k, v] + session.run(None, feed)):
        np.save(os.path.join(HERE, f"gqa_{name}.npy"), array)


os.makedirs(HERE, exist_ok=True)
make_gqa()
save("identity", [h.make_node("Identity", ["in_" + d], ["out_" + d]) for d in DTYPES], [info("in_" + d, getattr(T, d), ["n", 3]) for d in DTYPES],
     [info("out_" + d, getattr(T, d), ["n", 3]) for d in DTYPES])
seq = h.make_tensor_sequence_value_info("seq", T.FLOAT, None)
save("sequence", [h.make_node("Identity", ["seq"], ["same"]), h.make_node("SequenceAt", ["seq", "i"], ["item"])], [seq, info("i", T.INT64, [])],
     [h.make_tensor_sequence_value_info("same", T.FLOAT, None), info("item", T.FLOAT, None)])
save("fixed", [h.make_node("Add", ["x", "x"], ["y"])], [info("x", T.FLOAT, [2, 3])], [info("y", T.FLOAT, [2, 3])])
save("late", [h.make_node("Neg", ["x"], ["y"]), h.make_node("Mul", ["y", "y"], ["m"]), h.make_node("Mul", ["x", "m"], ["z"])], [info("x", T.FLOAT, [2, 3])],
     [info("y", T.FLOAT, [2, 3]), info("z", T.FLOAT, [2, 3])])
more = h.make_node("Identity", ["go"], ["on"])
body = h.make_graph([more, h.make_node("Add", ["v", "v"], ["w"])], "body", [info("i", T.INT64, []), info("go", T.BOOL, []), info("v", T.FLOAT, [1])],
                    [info("on", T.BOOL, []), info("w", T.FLOAT, [1])])
save("endless", [h.make_node("Loop", ["", "forever", "x"], ["y"], body=body)], [info("x", T.FLOAT, [1]), info("forever", T.BOOL, [])], [info("y", T.FLOAT, [1])])
