# One file instead of a folder: the same weights and texts for the onnx library, the same tokens wherever the file is moved.
import json
import os
import shutil

import checkpoints
import gguf
import onnx
import testing

VOCAB = ["<unk>", "<s>", "</s>"] + [chr(97 + i) for i in range(26)]


def test_single_file():
    with testing.temp_dir() as temp:
        source = os.path.join(temp, "m.gguf")
        extra = [("tokenizer.ggml.model", "llama"), ("tokenizer.ggml.tokens", VOCAB), ("tokenizer.ggml.token_type", [2, 3, 3] + [1] * 26),
                 ("tokenizer.ggml.scores", [0.0] * len(VOCAB)), ("tokenizer.ggml.bos_token_id", 1), ("tokenizer.ggml.eos_token_id", 2)]
        checkpoints.write(source, gguf.GGMLQuantizationType.Q4_K, vocab=len(VOCAB), extra=extra)
        folder, single = os.path.join(temp, "folder"), os.path.join(temp, "single")
        checkpoints.build(source, folder)
        checkpoints.build(source, single, "--single-file")
        testing.equal(os.listdir(single), ["model.onnx"])
        model = onnx.load(os.path.join(single, "model.onnx"))
        carried = {p.key: p.value for p in model.metadata_props}
        for name in os.listdir(folder):
            if name.endswith(".json") and name != "genai_config.json":
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    testing.equal(carried[name], f.read(), name)
        testing.equal("sessions" in json.loads(carried["genai_config.json"])["pipeline"], False)
        plain = onnx.load(os.path.join(folder, "model.onnx"))
        inside = {t.name: t.raw_data for t in model.graph.initializer}
        testing.equal(inside, {t.name: t.raw_data for t in plain.graph.initializer})
        # elsewhere, under another name, beside files of another model
        moved = os.path.join(temp, "moved")
        os.mkdir(moved)
        shutil.move(os.path.join(single, "model.onnx"), os.path.join(moved, "mine.onnx"))
        for name in ("tokenizer.json", "genai_config.json"):
            with open(os.path.join(moved, name), "w") as f:
                f.write("{}")
        rows = [testing.treadle_json("run", path, "-p", "abc", "-n", "8", "--json")["results"][0]
                for path in (folder, os.path.join(moved, "mine.onnx"))]
        for key in ("prompt_ids", "token_ids", "text"):
            testing.equal(rows[1][key], rows[0][key], key)


testing.main()
