"""Tiny random decoders of every kind of cache, and NumPy beside them: the same weights, the whole sequence at once, no cache.

    spec = decoders.random_spec(rng)             # what the graph is: sizes, layers, cache, inputs
    decoders.write(spec, folder)                 # model.onnx
    logits = decoders.forward(spec, ids)         # [n, vocab], float64

A spec is a plain dict, so that a test can set what it is about. `layers` is a list of
  {"kind": "attention", "layer", "kv_heads", "groups", "dim", "window"}       heads = kv_heads * groups
  {"kind": "conv", "layer", "kernel"}, {"kind": "ssm", "layer", "states"}, {"kind": "delta", "layer", "heads", "dim"},
  {"kind": "gru", "layer"}, {"kind": "lstm", "layer"}                         recurrent
"""
import os

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

CAPACITY = 40
IMAGE = 3  # the token that stands for a feature of an image
TABLE = 64
NAMES = {
    "hf": ("past_key_values.{n}.{kv}", "present.{n}.{kv}"),
    "under": ("past_{kv}_{n}", "present_{kv}_{n}"),
    "cache": ("{kv}_cache.{n}", "updated_{kv}_cache.{n}"),
    "short": ("past.{n}.{k}", "present.{n}.{k}"),
    "out": ("cache_{k}_{n}", "cache_{k}_{n}_out"),
    "layers": ("model.layers.{n}.past_{kv}", "model.layers.{n}.present_{kv}"),
}
COMBINED_NAMES = {"hf": ("past_{n}", "present_{n}"), "under": ("past_key_values_{n}", "present_key_values_{n}"),
                  "cache": ("kv_cache.{n}", "new_kv_cache.{n}"), "short": ("past.{n}", "present.{n}"),
                  "out": ("kv_{n}_in", "kv_{n}_out"), "layers": ("layers.{n}.past", "layers.{n}.present")}
CROSS_NAMES = {  # of the decoder's self and cross caches, and what the encoder calls the latter
    "hf": ("past_key_values.{n}.decoder.{kv}", "present.{n}.decoder.{kv}", "past_key_values.{n}.encoder.{kv}", "present.{n}.encoder.{kv}"),
    "under": ("past_{kv}_self_{n}", "present_{kv}_self_{n}", "past_{kv}_cross_{n}", "present_{kv}_cross_{n}"),
    "cache": ("{kv}_cache.{n}", "updated_{kv}_cache.{n}", "cross_{kv}_cache.{n}", "cross_{kv}_cache.{n}"),
    "short": ("past.{n}.{k}", "present.{n}.{k}", "encoder.{n}.{k}", "encoder.{n}.{k}"),
    "out": ("self_{k}_{n}_in", "self_{k}_{n}_out", "cross_{k}_{n}", "cross_{k}_{n}"),
    "layers": ("layers.{n}.past_{kv}", "layers.{n}.present_{kv}", "layers.{n}.cross_{kv}", "layers.{n}.cross_{kv}"),
}
CACHES = ("concat", "combined", "gqa", "op23", "op24", "position", "scatternd", "indices")
LAYOUTS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "bhds": (0, 1, 3, 2), "flat": (0, 2, 1, 3), "hbsd": (1, 0, 2, 3)}


def random_spec(rng, cache=None, recurrent=None):
    pick = lambda *of: of[rng.integers(len(of))]
    cache = cache or pick(*CACHES)
    recurrent = recurrent if recurrent is not None else pick(False, False, False, True)
    spec = {"seed": int(rng.integers(1 << 30)), "cache": cache, "vocab": int(rng.integers(20, 300)), "hidden": pick(8, 12, 16, 20, 32),
            "names": pick(*NAMES), "layout": pick(*LAYOUTS) if cache in ("concat", "position") else "bhsd",
            "dtype": pick("float32", "float32", "float16") if cache not in ("indices",) else "float32",
            "ids": pick("int64", "int32"), "positions": pick("int64", "int32", "none"), "mask": pick("int64", "int32", "bool", "float32", "none"),
            "logits": pick("all", "last", "last2"), "dims": pick("named", "unk", "none"), "rank1": False, "learned": pick(True, False)}
    per_layer = pick(True, False)
    layers, number = [], 0
    dims = lambda: pick(4, 6, 8, 10, 16) if cache != "gqa" else 16
    shape = lambda: {"kv_heads": pick(1, 2, 3, 4), "groups": pick(1, 2, 3), "dim": dims()}
    common = shape()
    for i in range(pick(1, 2, 3, 4, 5)):
        layer = {"kind": "attention", "layer": number, "window": 0, **(shape() if per_layer else common)}
        if recurrent and (i != 1 or pick(True, False)):
            layer = pick({"kind": "conv", "layer": number, "kernel": pick(2, 3, 4)}, {"kind": "ssm", "layer": number, "states": pick(1, 3, 5)},
                         {"kind": "delta", "layer": number, "heads": pick(1, 2), "dim": pick(3, 4)}, {"kind": "gru", "layer": number},
                         {"kind": "lstm", "layer": number})
        layers.append(layer)
        number += pick(1, 1, 1, 3)
    spec["layers"] = layers
    attention = [l for l in layers if l["kind"] == "attention"]
    if cache != "indices" and attention and pick(True, False, False):
        pick(*attention)["window"] = int(rng.integers(2, 7))
    if cache in ("gqa", "indices", "combined"):
        spec["mask"] = "none" if cache != "combined" else spec["mask"]
    if not attention:
        spec["mask"], spec["positions"] = "none", "none"
    if cache in ("position", "scatternd", "indices", "gqa") and attention:
        spec["positions"] = "int64" if spec["positions"] == "none" else spec["positions"]
    return spec


