"""Writes tests/light/ops: one-op models in the layout of ONNX's backend tests, with what ONNX Runtime makes of them.

Run from anywhere with a Python that has onnx, onnxruntime, ml_dtypes and numpy:  python tests/light/make_op_data.py
For com.microsoft operators, which have no official cases, and for attributes, versions and element types of standard ones
that the official cases leave out. float16 and bfloat16 cases: ONNX Runtime computes them in float32 from the same values,
and the answer is rounded once. Integer products and reductions: numpy.
"""
import itertools
import os
import shutil

import ml_dtypes
import numpy as np
import onnxruntime as ort
from onnx import helper as h
from onnx import numpy_helper as nh

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops")
MS = "com.microsoft"
F32, F16, BF16, F64 = np.float32, np.float16, ml_dtypes.bfloat16, np.float64
STRING = np.dtype(object)
TYPES = {np.dtype(t): h.np_dtype_to_tensor_dtype(np.dtype(t))
         for t in (object, F32, F16, BF16, F64, np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64, ml_dtypes.uint4,
                   ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.int2, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn)}
rng = np.random.default_rng(7)
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL


def values(*shape, dtype=F32):
    return np.asarray(0.5 * rng.standard_normal(shape), F32).astype(dtype)


def is_half(array):
    return array is not None and array.dtype in (F16, BF16)


def build(op, inputs, outputs, domain, opset, attributes, constants, out_types, mask):
    names = ["" if a is None else f"in_{i}" for i, a in enumerate(inputs)]
    nodes = [h.make_node(op, names, [n for n in outputs], domain=domain, **attributes)]
    given = [(n, a) for n, a in zip(names, inputs) if a is not None]
    ports = [h.make_tensor_value_info(n, TYPES[a.dtype], a.shape) for n, a in given if n not in constants]
    graph_outputs = [n for n in outputs if n]
    if mask is not None:  # where an output is not defined (padding) the graph gives 0
        for i, m in mask.items():
            zero = nh.from_array(np.zeros((), inputs[0].dtype), f"zero_{i}")
            nodes.append(h.make_node("Constant", [], [f"zero_{i}"], value=zero))
            nodes.append(h.make_node("Constant", [], [f"mask_{i}"], value=nh.from_array(m, f"mask_{i}")))
            nodes.append(h.make_node("Where", [f"mask_{i}", outputs[i], f"zero_{i}"], [f"kept_{i}"]))
            graph_outputs[i] = f"kept_{i}"
    graph = h.make_graph(nodes, op, ports, [h.make_tensor_value_info(n, t, None) for n, t in zip(graph_outputs, out_types)],
                         [nh.from_array(a, n) for n, a in given if n in constants])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset), h.make_opsetid(MS, 1)],
                        ir_version=13 if opset >= 25 else 11 if opset >= 23 else 10)


def widen(array):
    return array.astype(F32) if is_half(array) else array


def case(name, op, inputs, outputs=("out_0",), domain="", opset=21, constants=(), out_types=None, mask=None, want=None, **attributes):
    types = out_types or [inputs[0].dtype] * sum(1 for o in outputs if o)
    numbers = [TYPES[np.dtype(t)] for t in types]
    model = build(op, inputs, outputs, domain, opset, attributes, constants, numbers, mask)
    feed = [a for i, a in enumerate(inputs) if a is not None and f"in_{i}" not in constants]
    if want is None:
        wide = [1 if np.dtype(t) in (F16, BF16) else n for t, n in zip(types, numbers)]
        oracle = build(op, [widen(a) for a in inputs], outputs, domain, opset, attributes, constants, wide, mask)
        session = ort.InferenceSession(oracle.SerializeToString(), options, providers=["CPUExecutionProvider"])
        want = session.run(None, {p.name: widen(a) for p, a in zip(session.get_inputs(), feed)})
    want = [w.astype(t) for w, t in zip(want, types)]
    folder = os.path.join(HERE, name)
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(model.SerializeToString())
    for kind, arrays in (("input", feed), ("output", want)):
        for i, a in enumerate(arrays):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                f.write(nh.from_array(np.asarray(a)).SerializeToString())


