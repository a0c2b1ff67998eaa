# timeout: 600
"""Decoding, resampling and features against what soundfile, soxr, transformers and kaldi-native-fbank gave (text-and-media.tar.xz; its
README has the tolerances), through `treadle features`."""
import hashlib
import json
import os
import tarfile
import tempfile

import numpy as np

import sounds
import testing

work = tempfile.TemporaryDirectory(prefix="treadle-media-")
_data = None


def data():
    """The archive's audio part, unpacked once: (folder, audio.json, full arrays)."""
    global _data
    if _data is None:
        with tarfile.open(testing.shared("data/text-and-media.tar.xz")) as tar:
            tar.extractall(work.name, [m for m in tar.getmembers() if "/aud/" in m.name or m.name.endswith("/audio.json")], filter="data")
        folder = next(root for root, _, files in os.walk(work.name) if "audio.json" in files)
        with open(os.path.join(folder, "audio.json"), encoding="utf-8") as f:
            _data = folder, json.load(f), np.fromfile(os.path.join(folder, "aud", "full.f32"), np.float32)
    return _data


def full(key):
    offset, count, shape = data()[1]["full_f32"]["index"][key]
    return data()[2][offset:offset + count].reshape(shape)


def sampled(array, n=200):
    """The values at the README's pseudo-random places."""
    flat, state, out = np.asarray(array).reshape(-1), 12345, []
    for _ in range(min(n, 10**9)):
        state = (1103515245 * state + 12345) % 2**31
        out.append(flat[state % flat.size])
    return np.array(out, np.float64)


def features(path, *arguments):
    out = os.path.join(work.name, "out.npy")
    run = testing.treadle("features", path, *arguments, "-o", out)
    assert run.returncode == 0, run.stderr
    return np.load(out)


def sha(array):
    return hashlib.sha256(np.ascontiguousarray(array, "<f4").tobytes()).hexdigest()


def media_file(name):
    folder = data()[0]
    here = os.path.join(folder, "aud", name)
    return here if os.path.exists(here) else testing.shared(os.path.join("data", "media", name))


def snr(got, want):
    noise = np.asarray(got, np.float64) - want
    return 10 * np.log10(np.sum(np.asarray(want, np.float64) ** 2) / max(np.sum(noise**2), 1e-300))


LOSSY = ("MPEG_LAYER_III", "VORBIS")


def test_decoding():
    for row in data()[1]["decode"]:
        path = media_file(row["file"])
        if "error" in row:
            run = testing.treadle("features", path)
            assert run.returncode == 1 and row["file"] in run.stderr, (row["file"], run)
            continue
        got = features(path)
        testing.equal(got.shape, (row["frames"], row["channels"]), row["file"])
        info = testing.treadle_json("features", path, "--json")
        testing.equal(info["sample_rate"], row["rate"], row["file"])
        if not row["frames"]:
            continue
        mono = features(path, "--rate", row["rate"])[:, 0]
        want = row["mono"]
        if row["subtype"] in LOSSY:
            assert snr(sampled(mono, len(want["samples"])), np.array(want["samples"])) > 50, row["file"]
        else:
            testing.equal(sha(mono), want["sha256_f32"], row["file"])


