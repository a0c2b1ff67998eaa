"""Writes tests/light/ops_neural: one-op models of convolutions, pooling, recurrent layers and the like, in the manner of
make_op_data.py, whose helper it uses. Expected values: ONNX Runtime.

Run from anywhere with a Python that has onnx, onnxruntime, ml_dtypes and numpy:  python tests/light/make_neural_data.py
Values are small whole numbers where that is possible, so that sums are exact in any order.
"""
import os
import shutil

import make_op_data as base
import numpy as np
from make_op_data import BF16, F16, F32, F64, case

base.HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops_neural")
rng = np.random.default_rng(11)


def answer(op, inputs, outputs=1, opset=13, domain="", **attributes):
    """What ONNX Runtime makes of it; for cases of types or versions that it lacks, from the same values in one that it has."""
    names = [f"out_{i}" for i in range(outputs)]
    model = base.build(op, inputs, names, domain, opset, attributes, (), [base.TYPES[inputs[0].dtype]] * outputs, None)
    session = base.ort.InferenceSession(model.SerializeToString(), base.options, providers=["CPUExecutionProvider"])
    return session.run(None, {f"in_{i}": a for i, a in enumerate(inputs) if a is not None})


def whole(*shape, dtype=F32, low=-4, high=5):
    return rng.integers(low, high, shape).astype(dtype)


def conv(name, x, w, bias=True, dtype=F32, opset=13, constants=("in_1", "in_2"), **attributes):
    inputs = [whole(*x, dtype=dtype), whole(*w, dtype=dtype)] + ([whole(w[0], dtype=dtype)] if bias else [])
    want = None if dtype == F32 else answer("Conv", [a.astype(F32) for a in inputs], **attributes)
    case("conv_" + name, "Conv", inputs, opset=opset, constants=constants if bias else constants[:1], want=want, **attributes)


