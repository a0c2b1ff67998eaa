"""Writes tests/light/data/regex.txt: patterns, texts, and whether ONNX Runtime's RE2 matches (RegexFullMatch).

Run with a Python that has onnx, onnxruntime and numpy:  python tests/light/make_regex_data.py
A line is pattern, text, 0 or 1 with tabs between; backslashes, tabs and line ends of both are escaped as in C. A pattern that RE2
refuses has the text "-" and the answer "!".
"""
import os
import random

import numpy as np
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "regex.txt")
rng = random.Random(3)
ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "[a-c0-3]", r"\W", "é", "(?i)B", r"\.", "[[:alpha:]]", r"[\d_-]", r"\x41", r"\x{e9}",
         r"\b", r"\B", "^", "$", "(?:)", r"[^\s]", r"\Qa.b\E", "[]a]", "(?s).", "(?m)^", "(?m)$", "(?P<n>a)", "[[:^digit:]]", r"\101", "[^\\n]"]
TIMES = ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "{0}", "{3,5}", "+?", "{0,}", "{,2}", "{a"]
WRONG = ["(", ")", "[", "[b-a]", "*", "a**", "a{3,2}", "a{1001}", r"\8", "(?<", "(?z)a", "[[:what:]]", "\\", r"\x{110000}", "a|*", "(?P<n"]


def pattern(depth=0):
    k = rng.random()
    if depth > 3 or k < 0.4:
        return rng.choice(ATOMS)
    if k < 0.6:
        return pattern(depth + 1) + pattern(depth + 1)
    if k < 0.75:
        return "(" + "|".join(pattern(depth + 1) for _ in range(rng.choice((2, 2, 3)))) + ")"
    return "(?:" + pattern(depth + 1) + ")" + rng.choice(TIMES)


def text():
    return "".join(rng.choice(["a", "b", "c", "A", "B", "1", "_", " ", "é", "É", ".", "-", "\n", "]"]) for _ in range(rng.randrange(7)))


def escape(s):
    return s.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def answers(p, texts):
    graph = h.make_graph([h.make_node("RegexFullMatch", ["x"], ["y"], pattern=p)], "g", [h.make_tensor_value_info("x", T.STRING, [None])],
                         [h.make_tensor_value_info("y", T.BOOL, [None])])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9)
    try:
        session = ort.InferenceSession(model.SerializeToString())
    except Exception:
        return None
    return session.run(None, {"x": np.array(texts, dtype=object)})[0]


lines = []
for p in WRONG:
    assert answers(p, ["a"]) is None, p
    lines.append(f"{escape(p)}\t-\t!")
while len(lines) < 1200:
    p, texts = pattern(), ["", "a"] + [text() for _ in range(60)]
    found = answers(p, texts)
    if found is None or len(p) > 60:
        continue
    chosen = [i for i, y in enumerate(found) if y][:3] + [i for i, y in enumerate(found) if not y][:2]
    lines += [f"{escape(p)}\t{escape(texts[i])}\t{int(found[i])}" for i in chosen]
with open(OUT, "w", encoding="utf-8") as f:
    f.write("\n".join(lines) + "\n")
