# timeout: 300
"""Graphs whose present holds only the columns of the run, whatever they and their dimensions are called: the runtime joins them to the
past. Prompts by chunks, rows of unequal length, append, rewind, fork and beams, on both engines. What is expected comes from ONNX
Runtime, which runs the graph that joins by itself over the whole timeline."""
import functools
import json
import os

import drive
import numpy as np
import onnx
import testing
from onnx import helper

N_NEW = 6
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5]]


def original(kind):
    return testing.source(f"tests/data/pipelines/{kind}/model.onnx")


def split(kind, past="{0}", present="{0}", new_dim="seq", past_dim="past", swapped=False):
    """The graph of that kind with new columns as its presents. past, present: what names become; swapped: keys as [batch, heads, dim, past]."""
    model = onnx.load(original(kind))
    graph = model.graph
    layer_of = lambda name: [int(w) for w in name.replace("_", ".").split(".") if w.isdigit()][0]
    for node in [n for n in graph.node if n.op_type == "Concat" and n.output[0].startswith("present")]:
        cache, new, joined = *node.input, node.output[0]
        layer, part = layer_of(joined), joined.split(".")[-1] if "." in joined else "kv"
        names = past.format(cache, layer=layer, part=part, k=part[0]), present.format(joined, layer=layer, part=part, k=part[0])
        port_in = next(p for p in graph.input if p.name == cache)
        port_out = next(p for p in graph.output if p.name == joined)
        turn = swapped and part == "key"
        for other in graph.node:
            for i, name in enumerate(other.input):
                if name == joined:
                    other.input[i] = f"joined.{joined}"
                if name == cache and other is not node and other.op_type == "Shape":
                    other.input[i] = names[0]
        node.output[0] = f"joined.{joined}"
        node.input[0] = f"turned.{cache}" if turn else names[0]
        at = list(graph.node).index(node)
        if turn:
            graph.node.insert(at, helper.make_node("Transpose", [names[0]], [f"turned.{cache}"], perm=[0, 1, 3, 2]))
            graph.node.append(helper.make_node("Transpose", [new], [names[1]], perm=[0, 1, 3, 2]))
        else:
            graph.node.append(helper.make_node("Identity", [new], [names[1]]))
        for port, name, dim in ((port_in, names[0], past_dim), (port_out, names[1], new_dim)):
            port.name = name
            d = port.type.tensor_type.shape.dim
            axis = len(d) - 2
            d[axis].Clear()
            if isinstance(dim, int):
                d[axis].dim_value = dim
            elif dim:
                d[axis].dim_param = dim
            if turn:
                a, b = d[2].SerializeToString(), d[3].SerializeToString()
                d[2].ParseFromString(b), d[3].ParseFromString(a)
    if new_dim == 1:
        ids = next(p for p in graph.input if p.name == "input_ids").type.tensor_type.shape.dim[1]
        ids.Clear()
        ids.dim_value = 1
    onnx.checker.check_model(model)
    return model


def write(folder, model, config=None):
    onnx.save(model, os.path.join(folder, "model.onnx"))
    if config:
        json.dump({"version": 2, "tokens": {"eos": []}, "pipeline": {
            "sessions": {"decoder": {"file": "model.onnx"}}, "state": {"kv_cache": config}}},
            open(os.path.join(folder, "genai_config.json"), "w"))


@functools.cache
def session(kind):
    import onnxruntime as ort
    return ort.InferenceSession(original(kind), providers=["CPUExecutionProvider"])


def scores(kind, ids):
    """Of the token after ids."""
    s, n, feed = session(kind), len(ids), {}
    known = {"input_ids": np.int64([ids]), "position_ids": np.arange(n)[None], "attention_mask": np.ones((1, n), np.int64)}
    for i in s.get_inputs():
        sizes = [d if isinstance(d, int) else {"batch": 1, "past": 0}[d] for d in i.shape] if i.name not in known else None
        feed[i.name] = known[i.name] if sizes is None else np.zeros(sizes, np.float32)
    x = s.run(["logits"], feed)[0][0, -1].astype(np.float64)
    x -= x.max()
    return x - np.log(np.exp(x).sum())


def greedy(kind, ids, n=N_NEW):
    ids, first = list(ids), len(ids)
    for _ in range(n):
        ids.append(int(scores(kind, ids).argmax()))
    return ids[first:]


def beam(kind, prompt, n, width):
    beams = [(list(prompt), 0.0)]
    for _ in range(n):
        found = [(ids + [t], total + x) for ids, total in beams for t, x in enumerate(scores(kind, ids))]
        beams = sorted(found, key=lambda b: -b[1])[:width]
    return [ids[len(prompt):] for ids, _ in beams]


VARIANTS = {
    "as they were": ("concat", {}),
    "other names": ("concat", {"past": "cache_{k}_{layer}", "present": "new_{k}_{layer}"}),
    "dimensions without names": ("concat", {"new_dim": None, "past_dim": None}),
    "a dimension of its own": ("concat", {"new_dim": "added"}),
    "no mask": ("nomask", {}),
    "keys and values in one": ("combined", {}),
    "columns last": ("concat", {"swapped": True}),
    "single tokens": ("concat", {"new_dim": 1}),
    "one position of logits": ("last", {}),
}


