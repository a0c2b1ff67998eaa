"""Encoder-decoders that fill their own cross cache: one merged decoder with use_cache_branch, whose first step computes the cross cache and whose
later ones give an empty one back. Sources of one and of unequal lengths, rows, beams, long sources; and the folders that exporters
make of it: the decoder whole, in two graphs, both, in several number formats, in a sub-folder. NumPy says what each row gives."""
import json
import os
import shutil

import drive
import numpy as np
import onnx
import testing
from onnx import TensorProto as T
from onnx import helper, numpy_helper

VOCAB, D, START = 23, 6, 2
rng = np.random.default_rng(29)
normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
TABLE, SOURCE, CROSS, HEAD = normal(VOCAB, D), normal(VOCAB, D), normal(D, D), normal(D, VOCAB)
node, info = helper.make_node, helper.make_tensor_value_info
const = lambda name, value: numpy_helper.from_array(np.asarray(value), name)
AXES = [const("axis1", np.int64([1])), const("axis2", np.int64([2])), const("two", np.int64(2)), const("far", np.int64([2**40])),
        const("zero", np.int64([0]))]


def save(graph, path):
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def tail(prefix, own, cross, halved):
    """logits = tanh(sum of own keys so far + mean of cross keys that the mask shows) . head"""
    p = lambda name: prefix + name
    mask = p("every_second") if halved else "encoder_attention_mask"
    return ([node("Slice", ["encoder_attention_mask", "zero", "far", "axis1", "axis2"], [mask])] if halved else []) + [
        node("CumSum", [own, "two"], [p("sums")]), node("Shape", ["input_ids"], [p("shape")]),
        node("Gather", [p("shape"), "axis1"], [p("n")]), node("Neg", [p("n")], [p("from")]),
        node("Slice", [p("sums"), p("from"), "far", "axis2"], [p("new")]), node("Squeeze", [p("new"), "axis1"], [p("mine")]),
        node("Cast", [mask], [p("mask2")], to=T.FLOAT), node("Unsqueeze", [p("mask2"), "axis2"], [p("mask")]),
        node("Squeeze", [cross, "axis1"], [p("cross3")]), node("Mul", [p("cross3"), p("mask")], [p("shown")]),
        node("ReduceSum", [p("shown"), "axis1"], [p("total")], keepdims=1), node("ReduceSum", [p("mask"), "axis1"], [p("count")], keepdims=1),
        node("Div", [p("total"), p("count")], [p("mean")]), node("Add", [p("mine"), p("mean")], [p("both")]),
        node("Tanh", [p("both")], [p("bounded")]), node("MatMul", [p("bounded"), "head"], [p("logits")])]


def write(folder, sound=False, halved=False):
    if halved:  # a frame of the encoder's for every second one of the sound's; masks have the sound's columns throughout
        nodes = [node("Cast", ["attention_mask"], ["shown"], to=T.FLOAT), node("Unsqueeze", ["shown", "axis2"], ["column"]),
                 node("Mul", ["input_features", "column"], ["heard"]),
                 node("Slice", ["heard", "zero", "far", "axis1", "axis2"], ["encoder_out"])]
        inputs = [info("input_features", T.FLOAT, ["batch", "enc", D]), info("attention_mask", T.INT64, ["batch", "enc"])]
    elif sound:
        nodes, inputs = [node("Identity", ["input_features"], ["encoder_out"])], [info("input_features", T.FLOAT, ["batch", "enc", D])]
    else:
        nodes = [node("Gather", ["source", "input_ids"], ["encoder_out"])]
        inputs = [info("input_ids", T.INT64, ["batch", "enc"]), info("attention_mask", T.INT64, ["batch", "enc"])]
    save(helper.make_graph(nodes, "e", inputs, [info("encoder_out", T.FLOAT, ["batch", "enc/2" if halved else "enc", D])],
                           AXES + [const("source", SOURCE)]),
         os.path.join(folder, "encoder.onnx"))
    made = lambda prefix, names: [info(prefix + n, T.FLOAT, None) for n in names]
    names = ["logits", "own", "cross"]
    first = helper.make_graph(
        [node("Identity", ["new_keys"], ["f_own"]), node("MatMul", ["encoder_hidden_states", "w_cross"], ["f_made"]),
         node("Unsqueeze", ["f_made", "axis1"], ["f_cross"])] + tail("f_", "f_own", "f_cross", halved), "first", [], made("f_", names))
    later = helper.make_graph(
        [node("Concat", ["past_key_values.0.decoder.key", "new_keys"], ["l_own"], axis=2),
         node("Slice", ["past_key_values.0.encoder.key", "zero", "zero", "zero"], ["l_cross"])] +
        tail("l_", "l_own", "past_key_values.0.encoder.key", halved), "later", [], made("l_", names))
    graph = helper.make_graph(
        [node("Gather", ["table", "input_ids"], ["rows"]), node("Unsqueeze", ["rows", "axis1"], ["new_keys"]),
         node("If", ["use_cache_branch"], ["logits", "present.0.decoder.key", "present.0.encoder.key"], then_branch=later,
              else_branch=first)], "d",
        [info("input_ids", T.INT64, ["batch", "dec"]), info("encoder_attention_mask", T.INT64, ["batch", "enc"]),
         info("encoder_hidden_states", T.FLOAT, ["batch", "enc", D]),
         info("past_key_values.0.decoder.key", T.FLOAT, ["batch", 1, "past", D]),
         info("past_key_values.0.encoder.key", T.FLOAT, ["batch", 1, "enc_past", D]), info("use_cache_branch", T.BOOL, [1])],
        [info("logits", T.FLOAT, ["batch", "dec", VOCAB]), info("present.0.decoder.key", T.FLOAT, ["batch", 1, "all", D]),
         info("present.0.encoder.key", T.FLOAT, ["batch_or_none", 1, "enc_all", D])],
        AXES + [const("table", TABLE), const("w_cross", CROSS), const("head", HEAD)])
    save(graph, os.path.join(folder, "decoder.onnx"))
    config = {"version": 2, "tokens": {"decoder_start": START, "eos": []}, "generation": {"max_length": 64},
              "pipeline": {"extends": "encoder-decoder", "sessions": {"encoder": {"file": "encoder.onnx"},
                                                                      "decoder": {"file": "decoder.onnx"}}}}
    with open(os.path.join(folder, "genai_config.json"), "w") as f:
        json.dump(config, f)


