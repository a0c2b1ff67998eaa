# Bad sources and bad places to write: a message that names file and place, nothing left behind, nothing outside touched.
import os
import struct

import checkpoints
import gguf
import testing


def sample(folder, **made):
    path = os.path.join(folder, "m.gguf")
    checkpoints.write(path, gguf.GGMLQuantizationType.Q4_0, hidden=64, ffn=64, heads=2, kv_heads=1, vocab=8, **made)
    return path


def refused(source, out, *parts, code=3):
    run = testing.treadle("build", source, "-o", out)
    testing.equal(run.returncode, code, run.stderr)
    for part in parts:
        assert part in run.stderr, f"{part!r} is not in {run.stderr!r}"
    left = [n for n in os.listdir(os.path.dirname(out)) if ".tmp-" in n]
    testing.equal(left, [])


def test_truncated():
    with testing.temp_dir() as temp:
        data = open(sample(temp), "rb").read()
        for n in [0, 3, 4, 8, 23, 24, 30, 60, 200, 500, 700, len(data) // 2, len(data) - 1]:
            path = os.path.join(temp, "cut.gguf")
            open(path, "wb").write(data[:n])
            refused(path, os.path.join(temp, "out"), "cut.gguf")
            assert not os.path.exists(os.path.join(temp, "out"))


def test_header():
    with testing.temp_dir() as temp:
        data = bytearray(open(sample(temp), "rb").read())
        path, out = os.path.join(temp, "bad.gguf"), os.path.join(temp, "out")
        for at, form, value, part in [(0, "<I", 0x12345678, "GGUF"), (4, "<I", 1, "version"), (4, ">I", 3, "big-endian"),
                                      (8, "<Q", 1 << 62, "tensors"), (16, "<Q", 1 << 62, "key-value"), (24, "<Q", 1 << 63, "bytes")]:
            changed = data[:]
            struct.pack_into(form, changed, at, value)
            open(path, "wb").write(changed)
            refused(path, out, "bad.gguf", part)


def test_models():
    with testing.temp_dir() as temp:
        out = os.path.join(temp, "out")
        refused(sample(temp, extra=[("llama.expert_count", 8)]), out, "llama.expert_count")
        refused(sample(temp, extra=[("llama.rope.scaling.type", "new")]), out, "llama.rope.scaling.type", "yarn")
        refused(sample(temp, extra=[("general.alignment", 24)]), out, "general.alignment")
        refused(sample(temp, extra=[("llama.attention.key_length", "x")]), out, "llama.attention.key_length", "integer")
        data = open(sample(temp), "rb").read()
        path = os.path.join(temp, "renamed.gguf")
        open(path, "wb").write(data.replace(b"blk.0.ffn_up.weight", b"blk.0.ffn_xx.weight"))
        refused(path, out, "blk.0.ffn_up.weight")
        open(path, "wb").write(data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lamma"))
        refused(path, out, "lamma", "llama")


def test_output_folder():
    with testing.temp_dir() as temp:
        source, out = sample(temp), os.path.join(temp, "out")
        os.mkdir(out)
        checkpoints.build(source, out)  # empty: filled
        before = os.stat(os.path.join(out, "model.onnx")).st_ino
        checkpoints.build(source, out)  # ours: replaced
        assert os.stat(os.path.join(out, "model.onnx")).st_ino != before
        open(os.path.join(out, "notes.txt"), "w").write("mine")
        refused(source, out, "notes.txt", code=2)  # -o is at fault, not the model
        testing.equal(open(os.path.join(out, "notes.txt")).read(), "mine")
        foreign = os.path.join(temp, "foreign")
        os.mkdir(foreign)
        open(os.path.join(foreign, "model.onnx"), "w").write("not ours")
        refused(source, foreign, "did not make", code=2)
        a_file = os.path.join(temp, "file")
        open(a_file, "w").write("x")
        refused(source, a_file, "no folder", code=2)
        testing.equal(sorted(os.listdir(temp)), ["file", "foreign", "m.gguf", "out"])


testing.main()
