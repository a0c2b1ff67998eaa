"""Writes tests/light/data: small models, inputs, and what ONNX Runtime makes of them.

Run from anywhere with a Python that has onnx, onnxruntime and numpy:  python tests/light/make_data.py
Layout: data/CASE/model.onnx, data/CASE/in_SET_I.npy and out_SET_O.npy; the sets of a case differ in their sizes.
"""
import os
import shutil

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
rng = np.random.default_rng(5)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def info(name, dtype, shape):
    return h.make_tensor_value_info(name, dtype, shape)


def init(name, array):
    return nh.from_array(np.asarray(array), name)


def reference(name, to):
    return onnx.AttributeProto(name=name, ref_attr_name=to, type=onnx.AttributeProto.FLOAT)


def save(case, nodes, inputs, outputs, inits, sets, functions=(), opset=17, ir=8, more_opsets=(), value_info=(), oracle_functions=None,
         oracle_nodes=None):
    graph = h.make_graph(nodes, case, inputs, outputs, inits, value_info=list(value_info))
    opsets = [h.make_opsetid("", opset)] + [h.make_opsetid(d, v) for d, v in more_opsets]
    model = h.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=ir)
    folder = os.path.join(HERE, case)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(model.SerializeToString())
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if oracle_functions:  # the same, said in a way that ONNX Runtime takes
        graph = h.make_graph(oracle_nodes or nodes, case, inputs, outputs, inits)
        model = h.make_model(graph, opset_imports=opsets, functions=oracle_functions, ir_version=ir)
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in inputs]
    for s, arrays in enumerate(sets):
        feed = {n: a for n, a in zip(names, arrays) if a is not None}
        for i, a in enumerate(arrays):
            if a is not None:
                np.save(os.path.join(folder, f"in_{s}_{i}.npy"), a)
        for o, a in enumerate(session.run(None, feed)):
            np.save(os.path.join(folder, f"out_{s}_{o}.npy"), a)


def elementwise():
    n = h.make_node
    save("elementwise",
         [n("Add", ["x", "b"], ["t0"]), n("Mul", ["t0", "t0"], ["t1"]), n("Sigmoid", ["t1"], ["t2"]),
          n("Sub", ["t1", "t2"], ["t3"]), n("Mul", ["t3", "x"], ["t4"]), n("Neg", ["t4"], ["t5"]),
          n("Add", ["t5", "t0"], ["y"]), n("Div", ["t3", "b"], ["z"])],
         [info("x", T.FLOAT, ["batch", "seq", 7])], [info("y", T.FLOAT, None), info("z", T.FLOAT, None)],
         [init("b", f32(7))],
         [[f32(1, 3, 7)], [f32(2, 40, 7)], [f32(1, 1, 7)], [f32(0, 3, 7)], [f32(3, 200, 7)]])


def broadcast_in_place():
    """Operands that die and are smaller than, or views of, the result."""
    n = h.make_node
    save("broadcast_in_place",
         [n("Neg", ["x"], ["a"]), n("Neg", ["r"], ["row"]), n("Add", ["row", "a"], ["b"]), n("Abs", ["b"], ["c"]),
          n("Reshape", ["c", "flat"], ["d"]), n("Neg", ["d"], ["e"]), n("Add", ["d", "e"], ["zero"]),
          n("Mul", ["d", "d"], ["sq"]), n("Greater", ["d", "e"], ["gt"]), n("Cast", ["gt"], ["gi"], to=T.INT32),
          n("Cast", ["gi"], ["gf"], to=T.FLOAT), n("Add", ["gf", "sq"], ["y"])],
         [info("x", T.FLOAT, ["n", 4]), info("r", T.FLOAT, [1, 4])],
         [info("y", T.FLOAT, None), info("zero", T.FLOAT, None)], [init("flat", np.array([-1], np.int64))],
         [[f32(3, 4), f32(1, 4)], [f32(1, 4), f32(1, 4)], [f32(64, 4), f32(1, 4)]])


