"""A decoder of a few nodes for tests of engines: no attention, one Concat cache, a vocabulary of 16."""
import json
import os

import numpy as np


def decoder(folder, session=None, **config):
    """Writes model.onnx and genai_config.json into the folder; `session` is merged into the session's entry. Returns the folder."""
    import onnx
    from onnx import TensorProto as T, helper as h, numpy_helper as nh
    rng = np.random.default_rng(11)
    dim, vocab = 8, 16
    weights = [nh.from_array(rng.standard_normal((vocab, dim)).astype(np.float32), "embed"),
               nh.from_array(rng.standard_normal((dim, vocab)).astype(np.float32), "head"), nh.from_array(np.array([1], np.int64), "one")]
    nodes = [h.make_node("Gather", ["embed", "input_ids"], ["e"]),                        # [b, s, d]
             h.make_node("Unsqueeze", ["e", "one"], ["e4"]),                              # [b, 1, s, d]
             h.make_node("Concat", ["past_key_values.0.key", "e4"], ["present.0.key"], axis=2),
             h.make_node("Identity", ["past_key_values.0.value"], ["pv"]),
             h.make_node("Concat", ["pv", "e4"], ["present.0.value"], axis=2),
             h.make_node("ReduceMean", ["present.0.key"], ["mean"], axes=[2], keepdims=1),  # [b, 1, 1, d]
             h.make_node("Squeeze", ["mean", "one"], ["m3"]),                             # [b, 1, d]
             h.make_node("Add", ["e", "m3"], ["sum"]), h.make_node("Tanh", ["sum"], ["t"]), h.make_node("MatMul", ["t", "head"], ["logits"])]
    cache = [("past_key_values.0.key", "p"), ("past_key_values.0.value", "p")]
    graph = h.make_graph(
        nodes, "g",
        [h.make_tensor_value_info("input_ids", T.INT64, ["b", "s"])] + [h.make_tensor_value_info(n, T.FLOAT, ["b", 1, d, dim]) for n, d in cache],
        [h.make_tensor_value_info("logits", T.FLOAT, ["b", "s", vocab])] +
        [h.make_tensor_value_info(n, T.FLOAT, ["b", 1, "t", dim]) for n in ("present.0.key", "present.0.value")], weights)
    os.makedirs(folder, exist_ok=True)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), os.path.join(folder, "model.onnx"))
    whole = {"version": 2, "pipeline": {"sessions": {"decoder": {"file": "model.onnx", **(session or {})}}},
             "tokens": {"eos": []}, "generation": {"max_length": 64}, **config}
    with open(os.path.join(folder, "genai_config.json"), "w", encoding="utf-8") as f:
        json.dump(whole, f)
    return folder
