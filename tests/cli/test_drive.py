# timeout: 300
"""`treadle drive`: the requests, their answers, and that a wrong one leaves the next usable."""
import json
import os

import numpy as np

import drive
import testing
import tiny

model = tiny.Model()
TEXT = tiny.Model(seed=3)  # another one, whose answers are compared as text


def start(folder=model.folder):
    return drive.Drive(folder, "--activations", "float")


def prefix(name):
    return os.path.join(model.work.name, name)


def test_generate():
    rows = [[5, 6, 7], [9], [40, 41, 42, 43]]
    with start() as d:
        answer = d.ask(op="generate", prompts=rows, options={"max_new_tokens": 6, "eos": []}, logits_to=prefix("g"), prompt_logits_to=prefix("p"))
    testing.equal(list(answer), ["tokens", "finish", "text", "runs", "state_bytes"])
    testing.equal(answer["finish"], ["length"] * 3)
    for i, row in enumerate(rows):
        tokens, logits = model.greedy(row, 6)
        testing.equal(answer["tokens"][i], tokens)
        testing.equal(answer["text"][i], model.tokenizer().decode(tokens))
        testing.near(np.load(prefix(f"g.{i}.npy")), logits, 1e-3, f"logits {i}")
        testing.near(np.load(prefix(f"p.{i}.npy")), tiny.checkpoints.reference(model.truth, row, **tiny.SHAPE), 1e-3, f"prompt logits {i}")


def test_options():
    with start() as d:
        testing.equal(d.ask(op="generate", prompts=[[5]], options={"max_new_tokens": 6, "eos": []})["runs"], {"decoder": 6})
        tokens, _ = model.greedy([5, 6, 7], 12)
        at = next(i for i, t in enumerate(tokens) if t not in tokens[:i] and i > 1)
        ended = d.ask(op="generate", prompts=[[5, 6, 7]], options={"max_new_tokens": 12, "eos": [tokens[at]]})
        testing.equal((ended["tokens"], ended["finish"]), ([tokens[:at + 1]], ["eos"]))
        one = d.ask(op="generate", prompts=[[5, 6, 7]], options={"max_new_tokens": 12, "eos": tokens[at]})
        testing.equal(one["tokens"], ended["tokens"], "one id is a list of one")
        late = d.ask(op="generate", prompts=[[5, 6, 7]], options={"max_new_tokens": 12, "eos": [tokens[at]], "min_length": 3 + at + 2})
        assert late["tokens"][0][at] != tokens[at] and tokens[at] not in late["tokens"][0][:at + 2], late
        twice = [d.ask(op="generate", prompts=[[5]], options={"max_new_tokens": 9, "do_sample": True, "temperature": 2.0, "seed": 4})["tokens"] for _ in "ab"]
        testing.equal(twice[0], twice[1])


def refused(d, words, **request):
    try:
        answer = d.ask(**request)
    except drive.Refused as said:
        assert words in str(said), said
    else:
        raise AssertionError(answer)


def test_counts_and_kinds_of_models():
    with start() as d:
        for step, words in (({"rewind": -1}, "rewind: expected 0 or more, found -1"), ({"generate": -3}, "generate: expected 0 or more, found -3"),
                            ({"rewind": "2"}, "rewind: expected a whole number, found a string"), ({"generate": 1.5}, "generate: expected a whole number"),
                            ({}, "expected append, generate, rewind or fork")):
            refused(d, words, op="timeline", steps=[{"append": [5]}, step])
        refused(d, "this model is none", op="transduce", tensors={})
        testing.equal(d.ask(op="generate", prompts=[[5]], options={"max_new_tokens": 3, "eos": []})["tokens"], [model.greedy([5], 3)[0]])


