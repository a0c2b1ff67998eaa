# timeout: 300
"""`treadle run` with tensors and sound: a speech-language pipeline whose right tokens are known (pipelines.tar.xz)."""
import json
import os
import tarfile
import tempfile

import numpy as np

import sounds
import testing

work = tempfile.TemporaryDirectory(prefix="treadle-run-media-")
NAME = "b10-speech-language"


def pipeline():
    """The folder, its first case and that case's features."""
    folder = os.path.join(work.name, "pipelines", NAME)
    if not os.path.exists(folder):
        with tarfile.open(testing.shared("data/pipelines.tar.xz")) as tar:
            tar.extractall(work.name, [m for m in tar.getmembers() if f"/{NAME}/" in m.name], filter="data")
    folder = next(root for root, _, files in os.walk(work.name) if "golden.npz" in files)
    with open(os.path.join(folder, "golden.json"), encoding="utf-8") as f:
        case = json.load(f)["cases"][0]
    return folder, case, np.load(os.path.join(folder, "golden.npz"))[case["tensors"]["input_features"]["npz"]]


def run(*arguments, code=0):
    folder, case, _ = pipeline()
    got = testing.treadle("run", folder, "--ids", ",".join(map(str, case["prompts"][0])), "-n", 8, "--greedy", "--json", *arguments)
    assert got.returncode == code, (got.returncode, got.stderr)
    return json.loads(got.stdout)["results"][0]["token_ids"] if code == 0 else got.stderr


def want():
    return pipeline()[1]["expect"]["tokens"][0]


def test_tensors():
    path = os.path.join(work.name, "x.npy")
    np.save(path, pipeline()[2])
    testing.equal(run("--input", f"input_features={path}"), want())
    np.save(path, pipeline()[2].astype(np.float64))
    testing.equal(run("-i", f"input_features={path}"), want())
    assert "nosuch" in run("--input", f"nosuch={path}", code=2)
    assert "NAME=FILE.npy" in run("--input", path, code=2)
    assert "nosuch.npy" in run("--input", "input_features=nosuch.npy", code=1)


def test_image():
    assert "--input NAME=FILE.npy" in run("--image", "cat.png", code=2)


def test_audio():
    """A front end that only cuts the samples makes any features from a sound file."""
    folder, _, features = pipeline()
    path = os.path.join(work.name, "x.wav")
    with open(path, "wb") as f:
        f.write(sounds.riff(features[0].T.reshape(-1), 16000))
    assert "preprocessor_config.json" in run("--audio", path, code=3)
    for outputs in ([{"name": "input_features"}], [{"name": "mel"}, {"name": "mask", "kind": "mask"}, {"name": "length", "kind": "count"}]):
        with open(os.path.join(folder, "preprocessor_config.json"), "w", encoding="utf-8") as f:
            json.dump({"sampling_rate": 16000, "steps": [{"step": "frames", "length": 10, "hop": 10}], "outputs": outputs}, f)
        testing.equal(run("--audio", path), want(), str(outputs))
    with open(os.path.join(folder, "preprocessor_config.json"), "w", encoding="utf-8") as f:
        json.dump({"sampling_rate": 16000, "steps": [{"step": "frames", "length": 11, "hop": 10}]}, f)
    assert "10" in run("--audio", path, code=2)
    with open(os.path.join(folder, "preprocessor_config.json"), "w", encoding="utf-8") as f:
        json.dump({"sampling_rate": 16000, "steps": [], "outputs": [{"name": "x"}]}, f)
    assert 'no tensor "x"' in run("--audio", path, code=3) and "input_features" in run("--audio", path, code=3)
    assert "nosuch.wav" in run("--audio", "nosuch.wav", code=1)


def test_check():
    """What the config's audio preprocessing makes is compared with the graphs before anything runs."""
    folder = pipeline()[0]
    path = os.path.join(folder, "genai_config.json")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    steps = [{"step": "frames", "length": 10, "hop": 10}]
    good = {"sampling_rate": 16000, "steps": steps}

    def check(audio, *words, code=3):
        root = json.loads(text)
        root["pipeline"]["preprocessing"] = {"audio": audio}
        with open(path, "w", encoding="utf-8") as f:
            json.dump(root, f)
        got = testing.treadle("check", folder)
        assert got.returncode == code, got
        for word in words:
            assert word in got.stdout, (word, got.stdout)
        assert code or words or "audio" not in got.stdout, got.stdout

    try:
        check({"config": good}, code=0)
        check({"config": dict(good, steps=[dict(steps[0], length=11)])}, "/pipeline/preprocessing/audio/config: error", 'makes "input_features" [1, 11, any]',
              '"speech" takes [any, 10, any]')
        check({"config": good, "expected_outputs": {"input_features": {"rank": 3, "dtype": "float32"}}}, code=0)
        check({"config": good, "expected_outputs": {"mel": {"rank": 3}}}, '/expected_outputs/mel: error: the audio preprocessing makes no "mel"')
        check({"config": dict(good, steps=[{"step": "nosuch"}])}, 'audio preprocessing: ', 'expected a "step" of scale')
        check({"config": "audio.json"}, "audio.json")
        with open(os.path.join(folder, "audio.json"), "w", encoding="utf-8") as f:
            f.write('{"steps":\n [], "sampling_rate": 0}')
        check({"config": "audio.json"}, "audio.json:2:23 /sampling_rate: expected an integer from 1000")
        with open(os.path.join(folder, "audio.json"), "w", encoding="utf-8") as f:
            f.write('{"feature_extractor_type": "Nosuch"}')
        check({"config": "audio.json"}, 'warning: audio preprocessing: ', 'unknown feature extractor "Nosuch"', code=0)
    finally:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


testing.main()
