"""Valid files of odd graphs through the command: types and names that are missing, shapes that are not declared, loops that do not end, image
requests that do not add up. Each gives a message that says what is wrong, or the tokens that ONNX's own semantics give."""
import json
import os
import signal
import subprocess
import time

import numpy as np
import onnx
import testing
from onnx import TensorProto, helper, numpy_helper

work = testing.temp_dir()
VOCAB = 8
TABLE = np.random.default_rng(3).standard_normal((VOCAB, VOCAB)).astype(np.float32)
IDS = ("--ids", "1,2,3", "-n", "4")
info = helper.make_tensor_value_info


def greedy(last, n):
    out = []
    for _ in range(n):
        last = int(TABLE[last].argmax())
        out.append(last)
    return ",".join(map(str, out))


def folder(name, nodes, outputs, weights=(), change=None):
    """A decoder whose logits depend on the last id alone, through `nodes` from "raw" to "logits"."""
    path = os.path.join(work.name, name)
    os.makedirs(path)
    graph = helper.make_graph([helper.make_node("Gather", ["table", "input_ids"], ["raw"]), *nodes], "g",
                              [info("input_ids", TensorProto.INT64, ["batch", "seq"])], outputs,
                              [numpy_helper.from_array(TABLE, "table"), *weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if change:
        change(model)
    onnx.save(model, os.path.join(path, "model.onnx"))
    return path


def test_sizes_beyond_int64():
    """Sizes that a graph computes are followed at open: numbers that overflow there wrap in the run, as NumPy's do; slices of shapes that
    begin behind their end are empty."""
    most, least = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    path = os.path.join(work.name, "sizes.onnx")
    node = helper.make_node
    nodes = [node("Shape", ["x"], ["none"], start=int(most), end=int(least)), node("Shape", ["x"], ["all"], start=int(least), end=int(most)),
             node("Add", ["most", "two"], ["sum"]), node("Sub", ["most", "minus"], ["difference"]), node("Mul", ["most", "two"], ["product"])]
    outputs = ["none", "all", "sum", "difference", "product"]
    numbers = {"most": most, "two": 2, "minus": -1}
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [2, "n"])], [info(o, TensorProto.INT64, [None]) for o in outputs],
                              [numpy_helper.from_array(np.int64([v]), k) for k, v in numbers.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    np.save(os.path.join(work.name, "x.npy"), np.zeros((2, 3), np.float32))
    files = {o: os.path.join(work.name, o + ".npy") for o in outputs}
    run = testing.treadle("infer", path, "-i", "x=" + os.path.join(work.name, "x.npy"), *[w for o in outputs for w in ("-o", f"{o}={files[o]}")])
    testing.equal(run.returncode, 0, run.stderr)
    with np.errstate(over="ignore"):
        big = np.int64([most])
        want = {"none": [], "all": [2, 3], "sum": big + 2, "difference": big + 1, "product": big * 2}
    for o in outputs:
        testing.equal(np.load(files[o]).tolist(), list(map(int, want[o])), o)


def plain(name, shape=("batch", "seq", VOCAB), change=None):
    return folder(name, [helper.make_node("Identity", ["raw"], ["logits"])], [info("logits", TensorProto.FLOAT, shape)], change=change)


def refused(path, *words):
    for arguments in (("check", path), ("run", path, *IDS)):
        run = testing.treadle(*arguments)
        testing.equal(run.returncode, 3, arguments)
        for word in words:
            assert word in run.stdout + run.stderr, run


def test_inputs_need_a_type_and_a_name_of_their_own():
    def no_type(model):
        model.graph.input[0].type.tensor_type.elem_type = 0

    def twice(model):
        model.graph.input.append(model.graph.input[0])
    refused(plain("no-type", change=no_type), 'input "input_ids" has no element type')
    refused(plain("twice", change=twice), 'two inputs "input_ids"')
    path = os.path.join(plain("session", change=no_type), "model.onnx")
    run = testing.treadle("infer", path, "-i", "input_ids=none.npy")
    testing.equal(run.returncode, 3, run)
    assert "has no element type" in run.stderr, run


def test_logits_whose_shape_is_not_declared():
    run = testing.treadle("run", plain("undeclared", shape=None), *IDS)
    testing.equal((run.returncode, run.stdout.strip()), (0, greedy(3, 4)), run)
    flat = folder("flat", [helper.make_node("Reshape", ["raw", "all"], ["logits"])], [info("logits", TensorProto.FLOAT, None)],
                  [numpy_helper.from_array(np.array([-1], np.int64), "all")])
    refused(flat, "two or three dimensions", "the graph gives 1")


def test_a_loop_without_end_can_be_interrupted():
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Add", ["v", "one"], ["next"])], "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, [1])],
        [info("again", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, [1])])
    path = folder("endless", [helper.make_node("Loop", ["", "yes", "one"], ["last"], body=body),
                              helper.make_node("Mul", ["raw", "last"], ["logits"])],
                  [info("logits", TensorProto.FLOAT, ["batch", "seq", VOCAB])],
                  [numpy_helper.from_array(np.array(True), "yes"), numpy_helper.from_array(np.ones(1, np.float32), "one")])
    with subprocess.Popen([os.environ.get("TREADLE") or testing.source("build/bin/treadle"), "run", path, *IDS], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(3)
        assert process.poll() is None, "the loop has ended by itself"
        process.send_signal(signal.SIGINT)
        try:
            testing.equal(process.wait(60), 130)
        finally:
            process.kill()


def drive(path, *requests):
    run = testing.treadle("drive", path, "-t", "1", stdin="".join(json.dumps(r) + "\n" for r in requests))
    testing.equal(run.returncode, 0, run)
    return [json.loads(line) for line in run.stdout.splitlines()]


def saved(name, array):
    path = os.path.join(work.name, name + ".npy")
    np.save(path, array)
    return path


def test_a_run_over_no_tokens_is_an_error():
    answers = drive(plain("empty"), {"op": "timeline", "steps": [{"append": [1, 2]}, {"rewind": 0}, {"generate": 1}]},
                    {"op": "timeline", "steps": [{"append": [3]}, {"generate": 4}]})
    assert "expected an append before a run" in answers[0]["error"]["message"], answers
    testing.equal(",".join(map(str, answers[1]["steps"][1]["tokens"])), greedy(3, 4))


def test_image_requests_that_do_not_add_up():
    """Both numbers are named, and the next request finds everything as it was."""
    path = testing.source("examples/pipelines/2-vision-language")
    with open(os.path.join(path, "golden.json"), encoding="utf-8") as f:
        golden = json.load(f)[0]
    arrays = {k: np.array(v["data"], v["dtype"]).reshape(v["shape"]) for k, v in golden["tensors"].items()}
    good = {k: saved(k, v) for k, v in arrays.items()}
    prompt = golden["prompt"]

    def ask(prompts=(prompt,), options=None, grid=None):
        tensors = dict(good, image_grid_thw=saved(f"grid{len(os.listdir(work.name))}", np.array(grid, np.int64))) if grid else good
        return {
        "op" : "generate", "prompts" : list(prompts), "tensors" : tensors, "options" : {
            "max_new_tokens" : 8, **(options or {})
        }
    }

    wrong = [(ask(grid=[[1, 1, 4]]), "1 x 1 x 4", "merge_size"), (ask(grid=[[1, 1 << 62, 4]]), "4611686018427387904"),
             (ask(prompts=[prompt + prompt]), "4 placeholders left over", "1 images"),
             (ask(options={"images_per_row": [2]}), "expected 2 images", "found 1"),
             (ask(options={"images_per_row": [1, 1]}), "for 1 rows, found 2")]
    answers = drive(path, *[r for r, *_ in wrong], ask())
    for answer, (_, *words) in zip(answers, wrong):
        for word in words:
            assert word in answer["error"]["message"], answer
    testing.equal(answers[-1]["tokens"], [golden["tokens"]])


def test_an_image_cannot_be_run_again_without_its_tensors():
    path = testing.source("examples/pipelines/2-vision-language")
    with open(os.path.join(path, "golden.json"), encoding="utf-8") as f:
        golden = json.load(f)[0]
    prompt = golden["prompt"]
    tensors = {k: saved("again_" + k, np.array(v["data"], v["dtype"]).reshape(v["shape"])) for k, v in golden["tensors"].items()}
    last = max(i for i, t in enumerate(prompt) if t == 5)
    first = {"append": prompt, "tensors": tensors}
    answers = drive(path, {"op": "timeline", "steps": [first, {"generate": 2}, {"rewind": last + 1}, {"generate": 2}]},
                    {"op": "timeline", "steps": [first, {"generate": 2}, {"rewind": last + 1}, {"append": prompt[last + 1:]}, {"generate": 8}]})
    assert f"token {last} of row 0 (id 5)" in answers[0]["error"]["message"], answers
    testing.equal(answers[1]["steps"][-1]["tokens"], golden["tokens"])


IMAGE = 7


def vlm(name, image_token):
    """Table rows as embeddings, features in the places of id 7 by ScatterND, logits = embeddings: an image's feature is a one-hot row."""
    path = os.path.join(work.name, name)
    os.makedirs(path)
    node, f, opset = helper.make_node, TensorProto.FLOAT, {"opset_imports": [helper.make_opsetid("", 21)], "ir_version": 10}

    def save(file, nodes, inputs, outputs, weights=()):
        onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, list(weights)), **opset), os.path.join(path, file))

    save("vision.onnx", [node("Identity", ["pixel_values"], ["image_features"])], [info("pixel_values", f, ["n", VOCAB])], [info("image_features", f, ["n", VOCAB])])
    save("embedding.onnx", [node("Gather", ["table", "input_ids"], ["e"]), node("Equal", ["input_ids", "image"], ["is"]), node("NonZero", ["is"], ["at"]),
                            node("Transpose", ["at"], ["places"]), node("ScatterND", ["e", "places", "image_features"], ["inputs_embeds"])],
         [info("input_ids", TensorProto.INT64, ["batch", "seq"]), info("image_features", f, ["n", VOCAB])], [info("inputs_embeds", f, ["batch", "seq", VOCAB])],
         [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(np.array(IMAGE), "image")])
    kv = ["batch", 1, "past", VOCAB]
    save("decoder.onnx", [node("Identity", ["inputs_embeds"], ["logits"]), node("Unsqueeze", ["inputs_embeds", "one"], ["new"]),
                          *(node("Concat", [f"past_key_values.0.{k}", "new"], [f"present.0.{k}"], axis=2) for k in ("key", "value"))],
         [info("inputs_embeds", f, ["batch", "seq", VOCAB]), *(info(f"past_key_values.0.{k}", f, kv) for k in ("key", "value"))],
         [info("logits", f, ["batch", "seq", VOCAB]), *(info(f"present.0.{k}", f, ["batch", 1, "all", VOCAB]) for k in ("key", "value"))],
         [numpy_helper.from_array(np.array([1]), "one")])
    with open(os.path.join(path, "genai_config.json"), "w", encoding="utf-8") as file:
        json.dump({"version": 2, "pipeline": {"sessions": {s: {"file": s + ".onnx"} for s in ("vision", "embedding", "decoder")}},
                   "tokens": {"image_token": image_token}, "generation": {"max_length": 64}}, file)
    return path


