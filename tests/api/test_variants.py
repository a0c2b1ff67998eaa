# timeout: 300
"""Decoders of every kind of cache in random shapes, names and types: what is found in the graph, and what comes of it.

Layers, heads, head sizes, groups, vocabularies, windows, layouts of caches, names, types and symbols of dimensions are drawn from a seed
(support/decoders.py). The expected side is NumPy on the same weights over the whole sequence, without a cache. Each is run alone, in a ragged
batch, by appends, after rewinds, in a fork, and with beams."""
import json
import os

import decoders
import drive
import numpy as np
import onnx
import testing

N = 8
work = testing.temp_dir()
KINDS = {"concat": "separate", "gqa": "separate", "op23": "separate", "op24": "separate", "combined": "combined", "position": "static",
         "scatternd": "static", "indices": "static"}


def prompts_of(spec, rng, lengths=(5, 2, 9, 3)):
    """Prompts whose tokens no rounding decides: (ids, new tokens, logits of each step)."""
    least, found = (0.15 if spec["dtype"] == "float16" else 2e-3), []
    for _ in range(100):
        if len(found) == len(lengths):
            return found
        ids = [int(t) for t in rng.integers(0, spec["vocab"], lengths[len(found)])]
        tokens, logits, gap = decoders.greedy(spec, ids, N)
        if gap > least:
            found.append((ids, tokens, logits))
    return None


def beams(spec, prompt, n_beams, n):
    """Sequences of n tokens by their sum of log probabilities, best first; None where rounding could change them."""
    rows = [(0.0, list(prompt))]
    for _ in range(n):
        more = []
        for score, ids in rows:
            logits = decoders.forward(spec, ids)[-1]
            logs = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
            more += [(score + logs[t], ids + [int(t)]) for t in np.argsort(-logs)[: 2 * n_beams]]
        more.sort(key=lambda row: -row[0])
        if min(more[i][0] - more[i + 1][0] for i in range(n_beams)) < (0.02 if spec["dtype"] == "float16" else 1e-3):
            return None
        rows = more[:n_beams]
    return [ids[len(prompt):] for _, ids in rows]


def check_plan(spec, folder):
    plan = testing.treadle_json("explain", folder, "--json")["plan"]
    found = {}
    for state in plan["state"]:
        found.setdefault(state.get("layer"), []).append(state)
    for layer in spec["layers"]:
        states = found[layer["layer"]]
        attends = layer["kind"] == "attention"
        testing.equal({s["kind"] for s in states}, {KINDS[spec["cache"]] if attends else "recurrent"}, f"layer {layer}")
        if attends and spec["layout"] != "flat":
            testing.equal({(s.get("heads"), s.get("head_dim")) for s in states}, {(layer["kv_heads"], layer["dim"])}, f"layer {layer}")
    testing.equal(sum(len(s["inputs"]) for s in plan["state"]), sum(2 if l["kind"] == "lstm" or (l["kind"] == "attention" and spec["cache"] != "combined") else 1
                                                                     for l in spec["layers"]))
    testing.equal(plan["positions"], "default" if spec["positions"] != "none" else "none")


def timeline(d, want, *steps):
    answer = d.ask(op="timeline", steps=list(steps), options={"eos": []})
    testing.equal([s["tokens"] for s in answer["steps"] if "tokens" in s], want, str(steps))


