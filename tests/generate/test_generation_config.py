"""What generation_config.json says of the choice of tokens, on an encoder-decoder that is one graph: forced tokens, words that are never completed,
least numbers of new tokens, n-grams of the source; and the same graph with sound for its encoder. NumPy has the graph and the rules, these after transformers' logits processors."""
import json
import os

import drive
import numpy as np
import onnx
import testing
from onnx import TensorProto, helper, numpy_helper

VOCAB, START, EOS = 11, 3, 2
rng = np.random.default_rng(11)
LAST, SUMS, SOURCE = (rng.normal(0, 1, (n, VOCAB)).astype(np.float32) for n in (VOCAB, 31, VOCAB))
PROMPTS = [[5, 6, 5, 9], [7, 4], [8, 1, 8, 6, 10, 4, 9]]


def write(where, settings, width="source", sound=False):
    node, info = helper.make_node, helper.make_tensor_value_info
    inputs = [info(n, TensorProto.INT64, ["batch", s]) for n, s in (("input_ids", width), ("attention_mask", width), ("decoder_input_ids", "seq"))]
    if sound:
        inputs[0] = info("input_features", TensorProto.FLOAT, ["batch", width, VOCAB])
    nodes = [node("Identity", ["input_features"], ["rows"]) if sound else node("Gather", ["source", "input_ids"], ["rows"]), node("Cast", ["attention_mask"], ["shown"], to=TensorProto.FLOAT),
             node("Unsqueeze", ["shown", "minus"], ["column"]), node("Mul", ["rows", "column"], ["heard"]),
             node("ReduceSum", ["heard", "one1"], ["c"], keepdims=1), node("Gather", ["last", "decoder_input_ids"], ["a"]),
             node("CumSum", ["decoder_input_ids", "one"], ["sum"]), node("Mod", ["sum", "n"], ["row"]), node("Gather", ["sums", "row"], ["b"]),
             node("Sum", ["a", "b", "c"], ["logits"])]
    constants = {"source": SOURCE, "last": LAST, "sums": SUMS, "one": np.array(1), "n": np.array(len(SUMS)), "minus": np.array([2]), "one1": np.array([1])}
    graph = helper.make_graph(nodes, "whole", inputs, [info("logits", TensorProto.FLOAT, ["batch", "seq", VOCAB])],
                              [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), os.path.join(where, "model.onnx"))
    with open(os.path.join(where, "generation_config.json"), "w") as f:
        json.dump({"decoder_start_token_id": START, "eos_token_id": EOS, "max_length": 40, **settings}, f)


def ngrams(ids, n, text):
    """What would complete an n-gram of the text."""
    before = ids[len(ids) + 1 - n:]
    return [text[i + n - 1] for i in range(len(text) + 1 - n) if text[i : i + n - 1] == before] if len(ids) + 1 >= n else []


def greedy(source, settings, n_new):
    ids = [START]
    while len(ids) <= n_new and (ids[-1] != EOS or len(ids) == 1):
        scores = LAST[ids[-1]] + SUMS[sum(ids) % len(SUMS)] + SOURCE[source].sum(0)
        banned = ngrams(ids, settings.get("encoder_no_repeat_ngram_size", 0), source) if "encoder_no_repeat_ngram_size" in settings else []
        for word in settings.get("bad_words_ids", []):
            if word != [EOS] and ids[len(ids) + 1 - len(word):] == word[:-1]:
                banned.append(word[-1])
        if len(ids) - 1 < settings.get("min_new_tokens", 0) or len(ids) < settings.get("min_length", 0):
            banned.append(EOS)
        scores[banned] = -np.inf
        for key, at in (("forced_bos_token_id", 1), ("forced_eos_token_id", n_new)):
            if key in settings and len(ids) == at:
                scores[:] = -np.inf
                scores[settings[key]] = 0
        ids.append(int(scores.argmax()))
    return ids[1:]


def test_choice():
    plain = [greedy(p, {}, 12) for p in PROMPTS]
    assert len({tuple(p) for p in plain}) == 3 and min(map(len, plain)) < 12, plain
    long = max(plain, key=len)
    cases = [{}, {"forced_eos_token_id": EOS}, {"forced_bos_token_id": 9, "forced_eos_token_id": 4}, {"min_new_tokens": 9}, {"min_length": 9},
             {"bad_words_ids": [[t] for t in sorted(set(long))[:3]]}, {"bad_words_ids": [long[1:3], [EOS], long[:1], long[2:6]]},
             {"encoder_no_repeat_ngram_size": 1}, {"encoder_no_repeat_ngram_size": 2, "min_new_tokens": 4}]
    for settings in cases:
        with testing.temp_dir() as where:
            write(where, settings)
            with drive.Drive(where, "--quiet") as d:
                for options in ({"max_new_tokens": 12}, {"max_length": 13}):
                    wanted = [greedy(p, settings, 12) for p in PROMPTS]
                    testing.equal(d.ask(op="generate", prompts=PROMPTS, options=options)["tokens"], wanted, str(settings))
                    for prompt, row in zip(PROMPTS, wanted):
                        testing.equal(d.ask(op="generate", prompts=[prompt], options=options)["tokens"], [row], str(settings))


def test_beams_end_as_forced():
    with testing.temp_dir() as where:
        write(where, {"forced_eos_token_id": EOS, "min_new_tokens": 6})
        with drive.Drive(where, "--quiet") as d:
            for row in d.ask(op="generate", prompts=PROMPTS, options={"max_new_tokens": 6, "num_beams": 3, "num_return_sequences": 3})["sequences"]:
                assert [len(s) for s in row] == [6] * 3 and {s[-1] for s in row} == {EOS}, row


def test_source_of_fixed_length():
    with testing.temp_dir() as where:
        write(where, {}, width=16)
        with drive.Drive(where, "--quiet") as d:
            testing.equal(d.ask(op="generate", prompts=PROMPTS, options={"max_new_tokens": 12})["tokens"], [greedy(p, {}, 12) for p in PROMPTS])


def test_sound():
    """The mask is the sound's, as long as it, and what is left out shows everything; an empty prompt starts as the config says."""
    with testing.temp_dir() as where:
        write(where, {}, sound=True)
        file = lambda name, value: np.save(os.path.join(where, name), value) or os.path.join(where, name + ".npy")
        whole = file("whole", SOURCE[PROMPTS[2]][None])
        padded = {"input_features": file("padded", SOURCE[PROMPTS[0] + [1, 1, 1]][None]), "attention_mask": file("mask", np.array([[1] * 4 + [0] * 3]))}
        with drive.Drive(where, "--quiet") as d:
            for tensors, source in (({"input_features": whole}, PROMPTS[2]), (padded, PROMPTS[0])):
                for prompt in ([], [START]):
                    got = d.ask(op="generate", prompts=[prompt], tensors=tensors, options={"max_new_tokens": 12})["tokens"]
                    testing.equal(got, [greedy(source, {}, 12)])


def test_what_is_no_word():
    for words in (7, [7], [[3, -1]], [[3, "a"]], [[]]):
        with testing.temp_dir() as where:
            write(where, {"bad_words_ids": words})
            try:
                with drive.Drive(where, "--quiet") as d:
                    d.ask(op="generate", prompts=PROMPTS[:1], options={"max_new_tokens": 1})
            except drive.Refused as e:
                assert "expected a list of token ids" in str(e), e
            else:
                raise AssertionError(f"{words} passed")


testing.main()
