# Every weight format decoded bit for bit (build --quantize none): the golden blocks, and random blocks against PyPI gguf.
import json
import os

import checkpoints
import gguf
import numpy as np
import onnx
import testing

KINDS = ("Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS IQ1_M TQ1_0 TQ2_0 MXFP4 NVFP4").split()


def decoded(kind, raw, columns):
    """What the compiler makes of rows of raw blocks, through an embedding table."""
    with testing.temp_dir() as temp:
        source, out = os.path.join(temp, "m.gguf"), os.path.join(temp, "out")
        checkpoints.write(source, gguf.GGMLQuantizationType.F32, hidden=columns, heads=2, kv_heads=1, ffn=32, vocab=len(raw), context=4,
                          embed_kind=kind, embed_raw=raw)
        checkpoints.build(source, out, "--quantize", "none")
        model = onnx.load(os.path.join(out, "model.onnx"))
        table = next(t for t in model.graph.initializer if t.name == "token_embd.weight")
        return onnx.numpy_helper.to_array(table).astype(np.float32)


def same_bits(name, got, want):
    testing.equal(got.shape, want.shape, name)
    with np.errstate(invalid="ignore"):
        same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), f"{name}: {np.count_nonzero(~same)} of {same.size} values differ"


def test_golden_blocks():
    with testing.temp_dir() as temp:
        folder = os.path.join(checkpoints.unpack(temp), "gguf_blocks")
        arrays = np.load(os.path.join(folder, "golden.npz"))
        for name, t in json.load(open(os.path.join(folder, "golden.json"), encoding="utf-8"))["types"].items():
            kind = gguf.GGMLQuantizationType(t["ggml_type"])
            raw = arrays[name + "_raw"]
            if t["block_values"] == 1:
                raw = raw.view(np.float16 if name == "F16" else np.uint8)
            same_bits(name, decoded(kind, raw, t["row_values"]), arrays[name + "_f32"])


def test_random_blocks():
    rng = np.random.default_rng(1)
    for name in KINDS:
        kind = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        columns = 2 * max(block, 64)
        raw = rng.integers(0, 256, (40, columns // block * size), dtype=np.uint8)
        with np.errstate(all="ignore"):
            want = gguf.quants.dequantize(raw, kind).astype(np.float32)
        # Infinities and NaNs in scales: any NaN will do, and zero times infinity is one.
        same_bits(name, decoded(kind, raw, columns), want)


testing.main()
