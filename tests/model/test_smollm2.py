# timeout: 900
# labels: model
"""SmolLM2-135M-Instruct, from the GGUF file to text, against results that are not ours.

With TREADLE_SHARED: ids and logits of transformers (real-models/smollm2-135m.json). Always: ONNX Runtime on the graph that
`treadle build --accuracy-level 0` writes."""
import json
import os
import signal
import subprocess
import time

import numpy as np

import drive
import testing

GGUF = "cache/SmolLM2-135M-Instruct.Q4_1.gguf"
CLOSE = 0.1        # a golden margin below this does not decide a token
N_ORT_TOKENS = 12  # generated for the comparison with ONNX Runtime
SLOW = testing.sanitized()  # then the short prompts and the first tokens alone

work = testing.temp_dir()
built = {}


def folder(level):
    """The model compiled at an accuracy level, once."""
    if level not in built:
        out = os.path.join(work.name, f"level{level}")
        run = testing.treadle("build", testing.model(GGUF), "-o", out, "--accuracy-level", level)
        testing.equal((run.returncode, run.stdout), (0, ""), run.stderr)
        built[level] = out
    return built[level]


def golden():
    with open(testing.shared("data/real-models/smollm2-135m.json"), encoding="utf-8") as f:
        prompts = json.load(f)["prompts"]
    if not SLOW:
        return prompts
    for p in prompts:
        del p["generated_ids"][6:]
    return [p for p in prompts if len(p["prompt_ids"]) < 50]


def nll(logits, ids):
    """Mean negative log likelihood of each id after those before it."""
    rows = logits[:-1].astype(np.float64)
    top = rows.max(axis=1)
    logsumexp = top + np.log(np.exp(rows - top[:, None]).sum(axis=1))
    return float((logsumexp - rows[np.arange(len(rows)), ids[1:]]).mean())


def test_rendered_prompts():
    for p in golden():
        run = testing.treadle("template", folder(4), "-p", p["user_text"])
        testing.equal((run.returncode, run.stdout), (0, p["rendered"]), p["name"])


def test_prompt_ids():
    for p in golden():
        answer = testing.treadle_json("tokenize", folder(4), "--json", "-f", "-", stdin=p["rendered"])
        testing.equal(answer["ids"], p["prompt_ids"], p["name"])
        run = testing.treadle("detokenize", folder(4), "--ids", ",".join(map(str, p["prompt_ids"])))
        testing.equal(run.stdout, p["rendered"] + "\n", p["name"])


def follow(d, p):
    """Greedy from the prompt; where a step whose golden margin is small differs, goes on from the golden's own tokens.
    Returns the steps that differ."""
    want, differing, at = p["generated_ids"], [], 0
    while at < len(want):
        got = d.ask(op="generate", prompts=[p["prompt_ids"] + want[:at]],
                    options={"max_new_tokens": len(want) - at, "eos": []})["tokens"][0]
        same = next((i for i, (a, b) in enumerate(zip(got, want[at:])) if a != b), len(got))
        at += same
        if at == len(want):
            break
        margin = p["steps_id_logit_margin_second"][at][2]
        assert margin < CLOSE, f"{p['name']}: new token {at} is {got[same]}, expected {want[at]} by a margin of {margin:.3f}"
        differing.append(at)
        at += 1
    return differing


def test_float_activations_give_the_golden_tokens():
    with drive.Drive(folder(4), "--activations", "float") as d:
        for p in golden():
            for step in follow(d, p):
                margin = p["steps_id_logit_margin_second"][step][2]
                print(f"note: {p['name']}: new token {step} differs; the golden's margin there is {margin:.3f}")


def test_float_activations_give_the_golden_logits():
    with drive.Drive(folder(4), "--activations", "float") as d:
        for p in golden():
            prefix = os.path.join(work.name, "logits")
            d.ask(op="generate", prompts=[p["prompt_ids"]], options={"max_new_tokens": 1, "eos": []}, logits_to=prefix)
            logits = np.load(prefix + ".0.npy")[0]
            want = p["logits"]
            testing.near(logits[::1021], want["every_1021st"], 0.02, p["name"])
            testing.near(float(logits.astype(np.float64).mean()), want["mean"], 0.005, p["name"] + " mean")
            testing.near(float(logits.max()), want["max"], 0.02, p["name"] + " max")