def check_runs(spec, folder, prompts, *engine):
    tolerance = 0.15 if spec["dtype"] == "float16" else 5e-4
    to = os.path.join(work.name, "logits")
    options = {"max_new_tokens": N, "eos": []}
    with drive.Drive(folder, "--quiet", *engine) as d:
        ids, tokens, logits = prompts[0]
        answer = d.ask(op="generate", prompts=[ids], options=options, logits_to=to)
        testing.equal(answer["tokens"], [tokens])
        # ids [n] and logits [rows, vocab], and nothing says that these count different things: one token at a time
        each_alone = spec["rank1"] and spec["dims"] == "none" and spec["logits"] == "last2"
        each_alone |= spec.get("single", False)
        testing.equal(list(answer["runs"].values()), [N + len(ids) - 1 if each_alone else N])
        testing.near(np.load(to + ".0.npy"), logits, tolerance, "logits")
        answer = d.ask(op="generate", prompts=[p for p, _, _ in prompts], options=options, logits_to=to)
        testing.equal(answer["tokens"], [t for _, t, _ in prompts], "batch")
        for i, (_, _, logits) in enumerate(prompts):
            testing.near(np.load(f"{to}.{i}.npy"), logits, tolerance, f"logits of row {i}")
        n, (other, others, _) = len(ids), prompts[3]
        timeline(d, [tokens[:5]], {"append": ids[:2]}, {"append": ids[2:]}, {"generate": 5})
        timeline(d, [tokens[:3], tokens[5:]], {"append": ids}, {"generate": 3}, {"append": tokens[3:5]}, {"generate": 3})
        timeline(d, [tokens[:5], tokens[2:6]], {"append": ids}, {"generate": 5}, {"rewind": n + 2}, {"generate": 4})
        timeline(d, [tokens[:5], tokens[:4]], {"append": ids}, {"generate": 5}, {"rewind": 2}, {"append": ids[2:]}, {"generate": 4})
        timeline(d, [tokens[:5], others[:4]], {"append": ids}, {"generate": 5}, {"rewind": 0}, {"append": other}, {"generate": 4})
        timeline(d, [tokens[:3], tokens[3:7]], {"append": ids}, {"generate": 3}, {"fork": True}, {"generate": 4})
        want = [beams(spec, prompts[i][0], 3, 4) for i in (1, 3)]
        if all(want):
            options = {"max_new_tokens": 4, "eos": [], "num_beams": 3, "num_return_sequences": 3, "length_penalty": 1.0}
            testing.equal(d.ask(op="generate", prompts=[prompts[i][0] for i in (1, 3)], options=options)["sequences"], want, "beams")


def check(seed, cache=None, recurrent=None, engine=(), **changes):
    rng = np.random.default_rng(seed)
    spec = decoders.random_spec(rng, cache, recurrent)
    spec.update(changes)
    if spec.get("mask4"):  # the mask says it all
        for layer in spec["layers"]:
            layer["window"] = 0
    prompts = prompts_of(spec, rng)
    if not prompts:
        return 0
    folder = os.path.join(work.name, str(seed))
    decoders.write(spec, folder)
    try:
        check_plan(spec, folder)
        check_runs(spec, folder, prompts, *engine)
    except AssertionError as e:
        raise AssertionError(f"seed {seed}, {json.dumps(spec)}: {e}") from e
    return 1


def each(seeds, least, **what):
    n = sum(check(seed, **what) for seed in seeds)
    assert n >= least, n


def test_caches():
    for i, cache in enumerate(decoders.CACHES):
        each(range(10 * i, 10 * i + 4), 3, cache=cache, recurrent=False)


def test_recurrent():
    each(range(200, 216), 14, recurrent=True)


def test_graphs_of_one_token():
    """The state that comes back is longer for more tokens, which no symbol tells."""
    for seed, dims in ((250, "unk"), (251, "none")):
        layers = [{"kind": "conv", "layer": 0, "kernel": 4}, {"kind": "attention", "layer": 1, "window": 0, "kv_heads": 2, "groups": 2, "dim": 4}]
        check(seed, cache="concat", recurrent=True, dims=dims, single=True, layers=layers, layout="bhsd", dtype="float32")


def test_engines_agree():
    library = testing.ort_library()
    for i, cache in enumerate(decoders.CACHES):
        each(range(300 + 10 * i, 302 + 10 * i), 1, cache=cache, engine=("--engine", "ort", "--ort-lib", library))


def test_int8_caches():
    for i, cache in enumerate(("concat", "position", "scatternd")):
        each(range(400 + 10 * i, 402 + 10 * i), 1, cache=cache, recurrent=False, kv_dtype="int8", dtype="float32")


def test_masks_of_four_dimensions():
    for i, cache in enumerate(("concat", "combined", "position", "scatternd")):
        for k, mask in enumerate(("add", "bool")):
            check(500 + 10 * i + k, cache=cache, recurrent=False, mask4=mask, dtype="float32")


