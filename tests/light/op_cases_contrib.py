"""More cases for tests/light/ops: com.microsoft operators and what official cases of others leave out (see make_op_data.py).

make_op_data.py writes these too. Alone: python tests/light/op_cases_contrib.py [GROUP...]  writes some groups anew. Each case
draws its numbers from its own name, so that cases can come and go without changing others.
"""
import itertools
import os
import shutil
import sys
import zlib

import ml_dtypes
import numpy as np
import onnxruntime as ort
from onnx import helper
from onnx.reference import ReferenceEvaluator

import make_op_data
from make_op_data import BF16, F16, F32, MS

HALVES = (("f16", F16), ("bf16", BF16))


class Case:
    """A case under way: numbers by name, then `write`."""

    def __init__(self, name, domain=MS):
        self.name, self.domain = name, domain
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def f(self, *shape, dtype=F32, scale=0.5):
        return np.asarray(scale * self.rng.standard_normal(shape), F32).astype(dtype)

    def ints(self, low, high, *shape, dtype=np.int64):
        return self.rng.integers(low, high, shape).astype(dtype)

    def answer(self, op, inputs, n_outputs, **attributes):
        """What ONNX Runtime makes of other inputs."""
        names = [f"out_{i}" for i in range(n_outputs)]
        model = make_op_data.build(op, inputs, names, self.domain, 21, attributes, (), [1] * n_outputs, None)
        session = ort.InferenceSession(model.SerializeToString(), make_op_data.options, providers=["CPUExecutionProvider"])
        return session.run(None, {f"in_{i}": a for i, a in enumerate(inputs) if a is not None})

    def write(self, op, inputs, outputs=("out_0",), **more):
        shutil.rmtree(os.path.join(make_op_data.HERE, self.name), ignore_errors=True)
        while inputs[-1] is None:
            inputs.pop()
        make_op_data.case(self.name, op, inputs, outputs, self.domain, **more)


def windowed(c, op, inputs, window, axis, past, **attributes):
    """ONNX Runtime's CPU has no state_window: the states after each of the last tokens are those of shorter inputs."""
    length = inputs[0].shape[axis]
    cut = lambda n: [np.ascontiguousarray(np.take(a, range(n), axis)) if a is not None and i in c.timed else a for i, a in enumerate(inputs)]
    plain = list(inputs)
    plain[past] = inputs[past][-1]
    states = []
    for slot in range(window):
        n = length - window + slot + 1
        short = cut(max(n, 1))
        short[past] = plain[past]
        y, state = c.answer(op, short, 2, **attributes)
        states.append(state if n > 0 else np.zeros_like(state))
    c.write(op, inputs, ("out_0", "out_1"), out_types=(F32, F32), want=[y, np.stack(states)], state_window=window, **attributes)


def causal_conv():
    def one(name, batch=2, channels=(5,), length=6, kernel=4, bias=True, past=True, dtype=F32, window=0, dilation=1, last=0, **more):
        c = Case("causal_conv_" + name)
        n = int(np.prod(channels))
        state = (kernel - 1) * dilation
        lay = (lambda m: (batch, m) + channels) if last else (lambda m: (batch, n, m))
        slots = ((window,) if window else ()) + lay(state)
        if last:
            more["channels_last"] = 1
        if dilation > 1:
            more["dilation"] = dilation
        inputs = [c.f(*lay(length), dtype=dtype), c.f(n, 1, kernel, dtype=dtype), c.f(n, dtype=dtype) if bias else None,
                  c.f(*slots, dtype=dtype) if past else None]
        if window:
            c.timed = (0,)
            windowed(c, "CausalConvWithState", inputs, window, 1 if last else 2, 3, **more)
        else:
            c.write("CausalConvWithState", inputs, ("out_0", "out_1"), out_types=(dtype, dtype), **more)

    one("plain", activation="silu")
    one("no_past", past=False, bias=False)
    one("decode", length=1, activation="swish")
    one("short", length=2, kernel=5)
    one("kernel_1", kernel=1)
    one("dilated", dilation=3, length=5)
    one("dilated_decode", dilation=2, length=1, activation="silu")
    one("channels_last", last=1)
    one("channels_last_many", channels=(2, 3), last=1, activation="silu")
    one("window", window=3)
    one("window_short", window=4, length=2)
    one("window_last", window=2, last=1, length=5, dilation=2)
    for name, dtype in HALVES:
        one(name, dtype=dtype, activation="silu")


def linear_attention():
    def one(name, rule, batch=2, tokens=5, heads=4, kv_heads=4, size=6, v_size=8, key_heads=None, past=True, per_head=False,
            beta_1=False, dtype=F32, window=0, **more):
        c = Case("linear_attention_" + name)
        key_heads = key_heads or kv_heads
        key = c.f(batch, tokens, key_heads, size)
        key = (key / np.linalg.norm(key, axis=-1, keepdims=True)).reshape(batch, tokens, -1).astype(dtype)
        decay = beta = None
        if "gated" in rule:
            decay = (-np.abs(c.f(batch, tokens, kv_heads * (1 if per_head else size)))).astype(dtype)
        if "delta" in rule:
            beta = c.rng.uniform(0, 1, (batch, tokens, 1 if beta_1 else kv_heads)).astype(F32).astype(dtype)
        state = ((window,) if window else ()) + (batch, kv_heads, size, v_size)
        inputs = [c.f(batch, tokens, heads * size, dtype=dtype), key, c.f(batch, tokens, kv_heads * v_size, dtype=dtype),
                  c.f(*state, dtype=dtype) if past else None, decay, beta]
        more.update(update_rule=rule, q_num_heads=heads, kv_num_heads=kv_heads)
        if window:
            c.timed = (0, 1, 2, 4, 5)
            windowed(c, "LinearAttention", inputs, window, 1, 3, **more)
        else:
            c.write("LinearAttention", inputs, ("out_0", "out_1"), out_types=(dtype, dtype), **more)

    for rule in ("linear", "gated", "delta", "gated_delta"):
        one(rule, rule)
        one(rule + "_decode", rule, tokens=1, per_head=True, beta_1=True)
        one(rule + "_no_past", rule, past=False, scale=0.7)
    one("grouped", "gated_delta", kv_heads=2)
    one("inverse", "gated_delta", heads=2, kv_heads=4, key_heads=2)
    one("inverse_own_keys", "gated", heads=2, kv_heads=6, size=4)
    one("window", "gated_delta", window=3)
    one("window_short", "gated", tokens=2, window=4)
    for name, dtype in HALVES:
        one(name, "gated_delta", dtype=dtype, tokens=3)


