# Hugging Face folders: the goldens of tiny-checkpoints in ONNX Runtime, weights in several files, caches of the hub, bad folders.
# timeout: 300
import json
import os
import subprocess
import shutil
import struct
import tarfile

import checkpoints
import numpy as np
import testing

SPEECH, DECODERS = "whisper", ["llama", "llama3_tied_ropescaled", "mistral", "qwen2"]


def unpack(folder):
    names = [SPEECH] + DECODERS
    with tarfile.open(testing.shared("data/tiny-checkpoints.tar.xz")) as tar:
        tar.extractall(folder, members=[m for m in tar.getmembers() if any(f"/{n}/" in m.name for n in names)], filter="data")
    return os.path.join(folder, "tiny-checkpoints")


def golden(folder):
    return json.load(open(os.path.join(folder, "golden.json"), encoding="utf-8")), np.load(os.path.join(folder, "golden.npz"))


def read_safetensors(path):
    """{name: (entry, bytes)} and the metadata."""
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    return {k: (v, data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in header.items() if k != "__metadata__"}


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (entry, raw) in tensors.items():
        header[name] = dict(entry, data_offsets=[at, at + len(raw)])
        at += len(raw)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, raw in tensors.values():
            f.write(raw)


class Speech:
    """Both graphs of a compiled folder in ONNX Runtime, one row."""

    def __init__(self, folder):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        self.encoder, self.decoder = (onnxruntime.InferenceSession(os.path.join(folder, f"{n}.onnx"), options) for n in ("encoder", "decoder"))

    def encode(self, features):
        names = [o.name for o in self.encoder.get_outputs()]
        out = dict(zip(names, self.encoder.run(names, {"input_features": features[None]})))
        self.cross = {k.replace("present", "past"): v for k, v in out.items() if k.startswith("present")}
        self.reset()
        return out["encoder_hidden_states"][0]

    def reset(self):
        self.past = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32) for i in self.decoder.get_inputs() if "_self_" in i.name}

    def step(self, ids):
        names = [o.name for o in self.decoder.get_outputs()]
        out = dict(zip(names, self.decoder.run(names, dict(self.past, **self.cross, input_ids=np.array([ids], np.int64)))))
        self.past = {k: out[k.replace("past", "present")] for k in self.past}
        self.weights = [out[n] for n in names if n.startswith("cross_qk_")]
        return out["logits"][0]


def check_speech(folder, out):
    """Encoder, logits of a given prompt in one, many and odd pieces, greedy ids."""
    want, arrays = golden(folder)
    session, atol = Speech(out), want["atol"]
    testing.near(session.encode(arrays["input_features_audio0"]), arrays["encoder_audio0"], atol, "encoder")
    ids, n = want["forced"]["decoder_input_ids"], len(want["decoder_start"]) - 1
    for cuts in ([0, len(ids)], list(range(len(ids) + 1)), [0, 5, 9, len(ids)]):
        session.reset()
        logits = np.concatenate([session.step(ids[a:b]) for a, b in zip(cuts, cuts[1:])])
        testing.near(logits[n:], arrays["logits_forced"], atol, f"cut at {cuts}")
    for w in session.weights:
        testing.near(w.sum(-1), np.ones(w.shape[:-1]), 1e-5, "weights of the cross-attention")
    session.reset()
    got, logits = [], session.step(want["decoder_start"])
    while len(got) < len(want["cases"][0]["greedy"]):
        got.append(int(logits[-1].argmax()))
        logits = session.step(got[-1:])
    testing.equal(got, want["cases"][0]["greedy"])


def test_speech():
    with testing.temp_dir() as temp:
        folder, out = os.path.join(unpack(temp), SPEECH), os.path.join(temp, "out")
        checkpoints.build(folder, out)
        check_speech(folder, out)
        config = json.load(open(os.path.join(out, "genai_config.json"), encoding="utf-8"))
        testing.equal(config["tokens"]["decoder_start"], 339)
        testing.equal(config["generation"]["context_length"], 64)
        for name in ("tokenizer.json", "preprocessor_config.json"):
            testing.equal(open(os.path.join(out, name), "rb").read(), open(os.path.join(folder, name), "rb").read())
        checkpoints.build(os.path.join(folder, "config.json"), out)  # a file of the folder stands for it; the output is replaced


