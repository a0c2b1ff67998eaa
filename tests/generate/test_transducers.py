"""Transducers of every form: RNN-T and TDT (durations), predictors with and without state, frames as [B, T, D] and [B, D, T], penalties on
blank, limits of tokens per frame, chunks with an encoder's cache, several rows. ONNX Runtime runs the graphs in the loop written here."""
import itertools
import json
import os

import drive
import numpy as np
import onnx
import testing
from onnx import TensorProto as T
from onnx import helper, numpy_helper

VOCAB, BLANK, FEATURES, D = 12, 11, 5, 8
node, info = helper.make_node, helper.make_tensor_value_info


def save(path, nodes, inputs, outputs, constants):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


class Model:
    """Graphs of one form in a folder, and the search over them."""

    def __init__(self, folder, seed, durations, stateless, channels_first, penalty, most):
        rng = np.random.default_rng(seed)
        normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
        self.folder, self.durations, self.stateless, self.first = folder, durations, stateless, channels_first
        self.penalty, self.most, self.sessions = penalty, most, {}
        frames = ["B", D, "T"] if channels_first else ["B", "T", D]
        nodes = [node("MatMul", ["audio_signal", "W"], ["h"]), node("Concat", ["cache", "h"], ["all"], axis=1),
                 node("Slice", ["all", "zero", "minus", "axis"], ["shifted"]), node("MatMul", ["shifted", "U"], ["carried"]),
                 node("Add", ["h", "carried"], ["sum"]), node("Tanh", ["sum"], ["y"]),
                 node("Slice", ["all", "minus", "far", "axis"], ["cache_next"]), node("Identity", ["length"], ["encoded_len"]),
                 node("Transpose", ["y"], ["encoder_output"], perm=[0, 2, 1] if channels_first else [0, 1, 2])]
        save(os.path.join(folder, "encoder.onnx"), nodes,
             [info("audio_signal", T.FLOAT, ["B", "T", FEATURES]), info("length", T.INT64, ["B"]), info("cache", T.FLOAT, ["B", 1, D])],
             [info("encoder_output", T.FLOAT, frames), info("encoded_len", T.INT64, ["B"]), info("cache_next", T.FLOAT, ["B", 1, D])],
             {"W": normal(FEATURES, D), "U": normal(D, D), "zero": np.int64([0]), "minus": np.int64([-1]), "far": np.int64([2**40]),
              "axis": np.int64([1])})
        table = normal(VOCAB, D)
        if stateless:
            save(os.path.join(folder, "predictor.onnx"),
                 [node("Gather", ["table", "targets"], ["e"]), node("Mul", ["e", "weights"], ["weighted"]),
                  node("ReduceSum", ["weighted", "axis"], ["predicted"], keepdims=1)],
                 [info("targets", T.INT64, ["B", 2])], [info("predicted", T.FLOAT, ["B", 1, D])],
                 {"table": table, "weights": np.float32([[[0.4], [1]]]), "axis": np.int64([1])})
        else:
            save(os.path.join(folder, "predictor.onnx"),
                 [node("Gather", ["table", "targets"], ["e"]), node("Transpose", ["state"], ["before"], perm=[1, 0, 2]),
                  node("Add", ["e", "before"], ["sum"]), node("Tanh", ["sum"], ["predicted"]),
                  node("Transpose", ["predicted"], ["state_next"], perm=[1, 0, 2])],
                 [info("targets", T.INT64, ["B", 1]), info("state", T.FLOAT, [1, "B", D])],
                 [info("predicted", T.FLOAT, ["B", 1, D]), info("state_next", T.FLOAT, [1, "B", D])], {"table": table})
        frame = ["B", D, 1] if channels_first else ["B", 1, D]
        perm = [0, 2, 1] if channels_first else [0, 1, 2]
        save(os.path.join(folder, "joiner.onnx"),
             [node("Transpose", ["encoder_frame"], ["f"], perm=perm), node("Add", ["f", "decoder_out"], ["s"]), node("Tanh", ["s"], ["t"]),
              node("MatMul", ["t", "V"], ["flat"]), node("Unsqueeze", ["flat", "axis"], ["logits"])],
             [info("encoder_frame", T.FLOAT, frame), info("decoder_out", T.FLOAT, ["B", 1, D])],
             [info("logits", T.FLOAT, ["B", 1, 1, VOCAB + len(durations)])],
             {"V": normal(D, VOCAB + len(durations)), "axis": np.int64([1])})
        generation = {"max_length": 200, "blank_penalty": penalty}
        if most:
            generation["max_symbols_per_step"] = most
        if durations:
            generation["durations"] = durations
        names = {"encoder": "encoder.onnx", "predictor": "predictor.onnx", "joiner": "joiner.onnx"}
        recurrent = [{"input": "encoder.cache", "output": "encoder.cache_next"}]
        if not stateless:
            recurrent.append({"input": "predictor.state", "output": "predictor.state_next"})
        config = {"version": 2, "tokens": {"blank": BLANK}, "generation": generation,
                  "pipeline": {"extends": "transducer", "sessions": {k: {"file": v} for k, v in names.items()},
                               "state": {"recurrent": recurrent},
                               "dataflow": [{"from": "encoder.encoder_output", "to": "joiner.encoder_frame"},
                                            {"from": "predictor.predicted", "to": "joiner.decoder_out"}]}}
        with open(os.path.join(folder, "genai_config.json"), "w") as f:
            json.dump(config, f)

    def run(self, name, feeds):
        if name not in self.sessions:
            import onnxruntime as ort
            self.sessions[name] = ort.InferenceSession(os.path.join(self.folder, name + ".onnx"))
        return self.sessions[name].run(None, feeds)

    def predict(self, tokens, state):
        if self.stateless:
            last = ([BLANK, BLANK] + tokens)[-2:]
            return self.run("predictor", {"targets": np.int64([last])})[0], None
        return self.run("predictor", {"targets": np.int64([[tokens[-1] if tokens else BLANK]]), "state": state})

    def search(self, chunks, limit=200):
        """Tokens and frames of each chunk."""
        cache, tokens, at, out = np.zeros((1, 1, D), np.float32), [], 0, []
        predicted, state = self.predict(tokens, np.zeros((1, 1, D), np.float32))
        before = 0
        for chunk in chunks:
            y, n, cache = self.run("encoder", {"audio_signal": chunk, "length": np.int64([chunk.shape[1]]), "cache": cache})
            found, frames, symbols = [], [], 0
            while at < int(n[0]) and len(tokens) < limit:
                frame = y[:, :, at:at + 1] if self.first else y[:, at:at + 1]
                logits = self.run("joiner", {"encoder_frame": frame, "decoder_out": predicted})[0].reshape(-1).copy()
                logits[BLANK] -= self.penalty
                best = int(np.argmax(logits[:VOCAB]))
                skip = self.durations[int(np.argmax(logits[VOCAB:]))] if self.durations else int(best == BLANK)
                if best == BLANK:
                    skip = max(skip, 1)
                else:
                    tokens.append(best)
                    found.append(best)
                    frames.append(before + at)
                    predicted, state = self.predict(tokens, state)
                    symbols += 1
                    if self.most and symbols >= self.most and skip == 0:
                        skip = 1
                at += skip
                symbols = 0 if skip else symbols
            at -= int(n[0])
            at = max(at, 0)
            before += int(n[0])
            out.append((found, frames))
        return out


