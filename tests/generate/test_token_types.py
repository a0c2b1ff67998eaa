"""token_type_ids are zeros unless the caller gives them: then they count for the prompt, and what is generated has type 0 again. Prompts longer
than one chunk, several rows, a wrong number of them; NumPy says what comes out."""
import os

import drive
import numpy as np
import onnx
import testing
from onnx import TensorProto as T
from onnx import helper, numpy_helper

VOCAB, D = 13, 4
rng = np.random.default_rng(3)
normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
TABLE, TYPES, HEAD = normal(VOCAB, D), normal(2, D), normal(D, VOCAB)
node, info = helper.make_node, helper.make_tensor_value_info
const = lambda name, value: numpy_helper.from_array(np.asarray(value), name)


def save(path):
    """keys = table[ids] + types[token_type_ids]; logits = tanh(sum of all keys) . head"""
    nodes = [
        node("Gather", ["table", "input_ids"], ["words"]), node("Gather", ["types", "token_type_ids"], ["kinds"]),
        node("Add", ["words", "kinds"], ["keys"]), node("Unsqueeze", ["keys", "axis1"], ["key4"]),
        node("Concat", ["past_key_values.0.key", "key4"], ["present.0.key"], axis=2), node("CumSum", ["present.0.key", "two"], ["sums"]),
        node("Shape", ["input_ids"], ["shape"]), node("Gather", ["shape", "axis1"], ["n"]), node("Neg", ["n"], ["from"]),
        node("Slice", ["sums", "from", "far", "axis2"], ["new"]), node("Squeeze", ["new", "axis1"], ["mine"]),
        node("Tanh", ["mine"], ["bounded"]), node("MatMul", ["bounded", "head"], ["logits"])]
    graph = helper.make_graph(
        nodes, "g",
        [info("input_ids", T.INT64, ["batch", "seq"]), info("token_type_ids", T.INT64, ["batch", "seq"]),
         info("past_key_values.0.key", T.FLOAT, ["batch", 1, "past", D])],
        [info("logits", T.FLOAT, ["batch", "seq", VOCAB]), info("present.0.key", T.FLOAT, ["batch", 1, "all", D])],
        [const("axis1", np.int64([1])), const("axis2", np.int64([2])), const("two", np.int64(2)), const("far", np.int64([2**40])),
         const("table", TABLE), const("types", TYPES), const("head", HEAD)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def greedy(ids, types, n):
    ids, types = list(ids), list(types)
    for _ in range(n):
        x = np.tanh((TABLE[ids] + TYPES[types]).astype(np.float64).sum(0)) @ HEAD
        ids.append(int(np.argmax(x)))
        types.append(0)
    return ids[-n:], ids, types


def npy(folder, name, rows):
    path = os.path.join(folder, name + ".npy")
    np.save(path, np.int64(rows))
    return {"token_type_ids": path}


def test_prompts():
    with testing.temp_dir() as temp:
        save(os.path.join(temp, "model.onnx"))
        for n in (1, 6, 40):
            ids = [int(x) for x in np.random.default_rng(n).integers(0, VOCAB, n)]
            types = [k % 2 for k in range(n)]
            for more in ((), ("--set", "/generation/prefill_chunk=4")):
                with drive.Drive(temp, "--quiet", *more) as d:
                    got = d.ask(op="generate", prompts=[ids], options={"max_new_tokens": 5})
                    testing.equal(got["tokens"][0], greedy(ids, [0] * n, 5)[0], f"{n} without")
                    got = d.ask(op="generate", prompts=[ids], tensors=npy(temp, "a", [types]), options={"max_new_tokens": 5})
                    testing.equal(got["tokens"][0], greedy(ids, types, 5)[0], f"{n} with")
                    rows = [types, [1] * n]
                    got = d.ask(op="generate", prompts=[ids, ids], tensors=npy(temp, "b", rows), options={"max_new_tokens": 5})
                    testing.equal(got["tokens"], [greedy(ids, row, 5)[0] for row in rows], f"{n}, two rows")
                    try:
                        d.ask(op="generate", prompts=[ids], tensors=npy(temp, "c", [types + [0]]), options={"max_new_tokens": 5})
                        raise AssertionError("a number too many was taken")
                    except drive.Refused as refused:
                        assert f"each of {n} tokens, found {n + 1}" in str(refused), refused


testing.main()