def test_int8_activations_over_every_prompt_position():
    """The best token over all prompts' positions together, the mean negative log likelihood of each prompt."""
    same = n = 0
    off, each = [], []
    with drive.Drive(folder(4), "--activations", "int8") as d:
        for p in golden():
            ids, prefix = p["prompt_ids"], os.path.join(work.name, "prompt")
            d.ask(op="generate", prompts=[ids], options={"max_new_tokens": 1, "eos": []}, prompt_logits_to=prefix)
            logits = np.load(prefix + ".0.npy")
            testing.equal(logits.shape[0], len(ids), "positions")
            good = int((logits.argmax(axis=1) == np.array(p["prompt_argmax_every_position"])).sum())
            same, n = same + good, n + len(ids)
            off.append(nll(logits, ids) / p["prompt_mean_nll"] - 1)
            each.append(f"{p['name']} {good}/{len(ids)}, NLL {100 * off[-1]:+.2f} %")
    if SLOW:  # too few positions to judge by shares
        return
    said = "; ".join(each)
    assert same >= 0.97 * n, f"the best token is the expected one at {same} of {n} positions, needed 97 %: {said}"
    assert max(map(abs, off)) <= 0.005, f"a mean NLL is off by more than 0.5 %: {said}"


def test_the_answer_in_text():
    for activations in ("auto", "float"):
        run = testing.treadle("run", folder(4), "-p", "What is the capital of France? Answer in one sentence.", "-n", 24,
                              "--activations", activations)
        testing.equal((run.returncode, run.stdout), (0, "The capital of France is Paris.\n"), activations)


def test_an_interrupted_build_leaves_nothing():
    with testing.temp_dir() as temp:
        out = os.path.join(temp, "out")
        p = subprocess.Popen([os.environ["TREADLE"], "build", testing.model(GGUF), "-o", out], stderr=subprocess.PIPE)
        while p.poll() is None and not os.listdir(temp):  # until it writes, aside
            time.sleep(0.002)
        p.send_signal(signal.SIGINT)
        _, said = p.communicate(timeout=120)
        testing.equal((p.returncode, os.listdir(temp)), (130, []), said)


class OnnxRuntime:
    """Greedy decoding with the compiled graph's own caches."""

    def __init__(self, path):
        import onnxruntime
        self.session = onnxruntime.InferenceSession(os.path.join(path, "model.onnx"), providers=["CPUExecutionProvider"])
        self.inputs = {i.name: i for i in self.session.get_inputs()}
        self.outputs = [o.name for o in self.session.get_outputs()]

    def feeds(self, ids, past, start):
        """What this graph takes besides caches: ids, and those of mask and positions that it has."""
        n = len(ids)
        feeds = {"input_ids": np.array([ids], np.int64)}
        if "attention_mask" in self.inputs:
            feeds["attention_mask"] = np.ones((1, start + n), np.int64)
        if "position_ids" in self.inputs:
            feeds["position_ids"] = np.arange(start, start + n, dtype=np.int64)[None]
        for name, port in self.inputs.items():
            if name in feeds:
                continue
            assert name in past or name.startswith("past"), f"an input that this test does not know: {name}"
            shape = [1, port.shape[1], 0, port.shape[3]]
            feeds[name] = past.get(name, np.zeros(shape, np.float16 if "float16" in port.type else np.float32))
        return feeds

    def greedy(self, ids, n_new):
        past, start, tokens, rows = {}, 0, [], []
        step = list(ids)
        for _ in range(n_new):
            got = dict(zip(self.outputs, self.session.run(None, self.feeds(step, past, start))))
            start += len(step)
            rows.append(got["logits"][0, -1].astype(np.float32))
            past = {k.replace("present", "past_key_values", 1): v for k, v in got.items() if k != "logits"}
            step = [int(rows[-1].argmax())]
            tokens += step
        return tokens, np.stack(rows)


def test_onnx_runtime_agrees_on_the_compiled_graph():
    ids = testing.treadle_json("tokenize", folder(0), "--json", "-p", "The little boat sailed over the sea and")["ids"]
    tokens, logits = OnnxRuntime(folder(0)).greedy(ids, N_ORT_TOKENS)
    out = os.path.join(work.name, "steps.npy")
    answer = testing.treadle_json("run", folder(0), "--ids", ",".join(map(str, ids)), "-n", N_ORT_TOKENS, "--greedy",
                                  "--ignore-eos", "--activations", "float", "--json", "--logits", out)
    testing.equal(answer["results"][0]["token_ids"], tokens)
    testing.near(np.load(out)[0], logits, 0.01, "logits")


testing.main()
