#!/usr/bin/env python3
"""Makes what docs/howto works on: the folder `mine`, of graphs alone, and the tensors of a request.

usage: howto.py [OUT]      (default: here; needs numpy and onnx, as scripts/setup installs them in .venv)

OUT/mine        the four graphs of 4-multimodal, both encoders' output called `features`, so that names do not tell whose they are
OUT/pixels.npy  an image for it
OUT/sound.npy   a sound for 5-plugin
"""
import json
import os
import sys

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))


def make_mine(folder):
    for session in ("vision_encoder", "audio_encoder", "embedding", "decoder"):
        model = onnx.load(os.path.join(HERE, "4-multimodal", session, "model.onnx"))
        if session.endswith("_encoder"):
            old = model.graph.output[0].name
            for node in model.graph.node:
                node.output[:] = ["features" if name == old else name for name in node.output]
            model.graph.output[0].name = "features"
        os.makedirs(os.path.join(folder, session), exist_ok=True)
        onnx.save(model, os.path.join(folder, session, "model.onnx"))


def save(example, name, path):
    """A tensor of an example's first request."""
    with open(os.path.join(HERE, example, "golden.json"), encoding="utf-8") as f:
        tensor = json.load(f)[0]["tensors"][name]
    np.save(path, np.array(tensor["data"], tensor["dtype"]).reshape(tensor["shape"]))


if __name__ == "__main__":
    out = sys.argv[1] if len(sys.argv) > 1 else "."
    make_mine(os.path.join(out, "mine"))
    save("4-multimodal", "pixel_values", os.path.join(out, "pixels.npy"))
    save("5-plugin", "audio_signal", os.path.join(out, "sound.npy"))
