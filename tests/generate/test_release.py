"""A step's "release": the weights of a session go once it has run and come back when it runs again, whether they lie in the model's files,
in the cache of packed weights or in memory. The tokens are those of a run that lets nothing go."""
import json
import os
import shutil

import drive
import testing

PROMPTS = [[1, 5, 9, 2], [3, 3, 7]]


def tokens(folder, *more, **environment):
    saved = dict(os.environ)
    os.environ.update(environment)
    try:
        with drive.Drive(folder, *more) as d:
            return d.ask(op="generate", prompts=PROMPTS, options={"max_new_tokens": 12, "eos": []})["tokens"]
    finally:
        os.environ.clear()
        os.environ.update(saved)


def test_tokens_stay():
    with testing.temp_dir() as temp:
        for name in ("concat", "gqa", "concat-f16"):
            folder = os.path.join(temp, name)
            shutil.copytree(testing.source("tests/data/pipelines/" + name), folder)
            path = os.path.join(folder, "genai_config.json")
            if os.path.exists(path):
                os.remove(path)
            want = tokens(folder, "--no-cache")
            config = {"version": 2, "pipeline": {"sessions": {"decoder": {"file": "model.onnx"}}, "flow": {"run": "decoder", "release": "decoder"}}}
            with open(path, "w", encoding="utf-8") as f:
                json.dump(config, f)
            testing.equal(tokens(folder, "--no-cache"), want, name)
            cache = os.path.join(temp, "cache-" + name)
            for _ in range(2):  # packed now, then read
                testing.equal(tokens(folder, TREADLE_CACHE=cache), want, name)


testing.main()
