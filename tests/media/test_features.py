# timeout: 300
"""Features of small sound files against the formulas in NumPy (sounds.py); dialects of config; messages."""
import json
import os
import tempfile

import numpy as np

import sounds
import testing

work = tempfile.TemporaryDirectory(prefix="treadle-features-")


def path(name):
    return os.path.join(work.name, name)


def sound(x, name="x.wav", rate=16000):
    with open(path(name), "wb") as f:
        f.write(sounds.riff(x, rate))
    return path(name)


def config(value, name="config.json"):
    with open(path(name), "w", encoding="utf-8") as f:
        f.write(value if isinstance(value, str) else json.dumps(value))
    return path(name)


def features(audio, settings, *arguments):
    run = testing.treadle("features", audio, "--config", config(settings), "-o", path("out.npy"), *arguments)
    assert run.returncode == 0, run.stderr
    return np.load(path("out.npy"))


WHISPER = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "n_fft": 400, "hop_length": 160, "chunk_length": 30,
           "sampling_rate": 16000}
X = sounds.speech(1.37)


def test_log_mel_of_30_s():
    for bins in (80, 128):
        got = features(sound(X), dict(WHISPER, feature_size=bins))
        testing.equal(got.shape, (1, bins, 3000))
        testing.near(got[0], sounds.log_mel_30s(X, bins), 2e-5)
    mask = features(sound(X), WHISPER, "--tensor", "attention_mask")
    testing.equal((mask.dtype, mask.shape, int(mask.sum())), (np.int32, (1, 3000), -(-X.size // 160)))
    long = np.tile(X, 25)
    testing.near(features(sound(long), WHISPER)[0], sounds.log_mel_30s(long), 2e-5)
    testing.near(features(sound(long), WHISPER, "--offset", 16000, "--length", 480000)[0], sounds.log_mel_30s(long[16000:]), 2e-5)
    whole = features(sound(long), WHISPER, "--whole")
    testing.near(whole[0], sounds.log_mel_30s(long, samples=long.size), 2e-5)
    silence = features(sound(np.zeros(1000, np.float32)), WHISPER)
    testing.near(silence, np.full((1, 80, 3000), (-10 + 4) / 4), 1e-7)


def test_other_sizes():
    """Odd, prime and small transforms; hops that do not divide."""
    for n_fft, hop in ((401, 160), (10, 3), (62, 31), (25, 7), (254, 100), (4099, 4099), (930, 300), (1023, 500), (2, 1)):
        settings = {"sampling_rate": 16000, "steps": [
            {"step": "frames", "length": n_fft, "hop": hop}, {"step": "window", "name": "hamming", "periodic": False},
            {"step": "spectrum", "n": n_fft, "power": 1}]}
        w = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(n_fft) / (n_fft - 1))
        want = np.abs(np.fft.rfft(sounds.frames(X, n_fft, hop) * w))
        testing.near(features(sound(X), settings)[0].T, want, 2e-6 * want.max(), str(n_fft))


def test_normalized():
    settings = {"feature_extractor_type": "ParakeetFeatureExtractor", "feature_size": 80, "n_fft": 512, "win_length": 400, "hop_length": 160,
                "preemphasis": 0.97, "sampling_rate": 16000}
    want = sounds.log_mel_normalized(X)
    testing.near(features(sound(X), settings)[0], want, 2e-4)
    flat = {"feature_size": 80, "n_fft": 512, "win_length": 400, "hop_length": 160, "preemphasis": 0.97, "sampling_rate": 16000,
            "log_eps": 2.0**-24, "norm_eps": 1e-5}
    testing.near(features(sound(X), flat)[0].T, want, 2e-4)
    testing.equal(features(sound(X), flat, "--tensor", "length").tolist(), [X.size // 160])


def test_filter_bank_steps():
    """The front end of speech toolkits, written as steps."""
    for options in ({}, {"window": "hann", "preemphasis": 0, "remove_mean": False, "bins": 23}, {"window": "ones", "length": 320, "hop": 200, "bins": 40},
                    {"snip": False, "high": 7600}, {"n_fft": 400}):
        o = {"bins": 80, "length": 400, "hop": 160, "window": "povey", "preemphasis": 0.97, "remove_mean": True, "low": 20, "high": 8000, "snip": True,
             "n_fft": 512, **options}
        steps = [{"step": "scale", "by": 32768},
                 {"step": "frames", "length": o["length"], "hop": o["hop"], "pad": "none" if o["snip"] else "middle", "pad_mode": "mirror"}]
        steps += [{"step": "remove_mean"}] * o["remove_mean"]
        steps += [{"step": "frame_preemphasis", "coefficient": o["preemphasis"]}, {"step": "window", "name": o["window"], "periodic": False},
                  {"step": "spectrum", "n": o["n_fft"]},
                  {"step": "mel", "bins": o["bins"], "scale": "kaldi", "triangles": "mel", "minimum_hz": o["low"], "maximum_hz": o["high"]},
                  {"step": "log", "floor": 2.0**-23}]
        settings = {"sampling_rate": 16000, "steps": steps, "outputs": [{"name": "f", "layout": "frames_first"}]}
        testing.near(features(sound(X), settings)[0], sounds.kaldi_fbank(X * np.float32(32768), **options), 2e-5, str(options))


def test_stacking_and_bins():
    frames = {"step": "frames", "length": 4, "hop": 4}
    x = np.arange(1, 41, dtype=np.float32) / 64
    rows = x.reshape(10, 4)

    def run(*steps, layout="frames_first"):
        return features(sound(x), {"sampling_rate": 16000, "steps": [frames, *steps], "outputs": [{"name": "f", "layout": layout}]})[0]

    testing.near(run(), rows, 0)
    testing.near(run(layout="bins_first"), rows.T, 0)
    testing.near(run({"step": "stack", "frames": 3}), rows[:9].reshape(3, 12), 0)
    edges = np.concatenate([rows[:1]] * 3 + [rows] + [rows[-1:]] * 3)
    testing.near(run({"step": "stack", "frames": 7, "hop": 6, "edges": True}), np.stack([edges[i:i + 7].reshape(-1) for i in (0, 6)]), 0)
    testing.near(run({"step": "bins", "subtract": [1, 2, 3, 4], "divide": [1, 2, 4, 8]}), (rows - [1, 2, 3, 4]) / [1, 2, 4, 8], 1e-6)
    testing.near(run({"step": "pad_frames", "multiple": 4, "value": -1}), np.concatenate([rows, -np.ones((2, 4))]), 0)
    testing.near(run({"step": "drop_frames", "last": 3}), rows[:7], 0)
    testing.near(run({"step": "clip_frames", "frames": 12, "with_minimum": True}), np.concatenate([rows, np.full((2, 4), rows.min())]), 0)
    testing.near(run({"step": "normalize", "unbiased": True}), (rows - rows.mean(0)) / rows.std(0, ddof=1), 1e-5)
    testing.near(run({"step": "limit_range", "below": 0.25}), np.maximum(rows, rows.max() - 0.25), 1e-7)
    testing.near(run({"step": "affine", "subtract": 0.5, "divide": 4, "multiply": 2}), (rows - 0.5) / 2, 1e-7)


def test_waveform():
    settings = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": True, "sampling_rate": 16000}
    got = features(sound(X), settings)
    testing.near(got[0], (X - X.mean()) / np.sqrt(X.var() + 1e-7), 1e-5)
    stereo = np.stack([X, -0.5 * X], 1)
    with open(path("s.wav"), "wb") as f:
        f.write(sounds.riff(stereo, 16000, channels=2))
    testing.near(features(path("s.wav"), dict(settings, do_normalize=False))[0], X * np.float32(0.25), 1e-7)


def test_steps_on_samples():
    def run(*steps, x=X):
        return features(sound(x), {"sampling_rate": 16000, "steps": list(steps)})[0]

    for n in (16, 17, 799, 1000):
        testing.near(run({"step": "dither", "amount": 0.5}, x=X[:n]), X[:n] + 0.5 * sounds.torch_randn(n), 2e-6, str(n))
    testing.near(run({"step": "preemphasis", "coefficient": 0.9}), np.concatenate([X[:1], X[1:] - np.float32(0.9) * X[:-1]]), 1e-7)
    testing.near(run({"step": "scale", "by": -3}), X * np.float32(-3), 0)
    testing.near(run({"step": "pad", "left": 5, "right": 2, "minimum": X.size + 1, "multiple": 100, "value": 0.5}),
                 np.concatenate([np.full(5, 0.5), X, np.full(-X.size % 100 + 2, 0.5)]), 0)
    testing.near(run({"step": "clip", "samples": 100}), X[:100], 0)
    testing.near(run({"step": "clip", "seconds": 2, "value": 1}), np.concatenate([X, np.ones(32000 - X.size)]), 0)
    testing.near(run({"step": "clip", "samples": 100, "cut": False}), X, 0)
    for real in (False, True):
        steps = {"sampling_rate": 16000, "steps": [{"step": "pad", "minimum": 2 * X.size, "real": real}]}
        testing.equal(int(features(sound(X), steps, "--tensor", "attention_mask").sum()), X.size * (2 if real else 1))


def test_the_same_in_every_dialect():
    """One front end as fields, nested fields, the flat form, without a type, and from folders."""
    want = features(sound(X), WHISPER)
    fields = {k: v for k, v in WHISPER.items() if k != "feature_extractor_type"}
    for other in (dict(fields, audio_processor_type="WhisperFeatureExtractor"), fields, {"feature_extractor": WHISPER}):
        testing.near(features(sound(X), other), want, 0)
    for number, (name, text) in enumerate((("preprocessor_config.json", WHISPER), ("audio_processor.json", fields),
                                           ("genai_config.json", {"version": 2, "pipeline": {"sessions": {}, "preprocessing": {"audio": {"config": WHISPER}}}}),
                                           ("genai_config.json", {"version": 2, "pipeline": {"sessions": {}, "preprocessing": {"audio": {"config": "a.json"}}}}))):
        folder = path(f"folder{number}")
        os.mkdir(folder)
        for file, value in ((name, text), ("a.json", WHISPER)):
            with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
                json.dump(value, f)
        run = testing.treadle("features", sound(X), "--config", folder, "-o", path("out.npy"))
        assert run.returncode == 0, (name, run.stderr)
        testing.near(np.load(path("out.npy")), want, 0)


def test_operations():
    """The sequence that existing model folders ship: the transform ends with the samples, the padding is the floor."""
    def op(kind, **attrs):
        return {"operation": {"name": kind, "type": kind, "attrs": attrs}}

    sequence = [op("AudioDecoder"), op("STFTNorm", n_fft=400, frame_length=400, hop_length=160, _comment=[0.0, 1.0]),
                op("LogMelSpectrum", chunk_size=30, hop_length=160, n_fft=400, n_mel=80)]
    got = features(sound(X), {"feature_extraction": {"sequence": sequence}})
    want = sounds.log_mel_30s(X, samples=X.size + 200)[:, :X.size // 160] # beyond the end: zeros
    testing.equal(got.shape, (1, 80, 3000))
    testing.near(got[0, :, :want.shape[1]], want, 2e-5)
    testing.near(got[0, :, want.shape[1]:], np.full((80, 3000 - want.shape[1]), want.min()), 2e-5)
    got = features(sound(X), {"feature_extraction": {"sequence": [op("AudioDecoder"), op("NemoLogMel", num_mels=64), op("PerFeatureNormalize")]}})
    testing.equal(got.shape, (1, 64, X.size // 160 + 1))
    testing.near(got[0].mean(1), np.zeros(64), 1e-5)
    testing.near(got[0].std(1, ddof=1), np.ones(64), 1e-3)


def fails(code, words, audio, settings, *arguments):
    run = testing.treadle("features", audio, "--config", config(settings), *arguments)
    assert run.returncode == code and run.stdout == "", (settings, run)
    for word in words:
        assert word in run.stderr, (word, run.stderr)


def test_wrong_configs():
    x = sound(X)
    fails(3, ["config.json", "1:"], x, "{")
    fails(3, ["config.json:1:1", "expected an object, found an array"], x, "[]")
    fails(3, ["expected an audio preprocessing config"], x, "{}")
    fails(3, ['unknown feature extractor "WhisperFeatureExtracto"', 'Did you mean "WhisperFeatureExtractor"?'], x,
          {"feature_extractor_type": "WhisperFeatureExtracto"})
    fails(3, ["/n_fft", "expected an integer, found a string"], x, dict(WHISPER, n_fft="400"))
    fails(3, ["/n_fft"], x, dict(WHISPER, n_fft=0))
    fails(3, ["/n_fft"], x, dict(WHISPER, n_fft=1 << 40))
    fails(3, ["/hop_length"], x, dict(WHISPER, hop_length=-1))
    fails(3, ["/feature_size"], x, dict(WHISPER, feature_size=1 << 30))
    fails(3, ["/sampling_rate"], x, dict(WHISPER, sampling_rate=1))
    fails(3, ["/chunk_length"], x, dict(WHISPER, chunk_length=1e300))
    fails(3, ["/chunk_length"], x, json.dumps(WHISPER).replace('"chunk_length": 30', '"chunk_length": NaN'))
    steps = {"sampling_rate": 16000}
    for wrong, word in (([{"step": "nosuch"}], "expected a \"step\" of scale, clip"), ([{}], "expected a \"step\""), (["x"], "step"), ([{"step": "mel", "bins": 4}], "wrong place"),
                        ([{"step": "frames", "length": 4, "hop": 1}, {"step": "scale"}], "wrong place"), ([{"step": "scale", "bx": 1}], 'no key "bx"'),
                        ([{"step": "frames", "length": 4, "hop": 1}, {"step": "mel", "bins": 4}], "expected a spectrum"), ([{"step": "frames", "hop": 1}], "length"),
                        ([{"step": "frames", "length": 4, "hop": 1}, {"step": "log"}], "silence has no logarithm"),
                        ([{"step": "frames", "length": 4, "hop": 1}, {"step": "window", "length": 5}], "no longer than the frame"),
                        ([{"step": "frames", "length": 4, "hop": 1}, {"step": "window", "name": "x"}], "expected one of hann, hamming, povey, ones"),
                        ([{"step": "frames", "length": 4, "hop": 1}, {"step": "bins", "divide": [1, 2]}], "expected an array of 4 numbers"),
                        ([{"step": "pad", "left": 1}] * 65, "at most 64"), (7, "expected an array of steps")):
        fails(3, [word, "/steps"], x, dict(steps, steps=wrong))
    fails(3, ["sampling_rate"], x, {"steps": []})
    fails(3, ["/outputs"], x, dict(steps, steps=[], outputs=[]))
    fails(3, ["outputs", "name"], x, dict(steps, steps=[], outputs=[{}]))
    sequence = {"feature_extraction": {"sequence": [{"operation": {"type": "STFTNom"}}]}}
    fails(3, ['unknown audio operation "STFTNom"', 'Did you mean "STFTNorm"?', "/feature_extraction/sequence/0/operation/type"], x, sequence)
    sequence["feature_extraction"]["sequence"][0]["operation"] = {"type": "AudioDecoder", "attrs": {"nosuch": 1}}
    fails(3, ['no attribute "nosuch"'], x, sequence)
    fails(3, ["expected an array of operations"], x, {"feature_extraction": {}})
    fails(3, ["overrides", "/n_fft"], x, WHISPER, "--fields", '{"n_fft": true}')
    run = testing.treadle("features", x, "--config", path("nosuch.json"))
    assert run.returncode == 3 and "nosuch.json" in run.stderr, run
    os.mkdir(path("empty"))
    run = testing.treadle("features", x, "--config", path("empty"))
    assert run.returncode == 3 and "preprocessor_config.json" in run.stderr, run


def test_wrong_use():
    x = sound(X)
    for arguments in ((), (x, "--rate", "8000", "--config", "y"), (x, "--whole"), (x, "--rate", "-1"), (x, "--tensor", "nosuch"), (x, "--rate", "7")):
        testing.equal(testing.treadle("features", *arguments).returncode, 2, str(arguments))
    fails(2, ["offset"], x, WHISPER, "--offset", 10**9)
    fails(2, ["no samples"], sound(np.zeros(0, np.float32), "empty.wav"), WHISPER)
    got = testing.treadle_json("features", x, "--config", config(WHISPER), "--json")
    testing.equal(got, {"sample_rate": 16000, "tensors": [{"name": "input_features", "dtype": "float32", "shape": [1, 80, 3000]},
                                                          {"name": "attention_mask", "dtype": "int32", "shape": [1, 3000]}]})


testing.main()