def mask_of(c, kind, batch, new, total):
    if kind == "lengths":
        return c.ints(1, total + 1, batch, dtype=np.int32)
    shape = {"keys": (batch, total), "rows": (batch, new, total)}[kind]
    mask = c.ints(0, 2, *shape, dtype=np.int32)
    mask[..., -1] = 1 if kind == "keys" else mask[..., -1]
    mask[..., 0] = 1
    return mask


def multi_head():
    def one(name, batch=2, heads=3, new=5, keys=None, past=0, size=8, v_size=None, bias=False, mask=None, score_bias=None, cross=False,
            present=None, scores=False, dtype=F32, more_types=(), **more):
        c = Case("multi_head_" + name)
        keys, v_size = keys or new, v_size or size
        total = keys + past
        q = c.f(batch, new, heads * size, dtype=dtype)
        if cross:
            k, v = c.f(batch, heads, keys, size, dtype=dtype), c.f(batch, heads, keys, v_size, dtype=dtype)
        else:
            k, v = c.f(batch, keys, heads * size, dtype=dtype), c.f(batch, keys, heads * v_size, dtype=dtype)
        present = past > 0 if present is None else present
        outputs = ["out_0"] + (["out_1", "out_2"] if present else ["", ""] if scores else []) + (["out_3"] if scores else [])
        kept = [c.f(batch, heads, past, size, dtype=dtype), c.f(batch, heads, past, v_size, dtype=dtype)] if past else [None, None]
        inputs = [q, k, v, c.f(heads * (2 * size + v_size), dtype=dtype) if bias else None, mask and mask_of(c, mask, batch, new, total),
                  c.f(*score_bias, dtype=dtype) if score_bias else None, *kept]
        c.write("MultiHeadAttention", inputs, tuple(outputs), out_types=(dtype,) * sum(map(bool, outputs)), num_heads=heads, **more)

    one("plain")
    one("bias", bias=True)
    one("v_size", v_size=5, bias=True)
    one("cross", keys=7)
    one("cross_cache", keys=7, cross=True)
    one("causal", unidirectional=1, bias=True)
    one("causal_past", unidirectional=1, past=4)
    one("decode", new=1, past=6, bias=True)
    one("present", present=True, scale=0.3)
    one("lengths", mask="lengths")
    one("keys", mask="keys", mask_filter_value=-1e9)
    one("keys_past", mask="keys", past=3)
    one("rows", mask="rows")
    one("score_bias", score_bias=(1, 3, 5, 5))
    one("score_bias_all", score_bias=(2, 3, 5, 8), past=3, mask="keys")
    one("score_bias_one", batch=1, score_bias=(1, 1, 5, 5))
    one("scores", scores=True, mask="keys", past=2, present=True)
    one("causal_mask", unidirectional=1, mask="keys")
    for name, dtype in HALVES:
        one(name, dtype=dtype, bias=True, mask="keys")
        one("cross_" + name, dtype=dtype, keys=7, cross=True)

    def packed(name, parts, **more):  # which ONNX Runtime's CPU does not take: it answers for them apart
        c = Case("multi_head_packed_" + name)
        batch, new, heads, size = 2, 5, 3, 8
        inputs = [c.f(batch, new, heads, parts, size)]
        apart = [np.ascontiguousarray(inputs[0][:, :, :, i]).reshape(batch, new, heads * size) for i in range(parts)]
        if parts == 2:
            inputs.insert(0, c.f(batch, 4, heads * size))
            apart.insert(0, inputs[0])
        bias = [c.f(3 * heads * size)] if parts == 3 else []
        want = c.answer("MultiHeadAttention", apart + bias, 1, num_heads=heads, **more)
        c.write("MultiHeadAttention", inputs + [None] * (3 - len(inputs)) + bias, want=want, num_heads=heads, **more)

    packed("qkv", 3)
    packed("qkv_causal", 3, unidirectional=1)
    packed("kv", 2)