def conv_cases():
    conv("1d", (2, 3, 37), (5, 3, 3), pads=[1, 1])
    conv("1d_stride_2", (1, 3, 70), (4, 3, 3), pads=[1, 1], strides=[2])
    conv("1d_stride_5", (1, 2, 200), (4, 2, 10), strides=[5])
    conv("1d_stride_3_pads", (1, 2, 100), (4, 2, 7), strides=[3], pads=[6, 4], dilations=[2])
    conv("1d_dilated", (1, 4, 50), (20, 4, 3), pads=[5, 5], dilations=[5])
    conv("1d_causal", (1, 3, 20), (3, 3, 4), pads=[3, 0])
    conv("1d_long", (1, 2, 2100), (2, 2, 3), pads=[2, 1], opset=11)  # so long that it is read where it is
    conv("1d_long_stride_2", (1, 2, 2100), (3, 2, 3), pads=[1, 1], strides=[2], opset=11)
    conv("1d_many_outputs", (1, 8, 33), (300, 8, 3), pads=[1, 1])
    conv("1d_many_channels", (1, 200, 17), (6, 200, 2))
    conv("1d_short", (1, 2, 1), (3, 2, 5), pads=[4, 4])
    conv("2d", (2, 3, 11, 19), (7, 3, 3, 3), pads=[1, 1, 1, 1])
    conv("2d_stride_2", (1, 3, 23, 41), (16, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    conv("2d_stride_mixed", (1, 3, 23, 41), (4, 3, 3, 5), pads=[0, 2, 1, 3], strides=[3, 2], dilations=[2, 1])
    conv("2d_wide", (1, 2, 5, 300), (40, 2, 3, 3), bias=False)
    conv("2d_point", (2, 6, 9, 9), (10, 6, 1, 1))
    conv("2d_point_stride", (1, 6, 9, 20), (10, 6, 1, 1), strides=[2, 2])
    conv("2d_groups", (2, 6, 9, 9), (8, 3, 3, 3), group=2, pads=[1, 1, 1, 1])
    conv("2d_same_upper", (1, 2, 8, 9), (3, 2, 4, 3), auto_pad="SAME_UPPER", strides=[3, 2])
    conv("2d_same_lower", (1, 2, 8, 9), (3, 2, 4, 3), auto_pad="SAME_LOWER", strides=[3, 2])
    conv("2d_valid", (1, 2, 8, 9), (3, 2, 4, 3), auto_pad="VALID")
    conv("2d_weights_given", (1, 2, 8, 9), (3, 2, 3, 3), constants=("none", "none"))
    conv("3d", (1, 2, 6, 7, 8), (3, 2, 3, 2, 3), pads=[1, 0, 1, 1, 1, 1], strides=[1, 2, 1])
    conv("depthwise_1d", (2, 6, 41), (6, 1, 4), pads=[3, 0], group=6)
    conv("depthwise_1d_stride", (2, 6, 141), (6, 1, 3), pads=[1, 1], strides=[2], group=6)
    conv("depthwise_1d_one", (1, 6, 4), (6, 1, 4), group=6)
    conv("depthwise_1d_dilated", (1, 3, 30), (3, 1, 3), group=3, dilations=[9], pads=[9, 9])
    conv("depthwise_1d_multiplier", (1, 3, 30), (6, 1, 3), group=3, pads=[1, 1])
    conv("depthwise_2d", (2, 5, 13, 70), (5, 1, 3, 3), pads=[1, 1, 1, 1], group=5)
    conv("depthwise_2d_stride_2", (1, 5, 13, 70), (5, 1, 5, 5), pads=[2, 2, 2, 2], strides=[2, 2], group=5)
    conv("depthwise_2d_multiplier", (1, 3, 9, 9), (6, 1, 3, 3), pads=[1, 1, 1, 1], group=3)
    conv("depthwise_2d_valid", (1, 3, 9, 20), (3, 1, 3, 3), group=3)
    conv("empty_batch", (0, 3, 9), (4, 3, 3))
    for name, dtype in (("f16", F16), ("bf16", BF16), ("f64", F64)):
        conv("2d_" + name, (1, 3, 9, 12), (4, 3, 3, 3), dtype=dtype, opset=22, pads=[1, 1, 1, 1], strides=[2, 1])
        conv("2d_given_" + name, (1, 4, 9, 12), (4, 2, 3, 3), dtype=dtype, opset=22, group=2, constants=("none", "none"),
             dilations=[2, 2])


def pool_cases():
    x1, x2, x3 = whole(2, 3, 31), whole(2, 3, 11, 17), whole(1, 2, 6, 7, 8)
    two = dict(kernel_shape=[3, 2], strides=[2, 3])
    ways = {"1d": (x1, dict(kernel_shape=[3])), "1d_stride": (x1, dict(kernel_shape=[4], strides=[3], pads=[2, 1])), "2d": (x2, two),
            "2d_pads": (x2, dict(two, pads=[1, 0, 2, 1])), "2d_ceil": (x2, dict(two, ceil_mode=1)),
            "2d_ceil_pads": (x2, dict(kernel_shape=[3, 3], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1)),
            "2d_same": (x2, dict(two, auto_pad="SAME_UPPER")), "2d_same_lower": (x2, dict(two, auto_pad="SAME_LOWER")),
            "3d": (x3, dict(kernel_shape=[2, 3, 2], strides=[2, 2, 1], pads=[0, 1, 1, 1, 0, 1]))}
    for name, (x, attributes) in ways.items():
        case("max_pool_" + name, "MaxPool", [x], opset=12, **attributes)
        case("average_pool_" + name, "AveragePool", [x], opset=19, **attributes)
        case("average_pool_padded_" + name, "AveragePool", [x], opset=19, count_include_pad=1, **attributes)
        for p in (1, 2, 3):
            case(f"lp_pool_{p}_" + name, "LpPool", [whole(*x.shape, low=0)], opset=18 if "ceil_mode" in attributes else 11, p=p,
                 **attributes)
        case("max_pool_indices_" + name, "MaxPool", [x], ("out_0", "out_1"), opset=12, out_types=(F32, np.int64), **attributes)
    case("max_pool_dilated", "MaxPool", [x2], opset=12, kernel_shape=[3, 2], dilations=[2, 3], pads=[1, 1, 1, 0])
    case("average_pool_dilated", "AveragePool", [x2], opset=19, kernel_shape=[3, 2], dilations=[2, 3], pads=[1, 1, 1, 0])
    case("average_pool_7", "AveragePool", [x2], opset=7, kernel_shape=[3, 2], pads=[1, 1, 1, 1])
    for dtype in (np.int8, np.uint8):
        case("max_pool_" + np.dtype(dtype).name, "MaxPool", [whole(1, 2, 9, 9, low=0, high=99).astype(dtype)], opset=12, kernel_shape=[2, 2])
    for name, dtype in (("f16", F16), ("bf16", BF16), ("f64", F64)):
        x = whole(1, 2, 9, 12)
        for op, more in (("MaxPool", {}), ("AveragePool", {}), ("LpPool", {"p": 2}), ("GlobalAveragePool", None),
                         ("GlobalMaxPool", None), ("GlobalLpPool", None)):
            attributes = {} if more is None else dict(more, kernel_shape=[2, 3], strides=[1, 2])
            case(f"{op}_{name}".lower(), op, [x.astype(dtype)], opset=22, want=answer(op, [x], opset=12, **attributes), **attributes)
    for x in (x1, x2, x3):
        for op, more in (("GlobalAveragePool", {}), ("GlobalMaxPool", {}), ("GlobalLpPool", {}), ("GlobalLpPool", {"p": 3})):
            case(f"{op}_{x.ndim - 2}d{'_3' if more else ''}".lower(), op, [x], opset=11, **more)


def pad_cases():
    x = whole(2, 3, 5)
    lists = {"all": [1, 2, 3, 0, 1, 2], "one": [0, 0, 1, 0, 0, 2], "none": [0] * 6, "cut": [0, -1, 2, -1, 0, -3], "far": [3, 7, 11, 4, 6, 9]}
    for mode in ("constant", "reflect", "edge", "wrap"):
        for name, pads in lists.items():
            arrays = [x, np.array(pads, np.int64)]
            begin, end = pads[:3], pads[3:]
            cut = x[tuple(slice(max(0, -b), n - max(0, -e)) for b, e, n in zip(begin, end, x.shape))]
            want = np.pad(cut, [(max(0, b), max(0, e)) for b, e in zip(begin, end)], mode=mode)
            case(f"pad_{mode}_{name}", "Pad", arrays, opset=19, mode=mode, want=[want])
    for i, dtype in enumerate((np.uint8, np.int32, np.int64, np.bool_, F16, BF16, F64)):
        value = np.array(3).astype(dtype)
        want = np.full((2, 4), value, dtype)
        want[:, 1:3] = np.array([[1, 0], [2, 1]]).astype(dtype)
        case(f"pad_type_{np.dtype(dtype).name}", "Pad", [np.array([[1, 0], [2, 1]]).astype(dtype), np.array([1, 1], np.int64), value,
                                                        np.array([(1, -1)[i % 2]], np.int64)],
             opset=21, constants=("in_1", "in_3") if i % 2 else (), want=[want])
    case("pad_2", "Pad", [x], opset=2, pads=[1, 0, 2, 0, 1, 0], value=2.5, mode="constant", want=[np.pad(x, [(1, 0), (0, 1), (2, 0)], constant_values=2.5)])
    case("pad_11_axes_absent", "Pad", [x, np.array([0, 1, 0, 0, 0, 2], np.int64)], opset=11, mode="edge")


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(name, op, steps=5, batch=2, inputs=3, hidden=4, bias=True, lengths=None, h=False, c=False, peepholes=False, dtype=F32,
              layout=0, constants=("in_1", "in_2"), opset=14, **attributes):
    """layout 1 and types other than float32, which ONNX Runtime lacks, from the same values turned round."""
    sides = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[op] * hidden
    arrays = [base.values(steps, batch, inputs), base.values(sides, rows, inputs), base.values(sides, rows, hidden),
              base.values(sides, 2 * rows) if bias else None, None if lengths is None else np.array(lengths, np.int32),
              base.values(sides, batch, hidden) if h else None]
    if op == "LSTM":
        arrays += [base.values(sides, batch, hidden) if c else None, base.values(sides, 3 * hidden) if peepholes else None]
    while arrays[-1] is None:
        arrays.pop()
    count = 3 if op == "LSTM" else 2
    arrays = [a if a is None or a.dtype == np.int32 else a.astype(dtype).astype(F32) for a in arrays]
    want = answer(op, arrays, count, hidden_size=hidden, **attributes)
    if layout:
        arrays = [np.swapaxes(a, 0, 1) if a is not None and a.ndim == 3 and i not in (1, 2) else a for i, a in enumerate(arrays)]
        want = [want[0].transpose(2, 0, 1, 3)] + [np.swapaxes(w, 0, 1) for w in want[1:]]
        attributes["layout"] = 1
    arrays = [a if a is None or a.dtype == np.int32 else np.ascontiguousarray(a).astype(dtype) for a in arrays]
    case(f"{op.lower()}_{name}", op, arrays, [f"out_{i}" for i in range(count)], opset=opset, constants=constants,
         out_types=[dtype] * count, want=[np.ascontiguousarray(w) for w in want], hidden_size=hidden, **attributes)


def recurrent_cases():
    odd = {"RNN": ["ScaledTanh"], "GRU": ["HardSigmoid", "ScaledTanh"], "LSTM": ["HardSigmoid", "Elu", "ScaledTanh"]}
    others = {"RNN": ["Relu"], "GRU": ["Softsign", "LeakyRelu"], "LSTM": ["Sigmoid", "Affine", "ThresholdedRelu"]}
    for op in ("RNN", "GRU", "LSTM"):
        recurrent("plain", op)
        recurrent("no_bias", op, bias=False, opset=7)
        recurrent("reverse", op, direction="reverse", h=True)
        recurrent("both", op, direction="bidirectional", h=True, c=True)
        recurrent("wide", op, steps=3, batch=1, inputs=40, hidden=70, h=True)
        recurrent("given", op, steps=3, hidden=17, constants=("none",))
        recurrent("lengths", op, batch=4, lengths=[5, 2, 1, 3], h=True, c=True)
        recurrent("lengths_zero", op, batch=3, lengths=[3, 0, 5], h=True, c=True)
        recurrent("lengths_reverse", op, batch=3, lengths=[5, 2, 3], direction="reverse")
        recurrent("lengths_both", op, batch=3, lengths=[2, 5, 3], direction="bidirectional", h=True, c=True)
        recurrent("layout_both", op, batch=3, lengths=[2, 5, 3], direction="bidirectional", h=True, c=True, layout=1)
        recurrent("clip", op, clip=0.2, c=True)
        recurrent("activations", op, activations=odd[op], activation_alpha=[0.3, 0.7, 0.9][:len(odd[op])],
                  activation_beta=[0.4, 0.8, 0.6][:len(odd[op]) - (op == "LSTM")])
        more = {"RNN": {}, "GRU": {"activation_alpha": [0.6]}, "LSTM": {"activation_alpha": [0.6, 0.05], "activation_beta": [0.2]}}[op]
        recurrent("activations_part", op, activations=others[op], **more)
        if op == "GRU":  # ONNX Runtime's defaults of the other functions are not those of the operators
            recurrent("activations_default", op, activations=others[op])
        recurrent("activations_both", op, direction="bidirectional", activations=odd[op] + others[op],
                  activation_alpha=[0.3, 0.7, 0.9, 0.5, 0.2], activation_beta=[0.4, 0.8, 0.6])
        for name, dtype in (("f16", F16), ("bf16", BF16), ("f64", F64)):
            recurrent(name, op, h=True, c=True, dtype=dtype, opset=22 if dtype == BF16 else 14, direction="bidirectional")
    for before in (0, 1):
        recurrent(f"linear_{before}", "GRU", linear_before_reset=before, direction="bidirectional", h=True, hidden=19)
        recurrent(f"linear_{before}_lengths", "GRU", linear_before_reset=before, batch=3, lengths=[1, 5, 4], layout=1)
        recurrent(f"linear_{before}_f64", "GRU", linear_before_reset=before, dtype=F64)
    recurrent("peepholes", "LSTM", peepholes=True, h=True, c=True, direction="bidirectional")
    recurrent("peepholes_clip", "LSTM", peepholes=True, c=True, clip=0.3)
    recurrent("input_forget", "LSTM", input_forget=1, c=True)
    recurrent("peepholes_f64", "LSTM", peepholes=True, c=True, dtype=F64)


def transposed(name, x, w, dtype=F32, opset=11, bias=True, constants=("in_1",), **attributes):
    outputs = w[1] * attributes.get("group", 1)
    arrays = [whole(*x), whole(*w)] + ([whole(outputs)] if bias else [])
    want = answer("ConvTranspose", arrays, opset=11, **attributes)
    case("conv_transpose_" + name, "ConvTranspose", [a.astype(dtype) for a in arrays], opset=opset, constants=constants, want=want, **attributes)


def transposed_cases():
    transposed("1d", (2, 5, 13), (5, 3, 4), strides=[2], pads=[1, 1])
    transposed("1d_blocks", (1, 3, 300), (3, 150, 16), strides=[8], pads=[4, 4])
    transposed("1d_given", (1, 5, 13), (5, 3, 5), strides=[3], constants=("none",), bias=False)
    transposed("1d_dilated", (1, 5, 13), (5, 3, 3), strides=[2], dilations=[3], pads=[2, 1], output_padding=[1])
    transposed("1d_cut", (1, 5, 9), (5, 3, 3), strides=[1], pads=[3, 4])
    transposed("1d_shape", (1, 5, 9), (5, 3, 4), strides=[2], output_shape=[19])
    transposed("1d_shape_upper", (1, 5, 9), (5, 3, 4), strides=[2], output_shape=[17], auto_pad="SAME_UPPER")
    transposed("1d_same_lower", (1, 5, 9), (5, 3, 4), strides=[3], auto_pad="SAME_LOWER")
    transposed("1d_valid", (1, 5, 9), (5, 3, 4), strides=[3], auto_pad="VALID")
    transposed("2d", (2, 3, 5, 7), (3, 4, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    transposed("2d_mixed", (1, 3, 5, 7), (3, 4, 2, 3), strides=[1, 3], pads=[0, 1, 1, 0], dilations=[2, 1])
    transposed("2d_groups", (2, 6, 5, 7), (6, 2, 3, 3), group=3, strides=[2, 1])
    transposed("2d_depthwise", (2, 6, 5, 7), (6, 1, 3, 3), group=6, strides=[2, 2], pads=[1, 0, 1, 1])
    transposed("2d_depthwise_more", (1, 3, 5, 7), (3, 2, 3, 3), group=3, strides=[2, 2])
    transposed("3d", (1, 2, 3, 4, 3), (2, 3, 2, 3, 2), strides=[2, 1, 2], pads=[0, 1, 0, 1, 0, 1])
    for name, dtype in (("f16", F16), ("bf16", BF16), ("f64", F64)):
        transposed("2d_" + name, (1, 4, 5, 7), (4, 2, 3, 3), dtype, opset=22, strides=[2, 2], group=2)
        transposed("2d_given_" + name, (1, 4, 5, 7), (4, 2, 3, 3), dtype, opset=22, constants=("none",), pads=[1, 0, 1, 0])


def norm_cases():
    for name, x in (("1d", whole(2, 6, 40)), ("2d", whole(2, 6, 5, 7)), ("3d", whole(1, 6, 3, 2, 4))):
        scale, shift, mean, spread = base.values(6), base.values(6), base.values(6), np.abs(base.values(6)) + F32(0.3)
        case("batch_norm_" + name, "BatchNormalization", [x, scale, shift, mean, spread], opset=15, epsilon=1e-3)
        case("batch_norm_7_" + name, "BatchNormalization", [x, scale, shift, mean, spread], opset=7)
        case("instance_norm_" + name, "InstanceNormalization", [x, scale, shift], opset=6)
        deep = x.astype(F64).reshape(x.shape[0], 3, -1)
        want = (deep - deep.mean(-1, keepdims=True)) / np.sqrt(deep.var(-1, keepdims=True) + 1e-5)
        wide = (1, 6) + (1,) * (x.ndim - 2)
        case("group_norm_" + name, "GroupNormalization", [x, scale, shift], opset=21, num_groups=3,
             want=[want.reshape(x.shape) * scale.reshape(wide) + shift.reshape(wide)])
        case("group_norm_18_" + name, "GroupNormalization", [x, scale[:3], shift[:3]], opset=18, num_groups=3,
             want=[want.reshape(x.shape) * np.repeat(scale[:3], 2).reshape(wide) + np.repeat(shift[:3], 2).reshape(wide)])
        case("lp_norm_" + name, "LpNormalization", [x], opset=1, axis=1, p=1 + x.ndim % 2)
        for kind, dtype in (("f16", F16), ("bf16", BF16), ("f64", F64)):
            y = (want.reshape(x.shape) * scale.astype(dtype).astype(F64).reshape(wide) + shift.astype(dtype).astype(F64).reshape(wide))
            case(f"group_norm_{name}_{kind}", "GroupNormalization", [x.astype(dtype), scale.astype(dtype), shift.astype(dtype)],
                 opset=21, num_groups=3, want=[y])
    case("lrn_2d", "LRN", [whole(2, 6, 5, 7)], opset=13, size=3, alpha=0.3, beta=0.6, bias=1.5)
    x = whole(3, 4, 5)
    deep = x.astype(F64)
    mean, spread = deep.mean((0, 2)), deep.var((0, 2))
    y = ((deep - mean[:, None]) / np.sqrt(spread[:, None] + 1e-5)) * 2 + 1
    arrays = [x, np.full(4, 2, F32), np.full(4, 1, F32), base.values(4), np.abs(base.values(4))]
    running = [0.7 * arrays[3] + 0.3 * mean, 0.7 * arrays[4] + 0.3 * spread]
    three = ["out_0", "out_1", "out_2"]
    case("batch_norm_training", "BatchNormalization", arrays, three, opset=15, training_mode=1, momentum=0.7, out_types=[F32] * 3, want=[y] + running)
    case("batch_norm_training_9", "BatchNormalization", arrays, three + ["out_3", "out_4"], opset=9, momentum=0.7, out_types=[F32] * 5,
         want=[y] + running + [mean, spread])
    each = [base.values(4, 5), base.values(4, 5), base.values(4, 5), np.abs(base.values(4, 5)) + F32(0.3)]
    case("batch_norm_each", "BatchNormalization", [x] + each, opset=7, spatial=0,
         want=[(x - each[2]) / np.sqrt(each[3] + F32(1e-5)) * each[0] + each[1]])
    case("mvn_axes", "MeanVarianceNormalization", [x], opset=13, axes=[-1, 0], want=[(deep - mean[:, None]) / np.sqrt(spread[:, None])])


def resize(name, x, scales=None, sizes=None, roi=None, opset=19, constants=("in_1", "in_2", "in_3"), want=None, dtype=None, **attributes):
    arrays = [x, None if roi is None else np.array(roi, F32), None if scales is None else np.array(scales, F32),
              None if sizes is None else np.array(sizes, np.int64)]
    if opset < 13:
        arrays[1] = np.array([] if roi is None else roi, F32)
        arrays[2] = np.array([] if scales is None else scales, F32)
    while arrays[-1] is None:
        arrays.pop()
    if want is None and dtype:
        want = answer("Resize", arrays, opset=19, **attributes)
        arrays[0] = x.astype(dtype)
    case("resize_" + name, "Resize", arrays, opset=opset, constants=constants, want=want, **attributes)


def resize_cases():
    x = whole(1, 2, 6, 9, low=-20, high=21)
    up, down = [1, 1, 1.5, 2.25], [1, 1, 0.7, 0.45]
    for mode in ("nearest", "linear", "cubic"):
        for way in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"):
            for name, scales in (("up", up), ("down", down)):
                if way == "align_corners":  # ONNX's own cases and ONNX Runtime differ where scale * size is not whole
                    resize(f"{mode}_{way}_{name}", x, sizes=[1, 2, 9, 13] if name == "up" else [1, 2, 4, 5], mode=mode,
                           coordinate_transformation_mode=way)
                    continue
                resize(f"{mode}_{way}_{name}", x, scales, mode=mode, coordinate_transformation_mode=way)
        resize(f"{mode}_crop", x, sizes=[1, 2, 7, 5], roi=[0, 0, 0.2, -0.3, 1, 1, 0.9, 1.1], mode=mode, extrapolation_value=7.5,
               coordinate_transformation_mode="tf_crop_and_resize")
        resize(f"{mode}_11", x, up, opset=11, mode=mode)
        resize(f"{mode}_11_sizes", x, sizes=[1, 2, 4, 20], opset=11, mode=mode, constants=("none",))
        resize(f"{mode}_3d", x[0], [1, 1, 3], mode=mode, coordinate_transformation_mode="asymmetric") if mode != "cubic" else None
        for policy in ("not_larger", "not_smaller"):
            resize(f"{mode}_{policy}", x, sizes=[8, 7], axes=[2, 3], mode=mode, keep_aspect_ratio_policy=policy)
        for kind, dtype in (("f16", F16), ("f64", F64), ("bf16", BF16)):
            resize(f"{mode}_{kind}", x, up, mode=mode, dtype=dtype)
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        for way in ("half_pixel", "asymmetric"):
            for name, scales in (("up", [1, 1, 2, 3]), ("down", [1, 1, 0.5, 0.3])):
                resize(f"nearest_{rounding}_{way}_{name}", x, scales, mode="nearest", nearest_mode=rounding, coordinate_transformation_mode=way)
    for mode in ("linear", "cubic"):
        resize(f"{mode}_antialias", x, down, mode=mode, antialias=1)
        resize(f"{mode}_antialias_outside", x, down, mode=mode, antialias=1, exclude_outside=1)
        resize(f"{mode}_antialias_mixed", x, [1, 1, 0.6, 1.7], mode=mode, antialias=1)
    resize("cubic_a", x, up, mode="cubic", cubic_coeff_a=-0.5)
    resize("cubic_outside", x, up, mode="cubic", exclude_outside=1)
    resize("nearest_for_nn", x, up, opset=11, mode="nearest", coordinate_transformation_mode="tf_half_pixel_for_nn")
    for dtype in (np.uint8, np.int8, np.int32, np.int64, np.bool_):
        y = np.abs(x).astype(dtype)
        resize(f"nearest_{np.dtype(dtype).name}", y, want=answer("Resize", [np.abs(x), None, np.array(up, F32)], opset=19, mode="nearest") if dtype != np.bool_
               else [answer("Resize", [y.astype(F32), None, np.array(up, F32)], opset=19, mode="nearest")[0] != 0], scales=up, mode="nearest")
    for mode in ("nearest", "linear"):
        case(f"upsample_7_{mode}", "Upsample", [x], opset=7, mode=mode, scales=[1.0, 1.0, 2.0, 3.0])
        case(f"upsample_9_{mode}", "Upsample", [x, np.array([1, 1, 2, 3], F32)], opset=9, mode=mode, constants=("in_1",))
        case(f"resize_10_{mode}", "Resize", [x, np.array([1, 1, 0.5, 1.7], F32)], opset=10, mode=mode)


def integer(name, x, w, types=(np.uint8, np.int8), zeros=(7, 3), each=False, constants=("in_1", "in_3"), **attributes):
    """ConvInteger by a convolution of floats, which is exact for sums this small, and QLinearConv from its sums."""
    low = [0 if t == np.uint8 else -128 for t in types]
    a, b = (rng.integers(l, l + 256, shape).astype(t) for l, shape, t in zip(low, (x, w), types))
    b_zero = (np.array(zeros[1]) + (np.arange(w[0]) % 3 if each else 0)).astype(types[1])
    a_zero = np.array(zeros[0]).astype(types[0])
    moved = b.astype(F32) - b_zero.astype(F32).reshape((-1,) + (1,) * (b.ndim - 1))
    sums = answer("Conv", [a.astype(F32) - F32(a_zero), moved], **attributes)[0].astype(np.int64)
    case("conv_integer_" + name, "ConvInteger", [a, b, a_zero, b_zero], opset=10, constants=constants, out_types=[np.int32],
         want=[sums.astype(np.int32)], **attributes)
    bias = rng.integers(-500, 500, w[0]).astype(np.int32)
    scales = (0.01 + 0.02 * np.arange(w[0])).astype(F32) if each else np.array(0.03, F32)
    x_scale, y_scale = np.array(0.02, F32), np.array(1.7, F32)
    wide = (1, -1) + (1,) * (b.ndim - 2)
    moved = (sums + bias.reshape(wide)).astype(F32) * (x_scale * scales / y_scale).reshape(wide if each else (1,) * b.ndim)
    y_zero = np.array(11).astype(types[0])
    want = np.clip(np.rint(moved) + y_zero, low[0], low[0] + 255).astype(types[0])
    case("qlinear_conv_" + name, "QLinearConv", [a, x_scale, a_zero, b, scales, b_zero, y_scale, y_zero, bias], opset=10,
         constants=("in_3", "in_4", "in_5") if constants else (), want=[want], **attributes)


def integer_cases():
    integer("1d", (2, 5, 60), (7, 5, 3), pads=[1, 2])
    integer("1d_dilated", (1, 6, 70), (20, 6, 3), dilations=[4], pads=[4, 4], strides=[2])
    integer("1d_wide", (1, 40, 100), (33, 40, 5), each=True, pads=[2, 2])
    integer("2d", (1, 3, 9, 11), (5, 3, 3, 3), types=(np.uint8, np.uint8), pads=[1, 1, 1, 1], strides=[1, 2])
    integer("2d_each", (2, 4, 9, 11), (5, 4, 3, 2), types=(np.int8, np.int8), zeros=(-3, 0), each=True, dilations=[2, 1])
    integer("2d_groups", (1, 6, 7, 8), (4, 3, 3, 3), group=2, pads=[1, 0, 1, 0], each=True)
    integer("2d_given", (1, 4, 7, 8), (3, 4, 1, 1), constants=())
    integer("depthwise", (2, 5, 9, 9), (5, 1, 3, 3), group=5, pads=[1, 1, 1, 1], each=True)
    integer("depthwise_signed", (1, 3, 30), (6, 1, 4), types=(np.int8, np.int8), group=3, pads=[3, 0])
    integer("3d", (1, 3, 4, 5, 6), (2, 3, 2, 2, 2), types=(np.uint8, np.uint8), pads=[1, 0, 1, 0, 1, 0])


def quantised(name, steps=5, batch=1, inputs=6, hidden=5, dtype=np.int8, each=False, constants=("in_1", "in_2"), bias=True, h=False, p=False,
              zero=0, lengths=None, **attributes):
    sides = 2 if attributes.get("direction") == "bidirectional" else 1
    count = sides * 4 * hidden if each else sides
    shape = (sides, 4 * hidden) if each else (sides,)
    low = -127 if dtype == np.int8 else 0
    w, r = (rng.integers(low, low + 255, (sides, k, 4 * hidden)).astype(dtype) for k in (inputs, hidden))
    scales = [(0.002 + 0.001 * rng.random(count)).astype(F32).reshape(shape) for _ in range(2)]
    zeros = [np.full(shape, zero, dtype) for _ in range(2)]
    state = base.values(sides, batch, hidden) if h else None
    arrays = [base.values(steps, batch, inputs), w, r, base.values(sides, 8 * hidden) if bias else None,
              None if lengths is None else np.array(lengths, np.int32), state, None if state is None else state * 2,
              base.values(sides, 3 * hidden) if p else None, scales[0], zeros[0], scales[1], zeros[1]]
    case("lstm_i8_" + name, "DynamicQuantizeLSTM", arrays, ["out_0", "out_1", "out_2"], base.MS, constants=constants, hidden_size=hidden,
         out_types=[F32] * 3, **attributes)


def quantised_cases():
    quantised("plain")
    quantised("both", direction="bidirectional", hidden=17, inputs=30, h=True)
    quantised("each", each=True, direction="reverse", hidden=20)
    quantised("unsigned", dtype=np.uint8, zero=120, direction="bidirectional")
    quantised("unsigned_each", dtype=np.uint8, zero=0, each=True)
    quantised("given", constants=("none",), hidden=9)
    quantised("peepholes", p=True, h=True, bias=False)
    quantised("clip", clip=0.3, input_forget=1)


def parts(z):
    return np.stack([z.real, z.imag], -1)


def spectrum_cases():
    for n in (1, 7, 12, 67, 60, 134):
        x = base.values(2, n, 3, 2, dtype=F64)
        z = x[..., 0] + 1j * x[..., 1]
        case(f"dft_{n}", "DFT", [x], opset=17, want=[parts(np.fft.fft(z, axis=1))])
        case(f"dft_inverse_{n}", "DFT", [x], opset=17, axis=-3, inverse=1, want=[parts(np.fft.ifft(z, axis=1))])
        for more in (n + 3, max(1, n - 2)):
            one = np.array(more, np.int64)
            case(f"dft_{n}_as_{more}", "DFT", [x[..., :1], one, np.array(-3, np.int64)], opset=20, onesided=1, constants=("in_1", "in_2"),
                 want=[parts(np.fft.rfft(x[..., 0], more, axis=1))])
            if more > 1:
                case(f"dft_{n}_back_{more}", "DFT", [x, one, np.array(1, np.int64)], opset=20, onesided=1, inverse=1,
                     want=[np.fft.irfft(z, more, axis=1)[..., None]])
    for name, dtype in (("f16", F16), ("f32", F32)):
        x = base.values(3, 20, 1, dtype=dtype)
        case(f"dft_{name}", "DFT", [x], opset=20, want=[parts(np.fft.fft(x[..., 0].astype(F64), axis=1))])
    x, window = base.values(2, 50, dtype=F64), np.hanning(12)
    for name, signal, w, step, length, sides in (("real", x[..., None], window, 5, None, 1), ("flat", x, window, 5, 12, 1),
                                                 ("no_window", x[..., None], None, 7, 9, 1), ("both", x[..., None], window, 4, None, 0),
                                                 ("complex", np.stack([x, x[::-1]], -1), window, 12, 12, 0)):
        z = signal if signal.ndim == 2 else signal[..., 0] + (1j * signal[..., 1] if signal.shape[-1] == 2 else 0)
        n = length or len(w)
        frames = np.stack([z[:, i:i + n] * (1 if w is None else w) for i in range(0, 50 - n + 1, step)], 1)
        arrays = [signal, np.array(step, np.int64), w, None if length is None else np.array(length, np.int64)]
        while arrays[-1] is None:
            arrays.pop()
        spectrum = np.fft.fft(frames, axis=-1)
        case(f"stft_{name}", "STFT", arrays, opset=17, onesided=sides, want=[parts(spectrum[..., :n // 2 + 1] if sides else spectrum)],
             constants=("in_1", "in_3") if length else ())
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        for periodic in (0, 1):
            for number, dtype in ((1, F32), (11, F64), (10, F16)):
                n = 9 + periodic
                a, b, c = {"HannWindow": (0.5, 0.5, 0), "HammingWindow": (25 / 46, 21 / 46, 0), "BlackmanWindow": (0.42, 0.5, 0.08)}[op]
                angle = 2 * np.pi * np.arange(n) / (n if periodic else n - 1)
                case(f"{op.lower()}_{periodic}_{np.dtype(dtype).name}", op, [np.array(n, np.int32 if periodic else np.int64)], opset=17,
                     periodic=periodic, output_datatype=number, out_types=[dtype],
                     want=[np.round(a - b * np.cos(angle) + c * np.cos(2 * angle), 15)])
    arrays = [np.array(v, np.int64) for v in (20, 400, 16000)] + [np.array(20, F32), np.array(7600, F32)]
    case("mel_weight_matrix", "MelWeightMatrix", arrays, opset=17, out_types=[F32], constants=("in_0", "in_1"))


def space_cases():
    x = whole(2, 12, 4, 6)
    for mode in ("DCR", "CRD"):
        case(f"depth_to_space_{mode.lower()}", "DepthToSpace", [x], opset=13, blocksize=2, mode=mode)
    case("depth_to_space_1", "DepthToSpace", [x], opset=1, blocksize=2, want=answer("DepthToSpace", [x], opset=13, blocksize=2))
    case("space_to_depth", "SpaceToDepth", [x], opset=13, blocksize=2)
    for dtype in (np.uint8, np.int64, F16, F64):
        name = np.dtype(dtype).name
        case(f"depth_to_space_{name}", "DepthToSpace", [x.astype(dtype)], opset=13, blocksize=2, want=answer("DepthToSpace", [x], blocksize=2))
        case(f"space_to_depth_{name}", "SpaceToDepth", [x.astype(dtype)], opset=13, blocksize=2, want=answer("SpaceToDepth", [x], blocksize=2))
    for name, axes, shape in (("all", None, [1, 15, 4, 3]), ("axes", [-1, 1], [9, 5])):
        more = {} if axes is None else {"axes": axes}
        case(f"center_crop_pad_{name}", "CenterCropPad", [x, np.array(shape, np.int64)], opset=18, constants=("in_1",), **more)
        case(f"center_crop_pad_given_{name}", "CenterCropPad", [x.astype(np.int32), np.array(shape, np.int32)], opset=18,
             want=answer("CenterCropPad", [x, np.array(shape, np.int64)], opset=18, **more), **more)
    for name, image, block, more in (("plain", (5, 6), (2, 3), {}), ("all", (9, 8), (3, 2), dict(strides=[2, 1], dilations=[1, 3], pads=[1, 0, 0, 2])),
                                     ("flat", (20,), (4,), dict(strides=[2]))):
        n = len(image)
        pads = more.get("pads", [0] * 2 * n)
        windows = [(image[d] + pads[d] + pads[n + d] - (block[d] - 1) * more.get("dilations", [1] * n)[d] - 1) // more.get("strides", [1] * n)[d] + 1
                   for d in range(n)]
        columns = whole(2, 3 * int(np.prod(block)), int(np.prod(windows)))
        case(f"col2im_{name}", "Col2Im", [columns, np.array(image, np.int64), np.array(block, np.int64)], opset=18, constants=("in_1", "in_2"), **more)
    y, indices = answer("MaxPool", [whole(1, 2, 6, 8, high=90)], 1, opset=12, kernel_shape=[2, 2], strides=[2, 2])[0], None
    indices = (np.arange(24).reshape(1, 2, 3, 4) * 4 + np.arange(4)).astype(np.int64) % 96
    case("max_unpool", "MaxUnpool", [y, indices], opset=11, kernel_shape=[2, 2], strides=[2, 2])
    flat = np.zeros(96, F64)
    flat[indices.ravel()] = y.ravel()
    case("max_unpool_f64_shape", "MaxUnpool", [y.astype(F64), indices, np.array([1, 2, 7, 9], np.int64)], opset=11, kernel_shape=[2, 2], strides=[2, 2],
         want=[np.pad(flat.reshape(1, 2, 6, 8), [(0, 0), (0, 0), (0, 1), (0, 1)])])
    case("det", "Det", [base.values(2, 3, 5, 5)], opset=11)
    square = base.values(4, 4, dtype=F64)
    case("det_f64", "Det", [square], opset=11, want=[np.linalg.det(square)])


def sample_cases():
    x, grid = np.abs(base.values(2, 3, 5, 7)) + F32(1), (1.3 * rng.uniform(-1, 1, (2, 4, 6, 2))).astype(F32)
    deep, deep_grid = np.abs(base.values(1, 2, 3, 4, 5)) + F32(1), (1.3 * rng.uniform(-1, 1, (1, 2, 3, 4, 3))).astype(F32)
    for mode, padding, corners in ((m, p, c) for m in ("linear", "nearest", "cubic") for p in ("zeros", "border", "reflection") for c in (0, 1)):
        more = dict(padding_mode=padding, align_corners=corners)
        case(f"grid_sample_{mode}_{padding}_{corners}", "GridSample", [x, grid], opset=20, mode=mode, **more)
        if mode != "cubic":
            case(f"grid_sample_3d_{mode}_{padding}_{corners}", "GridSample", [deep, deep_grid], opset=20, mode=mode, **more)
    case("grid_sample_16", "GridSample", [x, grid], opset=16, mode="bicubic")
    for name, dtype in (("f16", F16), ("bf16", BF16), ("f64", F64)):
        case(f"grid_sample_{name}", "GridSample", [x.astype(dtype), grid], opset=22 if dtype == BF16 else 20, mode="linear",
             want=answer("GridSample", [x.astype(dtype).astype(F32), grid], opset=20))
    for corners in (0, 1):
        case(f"affine_grid_2d_{corners}", "AffineGrid", [base.values(2, 2, 3), np.array([2, 3, 4, 5], np.int64)], opset=20, align_corners=corners)
        case(f"affine_grid_3d_{corners}", "AffineGrid", [base.values(2, 3, 4), np.array([2, 3, 2, 4, 5], np.int64)], opset=20, align_corners=corners,
             constants=("in_1",))
    image, rois = base.values(2, 3, 16, 20), np.array([[1, 2, 14, 11], [0, 0, 19, 15], [3.5, 2.25, 6, 9.75], [-4, 10, 30, 14]], F32)
    where = np.array([1, 0, 1, 1], np.int64)
    for mode in ("avg", "max"):
        for sampling in (0, 2):
            for way in ("half_pixel", "output_half_pixel"):
                case(f"roi_align_{mode}_{sampling}_{way}", "RoiAlign", [image, rois, where], opset=16, mode=mode, sampling_ratio=sampling, output_height=3,
                     output_width=4, spatial_scale=0.8, coordinate_transformation_mode=way)
        case(f"roi_align_10_{mode}", "RoiAlign", [image, rois, where], opset=10, mode=mode, output_height=2, output_width=2)
    case("max_roi_pool", "MaxRoiPool", [image, np.concatenate([where[:, None].astype(F32), np.abs(rois)], 1)], opset=1, pooled_shape=[3, 4], spatial_scale=0.7)


def deformed():
    """A deformable convolution without offsets is a convolution; whole offsets move what is read."""
    x, w, bias = whole(2, 4, 7, 8), whole(6, 2, 3, 2), whole(6)
    more = dict(pads=[1, 0, 1, 1], strides=[1, 2], dilations=[1, 2], group=2)
    want = answer("Conv", [x, w, bias], **more)[0]
    size = want.shape[2:]
    zero = np.zeros((2, 2 * 2 * 6) + size, F32)
    for name, dtype in (("f32", F32), ("f64", F64), ("f16", F16)):
        case(f"deform_conv_none_{name}", "DeformConv", [a.astype(dtype) for a in (x, w, zero, bias)], opset=19, offset_group=2, want=[want], **more)
    mask = np.full((2, 2 * 6) + size, 0.5, F32)
    case("deform_conv_mask", "DeformConv", [x, w, zero, bias, mask], opset=19, offset_group=2, constants=("in_1",),
         want=[(want - bias[:, None, None]) / 2 + bias[:, None, None]], **more)
    moved = zero.reshape((2, 2, 6, 2) + size).copy()
    moved[:, :, :, 0] = -1
    moved[:, :, :, 1] = 2
    inside = np.pad(x, [(0, 0), (0, 0), (2, 0), (0, 3)])[:, :, :, 2:]
    want = answer("Conv", [inside, w, bias], strides=[1, 2], dilations=[1, 2], group=2)[0]
    case("deform_conv_moved", "DeformConv", [x, w, moved.reshape(zero.shape), bias], opset=19, offset_group=2, want=[want], **more)


if __name__ == "__main__":
    shutil.rmtree(base.HERE, ignore_errors=True)
    conv_cases()
    pool_cases()
    pad_cases()
    recurrent_cases()
    transposed_cases()
    norm_cases()
    resize_cases()
    integer_cases()
    quantised_cases()
    spectrum_cases()
    space_cases()
    sample_cases()
    deformed()
