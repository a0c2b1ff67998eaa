"""Writes the cases of tests/light/data that have subgraphs: If, Loop, Scan, in one another, in functions and with functions in them.

Run from anywhere with a Python that has onnx, onnxruntime and numpy:  python tests/light/make_control_data.py
The layout is that of make_data.py.
"""
import numpy as np

from make_data import T, h, info, init, save

n = h.make_node
rng = np.random.default_rng(17)


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def body(name, nodes, inputs, outputs, inits=()):
    """inputs and outputs: names, or (name, type, shape)."""
    def infos(ports):
        return [info(*p) if isinstance(p, tuple) else info(p, T.FLOAT, None) for p in ports]
    return h.make_graph(nodes, name, infos(inputs), infos(outputs), list(inits))


ITERATION = ("i", T.INT64, [])
GO_ON = ("go", T.BOOL, [])


def control_if():
    """Branches that hand on what they capture, as it is or as a view; that own constants; that others' products are packed
    for; in one another; on constants."""
    codes = rng.integers(0, 256, (8, 1, 16)).astype(np.uint8)
    inner = n("If", ["c2"], ["inner"],
              then_branch=body("t2", [n("MatMul", ["a", "w"], ["m"])], [], ["m"]),
              else_branch=body("e2", [n("Mul", ["a", "k"], ["m2"])], [], ["m2"], [init("k", np.float32([3]))]))
    constant_inner = n("If", ["no"], ["ci"], then_branch=body("t4", [n("Neg", ["x"], ["cn"])], [], ["cn"]),
                       else_branch=body("e4", [n("Exp", ["a"], ["ce"])], [], ["ce"]))
    nodes = [
        n("Abs", ["x"], ["a"]),
        n("If", ["c"], ["p"], then_branch=body("t", [n("Transpose", ["a"], ["at"], perm=[1, 0])], [], ["at"]),
          else_branch=body("e", [n("Neg", ["a"], ["an"])], [], ["an"])),
        n("Add", ["a", "p"], ["sum"]),  # not over a, which p may be a view of
        n("If", ["c"], ["same", "other"],
          then_branch=body("t1", [n("Identity", ["x"], ["xi"]), n("Identity", ["w"], ["wi"])], [], ["xi", "wi"]),
          else_branch=body("e1", [inner, n("Mul", ["inner", "x"], ["ix"]), n("Identity", ["inner"], ["io"])], [], ["ix", "io"])),
        n("If", ["yes"], ["always"], then_branch=body("t3", [constant_inner, n("Add", ["ci", "sum"], ["ca"])], [], ["ca"]),
          else_branch=body("e3", [n("Identity", ["x"], ["cb"])], [], ["cb"])),
        n("If", ["c2"], ["product"],
          then_branch=body("t5", [n("MatMulNBits", ["wide", "q", "s"], ["qp"], domain="com.microsoft", K=32, N=8, bits=4, block_size=32)],
                           [], ["qp"]),
          else_branch=body("e5", [n("MatMulNBits", ["wide", "q", "s2"], ["qp"], domain="com.microsoft", K=32, N=8, bits=4, block_size=32)],
                           [], ["qp"], [init("s2", (rng.random((8, 1)) * 0.2).astype(np.float32))])),
    ]
    outs = ["sum", "same", "other", "always", "product"]
    sets = [[np.array(bool(c)), np.array(bool(c2)), f32(4, 4), f32(2, 32)] for c, c2 in ((1, 1), (0, 0), (1, 0), (0, 1))]
    save("control_if", nodes,
         [info("c", T.BOOL, []), info("c2", T.BOOL, []), info("x", T.FLOAT, [4, 4]), info("wide", T.FLOAT, ["rows", 32])],
         [info(o, T.FLOAT, None) for o in outs],
         [init("w", f32(4, 4)), init("yes", np.bool_(True)), init("no", np.bool_(False)), init("q", codes),
          init("s", (rng.random((8, 1)) * 0.1).astype(np.float32))], sets, more_opsets=[("com.microsoft", 1)])


