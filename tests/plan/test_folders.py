# timeout: 300
"""Plans of the independent folders: as they are, without their configs (found from the graphs alone), and upstream's version 1 folders.

What is expected is each folder's golden plan; upstream's folders say nothing, they must plan or name the file that they lack."""
import json
import os
import shutil
import subprocess
import sys
import tarfile

import testing

work = testing.temp_dir()


def unpack(archive):
    root = os.path.join(work.name, archive.split("/")[-1].split(".")[0])
    if not os.path.isdir(root):
        with tarfile.open(testing.shared(archive)) as tar:
            trust = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
            tar.extractall(root, **trust)
    return root


def explain(folder):
    run = testing.treadle("explain", folder, "--json")
    assert run.returncode == 0, f"{folder}: {run.stderr or run.stdout}"
    return json.loads(run.stdout)["plan"]


def test_golden_plans():
    """With the script that compares steps, state, positions and wires; wrong configs are run by tests/api."""
    script = testing.shared("tools/run-fixtures")
    folder = os.path.join(unpack("data/pipelines.tar.xz"), "pipelines")
    run = subprocess.run([sys.executable, script, folder, "--treadle", os.environ["TREADLE"], "--kinds", "plan", "--filter",
                          "a-*,b0*,b10*,b11*,b12*,b13*,b14*,b16*,b17*,b18*,b19*,b20*,b21*,b22*"],
                         capture_output=True, text=True, check=False)
    testing.equal([line for line in run.stdout.splitlines() if line.startswith("FAIL ")], [])
    assert " 0 failed" in run.stdout, run.stdout + run.stderr