def gqa(name, batch=1, new=5, past=0, heads=4, kv_heads=2, size=16, packed=False, rotary=0, positions=None, sink=False, bias=None,
        lengths=None, capacity=0, dtype=F32, **attributes):
    total = past + new
    hidden = heads + (2 * kv_heads if packed else 0)
    inputs = [values(batch, new, hidden * size, dtype=dtype)]
    inputs += [None, None] if packed else [values(batch, new, kv_heads * size, dtype=dtype) for _ in range(2)]
    kept = capacity or past
    inputs += [values(batch, kv_heads, kept, size, dtype=dtype) for _ in range(2)] if kept else [None, None]
    inputs += [np.array(lengths or [total] * batch, np.int32) - 1, np.array([total], np.int32)]
    if rotary:
        angles = np.arange(total + 12)[:, None] * 10000.0 ** (-np.arange(0, rotary, 2) / rotary)
        if dtype != F32:  # quarter turns, which are exact: keys are rounded when they are stored, whatever computed them
            angles = np.pi / 2 * rng.integers(0, 4, angles.shape)
        inputs += [np.round(f(angles), 9).astype(dtype) for f in (np.cos, np.sin)]
        attributes["do_rotary"] = 1
    else:
        inputs += [None, None]
    inputs += [None if positions is None else np.array(positions, np.int64), values(*bias, dtype=dtype) if bias else None,
               values(heads, dtype=dtype) if sink else None]
    while inputs[-1] is None:
        inputs.pop()
    mask = None
    if lengths and new > 1:  # padding behind ragged prompts
        inside = np.arange(new)[None] < np.array(lengths)[:, None]
        mask = {0: inside[:, :, None], 1: inside[:, None, :, None], 2: inside[:, None, :, None]}
    case("gqa_" + name, "GroupQueryAttention", inputs, ("out_0", "out_1", "out_2"), MS, mask=mask, num_heads=heads,
         kv_num_heads=kv_heads, **attributes)


def attention_cases():
    gqa("plain")
    gqa("one_kv_head", kv_heads=1, heads=8)
    gqa("own_kv_heads", kv_heads=4)
    for size in (8, 24, 80, 96, 128, 256):
        gqa(f"head_{size}", size=size, new=3)
    gqa("packed", packed=True)
    gqa("packed_rotary", packed=True, rotary=16, heads=9, kv_heads=3, new=40)
    gqa("prompt_of_two_blocks", heads=3, kv_heads=1, size=32, new=70)
    gqa("decode", new=1, past=17, size=64, heads=9, kv_heads=3)
    gqa("decode_two_parts", new=1, past=300, heads=3, kv_heads=1, rotary=16)
    gqa("decode_ragged", batch=3, new=1, past=20, lengths=[21, 8, 15], rotary=16)
    gqa("chunk", new=7, past=13, rotary=16)
    gqa("ragged", batch=3, new=9, lengths=[9, 4, 6])
    gqa("ragged_rotary", batch=3, new=9, lengths=[9, 4, 6], rotary=16)
    gqa("rotary_interleaved", rotary=16, rotary_interleaved=1)
    gqa("rotary_part", rotary=16, size=32)
    gqa("rotary_part_interleaved", rotary=16, size=48, rotary_interleaved=1)
    gqa("scale", scale=0.3)
    gqa("softcap", softcap=0.5, new=20)
    for window in (1, 3):
        gqa(f"window_{window}", new=20, local_window_size=window)
    gqa("window_decode", new=1, past=30, local_window_size=4)
    gqa("window_long", new=150, size=16, heads=2, kv_heads=1, local_window_size=70)
    gqa("smooth", smooth_softmax=1)
    gqa("smooth_decode", smooth_softmax=1, new=1, past=9)
    gqa("sink", sink=True)
    gqa("sink_window_softcap", sink=True, new=30, local_window_size=4, softcap=1.0)
    gqa("bias", bias=(1, 4, 5, 5))
    gqa("bias_batch", batch=2, bias=(2, 1, 5, 5))
    gqa("bias_decode", new=1, past=6, bias=(1, 4, 1, 7))
    gqa("bias_softcap", bias=(1, 1, 5, 5), softcap=0.5)
    gqa("capacity_decode", new=1, past=6, capacity=32, rotary=16)
    gqa("capacity_prompt", new=6, capacity=32)
    gqa("positions_prompt", batch=2, rotary=16, positions=[[3, 1, 9, 2, 7], [5, 6, 7, 8, 9]])
    gqa("positions_decode", batch=2, new=1, past=5, rotary=16, positions=[[3], [6]])
    gqa("positions_chunk", new=3, past=5, rotary=16, positions=[[3, 1, 7]])
    gqa("not_causal", causal=0)
    gqa("not_causal_past", causal=0, new=3, past=5)
    for name, dtype in (("f16", F16), ("bf16", BF16)):
        gqa("prompt_" + name, dtype=dtype, new=20, rotary=16, packed=True)
        gqa("decode_" + name, dtype=dtype, new=1, past=40, size=32)
        gqa("all_" + name, dtype=dtype, new=3, past=6, rotary=16, bias=(1, 1, 3, 9), sink=True, softcap=2.0)


