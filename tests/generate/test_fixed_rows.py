"""Graphs that take exactly F rows in each run: fewer rows, as many, and more than that; caches that grow and recurrent state.
NumPy says what each row gives; for the folders of test/models, ONNX Runtime runs the graphs in a beam search written here."""
import os
import tarfile

import drive
import numpy as np
import onnx
import testing
from onnx import TensorProto as T
from onnx import helper, numpy_helper

VOCAB, WIDTH, ROWS = 13, 4, 3
rng = np.random.default_rng(17)
TABLE, HEAD = rng.standard_normal((VOCAB, WIDTH)).astype(np.float32), rng.standard_normal((WIDTH, VOCAB)).astype(np.float32)


def save(path, recurrent):
    """logits = tanh(sum of table[ids] so far) . head; what went before is a cache of rows, or their sum."""
    const = lambda name, value: numpy_helper.from_array(np.asarray(value), name)
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [node("Gather", ["table", "input_ids"], ["rows"])]
    if recurrent:
        nodes += [node("CumSum", ["rows", "one"], ["sums"]), node("Squeeze", ["state", "first_axis"], ["before2"]),
                  node("Unsqueeze", ["before2", "one_axis"], ["before"]), node("Add", ["sums", "before"], ["mine"]),
                  node("ReduceSum", ["rows", "one_axis"], ["added"], keepdims=0), node("Add", ["before2", "added"], ["after2"]),
                  node("Unsqueeze", ["after2", "first_axis"], ["new_state"])]
        inputs = [info("state", T.FLOAT, [1, ROWS, WIDTH])]
        outputs = [info("new_state", T.FLOAT, [1, ROWS, WIDTH])]
    else:
        nodes += [node("Unsqueeze", ["rows", "one_axis"], ["key4"]),
                  node("Concat", ["past_key_values.0.key", "key4"], ["present.0.key"], axis=2),
                  node("CumSum", ["present.0.key", "two"], ["all"]), node("Shape", ["input_ids"], ["ids_shape"]),
                  node("Gather", ["ids_shape", "one_axis"], ["n_new"]), node("Neg", ["n_new"], ["from_end"]),
                  node("Slice", ["all", "from_end", "far", "two_axis"], ["new"]), node("Squeeze", ["new", "one_axis"], ["mine"])]
        inputs = [info("past_key_values.0.key", T.FLOAT, [ROWS, 1, "past", WIDTH])]
        outputs = [info("present.0.key", T.FLOAT, [ROWS, 1, "all", WIDTH])]
    nodes += [node("Tanh", ["mine"], ["bounded"]), node("MatMul", ["bounded", "head"], ["logits"])]
    graph = helper.make_graph(
        nodes, "g", [info("input_ids", T.INT64, [ROWS, "seq"])] + inputs,
        [info("logits", T.FLOAT, [ROWS, "seq", VOCAB])] + outputs,
        [const("one", np.int64(1)), const("one_axis", np.int64([1])), const("two", np.int64(2)), const("two_axis", np.int64([2])),
         const("first_axis", np.int64([0])), const("far", np.int64([2**40])), const("table", TABLE), const("head", HEAD)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def greedy(ids, n):
    ids = list(ids)
    for _ in range(n):
        ids.append(int(np.argmax(np.tanh(TABLE[ids].sum(0, dtype=np.float32)) @ HEAD)))
    return ids[-n:]


def test_any_number_of_rows():
    for recurrent in (False, True):
        with testing.temp_dir() as temp:
            save(os.path.join(temp, "model.onnx"), recurrent)
            with drive.Drive(temp, "--quiet") as d:
                for prompts in ([[3, 1, 4]], [[1, 5], [9, 2]], [[1, 5], [9, 2], [6, 5]], [[1], [9, 2], [6, 5, 3]],
                                [[k + 1, k] for k in range(7)]):
                    got = d.ask(op="generate", prompts=prompts, options={"max_new_tokens": 6})
                    testing.equal(got["tokens"], [greedy(p, 6) for p in prompts], f"{recurrent} {prompts}")
                    if len(prompts) == ROWS and len(set(map(len, prompts))) == 1:
                        testing.equal(list(got["runs"].values()), [6], "the prompts of all rows in one run")
                steps = [{"append": [3, 1]}, {"generate": 3}, {"append": [2]}, {"generate": 2}]
                got = d.ask(op="timeline", steps=steps, options={})["steps"][-1]["tokens"]
                testing.equal(got, greedy([3, 1] + greedy([3, 1], 3) + [2], 2))


def test_beams_at_their_places():
    """Logits of this decoder depend on the place that a row has in the run: rows must stand where the caller put them."""
    import onnxruntime as ort
    beams, n_new, prompts = 2, 3, [[5, 6, 0], [7, 8, 0]]
    with testing.temp_dir() as temp:
        with tarfile.open(testing.shared("data/ort-genai-test-models.tar.xz")) as archive:
            trust = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
            archive.extractall(temp, [m for m in archive.getmembers() if "marian-batch" in m.name], **trust)
        folder = next(root for root, _, files in os.walk(temp) if root.endswith("marian-batch-beams") and files)
        decoder = ort.InferenceSession(os.path.join(folder, "decoder.onnx"))
        encoder = ort.InferenceSession(os.path.join(folder, "encoder.onnx"))
        ids = np.repeat(np.int64(prompts), beams, 0)
        mask = np.ones_like(ids, np.int32)
        hidden, = encoder.run(None, {"input_ids": ids, "attention_mask": mask})
        state = np.zeros((3, 4, 512), np.float32)
        rows, scores = [[32000] for _ in range(4)], np.tile([0.0, -np.inf], 2)
        for step in range(n_new):
            logits, state = decoder.run(None, {
                "input_ids": np.int64([r[-1] for r in rows]), "encoder_hidden_states": hidden, "encoder_attention_mask": mask,
                "rnn_states_prev": state, "past_key_values_length": np.int64([step])})
            x = logits.astype(np.float64)
            x = x - x.max(-1, keepdims=True)
            total = scores[:, None] + x - np.log(np.exp(x).sum(-1, keepdims=True))
            new_rows, new_scores, places = [], [], []
            for b in range(2):
                flat = total[b * beams:(b + 1) * beams].reshape(-1)
                for best in np.argsort(-flat, kind="stable")[:beams]:
                    place = b * beams + int(best) // logits.shape[1]
                    new_rows.append(rows[place] + [int(best) % logits.shape[1]])
                    new_scores.append(flat[best])
                    places.append(place)
            rows, scores, state = new_rows, np.array(new_scores), state[:, places]
            if step == 1:
                testing.equal([r[-1] for r in rows], [2, 2, 4, 4], "the peer's tokens after two steps")
        with drive.Drive(folder, "--quiet") as d:
            got = d.ask(op="generate", prompts=prompts,
                        options={"max_new_tokens": n_new, "num_beams": beams, "num_return_sequences": beams})
        testing.equal(got["sequences"], [[r[1:] for r in rows[:2]], [r[1:] for r in rows[2:]]])


testing.main()
