# timeout: 1800
# labels: model slow
"""Real graphs of convolutions, recurrent layers and 8-bit products, node by node: every node gets what ONNX Runtime computed
before it, so that differences do not add up (an 8-bit code that rounds the other way changes all that follows), and must give
what ONNX Runtime gives. Then whole runs, by what does not hang on such roundings. Goldens: real-models/*.json."""
import json
import os

import testing

work = testing.temp_dir()


def golden(name):
    with open(testing.shared(f"data/real-models/{name}.json"), encoding="utf-8") as f:
        return json.load(f)


def model(*path):
    testing.shared("tools/fetch-models")  # without it scripts/fetch-real-models has fetched nothing
    return testing.model(os.path.join("real", *path))


def infer(path, feed, names, *more):
    """Outputs of a graph by name."""
    import numpy as np
    arguments = ["infer", path, "--quiet", *more]
    with testing.temp_dir() as folder:
        for i, (name, array) in enumerate(feed.items()):
            np.save(os.path.join(folder, f"in_{i}.npy"), array)
            arguments += ["--input", f"{name}={folder}/in_{i}.npy"]
        for i, name in enumerate(names):
            arguments += ["--output", f"{name}={folder}/out_{i}.npy"]
        run = testing.treadle(*arguments)
        testing.equal(run.returncode, 0, run.stderr[-2000:])
        return [np.load(os.path.join(folder, f"out_{i}.npy")) for i in range(len(names))]


def values_of(graph, feed):
    """Everything that ONNX Runtime computes on the way, by name; it does not rewrite the graph."""
    import onnx
    import onnxruntime
    all_outputs = onnx.ModelProto()
    all_outputs.CopyFrom(graph)
    names = [o for n in graph.graph.node if n.op_type != "Constant" for o in n.output if o]
    del all_outputs.graph.output[:]
    all_outputs.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(all_outputs.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {**dict(zip(names, session.run(None, feed))), **feed}


def node_by_node(path, feed, tolerance):
    """The graph with every edge cut: what a node reads is an input of the graph, what it makes an output. The tolerance is of a tensor's
    largest value, but of 0.05 where all are smaller: ONNX Runtime's sigmoid of large negative numbers is exact to some 1e-7."""
    import numpy as np
    import onnx
    graph = onnx.load(path)
    values = values_of(graph, feed)
    inputs, outputs, cut = {}, [], onnx.GraphProto(name="cut")
    cut.initializer.extend(graph.graph.initializer)

    def rename(node):
        for k, name in enumerate(node.input):
            if name in values:
                node.input[k] = inputs.setdefault(name, f"i{len(inputs)}")
        for attribute in node.attribute:  # bodies read outer values by name
            for inner in attribute.g.node:
                rename(inner)

    for original in graph.graph.node:
        node = cut.node.add()
        node.CopyFrom(original)
        if node.op_type == "Constant":
            continue
        rename(node)
        for k, name in enumerate(node.output):
            if name:
                outputs.append((f"o{len(outputs)}", name, original))
                node.output[k] = outputs[-1][0]
    for name, short in inputs.items():
        array = values[name]
        cut.input.append(onnx.helper.make_tensor_value_info(short, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    cut.output.extend(onnx.ValueInfoProto(name=short) for short, _, _ in outputs)
    whole = onnx.helper.make_model(cut, opset_imports=graph.opset_import, ir_version=graph.ir_version)
    file = os.path.join(work.name, "cut.onnx")
    with open(file, "wb") as f:
        f.write(whole.SerializeToString())
    got = infer(file, {short: values[name] for name, short in inputs.items()}, [short for short, _, _ in outputs])
    for (_, name, node), array in zip(outputs, got):
        want = values[name]
        what = f"{os.path.basename(path)}, {node.op_type} {node.name}, {name}"
        testing.equal((array.dtype, array.shape), (want.dtype, want.shape), what)
        if want.size and not node.op_type.startswith("Random"):
            scale = max(0.05, float(np.abs(want[np.isfinite(want)].astype(np.float64)).max(initial=0)))
            testing.near(array.astype(np.float64) / scale, want.astype(np.float64) / scale, tolerance, what)


def noise(*shape):
    import numpy as np
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def ids(*shape):
    import numpy as np
    return np.random.default_rng(4).integers(1, 30, shape)


def test_reading_text_from_images():
    for file, shape in (("ch_ppocr_mobile_v2.0_cls_mobile.onnx", (2, 3, 48, 192)), ("PP-OCRv6_det_small.onnx", (1, 3, 96, 160)),
                        ("PP-OCRv6_rec_small.onnx", (2, 3, 48, 128))):
        node_by_node(model("ppocrv6-small", file), {"x": noise(*shape)}, 2e-5)


def test_end_of_turn():
    node_by_node(model("smart-turn-v3.2", "smart-turn-v3.2-cpu.onnx"), {"input_features": noise(1, 80, 800)}, 2e-5)


def test_vowel_marks():
    """An LSTM of 8-bit weights quantises its own states: where a code rounds the other way, the next states differ a little."""
    import numpy as np
    for case in golden("tashkeel-lstm-int8")["cases"]:
        file, name = model("tashkeel-lstm-int8", case["file"]), "input" if case["file"].startswith("rawi") else "input_ids"
        node_by_node(file, {name: ids(1, 23)}, 5e-3)
        got = infer(file, {name: np.array(case["input"], np.int64)}, ["output" if name == "input" else "logits"])[0]
        testing.equal(list(got.shape), case["output"]["shape"])
        testing.equal(got.argmax(-1).ravel().tolist(), case["argmax"], case["file"])


def test_a_voice_in_floats():
    import numpy as np
    node_by_node(model("piper-en_US-joe-medium", "en_US-joe-medium.onnx"),
                 {"input": ids(1, 30), "input_lengths": np.array([30]), "scales": np.array([0, 1, 0], np.float32)}, 2e-5)


def test_a_voice_in_bytes():
    """All of it: 8-bit products, convolutions and LSTMs, a short-time Fourier transform, and back to samples. Of the whole run, the
    length and the loudness: two runs of ONNX Runtime with weights that differ by 1e-6 have uncorrelated samples."""
    import numpy as np
    case, file = golden("kokoro-82m-int8"), model("kokoro-82m-int8", "kokoro-v1.0.int8.onnx")
    voices = np.load(model("kokoro-82m-int8", "voices_ja.npz"))
    style = voices["jf_alpha"][len(case["tokens"]) - 3].reshape(1, 256).astype(np.float32)
    testing.near(style[0, :8], case["style_first8"], 1e-6, "style")
    feed = {"tokens": np.array([case["tokens"]], np.int64), "style": style, "speed": np.array([1], np.float32)}
    node_by_node(file, feed, 2e-2)
    got = infer(file, feed, ["audio"])[0].ravel()
    testing.equal(len(got), case["samples"])
    testing.near(np.sqrt(np.mean(got.astype(np.float64) ** 2)) / case["rms"], 1, 0.05, "loudness")


testing.main()