def decoder_masked():
    def one(name, batch=2, heads=3, past=4, room=9, size=8, bias=False, mask=False, cross=False, score_bias=False, beams=0, scores=False):
        c = Case("decoder_masked_" + name)
        total = past + 1
        if cross:
            kv = [c.f(batch, heads, 6, size) for _ in range(2)]
            c.write("DecoderMaskedMultiHeadAttention", [c.f(batch, 1, heads * size), *kv, c.ints(0, 2, batch, 6, dtype=np.int32) if mask else None],
                    num_heads=heads)
            return
        inputs = [c.f(batch, 1, heads * size) for _ in range(3)]
        inputs += [c.ints(0, 2, batch, total, dtype=np.int32) | np.int32(np.arange(total) == past) if mask else None,
                   c.f(1, heads, 1, total) if score_bias else None, c.f(batch, heads, room, size), c.f(batch, heads, room, size), np.int32([past])]
        inputs += [np.int32([beams]), c.ints(0, beams, batch // beams, beams, room, dtype=np.int32)] if beams else [None, None]
        inputs += [c.f(3 * heads * size)] if bias else [None]
        outputs = ("out_0", "out_1", "out_2") + (("out_3",) if scores else ())
        c.write("DecoderMaskedMultiHeadAttention", inputs, outputs, out_types=(F32,) * len(outputs), num_heads=heads, past_present_share_buffer=1,
                output_qk=int(scores))

    one("plain")
    one("bias", bias=True)
    one("mask", mask=True)
    one("cross", cross=True)
    one("cross_mask", cross=True, mask=True)
    one("scores", scores=True, score_bias=True)
    one("beams", batch=6, beams=3, mask=True, score_bias=True)


def int8_products():
    U8, S8 = np.uint8, np.int8

    def codes(c, dtype, *shape):
        info = np.iinfo(dtype)
        return c.ints(info.min, info.max + 1, *shape, dtype=dtype)

    for a_type, b_type in ((U8, S8), (U8, U8), (S8, S8), (S8, U8)):
        end = f"{np.dtype(a_type).name}_{np.dtype(b_type).name}"
        for kind, a, b, za, zb in (("one", (5, 7), (7, 19), (), ()), ("each", (5, 7), (7, 19), (5,), (19,)), ("none", (3, 5, 6), (6, 4), None, None),
                                   ("stack", (2, 5, 7), (2, 7, 3), (2, 5, 1), (2, 1, 3)), ("spread", (2, 3, 4, 33), (3, 33, 18), (), (18,)),
                                   ("vector", (7,), (7, 5), (), ())):
            c = Case(f"matmul_integer_{kind}_{end}", "")
            inputs = [codes(c, a_type, *a), codes(c, b_type, *b)] + [None if z is None else codes(c, t, *z) for t, z in ((a_type, za), (b_type, zb))]
            wide = [None if i is None else i.astype(np.int32) for i in inputs]
            left = wide[0] if wide[2] is None else wide[0] - (wide[2][:, None] if kind == "each" else wide[2])
            right = wide[1] if wide[3] is None else wide[1] - wide[3]
            c.write("MatMulInteger", inputs, constants=("in_1",) if kind in ("one", "each") else (), out_types=(np.int32,), want=[left @ right])
    for b_type, kind in itertools.product((U8, S8), ("plain", "zero", "bias", "columns", "stack")):
        c = Case(f"dynamic_quantize_matmul_{kind}_{np.dtype(b_type).name}")
        n = 19
        inputs = [c.f(*((2, 5, 12) if kind == "stack" else (5, 12)), scale=2), codes(c, b_type, 12, n),
                  np.abs(c.f(*((n,) if kind == "columns" else ()))) + F32(0.01), None if kind == "plain" else codes(c, b_type, *((n,) if kind == "columns" else ())),
                  c.f(n) if kind in ("bias", "columns") else None]
        inputs[2] = np.asarray(inputs[2], F32)
        c.write("DynamicQuantizeMatMul", inputs, constants=("in_1",) if kind != "stack" else ())
    for a_type, b_type, kind in itertools.product((U8, S8), (U8, S8), ("plain", "bias", "columns")):
        c = Case(f"matmul_integer_to_float_{kind}_{np.dtype(a_type).name}_{np.dtype(b_type).name}")
        n, each = 19, (19,) if kind == "columns" else ()
        if a_type == S8 and b_type == U8:
            continue
        inputs = [codes(c, a_type, 2, 5, 12), codes(c, b_type, 12, n), np.float32(0.02), np.asarray(np.abs(c.f(*each)) + F32(0.01), F32), codes(c, a_type), codes(c, b_type, *each),
                  c.f(n) if kind == "bias" else None]
        inputs = [None if i is None else np.asarray(i) for i in inputs]
        c.write("MatMulIntegerToFloat", inputs, out_types=(F32,))


def reference(op, inputs, opset=25, n_outputs=1, **attributes):
    """What the package onnx makes of it, which has all types; ONNX Runtime's CPU has not."""
    names = ["" if i is None else f"in_{n}" for n, i in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(n_outputs)]
    node = helper.make_node(op, names, outputs, **attributes)
    infos = [helper.make_tensor_value_info(n, 1, None) for n in names if n], [helper.make_tensor_value_info(n, 1, None) for n in outputs]
    model = helper.make_model(helper.make_graph([node], op, *infos), opset_imports=[helper.make_opsetid("", opset)])
    return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, {n: i for n, i in zip(names, inputs) if n})]


def linear_quantize():
    shapes = (("one", (), {}), ("axis", (5,), {"axis": 1}), ("last", (7,), {"axis": -1}), ("first", (3,), {"axis": 0}),
              ("blocks", (3, 3, 7), {"axis": 1, "block_size": 2}), ("blocks_last", (3, 5, 2), {"axis": 2, "block_size": 4}))
    types = [np.dtype(t) for t in (np.uint8, np.int8, np.uint16, np.int16, ml_dtypes.uint4, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.int2,
                                   ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn)]
    for i, ((name, shape, more), dtype) in enumerate(itertools.product(shapes, types)):
        whole = dtype.name.startswith(("int", "uint"))
        high = int(ml_dtypes.iinfo(dtype).max) if whole else 0
        x_type = (F32, F16, BF16)[i % 3]
        for op in ("QuantizeLinear", "DequantizeLinear"):
            c = Case(f"{op.lower()}_{name}_{dtype.name}", "")
            scale = (np.abs(c.f(*shape)) + F32(0.05)).astype(x_type)
            zero = c.ints(0, high + 1, *shape).astype(dtype) if whole and i % 2 else None
            if op == "QuantizeLinear":
                x = c.f(3, 5, 7, dtype=x_type, scale=3)
                extra = dict(more) if zero is not None else dict(more, output_dtype=int(helper.np_dtype_to_tensor_dtype(dtype)))
            else:
                x = c.ints(-high - 1 if dtype.name.startswith("int") else 0, high + 1, 3, 5, 7).astype(dtype) if whole else c.f(3, 5, 7, scale=2).astype(dtype)
                extra = more
            inputs = [x, scale, zero]
            want = reference(op, inputs, **extra)
            c.write(op, inputs, opset=25, out_types=(dtype if op == "QuantizeLinear" else x_type,), want=want, **extra)


