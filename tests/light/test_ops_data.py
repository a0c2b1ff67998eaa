"""The one-op models of tests/light/ops (make_op_data.py) and ops_neural (make_neural_data.py) on every instruction set, with passes on
and off.

timeout: 300
"""
import os

import testing

OPS = [testing.source("tests/light/" + folder) for folder in ("ops", "ops_neural")]


def run_all(passes, cpu):
    out = testing.treadle_json("conformance", *OPS, "--passes", passes, "--json", env={**os.environ, "TREADLE_CPU": cpu})
    odd = [c for c in out["cases"] if c["result"] != "passed"]
    testing.equal(odd, [])
    testing.equal(out["passed"], sum(len(os.listdir(folder)) for folder in OPS))


def test_plain_c():
    run_all("all", "none")
    run_all("none", "none")


def test_avx2():
    run_all("all", "avx2")


def test_best():
    run_all("all", "all")
    run_all("none", "all")


testing.main()
