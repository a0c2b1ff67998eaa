#!/usr/bin/env python3
"""Writes data/transcripts.json: how long recordings are cut into segments, and when tokens were spoken.

The computation is written out here from the papers and from how transformers 5.23 does it (long-form generation and token timestamps), in
plain Python and NumPy; it shares nothing with the library. Run by hand: scripts/run-python tests/generate/make_transcript_goldens.py
"""
import json
import os

import numpy as np

BEGIN, STEP, FRAMES_PER_STEP = 100, 0.02, 2


def segments(ids, n_frames):
    """[(start, end, first, n)], frames to the next window."""
    times = [i >= BEGIN for i in ids]
    pairs = [i + 1 for i in range(len(ids) - 1) if times[i] and times[i + 1]]
    single = times[-2:] == [False, True]
    if not pairs:
        end = int(n_frames / FRAMES_PER_STEP)
        last = [i for i in ids if i >= BEGIN]
        if last and last[-1] != BEGIN:
            end = last[-1] - BEGIN
        return [(0.0, end * STEP, 0, len(ids))] if ids else [], n_frames
    out, first = [], 0
    for end in pairs + ([len(ids)] if single else []):
        out.append(((ids[first] - BEGIN) * STEP if times[first] else 0.0, (ids[end - 1] - BEGIN) * STEP, first, end - first))
        first = end
    move = n_frames if single else (ids[pairs[-1] - 1] - BEGIN) * FRAMES_PER_STEP
    return out, move or n_frames


def warp(cost):
    """The first column of each row on the cheapest monotone path; sums in float32, ties to the left."""
    n, m = cost.shape
    total = np.full((n + 1, m + 1), np.inf, np.float32)
    came = np.zeros((n + 1, m + 1), int)
    total[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            a, b, c = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            came[i, j] = 0 if a < b and a < c else 1 if b < a and b < c else 2
            total[i, j] = cost[i - 1, j - 1] + float((a, b, c)[came[i, j]])
    came[0, :], came[:, 0] = 2, 1
    i, j, path = n, m, []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        i, j = i - (came[i, j] != 2), j - (came[i, j] != 1)
    path = np.array(path[::-1])
    return path[np.concatenate([[True], np.diff(path[:, 0]) > 0]), 1]


def median(x, width=7):
    half = width // 2
    if x.shape[-1] <= half:
        return x
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1), axis=-1)


def token_frames(weights):
    """weights [heads, tokens, frames]"""
    w = weights.astype(np.float64)
    deviation = w.std(axis=1, keepdims=True)
    w = np.divide(w - w.mean(axis=1, keepdims=True), deviation, out=np.zeros_like(w), where=deviation > 0)
    return warp(-median(w).mean(axis=0))


def attention(heads, tokens, frames, seed, sharp):
    """Tokens one after the other, some noise; numbers of 1/1024 so that the file is small and exact."""
    rng = np.random.default_rng(seed)
    centre = np.sort(rng.uniform(0, frames, tokens))
    at = np.arange(frames)
    w = np.exp(-((at - centre[:, None]) ** 2) / (2 * sharp**2)) + 0.2 * rng.random((heads, tokens, frames))
    return np.round(1024 * w / w.max()) / 1024


def main():
    t = BEGIN
    cut = []
    for ids in ([], [5], [t], [t + 3], [5, 6], [t, 5, 6, t + 50], [t, 5, t + 10, t + 10, 6], [t, 5, t + 10, t + 10, 6, t + 20], [t, 5, t + 10, t + 12, 6, t + 20, t + 20],
                [t, t], [t, t, 5], [5, t + 4, t + 5, 6], [t + 2, 5, 6, t], [t, 5, t + 4, 6, t + 9, 7], [t, 5, t + 10, t + 10, t + 10, 6, t + 20], [t, 1, t + 5, t + 5, 2, t + 9, t + 9, 3, t + 12],
                [t, 5, t + 10, t + 10, 6, t + 20, 7], [1, 2, t + 7], [t, 5, t + 1500, t + 1500]):
        for n_frames in (3000, 1501, 1):
            found, move = segments(ids, n_frames)
            cut.append({"ids": ids, "frames": n_frames, "segments": found, "move": move})
    align = []
    for heads, tokens, frames, seed, sharp in ((1, 1, 5, 0, 2), (2, 3, 2, 1, 1), (1, 4, 3, 2, 1), (3, 12, 40, 3, 2), (2, 5, 4, 4, 1), (4, 20, 90, 5, 3), (1, 7, 7, 6, 1), (2, 9, 60, 7, 8)):
        w = attention(heads, tokens, frames, seed, sharp)
        align.append({"heads": heads, "tokens": tokens, "frames": frames, "weights": (w * 1024).astype(int).reshape(-1).tolist(),
                      "first": token_frames(w.astype(np.float32)).tolist()})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "transcripts.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"begin": %d, "step": %g,\n"cut": [\n' % (BEGIN, STEP) + ",\n".join(json.dumps(c) for c in cut) + '],\n"align": [\n'
                + ",\n".join(json.dumps(a, separators=(",", ":")) for a in align) + "]}\n")


if __name__ == "__main__":
    main()
