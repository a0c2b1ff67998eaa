#!/usr/bin/env python3
"""Makes the five example folders beside this file: one per shape of pipeline, over tiny graphs of random weights.

usage: make.py [OUT]      (needs numpy, onnx, onnxruntime)

Each folder has its graphs, genai_config.json, and golden.json: requests and the tokens that ONNX Runtime gives for them when every session is
run by hand over the whole sequence for each token, so that neither a cache nor a plan is involved.
"""
import json
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper as nh

VOCAB, HIDDEN, HEADS, DIM, LAYERS, TABLE, NEW = 40, 16, 2, 8, 2, 96, 8
IMAGE, AUDIO, EOS, PAD, START, BLANK = 5, 7, 2, 0, 3, 39
INT, FLOAT = T.INT64, T.FLOAT


class Graph:
    """A graph in the making: every call of op appends a node and returns its output."""

    def __init__(self, seed):
        self.rng, self.nodes, self.inits, self.inputs, self.outputs = np.random.default_rng(seed), [], [], [], []

    def const(self, array, dtype=np.int64):
        self.inits.append(nh.from_array(np.asarray(array, dtype), f"c{len(self.inits)}"))
        return self.inits[-1].name

    def weight(self, *shape, scale=None):
        return self.const(self.rng.standard_normal(shape) * (scale or shape[0] ** -0.5), np.float32)

    def op(self, kind, *inputs, out=None, **attrs):
        name = out or f"v{len(self.nodes)}"
        self.nodes.append(h.make_node(kind, list(inputs), [name], **attrs))
        return name

    def input(self, name, elem, *shape):
        self.inputs.append(h.make_tensor_value_info(name, elem, list(shape)))
        return name

    def output(self, name, elem, *shape):
        self.outputs.append(h.make_tensor_value_info(name, elem, list(shape)))

    def save(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        graph = h.make_graph(self.nodes, "example", self.inputs, self.outputs, self.inits)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], producer_name="treadle examples")
        model.ir_version = 9
        onnx.checker.check_model(model)
        onnx.save(model, path)

    # --- parts
    def size(self, name, axis):
        return self.op("Gather", self.op("Shape", name), self.const(axis))

    def norm(self, x):
        square = self.op("ReduceMean", self.op("Mul", x, x), self.const([-1]), keepdims=1)
        return self.op("Div", x, self.op("Sqrt", self.op("Add", square, self.const(1e-3, np.float32))))

    def heads(self, x):
        return self.op("Transpose", self.op("Reshape", x, self.const([0, 0, HEADS, DIM])), perm=[0, 2, 1, 3])

    def attend(self, q, k, v, bias=None):
        scores = self.op("Mul", self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2])), self.const(DIM ** -0.5, np.float32))
        if bias:
            scores = self.op("Add", scores, bias)
        out = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.op("MatMul", self.op("Reshape", out, self.const([0, 0, HEADS * DIM])), self.weight(HEADS * DIM, HIDDEN))

    def causal(self, new, past):
        """0 where a new token may look, -inf elsewhere."""
        total = self.op("Add", new, past)
        columns = self.op("Unsqueeze", self.op("Range", self.const(0), total, self.const(1)), self.const([0]))
        rows = self.op("Unsqueeze", self.op("Range", past, total, self.const(1)), self.const([1]))
        seen = self.op("LessOrEqual", columns, rows)
        return self.op("Where", seen, self.const(0, np.float32), self.const(-np.inf, np.float32))

    def layers(self, x, new, past_name, present_name, cross=None):
        """Self attention with caches, cross attention where there is a source, a gated layer."""
        past = self.size(past_name.format(part="key", i=0), 2)
        bias = self.causal(new, past)
        for i in range(LAYERS):
            n, cache = self.norm(x), {}
            for part in ("key", "value"):
                name = past_name.format(part=part, i=i)
                self.input(name, FLOAT, "batch", HEADS, "past", DIM)
                self.output(present_name.format(part=part, i=i), FLOAT, "batch", HEADS, "present", DIM)
                fresh = self.heads(self.op("MatMul", n, self.weight(HIDDEN, HEADS * DIM)))
                cache[part] = self.op("Concat", name, fresh, axis=2, out=present_name.format(part=part, i=i))
            q = self.heads(self.op("MatMul", n, self.weight(HIDDEN, HEADS * DIM)))
            x = self.op("Add", x, self.attend(q, cache["key"], cache["value"], bias))
            if cross:
                source = [self.input(cross.format(part=part, i=i), FLOAT, "batch", HEADS, "source", DIM) for part in ("key", "value")]
                q = self.heads(self.op("MatMul", self.norm(x), self.weight(HIDDEN, HEADS * DIM)))
                x = self.op("Add", x, self.attend(q, *source))
            u = self.op("MatMul", self.norm(x), self.weight(HIDDEN, 2 * HIDDEN))
            x = self.op("Add", x, self.op("MatMul", self.op("Mul", u, self.op("Sigmoid", u)), self.weight(2 * HIDDEN, HIDDEN)))
        self.op("MatMul", self.norm(x), self.weight(HIDDEN, VOCAB, scale=0.9), out="logits")
        self.output("logits", FLOAT, "batch", "seq", VOCAB)