# --- weights: drawn in the order of the layers, used by the graph and by NumPy

def weights(spec):
    rng = np.random.default_rng(spec["seed"])
    dtype = np.dtype(spec["dtype"])
    w = lambda *shape, scale=None: (rng.standard_normal(shape) * (scale or 1 / np.sqrt(shape[0]))).astype(dtype)
    h = spec["hidden"]
    out = {} if not spec.get("cross") else {"source": w(spec["mels"] if spec["source"] == "mel" else spec["vocab"], spec["width"], scale=1.0)}
    out |= {"embed": w(spec["vocab"], h, scale=1.0), "table": w(TABLE, h, scale=0.5), "head": w(h, spec["vocab"], scale=2 / np.sqrt(h)), "layers": []}
    for l in spec["layers"]:
        if l["kind"] == "attention":
            q, kv = l["kv_heads"] * l["groups"] * l["dim"], l["kv_heads"] * l["dim"]
            p = {"q": w(h, q, scale=2 / np.sqrt(h)), "k": w(h, kv, scale=2 / np.sqrt(h)), "v": w(h, kv), "o": w(q, h)}
        elif l["kind"] == "conv":
            p = {"in": w(h, h), "kernel": w(h, 1, l["kernel"], scale=0.7), "out": w(h, h)}
        elif l["kind"] == "ssm":
            p = {"in": w(h, h), "decay": (0.5 + 0.45 * rng.random((h, l["states"]))).astype(dtype), "b": w(h, l["states"]), "c": w(h, l["states"]), "out": w(h, h)}
        elif l["kind"] == "delta":
            n, d = l["heads"], l["dim"]
            p = {"q": w(h, n * d), "k": w(h, n * d, scale=0.3), "v": w(h, n * d), "beta": w(h, n), "out": w(n * d, h)}
        else:
            g = 3 if l["kind"] == "gru" else 4
            p = {"w": w(1, g * h, h, scale=1 / np.sqrt(h)), "r": w(1, g * h, h, scale=1 / np.sqrt(h))}
        p["up"], p["down"] = w(h, 2 * h), w(2 * h, h)
        if spec.get("cross"):
            n = l["heads"] * l["size"]
            p["cq"], p["ck"], p["cv"], p["co"] = w(h, n, scale=2 / np.sqrt(h)), w(spec["width"], n, scale=2 / np.sqrt(h)), w(spec["width"], n), w(n, h, scale=2 / np.sqrt(h))
        out["layers"].append(p)
    return out


# --- NumPy

