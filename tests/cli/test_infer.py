"""`treadle infer` on both engines against ONNX Runtime in Python; `treadle devices`; --engine and its kin on the command line."""
import json
import os

import numpy as np

import testing

work = testing.temp_dir()


def make_model():
    """y = Gemm(x, w), s = its sum, n = a name for every row; b optional."""
    import onnx
    from onnx import TensorProto as T, helper as h, numpy_helper as nh
    rng = np.random.default_rng(3)
    graph = h.make_graph(
        [h.make_node("Gemm", ["x", "w", "b"], ["y"]), h.make_node("ReduceSum", ["y"], ["s"], keepdims=0)],
        "g", [h.make_tensor_value_info("x", T.FLOAT, ["n", 4]), h.make_tensor_value_info("b", T.FLOAT, [3])],
        [h.make_tensor_value_info("y", T.FLOAT, ["n", 3]), h.make_tensor_value_info("s", T.FLOAT, [])],
        [nh.from_array(rng.standard_normal((4, 3)).astype(np.float32), "w"), nh.from_array(np.ones(3, np.float32), "b")])
    path = os.path.join(work.name, "model.onnx")
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    return path


MODEL = make_model()


def saved(name, array):
    path = os.path.join(work.name, name + ".npy")
    np.save(path, array)
    return path


def engines():
    yield ()
    yield ("--engine", "ort", "--ort-lib", testing.ort_library())
    yield ("--provider", "cpu", "--engine", "ort", "--ort-lib", testing.ort_library(), "--session-options",
           '{"graph_optimization_level": "ORT_DISABLE_ALL", "intra_op_num_threads": "1", "session.disable_prepacking": "1"}', "--run-options",
           '{"log_severity_level": 3}')


def test_outputs():
    import onnxruntime
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for feed in ({"x": x}, {"x": x, "b": np.array([5, 6, 7], np.float32)}, {"x": x[:0]}):
        want = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"]).run(["y", "s"], feed)
        inputs = [part for name, array in feed.items() for part in ("-i", f"{name}={saved(name, array)}")]
        out = os.path.join(work.name, "y_out.npy")
        for engine in engines():
            answer = testing.treadle_json("infer", MODEL, *inputs, "-o", f"y={out}", "--json", *engine)
            testing.near(np.load(out), want[0], 1e-5, f"{engine}")
            testing.equal([o["name"] for o in answer["outputs"]], ["y", "s"])
            testing.equal([o["shape"] for o in answer["outputs"]], [list(want[0].shape), []])
            testing.near(answer["outputs"][1]["mean"], want[1], 1e-4)
    text = testing.treadle("infer", MODEL, "-i", f"x={saved('x', x)}").stdout
    assert text.startswith("y: float32 [2, 3], "), text


def make_folder():
    """Two graphs of no config: encoder, e = |x| and n = rows of x; stage, y = e times the k of the request. A third one alone gives tokens."""
    import onnx
    from onnx import TensorProto as T, helper as h
    folder = os.path.join(work.name, "folder")
    os.makedirs(folder, exist_ok=True)

    def save(name, nodes, inputs, outputs):
        graph = h.make_graph(nodes, "g", [h.make_tensor_value_info(*v) for v in inputs], [h.make_tensor_value_info(*v) for v in outputs])
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), os.path.join(folder, name + ".onnx"))

    save("encoder", [h.make_node("Abs", ["x"], ["e"]), h.make_node("Shape", ["x"], ["n"], start=0, end=1)],
         [("x", T.FLOAT, ["r", 4])], [("e", T.FLOAT, ["r", 4]), ("n", T.INT64, [1])])
    save("stage", [h.make_node("Mul", ["e", "k"], ["y"])], [("e", T.FLOAT, ["r", 4]), ("k", T.FLOAT, [1])], [("y", T.FLOAT, ["r", 4])])
    return folder


def test_a_folder():
    """A pipeline that gives tensors: one pass, its outputs by name on both engines; what does not go with it is refused."""
    folder, x, k = make_folder(), np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.array([2.5], np.float32)
    given = ("-i", f"x={saved('x', x)}", "-i", f"k={saved('k', k)}")
    files = {name: os.path.join(work.name, name.replace(".", "_") + "_out.npy") for name in ("y", "encoder.e", "n")}
    wanted = {"y": np.abs(x) * k, "encoder.e": np.abs(x), "n": np.array([3])}
    for engine in ((), ("--engine", "ort", "--ort-lib", testing.ort_library())):
        answer = testing.treadle_json("infer", folder, *given, *(p for n, f in files.items() for p in ("-o", f"{n}={f}")), "--json", *engine)
        for name, want in wanted.items():
            testing.near(np.load(files[name]), want, 1e-6, name)
        testing.equal([(o["session"], o["name"], o["dtype"], o["shape"]) for o in answer["outputs"]],
                      [("encoder", "e", "float32", [3, 4]), ("encoder", "n", "int64", [1]), ("stage", "y", "float32", [3, 4])])
        testing.near(answer["outputs"][2]["max"], wanted["y"].max(), 1e-6)
    lines = testing.treadle("infer", folder, *given).stdout.splitlines()
    testing.equal([line.split(",")[0] for line in lines], ["encoder.e: float32 [3", "encoder.n: int64 [1]", "stage.y: float32 [3"])
    for more, code, words in ((("-o", "q=f.npy"), 2, "one of the names encoder.e, encoder.n, stage.y"), (("--ids", "1,x"), 2, "--ids"),
                              (("-i", "z=" + saved("z", x)), 2, "it takes: x, k"), (("--provider", "cpu"), 2, "is for one graph")):
        run = testing.treadle("infer", folder, *given, *more)
        assert run.returncode == code and words in run.stderr and not run.stdout, run
    run = testing.treadle("infer", folder, *given[:2])
    assert run.returncode == 2 and 'expected a tensor "k"' in run.stderr, run
    run = testing.treadle("run", folder, "-p", "hello")
    assert run.returncode == 3 and "gives no tokens" in run.stderr and "infer" in run.stderr, run
    run = testing.treadle("infer", testing.source("examples/pipelines/1-decoder"))
    assert run.returncode == 3 and "gives tokens" in run.stderr, run
    run = testing.treadle("infer", MODEL, "--ids", "1")
    assert run.returncode == 2 and "--ids needs a model folder" in run.stderr, run