def control_loop():
    """Carried values that grow, change places, never change, or are the iteration; scan outputs; an early end; three loops in one
    another that read the outermost values."""
    grow = body("grow", [
        n("Concat", ["v", "row"], ["v2"], axis=0), n("Add", ["p", "q"], ["pq"]), n("Identity", ["q"], ["p2"]),
        n("Identity", ["keep"], ["keep2"]), n("Cast", ["i"], ["fi"], to=T.FLOAT), n("Identity", ["fi"], ["last2"]),
        n("ReduceSum", ["pq"], ["total"], keepdims=0), n("Less", ["total", "limit"], ["less"]), n("And", ["less", "yes"], ["go2"]),
        n("Mul", ["pq", "fi"], ["scan"]), n("Identity", ["pq"], ["scan2"])],
        [ITERATION, GO_ON, "v", "p", "q", "keep", "last"],
        [("go2", T.BOOL, []), "v2", "p2", "pq", "keep2", "last2", ("scan", T.FLOAT, [1, 3]), ("scan2", T.FLOAT, [1, 3])])
    deepest = body("deepest", [n("Mul", ["w3", "row"], ["w4"]), n("Add", ["w4", "two"], ["w5"]), n("Identity", ["g3"], ["h3"])],
                   [("i3", T.INT64, []), ("g3", T.BOOL, []), "w3"], [("h3", T.BOOL, []), "w5"])
    middle = body("middle", [n("Loop", ["three", "", "w2"], ["w6"], body=deepest), n("Add", ["w6", "u1"], ["w7"]),
                             n("Greater", ["w7", "two"], ["gt"]), n("Cast", ["gt"], ["gf"], to=T.FLOAT), n("Identity", ["g2"], ["h2"])],
                  [("i2", T.INT64, []), ("g2", T.BOOL, []), "w2"], [("h2", T.BOOL, []), "w7", "gf"])
    chosen = n("If", ["odd"], ["picked"], then_branch=body("then", [n("Loop", ["two_i", "", "u1"], ["w8", "gs"], body=middle),
                                                                    n("ReduceSum", ["gs"], ["g"], keepdims=0),
                                                                    n("Add", ["w8", "g"], ["w9"])], [], ["w9"]),
               else_branch=body("else", [n("Sub", ["u1", "row"], ["w10"])], [], ["w10"]))
    outer = body("outer", [n("Mod", ["i1", "two_i"], ["rest"]), n("Cast", ["rest"], ["odd"], to=T.BOOL), chosen,
                           n("Tanh", ["picked"], ["u2"]), n("Identity", ["g1"], ["h1"])],
                 [("i1", T.INT64, []), ("g1", T.BOOL, []), "u1"], [("h1", T.BOOL, []), "u2", ("picked", T.FLOAT, [1, 3])])
    nodes = [
        n("Neg", ["x"], ["row"]), n("Abs", ["x"], ["big"]),
        n("Loop", ["m", "start", "x", "row", "big", "x", "zero"], ["v9", "p9", "q9", "keep9", "last9", "s1", "s2"], body=grow),
        n("Add", ["keep9", "big"], ["kept"]),
        n("Loop", ["m", "", "x"], ["deep", "steps"], body=outer),
    ]
    outs = ["v9", "p9", "q9", "kept", "last9", "s1", "deep", "steps"]
    sets = [[np.array(m, np.int64), np.array(bool(s)), np.array(limit, np.float32), f32(1, 3)] for m, s, limit in
            ((0, 1, 9), (1, 1, 9), (5, 1, 1e9), (5, 0, 9), (40, 1, 30), (3, 1, 1e9))]
    save("control_loop", nodes,
         [info("m", T.INT64, []), info("start", T.BOOL, []), info("limit", T.FLOAT, []), info("x", T.FLOAT, [1, 3])],
         [info(o, T.FLOAT, None) for o in outs],
         [init("yes", np.bool_(True)), init("zero", np.float32(0)), init("two", np.float32(2)), init("two_i", np.int64(2)),
          init("three", np.int64(3))], sets)


