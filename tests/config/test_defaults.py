"""Where values of a config come from: files of Hugging Face beside it, the layout of its cache, one file that carries all. Expected values
are those of the files."""
import json
import os
import shutil

import onnx
import testing

GRAPH = testing.source("tests/data/pipelines/concat/model.onnx")
CONFIG = {"version": 2, "pipeline": {"extends": "autoregressive-decoder", "sessions": {"decoder": {"file": "model.onnx"}}}}
# As such files ship: brackets in the names, lists and numbers as transformers writes them.
SPEECH = {"eos_token_id": 7, "decoder_start_token_id": 8, "suppress_tokens": [1, 2], "begin_suppress_tokens": [3], "is_multilingual": True,
          "lang_to_id": {"<|en|>": 10, "<|de|>": 11}, "task_to_id": {"transcribe": 12, "translate": 13}, "no_timestamps_token_id": 14,
          "max_initial_timestamp_index": 50, "alignment_heads": [[3, 1], [4, 2]], "prev_sot_token_id": 15, "forced_bos_token_id": 9}
TOKENS = ["<|startoftranscript|>", "<|en|>", "<|haw|>", "<|transcribe|>", "<|notimestamps|>", "<|startofprev|>", "<|nospeech|>", "<|0.00|>",
          "<|0.02|>", "<|im_start|>"]


def write(folder, name, value):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(value if isinstance(value, str) else json.dumps(value))


def made(temp, **files):
    folder = os.path.join(temp, "m")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    shutil.copy(GRAPH, folder)
    for name, value in files.items():
        write(folder, name.replace("__", "."), value)
    return folder


def explained(path, *options):
    return testing.treadle_json("explain", path, "--json", *options)


def test_generation_config():
    with testing.temp_dir() as temp:
        got = explained(made(temp, genai_config__json=CONFIG, generation_config__json=SPEECH))
        config, origins = got["config"], got["origins"]
        testing.equal(config["tokens"], {"eos": 7, "decoder_start": 8})
        testing.equal({k: config["generation"][k] for k in ("suppress", "begin_suppress", "forced_first")},
                      {"suppress": [1, 2], "begin_suppress": [3], "forced_first": 9})
        testing.equal(config["generation"]["transcription"],
                      {"languages": {"en": 10, "de": 11}, "tasks": {"transcribe": 12, "translate": 13}, "multilingual": True,
                       "no_timestamps": 14, "previous_text": 15, "max_initial_timestamp": 50, "alignment_heads": [[3, 1], [4, 2]]})
        testing.equal(origins["/generation/transcription/languages/en"], "generation_config.json")
        testing.equal(origins["/pipeline/flow/0/run"], "preset autoregressive-decoder")
        # the config wins, one key at a time; the caller wins over both
        said = {**CONFIG, "generation": {"transcription": {"languages": {"fr": 20}}, "suppress": []}}
        got = explained(made(temp, genai_config__json=said, generation_config__json=SPEECH), "--set", "/tokens/eos=[4]")
        testing.equal(got["config"]["generation"]["transcription"]["languages"], {"fr": 20})
        testing.equal((got["config"]["generation"]["suppress"], got["config"]["tokens"]["eos"]), ([], [4]))
        testing.equal(got["origins"]["/tokens/eos/0"], "setting")


def test_transcription_from_the_tokenizer():
    tokenizer = {"added_tokens": [{"id": 30 + i, "content": t} for i, t in enumerate(TOKENS)], "model": {}}
    with testing.temp_dir() as temp:
        for multilingual in (True, False):
            brief = {"is_multilingual": multilingual, "eos_token_id": 7}
            got = explained(made(temp, genai_config__json=CONFIG, generation_config__json=brief, tokenizer__json=tokenizer))["config"]
            want = {"multilingual": multilingual, "no_timestamps": 34, "previous_text": 35, "no_speech": 36, "timestamp_begin": 37}
            if multilingual:
                want.update({"languages": {"en": 31, "haw": 32}, "tasks": {"transcribe": 33}})
            testing.equal(got["generation"]["transcription"], want)
            testing.equal(got["tokens"]["decoder_start"], 30)