def each_variant(check):
    for name, (kind, how) in VARIANTS.items():
        with testing.temp_dir() as temp:
            write(temp, split(kind, **how))
            for engine in testing.engines():
                with drive.Drive(temp, "--quiet", "--engine", engine, "--set", "/generation/prefill_chunk=3",
                                 "--set", "/tokens/eos=[]") as d:
                    check(d, kind, f"{name} on {engine}")


def test_plan():
    for name, (kind, how) in VARIANTS.items():
        with testing.temp_dir() as temp:
            write(temp, split(kind, **how))
            states = testing.treadle_json("explain", temp, "--json")["plan"]["state"]
            testing.equal([s.get("present") for s in states], ["new"] * len(states), name)
    for kind in ("concat", "nomask", "gqa", "combined", "last"):
        states = testing.treadle_json("explain", testing.source(f"tests/data/pipelines/{kind}"), "--json")["plan"]["state"]
        testing.equal([s.get("present") for s in states], [None] * len(states), kind)


def test_rows():
    def check(d, kind, what):
        for prompts in ([PROMPTS[0]], [PROMPTS[1]], PROMPTS, [PROMPTS[0]] * 2, [PROMPTS[1], PROMPTS[2]]):
            got = d.ask(op="generate", prompts=prompts, options={"max_new_tokens": N_NEW})
            testing.equal(got["tokens"], [greedy(kind, p) for p in prompts], what)
        want = greedy(kind, PROMPTS[1])
        got = d.ask(op="generate", prompts=[PROMPTS[0], PROMPTS[1]], options={"max_new_tokens": N_NEW, "eos": [want[2]]})
        testing.equal(got["tokens"][1], want[: want.index(want[2]) + 1], what)  # one row ends before the other
    each_variant(check)


def test_timelines():
    def check(d, kind, what):
        base = PROMPTS[0]
        want = greedy(kind, base)
        steps = [{"append": base}, {"generate": 4}, {"rewind": len(base) + 2}, {"generate": N_NEW - 2}]
        testing.equal(d.ask(op="timeline", steps=steps)["steps"][-1]["tokens"], want[2:], what)
        steps = [{"append": base[:2]}, {"append": base[2:]}, {"generate": 2}, {"fork": True}, {"generate": N_NEW - 2}]
        testing.equal(d.ask(op="timeline", steps=steps)["steps"][-1]["tokens"], want[2:], what)
        steps = [{"append": base}, {"generate": 3}, {"append": [7, 8]}, {"generate": 3}, {"rewind": 1}, {"append": [2]}, {"generate": 3}]
        got = d.ask(op="timeline", steps=steps)["steps"]
        testing.equal(got[3]["tokens"], greedy(kind, base + want[:3] + [7, 8], 3), what)
        testing.equal(got[6]["tokens"], greedy(kind, [base[0], 2], 3), what)
        long = [int(t) for t in np.random.default_rng(3).integers(0, 20, 45)]  # beyond the first room of a cache
        got = d.ask(op="timeline", steps=[{"append": long[:20]}, {"generate": 2}, {"rewind": 20}, {"append": long[20:]}, {"generate": 3}])
        testing.equal(got["steps"][-1]["tokens"], greedy(kind, long, 3), what)
    each_variant(check)


def test_beams():
    def check(d, kind, what):
        for prompts in ([PROMPTS[0]], [PROMPTS[0], PROMPTS[2]]):
            got = d.ask(op="generate", prompts=prompts, options={"max_new_tokens": 4, "num_beams": 3, "num_return_sequences": 2})
            testing.equal(got["sequences"], [beam(kind, p, 4, 3)[:2] for p in prompts], what)
    each_variant(check)


def test_declared():
    """What a graph is said to give wins over what it looks like; what it gives then is checked."""
    with testing.temp_dir() as temp:
        write(temp, split("concat"), {"present": "new"})
        with drive.Drive(temp, "--quiet") as d:
            testing.equal(d.ask(op="generate", prompts=[PROMPTS[0]], options={"max_new_tokens": 3})["tokens"],
                          [greedy("concat", PROMPTS[0], 3)])
        for model, said, found in ((split("concat"), "all", 1), (onnx.load(original("concat")), "new", 6)):
            write(temp, model, {"present": said})
            for engine in testing.engines():
                with drive.Drive(temp, "--quiet", "--engine", engine) as d:
                    try:
                        d.ask(op="generate", prompts=[PROMPTS[0]], options={"max_new_tokens": 3})
                        raise AssertionError(f"{said}: expected an error")
                    except drive.Refused as refused:
                        wanted = f"5 in the past and 1 new ones, found {found}"
                        assert wanted in str(refused), f"{said} on {engine}: {refused}"


testing.main()
