"""Tiny GGUF checkpoints for the tests of the compiler: made here, or taken from the shared test data."""
import os
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import gguf
import numpy as np
import testing

NAMES = ["gguf_llama_f16", "gguf_llama_q4_0", "gguf_llama_q8_0", "gguf_llama_k4_k5_k6", "gguf_qwen2_q8_0"]


def unpack(folder):
    """The llama GGUF folders of tiny-checkpoints and gguf_blocks; returns where they lie."""
    with tarfile.open(testing.shared("data/tiny-checkpoints.tar.xz")) as tar:
        wanted = [m for m in tar.getmembers() if any(f"/{n}/" in m.name for n in NAMES + ["gguf_blocks"])]
        tar.extractall(folder, members=wanted, filter="data")
    return os.path.join(folder, "tiny-checkpoints")


def random_blocks(rng, kind, rows, columns):
    """Rows of random blocks of a format whose scales are sane: quantised noise where gguf can quantise, else random bits with
    float16 fields set to small numbers."""
    values = (rng.standard_normal((rows, columns)) * 0.1).astype(np.float32)
    try:
        return gguf.quants.quantize(values, kind)
    except NotImplementedError:
        pass
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    name = kind.name
    small = {"Q6_K": 3e-5, "IQ4_XS": 3e-5, "IQ4_NL": 1e-3, "IQ2_XXS": 2e-4, "IQ2_XS": 2e-4, "IQ2_S": 2e-4, "IQ3_XXS": 2e-4, "IQ3_S": 2e-4}
    scale = np.frombuffer(np.float16(small.get(name, 1e-3)).tobytes(), np.uint8)
    places = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,)}
    if name == "MXFP4":
        raw[..., 0] = 120
    elif name == "NVFP4":
        raw[..., :4] = 0x20
    elif name == "IQ1_M":
        bits = int(np.float16(0.001).view(np.uint16))
        for i in range(4):
            raw[..., 49 + 2 * i] = raw[..., 49 + 2 * i] & 15 | (bits >> (4 * i) & 15) << 4
    else:
        for at in places.get(name, (0,)):
            raw[..., at:at + 2] = scale
    return raw.reshape(rows, -1)