def shape_chain():
    n = h.make_node
    save("shape_chain",
         [n("Shape", ["x"], ["s"]), n("Gather", ["s", "i0"], ["s0"]), n("Gather", ["s", "i1"], ["s1"]),
          n("Unsqueeze", ["s0", "ax"], ["u0"]), n("Unsqueeze", ["s1", "ax2"], ["u1"]), n("Shape", ["x"], ["s_again"]),
          n("Gather", ["s_again", "i2"], ["s2"]), n("Mul", ["s2", "two"], ["twice"]), n("Div", ["twice", "four"], ["half"]),
          n("Unsqueeze", ["half", "ax"], ["u2"]), n("Concat", ["u0", "u1", "two_v", "u2"], ["target"], axis=0),
          n("Reshape", ["x", "target"], ["y"]), n("Constant", [], ["c"], value=nh.from_array(np.float32([2, 3]))),
          n("Mul", ["c", "c"], ["cc"]), n("Concat", ["cc", "c"], ["z"], axis=0)],
         [info("x", T.FLOAT, ["batch", "seq", 8])], [info("y", T.FLOAT, None), info("z", T.FLOAT, None)],
         [init("i0", np.int64(0)), init("i1", np.int64(1)), init("i2", np.int64(2)), init("ax", np.int64([0])),
          init("ax2", np.int64([0])), init("two", np.int64(2)), init("four", np.int64(4)), init("two_v", np.int64([2]))],
         [[f32(2, 3, 8)], [f32(1, 5, 8)]])


def concat_cache():
    n = h.make_node
    nodes, ins, outs, sets = [], [info("x", T.FLOAT, ["batch", "heads", "new", 4])], [info("y", T.FLOAT, None)], []
    last = "x"
    for layer in range(2):
        ins.append(info(f"past.{layer}", T.FLOAT, ["batch", "heads", "past", 4]))
        outs.append(info(f"present.{layer}", T.FLOAT, None))
        nodes += [n("Concat", [f"past.{layer}", last], [f"present.{layer}"], axis=2),
                  n("Slice", [f"present.{layer}", "start", "end", "axis"], [f"tail.{layer}"]),
                  n("Mul", [f"tail.{layer}", "half"], [f"h.{layer}"])]
        last = f"h.{layer}"
    nodes.append(n("Neg", [last], ["y"]))
    for batch, heads, past, new in [(1, 2, 0, 3), (1, 2, 3, 1), (1, 2, 4, 1), (2, 3, 10, 2)]:
        sets.append([f32(batch, heads, new, 4), f32(batch, heads, past, 4), f32(batch, heads, past, 4)])
    save("concat_cache", nodes, ins, outs,
         [init("start", np.int64([-1])), init("end", np.int64([2 ** 31])), init("axis", np.int64([2])),
          init("half", np.float32(0.5))], sets)


def scatter_cache():
    """Caches of fixed size written by each scatter; `late` reads one of them after it has been written to elsewhere."""
    n = h.make_node
    shape = ["batch", 2, 6, 4]
    names = ["nd", "elements", "rows", "read", "self"]
    nodes = [n("ScatterND", ["past.nd", "at_nd", "x_nd"], ["present.nd"]),
             n("ScatterElements", ["past.elements", "at_elements", "x"], ["present.elements"], axis=2),
             n("TensorScatter", ["past.rows", "x", "at_rows"], ["present.rows"]),
             n("TensorScatter", ["past.read", "x", "at_rows"], ["present.read"]), n("Neg", ["past.read"], ["late"]),
             n("Slice", ["past.self", "start", "end", "axis"], ["tail"]), n("TensorScatter", ["past.self", "tail"], ["present.self"])]
    more = [info("x", T.FLOAT, ["batch", 2, "new", 4]), info("at_nd", T.INT64, ["n", 2]), info("x_nd", T.FLOAT, ["n", 6, 4]),
            info("at_elements", T.INT64, ["batch", 2, "new", 4]), info("at_rows", T.INT64, ["batch"])]
    ins = [info(f"past.{c}", T.FLOAT, shape) for c in names] + more
    outs = [info(f"present.{c}", T.FLOAT, None) for c in names] + [info("late", T.FLOAT, None)]
    sets = []
    for batch, new in ((1, 2), (2, 3), (1, 1)):
        at = np.tile(rng.permutation(6)[:new][None, None, :, None], (batch, 2, 1, 4))
        sets.append([f32(batch, 2, 6, 4) for _ in names] + [f32(batch, 2, new, 4), np.int64([[batch - 1, 1], [0, -2]]), f32(2, 6, 4),
                    at.astype(np.int64), rng.integers(0, 6 - new + 1, batch).astype(np.int64)])
    save("scatter_cache", nodes, ins, outs, [init("start", np.int64([-3])), init("end", np.int64([6])), init("axis", np.int64([2]))], sets,
         opset=24, ir=11)