def test_timeline():
    tokens, logits = model.greedy([5, 6, 7], 8)
    with start() as d:
        steps = [{"append": [5, 6, 7]}, {"generate": 8}, {"rewind": 3}, {"generate": 2}, {"append": [11]}, {"generate": 3}, {"append": 12}, {"generate": 1}]
        answer = d.ask(op="timeline", steps=steps, options={"eos": []}, logits_to=prefix("t"))
    got = [s.get("tokens") for s in answer["steps"]]
    after = model.greedy([5, 6, 7] + tokens[:2] + [11], 3)[0]
    last = model.greedy([5, 6, 7] + tokens[:2] + [11] + after + [12], 1)[0]
    testing.equal(got, [None, tokens, None, tokens[:2], None, after, None, last])
    testing.near(np.load(prefix("t.0.npy")), logits, 1e-3, "first")
    testing.near(np.load(prefix("t.1.npy")), logits[:2], 1e-3, "again")
    testing.equal(np.load(prefix("t.3.npy")).shape, (1, tiny.VOCAB))


def test_a_run_that_ends_early_gives_its_own_tokens():
    tokens = model.greedy([5, 6, 7], 12)[0]
    at = next(i for i, t in enumerate(tokens) if t not in tokens[:i] and i > 1)
    with start() as d:
        answer = d.ask(op="timeline", steps=[{"append": [5, 6, 7]}, {"generate": 1}, {"generate": 12}], options={"eos": [tokens[at]]})
    testing.equal([s.get("tokens") for s in answer["steps"]], [None, tokens[:1], tokens[1:at + 1]])


def test_process():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal(50).astype(np.float32) * 3
    np.save(prefix("in.npy"), logits)
    with start() as d:
        answer = d.ask(op="process", logits=prefix("in.npy"), sequence=[1, 2], prompt_length=1, options={"temperature": 0.5, "top_k": 7}, to=prefix("out.npy"))
    want = np.where(logits >= np.sort(logits)[-7], np.exp(logits / 0.5 - (logits / 0.5).max()), 0)
    testing.equal(answer, {"kept": 7})
    testing.near(np.load(prefix("out.npy")), (want / want.sum()).astype(np.float32), 1e-6)


def test_stream():
    with start(TEXT.folder) as d:
        for prompt in ([5, 6, 7], [70, 71], [200, 100]):
            request = {"prompts": [prompt], "options": {"max_new_tokens": 40, "eos": []}}
            whole = d.ask(op="generate", **request)["text"][0]
            pieces = d.ask(op="stream", **request)["pieces"]
            testing.equal("".join(pieces), whole)
            testing.equal(whole, TEXT.tokenizer().decode(TEXT.greedy(prompt, 40)[0]))
            assert all(pieces), "no empty pieces"
            stop = next((whole[i:i + 2] for i in range(4, len(whole) - 2) if "\ufffd" not in whole[i:i + 2]), None)
            if stop:
                request["options"]["stop"] = ["never", stop]
                pieces = d.ask(op="stream", **request)["pieces"]
                testing.equal("".join(pieces), whole[:whole.index(stop)])
                testing.equal(d.ask(op="generate", **request)["finish"], ["stop"])