def write(path, kind, hidden=256, heads=4, kv_heads=2, ffn=256, vocab=64, layers=1, tied=True, biases=False, freqs=False, context=64,
          extra=(), embed_kind=None, embed_raw=None, seed=0):
    """A llama of random weights of one type. extra: [(key, value)] with Python values. Returns {tensor: float32 values}."""
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(path, "llama")
    head_dim = hidden // heads
    for key, value in [("block_count", layers), ("context_length", context), ("embedding_length", hidden), ("feed_forward_length", ffn),
                       ("attention.head_count", heads), ("attention.head_count_kv", kv_heads), ("rope.dimension_count", head_dim)]:
        w.add_uint32("llama." + key, value)
    w.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-3)
    for key, value in extra:
        {bool: w.add_bool, int: w.add_uint32, float: w.add_float32, str: w.add_string, list: w.add_array}[type(value)](key, value)
    truth = {}

    def matrix(name, rows, columns, kind=kind, raw=None):
        if raw is not None:
            w.add_tensor(name, raw, raw_dtype=kind)
            return
        if gguf.GGML_QUANT_SIZES[kind][0] == 1:
            values = (rng.standard_normal((rows, columns)) * 0.1).astype(np.float32)
            raw = gguf.quants.quantize(values, kind)
        else:
            raw = random_blocks(rng, kind, rows, columns)
        truth[name] = gguf.quants.dequantize(raw, kind).reshape(rows, columns)
        w.add_tensor(name, raw, raw_dtype=kind)

    def vector(name, n, low=0.5, high=1.5):
        truth[name] = rng.uniform(low, high, n).astype(np.float32)
        w.add_tensor(name, truth[name])

    matrix("token_embd.weight", vocab, hidden, embed_kind or kind, embed_raw)
    vector("output_norm.weight", hidden)
    if not tied:
        matrix("output.weight", vocab, hidden)
    if freqs:
        vector("rope_freqs.weight", head_dim // 2, 1, 8)
    for i in range(layers):
        vector(f"blk.{i}.attn_norm.weight", hidden)
        vector(f"blk.{i}.ffn_norm.weight", hidden)
        for name, rows, columns in [("attn_q", hidden, hidden), ("attn_k", kv_heads * head_dim, hidden), ("attn_v", kv_heads * head_dim, hidden),
                                    ("attn_output", hidden, hidden), ("ffn_gate", ffn, hidden), ("ffn_up", ffn, hidden), ("ffn_down", hidden, ffn)]:
            matrix(f"blk.{i}.{name}.weight", rows, columns)
            if biases:
                vector(f"blk.{i}.{name}.bias", rows, -0.2, 0.2)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return truth


def reference(truth, ids, heads=4, kv_heads=2, layers=1, epsilon=1e-3, base=10000.0, rotary=None, frequency=None, magnitude=1.0):
    """Logits in float64, with rotary pairs where a GGUF has them (neighbouring rows)."""
    t = {k: v.astype(np.float64) for k, v in truth.items()}

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight

    def linear(x, name):
        y = x @ t[name + ".weight"].T
        return y + t[name + ".bias"] if name + ".bias" in t else y

    def rope(x):
        d = rotary or x.shape[-1]
        f = base ** (-np.arange(0, d, 2) / d) if frequency is None else frequency
        if "rope_freqs.weight" in t:
            f = f / t["rope_freqs.weight"]
        angle = np.arange(len(x))[:, None, None] * f
        a, b, out = x[..., 0:d:2], x[..., 1:d:2], x.copy()
        out[..., 0:d:2] = (a * np.cos(angle) - b * np.sin(angle)) * magnitude
        out[..., 1:d:2] = (b * np.cos(angle) + a * np.sin(angle)) * magnitude
        return out

    x = t["token_embd.weight"][ids]
    n, d = len(ids), x.shape[-1] // heads
    for i in range(layers):
        h = norm(x, t[f"blk.{i}.attn_norm.weight"])
        q = rope(linear(h, f"blk.{i}.attn_q").reshape(n, heads, d))
        k = rope(linear(h, f"blk.{i}.attn_k").reshape(n, kv_heads, d))
        v = linear(h, f"blk.{i}.attn_v").reshape(n, kv_heads, d)
        k, v = (np.repeat(z, heads // kv_heads, 1) for z in (k, v))
        s = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(d)
        s = np.where(np.tri(n, dtype=bool), s, -np.inf)
        s = np.exp(s - s.max(-1, keepdims=True))
        mixed = np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(n, -1)
        x = x + linear(mixed, f"blk.{i}.attn_output")
        h = norm(x, t[f"blk.{i}.ffn_norm.weight"])
        gate = linear(h, f"blk.{i}.ffn_gate")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, f"blk.{i}.ffn_up"), f"blk.{i}.ffn_down")
    x = norm(x, t["output_norm.weight"])
    return x @ t.get("output.weight", t["token_embd.weight"]).T


def build(source, out, *options):
    run = testing.treadle("build", source, "-o", out, "--accuracy-level", 0, *options)
    assert run.returncode == 0, run.stderr
    return run


class Session:
    """A compiled folder in ONNX Runtime, one row."""

    def __init__(self, folder):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), options)
        self.reset()

    def reset(self):
        self.past = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32) for i in self.session.get_inputs() if i.name.startswith("past")}
        self.length = 0

    def step(self, ids):
        n = len(ids)
        feeds = dict(self.past, input_ids=np.array([ids], np.int64), attention_mask=np.ones((1, self.length + n), np.int64))
        if any(i.name == "position_ids" for i in self.session.get_inputs()):
            feeds["position_ids"] = np.arange(self.length, self.length + n, dtype=np.int64)[None]
        names = [o.name for o in self.session.get_outputs()]
        out = dict(zip(names, self.session.run(names, feeds)))
        self.past = {k: out[k.replace("past_key_values", "present")] for k in self.past}
        self.length += n
        return out["logits"][0]