def norm_cases():
    for name, dtype in (("f32", F32), ("f16", F16), ("bf16", BF16)):
        x, skip, scale, beta, bias = (values(*s, dtype=dtype) for s in ((2, 5, 48), (2, 5, 48), (48,), (48,), (48,)))
        whole = ("out_0", "", "", "out_3")
        for kind in ("SkipSimplifiedLayerNormalization", "SkipLayerNormalization"):
            short = "skip_rms_" if "Simplified" in kind else "skip_layer_"
            last = [bias] if "Simplified" in kind else [beta, bias]
            case(short + name, kind, [x, skip, scale], domain=MS, epsilon=1e-5)
            case(short + "bias_" + name, kind, [x, skip, scale] + last, whole, MS)
            case(short + "shared_" + name, kind, [x, skip[:1], scale], whole, MS, epsilon=1e-3)
            case(short + "2d_" + name, kind, [x[0], skip[0], scale], domain=MS)
        case("skip_layer_no_beta_" + name, "SkipLayerNormalization", [x, skip, scale, None, bias], domain=MS)
        both = (dtype, F32)
        case("simplified_" + name, "SimplifiedLayerNormalization", [x, scale], ("out_0", "out_1"), opset=17, epsilon=1e-6, out_types=both)
        case("simplified_axis_" + name, "SimplifiedLayerNormalization", [x, values(5, 48, dtype=dtype)], opset=17, axis=1)
        case("layer_" + name, "LayerNormalization", [x, scale, beta], ("out_0", "out_1", "out_2"), opset=17, out_types=(dtype, F32, F32))
        case("layer_spread_" + name, "LayerNormalization", [x, values(1, 5, 48, dtype=dtype), values(2, 1, 48, dtype=dtype)], opset=17)
    case("simplified_mixed", "SimplifiedLayerNormalization", [values(2, 48, dtype=F16), values(48)], opset=17, out_types=(F32,))
    case("layer_f64", "LayerNormalization", [values(2, 48, dtype=F64), values(48, dtype=F64)], opset=17)


def rotary_cases():
    angles = rng.uniform(-3, 3, (20, 8))
    positions = np.array([[0, 1, 2, 3, 4], [7, 3, 2, 9, 1]], np.int64)
    for turn, (name, dtype) in itertools.product((0, 1), (("f32", F32), ("f16", F16), ("bf16", BF16))):
        cos, sin = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
        end = f"{'interleaved_' if turn else ''}{name}"
        for kind, x, where, more in (("4d", values(2, 3, 5, 16, dtype=dtype), positions, {}),
                                     ("3d", values(2, 5, 48, dtype=dtype), positions, {}),
                                     ("offset", values(2, 5, 48, dtype=dtype), np.array([4], np.int64), {}),
                                     ("part", values(2, 5, 72, dtype=dtype), positions, dict(rotary_embedding_dim=16, num_heads=3))):
            case(f"rotary_{kind}_{end}", "RotaryEmbedding", [x, where, cos, sin], domain=MS, interleaved=turn, **more)