def outputs():
    """Outputs that are inputs, constants, views, or the same value twice."""
    n = h.make_node
    save("outputs",
         [n("Identity", ["x"], ["same"]), n("Neg", ["x"], ["neg"]), n("Identity", ["neg"], ["neg2"]),
          n("Neg", ["x"], ["neg3"]), n("Reshape", ["neg", "flat"], ["view"]), n("Identity", ["k"], ["konst"]),
          n("Identity", ["neg"], ["drop"]), n("Cast", ["drop"], ["cast"], to=T.FLOAT), n("Add", ["cast", "k"], ["sum"]),
          n("Transpose", ["sum"], ["tr"], perm=[0, 1]), n("Neg", ["unused"], ["nobody"])],
         [info("x", T.FLOAT, ["n", 2]), info("unused", T.FLOAT, [1])],
         [info(o, T.FLOAT, None) for o in ["same", "neg", "neg2", "neg3", "view", "konst", "tr"]],
         [init("flat", np.int64([-1])), init("k", np.float32([1, 2]))],
         [[f32(3, 2), f32(1)], [f32(1, 2), f32(1)]])


def defaults():
    n = h.make_node
    save("defaults", [n("Add", ["x", "w"], ["t"]), n("Mul", ["t", "k"], ["y"])],
         [info("x", T.FLOAT, ["n"]), info("w", T.FLOAT, [1])], [info("y", T.FLOAT, None)],
         [init("w", np.float32([10])), init("k", np.float32([2]))],
         [[f32(3), None], [f32(3), np.float32([1])], [f32(5), None]])


def old_initializers():
    """Before IR 4 all initializers are listed as inputs; nobody feeds them."""
    n = h.make_node
    save("old_initializers", [n("Add", ["x", "w"], ["t"]), n("Mul", ["t", "x"], ["y"])],
         [info("x", T.FLOAT, [3]), info("w", T.FLOAT, [3])], [info("y", T.FLOAT, [3])],
         [init("w", np.float32([1, 2, 3]))], [[f32(3), None]], opset=7, ir=3)