KV = dict(past_name="past_key_values.{i}.{part}", present_name="present.{i}.{part}")


def decoder(seed, path, embeds=False, axes=1):
    g = Graph(seed)
    if embeds:
        x = g.input("inputs_embeds", FLOAT, "batch", "seq", HIDDEN)
        new = g.size(x, 1)
    else:
        ids = g.input("input_ids", INT, "batch", "seq")
        new = g.size(ids, 1)
        x = g.op("Gather", g.weight(VOCAB, HIDDEN, scale=1.0), ids)
    g.input("attention_mask", INT, "batch", "total")
    positions = g.input("position_ids", INT, *([3] if axes == 3 else []), "batch", "seq")
    for axis in range(axes):
        at = g.op("Gather", positions, g.const(axis)) if axes == 3 else positions
        x = g.op("Add", x, g.op("Gather", g.weight(TABLE, HIDDEN, scale=0.7), at))
    g.layers(x, new, **KV)
    g.save(path)


def embedding(seed, path, features):
    """ids and features: a feature row in the place of each placeholder."""
    g = Graph(seed)
    ids = g.input("input_ids", INT, "batch", "seq")
    x = g.op("Gather", g.weight(VOCAB, HIDDEN, scale=1.0), ids)
    for name, token in features.items():
        g.input(name, FLOAT, f"n_{name}", HIDDEN)
        here = g.op("Equal", ids, g.const(token))
        order = g.op("CumSum", g.op("Cast", here, to=INT), g.const(1))  # from 1 on
        rows = g.op("Concat", g.const(np.zeros((1, HIDDEN)), np.float32), name, axis=0)
        row = g.op("Gather", rows, g.op("Mul", order, g.op("Cast", here, to=INT)))
        x = g.op("Where", g.op("Unsqueeze", here, g.const([2])), row, x)
    g.op("Identity", x, out="inputs_embeds")
    g.output("inputs_embeds", FLOAT, "batch", "seq", HIDDEN)
    g.save(path)


def vision_patches(seed, path):
    """Four neighbouring patches make a feature; the grid of an image counts in its brightness."""
    g = Graph(seed)
    pixels = g.input("pixel_values", FLOAT, "patches", 12)
    grid = g.input("image_grid_thw", INT, "images", 3)
    x = g.op("MatMul", g.op("Reshape", pixels, g.const([-1, 48])), g.weight(48, HIDDEN))
    size = g.op("Cast", g.op("ReduceSum", grid, keepdims=0), to=FLOAT)
    g.op("Tanh", g.op("Mul", x, g.op("Mul", size, g.const(0.3, np.float32))), out="image_features")
    g.output("image_features", FLOAT, "tokens", HIDDEN)
    g.save(path)


