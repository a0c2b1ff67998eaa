"""Wrong configs: what `treadle check` prints of each folder of tests/config/errors, word for word, and how it exits.

A case is a folder with genai_config.json, what else it needs, and expected.txt: the output with DIR for the folder. Beside the config lie
the graphs that are made here. `test_errors.py --update` writes the outputs anew, to be read before they are committed."""
import os
import shutil
import sys

import onnx
import testing
from onnx import TensorProto as T
from onnx import helper

CACHE = [("past_key_values.0.key", T.FLOAT, ["batch", 2, "past", 8]), ("past_key_values.0.value", T.FLOAT, ["batch", 2, "past", 8])]
PRESENT = [("present.0.key", T.FLOAT, ["batch", 2, "total", 8]), ("present.0.value", T.FLOAT, ["batch", 2, "total", 8])]
IDS = ("input_ids", T.INT64, ["batch", "seq"])
MASK = ("attention_mask", T.INT64, ["batch", "total"])
LOGITS = ("logits", T.FLOAT, ["batch", "seq", 32])
EMBEDS = ("inputs_embeds", T.FLOAT, ["batch", "seq", 16])
FEATURES = ("image_features", T.FLOAT, ["rows", 16])
GRAPHS = {
    "model": ([IDS, MASK] + CACHE, [LOGITS] + PRESENT),
    "decoder": ([EMBEDS, MASK] + CACHE, [LOGITS] + PRESENT),
    "lonely": ([IDS, MASK] + CACHE, [LOGITS, PRESENT[0]]),
    "vision": ([("pixel_values", T.FLOAT, ["images", 3, "h", "w"])],
               [("hidden_states", T.FLOAT, ["images", "rows", 16]), ("pooler_output", T.FLOAT, ["images", 16]), ("half", T.FLOAT16, ["rows", 16])]),
    "embedding": ([IDS, FEATURES], [EMBEDS]),
    "turning": ([EMBEDS, MASK] + CACHE, [LOGITS, ("pixels", T.FLOAT, ["images", 3, "h", "w"])] + PRESENT),
}
# The texts that the design of the format fixes, as far as they stand before a list that may grow.
FIXED = [
    'Flow step references session "vision" but no such session is declared in pipeline.sessions',
    'Dataflow wire references output "image_features" but session "vision" has no such output (available outputs: hidden_states, pooler_output',
    'Unknown position_ids strategy "my_custom". Valid options: auto, default, mrope_3d, windowed',
    "Circular dependency detected in dataflow: vision \u2192 embedding \u2192 decoder \u2192 vision",
    'Unknown pipeline preset "my-preset". Built-in presets: autoregressive-decoder, vision-language, encoder-decoder, speech-language',
    'Pipeline config requires at least one session. Add "sessions": {"decoder": {"file": "model.onnx"}}',
]
ERRORS = testing.source("tests/config/errors")


def save_graph(path, inputs, outputs):
    info = lambda rows: [helper.make_tensor_value_info(*row) for row in rows]
    nodes, shapes = [], []
    for name, dtype, dims in outputs:  # zeros of the declared type and rank
        shapes.append(helper.make_tensor(name + "/shape", T.INT64, [len(dims)], [d if isinstance(d, int) else 1 for d in dims]))
        nodes.append(helper.make_node("ConstantOfShape", [name + "/shape"], [name], value=helper.make_tensor("zero", dtype, [1], [0])))
    graph = helper.make_graph(nodes, "g", info(inputs), info(outputs), shapes)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)


def said_of(case, temp, graphs):
    """(exit code, output) of a case's check."""
    folder = os.path.join(temp, "case")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join(ERRORS, case), folder)
    for name in GRAPHS:
        shutil.copy(os.path.join(graphs, name + ".onnx"), folder)
    if case == "link":
        os.symlink(os.path.join(graphs, "model.onnx"), os.path.join(folder, "out.onnx"))
    options = ["--allow-plugins", os.path.join(temp, "plugins")] if case.startswith("plugin") else []
    run = testing.treadle("check", folder, *options, env={**os.environ, "TREADLE_ORT_LIB": "/nowhere"})
    testing.equal(run.stderr, "", case)
    return run.returncode, run.stdout.replace(os.path.realpath(folder), "DIR").replace(folder, "DIR").replace(os.path.realpath(graphs), "ELSEWHERE")


def each_case():
    with testing.temp_dir() as temp:
        graphs = os.path.join(temp, "graphs")
        os.mkdir(graphs)
        os.mkdir(os.path.join(temp, "plugins"))
        for name, ports in GRAPHS.items():
            save_graph(os.path.join(graphs, name + ".onnx"), *ports)
        for case in sorted(os.listdir(ERRORS)):
            yield (case, *said_of(case, temp, graphs))


def test_golden_texts():
    everything = ""
    for case, code, output in each_case():
        with open(os.path.join(ERRORS, case, "expected.txt"), encoding="utf-8") as f:
            testing.equal(output, f.read(), case)
        testing.equal(code, 3 if ": error: " in output else 0, case)
        everything += output
    for text in FIXED:
        assert text in everything, text


def update():
    for case, _, output in each_case():
        with open(os.path.join(ERRORS, case, "expected.txt"), "w", encoding="utf-8") as f:
            f.write(output)


if "--update" in sys.argv:
    update()
else:
    testing.main()