def without_config(source, target):
    """A copy without genai_config.json, but for its token ids: no graph tells those. Returns file name to session name."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("genai_config.json", "golden.*"))
    names, tokens = {}, {"image_token": 5}
    path = os.path.join(source, "genai_config.json")
    if os.path.exists(path):
        config = json.load(open(path, encoding="utf-8"))
        tokens = config.get("tokens", tokens)
        for name, session in config.get("pipeline", {}).get("sessions", {}).items():
            file = session["file"]
            names[file.split("/")[0] if "/" in file else file[:-len(".onnx")]] = name
    with open(os.path.join(target, "genai_config.json"), "w", encoding="utf-8") as out:
        json.dump({"version": 2, "tokens": tokens}, out)
    return names


def check_found(name, root):
    golden = json.load(open(os.path.join(root, name, "golden.json"), encoding="utf-8")).get("plan", {})
    if not golden.get("steps"):
        return
    target = os.path.join(work.name, "bare", name)
    names = without_config(os.path.join(root, name), target)
    plan = explain(target)
    single = len(golden["steps"]) == 1  # a lone graph is called after its file
    steps = [("" if single else names.get(s["run"], s["run"]), s["when"]) for s in plan["steps"]]
    testing.equal(steps, [("" if single else s["run"], s["when"]) for s in golden["steps"]], name)
    loops = [s.get("loop", "batched") for s in plan["steps"]]
    testing.equal(loops, [s.get("loop", "batched") for s in golden["steps"]], name)
    wanted = [s for s in golden.get("state", []) if "inputs" in s]
    if wanted and len(wanted) == len(golden["state"]):
        testing.equal(sorted(s["inputs"] for s in plan["state"]), sorted(s["inputs"] for s in wanted), name)
        testing.equal(sorted(s["kind"] for s in plan["state"]), sorted(s["kind"] for s in wanted), name)
    if golden.get("prefill"):
        testing.equal(plan.get("prefill"), golden["prefill"], name)


def test_plans_without_configs():
    root = os.path.join(unpack("data/pipelines.tar.xz"), "pipelines")
    for name in sorted(os.listdir(root)):
        if os.path.isdir(os.path.join(root, name)) and name != "b15-errors":
            check_found(name, root)


def test_found_plans_run():
    """Folders of several sessions whose configs keep only sessions, windows and ids: found steps and wires give the golden tokens."""
    root, target = os.path.join(unpack("data/pipelines.tar.xz"), "pipelines"), os.path.join(work.name, "stripped")
    for name in sorted(os.listdir(root)):
        if not name.startswith(("b07-", "b08-", "b09-", "b10-", "b12-", "b13-", "b20-")):
            continue
        shutil.copytree(os.path.join(root, name), os.path.join(target, name))
        path = os.path.join(target, name, "genai_config.json")
        if not os.path.exists(path):
            continue
        config = json.load(open(path, encoding="utf-8"))
        pipeline = config["pipeline"]
        config["pipeline"] = {key: pipeline[key] for key in ("sessions", "pooling") if key in pipeline}
        window = pipeline.get("state", {}).get("kv_cache", {}).get("sliding_window")
        if window:  # what pads the prompt, no graph tells
            config["pipeline"]["state"] = {"kv_cache": {"sliding_window": window}}
        with open(path, "w", encoding="utf-8") as out:
            json.dump(config, out)
    script = testing.shared("tools/run-fixtures")
    run = subprocess.run([sys.executable, script, target, "--treadle", os.environ["TREADLE"], "--kinds",
                          "generate,embed,transduce"], capture_output=True, text=True, check=False)
    testing.equal([line for line in run.stdout.splitlines() if line.startswith("FAIL ")], [])
    assert " 0 failed" in run.stdout, run.stdout + run.stderr


def test_predictor_and_joiner_in_one_graph():
    """The golden transducer with two of its graphs merged gives the same tokens at the same frames."""
    try:
        import onnx
        from onnx import compose
    except ImportError:
        testing.skip("onnx is not installed")
    source = os.path.join(unpack("data/pipelines.tar.xz"), "pipelines", "b12-rnnt")
    target = os.path.join(work.name, "one-graph")
    shutil.copytree(source, target)
    parts = [compose.add_prefix(onnx.load(os.path.join(source, f"{name}.onnx")), f"{name}/", rename_inputs=False,
                                rename_outputs=False) for name in ("predictor", "joiner")]
    onnx.save(compose.merge_models(*parts, io_map=[("decoder_output", "decoder_outputs")]),
              os.path.join(target, "decoder_joint.onnx"))
    for name in ("predictor", "joiner"):
        os.remove(os.path.join(target, f"{name}.onnx"))
    with open(os.path.join(target, "genai_config.json"), "w", encoding="utf-8") as out:
        json.dump({"version": 2, "tokens": {"blank": 39}, "generation": {"max_symbols_per_step": 3}}, out)
    golden = json.load(open(os.path.join(source, "golden.json"), encoding="utf-8"))
    for case in golden["cases"]:
        case["expect"].pop("runs", None)  # the two do not run as often as the one
    with open(os.path.join(target, "golden.json"), "w", encoding="utf-8") as out:
        json.dump(golden, out)
    run = subprocess.run([sys.executable, testing.shared("tools/run-fixtures"), target, "--treadle", os.environ["TREADLE"],
                          "--kinds", "transduce"], capture_output=True, text=True, check=False)
    assert "3 passed, 0 failed" in run.stdout, run.stdout + run.stderr


def test_upstream_folders():
    """13 folders of version 1; two lack graphs, and the message says which."""
    root = unpack("data/ort-genai-test-models.tar.xz")
    lacking, planned = {}, 0
    for folder, _, files in sorted(os.walk(root)):
        if "genai_config.json" not in files:
            continue
        run = testing.treadle("explain", folder, "--json")
        if run.returncode == 0:
            planned += 1
            assert json.loads(run.stdout)["plan"]["steps"], folder
        else:
            lacking[os.path.basename(folder)] = run.stderr
    testing.equal(sorted(lacking), ["pipeline-model", "whisper"])
    assert "dummy_encoder.onnx" in lacking["whisper"], lacking["whisper"]
    assert "embeds.onnx" in lacking["pipeline-model"], lacking["pipeline-model"]
    testing.equal(planned, 11)


testing.main()
