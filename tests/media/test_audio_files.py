# timeout: 300
"""Sound files as they come: kinds of samples, damaged and hostile ones. (Formats in depth: test_goldens.py.)"""
import os
import struct
import tempfile

import numpy as np

import sounds
import testing

work = tempfile.TemporaryDirectory(prefix="treadle-audio-")
OUT = os.path.join(work.name, "out.npy")


def write(data, name="x.wav"):
    path = os.path.join(work.name, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def samples(path, *arguments):
    run = testing.treadle("features", path, "-o", OUT, *arguments)
    assert run.returncode == 0, run.stderr
    return np.load(OUT)


def fails(path, *words, code=1):
    run = testing.treadle("features", path, timeout=60)
    assert run.returncode == code and run.stdout == "", run
    for word in words:
        assert word in run.stderr, (word, run.stderr)


X = sounds.speech(0.25)


def test_kinds_of_samples():
    pcm16, pcm32 = np.round(X * 32767), np.round(X * 2147483647.0).astype(np.int64)
    testing.near(samples(write(sounds.riff(X, 16000)))[:, 0], X, 0)
    testing.near(samples(write(sounds.riff(X, 16000, bits=64)))[:, 0], X, 0)
    testing.near(samples(write(sounds.riff(pcm16, 16000, tag=1, bits=16)))[:, 0], pcm16 / 32768, 0)
    testing.near(samples(write(sounds.riff(pcm32, 16000, tag=1, bits=32)))[:, 0], pcm32 / 2147483648, 1e-7)
    testing.near(samples(write(sounds.riff(np.round(X * 127) + 128, 16000, tag=1, bits=8)))[:, 0], np.round(X * 127) / 128, 0)
    for channels in (2, 3, 64):
        many = np.stack([X * (c + 1) / channels for c in range(channels)], 1)
        path = write(sounds.riff(many, 44100, channels))
        testing.near(samples(path), many, 0)
        testing.near(samples(path, "--rate", 44100)[:, 0], many.mean(1), 1e-6)


def test_resampling():
    """A tone stays that tone; what lies above the new band goes."""
    for rate in (8000, 11025, 22050, 44100, 48000, 96000, 16000):
        t = np.arange(rate) / rate
        tone = (0.5 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)
        got = samples(write(sounds.riff(tone, rate)), "--rate", 16000)[:, 0]
        testing.equal(got.shape, (16000,), str(rate))
        want = 0.5 * np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
        testing.near(got[500:-500], want[500:-500], 1e-4, str(rate))
        if rate > 32000:
            high = (0.5 * np.sin(2 * np.pi * 12000 * t)).astype(np.float32)
            assert np.abs(samples(write(sounds.riff(high, rate)), "--rate", 16000)[500:-500]).max() < 1e-4, rate
    testing.equal(samples(write(sounds.riff(X[:0], 44100)), "--rate", 16000).shape, (0, 1))
    testing.equal(samples(write(sounds.riff(X[:1], 44100)), "--rate", 16000).shape, (0, 1))
    testing.equal(samples(write(sounds.riff(X[:2], 44100)), "--rate", 16000).shape, (1, 1))


def test_cut_short():
    whole = sounds.riff(X, 16000)
    for n in (44 + 4 * 100, 44 + 4 * 100 + 3, len(whole) - 1):
        got = samples(write(whole[:n]))
        testing.equal(got.shape, ((n - 44) // 4, 1))
        assert "x.wav: the file is cut short or damaged" in testing.treadle("features", write(whole[:n])).stderr, n
        testing.near(got[:, 0], X[:got.shape[0]], 0)
    for n in range(0, 41):
        run = testing.treadle("features", write(whole[:n]))
        assert run.returncode == 1 and "x.wav" in run.stderr, (n, run)
    for whole in (sounds.riff(X, 16000), sounds.riff(X, 16000, data_bytes=0xFFFFFFFF), sounds.riff(X, 16000) + b"LIST\4\0\0\0INFO"):
        testing.equal(samples(write(whole)).shape, (X.size, 1))
        testing.equal(testing.treadle("features", write(whole)).stderr, "")
    au = struct.pack(">4s5I", b".snd", 24, 2 * X.size, 3, 16000, 1) + np.round(X * 32767).astype(">i2").tobytes()
    for n, cut in ((len(au), False), (len(au) - 2, True)):
        run = testing.treadle("features", write(au[:n], "x.au"))
        testing.equal((run.returncode, "cut short" in run.stderr), (0, cut), run.stderr)


def test_what_is_no_sound():
    for name, data in (("a.wav", b"This is a letter, not a sound.\n" * 40), ("b.wav", b"RIFF" + bytes(400)), ("c.flac", b"fLaC" + os.urandom(400)), ("d.ogg", b"OggS" + bytes(400)),
                       ("e.mp3", b"ID3\x04\0\0\0\0\x0f\x7f" + bytes(400)), ("f.wav", os.urandom(1000)), ("g.png", b"\x89PNG\r\n\x1a\n" + bytes(100)), ("h.caf", b"caff\0\1\0\0" + bytes(200)),
                       ("i.json", b"{}"), ("j.wav", b"\n")):
        run = testing.treadle("features", write(data, name), timeout=60)
        assert run.returncode in (0, 1) and (run.returncode or "samples" in run.stdout), (name, run)
        if name[0] in "abgij":
            fails(write(data, name), name, "expected WAV, FLAC, OGG")
    fails(write(b"", "empty.wav"), "empty.wav", "no bytes at all")
    fails(os.path.join(work.name, "nosuch.wav"), "nosuch.wav", "No such file")
    fails(work.name, work.name)
    fails("/dev/null", "/dev/null")


def test_absurd_headers():
    for channels in (65, 300, 1024, 65535):
        fails(write(sounds.riff(np.zeros((4, channels)), 16000, channels, tag=1, bits=16)), "x.wav")
    fails(write(sounds.riff(np.zeros((4, 65)), 16000, 65, tag=1, bits=16)), "1 to 64 channels, found 65")
    fails(write(sounds.riff(X, 16000, channels=0)), "x.wav")
    for rate in (0, 1, 999, 768001, 2**31, 2**32 - 1):
        fails(write(sounds.riff(X, rate)), "x.wav")
    fails(write(sounds.riff(X, 999)), "1000 to 768000 Hz, found 999")
    for rate in (1000, 768000):
        testing.equal(samples(write(sounds.riff(X, rate))).shape, (X.size, 1))
    for bad in (np.nan, np.inf, -np.inf, 1e38, -5e9):
        y = X.copy()
        y[7] = bad
        fails(write(sounds.riff(y, 16000)), "expected finite samples", "frame 7 of 4000")
    y = X.astype(np.float64)
    y[3] = 1e300
    fails(write(sounds.riff(y, 16000, bits=64)), "expected finite samples")
    # A FLAC stream that claims 2^36 - 1 samples.
    info = struct.pack(">HH", 4096, 4096) + bytes(6) + ((16000 << 44 | 15 << 36 | (1 << 36) - 1)).to_bytes(8, "big") + bytes(16)
    fails(write(b"fLaC\x80\0\0\x22" + info, "huge.flac"), "huge.flac")


testing.main()