def test_ids_without_rows():
    for i, cache in enumerate(("concat", "combined", "position")):
        each(range(600 + 10 * i, 602 + 10 * i), 1, cache=cache, recurrent=False, rank1=True)


def test_sizes_that_only_ops_tell():
    for i, cache in enumerate(("concat", "combined", "position", "indices", "op23")):
        each(range(700 + 10 * i, 702 + 10 * i), 1, cache=cache, recurrent=False, free=True)


def test_one_row_and_undeclared_pairs():
    each(range(800, 803), 2, recurrent=False, rows=1)
    each(range(810, 813), 2, cache="combined", recurrent=False, declares_two=False)


def test_windows_of_ids():
    """A prompt in windows of w ids, over attention that looks back a few columns: padding must not stand among them."""
    for seed, cache in ((900, "concat"), (901, "op24"), (902, "combined"), (903, "position"), (904, "concat"), (905, "gqa"), (906, "indices")):
        rng = np.random.default_rng(seed)
        spec = decoders.random_spec(rng, cache, False)
        spec.update(dtype="float32", logits="all")
        if cache not in ("gqa", "indices"):
            spec["mask"] = "int64"
        for layer in spec["layers"]:
            layer["window"] = 3 if layer is spec["layers"][0] and cache not in ("gqa", "op24") else 0
        prompts = prompts_of(spec, rng, (7, 3, 10, 4))
        if not prompts:
            continue
        for size, alignment in ((4, "right"), (4, "left"), (3, "right"), (16, "left")):
            folder = os.path.join(work.name, f"{seed}.{size}.{alignment}")
            decoders.write(spec, folder)
            window = {"window_size": size, "slide_inputs": True, "pad_value": 1, "alignment": alignment}
            config = {"version": 2, "pipeline": {"extends": "autoregressive-decoder", "sessions": {"decoder": {"file": "model.onnx"}},
                                                 "state": {"kv_cache": {"sliding_window": window}}}}
            with open(os.path.join(folder, "genai_config.json"), "w", encoding="utf-8") as f:
                json.dump(config, f)
            with drive.Drive(folder, "--quiet") as d:
                for ids, tokens, _ in prompts:
                    what = f"{seed} {cache}, windows of {size}, {alignment}, {len(ids)} ids"
                    answer = d.ask(op="generate", prompts=[ids], options={"max_new_tokens": N, "eos": []})
                    testing.equal(answer["tokens"], [tokens], what)
                    testing.equal(answer["runs"], {"decoder": -(-len(ids) // size) + N - 1}, what)
                ids, tokens, _ = prompts[2]
                timeline(d, [tokens[:5]], {"append": ids[:3]}, {"append": ids[3:]}, {"generate": 5})
                timeline(d, [tokens[:3], tokens[5:]], {"append": ids}, {"generate": 3}, {"append": tokens[3:5]}, {"generate": 3})
                timeline(d, [tokens[:5], tokens[2:6]], {"append": ids}, {"generate": 5}, {"rewind": len(ids) + 2}, {"generate": 4})
                timeline(d, [tokens[:5], tokens[:4]], {"append": ids}, {"generate": 5}, {"rewind": 2}, {"append": ids[2:]}, {"generate": 4})
                timeline(d, [tokens[:3], tokens[3:7]], {"append": ids}, {"generate": 3}, {"fork": True}, {"generate": 4})


def test_stages():
    """Embeddings, layers in one to four sessions, logits: no flow is declared, masks and positions have a type in each session."""
    n = 0
    for seed in range(1000, 1012):
        rng = np.random.default_rng(seed)
        pick = lambda *of: of[rng.integers(len(of))]
        spec = decoders.random_spec(rng, None, bool(seed % 2))
        if seed % 6 == 0 and spec["cache"] == "concat":
            spec["cache"] = "none"
        types = []
        for _ in range(3):
            own = {"mask": pick("int64", "int32", "bool", "float32")} if spec["mask"] != "none" else {}
            types.append(dict(own, positions=pick("int64", "int32")) if spec["positions"] != "none" else own)
        prompts = prompts_of(spec, rng)
        if not prompts:
            continue
        folder = os.path.join(work.name, f"stages.{seed}")
        os.makedirs(folder)
        cuts = sorted({int(i) for i in rng.integers(1, len(spec["layers"]), 3)}) if len(spec["layers"]) > 1 else []
        names = ("hidden_{}".format, "hidden_states_{}".format, lambda i: "hidden_states" + "_out" * i)[seed % 3]
        n_stages = decoders.write_stages(spec, folder, types, cuts, names)
        write_config(folder, {f"part{i}": {"file": f"{i}.onnx"} for i in rng.permutation(n_stages)})
        with drive.Drive(folder, "--quiet") as d:
            ids, tokens, _ = prompts[0]
            answer = d.ask(op="generate", prompts=[ids], options={"max_new_tokens": N, "eos": []})
            testing.equal((answer["tokens"], set(answer["runs"].values())), ([tokens], {N}), f"{seed} {json.dumps(spec)}")
            answer = d.ask(op="generate", prompts=[p for p, _, _ in prompts], options={"max_new_tokens": N, "eos": []})
            testing.equal(answer["tokens"], [t for _, t, _ in prompts], f"{seed} batch")
            timeline(d, [tokens[:5], tokens[2:5]], {"append": ids}, {"generate": 5}, {"rewind": len(ids) + 2}, {"generate": 3})
            timeline(d, [tokens[:2], tokens[2:5]], {"append": ids}, {"generate": 2}, {"fork": True}, {"generate": 3})
        n += 1
    assert n > 8, n


def test_encoder_decoders():
    """Cross caches of the encoder's, or its hidden states; of ids or sound; masks of the source or none; rows of unequal sources."""
    n = 0
    for seed in range(1100, 1114):
        rng = np.random.default_rng(seed)
        spec = decoders.random_encoder_spec(rng, ("concat", "op23", "position", "combined")[seed % 4])
        folder = os.path.join(work.name, f"encoder.{seed}")
        rows, least = [], 0.15 if spec["dtype"] == "float16" else 2e-3
        for _ in range(60):
            length = (5, 3, 8)[len(rows)]
            sound = spec["source"] == "mel"
            source = rng.standard_normal((spec["mels"], length)).astype(spec["dtype"]) if sound else [int(t) for t in rng.integers(0, spec["vocab"], length)]
            start = [int(t) for t in rng.integers(0, spec["vocab"], 2)] if sound else [1]
            tokens, logits, gap = decoders.greedy(spec, start, N, encoded=decoders.encode(spec, source))
            if gap > least:
                rows.append((source, start, tokens, logits))
            if len(rows) == 3:
                break
        if len(rows) < 3:
            continue
        os.makedirs(folder)
        decoders.write_encoder(spec, folder)
        write_config(folder, {"encoder": {"file": "encoder.onnx"}, "decoder": {"file": "decoder.onnx"}}, tokens={"decoder_start": 1})
        what, to = f"{seed} {json.dumps(spec)}", os.path.join(work.name, "logits")
        with drive.Drive(folder, "--quiet") as d:
            for source, start, tokens, logits in rows:
                tensors = {}
                if sound:
                    tensors["input_features"] = os.path.join(work.name, "features.npy")
                    np.save(tensors["input_features"], source[None])
                answer = d.ask(op="generate", prompts=[start if sound else source], tensors=tensors, options={"max_new_tokens": N, "eos": []}, logits_to=to)
                testing.equal((answer["tokens"], answer["runs"]), ([tokens], {"encoder": 1, "decoder": N}), what)
                testing.near(np.load(to + ".0.npy"), logits, 0.15 if spec["dtype"] == "float16" else 5e-4, what)
                begin = {"append": start if sound else source, "tensors": tensors}
                timeline(d, [tokens[:3], tokens[3:7]], begin, {"generate": 3}, {"fork": True}, {"generate": 4})
                timeline(d, [tokens[:5], tokens[2:6]], begin, {"generate": 5}, {"rewind": len(start) + 2}, {"generate": 4})
            if not sound:
                answer = d.ask(op="generate", prompts=[row[0] for row in rows], options={"max_new_tokens": N, "eos": []})
                testing.equal(answer["tokens"], [row[2] for row in rows], what)
        n += 1
    assert n > 10, n


def write_config(folder, sessions, **more):
    config = {"version": 2, "pipeline": {"sessions": sessions}, **more}
    with open(os.path.join(folder, "genai_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)


def test_images():
    """Two images before a decoder: with caches and without, where the features of a prompt are kept for later tokens; symbols that say nothing;
    tensors under the graph's name and under the one that io gives it."""
    for seed, cache, dims in ((950, "concat", "named"), (951, "none", "named"), (952, "none", "unk"), (953, "op24", "unk"), (954, "combined", "none")):
        rng = np.random.default_rng(seed)
        spec = decoders.random_spec(rng, "concat", False)
        spec.update(cache=cache, dims=dims, dtype="float32", layout="bhsd", mask="int64")
        for layer in spec["layers"]:
            layer["window"] = 0
        tokens, folder = 3, os.path.join(work.name, f"images.{seed}")
        os.makedirs(folder)
        w = decoders.write_vision(spec, folder, tokens, "x")
        write_config(folder, {"vision": {"file": "vision.onnx", "io": {"inputs": {"pixel_values": "x"}}}, "embedding": {"file": "embedding.onnx"},
                              "decoder": {"file": "decoder.onnx"}}, tokens={"image_token": decoders.IMAGE})
        image = rng.standard_normal((2, 3, 4, 4)).astype(np.float32)
        features = (image.reshape(2, 48).astype(np.float64) @ w).reshape(2 * tokens, spec["hidden"])
        ids = [5, *[decoders.IMAGE] * tokens, 7, *[decoders.IMAGE] * tokens, 9, 4]
        want, _, gap = decoders.greedy(spec, ids, N, features)
        text, _, text_gap = decoders.greedy(spec, [8, 5, 6], N)
        if min(gap, text_gap) < 1e-3:
            continue
        path = os.path.join(folder, "image.npy")
        np.save(path, image)
        with drive.Drive(folder, "--quiet") as d:
            for name in ("pixel_values", "x"):
                got = d.ask(op="generate", prompts=[ids], tensors={name: path}, options={"max_new_tokens": N, "eos": []})
                testing.equal(got["tokens"], [want], f"{seed} {name}")
                testing.equal(got["runs"], {"vision": 1, "embedding": N, "decoder": N}, f"{seed} {name}")
            got = d.ask(op="generate", prompts=[[8, 5, 6]], options={"max_new_tokens": N, "eos": []})
            testing.equal((got["tokens"], got["runs"]["vision"]), ([text], 0), f"{seed} text")
            start = {"append": ids, "tensors": {"x": path}}
            timeline(d, [want[:3], want[3:7]], start, {"generate": 3}, {"fork": True}, {"generate": 4})
            timeline(d, [want[:5], want[2:6]], start, {"generate": 5}, {"rewind": len(ids) + 2}, {"generate": 4})
            timeline(d, [want[:3], want[5:]], start, {"generate": 3}, {"append": want[3:5]}, {"generate": 3})
            timeline(d, [want[:3], text[:4]], start, {"generate": 3}, {"rewind": 0}, {"append": [8, 5, 6]}, {"generate": 4})


def test_weights_listed_as_inputs():
    """As exporters of old did: each is a default that nobody feeds, and no state, whatever it is called."""
    rng = np.random.default_rng(970)
    spec = decoders.random_spec(rng, "concat", False)
    ids, tokens, _ = prompts_of(spec, rng)[0]
    model = decoders.graph(spec)
    names = {t.name: f"encoder.layers.{i}.k_proj.weight" for i, t in enumerate(model.graph.initializer)}
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]
        model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    folder = os.path.join(work.name, "listed")
    os.makedirs(folder)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    with drive.Drive(folder, "--quiet") as d:
        testing.equal(d.ask(op="generate", prompts=[ids], options={"max_new_tokens": N, "eos": []})["tokens"], [tokens])


def test_images_counted_by_grids():
    """Patches of all images in one tensor and one run, as the flow says: the grid tells whose patches are whose, in a batch too."""
    rng = np.random.default_rng(960)
    spec = decoders.random_spec(rng, "concat", False)
    spec.update(dtype="float32", layout="bhsd", mask="int64", dims="named")
    for layer in spec["layers"]:
        layer["window"] = 0
    folder = os.path.join(work.name, "grids")
    os.makedirs(folder)
    decoders.write_vision(spec, folder, 1)
    g, w = decoders.Graph(spec), rng.standard_normal((6, spec["hidden"])).astype(np.float32)
    g.input("pixel_values", "float32", ["patches", 6])
    g.input("image_grid_thw", "int64", ["images", 3])
    g.output("image_features", g.op("Unsqueeze", g.op("MatMul", "pixel_values", g.const(w)), g.ints(1)), "float32", ["patches", 1, spec["hidden"]])
    decoders.session("vision", g.nodes, g.inputs, g.outputs, g.constants, os.path.join(folder, "vision.onnx"))
    write_config(folder, {name: {"file": name + ".onnx"} for name in ("vision", "embedding", "decoder")}, tokens={"image_token": decoders.IMAGE})
    with open(os.path.join(folder, "genai_config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config["pipeline"]["flow"] = [{"run": "vision", "when": "prompt"}, {"run": "embedding", "when": "always"}, {"run": "decoder", "when": "always"}]
    with open(os.path.join(folder, "genai_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    grids = np.array([[1, 2, 2], [1, 1, 3], [1, 1, 1]], np.int64)
    pixels = rng.standard_normal((8, 6)).astype(np.float32)
    features = pixels.astype(np.float64) @ w
    image = lambda n: [decoders.IMAGE] * n
    rows = [([5, *image(4), 7, *image(3), 9], features[:7]), ([8, 6], features[:0]), ([4, *image(1)], features[7:])]
    want = [decoders.greedy(spec, ids, N, f)[0] for ids, f in rows]
    tensors = {"pixel_values": os.path.join(folder, "p.npy"), "image_grid_thw": os.path.join(folder, "g.npy")}
    np.save(tensors["pixel_values"], pixels)
    np.save(tensors["image_grid_thw"], grids)
    with drive.Drive(folder, "--quiet") as d:
        options = {"max_new_tokens": N, "eos": [], "images_per_row": [2, 0, 1]}
        testing.equal(d.ask(op="generate", prompts=[ids for ids, _ in rows], tensors=tensors, options=options)["tokens"], want)
        np.save(tensors["pixel_values"], pixels[:7])
        np.save(tensors["image_grid_thw"], grids[:2])
        got = d.ask(op="generate", prompts=[rows[0][0]], tensors=tensors, options={"max_new_tokens": N, "eos": []})
        testing.equal((got["tokens"], got["runs"]["vision"]), (want[:1], 1))


def name_by_nodes(file):
    """Outputs get the names that a tracing exporter gives the nodes which make them."""
    model = onnx.load(file)
    names = {o.name: f"cat_{i}" if i else "linear_7" for i, o in enumerate(model.graph.output)}
    for node in model.graph.node:
        for ports in (node.input, node.output):
            ports[:] = [names.get(name, name) for name in ports]
    for port in model.graph.output:
        port.name = names[port.name]
    onnx.save(model, file)


def test_outputs_named_by_nodes():
    """Caches are paired by the op that joins new positions to them, where the outputs' names say nothing."""
    for seed, cache in ((970, "concat"), (971, "op24"), (972, "gqa"), (973, "op23"), (974, "concat"), (975, "combined")):
        rng = np.random.default_rng(seed)
        spec = decoders.random_spec(rng, cache, False)
        spec.update(dtype="float32")
        prompts = prompts_of(spec, rng)
        assert prompts, seed
        folder = os.path.join(work.name, f"nodes.{seed}")
        decoders.write(spec, folder)
        name_by_nodes(os.path.join(folder, "model.onnx"))
        try:
            check_runs(spec, folder, prompts)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}, {json.dumps(spec)}: {e}") from e

testing.main()
