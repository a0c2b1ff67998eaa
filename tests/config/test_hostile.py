"""Configs made to hurt: every one ends in messages before weights are read, in no time and little memory, and never in a crash."""
import json
import os
import resource
import shutil

import testing

DECODER = {"decoder": {"file": "model.onnx"}}


def v2(pipeline=None, **more):
    return {"version": 2, "pipeline": {"sessions": DECODER, **(pipeline or {})}, **more}


def stages(n, **fields):
    return {"model": {"decoder": {"pipeline": [{f"s{i}": {"filename": "model.onnx", **fields}} for i in range(n)]}}}


def names(n):
    return {f"n{i}": f"x{i}" for i in range(n)}


# (what, config, whether it is an error)
CASES = [
    ("ten thousand sessions", {"version": 2, "pipeline": {"sessions": {f"s{i}": {"file": "model.onnx"} for i in range(10000)}}}, True),
    ("as many sessions as allowed", {"version": 2, "pipeline": {"sessions": {f"s{i}": {"file": "model.onnx"} for i in range(256)}}}, True),
    ("wires", v2({"dataflow": [{"from": "decoder.logits", "to": "decoder.input_ids"}] * 100000}), True),
    ("wrong wires", v2({"dataflow": [{"from": f"decoder.x{i}", "to": "decoder.y"} for i in range(4000)]}), True),
    ("end tokens", v2(tokens={"eos": list(range(1000000))}), True),
    ("suppressed tokens", v2(generation={"suppress": list(range(1000000))}), True),
    ("unknown keys", v2(**{f"k{i}": 1 for i in range(100000)}), False),
    ("a long name", v2({"flow": [{"run": "x" * 10000000}]}), True),
    ("a long key", v2(**{"y" * 10000000: 1}), False),
    ("state pairs", v2({"state": {"recurrent": [{"input": f"a{i}", "output": "b"} for i in range(4000)]}}), True),
    ("renames", {"version": 2, "pipeline": {"sessions": {"decoder": {"file": "model.onnx", "io": {"inputs": names(100000)}}}}}, True),
    ("wrong renames", {"version": 2, "pipeline": {"sessions": {"decoder": {"file": "model.onnx", "io": {"inputs": names(4000)}}}}}, True),
    ("languages", v2(generation={"transcription": {"languages": {f"l{i}": i for i in range(200000)}}}), True),
    ("metadata", v2(metadata=["x" * 100] * 400000), False),
    ("stop strings", v2(generation={"stop": ["x"] * 100000}), True),
    ("stages", stages(20000), True),
    ("forwarded names", stages(60, inputs=["a"] * 50, output_names_forwarder={f"o{k}": "a" for k in range(50)}), True),
    ("layers", {"model": {"decoder": {"filename": "model.onnx", "layer_types": ["conv"] * 100000, "inputs": {"past_conv_names": "a%d"},
                                      "outputs": {"present_conv_names": "b%d"}}}}, False),
]


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def test_hostile_configs():
    more = {} if testing.sanitized() else {"preexec_fn": limit_memory}
    with testing.temp_dir() as temp:
        shutil.copy(testing.source("tests/data/pipelines/concat/model.onnx"), temp)
        for what, config, wrong in CASES:
            with open(os.path.join(temp, "genai_config.json"), "w", encoding="utf-8") as f:
                json.dump(config, f)
            run = testing.treadle("check", temp, timeout=60, **more)
            testing.equal((run.returncode, run.stderr), (3 if wrong else 0, ""), what)
            testing.equal(len(run.stdout) < 1 << 20, True, what)
        for depth in (100, 100000):
            with open(os.path.join(temp, "genai_config.json"), "w", encoding="utf-8") as f:
                f.write('{"version": 2, "metadata": ' + '{"a":' * depth)
            run = testing.treadle("check", temp, timeout=60, **more)
            testing.equal(run.returncode, 3)


testing.main()