WRONG = [
    ("{", "1:2"),
    ("[]", "op"),
    ("null", "op"),
    ("{}", "op"),
    ('{"op": 1}', "op"),
    ('{"op": "sing"}', "sing"),
    ('{"op": "generate"}', "prompts"),
    ('{"op": "generate", "prompts": []}', "prompts"),
    ('{"op": "generate", "prompts": [[1.5]]}', "prompts"),
    ('{"op": "generate", "prompts": [["1"]]}', "prompts"),
    ('{"op": "generate", "prompts": [[1e99]]}', "prompts"),
    ('{"op": "generate", "prompts": [[99999999999999]]}', "prompts"),
    ('{"op": "generate", "prompts": [[]]}', None),
    ('{"op": "generate", "prompts": [[-1]]}', "-1"),
    ('{"op": "generate", "prompts": [[1, 100000]]}', "100000"),
    ('{"op": "generate", "prompts": [[1]], "options": []}', "options"),
    ('{"op": "generate", "prompts": [[1]], "options": {"max_new_tokens": "x"}}', "max_new_tokens"),
    ('{"op": "generate", "prompts": [[1]], "options": {"max_new_tokens": 1.5}}', "max_new_tokens"),
    ('{"op": "generate", "prompts": [[1]], "options": {"max_length": 100000}}', "100000"),
    ('{"op": "generate", "prompts": [[1]], "options": {"top_p": 7}}', "top_p"),
    ('{"op": "generate", "prompts": [[1]], "options": {"max_new_token": 1}}', "max_new_token"),
    ('{"op": "generate", "prompts": [[1]], "options": {"stop": "x"}}', "stop"),
    ('{"op": "generate", "prompts": [[1]], "options": {"stop": [1]}}', "stop"),
    ('{"op": "generate", "prompts": [[1]], "options": {"stop": ["a\\u0000b"]}}', "stop"),
    ('{"op": "generate", "prompts": [[1]], "options": {"eos": "x"}}', "eos"),
    ('{"op": "generate", "prompts": [[1]], "options": {"eos": [-1]}}', "eos"),
    ('{"op": "generate", "prompts": [[1]], "logits_to": 3}', "logits_to"),
    ('{"op": "generate", "prompts": [[1]], "options": {"do_sample": "x"}}', "do_sample"),
    ('{"op": "generate", "prompts": [[1]], "tensors": {"x": "y.npy"}}', "y.npy"),
    ('{"op": "generate", "prompts": [[1]], "options": {"max_new_tokens": 1}, "logits_to": "/nosuch/x"}', "/nosuch/x"),
    ('{"op": "generate", "op": "stream"}', "op"),
    ('{"op": "timeline"}', "steps"),
    ('{"op": "timeline", "steps": [{}]}', "steps"),
    ('{"op": "timeline", "steps": [7]}', "steps"),
    ('{"op": "timeline", "steps": [{"append": "x"}]}', "append"),
    ('{"op": "timeline", "steps": [{"generate": 1}]}', None),
    ('{"op": "timeline", "steps": [{"append": [1]}, {"rewind": 5}]}', "5"),
    ('{"op": "timeline", "steps": [{"append": [1]}, {"rewind": -1}]}', "rewind"),
    ('{"op": "timeline", "steps": [{"append": [1]}, {"generate": 1000}, {"generate": -3}]}', None),
    ('{"op": "process"}', "logits"),
    ('{"op": "process", "logits": "/nosuch.npy", "to": "/nosuch/to.npy", "sequence": []}', "/nosuch.npy"),
    ('{"op": "stream", "prompts": [[1], [2]]}', "expected one, found 2"),
    ('{"op": "stream", "prompts": [[1]], "options": {"stop": [""]}}', "stop"),
]


def test_wrong_requests():
    want = model.greedy([5, 6, 7], 3)[0]
    with start() as d:
        for line, word in WRONG:
            answer = d.line(line)
            assert list(answer) == ["error"] and list(answer["error"]) == ["message"], (line, answer)
            assert word is None or word in answer["error"]["message"], (line, answer)
            good = d.ask(op="generate", prompts=[[5, 6, 7]], options={"max_new_tokens": 3, "eos": []})
            testing.equal(good["tokens"], [want], f"after {line}")


def test_a_model_that_cannot_be_opened():
    """Each request says so; the command itself has done its work."""
    with testing.temp_dir() as temp, drive.Drive(os.path.join(temp, "nosuch")) as d:
        for _ in range(2):
            message = d.line('{"op": "generate", "prompts": [[1]]}')["error"]["message"]
            assert "nosuch" in message, message
        np.save(os.path.join(temp, "in.npy"), np.zeros(4, np.float32))
        answer = d.ask(op="process", logits=os.path.join(temp, "in.npy"), sequence=[], prompt_length=0, options={}, to=os.path.join(temp, "out.npy"))
        testing.equal(answer, {"kept": 4}, "no model is needed")


def test_lines():
    request = json.dumps({"op": "generate", "prompts": [[5, 6, 7]], "options": {"max_new_tokens": 3, "eos": []}})
    for text in (request + "\n\n" + request + "\r\n", request + "\n" + request):
        run = testing.treadle("drive", model.folder, stdin=text)
        testing.equal((run.returncode, run.stderr, run.stdout.count("\n")), (0, "", 2))
        first, second = map(json.loads, run.stdout.splitlines())
        testing.equal(first, second)
    run = testing.treadle("drive", model.folder, "--engine", "warp", stdin=request)
    testing.equal(run.returncode, 2)


testing.main()