def write_parts(folder):
    """The two branches of decoder.onnx as graphs of their own: first.onnx, and first_with_past.onnx for later tokens."""
    whole = onnx.load(os.path.join(folder, "decoder.onnx")).graph
    past = lambda port: port.name.startswith("past_key_values")
    for key, name in (("else_branch", "first"), ("then_branch", "first_with_past")):
        branch = next(a.g for a in whole.node[-1].attribute if a.name == key)
        later = key == "then_branch"
        drop = lambda port: port.name == "use_cache_branch" or (port.name == "encoder_hidden_states" if later else past(port))
        outputs = [port for port in whole.output if not (later and ".encoder." in port.name)]
        names = {made.name: port.name for made, port in zip(branch.output, whole.output)}
        graph = helper.make_graph(
            list(whole.node[:-1]) + list(branch.node) + [node("Identity", [made], [name]) for made, name in names.items()], name,
            [port for port in whole.input if not drop(port)], outputs, list(whole.initializer))
        save(graph, os.path.join(folder, name + ".onnx"))


def scores(source, ids):
    x = np.tanh(TABLE[ids].sum(0) + (SOURCE[source] @ CROSS).mean(0)) @ HEAD
    return x.astype(np.float64)


def greedy(source, n):
    ids = [START]
    for _ in range(n):
        ids.append(int(np.argmax(scores(source, ids))))
    return ids[1:]


def beam(source, n, width):
    beams = [([START], 0.0)]
    for _ in range(n):
        found = []
        for ids, sum_ in beams:
            x = scores(source, ids)
            x = x - x.max()
            x = x - np.log(np.exp(x).sum())
            found += [(ids + [t], sum_ + x[t]) for t in range(VOCAB)]
        beams = sorted(found, key=lambda b: -b[1])[:width]
    return [ids[1:] for ids, _ in beams]


def source(n, seed):
    return [int(x) for x in np.random.default_rng(seed).integers(0, VOCAB, n)]


def test_rows_of_sources():
    with testing.temp_dir() as temp:
        write(temp)
        with drive.Drive(temp, "--quiet") as d:
            for lengths in ([4], [5, 5, 5], [3, 5, 2], [1, 1], [70], [70, 70], [600, 1]):
                prompts = [source(n, 10 * n + k) for k, n in enumerate(lengths)]
                got = d.ask(op="generate", prompts=prompts, options={"max_new_tokens": 7})
                testing.equal(got["tokens"], [greedy(p, 7) for p in prompts], lengths)
                if len(set(lengths)) == 1:
                    testing.equal(got["runs"]["decoder"], len(lengths) + 6, "rows of equal length share the decode runs")


def test_beams():
    with testing.temp_dir() as temp:
        write(temp)
        with drive.Drive(temp, "--quiet") as d:
            for lengths in ([4], [5, 5], [3, 6]):
                prompts = [source(n, n + k) for k, n in enumerate(lengths)]
                got = d.ask(op="generate", prompts=prompts,
                            options={"max_new_tokens": 5, "num_beams": 3, "num_return_sequences": 2})
                testing.equal(got["sequences"], [beam(p, 5, 3)[:2] for p in prompts], lengths)


