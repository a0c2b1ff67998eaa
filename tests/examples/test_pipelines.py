"""The five example folders, one per shape of pipeline: each request gives the tokens that ONNX Runtime gives without caches or plan
(examples/pipelines/make.py), on both engines; and docs/pipelines.md shows what explain prints."""
import json
import os
import re
import subprocess

import drive
import testing

work = testing.temp_dir()
ROOT = testing.source("examples/pipelines")
NAMES = sorted(n for n in os.listdir(ROOT) if os.path.isdir(os.path.join(ROOT, n)))


def plugins():
    folder = os.path.join(work.name, "plugins")
    os.makedirs(folder, exist_ok=True)
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", testing.source("include"),
                    testing.source("examples/plugins/rnnt.c"), "-o", os.path.join(folder, "libgenai_rnnt.so")], check=True)
    return folder


def tensors(case):
    import numpy as np
    files = {}
    for key, value in case.get("tensors", {}).items():
        files[key] = os.path.join(work.name, key + ".npy")
        np.save(files[key], np.array(value["data"], value["dtype"]).reshape(value["shape"]))
    return files


def check(*more):
    testing.equal(len(NAMES), 5)
    for name in NAMES:
        cases = json.load(open(os.path.join(ROOT, name, "golden.json"), encoding="utf-8"))
        with drive.Drive(os.path.join(ROOT, name), "--quiet", "--allow-plugins", plugins(), *more) as d:
            for i, case in enumerate(cases):
                got = d.ask(op="generate", prompts=[case["prompt"]], tensors=tensors(case), options={"max_new_tokens": max(8, len(case["tokens"]))})
                testing.equal(got["tokens"], [case["tokens"]], f"{name} case {i}")
        assert cases


def test_light():
    check()


def test_ort():
    check("--engine", "ort", "--ort-lib", testing.ort_library())


def test_docs():
    """Every block of docs/pipelines.md that follows a command is what that command prints."""
    text = open(testing.source("docs/pipelines.md"), encoding="utf-8").read()
    blocks = re.findall(r"\n    \$ treadle (explain examples/pipelines/[^\n]*)\n\n?((?:    [^\n]*\n|\n)+)", text)
    testing.equal(len(blocks), len(NAMES))
    for command, block in blocks:
        words = command.replace(" plugins", " " + plugins()).split()
        done = testing.treadle(*words, cwd=testing.source("."))
        testing.equal(done.returncode, 0, done.stderr)
        want = "\n".join(line[4:] for line in block.rstrip("\n").split("\n"))
        testing.equal(done.stdout.split("\nplan\n", 1)[1].rstrip("\n"), want, command)


testing.main()