def attention():
    def one(name, batch=2, new=5, heads=3, size=8, v_size=None, width=20, bias=True, mask=None, past=0, room=0, score_bias=None, present=None, dtype=F32,
            constants=("in_1",), **more):
        c = Case("attention_microsoft_" + name)
        v_size, total = v_size or size, new + past
        columns = heads * (2 * size + v_size)
        if v_size != size:
            more["qkv_hidden_sizes"] = [heads * size, heads * size, heads * v_size]
        if mask == "ends":
            given = np.concatenate([c.ints(3, total + 1, batch), c.ints(0, 2, batch)]).astype(np.int32)
        elif mask == "starts":
            given = np.concatenate([np.full(batch, total), c.ints(0, 3, batch)]).astype(np.int32)
        else:
            given = mask and mask_of(c, mask, batch, new, total)
        inputs = [c.f(batch, new, width, dtype=dtype), c.f(width, columns, dtype=dtype), c.f(columns, dtype=dtype) if bias else np.zeros(columns, dtype),
                  given, c.f(2, batch, heads, past, size, dtype=dtype) if past else None, c.f(*score_bias, dtype=dtype) if score_bias else None]
        outputs = ("out_0", "out_1") if past or present else ("out_0",)
        c.write("Attention", inputs, outputs, out_types=(dtype,) * len(outputs), num_heads=heads, constants=constants, **more)

    one("plain")
    one("no_bias", bias=False)
    one("variable_weights", constants=())
    one("causal", unidirectional=1)
    one("causal_past", unidirectional=1, past=4, mask="keys", mask_filter_value=-3.4028234663852886e38)
    one("decode", new=1, past=7, unidirectional=1, mask="keys")
    one("present", present=True, scale=0.2)
    one("v_size", v_size=5)
    one("lengths", mask="lengths")
    one("ends", mask="ends")
    one("starts", mask="starts", mask_filter_value=-1e9)
    one("keys", mask="keys")
    one("rows", mask="rows", past=2)
    one("score_bias", score_bias=(1, 3, 5, 5))
    one("score_bias_mask", score_bias=(2, 3, 5, 5), mask="keys")
    for name, dtype in HALVES:
        one(name, dtype=dtype, mask="keys")

    for past, x_type, w_type, each in itertools.product((0, 3), (np.uint8,), (np.uint8, np.int8), (0, 1)):
        batch, new, heads, size, width = 2, 4, 3, 8, 20
        columns = 3 * heads * size
        c = Case(f"qattention_{np.dtype(w_type).name}_{'each' if each else 'one'}{'_past' if past else ''}")
        codes = lambda dtype, *shape: c.ints(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, *shape, dtype=dtype)
        n = (columns,) if each else ()
        inputs = [codes(x_type, batch, new, width), codes(w_type, width, columns), c.f(columns), np.float32(0.02), np.asarray(c.rng.uniform(0.002, 0.01, n), F32),
                  c.ints(1, new + past + 1, batch, dtype=np.int32) if not past else None, codes(x_type), codes(w_type, *n) if w_type == np.uint8 or each else np.int8(0),
                  c.f(2, batch, heads, past, size) if past else None]
        inputs = [None if i is None else np.asarray(i) for i in inputs]
        c.write("QAttention", inputs, ("out_0", "out_1") if past else ("out_0",), out_types=(F32, F32)[:1 + bool(past)], num_heads=heads, unidirectional=int(past > 0),
                constants=("in_1",))


def fused():
    def product(name, a, b, dtype=F32, constants=(), op="FusedMatMul", **more):
        c = Case("fused_matmul_" + name)
        c.write(op, [c.f(*a, dtype=dtype), c.f(*b, dtype=dtype)], constants=constants, **more)

    product("plain", (2, 5, 7), (7, 9), alpha=0.3)
    product("a", (7, 5), (7, 9), transA=1)
    product("b", (5, 7), (9, 7), transB=1, alpha=2.0, constants=("in_1",))
    product("both", (2, 3, 7, 5), (2, 3, 9, 7), transA=1, transB=1, alpha=0.125)
    product("batch_a", (5, 2, 3, 7), (2, 3, 7, 9), transBatchA=1)
    product("batch_b", (2, 3, 5, 7), (7, 2, 3, 9), transBatchB=1)
    product("batch_all", (5, 2, 7), (9, 2, 7), transBatchA=1, transBatchB=1, transB=1)
    product("batch_all_turned", (5, 2, 7), (9, 2, 5), transBatchA=1, transA=1, transBatchB=1, transB=1)
    product("vector", (7,), (7, 9), alpha=0.5)
    product("double", (5, 7), (9, 7), transB=1, alpha=2.0, dtype=np.float64)
    product("older", (7, 5), (7, 9), op="TransposeMatMul", transA=1)
    for name, dtype in HALVES:
        product(name, (2, 5, 7), (9, 7), transB=1, alpha=0.3, dtype=dtype)

    for name, dtype in (("f32", F32),) + HALVES:
        c = Case("gelus_" + name)
        x, bias = np.clip(c.f(3, 5, 33, scale=2), -2.5, None).astype(dtype), c.f(33, dtype=dtype, scale=0.2)  # ONNX Runtime's tanh is coarse further out
        for op, inputs, more in (("Gelu", [x], {}), ("BiasGelu", [x, bias], {}), ("QuickGelu", [x], {}), ("QuickGelu", [x], {"alpha": 0.7}),
                                 ("FastGelu", [x], {}), ("FastGelu", [x, bias], {})):
            Case(f"{op.lower()}_microsoft{'_bias' if len(inputs) > 1 else ''}{'_alpha' if more else ''}_{name}").write(op, list(inputs), **more)
    c = Case("fastgelu_microsoft_long")
    c.write("FastGelu", [np.clip(c.f(4099), -2.5, None)])


