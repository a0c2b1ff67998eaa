"""Small sound files for the tests, written by hand: RIFF headers and NumPy samples."""
import struct

import numpy as np


def riff(samples, rate, channels=1, tag=3, bits=32, data_bytes=None):
    """A WAV file of float32 (tag 3) or PCM (tag 1) samples [frames, channels]."""
    kinds = {(3, 32): "<f4", (3, 64): "<f8", (1, 16): "<i2", (1, 8): "u1", (1, 32): "<i4"}
    data = np.ascontiguousarray(samples).astype(kinds[tag, bits]).tobytes()
    block = channels * bits // 8
    fmt = struct.pack("<HHIIHH", tag, channels, rate & 0xFFFFFFFF, (rate * block) & 0xFFFFFFFF, block & 0xFFFF, bits)
    chunks = b"fmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", len(data) if data_bytes is None else data_bytes) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def speech(seconds=1.0, rate=16000, seed=0):
    """Something with loud and quiet parts, tones and noise, float32."""
    t = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(seed).standard_normal(t.size)
    x = 0.3 * np.sin(2 * np.pi * (200 + 900 * t) * t) + 0.1 * np.sin(2 * np.pi * 3100 * t) + 0.05 * noise
    return (x * (0.2 + 0.8 * np.abs(np.sin(3 * np.pi * t)))).astype(np.float32)


# --- the formulas, in double precision

def to_mel(hz, scale):
    hz = np.asarray(hz, np.float64)
    if scale == "htk":
        return 2595 * np.log10(1 + hz / 700)
    if scale == "kaldi":
        return 1127 * np.log(1 + hz / 700)
    return np.where(hz < 1000, 3 * hz / 200, 15 + 27 * np.log(np.maximum(hz, 1) / 1000) / np.log(6.4))


def from_mel(mel, scale):
    mel = np.asarray(mel, np.float64)
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    if scale == "kaldi":
        return 700 * (np.exp(mel / 1127) - 1)
    return np.where(mel < 15, 200 * mel / 3, 1000 * 6.4 ** ((mel - 15) / 27))


def mel_filters(n, n_fft, rate, low, high, scale, norm=False, over_mel=False):
    """[bins, n]"""
    mels = np.linspace(to_mel(low, scale), to_mel(high, scale), n + 2)
    hz = from_mel(mels, scale)
    bins = np.arange(n_fft // 2 + 1) * rate / n_fft
    x, corners = (to_mel(bins, scale), mels) if over_mel else (bins, hz)
    rise = (x[:, None] - corners[:-2]) / (corners[1:-1] - corners[:-2])
    fall = (corners[2:] - x[:, None]) / (corners[2:] - corners[1:-1])
    filters = np.maximum(np.minimum(rise, fall), 0)
    return filters * 2 / (hz[2:] - hz[:-2]) if norm else filters


def frames(x, length, hop):
    return np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), length)[::hop]


def hann(n, periodic=True):
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / (n if periodic else n - 1))


def log_mel_30s(x, bins=80, n_fft=400, hop=160, samples=480000):
    """[bins, frames] as speech recognisers with a 30 s window take it."""
    x = np.pad(x[:samples].astype(np.float64), (0, max(0, samples - x.size)))
    x = np.pad(x, n_fft // 2, mode="reflect")
    power = np.abs(np.fft.rfft(frames(x, n_fft, hop) * hann(n_fft))) ** 2
    log = np.log10(np.maximum(power[:-1] @ mel_filters(bins, n_fft, 16000, 0, 8000, "slaney", norm=True), 1e-10))
    return ((np.maximum(log, log.max() - 8) + 4) / 4).T


def log_mel_normalized(x, bins=80, n_fft=512, win=400, hop=160, preemphasis=0.97):
    """[frames, bins], each bin normalised over the real frames; the last frame is none."""
    y = np.concatenate([x[:1], x[1:] - np.float32(preemphasis) * x[:-1]]).astype(np.float64)
    y = np.pad(y, n_fft // 2)
    window = np.pad(hann(win, periodic=False), (n_fft - win) // 2)
    power = np.abs(np.fft.rfft(frames(y, n_fft, hop) * window)) ** 2
    log = np.log(power @ mel_filters(bins, n_fft, 16000, 0, 8000, "slaney", norm=True) + 2.0**-24)
    valid = x.size // hop
    out = np.zeros_like(log)
    out[:valid] = (log[:valid] - log[:valid].mean(0)) / (log[:valid].std(0, ddof=1) + 1e-5)
    return out


def kaldi_fbank(x, bins=80, length=400, hop=160, window="povey", preemphasis=0.97, remove_mean=True, low=20, high=8000, snip=True,
                n_fft=512):
    if snip:
        cut = frames(x, length, hop) if x.size >= length else np.zeros((0, length))
    else:
        count = (x.size + hop // 2) // hop
        at = np.arange(count)[:, None] * hop + hop // 2 - length // 2 + np.arange(length)
        at = np.where(at < 0, -at - 1, at)
        at = np.where(at >= x.size, 2 * x.size - 1 - at, at)
        cut = x.astype(np.float64)[at]
    if remove_mean:
        cut = cut - cut.mean(1, keepdims=True)
    before = np.concatenate([cut[:, :1], cut[:, :-1]], 1)
    w = {"povey": hann(length, False) ** 0.85, "hann": hann(length, False), "ones": np.ones(length)}[window]
    power = np.abs(np.fft.rfft((cut - preemphasis * before) * w, n_fft)) ** 2
    return np.log(np.maximum(power @ mel_filters(bins, n_fft, 16000, low, high, "kaldi", over_mel=True), 2.0**-23))


def torch_randn(n):
    """torch.randn(n) after torch.manual_seed(n), for n of at least 16; torch.manual_seed(0); torch.randn(4, 4) begins -1.1258, -1.1524."""
    bits = np.random.MT19937()
    bits._legacy_seeding(n)

    def draw(k):
        return (np.array([bits.random_raw() for _ in range(k)], np.uint64) & 0xFFFFFF) / 2**24

    def pairs(u):
        u = u.reshape(-1, 2, 8)
        radius, angle = np.sqrt(-2 * np.log(1 - u[:, 0])), 2 * np.pi * u[:, 1]
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)

    x = draw(n)
    x[:n // 16 * 16] = pairs(x[:n // 16 * 16])
    if n % 16:
        x[n - 16:] = pairs(draw(16))
    return x