def features(seed, n):
    return np.random.default_rng(seed).standard_normal((1, n, FEATURES)).astype(np.float32)


def files(folder, name, x):
    paths = {"audio_signal": os.path.join(folder, name + ".npy"), "length": os.path.join(folder, name + ".length.npy")}
    np.save(paths["audio_signal"], x)
    np.save(paths["length"], np.full(len(x), x.shape[1], np.int64))
    return paths


def forms():
    durations = ([], [0, 1, 2, 3, 4], [1, 2])
    for i, (d, stateless, first) in enumerate(itertools.product(durations, (False, True), (False, True))):
        yield i, d, stateless, first


def test_chunks():
    n_tokens, skips = 0, 0
    for i, durations, stateless, first in forms():
        with testing.temp_dir() as temp:
            m = Model(temp, 40 + i, durations, stateless, first, [0, 1.5, -1][i % 3], [3, 1, 5][i % 3])
            with drive.Drive(temp, "--quiet") as d:
                for sizes in ([9], [4, 5], [1, 1, 3, 2, 2], [2, 7]):
                    chunks = [features(100 * i + k, n) for k, n in enumerate(sizes)]
                    for k, (want, chunk) in enumerate(zip(m.search(chunks), chunks)):
                        got = d.ask(op="transduce", tensors=files(temp, str(k), chunk), **{"continue": k > 0})
                        testing.equal(got["tokens"], [want[0]], f"form {i}, {sizes}, chunk {k}")
                        testing.equal(got["frames"], [want[1]], f"form {i}, {sizes}, chunk {k}")
                        n_tokens += len(want[0])
    assert n_tokens > 100, n_tokens


