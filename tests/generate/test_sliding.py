# timeout: 300
"""Caches of layers with a window keep their last columns alone: tokens and logits over thousands of tokens are those of a cache that keeps
all, memory stands still. What is expected comes from ONNX Runtime, which keeps all: run by hand, and as the engine of a session."""
import os

import drive
import numpy as np
import onnx
import testing
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

VOCAB, HEADS, KV_HEADS, DIM, TABLE = 37, 4, 2, 16, 8192
HIDDEN = HEADS * DIM


def save(path, windows, lengths="direct", rotary=True, seed=0, dtype=np.float32, extra=None, bias=False):
    """A decoder with a GroupQueryAttention per entry of windows (-1: none). lengths: direct inputs, or from the mask. rotary: positions in
    the op, else nothing tells positions apart but the window. extra: what else looks at the first cache."""
    rng = np.random.default_rng(seed)
    nodes, inits = [], []
    elem = T.FLOAT if dtype == np.float32 else T.FLOAT16
    info = h.make_tensor_value_info

    def const(array, name=None):
        name = name or f"c{len(inits)}"
        inits.append(nh.from_array(np.asarray(array), name))
        return name

    def op(kind, *inputs, domain="", out=None, **attrs):
        out = out or [f"v{len(nodes)}"]
        nodes.append(h.make_node(kind, list(inputs), out, domain=domain, **attrs))
        return out[0]

    weight = lambda *shape: const((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(dtype))
    inputs, outputs = [info("input_ids", T.INT64, ["batch", "seq"])], [info("logits", elem, ["batch", "seq", VOCAB])]
    if lengths == "direct":
        inputs += [info("seqlens_k", T.INT32, ["batch"]), info("total_sequence_length", T.INT32, [])]
        seqlens, total = "seqlens_k", "total_sequence_length"
    else:
        inputs.append(info("attention_mask", T.INT64, ["batch", "total"]))
        seqlens = op("Cast", op("Sub", op("ReduceSum", "attention_mask", const(np.int64([1])), keepdims=0), const(np.int64(1))), to=T.INT32)
        total = op("Cast", op("Gather", op("Shape", "attention_mask"), const(np.int64(1))), to=T.INT32)
    angles = np.arange(TABLE)[:, None] / 10000.0 ** (np.arange(DIM // 2) * 2 / DIM)
    cos, sin = const(np.cos(angles).astype(dtype)), const(np.sin(angles).astype(dtype))
    x = op("Gather", const(rng.standard_normal((VOCAB, HIDDEN)).astype(dtype)), "input_ids")
    for i, window in enumerate(windows):
        q, k, v = op("MatMul", x, weight(HIDDEN, HIDDEN)), op("MatMul", x, weight(HIDDEN, KV_HEADS * DIM)), op("MatMul", x, weight(HIDDEN, KV_HEADS * DIM))
        q = op("Mul", q, const(dtype(3)))
        names = [f"past_key_values.{i}.key", f"past_key_values.{i}.value"], [f"present.{i}.key", f"present.{i}.value"]
        for name in names[0]:
            inputs.append(info(name, elem, ["batch", KV_HEADS, "past", DIM]))
        for name in names[1]:
            outputs.append(info(name, elem, ["batch", KV_HEADS, "all", DIM]))
        more = [cos, sin] if rotary else []
        a = op("GroupQueryAttention", q, k, v, *names[0], seqlens, total, *more, domain="com.microsoft", out=[f"a{i}", *names[1]],
               num_heads=HEADS, kv_num_heads=KV_HEADS, do_rotary=int(rotary), local_window_size=window)
        x = op("Add", x, op("MatMul", a, weight(HIDDEN, HIDDEN)))
        x = op("Tanh", x)
    if extra == "past":
        x = op("Add", x, op("Cast", op("ReduceSum", op("Shape", "past_key_values.0.key"), keepdims=0), to=elem))
    if extra == "present":
        x = op("Add", x, op("ReduceMax", "present.0.key", keepdims=0))
    op("MatMul", x, weight(HIDDEN, VOCAB), out=["logits"])
    graph = h.make_graph(nodes, "g", inputs, outputs, inits)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)], ir_version=8)
    onnx.save(model, path)