def functions():
    n = h.make_node
    opset = [h.make_opsetid("", 17), h.make_opsetid("local", 1)]
    ref = n("LeakyRelu", ["x"], ["y"])
    ref.attribute.append(reference("alpha", "slope"))
    leaky = h.make_function("local", "Leaky", ["x"], ["y"], [ref], opset, ["slope"])
    with_default = n("Leaky", ["x"], ["t"], domain="local")
    with_default.attribute.append(reference("slope", "s"))
    twice = h.make_function("local", "Twice", ["x", "lo", "hi"], ["y", "aux"],
                            [with_default, n("Clip", ["t", "lo", "hi"], ["u"]), n("Add", ["u", "t"], ["y"]),
                             n("Neg", ["y"], ["aux"])], opset, [], [h.make_attribute("s", 0.25)])
    const = n("Constant", [], ["c"])
    const.attribute.append(reference("value_float", "by"))
    scaled = h.make_function("local", "Scaled", ["x"], ["y", "x"], [const, n("Mul", ["x", "c"], ["y"])], opset, ["by"])
    same = n("Identity", ["x"], ["p"])
    scaled_copy = h.make_function("local", "Scaled", ["x"], ["y", "p"], [const, n("Mul", ["x", "c"], ["y"]), same], opset,
                                  ["by"])
    old = h.make_function("local", "OldSqueeze", ["x"], ["y"], [n("Squeeze", ["x"], ["y"], axes=[0])],
                          [h.make_opsetid("", 11)])
    now = h.make_function("local", "OldSqueeze", ["x"], ["y"], [n("Squeeze", ["x"], ["y"])], opset)

    def nodes(second_call):
        return [
          n("Twice", ["a", "", "hi"], ["t", "aux"], domain="local", name="first"),
          n("Twice", second_call[0], second_call[1], domain="local", s=0.5), n("Scaled", ["u"], ["v", "passed"], domain="local", by=3.0),
          n("Unsqueeze", ["v", "zero"], ["w"]), n("OldSqueeze", ["w"], ["y"], domain="local"), n("Add", ["passed", "aux"], ["z"])]

    save("functions", nodes((["t", "lo"], ["u"])),
         [info("a", T.FLOAT, ["n"])], [info("y", T.FLOAT, None), info("z", T.FLOAT, None)],
         [init("lo", np.float32(-0.1)), init("hi", np.float32(0.7)), init("zero", np.int64([0]))],
         [[f32(5)], [f32(9)]], functions=[leaky, twice, scaled, old], more_opsets=[("local", 1)],
         oracle_functions=[leaky, twice, scaled_copy, now],
         oracle_nodes=nodes((["t", "lo", ""], ["u", "aux2"])))


def row_wise():
    """A tail whose rows can be picked, after a residual stream that is read twice."""
    n = h.make_node
    save("row_wise",
         [n("Mul", ["x", "x"], ["h"]), n("Transpose", ["h"], ["other"], perm=[1, 0, 2]),
          n("Add", ["h", "x"], ["r"]), n("Mul", ["r", "gain"], ["t"]),
          n("Sigmoid", ["t"], ["s"]), n("Mul", ["t", "s"], ["u"]), n("Add", ["u", "r"], ["v"]),
          n("MatMul", ["v", "w"], ["m"]), n("Add", ["m", "bias"], ["logits"])],
         [info("x", T.FLOAT, ["batch", "seq", 6])], [info("logits", T.FLOAT, ["batch", "seq", 11]), info("other", T.FLOAT, None)],
         [init("gain", f32(6)), init("w", f32(6, 11)), init("bias", f32(11))],
         [[f32(1, 5, 6)], [f32(2, 7, 6)], [f32(1, 1, 6)]])


def skips():
    """Branches that serve one output each."""
    n = h.make_node
    save("skips", [n("Neg", ["x"], ["a"]), n("Abs", ["a"], ["b"]), n("Mul", ["a", "b"], ["y"]), n("Exp", ["b"], ["c"]),
                   n("Add", ["c", "x"], ["z"]), n("Sqrt", ["b"], ["w"])],
         [info("x", T.FLOAT, ["n", 3])], [info(o, T.FLOAT, None) for o in ["y", "z", "w"]], [], [[f32(4, 3)], [f32(2, 3)]])


def data_dependent():
    """Sizes that only the run knows."""
    n = h.make_node
    save("data_dependent",
         [n("Expand", ["two", "dims"], ["e"]), n("Neg", ["e"], ["z"]), n("Slice", ["x", "dims", "far"], ["f"]),
          n("Mul", ["f", "two"], ["y"])],
         [info("x", T.FLOAT, ["a", "b"]), info("dims", T.INT64, [2])], [info("y", T.FLOAT, None), info("z", T.FLOAT, None)],
         [init("two", np.float32([2])), init("far", np.int64([99, 99]))],
         [[f32(4, 4), np.int64([2, 3])], [f32(2, 2), np.int64([1, 2])], [f32(90, 90), np.int64([20, 60])]])


