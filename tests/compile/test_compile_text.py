# The text files of a compiled folder: tokenizer.json through Hugging Face's library, special tokens, end tokens, config.
import json
import os

import checkpoints
import gguf
import testing


def load(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        return json.load(f)


def test_probes():
    from tokenizers import Tokenizer
    with testing.temp_dir() as temp:
        root = checkpoints.unpack(temp)
        for name in checkpoints.NAMES:
            folder, out = os.path.join(root, name), os.path.join(temp, "out-" + name)
            checkpoints.build(os.path.join(folder, "model.gguf"), out)
            tokenizer = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
            for probe in load(folder, "golden.json")["tokenizer"]:
                testing.equal(tokenizer.encode(probe["text"]).ids, probe["ids"], name)
                plain = tokenizer.encode(probe["text"], add_special_tokens=False).ids
                testing.equal(plain, probe.get("ids_without_special", probe["ids"]), name)
                testing.equal(tokenizer.decode(plain), probe["decoded"], name)
            testing.equal(load(out, "tokenizer.json")["model"]["merges"], load(folder, "tokenizer.json")["model"]["merges"], name)
            theirs, ours = load(folder, "tokenizer_config.json"), load(out, "tokenizer_config.json")
            for key in ("bos_token", "eos_token", "chat_template"):
                testing.equal(ours.get(key), theirs.get(key), f"{name} {key}")


def made(temp, model, tokens, types, **fields):
    """The three text files of a model with this vocabulary, and what the build said."""
    source, out = os.path.join(temp, "m.gguf"), os.path.join(temp, "out")
    extra = [("tokenizer.ggml.model", model), ("tokenizer.ggml.tokens", tokens), ("tokenizer.ggml.token_type", types)]
    extra += [("tokenizer.ggml." + k if not k.startswith("general") else k.replace("_", ".", 2), v) for k, v in fields.items()]
    checkpoints.write(source, gguf.GGMLQuantizationType.Q8_0, vocab=len(tokens), extra=extra)
    run = checkpoints.build(source, out)
    return out, load(out, "genai_config.json"), run.stderr


def test_end_tokens():
    """Every token that llama.cpp ends on: by key, by text, by the fill-in-the-middle texts."""
    tokens = ["<unk>", "<s>", "</s>", "<|im_end|>", "a", "<reponame>", "<|file_sep|>", "<|eot_id|>", "<PAD>", "x", "<|other|>"]
    with testing.temp_dir() as temp:
        types = [2, 3, 3, 3, 1, 3, 3, 1, 3, 1, 3]
        out, config, _ = made(temp, "llama", tokens, types, scores=[0.0] * len(tokens), eot_token_id=10)
        testing.equal(config["tokens"]["eos"], [2, 3, 5, 6, 7, 8, 10])
        added = {t["content"]: t["special"] for t in load(out, "tokenizer.json")["added_tokens"]}
        testing.equal(added.get("<|eot_id|>"), True)  # its type is overridden


def test_channels():
    tokens = ["<|end|>", "<|return|>", "<|call|>", "<|channel|>", "a", "b", "ab", "<|endoftext|>"]
    with testing.temp_dir() as temp:
        out, config, _ = made(temp, "gpt2", tokens, [3, 3, 3, 3, 1, 1, 1, 3], merges=["a b"], pre="gpt-4o")
        testing.equal(config["tokens"]["eos"], [1, 2, 7])
        special = {t["content"]: t["special"] for t in load(out, "tokenizer.json")["added_tokens"]}
        testing.equal((special["<|end|>"], special["<|channel|>"], special["<|call|>"]), (False, False, True))


def test_unknown_kinds():
    with testing.temp_dir() as temp:
        out, config, said = made(temp, "gpt2", ["a", "b", "ab", "c"], [1] * 4, merges=["a b", "x y", "broken"], pre="no-such")
        assert "no-such" in said, said
        testing.equal(load(out, "tokenizer.json")["model"]["merges"], [["a", "b"]])
    with testing.temp_dir() as temp:
        out, config, said = made(temp, "rwkv", ["a", "b", "</s>"], [1] * 3)
        assert "rwkv" in said and not os.path.exists(os.path.join(out, "tokenizer.json")), said
        testing.equal(config["tokens"]["eos"], [2])


def test_without_prefix_space():
    from tokenizers import Tokenizer
    tokens = ["<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a", "<0x62>"]
    for prefix, ids in ((True, [1, 5, 6, 5]), (False, [1, 4, 6, 5])):
        with testing.temp_dir() as temp:
            out, _, _ = made(temp, "llama", tokens, [2, 3, 3, 1, 1, 1, 6], scores=[0.0, 0.0, 0.0, -2.0, -3.0, -1.0, 0.0], add_space_prefix=prefix)
            tokenizer = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
            testing.equal(tokenizer.encode("ab a").ids, ids)
            testing.equal(tokenizer.decode(ids), "ab a")


def test_sampling():
    with testing.temp_dir() as temp:
        _, config, _ = made(temp, "none", ["a"] * 4, [1] * 4, **{"general_sampling_temp": 0.75, "general_sampling_top_k": 20})
        testing.equal(config["generation"]["sampling"], {"do_sample": True, "temperature": 0.75, "top_k": 20})


testing.main()