def vision_batched(seed, path):
    """Each image makes two features."""
    g = Graph(seed)
    pixels = g.input("pixel_values", FLOAT, "images", 3, 4, 4)
    x = g.op("MatMul", g.op("Reshape", pixels, g.const([-1, 24])), g.weight(24, HIDDEN))
    g.op("Tanh", x, out="image_features")
    g.output("image_features", FLOAT, "image_tokens", HIDDEN)
    g.save(path)


def audio_encoder(seed, path):
    """Two frames make a feature."""
    g = Graph(seed)
    frames = g.input("audio_embeds", FLOAT, "clips", "frames", 8)
    g.op("Tanh", g.op("MatMul", g.op("Reshape", frames, g.const([-1, 16])), g.weight(16, HIDDEN)), out="audio_features")
    g.output("audio_features", FLOAT, "audio_tokens", HIDDEN)
    g.save(path)


CROSS = "past_{part}_cross_{i}"


def encoder(seed, path):
    g = Graph(seed)
    mel = g.input("input_features", FLOAT, "batch", 8, "frames")
    x = g.op("Tanh", g.op("MatMul", g.op("Transpose", mel, perm=[0, 2, 1]), g.weight(8, HIDDEN)))
    for i in range(LAYERS):
        for part in ("key", "value"):
            name = f"present_{part}_cross_{i}"
            g.op("Identity", g.heads(g.op("MatMul", x, g.weight(HIDDEN, HEADS * DIM, scale=0.6))), out=name)
            g.output(name, FLOAT, "batch", HEADS, "source", DIM)
    g.save(path)


def cross_decoder(seed, path):
    g = Graph(seed)
    ids = g.input("input_ids", INT, "batch", "seq")
    new, past = g.size(ids, 1), g.size("past_key_self_0", 2)
    at = g.op("Range", past, g.op("Add", past, new), g.const(1))
    x = g.op("Add", g.op("Gather", g.weight(VOCAB, HIDDEN, scale=1.0), ids), g.op("Gather", g.weight(TABLE, HIDDEN, scale=0.7), at))
    g.layers(x, new, "past_{part}_self_{i}", "present_{part}_self_{i}", cross=CROSS)
    g.save(path)


def transducer(seed, folder):
    g = Graph(seed)
    audio = g.input("audio_signal", FLOAT, "batch", "time", 8)
    g.op("Tanh", g.op("MatMul", audio, g.weight(8, HIDDEN, scale=0.9)), out="encoder_output")
    g.output("encoder_output", FLOAT, "batch", "time", HIDDEN)
    g.save(os.path.join(folder, "encoder/model.onnx"))
    g = Graph(seed + 1)
    targets, state = g.input("targets", INT, "batch", 1), g.input("state", FLOAT, "batch", HIDDEN)
    x = g.op("Squeeze", g.op("Gather", g.weight(VOCAB, HIDDEN, scale=1.0), targets), g.const([1]))
    new = g.op("Tanh", g.op("Add", x, g.op("MatMul", state, g.weight(HIDDEN, HIDDEN))), out="state_out")
    g.op("Unsqueeze", new, g.const([1]), out="decoder_output")
    g.output("decoder_output", FLOAT, "batch", 1, HIDDEN)
    g.output("state_out", FLOAT, "batch", HIDDEN)
    g.save(os.path.join(folder, "predictor/model.onnx"))
    g = Graph(seed + 2)
    both = g.op("Add", g.input("encoder_outputs", FLOAT, "batch", 1, HIDDEN), g.input("decoder_outputs", FLOAT, "batch", 1, HIDDEN))
    bias = np.zeros(VOCAB)
    bias[BLANK] = 1.5
    g.op("Add", g.op("MatMul", g.op("Tanh", both), g.weight(HIDDEN, VOCAB, scale=0.9)), g.const(bias, np.float32), out="logits")
    g.output("logits", FLOAT, "batch", 1, VOCAB)
    g.save(os.path.join(folder, "joiner/model.onnx"))


