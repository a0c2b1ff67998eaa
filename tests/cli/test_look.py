# timeout: 300
"""`treadle check`, `inspect`, `explain`, `ops`, `bench`, `build`: what they print, and their exit codes."""
import json
import os
import subprocess

import testing
import tiny

model = tiny.Model()


def copy(name, **changes):
    """A copy of the model folder with changes to its config: {pointer-like path: value}."""
    path = os.path.join(model.work.name, name)
    subprocess.run(["cp", "-r", model.folder, path], check=True)
    file = os.path.join(path, "genai_config.json")
    with open(file, encoding="utf-8") as f:
        config = json.load(f)
    for key, value in changes.items():
        at = config
        *above, last = key.split("__")
        for part in above:
            at = at.setdefault(part, {})
        at[last] = value
    with open(file, "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
    return path


def test_check():
    for source in (model.folder, model.file):
        run = testing.treadle("check", source, "--quiet")
        testing.equal((run.returncode, run.stdout), (0, f"{source}: no problems found\n"))
        testing.equal(testing.treadle_json("check", source, "--quiet", "--json"), {"messages": []})


def test_check_of_a_wrong_config():
    path = copy("wrong", generation__max_length="long", tokens__eos="x")
    run = testing.treadle("check", path, "--json")
    testing.equal(run.returncode, 3)
    messages = json.loads(run.stdout)["messages"]
    assert len(messages) >= 2, messages
    for m in messages:
        assert set(m) >= {"column", "level", "line", "message", "pointer"}, m
        assert m["level"] in ("error", "warning", "note") and m["line"] >= 1 and m["column"] >= 1, m
    testing.equal({m["pointer"] for m in messages} & {"/generation/max_length", "/tokens/eos"}, {"/generation/max_length", "/tokens/eos"})
    text = testing.treadle("check", path)
    testing.equal(text.returncode, 3)
    line = messages[0]
    assert f"genai_config.json:{line['line']}:{line['column']} {line['pointer']}: error: " in text.stdout, text.stdout
    run = testing.treadle("run", path, "--ids", "5")
    testing.equal((run.returncode, run.stdout), (3, ""))
    assert "genai_config.json" in run.stderr, run.stderr


def test_check_of_graphs():
    """Ops that the engine lacks, files of weights that are too short or missing: told before anything is opened."""
    path = copy("graphs")
    graph, data = os.path.join(path, "model.onnx"), os.path.join(path, "model.onnx.data")
    with open(graph, "rb") as f:
        text = f.read()
    assert text.count(b"GroupQueryAttention"), "the tiny model has other ops now"
    with open(graph, "wb") as f:
        f.write(text.replace(b"GroupQueryAttention", b"GroupQueryAttentioN"))
    size = os.path.getsize(data)
    os.truncate(data, size // 2)

    def errors():
        run = testing.treadle("check", path, "--json", "--quiet")
        testing.equal(run.returncode, 3)
        messages = json.loads(run.stdout)["messages"]
        assert all(m["level"] == "error" and m["file"].endswith("model.onnx") for m in messages), messages
        return [m["message"] for m in messages]

    ops, short = errors()
    testing.equal(ops, 'session "decoder": light lacks these ops: com.microsoft::GroupQueryAttentioN (2 nodes)')
    assert short.startswith(f'external data "model.onnx.data" is too short: it has {size // 2} bytes, tensor "'), short
    os.remove(data)
    assert "model.onnx.data" in errors()[1], errors()
    testing.equal(testing.treadle("convert-config", path).returncode, 0)


def test_unknown_keys():
    path = copy("unknown", generation__max_lenght=5)
    run = testing.treadle("check", path, "--json")
    messages = json.loads(run.stdout)["messages"]
    testing.equal((run.returncode, [m["level"] for m in messages]), (0, ["warning"]))
    assert "max_length" in messages[0]["message"], "did you mean"
    testing.equal(testing.treadle("check", path, "--strict").returncode, 3)
    testing.equal(testing.treadle("run", path, "--ids", "5", "-n", 1).returncode, 0)
    testing.equal(testing.treadle("run", path, "--ids", "5", "-n", 1, "--strict").returncode, 3)


def test_settings():
    run = testing.treadle("check", model.folder, "--set", "/generation/max_length=\"x\"")
    assert run.returncode == 3 and run.stdout.startswith("/generation/max_length: error: "), run
    got = testing.treadle_json("run", model.folder, "--ids", "5", "--set", "/generation/max_length=9", "--set", "/tokens/eos=[]", "--json")
    testing.equal(len(got["results"][0]["token_ids"]), 8)
    for wrong in ("/generation/max_length=", "/generation/max_length={", "generation=1", "/x"):
        run = testing.treadle("run", model.folder, "--ids", "5", "--set", wrong)
        assert run.returncode in (2, 3) and wrong.split("=")[0] in run.stderr, (wrong, run)


def test_inspect():
    got = testing.treadle_json("inspect", model.folder, "--json", "--context-length", 100)
    session = got["sessions"][0]
    testing.equal((session["name"], session["missing"]), ("decoder", []))
    testing.equal({i["name"] for i in session["inputs"]} >= {"input_ids"}, True)
    testing.equal([o["dtype"] for o in session["outputs"] if o["name"] == "logits"], ["float32"])
    import onnx
    graph = onnx.load(os.path.join(model.folder, "model.onnx"), load_external_data=False)
    nodes = [n.op_type for n in graph.graph.node]
    testing.equal({o["op"]: o["count"] for o in session["ops"]}, {op: nodes.count(op) for op in nodes})
    want = {i.name: [d.dim_value or d.dim_param for d in i.type.tensor_type.shape.dim] for i in graph.graph.input}
    testing.equal({i["name"]: i["shape"] for i in session["inputs"]}, want)
    weights = sum(w.nbytes for w in model.truth.values())
    got_weights = sum(w["bytes"] for w in session["weights"])
    assert weights <= got_weights <= weights * 1.05, (weights, got_weights)
    testing.equal(got["memory"]["context_length"], 100)
    state = 100 * tiny.SHAPE["layers"] * tiny.SHAPE["kv_heads"] * 2 * 32 * 4
    assert state <= got["memory"]["state_bytes"] <= 2 * state, (state, got["memory"])
    text = testing.treadle("inspect", model.folder)
    for word in ("input_ids", "logits", "GroupQueryAttention", "weights", "state", "memory"):
        assert word in text.stdout, word
    testing.equal(testing.treadle("inspect", model.folder, "--context-length", "-1").returncode, 2)
    one = testing.treadle_json("inspect", os.path.join(model.folder, "model.onnx"), "--json")
    testing.equal(one["sessions"][0]["ops"], session["ops"])


def test_metadata_twice():
    """Nothing forbids a key of metadata_props to come twice; JSON with a key twice is refused by its readers, this one's too."""
    import json
    import onnx
    path = os.path.join(model.folder, "twice.onnx")
    node = onnx.helper.make_node("Neg", ["x"], ["y"])
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = onnx.helper.make_model(onnx.helper.make_graph([node], "g", ports[:1], ports[1:]), ir_version=8)
    for value in ("1", "2"):
        graph.metadata_props.add(key="k", value=value)
    onnx.save(graph, path)
    pairs = []
    json.loads(testing.treadle("inspect", path, "--json").stdout, object_pairs_hook=lambda p: pairs.append([k for k, _ in p]) or dict(p))
    os.remove(path)
    assert ["k"] in pairs and all(len(set(keys)) == len(keys) for keys in pairs), pairs


def test_inspect_names_what_is_missing():
    import onnx
    from onnx import TensorProto, helper
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    nodes = [helper.make_node("NoSuchOp", ["x"], ["a"]), helper.make_node("Another", ["a"], ["y"], domain="my.domain")]
    graph = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("my.domain", 3)])
    path = os.path.join(model.work.name, "missing.onnx")
    onnx.save(graph, path)
    missing = testing.treadle_json("inspect", path, "--json")["sessions"][0]["missing"]
    assert any("NoSuchOp" in m for m in missing) and any("my.domain" in m and "Another" in m for m in missing), missing
    run = testing.treadle("run", path, "--ids", "1")
    testing.equal(run.returncode, 3)
    assert "NoSuchOp" in run.stderr and "Another" in run.stderr, f"all at once: {run.stderr}"


