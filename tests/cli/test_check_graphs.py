"""What a run would refuse of a graph, `treadle check` says before, with the same exit code: structure, ops, attributes, types, the shapes of
logits and of state, declared or inferred. Nothing is said of a graph that runs."""
import os

import numpy as np
import onnx
import testing
from onnx import TensorProto as T
from onnx import helper, numpy_helper

work = testing.temp_dir()
VOCAB = 8
info, node = helper.make_tensor_value_info, helper.make_node
CACHE = ["batch", 2, "past", 4]


def const(name, value, dtype=np.int64):
    return numpy_helper.from_array(np.array(value, dtype), name)


def grown():
    """Caches that grow by a column a token."""
    return [node("Shape", ["input_ids"], ["ids.shape"]), node("Gather", ["ids.shape", "zero"], ["rows"]), node("Gather", ["ids.shape", "one"], ["seq"]),
            node("Concat", ["rows", "two", "seq", "four"], ["new.shape"], axis=0), node("ConstantOfShape", ["new.shape"], ["new"]),
            *(node("Concat", [f"past_key_values.0.{k}", "new"], [f"present.0.{k}"], axis=2) for k in ("key", "value"))]


def decoder(name, nodes=None, logits=("batch", "seq", VOCAB), logits_type=T.FLOAT, caches=None, present=("batch", 2, "all", 4), past=CACHE,
            present_type=T.FLOAT, files=None):
    """nodes: from "raw" to "logits"; caches: from past_key_values.0.* to present.0.*."""
    path = os.path.join(work.name, name)
    os.makedirs(path)
    inputs, outputs = [info("input_ids", T.INT64, ["batch", "seq"])], [info("logits", logits_type, logits)]
    if caches:
        inputs += [info(f"past_key_values.0.{k}", T.FLOAT, past) for k in ("key", "value")]
        outputs += [info(f"present.0.{k}", present_type, present) for k in ("key", "value")]
    weights = [numpy_helper.from_array(np.random.default_rng(3).standard_normal((VOCAB, VOCAB)).astype(np.float32), "table"),
               const("zero", [0]), const("one", [1]), const("two", [2]), const("four", [4]), const("all", [-1]), const("seven", [1] * 7, np.float32),
               const("head", np.zeros((1, 1, 1, 4)), np.float32), const("pads", [0] * 7 + [1]), const("flat", [1, 8, -1])]
    graph = helper.make_graph([node("Gather", ["table", "input_ids"], ["raw"]), *(nodes or [node("Identity", ["raw"], ["logits"])]), *(caches or [])], "g",
                              inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), os.path.join(path, "model.onnx"))
    return path


def each(*arguments, **attributes):
    return [node(arguments[0], [f"past_key_values.0.{k}", *arguments[1:]], [f"present.0.{k}"], **attributes) for k in ("key", "value")]


def changed(name, change, **more):
    path = decoder(name, **more)
    model = onnx.load(os.path.join(path, "model.onnx"))
    change(model)
    onnx.save(model, os.path.join(path, "model.onnx"))
    return path


def refused(path, *words):
    for arguments in (("check", path), ("run", path, "--ids", "1,2,3", "-n", "3")):
        run = testing.treadle(*arguments)
        testing.equal(run.returncode, 3, str(run))
        for word in words:
            assert word in run.stdout + run.stderr, (word, run)


def test_what_runs_is_not_objected_to():
    for path in (decoder("good"), decoder("good-caches", caches=grown()), decoder("good-undeclared", logits=None)):
        run = testing.treadle("check", path)
        testing.equal((run.returncode, "no problems found" in run.stdout), (0, True), str(run))
        testing.equal(testing.treadle("run", path, "--ids", "1,2,3", "-n", "3").returncode, 0)


def test_structure():
    refused(decoder("cycle", [node("Add", ["raw", "y"], ["x"]), node("Identity", ["x"], ["y"]), node("Identity", ["x"], ["logits"])]), "cycle")
    refused(decoder("self", [node("Add", ["raw", "x"], ["x"]), node("Identity", ["x"], ["logits"])]), "cycle")
    refused(decoder("dangling", [node("Add", ["raw", "nowhere"], ["logits"])]), "nowhere")
    refused(decoder("unmade", [node("Identity", ["raw"], ["other"])]), 'nothing makes the graph output "logits"')
    refused(decoder("twice", [node("Neg", ["raw"], ["logits"]), node("Abs", ["raw"], ["logits"])]), "made twice")