def test_rows():
    for i, durations, stateless, first in forms():
        with testing.temp_dir() as temp:
            m = Model(temp, 70 + i, durations, stateless, first, 0, 2)
            rows = np.concatenate([features(k + 10 * i, 6) for k in range(3)])
            want = [m.search([rows[k:k + 1]])[0][0] for k in range(3)]
            with drive.Drive(temp, "--quiet") as d:
                got = d.ask(op="generate", prompts=[[], [], []], tensors=files(temp, "rows", rows), options={"max_new_tokens": 100})
            testing.equal(got["tokens"], want, f"form {i}")


def test_no_limit():
    """A joiner that never gives blank at a frame ends with the length of the row."""
    for durations in ([], [0]):
        with testing.temp_dir() as temp:
            m = Model(temp, 7, durations, False, False, 1e9, 0)
            x = features(3, 4)
            with drive.Drive(temp, "--quiet") as d:
                got = d.ask(op="generate", prompts=[[]], tensors=files(temp, "x", x), options={"max_new_tokens": 50})
            testing.equal(got["tokens"], [m.search([x], 50)[0][0]])
            testing.equal(got["finish"], ["length"])


def test_limits_and_forks():
    """A run that ends at its limit, or is cancelled, leaves the rest of its chunk to the next one, also behind a further chunk, in a fork, and
    beside rows."""
    n_cut = 0
    for i, durations, stateless, first in forms():
        with testing.temp_dir() as temp:
            m = Model(temp, 40 + i, durations, stateless, first, -1, 3)
            chunks = [features(500 + i, 9), features(600 + i, 4)]
            want = m.search(chunks)
            whole = want[0][0] + want[1][0]
            first_chunk, second = [files(temp, str(k), x) for k, x in enumerate(chunks)]
            rows = [features(700 + i, 6), features(800 + i, 6)]
            with drive.Drive(temp, "--quiet") as d:
                for n in (1, 2, 3):
                    steps = [{"append": [], "tensors": first_chunk}, {"generate": n}, {"fork": True}, {"generate": n}]
                    steps += [{"append": [], "tensors": second}, {"generate": 100}]
                    got = d.ask(op="timeline", steps=steps)["steps"]
                    testing.equal([t for step in got for t in step.get("tokens", [])], whole, f"form {i}, {n} at a time")
                    n_cut += len(whole) > 2 * n
                for us in (0, 20, 60, 150, 400):
                    steps = [{"append": [], "tensors": first_chunk}, {"generate": 100, "cancel_after_us": us}, {"generate": 100}]
                    got = d.ask(op="timeline", steps=steps)["steps"]
                    testing.equal([t for step in got for t in step.get("tokens", [])], want[0][0], f"form {i}, cancelled after {us} us")
                got = d.ask(op="generate", prompts=[[], []], tensors=files(temp, "rows", np.concatenate(rows)), options={"max_new_tokens": 1})
                testing.equal(got["tokens"], [m.search([x])[0][0][:1] for x in rows], f"form {i}, rows")
    assert n_cut > 10, n_cut


def test_rows_at_once_and_lengths_left_out():
    """Rows of one length in one tensor; without a length it is that of the features, whatever their layout."""
    for i, durations, stateless, first in forms():
        with testing.temp_dir() as temp:
            m = Model(temp, 70 + i, durations, stateless, first, 0, 3)
            rows = [features(300 + i, 7), features(400 + i, 7)]
            expected = [m.search([x])[0] for x in rows]
            paths = files(temp, "rows", np.concatenate(rows))
            with drive.Drive(temp, "--quiet") as d:
                for tensors in (paths, {"audio_signal": paths["audio_signal"]}):
                    answer = d.ask(op="transduce", tensors=tensors)
                    testing.equal(answer["tokens"], [t for t, _ in expected])
                    testing.equal(answer["frames"], [f for _, f in expected])


testing.main()