def test_explain():
    got = testing.treadle_json("explain", model.folder, "--json")
    testing.equal([k in got for k in ("config", "origins", "plan", "notes")], [True] * 4)
    testing.equal([(s["run"], s["when"]) for s in got["plan"]["steps"]], [("decoder", "always")])
    testing.equal(len(got["plan"]["state"]), tiny.SHAPE["layers"])
    assert any(v.startswith("preset ") for v in got["origins"].values()), got["origins"]
    changed = testing.treadle_json("explain", model.folder, "--json", "--set", "/generation/max_length=7")
    testing.equal(changed["config"]["generation"]["max_length"], 7)
    text = testing.treadle("explain", model.folder)
    for word in ("config", "plan", "step 1: decoder", "attention_mask", "positions"):
        assert word in text.stdout, word


def test_ops():
    listed = testing.treadle_json("ops", "--json")
    for op in listed:
        testing.equal(sorted(op), ["domain", "op", "since_version"])
    names = {(o["domain"] or "ai.onnx", o["op"]) for o in listed}
    for op in ("MatMulNBits", "GroupQueryAttention", "GatherBlockQuantized", "SkipSimplifiedLayerNormalization", "RotaryEmbedding"):
        assert ("com.microsoft", op) in names, op
    assert ("ai.onnx", "Add") in names
    lines = testing.treadle("ops").stdout.splitlines()
    testing.equal(len(lines), len(listed))
    assert "ai.onnx Add-7" in lines or "ai.onnx Add-1" in lines or any(line.startswith("ai.onnx Add-") for line in lines), lines[:5]