def test_nodes():
    refused(decoder("axis", [node("Softmax", ["raw"], ["logits"], axis=9)]), "axis 9 is out of range")
    refused(decoder("attribute-type", [node("Softmax", ["raw"], ["logits"], axis="x")]), "expected int")
    refused(decoder("attribute-unknown", [node("Softmax", ["raw"], ["logits"], foo=1)]), 'attribute "foo"')
    refused(decoder("attribute-missing", [node("Cast", ["raw"], ["logits"])]), 'attribute "to" is missing')
    refused(decoder("few", [node("Add", ["raw"], ["logits"])]), "expected 2 to 2")
    refused(decoder("many", [node("Neg", ["raw", "raw"], ["logits"])]), "expected 1 to 1")
    refused(decoder("types", [node("Add", ["raw", "input_ids"], ["logits"])]), "int64", "float32")
    refused(decoder("type", [node("And", ["raw", "raw"], ["logits"])]), "does not take")
    refused(decoder("op", [node("Foo", ["raw"], ["logits"])]), "Foo")
    refused(decoder("broadcast", [node("Add", ["raw", "seven"], ["logits"])]), "do not broadcast")
    refused(decoder("declared", logits_type=T.FLOAT16), "declared float16")


def test_a_body_of_a_loop_and_a_function():
    body = helper.make_graph([node("Identity", ["go"], ["again"]), node("Softmax", ["v"], ["next"], foo=1)], "body",
                             [info("i", T.INT64, []), info("go", T.BOOL, []), info("v", T.FLOAT, ["a", "b", "c"])], [info("again", T.BOOL, []), info("next", T.FLOAT, None)])
    refused(decoder("body", [node("Loop", ["all", "", "raw"], ["logits"], body=body)]), 'attribute "foo"')

    def call(model):
        model.opset_import.append(helper.make_opsetid("mine", 1))
        model.functions.append(helper.make_function("mine", "F", ["x"], ["y"], [node("Softmax", ["x"], ["y"], axis=9)], [helper.make_opsetid("", 21)]))
    refused(changed("function", call, nodes=[node("F", ["raw"], ["logits"], domain="mine")]), "axis 9")


def test_logits():
    two_or_three = "two or three dimensions"
    refused(decoder("rank-4", [node("Unsqueeze", ["raw", "zero"], ["logits"])], ["a", "b", "s", VOCAB], caches=grown()), two_or_three)
    refused(decoder("rank-1", [node("Reshape", ["raw", "all"], ["logits"])], ["n"], caches=grown()), two_or_three)
    refused(decoder("rank-1-undeclared", [node("Reshape", ["raw", "all"], ["logits"])], None), two_or_three)
    for name, nodes, shape, dtype in (("class-rank-4", [node("Unsqueeze", ["raw", "zero"], ["logits"])], ["a", "b", "s", VOCAB], T.FLOAT),
                                      ("integers", [node("Cast", ["raw"], ["logits"], to=T.INT64)], ["b", "s", VOCAB], T.INT64)):
        path = decoder(name, nodes, shape, dtype)  # may be meant as tensors in and out: said, not refused
        run = testing.treadle("check", path)
        testing.equal((run.returncode, "cannot generate" in run.stdout), (0, True), str(run))
        testing.equal(testing.treadle("run", path, "--ids", "1,2").returncode, 3)


def test_state_comes_back_as_it_went_in():
    back = "to come back as"
    refused(decoder("heads", caches=each("Concat", "head", axis=1), present=("batch", "heads", "all", 4)), back, "[")
    refused(decoder("heads-declared", caches=each("Concat", "head", axis=1), present=("batch", 3, "all", 4)))
    refused(decoder("width", caches=each("Pad", "pads"), present=("batch", 2, "all", 5)))
    refused(decoder("rank", caches=each("Reshape", "flat"), present=("batch", 8, "all")))
    refused(decoder("dtype", caches=each("Cast", to=T.FLOAT16), present_type=T.FLOAT16))
    refused(decoder("open", caches=each("Identity"), past=["batch", "heads", "past", "dim"], present=["batch", "heads", "all", "dim"]), "nothing says how long")


def test_state_that_a_run_alone_shows_not_to_fit():
    """A fixed cache that the graph makes longer: no number of the graph says so. It is a failed run, no wrong command line."""
    path = decoder("longer", caches=grown(), past=["batch", 2, 7, 4], present=("batch", 2, "all", 4))
    run = testing.treadle("run", path, "--ids", "1,2,3", "-n", "3")
    testing.equal((run.returncode, "to fit into" in run.stderr), (1, True), str(run))


testing.main()