def test_pooling_of_sentence_transformers():
    prefix = "sentence_transformers.models."
    modules = [{"idx": 0, "path": "", "type": prefix + "Transformer"}, {"idx": 1, "path": "1_Pooling", "type": prefix + "Pooling"},
               {"idx": 2, "path": "2_Normalize", "type": prefix + "Normalize"}]
    flags = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False, "pooling_mode_lasttoken": False}
    with testing.temp_dir() as temp:
        for flag, mode in (("cls_token", "cls"), ("mean_tokens", "mean"), ("lasttoken", "last"), ("max_tokens", None)):
            for used in (modules, modules[:2]):
                folder = made(temp, modules__json=used)
                write(folder, "1_Pooling/config.json", {**flags, "pooling_mode_" + flag: True})
                want = {"mode": mode} if mode else {}
                testing.equal(explained(folder)["config"]["pooling"], {**want, "normalize": len(used) == 3}, flag)
        folder = made(temp, genai_config__json={**CONFIG, "pooling": {"mode": "last"}}, modules__json=modules)
        write(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
        testing.equal(explained(folder)["config"]["pooling"], {"mode": "last", "normalize": True})


def test_cache_of_hugging_face():
    """Files that are links into the blobs of the same repository."""
    with testing.temp_dir() as temp:
        root = os.path.join(temp, "models--a--b")
        snapshot = os.path.join(root, "snapshots", "0123abcd")
        os.makedirs(os.path.join(snapshot, "onnx"))
        os.mkdir(os.path.join(root, "blobs"))
        config = {"version": 2, "pipeline": {"sessions": {"decoder": {"file": "onnx/model.onnx"}}}}
        for blob, name, up in (("aa", "onnx/model.onnx", "../../../blobs/"), ("bb", "genai_config.json", "../../blobs/"),
                               ("cc", "generation_config.json", "../../blobs/")):
            path = os.path.join(root, "blobs", blob)
            if blob == "aa":
                shutil.copy(GRAPH, path)
            else:
                write(root, "blobs/" + blob, config if blob == "bb" else {"eos_token_id": 5})
            os.symlink(up + blob, os.path.join(snapshot, name))
        testing.equal(explained(snapshot)["config"]["tokens"]["eos"], 5)
        outside = os.path.join(temp, "elsewhere")
        shutil.copy(GRAPH, outside)
        os.remove(os.path.join(snapshot, "onnx", "model.onnx"))
        os.symlink(outside, os.path.join(snapshot, "onnx", "model.onnx"))
        run = testing.treadle("check", snapshot)
        testing.equal((run.returncode, "leads out of it" in run.stdout), (3, True), run.stdout)


def carrier(path, **texts):
    model = onnx.load(GRAPH)
    for name, text in texts.items():
        model.metadata_props.add(key=name.replace("__", "."), value=json.dumps(text))
    onnx.save(model, path)


def test_one_file_that_carries_all():
    preset = {"version": 2, "pipeline": {"extends": "autoregressive-decoder"}, "tokens": {"eos": 3}}
    with testing.temp_dir() as temp:
        path = os.path.join(temp, "any name.onnx")
        carrier(path, genai_config__json=preset, generation_config__json={"pad_token_id": 1})
        for given in (temp, path):  # the folder, and the file by itself
            got = explained(given)
            testing.equal(got["config"]["pipeline"]["sessions"], {"decoder": {"file": "any name.onnx"}})
            testing.equal(got["config"]["tokens"], {"eos": 3, "pad": 1})
            testing.equal([s["run"] for s in got["plan"]["steps"]], ["decoder"])
        # a folder's own files go over what is carried; a file by itself does not look at them
        write(temp, "generation_config.json", {"pad_token_id": 2})
        testing.equal((explained(temp)["config"]["tokens"]["pad"], explained(path)["config"]["tokens"]["pad"]), (2, 1))
        write(temp, "genai_config.json", {"version": 2, "pipeline": {"sessions": {"mine": {"file": "any name.onnx"}}}, "tokens": {"eos": 4}})
        testing.equal((explained(temp)["config"]["tokens"]["eos"], explained(path)["config"]["tokens"]["eos"]), (4, 3))
        # an error in it names the file and the key
        carrier(path, genai_config__json={"version": 2, "pipeline": {"extends": "none"}})
        run = testing.treadle("check", path)
        testing.equal(run.returncode, 3)
        assert run.stdout.startswith(f"{path}(genai_config.json):1:40 /pipeline/extends: error: Unknown pipeline preset"), run.stdout


testing.main()