def product_cases():
    for ta, tb, (name, c) in itertools.product((0, 1), (0, 1), (("full", (5, 9)), ("row", (9,)), ("column", (5, 1)), ("one", ()))):
        plain = name == "row"
        case(f"gemm_{ta}{tb}_{name}", "Gemm", [values(*((7, 5) if ta else (5, 7))), values(*((9, 7) if tb else (7, 9))), values(*c)],
             opset=13 if ta else 9, constants=("in_1",) if tb else (), transA=ta, transB=tb, alpha=1.0 if plain else 0.5,
             beta=1.0 if plain else 2.0)
    for dtype in (np.int32, np.int64, np.uint32, np.uint64):
        a, b, c = (rng.integers(0, 9, s).astype(dtype) for s in ((5, 7), (7, 9), (5, 9)))
        name = np.dtype(dtype).name
        case(f"gemm_{name}", "Gemm", [a, b, c], opset=13, want=[a @ b + c])
        case(f"gemm_scaled_{name}", "Gemm", [a, b, c], opset=13, alpha=2.0, beta=3.0, want=[2 * (a @ b) + 3 * c])
        case(f"matmul_{name}", "MatMul", [a, b], opset=13, want=[a @ b])
    for (name, dtype), constant in itertools.product((("f16", F16), ("bf16", BF16)), ((), ("in_1",))):
        end = name + ("_constant" if constant else "")
        a, b, c = (values(*s, dtype=dtype) for s in ((5, 7), (7, 19), (5, 19)))
        case("gemm_" + end, "Gemm", [a, b, c], opset=13, constants=constant, alpha=0.5, beta=2.0)
        case("matmul_" + end, "MatMul", [a, b], opset=13, constants=constant)
    shapes = (((5,), (5,)), ((5,), (5, 3)), ((3, 5), (5,)), ((2, 3, 5), (5,)), ((5,), (2, 5, 3)), ((2, 3, 5), (5, 4)),
              ((4, 1, 3, 5), (2, 5, 4)), ((1, 3, 5), (2, 5, 4)), ((2, 1, 3, 5), (1, 6, 5, 4)), ((3, 5), (2, 5, 4)), ((40, 70), (70, 33)))
    for i, (a, b) in enumerate(shapes):
        for constant in ((), ("in_1",)):
            case(f"matmul_shape_{i}{'_constant' if constant else ''}", "MatMul", [values(*a), values(*b)], opset=13, constants=constant)


def softmax_cases():
    for op, version, axis in itertools.product(("Softmax", "LogSoftmax"), (1, 11, 13), (0, 1, 2)):
        case(f"{op.lower()}_{version}_axis_{axis}", op, [4 * values(2, 3, 19)], opset=version, axis=axis)
    case("softmax_f64", "Softmax", [values(2, 3, 7, dtype=F64)], opset=13, axis=1)
    for name, dtype in (("f16", F16), ("bf16", BF16)):
        case("softmax_" + name, "Softmax", [values(2, 3, 7, dtype=dtype)], opset=13, axis=1)


def reduce_cases():
    wide = {"Sum": np.sum, "Mean": np.mean, "Max": np.max, "Min": np.min, "Prod": np.prod, "L1": lambda a, **k: np.sum(np.abs(a), **k),
            "L2": lambda a, **k: np.sqrt(np.sum(a * a, **k)), "SumSquare": lambda a, **k: np.sum(a * a, **k),
            "LogSum": lambda a, **k: np.log(np.sum(a, **k)), "LogSumExp": lambda a, **k: np.log(np.sum(np.exp(a), **k))}
    types = (F32, F64, F16, BF16, np.int32, np.int64, np.uint32, np.uint64)
    for turn, (name, fn) in enumerate(wide.items()):
        for j, dtype in enumerate(types):
            version = (1, 11, 13, 18)[(turn + j) % 4]
            version = 13 if dtype == BF16 and version < 13 else version
            axes = ((1,), (0, 2), (-1,), (2, 3), None)[(turn + 2 * j) % 5]
            keep = (turn + j) % 2
            a = rng.integers(1, 5, (2, 3, 4, 2)).astype(dtype)
            if np.dtype(dtype).kind != "i" and np.dtype(dtype).kind != "u":
                a = (np.abs(values(2, 3, 4, 2)) + F32(0.1)).astype(dtype)
            want = np.asarray(fn(a.astype(F64), axis=axes, keepdims=bool(keep)))
            as_input = axes is not None and (version >= 18 or (name == "Sum" and version >= 13))
            more = {} if axes is None or as_input else {"axes": list(axes)}
            case(f"reduce_{name.lower()}_{np.dtype(dtype).name}", "Reduce" + name, [a] + ([np.array(axes, np.int64)] if as_input else []),
                 opset=version, keepdims=keep, want=[np.trunc(want) if np.dtype(dtype).kind in "iu" else want], **more)


if __name__ == "__main__":
    shutil.rmtree(HERE, ignore_errors=True)
    attention_cases()
    norm_cases()
    rotary_cases()
    product_cases()
    softmax_cases()
    reduce_cases()
    import op_cases_contrib  # which takes its tools from here
    op_cases_contrib.write()