def control_scan():
    """Directions and axes; a state that is also a scan output, one that is a slice of a scan input, one that stays; a scan in
    a scan; bodies that are functions."""
    opset = [h.make_opsetid("", 17), h.make_opsetid("local", 1)]
    inner = body("inner", [n("Mul", ["t", "d"], ["td"]), n("Add", ["td", "e"], ["t2"]), n("Identity", ["t2"], ["ty"])],
                 ["t", "e"], ["t2", "ty"])
    step = h.make_function("local", "Step", ["state", "a", "d"], ["next", "y"],
                           [n("Scan", ["state", "a"], ["next", "ys"], body=inner, num_scan_inputs=1),
                            n("ReduceSum", ["ys"], ["y"], keepdims=0)], opset)
    twice = h.make_function("local", "Twice", ["state", "a", "d"], ["next", "y"],
                            [n("Step", ["state", "a", "d"], ["s1", "y1"], domain="local", name="one"),
                             n("Step", ["s1", "a", "d"], ["next", "y2"], domain="local", name="two"), n("Add", ["y1", "y2"], ["y"])],
                            opset)
    outer = body("outer", [n("Twice", ["s", "xa", "decay"], ["s2", "y"], domain="local"), n("Identity", ["xb"], ["last2"]),
                           n("Add", ["xb", "last"], ["pair"]), n("Identity", ["keep"], ["keep2"]), n("Mul", ["s2", "keep"], ["sy"]),
                           n("Identity", ["s2"], ["copy"])],
                 ["s", "last", "keep", "xa", "xb"], ["s2", "last2", "keep2", "y", "pair", "sy", "copy"])
    nodes = [
        n("Sigmoid", ["d"], ["decay"]), n("Neg", ["x"], ["nx"]), n("Slice", ["z", "one", "end", "axis2"], ["zs"]),
        n("Scan", ["s0", "l0", "k0", "nx", "zs"], ["s9", "l9", "k9", "ys", "pairs", "sys", "copies"], body=outer, num_scan_inputs=2,
          scan_input_axes=[0, -1], scan_input_directions=[0, 1], scan_output_axes=[0, 1, -1, 0], scan_output_directions=[1, 0, 1, 0]),
        n("Mul", ["k9", "k0"], ["k2"]),
    ]
    outs = ["s9", "l9", "k2", "ys", "pairs", "sys", "copies"]
    sets = [[f32(3), f32(3), f32(2, 3), f32(3), f32(t, 4, 3), f32(2, 3, t + 1)] for t in (1, 4, 9, 1, 30)]
    save("control_scan", nodes,
         [info("d", T.FLOAT, [3]), info("s0", T.FLOAT, [3]), info("l0", T.FLOAT, [2, 3]), info("k0", T.FLOAT, [3]),
          info("x", T.FLOAT, ["time", 4, 3]), info("z", T.FLOAT, [2, 3, "more"])],
         [info(o, T.FLOAT, None) for o in outs],
         [init("one", np.int64([1])), init("end", np.int64([2 ** 31])), init("axis2", np.int64([2]))], sets,
         functions=[step, twice], more_opsets=[("local", 1)])