# --- what must come out: ONNX Runtime, session by session, over the whole sequence for every token

class NearTie(Exception):
    """Two tokens that another order of sums might swap, or a placeholder: another seed is taken."""


def session(folder, name):
    import onnxruntime as ort
    return ort.InferenceSession(os.path.join(folder, name), providers=["CPUExecutionProvider"])


def run(s, outputs, **given):
    feed = {}
    for i in s.get_inputs():
        feed[i.name] = given.get(i.name)
        if feed[i.name] is None:
            shape = [d if isinstance(d, int) else 1 if d == "batch" else 0 for d in i.shape]
            feed[i.name] = np.zeros(shape, np.float32)
    return s.run(outputs, feed)


def pick(logits):
    order = np.sort(logits)
    if order[-1] - order[-2] < 0.03 or logits.argmax() in (IMAGE, AUDIO):
        raise NearTie
    return int(logits.argmax())


def greedy(prompt, step):
    ids = list(prompt)
    for _ in range(NEW):
        ids.append(pick(step(np.array([ids]))[0, -1]))
        if ids[-1] == EOS:
            break
    return ids[len(prompt):]


def plain(s, ids, **given):
    n = ids.shape[1]
    return run(s, ["logits"], input_ids=ids, position_ids=np.arange(n)[None], attention_mask=np.ones((1, n), np.int64), **given)[0]


def rope_positions(ids, grids):
    """Text counts up in all three; an image lies on its merged grid and text goes on behind its longer side."""
    out, at, grids = [], 0, list(grids)
    i = 0
    while i < len(ids):
        if ids[i] != IMAGE:
            out.append((at, at, at))
            at, i = at + 1, i + 1
            continue
        _, height, width = (int(v) for v in grids.pop(0))
        height, width = height // 2, width // 2
        out += [(at, at + y, at + x) for y in range(height) for x in range(width)]
        at, i = at + max(height, width), i + height * width
    return np.array(out).T[:, None, :]


def with_features(folder, prompt, features, positions=None):
    merge, last = session(folder, "embedding/model.onnx"), session(folder, "decoder/model.onnx")

    def step(ids):
        embeds = run(merge, ["inputs_embeds"], input_ids=ids, **features)[0]
        n = ids.shape[1]
        at = positions(ids[0]) if positions else np.arange(n)[None]
        return run(last, ["logits"], inputs_embeds=embeds, attention_mask=np.ones((1, n), np.int64), position_ids=at)[0]
    return greedy(prompt, step)


def config(pipeline, tokens, note, **more):
    return {"version": 2, "pipeline": pipeline, "tokens": tokens, "generation": dict(max_length=64, **more),
            "metadata": {"model_type": note, "source": "treadle examples"}}


def make_decoder(folder, seed):
    decoder(seed, os.path.join(folder, "model.onnx"))
    s = session(folder, "model.onnx")
    return config({"extends": "autoregressive-decoder", "sessions": {"decoder": {"file": "model.onnx"}}}, {"eos": [EOS], "pad": PAD}, "decoder only"), [
        {"prompt": p, "tokens": greedy(p, lambda ids: plain(s, ids))} for p in ([1, 7, 20, 13], [1, 30])]


