"""Beam search against one written here after transformers 5.24 (`_beam_search`): scores, lengths, ends at the last step, all of early_stopping."""
import json
import os

import drive
import numpy as np
import onnx
import testing
from onnx import TensorProto, helper, numpy_helper

VOCAB, PROMPT = 24, [3, 7, 5]


def write(where, tables):
    """A model whose next token depends on the last one and on the sum of all before: no two sequences have one score."""
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "seq"])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "seq", VOCAB])]
    nodes = [helper.make_node("Gather", ["last", "input_ids"], ["a"]), helper.make_node("CumSum", ["input_ids", "one"], ["sum"]),
             helper.make_node("Mod", ["sum", "rows"], ["row"]), helper.make_node("Gather", ["sums", "row"], ["b"]), helper.make_node("Add", ["a", "b"], ["logits"])]
    constants = {"last": tables[0], "sums": tables[1], "one": np.array(1), "rows": np.array(len(tables[1]))}
    graph = helper.make_graph(nodes, "beams", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), os.path.join(where, "model.onnx"))
    with open(os.path.join(where, "genai_config.json"), "w") as f:
        json.dump({"version": 2, "pipeline": {"sessions": {"model": {"file": "model.onnx"}}}, "generation": {"max_length": 64}}, f)


def search(tables, options):
    n_beams, penalty, stop = options["num_beams"], options["length_penalty"], options["early_stopping"]
    limit, eos = options["max_length"] - len(PROMPT), options["eos"]
    running, closed = [(0.0, PROMPT)], []
    for n_new in range(1, limit + 1):
        candidates = []
        for score, ids in running:
            logits = (tables[0][ids[-1]] + tables[1][sum(ids) % len(tables[1])]).astype(np.float64)
            scores = score + logits - np.log(np.exp(logits).sum())
            if len(ids) < options["min_length"]:
                scores[eos] = -np.inf
            candidates += [(s, ids + [t]) for t, s in enumerate(scores)]
        candidates.sort(key=lambda c: -c[0])
        candidates = candidates[: max(2, 1 + len(eos)) * n_beams]
        ends = lambda ids: n_new == limit or ids[-1] in eos
        closed += [(s / n_new**penalty, ids) for s, ids in candidates[:n_beams] if ends(ids)]
        closed = sorted(closed, key=lambda c: -c[0])[:n_beams]
        running = [c for c in candidates if not ends(c[1])][:n_beams]
        if not running or (len(closed) == n_beams and stop is True):
            break
        longest = limit if stop == "never" and penalty > 0 else n_new
        if len(closed) == n_beams and closed[-1][0] >= running[0][0] / longest**penalty:
            break
    return [ids[len(PROMPT) :] for _, ids in closed[: options["num_return_sequences"]]]


def compare(where, tables, eos):
    with drive.Drive(where) as d:
        for n_beams in (2, 3, 5):
            for penalty in (1.0, 0.5, 0.0, -1.0, 2.0):
                for stop in (True, False, "never"):
                    for low in (0, 8):
                        options = {"num_beams": n_beams, "length_penalty": penalty, "early_stopping": stop, "min_length": low, "max_length": 14,
                                   "eos": eos, "num_return_sequences": n_beams}
                        got = d.ask(op="generate", prompts=[PROMPT], options=options)
                        testing.equal(got["sequences"][0], search(tables, options), str(options))


def test_all():
    rng = np.random.default_rng(3)
    for round in range(8):  # where logits are far apart, the best candidate often is an end
        tables = [rng.normal(0, 1 + round // 4 * 2, (n, VOCAB)).astype(np.float32) for n in (VOCAB, 101)]
        with testing.temp_dir() as where:
            write(where, tables)
            compare(where, tables, [[1], [2, 9, 17]][round % 2])


testing.main()