def linear():
    """Products by constant weights in every form that exporters write: transposed, cast, with a bias that is one or only looks
    like one, a result or a weight that others read too."""
    n, k = h.make_node, 24
    half = lambda *shape: f32(*shape).astype(np.float16)
    nodes = [
        n("Cast", ["w16"], ["w16.f"], to=T.FLOAT), n("Transpose", ["w16.f"], ["w16.t"], perm=[1, 0]),
        n("MatMul", ["x", "w16.t"], ["y0"]), n("Add", ["y0", "b33"], ["half_bias"]),
        n("Transpose", ["w16"], ["v16.t"]), n("Cast", ["v16.t"], ["v16.f"], to=T.FLOAT),
        n("MatMul", ["x", "v16.f"], ["y1"]), n("Add", ["row33", "y1"], ["half_turned_first"]),
        n("Transpose", ["w32"], ["w32.t"], perm=[1, 0]), n("MatMul", ["x", "w32.t"], ["turned"]),
        n("Transpose", ["w32.t"], ["w32.tt"], perm=[1, 0]), n("MatMul", ["z", "w32.tt"], ["turned_twice"]),
        n("MatMul", ["x", "u32"], ["y2"]), n("Add", ["y2", "b5"], ["plain_bias"]),
        n("MatMul", ["x", "u32"], ["y3"]), n("Add", ["y3", "b5"], ["y4"]), n("Mul", ["y3", "y4"], ["read_twice"]),
        n("MatMul", ["x", "u32"], ["y5"]), n("Add", ["y5", "deep"], ["adds_dimensions"]),
        n("MatMul", ["x", "u32"], ["y6"]), n("Add", ["y6", "one"], ["scalar"]),
        n("MatMul", ["x", "u32"], ["is_output"]), n("Add", ["is_output", "b5"], ["after_output"]),
        n("MatMul", ["v", "w16.t"], ["y7"]), n("Add", ["y7", "b33"], ["vector"]),
        n("Cast", ["u32"], ["u64"], to=T.DOUBLE), n("Cast", ["u64"], ["u64.f"], to=T.FLOAT), n("MatMul", ["x", "u64.f"], ["through_double"]),
        n("Cast", ["u32"], ["u8"], to=T.INT8), n("Cast", ["u8"], ["u8.f"], to=T.FLOAT), n("MatMul", ["x", "u8.f"], ["through_int"]),
        n("Reshape", ["x", "rows"], ["x2"]), n("Gemm", ["x2", "w16.f", "b33"], ["gemm_half"], transB=1),
        n("Gemm", ["x2", "w16.f", "b33"], ["gemm_scaled"], transB=1, alpha=0.5), n("Gemm", ["x2", "w16.t"], ["gemm_no_c"]),
        n("Gemm", ["x2", "u32"], ["y8"]), n("Add", ["y8", "b5"], ["gemm_add"]),
        n("Transpose", ["x"], ["xt"], perm=[0, 2, 1]), n("Transpose", ["xt"], ["xtt"], perm=[0, 2, 1]),
        n("MatMul", ["xtt", "w16.t"], ["strided"]),
    ]
    outs = ["half_bias", "half_turned_first", "turned", "turned_twice", "plain_bias", "read_twice", "adds_dimensions", "scalar", "is_output",
            "after_output", "vector", "through_double", "through_int", "gemm_half", "gemm_scaled", "gemm_no_c", "gemm_add", "strided"]
    sets = [[f32(*lead, k), f32(3, 7), f32(k)] for lead in ((1, 1), (2, 3), (1, 40), (0, 2), (3, 17))]
    save("linear", nodes, [info("x", T.FLOAT, ["batch", "seq", k]), info("z", T.FLOAT, ["n", 7]), info("v", T.FLOAT, [k])],
         [info(o, T.FLOAT, None) for o in outs],
         [init("w16", half(33, k)), init("w32", f32(7, k)), init("u32", f32(k, 5)), init("b33", f32(33)), init("row33", f32(1, 1, 33)),
          init("b5", f32(5)), init("deep", f32(1, 1, 1, 5)), init("one", f32(1)), init("rows", np.int64([-1, k]))], sets, opset=17)


