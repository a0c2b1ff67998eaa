# Compiled graphs in ONNX Runtime: the goldens of tiny-checkpoints, every weight format, and every feature of the llama row.
# timeout: 400
import json
import os

import checkpoints
import gguf
import numpy as np
import testing

KINDS = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ3_S IQ2_XXS IQ1_M TQ2_0 MXFP4 NVFP4".split()
IDS = [3, 60, 7, 7, 41, 0, 12, 33, 5]


def check_reference(truth, session, tolerance=3e-4, **parameters):
    """All at once and token by token against float64; the tolerance grows with the logits."""
    want = checkpoints.reference(truth, IDS, **parameters)
    tolerance *= max(1, np.abs(want).max() / 10)
    testing.near(session.step(IDS), want, tolerance, "prefill")
    session.reset()
    rows = [session.step([i])[-1] for i in IDS]
    testing.near(np.array(rows), want, tolerance, "token by token")


def test_goldens():
    with testing.temp_dir() as temp:
        root = checkpoints.unpack(temp)
        for name in checkpoints.NAMES:
            folder, out = os.path.join(root, name), os.path.join(temp, "out-" + name)
            golden = json.load(open(os.path.join(folder, "golden.json"), encoding="utf-8"))
            arrays = np.load(os.path.join(folder, "golden.npz"))
            checkpoints.build(os.path.join(folder, "model.gguf"), out)
            session = checkpoints.Session(out)
            for i, prompt in enumerate(golden["prompts"]):
                session.reset()
                logits = session.step(prompt)
                testing.near(logits[arrays[f"rows_prompt{i}"]], arrays[f"logits_prompt{i}"], golden["atol"], f"{name} prompt {i}")
                got = [int(logits[-1].argmax())]
                while len(got) < len(golden["greedy"][i]):
                    got.append(int(session.step([got[-1]])[-1].argmax()))
                testing.equal(got, golden["greedy"][i], f"{name} greedy {i}")


def test_every_format():
    problems = []
    for name in KINDS:
        with testing.temp_dir() as temp:
            source, out = os.path.join(temp, "m.gguf"), os.path.join(temp, "out")
            truth = checkpoints.write(source, gguf.GGMLQuantizationType[name])
            checkpoints.build(source, out)
            try:
                check_reference(truth, checkpoints.Session(out))
            except Exception as problem:
                problems.append(f"{name}: {problem}")
    testing.equal(problems, [])


def test_decoded():
    with testing.temp_dir() as temp:
        source, out = os.path.join(temp, "m.gguf"), os.path.join(temp, "out")
        truth = checkpoints.write(source, gguf.GGMLQuantizationType.Q4_K)
        checkpoints.build(source, out, "--quantize", "none")
        check_reference(truth, checkpoints.Session(out))


def test_features():
    kind = gguf.GGMLQuantizationType.Q8_0
    yarn = [("llama.rope.scaling.type", "yarn"), ("llama.rope.scaling.factor", 4.0), ("llama.rope.scaling.original_context_length", 16)]
    d = 64
    f = 10000.0 ** (-np.arange(0, d, 2) / d)
    turns = lambda beta: d * np.log(16 / (beta * 2 * np.pi)) / (2 * np.log(10000.0))
    low, high = max(0, np.floor(turns(32))), min(d - 1, np.ceil(turns(1)))
    ramp = np.clip((np.arange(d // 2) - low) / max(0.001, high - low), 0, 1)
    cases = {
        "separate head, biases": (dict(tied=False, biases=True), {}),
        "rope_freqs": (dict(freqs=True), {}),
        "linear scaling": (dict(extra=[("llama.rope.scaling.type", "linear"), ("llama.rope.scaling.factor", 2.0)]), dict(frequency=f / 2)),
        "yarn": (dict(extra=yarn), dict(frequency=f / 4 * ramp + f * (1 - ramp), magnitude=1 + 0.1 * np.log(4))),
        "freq_base": (dict(extra=[("llama.rope.freq_base", 500.0)]), dict(base=500.0)),
        "two layers, one kv head": (dict(layers=2, kv_heads=1), dict(layers=2, kv_heads=1)),
        "head size 8": (dict(heads=32, kv_heads=4, biases=True), dict(heads=32, kv_heads=4)),
        "4-bit embedding with minima": (dict(embed_kind=gguf.GGMLQuantizationType.Q4_1), {}),
        "3-bit embedding": (dict(embed_kind=gguf.GGMLQuantizationType.Q3_K), {}),
    }
    for name, (made, wanted) in cases.items():
        with testing.temp_dir() as temp:
            source, out = os.path.join(temp, "m.gguf"), os.path.join(temp, "out")
            truth = checkpoints.write(source, kind, **made)
            checkpoints.build(source, out)
            try:
                check_reference(truth, checkpoints.Session(out), **wanted)
            except AssertionError as problem:
                raise AssertionError(f"{name}: {problem}") from problem


def test_batch_with_padding():
    """Rows of unequal length, padded on the right, are what they are alone."""
    for heads, kv in ((4, 2), (32, 4)):
        with testing.temp_dir() as temp:
            source, out = os.path.join(temp, "m.gguf"), os.path.join(temp, "out")
            truth = checkpoints.write(source, gguf.GGMLQuantizationType.F32, heads=heads, kv_heads=kv)
            checkpoints.build(source, out)
            session = checkpoints.Session(out)
            feeds = {k: np.zeros((2,) + v.shape[1:], np.float32) for k, v in session.past.items()}
            mask = np.array([[1] * 9, [1] * 5 + [0] * 4], np.int64)
            feeds.update(input_ids=np.array([IDS, IDS[:5] + [0] * 4], np.int64), attention_mask=mask)
            if heads == 32:
                feeds["position_ids"] = np.maximum(mask.cumsum(1) - 1, 0)
            logits = session.session.run(["logits"], feeds)[0]
            want = checkpoints.reference(truth, IDS, heads=heads, kv_heads=kv)
            testing.near(logits[0], want, 3e-4)
            testing.near(logits[1][:5], want[:5], 3e-4)


testing.main()