def norm(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rope(x, positions):
    """x [heads, n, dim]: halves turned by position times 100^(-2i/dim)."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * (100.0 ** (-np.arange(half) / half))[None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


def attend(l, p, x, positions, quantized):
    n = len(x)
    split = lambda m, heads: (x @ m).reshape(n, heads, l["dim"]).transpose(1, 0, 2)
    q, k, v = split(p["q"], l["kv_heads"] * l["groups"]), split(p["k"], l["kv_heads"]), split(p["v"], l["kv_heads"])
    if positions is not None:
        q, k = rope(q, positions), rope(k, positions)
    if quantized:  # what the cache holds: int8 at a scale of 1/16
        k, v = (np.clip(np.rint(t * 16), -128, 127) / 16 for t in (k, v))
    k, v = np.repeat(k, l["groups"], 0), np.repeat(v, l["groups"], 0)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(l["dim"])
    i, j = np.arange(n)[:, None], np.arange(n)[None]
    hidden = (j > i) | ((l["window"] > 0) & (j <= i - l["window"]))
    scores = np.where(hidden, -np.inf, scores)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return ((e / e.sum(-1, keepdims=True)) @ v).transpose(1, 0, 2).reshape(n, -1) @ p["o"]


def recur(l, p, x):
    n, h = x.shape
    out = []
    if l["kind"] == "conv":
        u = np.concatenate([np.zeros((l["kernel"] - 1, h)), x @ p["in"]])
        return np.stack([(u[t:t + l["kernel"]] * p["kernel"][:, 0].T).sum(0) for t in range(n)]) @ p["out"]
    if l["kind"] == "ssm":
        s, u, b, c = np.zeros((h, l["states"])), x @ p["in"], x @ p["b"], x @ p["c"]
        for t in range(n):
            s = s * p["decay"] + u[t][:, None] * b[t][None]
            out.append((s * c[t][None]).sum(1))
        return np.stack(out) @ p["out"]
    if l["kind"] == "delta":
        split = lambda m: (x @ m).reshape(n, l["heads"], l["dim"])
        s, q, k, v, beta = np.zeros((l["heads"], l["dim"], l["dim"])), split(p["q"]), split(p["k"]), split(p["v"]), sigmoid(x @ p["beta"])
        k = k / np.sqrt((k * k).sum(-1, keepdims=True) + 1e-4)
        for t in range(n):
            s = s * 0.9
            read = (s * k[t][:, :, None]).sum(1)
            s = s + k[t][:, :, None] * ((v[t] - read) * beta[t][:, None])[:, None]
            out.append((s * q[t][:, :, None]).sum(1).reshape(-1))
        return np.stack(out) @ p["out"]
    s, cell, w, r = np.zeros(h), np.zeros(h), p["w"][0], p["r"][0]
    for t in range(n):
        a, b = (w @ x[t]).reshape(-1, h), (r @ s).reshape(-1, h)
        if l["kind"] == "gru":  # gates z, r, h of ONNX; linear_before_reset 0
            z, reset = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
            s = (1 - z) * np.tanh(a[2] + r.reshape(3, h, h)[2] @ (reset * s)) + z * s
        else:  # i, o, f, c
            i, o, f = (sigmoid(a[k] + b[k]) for k in range(3))
            cell = f * cell + i * np.tanh(a[3] + b[3])
            s = o * np.tanh(cell)
        out.append(s)
    return np.stack(out)


def encode(spec, source):
    """What a decoder with cross attention looks at, [n, width]: of ids, or of sound [mels, n]."""
    table = weights(spec)["source"].astype(np.float64)
    return np.tanh(source.T @ table) if spec["source"] == "mel" else np.tanh(table[list(source)])


def attend_source(l, p, x, encoded):
    split = lambda t, m: (t @ m).reshape(len(t), l["heads"], l["size"]).transpose(1, 0, 2)
    q, k, v = split(x, p["cq"]), split(encoded, p["ck"]), split(encoded, p["cv"])
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(l["size"])
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return ((e / e.sum(-1, keepdims=True)) @ v).transpose(1, 0, 2).reshape(len(x), -1) @ p["co"]


def forward(spec, ids, features=None, encoded=None):
    """features [n, hidden]: what stands in the places of IMAGE tokens; encoded: of `encode`."""
    w = weights(spec)
    up = lambda t: {k: v.astype(np.float64) for k, v in t.items() if k != "layers"}
    top = up(w)
    x = top["embed"][list(ids)]
    if features is not None:
        x[np.array(ids) == IMAGE] = features[: list(ids).count(IMAGE)]
    positions = np.arange(len(ids)) if rotates(spec) else None
    if spec["learned"] and takes_positions(spec):
        x = x + top["table"][: len(ids)]
    for l, p in zip(spec["layers"], w["layers"]):
        p = up(p)
        y = attend(l, p, norm(x), positions, spec.get("kv_dtype")) if l["kind"] == "attention" else recur(l, p, norm(x))
        x = x + y
        if spec.get("cross"):
            x = x + attend_source(l, p, norm(x), encoded)
        m = norm(x) @ p["up"]
        x = x + (m * sigmoid(m)) @ p["down"]
    return norm(x) @ top["head"]


def takes_positions(spec):
    return spec["positions"] != "none"


def rotates(spec):
    return takes_positions(spec) and not spec["learned"]


def greedy(spec, prompt, n, features=None, encoded=None):
    """New tokens, the logits that chose them, and the smallest lead of the best over the second."""
    ids, steps, gap = list(prompt), [], np.inf
    for _ in range(n):
        last = forward(spec, ids, features, encoded)[-1]
        top = np.sort(last)[-2:]
        gap = min(gap, top[1] - top[0])
        steps.append(last)
        ids.append(int(last.argmax()))
    return ids[len(prompt):], np.stack(steps), gap


# --- the graph

class Graph:
    def __init__(self, spec, prefix=""):
        self.prefix = prefix  # names of a graph and those inside it differ
        self.spec, self.nodes, self.constants, self.n, self.inputs, self.outputs = spec, [], [], 0, [], []
        self.elem = helper.np_dtype_to_tensor_dtype(np.dtype(spec["dtype"]))

    def const(self, value):
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def op(self, op, *inputs, n=1, domain="", names=None, **attrs):
        names = names or [f"{self.prefix}v{self.n + i}" for i in range(n)]
        self.n += n
        self.nodes.append(helper.make_node(op, list(inputs), names, domain=domain, **attrs))
        return names[0] if n == 1 else names

    def scalar(self, value):
        return self.const(np.array(value, self.spec["dtype"]))

    def dim(self, name):
        if name == "batch" and self.spec.get("rows"):
            return self.spec["rows"]
        return {"named": name, "unk": f"unk__{sum(map(ord, name))}", "none": None}[self.spec["dims"]]

    def declare(self, side, name, dtype, shape):
        shape = [self.dim(d) if isinstance(d, str) else d for d in shape]
        elem = dtype if isinstance(dtype, int) else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        side.append(helper.make_tensor_value_info(name, elem, shape))
        return name

    def input(self, name, dtype, shape):
        return self.declare(self.inputs, name, dtype, shape)

    def output(self, name, made, dtype, shape):
        self.op("Identity", made, names=[name])
        self.declare(self.outputs, name, dtype, shape)

    def rename(self, made, name):
        """The value that some node gives gets another name: an output of the graph without a copy."""
        for node in self.nodes:
            for side in (node.input, node.output):
                for i, x in enumerate(side):
                    if x == made:
                        side[i] = name

    def norm(self, x):
        mean = self.op("ReduceMean", self.op("Mul", x, x), self.ints(-1), keepdims=1)
        return self.op("Div", x, self.op("Sqrt", self.op("Add", mean, self.scalar(1e-5))))

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def cast(self, x, elem):
        return self.op("Cast", x, to=elem)


class Builder:
    """All of a decoder, or a stage of it: {"layers": (first, end), "takes": hidden states, or None: ids, "gives": hidden states, or None: logits}."""

    def __init__(self, spec, stage=None):
        stage = stage or {"layers": (0, len(spec["layers"])), "takes": "inputs_embeds" if spec.get("embeds") else None, "gives": None}
        self.spec, self.w = spec, weights(spec)
        self.layers = spec["layers"][slice(*stage["layers"])]
        g = self.g = Graph(spec)
        ids = g.input(stage["takes"], g.elem, ["batch", "seq", spec["hidden"]]) if stage["takes"] else \
            g.input("input_ids", spec["ids"], ["seq"] if spec["rank1"] else ["batch", "seq"])
        if spec["rank1"]:
            ids = g.op("Unsqueeze", ids, g.ints(0))
        self.shape = g.op("Shape", ids)
        self.seq = g.op("Gather", self.shape, g.const(np.int64(1)))
        self.batch = g.op("Gather", self.shape, g.const(np.int64(0)))
        x = ids if stage["takes"] else g.op("Gather", g.const(self.w["embed"]), ids)
        self.positions = self.mask = None
        learned = spec["learned"] and stage["takes"] in (None, "inputs_embeds")
        if takes_positions(spec) and (learned or (self.attends() and rotates(spec))):
            self.positions = g.input("position_ids", spec["positions"], ["batch", "seq"])
            if learned:
                x = g.op("Add", x, g.op("Gather", g.const(self.w["table"]), self.positions))
        if spec.get("mask4"):  # one number to add, or one truth, for each position of this run and each column
            self.mask4 = g.input("attention_mask", g.elem if spec["mask4"] == "add" else T.BOOL, ["batch", 1, "seq", CAPACITY if self.fixed() else "total"])
        elif spec["mask"] != "none" and self.attends():
            self.mask = g.input("attention_mask", spec["mask"], ["batch", CAPACITY if self.fixed() else "total"])
        if spec["cache"] in ("position", "scatternd") and self.attends():
            self.at = g.input("cache_position", "int64", ["seq"])
        if spec["cache"] == "indices" and self.attends():
            self.write = g.input("write_indices", "int64", ["batch"])
            self.filled = g.input("nonpad_kv_seqlen", "int64", ["batch"])
        if spec["cache"] == "gqa" and self.attends():
            self.seqlens = g.input("seqlens_k", "int32", ["batch"])
            self.total = g.input("total_sequence_length", "int32", [])
        if spec.get("cross") == "hidden":
            self.encoded = g.input("encoder_hidden_states", g.elem, ["batch", "enc", spec["width"]])
        if spec.get("source_mask"):
            self.source_mask = g.input("encoder_attention_mask", spec["source_mask"], ["batch", "enc"])
        for l, p in zip(self.layers, self.w["layers"][slice(*stage["layers"])]):
            y = self.attend(l, p, g.norm(x)) if l["kind"] == "attention" else self.recur(l, p, g.norm(x))
            x = g.op("Add", x, y)
            if spec.get("cross"):
                x = g.op("Add", x, self.attend_source(l, p, g.norm(x)))
            x = g.op("Add", x, g.op("MatMul", g.silu(g.op("MatMul", g.norm(x), g.const(p["up"]))), g.const(p["down"])))
        if stage["gives"]:
            g.output(stage["gives"], x, g.elem, ["batch", "seq", spec["hidden"]])
            return
        if spec["logits"] != "all":
            x = g.op("Gather", x, g.ints(-1) if spec["logits"] == "last" else g.const(np.int64(-1)), axis=1)
        logits = g.op("MatMul", g.norm(x), g.const(self.w["head"]))
        g.output("logits", logits, g.elem, {"all": ["batch", "seq", spec["vocab"]], "last": ["batch", 1, spec["vocab"]], "last2": ["batch", spec["vocab"]]}[spec["logits"]])

    def attends(self):
        return any(l["kind"] == "attention" for l in self.layers)

    def fixed(self):
        return self.spec["cache"] in ("position", "scatternd", "indices")

    def heads(self, x, m, n, dim):
        g = self.g
        return g.op("Transpose", g.op("Reshape", g.op("MatMul", x, g.const(m)), g.ints(0, 0, n, dim)), perm=[0, 2, 1, 3])

    def rope(self, x, dim):
        g, half = self.g, dim // 2
        frequency = g.const((100.0 ** (-np.arange(half) / half)).astype(np.float32))
        angle = g.op("Mul", g.op("Unsqueeze", g.cast(self.positions, T.FLOAT), g.ints(1, 3)), frequency)
        cos, sin = g.cast(g.op("Cos", angle), g.elem), g.cast(g.op("Sin", angle), g.elem)
        a, b = g.op("Split", x, n=2, axis=-1, num_outputs=2)
        return g.op("Concat", g.op("Sub", g.op("Mul", a, cos), g.op("Mul", b, sin)), g.op("Add", g.op("Mul", b, cos), g.op("Mul", a, sin)), axis=-1)

    # Which columns a new position sees, as numbers to add [batch, 1, seq, total].
    def bias(self, past, total, window):
        g = self.g
        rows = g.op("Unsqueeze", g.op("Range", past, g.op("Add", past, self.seq), g.const(np.int64(1))), g.ints(1))
        if self.spec["cache"] == "indices":  # each row writes at a place of its own: [batch, 1, seq, 1]
            steps = g.op("Range", g.const(np.int64(0)), self.seq, g.const(np.int64(1)))
            rows = g.op("Unsqueeze", g.op("Add", g.op("Unsqueeze", self.write, g.ints(1)), steps), g.ints(1, 3))
        elif self.fixed():
            rows = g.op("Unsqueeze", self.at, g.ints(1))
        columns = g.op("Unsqueeze", g.op("Range", g.const(np.int64(0)), total, g.const(np.int64(1))), g.ints(0))
        seen = g.op("LessOrEqual", columns, rows)
        if window:
            seen = g.op("And", seen, g.op("Greater", columns, g.op("Sub", rows, g.const(np.int64(window)))))
        if self.spec["cache"] == "indices":
            return g.op("And", seen, g.op("Less", columns, g.op("Unsqueeze", self.filled, g.ints(1, 2, 3))))
        seen = g.op("Unsqueeze", seen, g.ints(0, 1))
        if self.mask:
            shown = self.mask if self.spec["mask"] == "bool" else g.op("Greater", self.mask, g.const(np.array(0, self.spec["mask"])))
            seen = g.op("And", seen, g.op("Unsqueeze", shown, g.ints(1, 2)))
        return seen

    def cache_shape(self, l, columns):
        spec = self.spec
        if spec.get("free") and spec["cache"] != "scatternd":
            l = {"kv_heads": "heads", "dim": "size"}
            if spec["layout"] == "flat":
                return ["batch", columns, "width"]
        if spec["layout"] == "flat":
            return ["batch", columns, l["kv_heads"] * l["dim"]]
        sizes = ["batch", l["kv_heads"], columns, l["dim"]]
        return [sizes[i] for i in LAYOUTS[spec["layout"]]]

    def to_layout(self, x, l):
        g, layout = self.g, self.spec["layout"]
        if layout == "bhsd":
            return x
        x = g.op("Transpose", x, perm=list(LAYOUTS[layout]))
        return g.op("Reshape", x, g.ints(0, 0, l["kv_heads"] * l["dim"])) if layout == "flat" else x

    def from_layout(self, x, l):
        g, layout = self.g, self.spec["layout"]
        if layout == "bhsd":
            return x
        if layout == "flat":
            x = g.op("Reshape", x, g.ints(0, 0, l["kv_heads"], l["dim"]))
        return g.op("Transpose", x, perm=[LAYOUTS[layout].index(i) for i in range(4)])

    def join(self, past, new, axis, quantized):
        g = self.g
        return g.op("Concat", past, g.op("QuantizeLinear", new, *quantized) if quantized else new, axis=axis)

    def attend(self, l, p, x):
        g, spec, cache = self.g, self.spec, self.spec["cache"]
        n, kv, dim, number = l["kv_heads"] * l["groups"], l["kv_heads"], l["dim"], l["layer"]
        if cache == "gqa":
            return self.fused(l, p, x)
        if cache == "none":
            past_len, total = g.const(np.int64(0)), self.seq
        q, k, v = self.heads(x, p["q"], n, dim), self.heads(x, p["k"], kv, dim), self.heads(x, p["v"], kv, dim)
        if rotates(spec):
            q, k = self.rope(q, dim), self.rope(k, dim)
        if cache == "combined":
            names = [t.format(n=number) for t in COMBINED_NAMES[spec["names"]]]
            shape = lambda c: [2 if spec.get("declares_two", True) else "two", "batch", kv, c, dim]
            past = g.input(names[0], g.elem, shape("past"))
            new = g.op("Concat", g.op("Unsqueeze", k, g.ints(0)), g.op("Unsqueeze", v, g.ints(0)), axis=0)
            both = g.op("Concat", past, new, axis=3)
            g.rename(both, names[1])
            g.declare(g.outputs, names[1], g.elem, shape("present"))
            k, v = (g.op("Gather", names[1], g.const(np.int64(i)), axis=0) for i in range(2))
            past_len, total = self.lengths(past, names[1], 3)
        elif cache in ("op23", "op24"):
            return self.attention_op(l, p, q, k, v)
        elif cache != "none":
            made = []
            for kind, new in (("key", k), ("value", v)):
                stems = CROSS_NAMES[spec["names"]][:2] if spec.get("cross") else NAMES[spec["names"]]
                name_in, name_out = (t.format(n=number, kv=kind, k=kind[0]) for t in stems)
                columns = CAPACITY if self.fixed() else "past"
                past = g.input(name_in, spec.get("kv_dtype") or g.elem, self.cache_shape(l, columns))
                axis = LAYOUTS[spec["layout"]].index(2)
                new = self.to_layout(new, l)
                out = self.write_cache(past, new, axis)
                g.rename(out, name_out)
                g.declare(g.outputs, name_out, spec.get("kv_dtype") or g.elem, self.cache_shape(l, CAPACITY if self.fixed() else "present"))
                back = g.op("DequantizeLinear", name_out, self.scale(), self.zero()) if spec.get("kv_dtype") else name_out
                made.append(self.from_layout(back, l))
                past_len, total = self.lengths(past, name_out, axis)
            k, v = made
        if l["groups"] > 1:
            k, v = (self.repeat(t, l) for t in (k, v))
        scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.scalar(1 / np.sqrt(dim)))
        if spec.get("mask4") == "add":
            scores = g.op("Add", scores, self.mask4)
        else:
            scores = g.op("Where", self.mask4 if spec.get("mask4") else self.bias(past_len, total, l["window"]), scores, g.scalar(-1e4))
        y = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.ints(0, 0, n * dim))
        return g.op("MatMul", y, g.const(p["o"]))

    def attend_source(self, l, p, x):
        g, spec = self.g, self.spec
        q, made = self.heads(x, p["cq"], l["heads"], l["size"]), []
        for kind, m in (("key", p["ck"]), ("value", p["cv"])):
            if spec["cross"] == "hidden":
                made.append(self.heads(self.encoded, m, l["heads"], l["size"]))
            else:
                made.append(g.input(CROSS_NAMES[spec["names"]][2].format(n=l["layer"], kv=kind, k=kind[0]), g.elem, ["batch", l["heads"], "enc", l["size"]]))
        scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", made[0], perm=[0, 1, 3, 2])), g.scalar(1 / np.sqrt(l["size"])))
        if spec.get("source_mask"):
            shown = self.source_mask if spec["source_mask"] == "bool" else g.op("Greater", self.source_mask, g.const(np.array(0, spec["source_mask"])))
            scores = g.op("Where", g.op("Unsqueeze", shown, g.ints(1, 2)), scores, g.scalar(-1e4))
        y = g.op("MatMul", g.op("Softmax", scores, axis=-1), made[1])
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.ints(0, 0, l["heads"] * l["size"]))
        return g.op("MatMul", y, g.const(p["co"]))

    def scale(self):
        return self.g.const(np.array(1 / 16, self.spec["dtype"]))

    def zero(self):
        return self.g.const(np.array(0, self.spec["kv_dtype"]))

    def write_cache(self, past, new, axis):
        g, cache = self.g, self.spec["cache"]
        if self.spec.get("kv_dtype"):
            new = g.op("QuantizeLinear", new, self.scale(), self.zero())
        if cache == "indices":
            return g.op("TensorScatter", past, new, self.write, axis=axis)
        if cache == "position":
            shape = [1] * (3 if self.spec["layout"] == "flat" else 4)
            shape[axis] = -1
            at = g.op("Expand", g.op("Reshape", self.at, g.ints(*shape)), g.op("Shape", new))
            return g.op("ScatterElements", past, at, new, axis=axis)
        if cache == "scatternd":  # rows of positions first
            first = [2, 0, 1, 3]
            out = g.op("ScatterND", g.op("Transpose", past, perm=first), g.op("Unsqueeze", self.at, g.ints(1)), g.op("Transpose", new, perm=first))
            return g.op("Transpose", out, perm=[1, 2, 0, 3])
        return g.op("Concat", past, new, axis=axis)

    def lengths(self, past, present, axis):
        g = self.g
        size = lambda x: g.op("Gather", g.op("Shape", x), g.const(np.int64(axis)))
        return size(past), size(present)

    def repeat(self, x, l):
        g = self.g
        x = g.op("Unsqueeze", x, g.ints(2))
        x = g.op("Expand", x, g.ints(1, 1, l["groups"], 1, 1))
        shape = g.op("Concat", g.op("Unsqueeze", self.batch, g.ints(0)), g.ints(l["kv_heads"] * l["groups"], -1, l["dim"]), axis=0)
        return g.op("Reshape", x, shape)

    def past_pair(self, l):
        g, spec = self.g, self.spec
        names = [[t.format(n=l["layer"], kv=kind, k=kind[0]) for t in NAMES[spec["names"]]] for kind in ("key", "value")]
        for name_in, name_out in names:
            g.input(name_in, g.elem, self.cache_shape(l, "past"))
            g.declare(g.outputs, name_out, g.elem, self.cache_shape(l, "present"))
        return names

    def attention_op(self, l, p, q, k, v):
        g = self.g
        names = self.past_pair(l)
        past = g.op("Gather", g.op("Shape", names[0][0]), g.const(np.int64(2)))
        total = g.op("Add", past, self.seq)
        y = g.op("Attention", q, k, v, self.bias(past, total, l["window"]), names[0][0], names[1][0], n=3, names=[f"y{l['layer']}", names[0][1], names[1][1]])[0]
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.ints(0, 0, l["kv_heads"] * l["groups"] * l["dim"]))
        return g.op("MatMul", y, g.const(p["o"]))

    def fused(self, l, p, x):
        g, spec, dim, half = self.g, self.spec, l["dim"], l["dim"] // 2
        names = self.past_pair(l)
        more, attrs = [], {"num_heads": l["kv_heads"] * l["groups"], "kv_num_heads": l["kv_heads"]}
        if l["window"]:
            attrs["local_window_size"] = l["window"]
        q, k, v = (g.op("MatMul", x, g.const(p[part])) for part in "qkv")
        if rotates(spec):
            angle = np.arange(TABLE)[:, None] * (100.0 ** (-np.arange(half) / half))[None]
            more = [g.const(np.cos(angle).astype(spec["dtype"])), g.const(np.sin(angle).astype(spec["dtype"])), g.cast(self.positions, T.INT64)]
            attrs["do_rotary"] = 1
        y = g.op("GroupQueryAttention", q, k, v, names[0][0], names[1][0], self.seqlens, self.total, *more, n=3, domain="com.microsoft",
                 names=[f"y{l['layer']}", names[0][1], names[1][1]], **attrs)[0]
        return g.op("MatMul", y, g.const(p["o"]))

    # --- recurrent layers

    def state(self, l, kind, shape, elem=None, made=None):
        g, spec = self.g, self.spec
        stem = {"hf": ("past_key_values.{n}.{kind}", "present.{n}.{kind}"), "under": ("past_{kind}_{n}", "present_{kind}_{n}"), "cache": ("{kind}.{n}", "updated_{kind}.{n}"),
                "short": ("past_{kind}.{n}", "present_{kind}.{n}"), "out": ("{kind}_{n}_in", "{kind}_{n}_out"), "layers": ("layers.{n}.{kind}", "layers.{n}.{kind}_new")}
        names = [t.format(n=l["layer"], kind=kind) for t in stem[spec["names"]]]
        g.input(names[0], elem or g.elem, shape)
        g.declare(g.outputs, names[1], elem or g.elem, made or shape)
        return names

    def scan(self, step, states, per_step):
        """step(graph, state, *values of a step) -> (new state, output); everything is [batch, ...], steps along dimension 1."""
        g = self.g
        body = Graph(self.spec, f"{states}.")
        inner = [f"{body.prefix}in{i}" for i in range(1 + len(per_step))]
        new, out = step(body, inner[0], *inner[1:])
        body.rename(new, body.prefix + "new")
        body.rename(out, body.prefix + "out")
        made = helper.make_graph(body.nodes, "body", [helper.make_tensor_value_info(n, g.elem, None) for n in inner],
                                 [helper.make_tensor_value_info(n, g.elem, None) for n in (body.prefix + "new", body.prefix + "out")], body.constants)
        return g.op("Scan", states, *per_step, n=2, body=made, num_scan_inputs=len(per_step), scan_input_axes=[1] * len(per_step), scan_output_axes=[1])

    def recur(self, l, p, x):
        g, h = self.g, self.spec["hidden"]
        mul = lambda x, part: g.op("MatMul", x, g.const(p[part]))
        if l["kind"] == "conv":
            width = l["kernel"] - 1
            single = self.spec.get("single")  # made for one token: the oldest place is dropped, whatever came in
            name_in, name_out = self.state(l, "conv_state", ["batch", h, width], made=["batch", h, "kept"] if single else None)
            u = g.op("Concat", name_in, g.op("Transpose", mul(x, "in"), perm=[0, 2, 1]), axis=2)
            last = g.op("Slice", u, g.ints(1 if single else -width), g.ints(1 << 40), g.ints(2))
            g.rename(last, name_out)
            y = g.op("Conv", u, g.const(p["kernel"]), group=h)
            return mul(g.op("Transpose", y, perm=[0, 2, 1]), "out")
        if l["kind"] == "ssm":
            name_in, name_out = self.state(l, "ssm_state", ["batch", h, l["states"]])

            def step(b, s, u, bt, ct):
                new = b.op("Add", b.op("Mul", s, b.const(p["decay"])), b.op("Mul", b.op("Unsqueeze", u, b.ints(2)), b.op("Unsqueeze", bt, b.ints(1))))
                return new, b.op("ReduceSum", b.op("Mul", new, b.op("Unsqueeze", ct, b.ints(1))), b.ints(2), keepdims=0)
            new, y = self.scan(step, name_in, [mul(x, "in"), mul(x, "b"), mul(x, "c")])
            g.rename(new, name_out)
            return mul(y, "out")
        if l["kind"] == "delta":
            n, d = l["heads"], l["dim"]
            name_in, name_out = self.state(l, "recurrent_state", ["batch", n, d, d])
            split = lambda part: g.op("Reshape", mul(x, part), g.ints(0, 0, n, d))

            def step(b, s, q, k, v, beta):
                kept, key = b.op("Mul", s, b.scalar(0.9)), b.op("Unsqueeze", k, b.ints(3))
                read = b.op("ReduceSum", b.op("Mul", kept, key), b.ints(2), keepdims=0)
                change = b.op("Mul", b.op("Sub", v, read), b.op("Unsqueeze", beta, b.ints(2)))
                new = b.op("Add", kept, b.op("Mul", key, b.op("Unsqueeze", change, b.ints(2))))
                return new, b.op("ReduceSum", b.op("Mul", new, b.op("Unsqueeze", q, b.ints(3))), b.ints(2), keepdims=0)
            k = split("k")
            length = g.op("Sqrt", g.op("Add", g.op("ReduceSum", g.op("Mul", k, k), g.ints(-1), keepdims=1), g.scalar(1e-4)))
            new, y = self.scan(step, name_in, [split("q"), g.op("Div", k, length), split("v"), g.op("Sigmoid", mul(x, "beta"))])
            g.rename(new, name_out)
            return mul(g.op("Reshape", y, g.ints(0, 0, n * d)), "out")
        steps = g.op("Transpose", x, perm=[1, 0, 2])
        hidden = self.state(l, "h" if l["kind"] == "lstm" else "gru_state", [1, "batch", h])
        if l["kind"] == "gru":
            y, last = g.op("GRU", steps, g.const(p["w"]), g.const(p["r"]), "", "", hidden[0], n=2, hidden_size=h)
        else:
            cell = self.state(l, "c", [1, "batch", h])
            y, last, last_cell = g.op("LSTM", steps, g.const(p["w"]), g.const(p["r"]), "", "", hidden[0], cell[0], n=3, hidden_size=h)
            g.rename(last_cell, cell[1])
        g.rename(last, hidden[1])
        return g.op("Transpose", g.op("Squeeze", y, g.ints(1)), perm=[1, 0, 2])


def graph(spec, stage=None):
    g = Builder(spec, stage).g
    opset = {"op24": 24, "indices": 24, "op23": 23}.get(spec["cache"], 18)
    made = helper.make_graph(g.nodes, "decoder", g.inputs, g.outputs, g.constants)
    domains = [helper.make_opsetid("", opset)] + ([helper.make_opsetid("com.microsoft", 1)] if spec["cache"] == "gqa" else [])
    return helper.make_model(made, opset_imports=domains, ir_version=11 if opset > 20 else 10)


def session(name, nodes, inputs, outputs, constants, path):
    made = helper.make_graph(nodes, name, inputs, outputs, constants)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)


def write_vision(spec, folder, tokens, pixels="pixel_values"):
    """A decoder that takes embeddings, and before it a session of images [n, 3, 4, 4] with `tokens` features each, and one that puts
    features in the places of IMAGE. Returns the weights of the images' features, [48, tokens * hidden]."""
    spec["embeds"], h = True, spec["hidden"]
    onnx.save(graph(spec), os.path.join(folder, "decoder.onnx"))
    w = (np.random.default_rng(spec["seed"] + 1).standard_normal((48, tokens * h)) / 7).astype(spec["dtype"])
    g = Graph(spec)
    g.input(pixels, spec["dtype"], ["images", 3, 4, 4])
    made = g.op("MatMul", g.op("Reshape", pixels, g.ints(0, 48)), g.const(w))
    g.output("image_features", g.op("Reshape", made, g.ints(0, tokens, h)), spec["dtype"], ["images_out", tokens, h] if spec["dims"] == "unk" else ["images", tokens, h])
    session("vision", g.nodes, g.inputs, g.outputs, g.constants, os.path.join(folder, "vision.onnx"))
    g = Graph(spec)
    g.input("input_ids", spec["ids"], ["batch", "seq"])
    g.input("image_features", spec["dtype"], ["images", tokens, h])
    flat = g.op("Concat", g.op("Reshape", "image_features", g.ints(-1, h)), g.const(np.zeros((1, h), spec["dtype"])), axis=0)
    hit = g.op("Equal", "input_ids", g.const(np.array(IMAGE, spec["ids"])))
    count = g.op("Sub", g.op("CumSum", g.cast(hit, T.INT64), g.const(np.int64(1))), g.const(np.int64(1)))
    features = g.op("Gather", flat, g.op("Where", hit, count, g.const(np.int64(-1))))
    embeds = g.op("Where", g.op("Unsqueeze", hit, g.ints(2)), features, g.op("Gather", g.const(weights(spec)["embed"]), "input_ids"))
    g.output("inputs_embeds", embeds, spec["dtype"], ["batch", "seq", h])
    session("embedding", g.nodes, g.inputs, g.outputs, g.constants, os.path.join(folder, "embedding.onnx"))
    return w


def write_encoder(spec, folder):
    """A decoder with cross attention, and the encoder before it: of ids or of sound; it gives hidden states or cross caches."""
    onnx.save(graph(spec), os.path.join(folder, "decoder.onnx"))
    w = weights(spec)
    g = Graph(spec)
    if spec["source"] == "mel":
        g.input("input_features", spec["dtype"], ["batch", spec["mels"], "enc"])
        x = g.op("MatMul", g.op("Transpose", "input_features", perm=[0, 2, 1]), g.const(w["source"]))
    else:
        g.input("input_ids", spec["ids"], ["batch", "enc"])
        if spec.get("encoder_mask"):
            g.input("attention_mask", spec["encoder_mask"], ["batch", "enc"])
        x = g.op("Gather", g.const(w["source"]), "input_ids")
    x = g.op("Tanh", x)
    if spec["cross"] == "hidden":
        g.output(spec.get("hidden_name", "last_hidden_state"), x, spec["dtype"], ["batch", "enc", spec["width"]])
    for l, p in zip(spec["layers"], w["layers"]):
        for kind, m in (("key", p["ck"]), ("value", p["cv"])) if spec["cross"] == "cache" else ():
            y = g.op("Transpose", g.op("Reshape", g.op("MatMul", x, g.const(m)), g.ints(0, 0, l["heads"], l["size"])), perm=[0, 2, 1, 3])
            g.output(CROSS_NAMES[spec["names"]][3].format(n=l["layer"], kv=kind, k=kind[0]), y, spec["dtype"], ["batch", l["heads"], "enc", l["size"]])
    session("encoder", g.nodes, g.inputs, g.outputs, g.constants, os.path.join(folder, "encoder.onnx"))


def random_encoder_spec(rng, cache="concat"):
    pick = lambda *of: of[rng.integers(len(of))]
    spec = random_spec(rng, cache, False)
    spec.update(cross=pick("hidden", "cache"), source=pick("ids", "mel"), width=pick(6, 8, 12), mels=pick(4, 5, 8), encoder_mask=pick(None, "int64", "int32"),
                hidden_name=pick("last_hidden_state", "encoder_hidden_states", "hidden_states"))
    spec["source_mask"] = pick(None, "int64", "int32", "bool") if spec["source"] == "ids" else None
    for layer in spec["layers"]:
        layer.update(heads=pick(1, 2, 3), size=pick(4, 6, 8), window=0)
    return spec


def write_stages(spec, folder, types, cuts, name):
    """A session of embeddings, one for the layers up to each cut, and one of logits; masks, positions and ids of a type each. name(i) is
    what goes from stage i to the next."""
    stages = [(0, 0), *zip([0, *cuts], [*cuts, len(spec["layers"])]), (len(spec["layers"]),) * 2]
    for i, layers in enumerate(stages):
        own = dict(spec, **types[i % len(types)])
        stage = {"layers": layers, "takes": name(i) if i else None, "gives": name(i + 1) if i + 1 < len(stages) else None}
        onnx.save(graph(own, stage), os.path.join(folder, f"{i}.onnx"))
    return len(stages)


def write(spec, folder):
    os.makedirs(folder, exist_ok=True)
    onnx.save(graph(spec), os.path.join(folder, "model.onnx"))