def quant_block():
    """Products of quantised weights that share their input: q, k, v and one of other block size; a SwiGLU and what only looks like one."""
    n, k = h.make_node, 64
    inits, nodes = [], []

    def product(name, x, y, size, block=32, bits=4, bias=False):
        codes = rng.integers(0, 256, (size, k // block, block * bits // 8)).astype(np.uint8)
        inits.extend([init(f"{name}.w", codes), init(f"{name}.s", (rng.random((size, k // block)) * 0.1).astype(np.float32))])
        inputs = [x, f"{name}.w", f"{name}.s"]
        if bias:
            inits.append(init(f"{name}.b", f32(size)))
            inputs += ["", "", f"{name}.b"]
        nodes.append(n("MatMulNBits", inputs, [y], domain="com.microsoft", K=k, N=size, bits=bits, block_size=block))

    product("q", "x", "q", 48)
    product("k", "x", "k", 16, bits=8)
    product("v", "x", "v", 16, bias=True)
    product("other", "x", "other", 16, block=16)
    product("gate", "x", "gate", 64)
    product("up", "x", "up", 64, bias=True)
    nodes += [n("Sigmoid", ["gate"], ["sig"]), n("Mul", ["sig", "gate"], ["act"]), n("Mul", ["up", "act"], ["mlp"])]
    product("down", "mlp", "d", 64)
    nodes.append(n("Add", ["d", "x"], ["r"]))
    product("gate2", "r", "g2", 64)
    product("up2", "r", "u2", 64)
    nodes += [n("Sigmoid", ["g2"], ["s2"]), n("Mul", ["g2", "s2"], ["a2"]), n("Mul", ["a2", "u2"], ["m2"]),
              n("Add", ["m2", "s2"], ["y"])]  # the sigmoid is read twice: no SwiGLU
    outs = ["y", "q", "k", "v", "other"]  # transposed: rows of them cannot be picked, which would part their inputs
    nodes += [n("Transpose", [o], [f"{o}.t"], perm=[1, 0, 2]) for o in outs]
    save("quant_block", nodes, [info("x", T.FLOAT, ["batch", "seq", k])], [info(f"{o}.t", T.FLOAT, None) for o in outs],
         inits, [[f32(1, 3, k)], [f32(2, 20, k)], [f32(1, 1, k)]], more_opsets=[("com.microsoft", 1)])


def int8_linear():
    """Dynamically quantised layers: scales in either order, for all columns or each; a bias on either side, or one that is none."""
    n = h.make_node
    nodes, inits = [n("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])], []
    for i, (scale, bias) in enumerate((((), (5,)), ((5,), None), ((5,), (5,)), ((1,), (2, 5)))):
        w = rng.integers(-128, 128, (7, 5)).astype(np.int8)
        inits += [init(f"w{i}", w), init(f"wz{i}", np.int8(3) if scale != (5,) else rng.integers(-9, 9, 5).astype(np.int8)),
                  init(f"ws{i}", np.abs(f32(*scale)) * np.float32(0.02) + np.float32(0.001))]
        nodes += [n("MatMulInteger", ["q", f"w{i}", "z", f"wz{i}"], [f"c{i}"]), n("Cast", [f"c{i}"], [f"f{i}"], to=T.FLOAT),
                  n("Mul", ["s", f"ws{i}"] if i % 2 else [f"ws{i}", "s"], [f"t{i}"]), n("Mul", [f"f{i}", f"t{i}"] if i % 2 else [f"t{i}", f"f{i}"], [f"m{i}"])]
        if bias:
            inits.append(init(f"b{i}", f32(*bias)))
            nodes.append(n("Add", [f"m{i}", f"b{i}"] if i % 2 else [f"b{i}", f"m{i}"], [f"y{i}"]))
        else:
            nodes.append(n("Identity", [f"m{i}"], [f"y{i}"]))
    save("int8_linear", nodes, [info("x", T.FLOAT, ["batch", "rows", 7])], [info(f"y{i}", T.FLOAT, None) for i in range(4)], inits,
         [[f32(2, 2, 7)], [f32(1, 2, 7)], [f32(3, 2, 7)]])


def static_linear():
    """Statically quantised layers: scales of the weights for all columns or each, signs of both kinds, a bias or none."""
    n = h.make_node
    nodes = [n("QuantizeLinear", ["x", "xs", "xz"], ["q"]), n("DequantizeLinear", ["q", "xs", "xz"], ["d"])]
    inits = [init("xs", np.float32(0.02)), init("xz", np.uint8(128))]
    for i, (dtype, each, axis, bias) in enumerate(((np.int8, True, 1, True), (np.int8, True, -1, False), (np.uint8, False, 1, True), (np.int8, True, 0, True))):
        shape = (5,) if each else ()
        w = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (5, 5) if axis == 0 else (7, 5)).astype(dtype)
        inits += [init(f"w{i}", w), init(f"wz{i}", rng.integers(0, 5, shape).astype(dtype)), init(f"ws{i}", np.abs(f32(*shape)) * np.float32(0.02) + np.float32(0.001))]
        nodes.append(n("DequantizeLinear", [f"w{i}", f"ws{i}", f"wz{i}"], [f"f{i}"], axis=axis))
        nodes.append(n("MatMul", ["y1" if axis == 0 else "d", f"f{i}"], [f"m{i}"]))
        inits.append(init(f"b{i}", f32(5)))
        nodes.append(n("Add", [f"b{i}", f"m{i}"], [f"y{i}"]) if bias else n("Relu", [f"m{i}"], [f"y{i}"]))
    save("static_linear", nodes, [info("x", T.FLOAT, ["batch", "rows", 7])], [info(f"y{i}", T.FLOAT, None) for i in range(4)], inits,
         [[f32(2, 2, 7)], [f32(1, 3, 7)], [f32(3, 2, 7)]])


def row_wise_if():
    """The tail in the branches of an If, one of them in an If of its own, as decoders with and without a past in one graph have it."""
    n = h.make_node
    out = lambda name: info(name, T.FLOAT, ["batch", "seq", 11])
    deep = [h.make_graph([n("MatMul", ["h", f"w{k}"], [f"m{k}"]), n("Add", [f"m{k}", "bias"], [f"d{k}"])], f"deep{k}", [], [out(f"d{k}")])
            for k in (0, 1)]
    then = h.make_graph([n("Sigmoid", ["h"], ["s"]), n("Mul", ["h", "s"], ["u"]), n("MatMul", ["u", "w0"], ["m"]),
                         n("Transpose", ["u"], ["turned"], perm=[1, 0, 2])], "then", [], [out("m"), info("turned", T.FLOAT, None)])
    other = h.make_graph([n("If", ["deeper"], ["e"], then_branch=deep[0], else_branch=deep[1]),
                          n("Transpose", ["h"], ["back"], perm=[1, 0, 2])], "other", [], [out("e"), info("back", T.FLOAT, None)])
    save("row_wise_if",
         [n("Mul", ["x", "gain"], ["h"]), n("If", ["first"], ["logits", "other"], then_branch=then, else_branch=other)],
         [info("x", T.FLOAT, ["batch", "seq", 6]), info("first", T.BOOL, []), info("deeper", T.BOOL, [])],
         [info("logits", T.FLOAT, ["batch", "seq", 11]), info("other", T.FLOAT, None)],
         [init("gain", f32(6)), init("w0", f32(6, 11)), init("w1", f32(6, 11)), init("bias", f32(11))],
         [[f32(1, 5, 6), np.array(True), np.array(True)]] + [[f32(2, 7, 6), np.array(a == 1), np.array(b == 1)] for a, b in ((1, 0), (0, 1), (0, 0))])


def row_wise_shapes():
    """Rows that leave their shape and come back by lists made of Shape, as exporters write views; a tail after the last row alone."""
    n = h.make_node
    save("row_wise_shapes",
         [n("Shape", ["x"], ["xs"]), n("Gather", ["xs", "zero"], ["b"]), n("Gather", ["xs", "one"], ["s"]),
          n("Unsqueeze", ["b", "zeros"], ["b1"]), n("Unsqueeze", ["s", "zeros"], ["s1"]), n("Mul", ["s1", "ones"], ["s2"]),
          n("Concat", ["b1", "s2", "heads"], ["split"], axis=0), n("Reshape", ["x", "split"], ["x4"]),  # [b, s, 2, 3]
          n("Transpose", ["x4"], ["t4"], perm=[0, 2, 1, 3]), n("Shape", ["t4"], ["ts"]), n("Gather", ["ts", "two"], ["s3"]),
          n("Unsqueeze", ["s3", "zeros"], ["s4"]), n("Concat", ["b1", "minus", "s4"], ["turned"], axis=0),
          n("Transpose", ["t4"], ["u4"], perm=[0, 2, 1, 3]), n("Reshape", ["u4", "flat"], ["u2"]), n("Gemm", ["u2", "w", "bias"], ["g2"]),
          n("Slice", ["xs", "zeros", "two1"], ["lead"]), n("Concat", ["lead", "minus"], ["back"], axis=0), n("Reshape", ["g2", "back"], ["g3"]),
          n("Range", ["zero", "s", "one"], ["r"]), n("Cast", ["r"], ["rf"], to=T.FLOAT), n("Unsqueeze", ["rf", "outer"], ["r3"]),
          n("Concat", ["s4", "ones"], ["e2"], axis=0), n("ConstantOfShape", ["three"], ["m1"], value=nh.from_array(np.int64([-1]))),
          n("Concat", ["minus", "e2"], ["e3"], axis=0), n("Equal", ["e3", "m1"], ["any"]), n("Where", ["any", "ones3", "e3"], ["e"]),
          n("Expand", ["r3", "e"], ["rx"]), n("Add", ["g3", "rx"], ["v"]), n("MatMul", ["v", "head"], ["logits"]),
          n("Slice", ["v", "minus", "far", "ones"], ["end"]), n("MatMul", ["end", "head"], ["last"]),
          n("Reshape", ["t4", "turned"], ["other"])],
         [info("x", T.FLOAT, ["batch", "seq", 6])], [info(o, T.FLOAT, None) for o in ("logits", "last", "other")],
         [init("zero", np.int64(0)), init("one", np.int64(1)), init("two", np.int64(2)), init("zeros", np.int64([0])), init("ones", np.int64([1])),
          init("two1", np.int64([2])), init("three", np.int64([3])), init("ones3", np.int64([1, 1, 1])), init("heads", np.int64([2, 3])),
          init("minus", np.int64([-1])), init("flat", np.int64([-1, 6])), init("outer", np.int64([0, 2])), init("far", np.int64([2**60])),
          init("w", f32(6, 7)), init("bias", f32(7)), init("head", f32(7, 11))],
         [[f32(1, 5, 6)], [f32(2, 7, 6)], [f32(1, 1, 6)]])


if __name__ == "__main__":
    for make in [elementwise, broadcast_in_place, shape_chain, concat_cache, outputs, defaults, old_initializers, functions,
                 row_wise, skips, data_dependent, quant_block, scatter_cache, linear, int8_linear, static_linear, row_wise_if,
                 row_wise_shapes]:
        make()