def test_cut_short():
    """What is left of a file is decoded, and it is said that it is not all. A whole one is not objected to, nor one with tags at its end."""
    out = os.path.join(work.name, "cut.npy")
    for name, tail in (("vorbis.ogg", b""), ("mono.mp3", b"TAG" + bytes(125)), ("s16.aiff", b""), ("s16.w64", b""),
                       ("list_chunk.wav", b""), ("1272-141231-0002.mp3", b""), ("jfk.flac", b"")):
        with open(media_file(name), "rb") as f:
            whole = f.read()
        for part in (whole + tail, whole[:-1 - len(whole) // 8]):
            path = os.path.join(work.name, "cut-" + name)
            with open(path, "wb") as f:
                f.write(part)
            run = testing.treadle("features", path, "-o", out)
            testing.equal((run.returncode, "cut short or damaged" in run.stderr), (0, len(part) < len(whole)), name + run.stderr)
            assert np.load(out).size > 0 or name == "vorbis.ogg", name  # whose samples lie in one page


def test_damaged_mp3():
    """No other library writes to standard error."""
    with open(media_file("mono.mp3"), "rb") as f:
        whole = f.read()
    rng = np.random.default_rng(1)
    for k in range(40):
        bytes_ = bytearray(whole)
        for at in rng.integers(0, len(whole), (1, 20, 200)[k % 3]):
            bytes_[at] = rng.integers(256)
        path = os.path.join(work.name, "damaged.mp3")
        with open(path, "wb") as f:
            f.write(bytes_)
        run = testing.treadle("features", path)
        assert run.returncode in (0, 1) and all(line.startswith("treadle: ") for line in run.stderr.splitlines()), run


def test_resampling():
    n = 0
    for row in data()[1]["decode"]:
        if "soxr_16k_HQ" not in row:
            continue
        n += 1
        got = features(media_file(row["file"]), "--rate", 16000)[:, 0]
        want = row["soxr_16k_HQ"]
        testing.equal(list(got.shape), want["shape"], row["file"])
        if "npz" in row:
            assert snr(got, full(row["npz"])) > 80, (row["file"], snr(got, full(row["npz"])))
        quality = snr(sampled(got, len(want["samples"])), np.array(want["samples"]))
        assert quality > (50 if row["subtype"] in LOSSY else 80), (row["file"], quality)
    assert n >= 5


def input_file(name):
    """One of the archive's inputs as a 32-bit float WAV file."""
    spec = data()[1]["inputs"][name]
    path = os.path.join(work.name, name + ".wav")
    if not os.path.exists(path):
        base = features(media_file(spec["file"]))[:, 0] if spec["file"] else np.zeros(spec["samples"], np.float32)
        if name == "jfk31s":
            base = np.tile(base, 3)
        first = 100 if name.startswith("odd") else 0
        x = base[first:first + spec["samples"]]
        testing.equal(sha(x), spec["sha256_f32"], name)
        with open(path, "wb") as f:
            f.write(sounds.riff(x, 16000))
    return path


TOLERANCE = {"WhisperFeatureExtractor": 1e-5, "VoxtralRealtimeFeatureExtractor": 1e-5, "Wav2Vec2FeatureExtractor": 1e-5,
             "Phi4MultimodalFeatureExtractor": 1e-4, "Gemma3nAudioFeatureExtractor": 1e-4, "LasrFeatureExtractor": 1e-4,
             "ParakeetFeatureExtractor": 2e-4, "NemotronAsrStreamingFeatureExtractor": 2e-4}


def close(got, want, tolerance, what):
    """Null among the samples means that the reference is not finite there."""
    want = np.array([np.nan if v is None else v for v in want], np.float64)
    testing.near(sampled(got, len(want)), want, tolerance, what)


def check_array(got, out, key, tolerance, what, worst):
    testing.equal(list(got.shape), out["shape"], what)
    if got.size == 0:
        return
    if "samples" in out:
        close(got, out["samples"], tolerance, what)
        worst.append(np.nanmax(np.abs(sampled(got, len(out["samples"])) - np.array([np.nan if v is None else v for v in out["samples"]], float))))
    if "npz" in out:
        part = got[tuple(slice(0, n) for n in out["npz_shape"])]
        off = np.abs(part - full(key))
        # The reference's own transform is float32: bins eight decades below the loudest carry its rounding.
        assert np.mean(off <= tolerance) > 0.99 and off.max() <= 5 * tolerance, (what, np.mean(off <= tolerance), off.max())
    if "sum" in out:
        testing.equal(int(got.sum()), out["sum"], what + " sum")
    if "first_zero" in out and out["sum"]:
        zeros = np.flatnonzero(np.asarray(got).reshape(-1) == 0)
        testing.equal(int(zeros[0]) if zeros.size else None, None if out["first_zero"] in (None, -1) else out["first_zero"], what)
    if "values" in out:
        testing.equal(got.astype(np.int64).reshape(-1).tolist(), np.array(out["values"]).astype(np.int64).reshape(-1).tolist(), what)


def test_extractors():
    for extractor in data()[1]["features"]:
        config = os.path.join(work.name, extractor["name"] + ".json")
        with open(config, "w", encoding="utf-8") as f:
            json.dump(extractor["config"], f)
        tolerance, worst = TOLERANCE.get(extractor["class"], 1e-3), [0.0]
        normalize = extractor["call"].get("do_normalize") and extractor["class"] == "WhisperFeatureExtractor"
        fields = ("--fields", '{"call/do_normalize": true}') if normalize else ()
        for row in extractor["inputs"]:
            path, what = input_file(row["input"]), extractor["name"] + " " + row["input"]
            if "error" in row:
                run = testing.treadle("features", path, "--config", config)
                assert run.returncode == 2 and "too short" in run.stderr, (what, run)
                continue
            for name, out in row["out"].items():
                # Silence normalised is rounding blown up; the attention mask of samples belongs to that call alone.
                loose = tolerance
                if row["input"].startswith("silence") and extractor["class"] in ("ParakeetFeatureExtractor", "SeamlessM4TFeatureExtractor"):
                    loose = 0.2
                if normalize and name == "attention_mask":
                    continue
                got = features(path, "--config", config, "--tensor", name, *fields)
                check_array(got, out, f"{extractor['name']}|{row['input']}|{name}", loose, what + " " + name, worst)
        if os.environ.get("SHOW"):
            print(extractor["name"], "worst", max(worst), flush=True)


def kaldi_steps(options, scale):
    """Kaldi's options, as that library prints them, as steps."""
    words = options.replace(",", " ").replace("(", " ").replace(")", " ").replace("=", ": ").replace(":", " ").split()
    o = dict(zip(words, words[1:]))
    rate = int(o["samp_freq"])

    def samples(ms):
        return int(float(o[ms]) * rate / 1000)

    kind = {"povey": "povey", "hanning": "hann", "hamming": "hamming", "rectangular": "ones"}[o["window_type"]]
    snip = o["snip_edges"] == "1"
    steps = [{"step": "scale", "by": scale},
             {"step": "frames", "length": samples("frame_length_ms"), "hop": samples("frame_shift_ms"), "pad": "none" if snip else "middle", "pad_mode": "mirror"}]
    if o["remove_dc_offset"] == "1":
        steps.append({"step": "remove_mean"})
    if o.get("use_energy") == "True":
        steps.append({"step": "energy"})
    steps += [{"step": "frame_preemphasis", "coefficient": float(o["preemph_coeff"])}, {"step": "window", "name": kind, "periodic": False},
              {"step": "spectrum", "n": 0 if o["round_to_power_of_two"] == "1" else samples("frame_length_ms")},
              {"step": "mel", "bins": int(o["num_bins"]), "scale": "kaldi", "triangles": "mel", "minimum_hz": float(o["low_freq"]), "maximum_hz": float(o["high_freq"])},
              {"step": "log", "floor": 2.0**-23}]
    if "num_ceps" in o:
        steps.append({"step": "cepstrum", "count": int(o["num_ceps"]), "lifter": float(o["cepstral_lifter"]), "energy": o["use_energy"] == "True"})
    return {"sampling_rate": rate, "steps": steps, "outputs": [{"name": "features", "layout": "frames_first"}]}


def test_kaldi():
    for front in data()[1]["kaldi"]:
        config = os.path.join(work.name, "kaldi.json")
        with open(config, "w", encoding="utf-8") as f:
            json.dump(kaldi_steps(front["options"], front["scale"]), f)
        worst = [0.0]
        for row in front["inputs"]:
            what = front["name"] + " " + row["input"]
            got = features(input_file(row["input"]), "--config", config)[0]
            testing.equal(got.shape[0], row["frames"], what)
            if row["frames"]:
                check_array(got, dict(row["out"], npz_shape=row["out"]["shape"]) if "npz" in row["out"] else row["out"],
                            f"kaldi_{front['name']}|{row['input']}", 2e-3, what, worst)
        if os.environ.get("SHOW"):
            print(front["name"], "worst", max(worst), flush=True)


testing.main()
