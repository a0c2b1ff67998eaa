# timeout: 300
"""`treadle verify`: two engines agree on a model, an engine equals itself, a difference beyond the tolerance fails."""
import json
import os
import tarfile

import numpy as np

import testing
import tiny

model = tiny.Model()
work = testing.temp_dir()


def verify(*arguments, folder=model.folder, **more):
    return testing.treadle("verify", folder, "--ort-lib", testing.ort_library(), "--activations", "float", *arguments, **more)


def test_engines_agree():
    run = verify("--json")
    testing.equal((run.returncode, run.stderr), (0, ""))
    answer = json.loads(run.stdout)
    testing.equal(answer["engines"], ["light", "ort"])
    testing.equal(len(answer["prompts"]), 3)
    testing.equal((answer["agree"], answer["steps"], answer["same_best"]), (True, 96, 96))
    assert 0 < answer["max_abs_diff"] < 1e-3, answer
    text = verify("-n", 4, "-p", "hello the", "--ids", "5,6,7").stdout.splitlines()
    assert text[0].startswith("prompt 1: 3 tokens, 4 steps, same best token in 4"), text
    assert text[1].startswith("prompt 2: 2 tokens"), text  # "hello", " the"
    assert text[-1].startswith("light and ort agree: 8 steps"), text


def test_one_engine_equals_itself():
    for engine in ("light", "ort"):
        answer = json.loads(verify("--engine", engine, "--against", engine, "--json", "-n", 8).stdout)
        testing.equal((answer["engines"], answer["max_abs_diff"], answer["agree"]), ([engine, engine], 0, True))


def test_a_difference_is_found():
    strict = verify("--tolerance", 0, "--json")
    testing.equal((strict.returncode, strict.stderr), (1, ""))
    testing.equal(json.loads(strict.stdout)["agree"], False)
    text = verify("--tolerance", 0)
    testing.equal(text.returncode, 1)
    assert "light and ort disagree" in text.stdout, text.stdout


def test_every_kind_of_pipeline():
    """Encoder and decoder, recurrent state, several sessions, beams in the config, embeddings, tensors beside the prompt."""
    root = os.path.join(work.name, "pipelines")
    with tarfile.open(testing.shared("data/pipelines.tar.xz")) as archive:
        trust = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
        archive.extractall(work.name, **trust)
    for name, steps in (("b01-concat-f32", 18), ("b09-encdec-cross", 18), ("b11-hybrid", 18), ("b13-staged-three", 18), ("b21-beam", 18), ("b20-embed-mean", 3)):
        run = verify("-n", 6, "--json", folder=os.path.join(root, name))
        testing.equal((run.returncode, run.stderr), (0, ""), name)
        answer = json.loads(run.stdout)
        testing.equal((answer["agree"], answer["steps"]), (True, steps), name)
    run = verify(folder=os.path.join(root, "b10-speech-cross"))
    testing.equal((run.returncode, run.stdout), (2, ""), run.stderr)  # its tensor is not given
    features = os.path.join(work.name, "features.npy")
    golden = json.load(open(os.path.join(root, "b10-speech-cross", "golden.json"), encoding="utf-8"))
    case = next(c for c in golden["cases"] if c.get("tensors"))
    name, ref = next(iter(case["tensors"].items()))
    np.save(features, np.load(os.path.join(root, "b10-speech-cross", "golden.npz"))[ref["npz"]])
    answer = json.loads(verify("-i", f"{name}={features}", "-n", 6, "--json", folder=os.path.join(root, "b10-speech-cross")).stdout)
    testing.equal((answer["agree"], len(answer["prompts"])), (True, 1))
    assert answer["steps"] > 0, answer


def test_wrong_use():
    for arguments in (("--against", "warp"), ("-n", 0), ("--tolerance", -1), ("--ids", "1,x"), ("-p", "")):
        run = verify(*arguments)
        testing.equal(run.returncode, 2, arguments)
        assert run.stderr and not run.stdout, run
    run = testing.treadle("verify", model.folder, "--ort-lib", "/no/such/library.so")
    testing.equal(run.returncode, 3)
    assert "ONNX Runtime was not found. Tried: /no/such/library.so" in run.stderr, run.stderr
    run = verify(folder="/no/such/folder")
    testing.equal(run.returncode, 3)


testing.main()