def test_sound():
    """Frames instead of ids: the mask of the source is as long as what the encoder gave, however short the tokens are."""
    with testing.temp_dir() as temp:
        write(temp, sound=True)
        with drive.Drive(temp, "--quiet") as d:
            for n, rows in ((3, 1), (40, 2), (700, 1), (700, 3)):
                sources = [source(n, n + k) for k in range(rows)]
                path = os.path.join(temp, f"x{n}.{rows}.npy")
                np.save(path, np.stack([SOURCE[s] for s in sources]))
                got = d.ask(op="generate", prompts=[[]] * rows, tensors={"input_features": path}, options={"max_new_tokens": 6})
                testing.equal(got["tokens"], [greedy(s, 6) for s in sources], f"{n} frames, {rows} rows")


def test_masks_of_sound():
    """The mask that came with the sound is the decoder's too, in its own columns; left out, it shows all."""
    with testing.temp_dir() as temp:
        write(temp, halved=True)
        features, mask = os.path.join(temp, "x.npy"), os.path.join(temp, "m.npy")
        with drive.Drive(temp, "--quiet") as d:
            for n, rows in ((7, 1), (40, 3), (700, 2)):
                sources = [source(n, n + k) for k in range(rows)]
                np.save(features, np.stack([SOURCE[s] for s in sources]))
                shown = np.int64([[c < n - 2 * r - 2 for c in range(n)] for r in range(rows)])
                np.save(mask, shown)
                for given in (shown, None):
                    tensors = {"input_features": features, **({} if given is None else {"attention_mask": mask})}
                    heard = [s[::2] if given is None else [t for t, m in zip(s[::2], given[r][::2]) if m] for r, s in enumerate(sources)]
                    for width in (1, 3):
                        got = d.ask(op="generate", prompts=[[]] * rows, tensors=tensors,
                                    options={"max_new_tokens": 5, "num_beams": width, "num_return_sequences": width})
                        what = f"{n} frames, {rows} rows, {width} beams, {'a' if given is not None else 'no'} mask"
                        if width == 1:
                            testing.equal(got["tokens"], [greedy(s, 5) for s in heard], what)
                        else:
                            testing.equal(got["sequences"], [beam(s, 5, width) for s in heard], what)


def test_masks_without_symbols():
    """Left out, a mask whose dimensions have no symbols shows all rows and frames that the sound has."""
    with testing.temp_dir() as temp:
        write(temp, sound=True)
        path, features = os.path.join(temp, "encoder.onnx"), os.path.join(temp, "x.npy")
        encoder = onnx.load(path)
        del encoder.graph.node[:]
        encoder.graph.node.extend([node("Cast", ["attention_mask"], ["shown"], to=T.FLOAT), node("Unsqueeze", ["shown", "axis2"], ["column"]),
                                   node("Mul", ["input_features", "column"], ["encoder_out"])])
        encoder.graph.input.append(info("attention_mask", T.INT64, [None, None]))
        for dim in encoder.graph.input[0].type.tensor_type.shape.dim[:2]:
            dim.ClearField("dim_param")
        onnx.save(encoder, path)
        with drive.Drive(temp, "--quiet") as d:
            for n, rows in ((5, 1), (9, 3)):
                sources = [source(n, n + k) for k in range(rows)]
                np.save(features, np.stack([SOURCE[s] for s in sources]))
                got = d.ask(op="generate", prompts=[[]] * rows, tensors={"input_features": features}, options={"max_new_tokens": 6})
                testing.equal(got["tokens"], [greedy(s, 6) for s in sources], f"{n} frames, {rows} rows")


def check_folder(folder, runs):
    with drive.Drive(folder, "--quiet") as d:
        for lengths in ([4], [3, 5, 2]):
            prompts = [source(n, n + k) for k, n in enumerate(lengths)]
            got = d.ask(op="generate", prompts=prompts, options={"max_new_tokens": 6})
            testing.equal(got["tokens"], [greedy(p, 6) for p in prompts], (folder, lengths))
            testing.equal(sorted(name for name, n in got["runs"].items() if n), sorted(runs), folder)


def test_folders():
    """No config but the ids of tokens: which graphs run is found."""
    layouts = {
        "whole": (["decoder"], ["encoder", "decoder"]),
        "parts": (["first", "first_with_past"], ["encoder", "first", "first_with_past"]),
        "all": (["decoder", "first", "first_with_past"], ["encoder", "decoder"]),
    }
    with testing.temp_dir() as temp:
        made = os.path.join(temp, "made")
        os.mkdir(made)
        write(made)
        write_parts(made)
        for name, (files, runs) in layouts.items():
            for sub in ("", "onnx"):
                for editions in ([""], ["", "_q4", "_fp16"], ["_q4"]):
                    folder = os.path.join(temp, name + sub + str(len(editions)) + editions[0])
                    os.makedirs(os.path.join(folder, sub))
                    for file in ["encoder"] + files:
                        for edition in editions:
                            shutil.copy(os.path.join(made, file + ".onnx"), os.path.join(folder, sub, file + edition + ".onnx"))
                    with open(os.path.join(folder, "generation_config.json"), "w", encoding="utf-8") as f:
                        json.dump({"decoder_start_token_id": START, "max_length": 64}, f)
                    check_folder(folder, [run + editions[0] for run in runs])


testing.main()