def test_speech_on_light():
    """From a folder to what transformers makes of its sound file and its generation_config.json."""
    with testing.temp_dir() as temp:
        folder, out = os.path.join(unpack(temp), SPEECH), os.path.join(temp, "out")
        checkpoints.build(folder, out)
        for want in golden(folder)[0]["shipped_generation"]:
            got = testing.treadle_json("transcribe", out, os.path.join(folder, "audio0.wav"), "--language", want["language"], "--task",
                                       want["task"], "-n", want["max_new_tokens"], "--json", *["--timestamps"] * want["return_timestamps"])
            testing.equal(got["ids"], want["ids"], str(want))


def test_sound_alone_is_written_down():
    """`run --audio` without a prompt, and sound on standard input, are what `transcribe` gives; what it has no use for is refused."""
    with testing.temp_dir() as temp:
        folder, out = os.path.join(unpack(temp), SPEECH), os.path.join(temp, "out")
        checkpoints.build(folder, out)
        sound = os.path.join(folder, "audio0.wav")
        want = testing.treadle_json("transcribe", out, sound, "-n", 6, "--json")
        assert want["ids"], want
        testing.equal(testing.treadle_json("run", out, "--audio", sound, "-n", 6, "--json"), want)
        plain = testing.treadle("transcribe", out, sound, "-n", 6)
        testing.equal((plain.returncode, plain.stdout), (0, want["text"].lstrip(" ") + "\n"), plain.stderr)
        testing.equal(testing.treadle("run", out, "--audio", sound, "-n", 6).stdout, plain.stdout)
        for arguments in (("transcribe", out, "-"), ("run", out, "--audio", "-")):
            with open(sound, "rb") as f:
                run = subprocess.run([os.environ["TREADLE"], *arguments, "-n", "6"], stdin=f, capture_output=True, text=True, timeout=60, check=False)
            testing.equal((run.returncode, run.stdout), (0, plain.stdout), run.stderr)
        for more in (["--top-k", 3], ["--stop", "x"], ["--seed", 1], ["-i", "x=y.npy"], ["--logits", "x.npy"]):
            run = testing.treadle("run", out, "--audio", sound, *more)
            assert run.returncode == 2 and "needs a prompt" in run.stderr, (more, run)


def test_speech_files():
    """What generation_config.json and preprocessor_config.json lack comes from the other files."""
    with testing.temp_dir() as temp:
        folder, out = os.path.join(unpack(temp), SPEECH), os.path.join(temp, "out")
        own = json.load(open(os.path.join(folder, "generation_config.json"), encoding="utf-8"))
        os.remove(os.path.join(folder, "generation_config.json"))
        os.remove(os.path.join(folder, "preprocessor_config.json"))
        os.mkdir(os.path.join(folder, "ct2"))
        json.dump({"alignment_heads": [[0, 1], [1, 3]]}, open(os.path.join(folder, "ct2", "config.json"), "w", encoding="utf-8"))
        checkpoints.build(folder, out)
        made = json.load(open(os.path.join(out, "generation_config.json"), encoding="utf-8"))
        for key in ("suppress_tokens", "begin_suppress_tokens", "lang_to_id", "task_to_id", "no_timestamps_token_id", "prev_sot_token_id",
                    "is_multilingual", "decoder_start_token_id", "eos_token_id"):
            testing.equal(made[key], own[key], key)
        testing.equal(made["alignment_heads"], [[0, 1], [1, 3]])
        front = json.load(open(os.path.join(out, "preprocessor_config.json"), encoding="utf-8"))
        testing.equal([front[k] for k in ("feature_size", "hop_length", "n_fft", "chunk_length", "n_samples", "nb_max_frames")],
                      [80, 160, 400, 2, 32000, 200])