def test_placeholders_without_features_are_named():
    """Those that the model makes, and those that the config does not name. The next request runs as if nothing had been."""
    pixels = saved("placeholders", np.eye(VOCAB, dtype=np.float32)[[IMAGE]])
    good = {"op": "generate", "prompts": [[1, IMAGE]], "tensors": {"pixel_values": pixels}, "options": {"max_new_tokens": 1}}
    twice = {**good, "options": {"max_new_tokens": 3}}  # the feature makes the model say 7
    bare = {"op": "generate", "prompts": [[1, 2, IMAGE]], "options": {"max_new_tokens": 1}}
    batch = {"op": "generate", "prompts": [[IMAGE, 1], [1, IMAGE]], "tensors": {"pixel_values": saved("two", np.eye(VOCAB, dtype=np.float32)[[IMAGE] * 2])},
             "options": {"max_new_tokens": 3, "images_per_row": [1, 1]}}
    for token, made, missing, row in ((IMAGE, ("token 2 of row 0 (id 7) is the image placeholder", 'session "embedding" expected a row of "image_features"', "ScatterND"),
                                       ("1 image placeholders (token 7), but no image",), "token 2 of row 1 (id 7)"),
                                      (None, ("Token 2 of row 0 (id 7) may be the image placeholder", '"image_features" had 0 rows', "tokens.image_token"),
                                       ("Tokens 0 to 2 of row 0", "tokens.image_token"), "A token of one of the 2 rows may be the image placeholder")):
        answers = drive(vlm(f"vlm-{token}", token), twice, good, bare, good, batch, good)
        for answer, words in ((answers[0], made), (answers[2], missing), (answers[4], (row,))):
            for word in words:
                assert word in answer["error"]["message"], (word, answer)
        for answer in answers[1::2]:
            testing.equal(answer["tokens"], [[IMAGE]])


def test_a_sound_file_that_cannot_be_read_is_no_fault_of_the_model():
    path = testing.source("examples/pipelines/3-encoder-decoder")
    text = os.path.join(work.name, "text.wav")
    with open(text, "w", encoding="utf-8") as f:
        f.write("not a sound\n" * 50)
    for file, words in (("/no/such.wav", "/no/such.wav"), (text, "cannot be decoded")):
        for arguments in (("features", file), ("transcribe", path, file)):
            run = testing.treadle(*arguments)
            testing.equal(run.returncode, 1, run)
            assert words in run.stderr, run


testing.main()