def test_bench():
    run = testing.treadle("bench", model.file, "--json", "--prompt-tokens", 16, "--new-tokens", 8, "--threads", 1)
    testing.equal((run.returncode, run.stdout.count("\n")), (0, 1), run.stderr)
    got = json.loads(run.stdout)
    testing.equal(sorted(got), ["decode_tokens_per_s", "first_token_ms", "load_ms", "peak_rss_mb", "prefill_tokens_per_s"])
    assert all(v > 0 for v in got.values()), got
    text = testing.treadle("bench", model.folder, "--prompt-tokens", 16, "--new-tokens", 8, "--profile")
    assert "tokens/s" in text.stdout and "Linear" in text.stderr, text
    long = testing.treadle("bench", model.folder)
    assert long.returncode == 1 and "512" in long.stderr and "128" in long.stderr, long
    for wrong in (["--prompt-tokens", 0], ["--new-tokens", -1], ["--prompt-tokens", 1 << 40]):
        testing.equal(testing.treadle("bench", model.folder, *wrong).returncode, 2)


def test_build():
    with testing.temp_dir() as temp:
        out = os.path.join(temp, "deep", "er", "out")
        run = testing.treadle("build", model.file, "-o", out, "--quantize", "none", "--accuracy-level", 0)
        testing.equal((run.returncode, run.stdout, run.stderr), (0, "", ""))
        wanted = {"model.onnx", "genai_config.json", "tokenizer.json", "tokenizer_config.json"}
        assert wanted <= set(os.listdir(out)), os.listdir(out)
        again = testing.treadle("build", model.file, "-o", out)
        testing.equal(again.returncode, 0, "an earlier build is replaced")
        file = os.path.join(temp, "file")
        with open(file, "w", encoding="utf-8") as f:
            f.write("precious")
        run = testing.treadle("build", model.file, "-o", file)
        assert run.returncode in (1, 2, 3) and file in run.stderr, run
        with open(file, encoding="utf-8") as f:
            testing.equal(f.read(), "precious")
        testing.equal(sorted(os.listdir(temp)), ["deep", "file"])


testing.main()