def test_decoders():
    with testing.temp_dir() as temp:
        root = unpack(temp)
        for name in DECODERS:
            folder, out = os.path.join(root, name), os.path.join(temp, "out-" + name)
            checkpoints.build(folder, out)
            want, arrays = golden(folder)
            session = checkpoints.Session(out)
            for i, prompt in enumerate(want["prompts"]):
                session.reset()
                logits = session.step(prompt)
                testing.near(logits[arrays[f"rows_prompt{i}"]], arrays[f"logits_prompt{i}"], want["atol"], f"{name} prompt {i}")


def as_gguf(folder):
    """The weights of a llama under the names of a GGUF file, rotary halves turned into pairs."""
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm"}
    out = {}
    for name, (entry, raw) in read_safetensors(os.path.join(folder, "model.safetensors")).items():
        kind = {"F32": np.float32, "F16": np.float16}.get(entry["dtype"])
        values = np.frombuffer(raw, kind) if kind else (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        values = values.reshape(entry["shape"]).astype(np.float32)
        stem, end = name.rsplit(".", 1)
        if stem.startswith("model.layers."):
            layer, part = stem[len("model.layers."):].split(".", 1)
            if part in ("self_attn.q_proj", "self_attn.k_proj"):
                values = values.reshape(-1, 2, 4, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)  # heads of 8
            names[stem] = f"blk.{layer}.{parts[part]}"
        out[f"{names[stem]}.{end}"] = values
    return out


def test_rotary_scaling():
    """Each kind of rope_scaling against float64 with frequencies by the formulas of the papers."""
    d, f = 8, 10000.0 ** (-np.arange(0, 8, 2) / 8)
    turns = lambda beta: d * np.log(32 / (beta * 2 * np.pi)) / (2 * np.log(10000.0))
    low, high = max(0, np.floor(turns(4))), min(d - 1, np.ceil(turns(0.5)))
    ramp = np.clip((np.arange(d // 2) - low) / max(0.001, high - low), 0, 1)
    yarn = f / 4 * ramp + f * (1 - ramp)
    smooth = np.clip((32 * f / (2 * np.pi) - 0.5) / (2 - 0.5), 0, 1)
    more = {"factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 4, "beta_slow": 0.5}
    log = 0.1 * np.log(4)
    cases = [
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, dict(frequency=f / 2)),
        ({"rope_scaling": {"rope_type": "yarn", **more}}, dict(frequency=yarn, magnitude=1 + log)),
        ({"rope_scaling": {"rope_type": "yarn", **more, "attention_factor": 1.5}}, dict(frequency=yarn, magnitude=1.5)),
        ({"rope_scaling": {"rope_type": "yarn", **more, "mscale": 2.0, "mscale_all_dim": 0.5}},
         dict(frequency=yarn, magnitude=(1 + 2 * log) / (1 + 0.5 * log))),
        ({"rope_scaling": {"rope_type": "llama3", **more, "low_freq_factor": 0.5, "high_freq_factor": 2.0}},
         dict(frequency=f / 4 * (1 - smooth) + f * smooth)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, dict(base=500.0)),
        ({"rope_parameters": {"rope_type": "linear", "factor": 3, "rope_theta": 500.0}},
         dict(frequency=500.0 ** (-np.arange(0, 8, 2) / 8) / 3)),
    ]
    with testing.temp_dir() as temp:
        folder = os.path.join(unpack(temp), "llama")
        truth, path = as_gguf(folder), os.path.join(folder, "config.json")
        config = json.load(open(path, encoding="utf-8"))
        ids = [3, 60, 7, 7, 41, 0, 12, 33, 5] * 5
        for i, (change, wanted) in enumerate(cases):
            json.dump({**config, **change}, open(path, "w", encoding="utf-8"))
            out = os.path.join(temp, f"out{i}")
            checkpoints.build(folder, out)
            want = checkpoints.reference(truth, ids, layers=3, **wanted)
            testing.near(checkpoints.Session(out).step(ids), want, 3e-4 * max(1, np.abs(want).max() / 10), str(change))
        for change, parts in [({"rope_type": "longrope"}, ["longrope", "yarn"]), ({"rope_type": "yarn"}, ["'factor' is missing"]),
                              ({"rope_type": "yarn", "factor": 0.5}, ["'factor' is 0.5"]), ({"rope_type": "linear", "factor": -1}, ["'factor' is -1"])]:
            json.dump({**config, "rope_scaling": change}, open(path, "w", encoding="utf-8"))
            refused(folder, os.path.join(temp, "out"), *parts)


def test_shards_and_links():
    """In two files behind an index; as the hub's cache lays files out; without the leading "model."."""
    with testing.temp_dir() as temp:
        folder = os.path.join(unpack(temp), SPEECH)
        whole = os.path.join(folder, "model.safetensors")
        tensors = read_safetensors(whole)
        names = sorted(tensors)
        files = {n: f"model-0000{i % 2 + 1}-of-00002.safetensors" for i, n in enumerate(names)}
        for file in set(files.values()):
            write_safetensors(os.path.join(folder, file), {n: tensors[n] for n in names if files[n] == file})
        json.dump({"metadata": {}, "weight_map": files}, open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8"))
        os.remove(whole)
        checkpoints.build(folder, os.path.join(temp, "sharded"))
        check_speech(folder, os.path.join(temp, "sharded"))

        snapshot = os.path.join(temp, "cache", "snapshots", "0123")
        blobs = os.path.join(temp, "cache", "blobs")
        os.makedirs(snapshot)
        os.makedirs(blobs)
        write_safetensors(whole, {n.removeprefix("model."): t for n, t in tensors.items()})
        for i, name in enumerate(["config.json", "model.safetensors", "tokenizer.json"]):
            shutil.copy(os.path.join(folder, name), os.path.join(blobs, str(i)))
            os.symlink(f"../../blobs/{i}", os.path.join(snapshot, name))
        checkpoints.build(snapshot, os.path.join(temp, "linked"))
        check_speech(folder, os.path.join(temp, "linked"))


def test_run_from_cache():
    """`treadle run` compiles a folder once; a change of any of its files is another model; a folder with graphs is run as it is."""
    with testing.temp_dir() as temp:
        folder = os.path.join(unpack(temp), "llama")
        want = golden(folder)[0]
        env = dict(os.environ, TREADLE_CACHE=os.path.join(temp, "cache"))

        def run(path):
            done = testing.treadle("run", path, "--ids", ",".join(map(str, want["prompts"][1])), "-n", len(want["greedy"][1]), "--json",
                                   "--activations", "float", env=env)
            testing.equal(done.returncode, 0, done.stderr)
            testing.equal(json.loads(done.stdout)["results"][0]["token_ids"], want["greedy"][1])
            return "(once)" in done.stderr

        testing.equal([run(folder), run(folder), run(os.path.join(folder, "model.safetensors"))], [True, False, False])
        with open(os.path.join(folder, "tokenizer_config.json"), "a", encoding="utf-8") as f:
            f.write(" ")
        testing.equal([run(folder), run(folder)], [True, False])
        checkpoints.build(folder, os.path.join(temp, "out"))
        shutil.copytree(os.path.join(temp, "out"), folder, dirs_exist_ok=True)
        testing.equal(run(folder), False)


def refused(source, out, *parts, code=3):
    run = testing.treadle("build", source, "-o", out)
    testing.equal(run.returncode, code, run.stderr)
    for part in parts:
        assert part in run.stderr, f"{part!r} is not in {run.stderr!r}"
    assert not os.path.exists(out)


def test_bad_configs():
    with testing.temp_dir() as temp:
        folder, out = os.path.join(unpack(temp), SPEECH), os.path.join(temp, "out")
        path = os.path.join(folder, "config.json")
        config = json.load(open(path, encoding="utf-8"))
        for change, parts in [
            ({"model_type": "whisperer"}, ["whisperer", "llama", "whisper"]),
            ({"model_type": None}, ["'model_type' is missing", "whisper"]),
            ({"d_model": None}, ["'d_model' is missing"]),
            ({"d_model": "32"}, ["'d_model'", "a string", "/d_model"]),
            ({"d_model": 10**30}, ["'d_model'", "1e+30"]),
            ({"d_model": 0}, ["'d_model' is 0"]),
            ({"d_model": 64}, ["tensor 'model.encoder.conv1.weight' has shape [32, 80, 3], expected [64, 80, 3]"]),
            ({"encoder_layers": 4000}, ["4000 layers"]),
            ({"encoder_layers": 3}, ["model.encoder.layers.2.self_attn_layer_norm.weight", "missing"]),
            ({"decoder_layers": 1}, ["model.decoder.layers.1.", "not part of"]),
            ({"encoder_attention_heads": 5}, ["no multiple"]),
            ({"activation_function": "tanhshrink"}, ["tanhshrink", "gelu"]),
            ({"tie_word_embeddings": 1}, ["tie_word_embeddings", "true or false"]),
        ]:
            json.dump({k: v for k, v in {**config, **change}.items() if v is not None}, open(path, "w", encoding="utf-8"))
            refused(folder, out, *parts)
        for text, part in [("", ":1:1"), ("[1]", "expected an object"), ("{\"a\":" * 300, "deep"), ("{\"model_type\": \"whisper\"", "config.json:1:")]:
            open(path, "w", encoding="utf-8").write(text)
            refused(folder, out, "config.json", part)


def test_bad_folders():
    with testing.temp_dir() as temp:
        folder, out = os.path.join(unpack(temp), SPEECH), os.path.join(temp, "out")
        weights, index = (os.path.join(folder, n) for n in ("model.safetensors", "model.safetensors.index.json"))
        data = open(weights, "rb").read()
        for n in (0, 7, 8, 100, len(data) // 2, len(data) - 1):
            open(weights, "wb").write(data[:n])
            refused(folder, out, "model.safetensors")
        os.remove(weights)
        open(os.path.join(folder, "pytorch_model.bin"), "wb").close()
        refused(folder, out, "expected config.json with model.safetensors", ".bin are not read")
        for weight_map, parts in [
            (None, ["weight_map"]),
            ({"a": 3}, ["'a'", "file name"]),
            ({"a": "../other.safetensors"}, ["other.safetensors"]),
            ({"a": "/etc/passwd"}, ["/etc/passwd"]),
            ({"a": "absent.safetensors"}, ["absent.safetensors"]),
            ({"a": "whole.safetensors"}, ["tensor 'a' is in none of the files"]),
            ({"a": "whole.safetensors", "b": "copy.safetensors"}, ["copy.safetensors", "given twice"]),
        ]:
            for name in ("whole.safetensors", "copy.safetensors"):
                open(os.path.join(folder, name), "wb").write(data)
            json.dump({} if weight_map is None else {"weight_map": weight_map}, open(index, "w", encoding="utf-8"))
            refused(folder, out, *parts)
        shutil.rmtree(folder)
        refused(folder, out, "whisper")


def test_bad_tensors():
    with testing.temp_dir() as temp:
        folder, out = os.path.join(unpack(temp), SPEECH), os.path.join(temp, "out")
        path = os.path.join(folder, "model.safetensors")
        tensors = read_safetensors(path)
        name = "model.decoder.embed_tokens.weight"
        count = int(np.prod(tensors[name][0]["shape"]))
        for entry, raw, parts in [
            ({"dtype": "I8", "shape": tensors[name][0]["shape"]}, bytes(count), [name, "I8", "F16"]),
            ({"dtype": "F16", "shape": [0, 32]}, b"", [name, "no rows"]),
            ({"dtype": "F16", "shape": [1] * 9}, bytes(2), [name, "at most 8"]),
        ]:
            write_safetensors(path, dict(tensors, **{name: (entry, raw)}))
            refused(folder, out, *parts)
        write_safetensors(path, dict(tensors, extra=tensors[name]))
        refused(folder, out, "'extra' is not part of architecture whisper")


testing.main()