def control_fixed():
    """Trip counts that are constants, as exporters write them: a scan and a branch in a loop."""
    cell = body("cell", [n("Add", ["t", "e"], ["t1"]), n("Tanh", ["t1"], ["t2"]), n("Identity", ["t2"], ["ty"])],
                ["t", "e"], [("t2", T.FLOAT, [4]), ("ty", T.FLOAT, [4])])
    loop = body("loop", [n("Scan", ["v", "x"], ["v1", "ys"], body=cell, num_scan_inputs=1), n("ReduceSum", ["ys"], ["sum"], keepdims=0),
                         n("Greater", ["sum", "half"], ["more"]),
                         n("If", ["more"], ["v2"], then_branch=body("then", [n("Mul", ["v1", "half"], ["vt"])], [], ["vt"]),
                           else_branch=body("else", [n("Sub", ["half", "v1"], ["ve"])], [], ["ve"])),
                         n("Concat", ["grown", "v2"], ["grown2"], axis=0), n("Identity", ["go"], ["go2"])],
                [ITERATION, GO_ON, "v", "grown"], [("go2", T.BOOL, []), "v2", "grown2", "sum"])
    save("control_fixed", [n("ReduceMax", ["x"], ["v0"], axes=[0], keepdims=0), n("Loop", ["five", "", "v0", "v0"], ["v9", "grown9", "sums"], body=loop)],
         [info("x", T.FLOAT, ["time", 4])], [info(o, T.FLOAT, None) for o in ["v9", "grown9", "sums"]],
         [init("five", np.int64(5)), init("half", np.float32(0.5))], [[f32(t, 4)] for t in (1, 3, 8)])


def control_cache():
    """A decoder with and without past in one graph, as exporters merge them: concat_cache twice, in the branches of an If."""
    def branch(tag, with_past):
        nodes, outs, last = [], [], "x"
        for layer in range(2):
            present, tail, half = f"{tag}.present.{layer}", f"{tag}.tail.{layer}", f"{tag}.h.{layer}"
            nodes += [n("Concat", ([f"past.{layer}"] if with_past else []) + [last], [present], axis=2),
                      n("Slice", [present, "start", "end", "axis"], [tail]), n("Mul", [tail, "half"], [half])]
            outs.append(present)
            last = half
        nodes.append(n("Neg", [last], [f"{tag}.y"]))
        return body(tag, nodes, [], [f"{tag}.y"] + outs)

    sets = [[f32(1, 2, new, 4), f32(1, 2, past, 4), f32(1, 2, past, 4), np.array(past > 0)] for past, new in ((0, 3), (3, 1), (4, 2))]
    save("control_cache", [n("If", ["use"], ["y", "present.0", "present.1"], then_branch=branch("t", True), else_branch=branch("e", False))],
         [info("x", T.FLOAT, ["batch", "heads", "new", 4])] + [info(f"past.{k}", T.FLOAT, ["batch", "heads", "past", 4]) for k in range(2)]
         + [info("use", T.BOOL, [])], [info(o, T.FLOAT, None) for o in ["y", "present.0", "present.1"]],
         [init("start", np.int64([-1])), init("end", np.int64([2 ** 31])), init("axis", np.int64([2])), init("half", np.float32(0.5))], sets)


def control_scan8():
    """The first Scan: batches, a length for each row, one scan input read from its end."""
    step = body("step", [n("Add", ["s", "a"], ["s1"]), n("Mul", ["s1", "b"], ["s2"]), n("Add", ["k", "a"], ["k2"]), n("Sub", ["s2", "b"], ["y"]),
                         n("Identity", ["s2"], ["z"])], [(x, T.FLOAT, [3]) for x in ("s", "k", "a", "b")],
                [(x, T.FLOAT, [3]) for x in ("s2", "k2", "y", "z")])
    sets = [[np.int64(lengths), f32(len(lengths), 3), f32(len(lengths), 3), f32(len(lengths), steps, 3), f32(len(lengths), steps, 3)]
            for lengths, steps in (([4, 2], 4), ([1], 1), ([1, 5, 3], 5))]
    save("control_scan8", [n("Scan", ["lengths", "s0", "k0", "x1", "x2"], ["sf", "kf", "ys", "zs"], body=step, num_scan_inputs=2, directions=[0, 1])],
         [info("lengths", T.INT64, ["batch"])] + [info(x, T.FLOAT, ["batch", 3]) for x in ("s0", "k0")]
         + [info(x, T.FLOAT, ["batch", "time", 3]) for x in ("x1", "x2")],
         [info(x, T.FLOAT, None) for x in ("sf", "kf", "ys", "zs")], [], sets, opset=8, ir=6)


if __name__ == "__main__":
    for make in [control_if, control_loop, control_scan, control_fixed, control_cache, control_scan8]:
        make()