class ByHand:
    """A timeline on ONNX Runtime that keeps every column."""
    def __init__(self, path):
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
        self.past = {i.name: np.zeros((1, KV_HEADS, 0, DIM), kinds[i.type]) for i in self.session.get_inputs() if "past" in i.name}
        self.names = [i.name for i in self.session.get_inputs()]
        self.n = 0

    def run(self, ids):
        self.n += len(ids)
        feed = {"input_ids": np.int64([ids]), "seqlens_k": np.int32([self.n - 1]), "total_sequence_length": np.array(self.n, np.int32),
                "attention_mask": np.ones((1, self.n), np.int64), **self.past}
        logits, *present = self.session.run(None, {k: v for k, v in feed.items() if k in self.names})
        self.past = dict(zip(self.past, present))
        return logits[0, -1].astype(np.float32)

    def generate(self, ids, n):
        out, logits = [], []
        for _ in range(n):
            logits.append(self.run(ids))
            ids = [int(logits[-1].argmax())]
            out.append(ids[0])
        return out, np.stack(logits)


def tokens(n, seed):
    return [int(t) for t in np.random.default_rng(seed).integers(0, VOCAB, n)]


COLUMN = KV_HEADS * DIM * 4 * 2  # bytes of a column of a layer


def limit(windows, chunk=512):
    """Bytes that layers with these windows may take: the longest window and a chunk, and some more."""
    return len(windows) * COLUMN * (max(windows) + 256 + max(chunk, (max(windows) + 256) // 4) + 64)


def test_thousands_of_tokens():
    """Long prompts, long answers, more prompt: logits as those of a cache that keeps all."""
    for windows, how in (([64, 64], {}), ([40, -1, 100], {"lengths": "mask"}), ([300], {"rotary": False}),
                         ([64, 64], {"dtype": np.float16})):
        half = "dtype" in how
        with testing.temp_dir() as temp:
            path = os.path.join(temp, "model.onnx")
            save(path, windows, **how)
            with drive.Drive(temp, "--quiet", "--set", "/generation/max_length=8000", "--set", "/tokens/eos=[]") as d:
                hand, steps, logits, bytes_ = ByHand(path), [], [], []
                for n_prompt, n_new in ((3, 700), (1700, 200), (1, 300), (40, 5), (600, 900)):
                    if half:  # near ties part: one token each
                        n_prompt, n_new = n_prompt + n_new - 1, 1
                    prompt = tokens(n_prompt, n_prompt)
                    got, want = hand.generate(prompt, n_new)
                    hand.run(got[-1:])  # the last token is run with the next prompt
                    steps += [{"append": prompt}, {"generate": n_new}]
                    logits.append(want)
                prefix = os.path.join(temp, "logits")
                answer = d.ask(op="timeline", steps=steps, logits_to=prefix)["steps"][1::2]
                for k, step in enumerate(answer):
                    testing.near(np.load(f"{prefix}.{k}.npy"), logits[k], 2e-2 if half else 2e-4, f"{windows} part {k}")
                    bytes_.append(step["state_bytes"])
                n_all = sum(w < 0 for w in windows)
                all_columns = n_all * COLUMN * 4500 * 1.6
                assert bytes_[-1] <= limit([w for w in windows if w > 0]) + all_columns, (windows, bytes_)
                if not n_all:
                    testing.equal(len(set(bytes_[1:])), 1, bytes_)


OPTIONS = ["--quiet", "--set", "/generation/max_length=8000", "--set", "/tokens/eos=[]"]


def by_hand(path, ids, n):
    return ByHand(path).generate(ids, n)[0]


def same(a, b):
    """How many of the first tokens are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def test_rows():
    """Rows of unequal length, of which some end early and one goes on afterwards: each as it is alone."""
    for windows, how in (([48, 64], {}), ([64, -1], {"lengths": "mask"})):
        with testing.temp_dir() as temp:
            path = os.path.join(temp, "model.onnx")
            save(path, windows, seed=3, **how)
            prompts = [tokens(n, n) for n in (1500, 3, 700, 90)]
            want = [by_hand(path, p, 1100) for p in prompts]
            with drive.Drive(temp, *OPTIONS) as d:
                got = d.ask(op="generate", prompts=prompts, options={"max_new_tokens": 1100})
                testing.equal([same(g, w) for g, w in zip(got["tokens"], want)], [1100] * 4, str(windows))
                testing.equal(got["runs"]["model"] < 1120, True, got["runs"])
                if min(windows) > 0:
                    bytes_ = COLUMN * len(windows) * len(prompts) * 900
                    assert got["state_bytes"] <= bytes_, (got["state_bytes"], bytes_)
                # an end token that comes at different times in the rows
                ends = lambda row, eos: row[: row.index(eos) + 1] if eos in row else row
                eos = max(range(VOCAB), key=lambda t: len({len(ends(w, t)) for w in want}) * 2000 + min(len(ends(w, t)) for w in want))
                got = d.ask(op="generate", prompts=prompts, options={"max_new_tokens": 1100, "eos": [eos]})
                testing.equal(got["tokens"], [ends(w, eos) for w in want], f"{windows} until {eos}")


def test_timelines():
    for windows in ([48, 64], [64, -1]):
        with testing.temp_dir() as temp:
            path = os.path.join(temp, "model.onnx")
            save(path, windows, seed=5)
            prompt = tokens(1300, 1)
            want = by_hand(path, prompt, 900)
            with drive.Drive(temp, *OPTIONS) as d:
                for back in (1, 20, 150, 500, 899):  # near: what is there; far: run again
                    steps = [{"append": prompt}, {"generate": 900}, {"rewind": 1300 + 900 - back}, {"generate": back}]
                    testing.equal(d.ask(op="timeline", steps=steps)["steps"][-1]["tokens"], want[900 - back:], str(back))
                steps = [{"append": prompt}, {"generate": 400}, {"rewind": 600}, {"append": prompt[600:]}, {"generate": 30}]
                testing.equal(d.ask(op="timeline", steps=steps)["steps"][-1]["tokens"], want[:30], "into the prompt")
                steps = [{"append": prompt}, {"generate": 300}, {"fork": True}, {"generate": 600}]
                testing.equal(d.ask(op="timeline", steps=steps)["steps"][-1]["tokens"], want[300:], "a copy")
                steps = [{"append": prompt}, {"generate": 2}, {"rewind": 0}, {"append": prompt}, {"generate": 20}]
                testing.equal(d.ask(op="timeline", steps=steps)["steps"][-1]["tokens"], want[:20], "afresh")
            for chunk in (1, 100, 5000):
                with drive.Drive(temp, *OPTIONS, "--set", f"/generation/prefill_chunk={chunk}") as d:
                    got = d.ask(op="generate", prompts=[prompt], options={"max_new_tokens": 600})
                    testing.equal(got["tokens"], [want[:600]], f"chunks of {chunk}")


def test_beams():
    """Beams that change places for longer than a cache has room: with caches of their own on ONNX Runtime, the same sequences."""
    with testing.temp_dir() as temp:
        save(os.path.join(temp, "model.onnx"), [32, 40], seed=7)
        prompts, found = [tokens(800, 4), tokens(10, 5)], []
        for engine in testing.engines():
            with drive.Drive(temp, *OPTIONS, "--engine", engine) as d:
                got = d.ask(op="generate", prompts=prompts, options={"max_new_tokens": 300, "num_beams": 3, "num_return_sequences": 2})
                found.append(got["sequences"])
        if len(found) < 2:
            testing.skip("no ONNX Runtime to compare with")
        testing.equal(found[0], found[1])


def test_plan():
    """Only caches that nothing but windows looks at; on an engine that takes them."""
    for windows, how, slides in (([64, 64], {}, [True, True]), ([64, -1], {}, [True, None]), ([-1, -1], {}, [None, None]),
                                 ([64, 64], {"extra": "past"}, [None, True]), ([64, 64], {"extra": "present"}, [None, True])):
        with testing.temp_dir() as temp:
            path = os.path.join(temp, "model.onnx")
            save(path, windows, **how)
            states = testing.treadle_json("explain", temp, "--json")["plan"]["state"]
            testing.equal([s.get("slides") for s in states], slides, f"{windows} {how}")
            want = by_hand(path, tokens(900, 2), 40)
            for engine in testing.engines():
                with drive.Drive(temp, *OPTIONS, "--engine", engine) as d:
                    got = d.ask(op="generate", prompts=[tokens(900, 2)], options={"max_new_tokens": 40})
                    testing.equal(got["tokens"], [want], f"{windows} {how} {engine}")


testing.main()