def make_vision_language(folder, seed):
    vision_patches(seed, os.path.join(folder, "vision_encoder/model.onnx"))
    embedding(seed + 1, os.path.join(folder, "embedding/model.onnx"), {"image_features": IMAGE})
    decoder(seed + 2, os.path.join(folder, "decoder/model.onnx"), embeds=True, axes=3)
    eye, rng, cases = session(folder, "vision_encoder/model.onnx"), np.random.default_rng(seed), []
    for grids in ([(1, 4, 4)], [(1, 2, 6), (1, 4, 2)], []):
        pixels = [rng.standard_normal((t * y * x, 12)).astype(np.float32) for t, y, x in grids]
        prompt = [1, 14]
        for t, y, x in grids:
            prompt += [8] + [IMAGE] * (t * y * x // 4) + [9]
        prompt += [21, 30]
        parts = [run(eye, ["image_features"], pixel_values=p, image_grid_thw=np.array([g]))[0] for p, g in zip(pixels, grids)]
        features = {"image_features": np.concatenate(parts)} if parts else {}
        case = {"prompt": prompt, "tokens": with_features(folder, prompt, features, lambda ids, g=grids: rope_positions(ids, g))}
        if grids:
            case["tensors"] = {"pixel_values": np.concatenate(pixels), "image_grid_thw": np.array(grids)}
        cases.append(case)
    return config({
        "extends": "vision-language",
        "sessions": {"vision": {"file": "vision_encoder/model.onnx"}, "embedding": {"file": "embedding/model.onnx"}, "decoder": {"file": "decoder/model.onnx"}},
        "flow": [{"run": "vision", "when": "prompt", "loop": "per_image"}, {"run": "embedding", "when": "prompt"}, {"run": "decoder", "when": "always"}],
        "dataflow": [{"from": "vision.image_features", "to": "embedding.image_features"}, {"from": "embedding.inputs_embeds", "to": "decoder.inputs_embeds"}],
        "state": {"kv_cache": {"format": "auto"}, "position_ids": {"strategy": "mrope_3d", "grid_source": "vision.image_grid_thw"}}},
        {"eos": [EOS], "pad": PAD, "image_token": IMAGE}, "vision and language"), cases


def make_encoder_decoder(folder, seed):
    encoder(seed, os.path.join(folder, "encoder/model.onnx"))
    cross_decoder(seed + 1, os.path.join(folder, "decoder/model.onnx"))
    ear, mouth, rng, cases = session(folder, "encoder/model.onnx"), session(folder, "decoder/model.onnx"), np.random.default_rng(seed), []
    names = [o.name for o in ear.get_outputs()]
    for frames in (12, 7):
        mel = rng.standard_normal((1, 8, frames)).astype(np.float32)
        cross = {n.replace("present", "past"): v for n, v in zip(names, run(ear, names, input_features=mel))}
        step = lambda ids, c=cross: run(mouth, ["logits"], input_ids=ids, **c)[0]
        cases.append({"prompt": [START, 11], "tensors": {"input_features": mel}, "tokens": greedy([START, 11], step)})
    return config({
        "extends": "encoder-decoder",
        "sessions": {"encoder": {"file": "encoder/model.onnx"}, "decoder": {"file": "decoder/model.onnx"}},
        "flow": [{"run": "encoder", "when": "once"}, {"run": "decoder", "when": "always", "cross_attention_from": "encoder"}],
        "state": {"kv_cache": {"format": "auto"}, "cross_cache": {"source": "encoder", "frozen": True}}},
        {"eos": [EOS], "pad": PAD, "decoder_start": START}, "encoder and decoder"), cases


def make_multimodal(folder, seed):
    vision_batched(seed, os.path.join(folder, "vision_encoder/model.onnx"))
    audio_encoder(seed + 1, os.path.join(folder, "audio_encoder/model.onnx"))
    embedding(seed + 2, os.path.join(folder, "embedding/model.onnx"), {"image_features": IMAGE, "audio_features": AUDIO})
    decoder(seed + 3, os.path.join(folder, "decoder/model.onnx"), embeds=True)
    eye, ear, rng, cases = session(folder, "vision_encoder/model.onnx"), session(folder, "audio_encoder/model.onnx"), np.random.default_rng(seed), []
    for n_images, n_frames in ((1, 0), (0, 6), (2, 4), (0, 0)):
        prompt, features, tensors = [1] + [IMAGE] * (2 * n_images) + [AUDIO] * (n_frames // 2) + [21, 30], {}, {}
        if n_images:
            tensors["pixel_values"] = rng.standard_normal((n_images, 3, 4, 4)).astype(np.float32)
            features["image_features"] = run(eye, ["image_features"], **{"pixel_values": tensors["pixel_values"]})[0]
        if n_frames:
            tensors["audio_embeds"] = rng.standard_normal((1, n_frames, 8)).astype(np.float32)
            features["audio_features"] = run(ear, ["audio_features"], **{"audio_embeds": tensors["audio_embeds"]})[0]
        case = {"prompt": prompt, "tokens": with_features(folder, prompt, features)}
        if tensors:
            case["tensors"] = tensors
        cases.append(case)
    return config({
        "sessions": {"vision": {"file": "vision_encoder/model.onnx"}, "speech": {"file": "audio_encoder/model.onnx"},
                     "embedding": {"file": "embedding/model.onnx"}, "decoder": {"file": "decoder/model.onnx"}},
        "flow": [{"run": "vision", "when": "prompt", "loop": "batched"}, {"run": "speech", "when": "prompt", "loop": "batched"},
                 {"run": "embedding", "when": "prompt"}, {"run": "decoder", "when": "always"}],
        "dataflow": [{"from": "vision.image_features", "to": "embedding.image_features"}, {"from": "speech.audio_features", "to": "embedding.audio_features"},
                     {"from": "embedding.inputs_embeds", "to": "decoder.inputs_embeds"}],
        "state": {"kv_cache": {"format": "auto"}, "position_ids": {"strategy": "default"}}},
        {"eos": [EOS], "pad": PAD}, "vision, audio and language"), cases


def make_plugin(folder, seed):
    transducer(seed, folder)
    ear, predictor, joiner = (session(folder, f"{n}/model.onnx") for n in ("encoder", "predictor", "joiner"))
    rng, cases = np.random.default_rng(seed), []
    for n in (9, 5):
        audio = rng.standard_normal((1, n, 8)).astype(np.float32)
        frames = run(ear, ["encoder_output"], audio_signal=audio)[0]
        predicted, state = run(predictor, ["decoder_output", "state_out"], targets=np.array([[BLANK]]), state=np.zeros((1, HIDDEN), np.float32))
        tokens = []
        for frame in range(n):
            for _ in range(3):
                token = pick(run(joiner, ["logits"], encoder_outputs=frames[:, frame:frame + 1], decoder_outputs=predicted)[0][0, 0])
                if token == BLANK:
                    break
                tokens.append(token)
                predicted, state = run(predictor, ["decoder_output", "state_out"], targets=np.array([[token]]), state=state)
        if not 3 <= len(tokens) < 20:
            raise NearTie
        cases.append({"prompt": [BLANK], "tensors": {"audio_signal": audio}, "tokens": tokens + [BLANK]})
    return config({
        "plugin": {"library": "libgenai_rnnt.so", "entry_point": "CreateRnntPipeline"},
        "sessions": {"encoder": {"file": "encoder/model.onnx"}, "predictor": {"file": "predictor/model.onnx"}, "joiner": {"file": "joiner/model.onnx"}}},
        {"eos": [BLANK]}, "a pipeline of its own"), cases


EXAMPLES = {"1-decoder": make_decoder, "2-vision-language": make_vision_language, "3-encoder-decoder": make_encoder_decoder,
            "4-multimodal": make_multimodal, "5-plugin": make_plugin}


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for name, make in EXAMPLES.items():
        folder = os.path.join(out, name)
        for seed in range(1, 3000, 10):
            try:
                settings, cases = make(folder, seed)
            except NearTie:
                continue
            break
        else:
            sys.exit(f"{name}: no seed without a near-tie")
        for case in cases:
            for key, array in case.get("tensors", {}).items():
                case["tensors"][key] = {"dtype": str(array.dtype), "shape": list(array.shape), "data": array.ravel().tolist()}
        with open(os.path.join(folder, "genai_config.json"), "w", encoding="utf-8") as f:
            f.write(json.dumps(settings, indent=2) + "\n")
        with open(os.path.join(folder, "golden.json"), "w", encoding="utf-8") as f:
            f.write(json.dumps(cases) + "\n")
        print(name, "seed", seed, [case["tokens"] for case in cases])


if __name__ == "__main__":
    main()