def test_engines_are_compared_on_tensors():
    """verify of what gives neither tokens nor vectors: all its tensors; random ones differ."""
    folder, x, k = make_folder(), np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.array([2.5], np.float32)
    given = ("-i", f"x={saved('x', x)}", "-i", f"k={saved('k', k)}", "--ort-lib", testing.ort_library())
    run = testing.treadle("verify", folder, *given)
    testing.equal((run.returncode, run.stdout.splitlines()[1:]),
                  (0, ["light and ort agree: largest difference 0 (relative 0, tolerance 0.001)"]), run.stderr)
    import onnx
    from onnx import TensorProto as T, helper as h
    graph = h.make_graph([h.make_node("RandomUniformLike", ["e"], ["u"]), h.make_node("Mul", ["u", "k"], ["y"])], "g",
                         [h.make_tensor_value_info(*v) for v in (("e", T.FLOAT, ["r", 4]), ("k", T.FLOAT, [1]))],
                         [h.make_tensor_value_info("y", T.FLOAT, ["r", 4])])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), os.path.join(folder, "stage.onnx"))
    run = testing.treadle("verify", folder, *given)
    assert run.returncode == 1 and "light and ort disagree" in run.stdout, run


def test_wrong_use():
    x = saved("x", np.zeros((1, 4), np.float32))
    wide = saved("wide", np.zeros((1, 5), np.float32))
    for arguments, code, words in (
            ((), 2, 'input "x" is not given'), (("-i", f"z={x}"), 2, "one of the names x, b"), (("-i", x), 2, "NAME=FILE"),
            (("-i", f"x={x}", "-o", "q=f.npy"), 2, "one of the names y, s"), (("-i", "x=/no/such.npy"), 1, "/no/such.npy")):
        run = testing.treadle("infer", MODEL, *arguments)
        testing.equal(run.returncode, code, run.stderr)
        assert words in run.stderr and not run.stdout, run
    ort = ("--engine", "ort", "--ort-lib", testing.ort_library())
    for arguments, code, words in (
            (("-i", f"x={wide}"), 1, "ONNX Runtime: "), (("--provider", "cda"), 3, 'execution provider "cda" is not available (available: '),
            (("--session-options", '{"graph_optimization_level": "ALL"}'), 3, "expected one of ORT_DISABLE_ALL, ORT_ENABLE_BASIC"),
            (("--session-options", '{"enable_profiling": "prefix"}'), 3, "it writes a file"),
            (("--session-options", '{"custom_ops_library": "x.so"}'), 3, "it loads native code"),
            (("--session-options", '{"intra_op_num_threads": "many"}'), 3, "expected a number"),
            (("--session-options", "[1]"), 2, "expected an object"), (("--session-options", "{"), 3, "session_options")):
        run = testing.treadle("infer", MODEL, "-i", f"x={x}", *arguments, *ort)
        testing.equal(run.returncode, code, run.stderr)
        assert words in run.stderr and not run.stdout, run
    run = testing.treadle("infer", MODEL, "-i", f"x={x}", "--engine", "warp")
    testing.equal(run.returncode, 2)
    assert "expected light or ort" in run.stderr, run.stderr


def test_a_provider_that_is_built_in():
    """This build has the Azure provider, which takes no node of such a graph: the CPU runs it."""
    import onnxruntime
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        testing.skip("this ONNX Runtime has one provider only")
    x = saved("x", np.ones((1, 4), np.float32))
    for name in ("azure", "AZURE", "AzureExecutionProvider"):
        run = testing.treadle("infer", MODEL, "-i", f"x={x}", "--provider", name, "--ort-lib", testing.ort_library())
        testing.equal((run.returncode, run.stderr), (0, ""))


def test_devices():
    import onnxruntime
    light, ort = testing.treadle_json("devices", "--json", "--ort-lib", testing.ort_library())
    testing.equal((light["engine"], light["providers"]), ("light", ["CPUExecutionProvider"]))
    testing.equal((ort["engine"], ort["version"]), ("ort", onnxruntime.__version__))
    testing.equal(sorted(ort["providers"]), sorted(onnxruntime.get_available_providers()))
    assert any(d["type"] == "cpu" and d["provider"] == "CPUExecutionProvider" for d in ort["devices"]), ort
    text = testing.treadle("devices", "--ort-lib", testing.ort_library()).stdout
    assert f"ort {onnxruntime.__version__}" in text and "provider CPUExecutionProvider" in text, text
    run = testing.treadle("devices", env=dict(os.environ, TREADLE_ORT_LIB="/no/such.so"))
    testing.equal(run.returncode, 0)
    assert "not available: ONNX Runtime was not found. Tried: /no/such.so" in run.stdout, run.stdout


testing.main()
