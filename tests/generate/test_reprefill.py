"""generation.reprefill_at: a graph that treats positions otherwise from a length on gets its whole timeline again when that is crossed.
The graph here writes its keys with a weight that depends on the length of the run's timeline; NumPy says what a fresh run gives."""
import os

import drive
import numpy as np
import onnx
import testing
from onnx import TensorProto as T
from onnx import helper, numpy_helper

VOCAB, AT = 11, 6
rng = np.random.default_rng(5)
TABLE, HEAD = rng.standard_normal((VOCAB, 4)).astype(np.float32), rng.standard_normal((4, VOCAB)).astype(np.float32)


def save(path):
    """keys = table[ids] * (3 if the mask is AT long, else 1); logits = tanh(sum of all keys) . head"""
    const = lambda name, value: numpy_helper.from_array(np.asarray(value), name)
    node = helper.make_node
    nodes = [
        node("Shape", ["attention_mask"], ["mask_shape"]), node("Gather", ["mask_shape", "one"], ["total"]),
        node("GreaterOrEqual", ["total", "at"], ["long"]), node("Where", ["long", "three", "once"], ["weight"]),
        node("Gather", ["table", "input_ids"], ["rows"]), node("Mul", ["rows", "weight"], ["keys"]),
        node("Unsqueeze", ["keys", "one_axis"], ["key4"]), node("Concat", ["past_key_values.0.key", "key4"], ["present.0.key"], axis=2),
        node("CumSum", ["present.0.key", "two"], ["sums"]), node("Shape", ["input_ids"], ["ids_shape"]),
        node("Gather", ["ids_shape", "one_axis"], ["n_new"]), node("Neg", ["n_new"], ["from_end"]),
        node("Slice", ["sums", "from_end", "far", "two_axis"], ["mine"]), node("Squeeze", ["mine", "one_axis"], ["flat"]),
        node("Tanh", ["flat"], ["bounded"]), node("MatMul", ["bounded", "head"], ["logits"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g",
        [info("input_ids", T.INT64, ["batch", "seq"]), info("attention_mask", T.INT64, ["batch", "total"]),
         info("past_key_values.0.key", T.FLOAT, ["batch", 1, "past", 4])],
        [info("logits", T.FLOAT, ["batch", "seq", VOCAB]), info("present.0.key", T.FLOAT, ["batch", 1, "all", 4])],
        [const("one", np.int64(1)), const("one_axis", np.int64([1])), const("two", np.int64(2)), const("two_axis", np.int64([2])),
         const("at", np.int64(AT)), const("three", np.float32(3)), const("once", np.float32(1)), const("far", np.int64([2**40])),
         const("table", TABLE), const("head", HEAD)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def fresh(ids):
    """The token after ids, were they all of the prompt."""
    keys = TABLE[ids] * np.float32(3 if len(ids) >= AT else 1)
    return int(np.argmax(np.tanh(keys.sum(0)) @ HEAD))


def greedy(ids, n):
    ids = list(ids)
    for _ in range(n):
        ids.append(fresh(ids))
    return ids[-n:]


def test_crossing_the_length():
    with testing.temp_dir() as temp:
        save(os.path.join(temp, "model.onnx"))
        for prompt in ([3, 1, 4], [1] * 5, [2, 7, 1, 8, 2, 8], [5]):
            with drive.Drive(temp, "--set", f"/generation/reprefill_at={AT}") as d:
                answer = d.ask(op="generate", prompts=[prompt], options={"max_new_tokens": 8, "eos": []})
                testing.equal(answer["tokens"], [greedy(prompt, 8)], str(prompt))
                # and back over it
                steps = [{"append": prompt}, {"generate": 8}, {"rewind": len(prompt)}, {"generate": 8}]
                answer = d.ask(op="timeline", steps=steps)
                testing.equal([s["tokens"] for s in answer["steps"] if "tokens" in s], [greedy(prompt, 8)] * 2, str(prompt))
        prompts = [[i, 1, 4] for i in range(VOCAB)]
        with drive.Drive(temp) as d:  # the graph is one that needs it
            answer = d.ask(op="generate", prompts=prompts, options={"max_new_tokens": 8, "eos": []})
            assert answer["tokens"] != [greedy(p, 8) for p in prompts]


testing.main()