def embeddings():
    def one(name, segments=True, mask=False, where=None, total=False, dtype=F32):
        c = Case("embed_layer_norm_" + name)
        inputs = [c.ints(0, 11, 2, 5, dtype=np.int32), c.ints(0, 3, 2, 5, dtype=np.int32) if segments else None, c.f(11, 24, dtype=dtype), c.f(9, 24, dtype=dtype),
                  c.f(3, 24, dtype=dtype) if segments else None, c.f(24, dtype=dtype), c.f(24, dtype=dtype),
                  c.ints(0, 2, 2, 5, dtype=np.int32) if mask else None, c.ints(0, 9, where, 5, dtype=np.int32) if where else None]
        c.write("EmbedLayerNormalization", inputs, ("out_0", "out_1", "out_2") if total else ("out_0", "out_1"),
                out_types=(dtype, np.int32, dtype)[:3 if total else 2], epsilon=1e-5)

    one("plain")
    one("no_segments", segments=False, total=True)
    one("mask", mask=True, total=True)
    one("positions", where=2)
    one("positions_shared", where=1, segments=False)
    one("f16", dtype=F16, mask=True)


def index_ops():
    """Element types and attributes that the official cases leave out; expected values by NumPy or the package onnx."""
    NUMBERS = (F32, F16, BF16, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)

    def numbers(c, dtype, *shape):
        return c.ints(-9 if np.dtype(dtype).kind != "u" else 0, 10, *shape).astype(dtype)

    def official(name, op, inputs, opset=25, n_outputs=1, want=None, **more):
        c = Case(name, "")
        want = want or reference(op, inputs, opset, n_outputs, **more)
        c.write(op, list(inputs), tuple(f"out_{i}" for i in range(n_outputs)), opset=opset, out_types=tuple(w.dtype for w in want), want=want, **more)

    for i, dtype in enumerate(NUMBERS):
        c = Case(f"index_{np.dtype(dtype).name}", "")
        end = np.dtype(dtype).name
        x = numbers(c, dtype, 3, 7, 4)
        axis = i % 3
        for largest in (0, 1):  # equal elements by rising index, which np.argsort's stable kind gives
            order = np.argsort(-x.astype(np.float64) if largest else x.astype(np.float64), axis=axis, kind="stable")
            order = np.take(order, range(3), axis)
            official(f"topk_{'large' if largest else 'small'}_{end}", "TopK", [x, np.int64([3])], 24, 2, [np.take_along_axis(x, order, axis), order],
                     axis=axis, largest=largest)
        for op in ("ArgMax", "ArgMin"):
            official(f"{op.lower()}_{end}", op, [x], 13, axis=axis - 3, keepdims=i % 2, select_last_index=i // 2 % 2)
        reductions = (None, "add", "mul", "max", "min")
        how = reductions[i % 5]
        at = c.ints(-7, 7, 3, 5, 4)
        if how is None:
            at = np.argsort(c.f(3, 7, 4), axis=1)[:, :5]
        if dtype != BF16 or how is None:
            official(f"scatter_elements_{how}_{end}", "ScatterElements", [x, at, numbers(c, dtype, 3, 5, 4)], 18, axis=1, **({"reduction": how} if how else {}))
        how = reductions[(i + 1) % 5]
        rows = np.int64([[0, 1], [2, 6], [1, 1]] if how is None else [[0, 1], [2, -1], [0, 1], [-1, 6]])
        if dtype != BF16 or how is None:
            updates, want = numbers(c, dtype, len(rows), 4), x.copy()
            places = tuple(rows.T)
            if how:
                {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[how].at(want, places, updates)
            else:
                want[places] = updates
            official(f"scatter_nd_{how}_{end}", "ScatterND", [x, rows, updates], 18, want=[want], **({"reduction": how} if how else {}))
        official(f"gather_elements_{end}", "GatherElements", [x, c.ints(-4, 4, 3, 7, 2).astype(np.int32 if i % 2 else np.int64)], axis=2)
        official(f"gather_nd_{end}", "GatherND", [x, c.ints(0, 4, 3, 7, 2, 1)], batch_dims=2)
        official(f"nonzero_{end}", "NonZero", [numbers(c, dtype, 3, 4) * c.ints(0, 2, 3, 4).astype(dtype)])
        if dtype != BF16:
            marks = numbers(c, dtype, 2, 3)
            wrapped = np.where(marks < 0, marks.astype(int) + 6, marks.astype(int))
            want = np.where(np.arange(6)[None, :, None] == wrapped[:, None, :], 5, 2).astype(dtype)
            official(f"onehot_{end}", "OneHot", [marks, np.int64(6), np.array([2, 5]).astype(dtype)], 11, want=[want], axis=1)
        if i < 4 or np.dtype(dtype).itemsize > 2:
            for exclusive, reverse in ((0, 0), (1, 1)):
                official(f"cumsum_{exclusive}{reverse}_{end}", "CumSum", [x, np.int64(axis)], 14, want=[running(x, axis, exclusive, reverse)], exclusive=exclusive, reverse=reverse)
    for dtype in (F32, np.int32, np.bool_, np.object_):
        end = "string" if dtype == np.object_ else np.dtype(dtype).name
        c = Case("unique_" + end, "")
        x = c.ints(0, 4, 4, 3) if dtype != np.object_ else np.array([f"w{n}" for n in c.ints(0, 4, 12)], object).reshape(4, 3)
        x = x if dtype == np.object_ else x.astype(dtype)
        y, first, inverse, counts = np.unique(x.astype(str) if dtype == np.object_ else x, True, True, True)
        official("unique_sorted_" + end, "Unique", [x], 11, 4, [y.astype(dtype), first, inverse.reshape(-1), counts])
        order = np.argsort(first)
        back = np.argsort(order)
        official("unique_first_" + end, "Unique", [x], 11, 4, [y[order].astype(dtype), first[order], back[inverse.reshape(-1)], counts[order]], sorted=0)
        if dtype != np.object_:
            rows = np.concatenate([x, x[1:3]])
            y, first, inverse, counts = np.unique(rows, True, True, True, axis=0)
            official("unique_rows_" + end, "Unique", [rows], 11, 4, [y, first, inverse.reshape(-1), counts], axis=0)


def gates():
    for end, dtype in (("f32", F32),) + HALVES:
        for name, shape, n, more in (("all", (2, 3, 16), 16, {}), ("groups", (2, 3, 48), 16, {"epsilon": 1e-3}), ("sigmoid", (5, 7), 7, {"activation": "sigmoid"}),
                                     ("swish", (40,), 8, {"activation": "swish"})):
            c = Case(f"gated_rms_norm_{name}_{end}")
            x, scale, gate = c.f(*shape, dtype=dtype), c.f(n, dtype=dtype), c.f(*shape, dtype=dtype, scale=3)
            groups, z = x.astype(np.float64).reshape(-1, n), gate.astype(np.float64)
            normed = groups / np.sqrt((groups**2).mean(-1, keepdims=True) + more.get("epsilon", 1e-5)) * scale.astype(np.float64)
            open_by = 1 / (1 + np.exp(-z)) * (1 if more.get("activation") == "sigmoid" else z)  # ONNX Runtime's is less exact
            c.write("GatedRMSNorm", [x, scale, gate], want=[(normed.reshape(shape) * open_by).astype(dtype)], **more)
        c = Case("linear_attention_gate_" + end)
        c.write("LinearAttentionGate", [c.f(2, 5, 6, dtype=dtype, scale=9), c.f(6), -np.exp(c.f(6)), c.f(2, 5, 6, dtype=dtype, scale=4)], ("out_0", "out_1"),
                out_types=(dtype, dtype))
        c = Case("linear_attention_gate_decay_" + end)
        c.write("LinearAttentionGate", [c.f(1, 4, 3, dtype=dtype, scale=30), c.f(3), c.f(3)])
        c = Case("gated_add_" + end)
        x, y, gate = c.f(2, 3, 8, dtype=dtype), c.f(2, 3, 8, dtype=dtype), c.f(2, 3, 1, dtype=dtype)
        wide = [a.astype(F32) for a in (x, y, gate)]
        c.write("GatedAdd", [x, y, gate], want=[(wide[0] + (wide[1] * wide[2]).astype(dtype).astype(F32)).astype(dtype)])


def mrotary():
    def one(name, sections, heads=3, size=16, dim=0, batch=2, tokens=5, four=False, dtype=F32, **more):
        c = Case("mrotary_" + name)
        half = (dim or size) // 2
        angles = np.pi / 2 * c.ints(0, 4, 30, half) if dtype != F32 else np.arange(30)[:, None] * 100.0 ** (-np.arange(half) / half)
        tables = [np.round(f(angles), 7).astype(dtype) for f in (np.cos, np.sin)]
        x = c.f(batch, heads, tokens, size, dtype=dtype) if four else c.f(batch, tokens, heads * size, dtype=dtype)
        if dim or not four:
            more.update(rotary_embedding_dim=dim, num_heads=heads)
        c.write("MRotaryEmbedding", [x, c.ints(0, 30, 3, batch, tokens), *tables], mrope_section=sections, **more)

    one("parts", [2, 3, 3])
    one("mixed", [4, 2, 2], mrope_layout=1)
    one("mixed_uneven", [3, 3, 2], mrope_layout=1)
    one("one_stream", [8, 0, 0])
    one("last_stream", [0, 0, 8], mrope_layout=0)
    one("partial", [2, 3, 3], size=24, dim=16)
    one("partial_mixed", [3, 3, 2], size=24, dim=16, mrope_layout=1)
    one("pairs", [2, 3, 3], interleaved=1)
    one("four", [2, 3, 3], four=True)
    one("four_mixed", [2, 3, 3], four=True, mrope_layout=1)
    for end, dtype in HALVES:
        one(end, [2, 3, 3], dtype=dtype)
        one("mixed_" + end, [3, 3, 2], mrope_layout=1, dtype=dtype)


def moe_shapes(c, tokens, hidden, inner, experts, fused, third, bias, dtype):
    fan = [(2 if fused else 1) * inner, hidden], [hidden, inner], [inner, hidden]
    pieces = [c.f(*tokens, hidden, dtype=dtype), c.f(int(np.prod(tokens)), experts, dtype=dtype, scale=2)]
    return pieces, [(c.f(experts, n, k, dtype=dtype, scale=1 / k**0.5), c.f(experts, n, dtype=dtype) if bias else None) for n, k in fan[: 3 if third else 2]]


def quantised_cache():
    """GroupQueryAttention with a cache of codes. The new keys are rotated by quarter turns: what is rounded must not depend on who computed it."""
    def one(name, batch=1, new=5, past=0, heads=4, kv_heads=2, size=16, bits=8, per="PER_TENSOR", lengths=None, capacity=0, dtype=F32, rotary=True, **more):
        c = Case("gqa_codes_" + name)
        total, row, kind = past + new, size // 2 if bits == 4 else size, np.uint8 if bits == 4 else np.int8
        steps = lambda *shape: (c.ints(-40, 41, *shape) / 16 + 1 / 64).astype(dtype)  # never half way between two codes
        scales = lambda: (c.ints(1, 4, 1, kv_heads, 1, size) / 4 if per == "PER_CHANNEL" else c.ints(1, 4, 1) / 4).astype(F32)
        kept = capacity or past
        cache = [c.ints(0, 256, batch, kv_heads, kept, row).astype(np.uint8).view(kind) for _ in range(2)]
        tables = [np.round(f(np.pi / 2 * c.ints(0, 4, total + 3, size // 2))).astype(dtype) for f in (np.cos, np.sin)]
        inputs = [c.f(batch, new, heads * size, dtype=dtype), steps(batch, new, kv_heads * size), steps(batch, new, kv_heads * size), *cache,
                  np.array(lengths or [total] * batch, np.int32) - 1, np.array([total], np.int32), *(tables if rotary else [None, None]), None, None, None, scales(), scales()]
        c.write("GroupQueryAttention", inputs, ("out_0", "out_1", "out_2"), out_types=(dtype, kind, kind), num_heads=heads, kv_num_heads=kv_heads, do_rotary=int(rotary),
                k_quant_type=per, v_quant_type=per, kv_cache_bit_width=bits, **more)

    for bits in (8, 4):
        for per in ("PER_TENSOR", "PER_CHANNEL"):
            end = f"{bits}_{per[4:].lower()}"
            one("prompt_" + end, bits=bits, per=per)
            one("decode_" + end, bits=bits, per=per, new=1, past=9)
    one("chunk", new=4, past=7)
    one("ragged", batch=3, new=1, past=9, lengths=[10, 4, 7], per="PER_CHANNEL")
    one("capacity", new=1, past=6, capacity=24, bits=4)
    one("window", new=1, past=20, local_window_size=6, per="PER_CHANNEL")
    one("f16", dtype=F16, new=3)


def experts_by_hand(x, scores, fc, k, activation, fusion=0, normalise=False, sparse=False, mixing=None):
    """What ONNX Runtime's CPU leaves out: SwiGLU in halves or in two matrices, a third matrix, SparseMixer (after Phi-3.5-MoE in transformers)."""
    rows, y = x.reshape(-1, x.shape[-1]).astype(np.float64), np.zeros((x.size // x.shape[-1], x.shape[-1]))
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    for t, row in enumerate(rows):
        s = scores[t].astype(np.float64)
        top = np.argsort(-s, kind="stable")[:k]
        weights = (np.exp(s - s.max()) / np.exp(s - s.max()).sum() if mixing is None else mixing[t])[top]
        if sparse:
            weights = []
            for j, e in enumerate(top):
                free = np.array([i not in top[:j] for i in range(len(s))])
                near = free & ~((s[e] - s) / np.maximum(np.abs(s), s[e]) > 0.02)
                weights.append(np.exp(s[e]) / np.exp(s[near]).sum())
        for e, weight in zip(top, np.asarray(weights) / (np.sum(weights) if normalise else 1)):
            out = [w[e].astype(np.float64) @ row + (0 if b is None else b[e]) for w, b in (fc[0], *fc[2:])]
            half = len(out[0]) // 2
            gate, linear = (out[0][:half], out[0][half:]) if fusion == 2 else (out[0][0::2], out[0][1::2]) if fusion == 1 else (out[0], out[1])
            inner = (gate * sigmoid(gate) if activation in ("silu", "swiglu") else np.maximum(gate, 0)) * linear
            y[t] += weight * (fc[1][0][e].astype(np.float64) @ inner + (0 if fc[1][1] is None else fc[1][1][e]))
    return y.reshape(x.shape).astype(x.dtype)


def quantised(c, shape, bits, block, zeros):
    """Codes, scales, zero points of weights [experts, n, k] as QMoE has them, and the weights that they stand for."""
    count, n, k = shape
    across = block or k
    middle = 2 ** (bits - 1)
    codes = c.ints(0, 2 * middle, count, n, k // across, across)
    scales = np.abs(c.f(count, n, k // across, scale=2 / (middle * k**0.5))) + np.float32(1e-3)
    points = c.ints(middle - 1, middle + 2, count, n, k // across) if zeros else np.full((count, n, k // across), middle)
    weights = ((codes - points[..., None]) * scales[..., None]).reshape(shape)
    fold = lambda a: sum((np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, -a.shape[-1] % (8 // bits))])[..., i :: 8 // bits] << bits * i) for i in range(8 // bits)).astype(np.uint8)
    if not block:
        scales, points = scales[..., 0], points[..., 0]
    return fold(codes.reshape(shape)), scales, fold(points) if zeros else None, weights


def qmoe():
    def one(name, tokens=(2, 4), hidden=64, inner=32, experts=3, k=2, bits=(4, 4, 4), block=32, zeros=False, third=False, bias=True, mixing=False, by_hand=None,
            dtype=F32, activation_type="swiglu", **more):
        c = Case("qmoe_" + name)
        fused = activation_type == "swiglu" and not third
        more.setdefault("normalize_routing_weights", 1)
        if fused:
            more.setdefault("swiglu_fusion", 1)
        x, scores = c.f(*tokens, hidden, dtype=dtype), c.f(int(np.prod(tokens)), experts, dtype=dtype, scale=2)
        fan = [((2 if fused else 1) * inner, hidden), (hidden, inner), (inner, hidden)][: 3 if third else 2]
        parts = [quantised(c, (experts, *shape), bits[i], block, zeros) for i, shape in enumerate(fan)]
        biases = [c.f(experts, shape[0], dtype=dtype) if bias else None for shape in fan]
        inputs = [x, scores]
        for (codes, scales, _, _), b in zip(parts, biases):
            inputs += [codes, scales.astype(dtype) if dtype == BF16 else scales, b]
        inputs += [None] * (11 - len(inputs)) + [p[2] for p in parts] + [None] * (3 - len(parts))
        inputs.append(np.abs(c.f(len(scores), experts, dtype=dtype)) if mixing else None)
        inputs += [None]
        for i, wide in enumerate(bits[: len(parts)]):
            if wide != bits[0]:
                more[f"fc{i + 1}_expert_weight_bits"] = wide
        want = None
        if by_hand:
            want = [experts_by_hand(x, scores, [(p[3], b) for p, b in zip(parts, biases)], k, activation_type, more.get("swiglu_fusion", 0),
                                    more["normalize_routing_weights"], mixing=inputs[14])]
        constant = [f"in_{i}" for i, a in enumerate(inputs[:14]) if i > 1 and a is not None and i not in (4, 7, 10)]
        c.write("QMoE", inputs, k=k, expert_weight_bits=bits[0], constants=constant, want=want, activation_type=activation_type,
                **({"block_size": block} if block else {}), **more)

    one("blocks")
    one("blocks_zeros", zeros=True, block=16, inner=48, by_hand=True)
    one("rows", block=0)
    one("rows_zeros", block=0, zeros=True, inner=20, by_hand=True)
    one("bytes", bits=(8, 8), block=0)
    one("bytes_zeros", bits=(8, 8), zeros=True, by_hand=True)
    one("bits_2", bits=(2, 2), by_hand=True)
    one("bits_mixed", bits=(4, 8), by_hand=True)
    one("limit", activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.5)
    one("halves", swiglu_fusion=2, by_hand=True)
    one("third", third=True, by_hand=True, bits=(4, 4, 8), bias=False)
    one("third_silu", third=True, activation_type="silu", by_hand=True, zeros=True)
    one("relu", activation_type="relu", inner=22, block=0)
    one("mixing", mixing=True, normalize_routing_weights=0)
    one("mixing_normalised", mixing=True)
    one("not_normalised", normalize_routing_weights=0, by_hand=True)  # ONNX Runtime's CPU does so all the same
    one("many_tokens", tokens=(280,), hidden=32, inner=16, block=16, experts=2, k=1, bias=False, by_hand=True)
    one("f16", dtype=F16)


def moe():
    def one(name, tokens=(2, 5), hidden=12, inner=20, experts=5, k=2, fusion=0, third=False, bias=True, dtype=F32, want=None, constants=(), **more):
        c = Case("moe_" + name)
        inputs, fc = moe_shapes(c, tokens, hidden, inner, experts, fusion and more.get("activation_type") == "swiglu", third, bias, dtype)
        for weights, b in fc:
            inputs += [weights, b]
        c.write("MoE", inputs, k=k, want=want and want(inputs), constants=constants, **more, **({"swiglu_fusion": fusion} if fusion else {}))

    for name in ("relu", "gelu", "silu", "identity"):
        one(name, activation_type=name)
    one("one", k=1)
    one("all", k=5, normalize_routing_weights=1)
    one("flat", tokens=(9,), activation_type="silu", bias=False)
    one("normalised", activation_type="silu", k=3, normalize_routing_weights=1)
    one("swiglu", fusion=1, activation_type="swiglu", normalize_routing_weights=1)
    one("swiglu_limit", fusion=1, activation_type="swiglu", activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.4, normalize_routing_weights=1)
    for name, more in (("swiglu_halves", {"fusion": 2, "activation_type": "swiglu"}), ("swiglu_third", {"third": True, "activation_type": "swiglu"}),
                       ("silu_third", {"third": True, "activation_type": "silu"}), ("sparse", {"third": True, "activation_type": "silu", "use_sparse_mixer": 1})):
        by_hand = lambda a, m=more: [experts_by_hand(a[0], a[1], list(zip(a[2::2], a[3::2])), 2, m["activation_type"], m.get("fusion", 0), sparse="use_sparse_mixer" in m)]
        one(name, want=by_hand, **more)
    one("constants", fusion=1, activation_type="swiglu", hidden=33, inner=17, constants=("in_2", "in_4"))
    for end, dtype in HALVES:
        one(end, fusion=1, activation_type="swiglu", dtype=dtype)


def running(x, axis, exclusive, reverse):
    y = np.flip(x, axis) if reverse else x
    wide = y.astype(np.float64) if np.dtype(x.dtype).kind not in "iu" else y
    total = np.cumsum(wide, axis)
    total = total - wide if exclusive else total
    return (np.flip(total, axis) if reverse else total).astype(x.dtype)


def einsum():
    cases = (("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)), ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5)), ("ij,jk", (3, 4), (4, 5)), ("ij->", (3, 4)),
             ("ii->i", (4, 4)), ("ii", (4, 4)), ("iij,j->i", (3, 3, 4), (4,)), ("abc,cd,de->abe", (2, 3, 4), (4, 5), (5, 2)), ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
             ("...i->i...", (2, 3, 4)), ("i,j->ij", (3,), (4,)), ("bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)), ("ab,cd->", (2, 3), (4, 5)), ("abcd,abcd->", (2, 3, 2, 2), (2, 3, 2, 2)),
             ("ab , bc -> ca", (2, 3), (3, 4)), ("aBc,Bd->acd", (2, 3, 4), (3, 5)), ("i...,i->...", (3, 2, 4), (3,)), ("ab,ab,ab->b", (3, 4), (3, 4), (3, 4)),
             ("abcd,acbe->abde", (2, 3, 4, 5), (2, 4, 3, 6)), ("ijkl,kl->ij", (2, 3, 4, 5), (4, 5)), ("ij,kj->ik", (0, 3), (4, 3)), ("ij,jk->ik", (2, 0), (0, 3)))
    for i, (equation, *shapes) in enumerate(cases):
        for dtype in (F32,) + ((np.float64, np.int64, np.int8, F16, np.uint16)[i % 5],):
            c = Case(f"einsum_{i:02}_{np.dtype(dtype).name}", "")
            inputs = [c.ints(0, 4, *s).astype(dtype) for s in shapes]
            want = np.asarray(np.einsum(equation, *(a.astype(np.float64) if a.dtype == F16 else a for a in inputs))).astype(dtype)
            c.write("Einsum", inputs, equation=equation, want=[want])


GROUPS = (quantised_cache, moe, qmoe, einsum, gates, mrotary, index_ops, attention, fused, embeddings, int8_products, linear_quantize, multi_head, decoder_masked, causal_conv, linear_attention)


def write(names=()):
    for group in GROUPS:
        if not names or group.__name__ in names:
            group()


if __name__ == "__main__":
    write(sys.argv[1:])
