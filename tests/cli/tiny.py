"""A tiny model for the tests of the command: a llama of random weights with a byte-level vocabulary and a chat template, as a GGUF
file and compiled. Expected tokens come from NumPy (tests/compile/checkpoints.py), ids from tokenizers, prompts from jinja2."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "compile"))
import checkpoints
import gguf
import numpy as np
import testing

CONTEXT = 128
SHAPE = {"heads": 2, "kv_heads": 1, "layers": 2}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "\u0120 t", "\u0120t he", "i n", "\u0120 a"]
TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
EOS = 2  # <|im_end|>


def byte_tokens():
    """The 256 printable stand-ins of byte-level BPE, by byte (GPT-2, bytes_to_unicode)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    out, n = [], 0
    for b in range(256):
        out.append(chr(b if b in plain else 256 + n))
        n += b not in plain
    return out


def vocabulary():
    return SPECIAL + byte_tokens() + [m.replace(" ", "") for m in MERGES]


VOCAB = len(vocabulary())


def write(path, template=TEMPLATE, text=True, **more):
    """The GGUF file; returns the weights for reference(). Random weights seldom choose an end token; tests of those set their own."""
    extra = []
    if text:
        extra = [("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "gpt-2"), ("tokenizer.ggml.tokens", vocabulary()),
                 ("tokenizer.ggml.token_type", [3] * len(SPECIAL) + [1] * (VOCAB - len(SPECIAL))),
                 ("tokenizer.ggml.merges", MERGES), ("tokenizer.ggml.eos_token_id", EOS), ("tokenizer.ggml.bos_token_id", 1),
                 ("tokenizer.ggml.add_bos_token", False)]
        if template:
            extra.append(("tokenizer.chat_template", template))
    options = {"hidden": 64, "ffn": 96, "vocab": VOCAB, "context": CONTEXT, "tied": False, "seed": 7, **SHAPE, **more}
    return checkpoints.write(path, gguf.GGMLQuantizationType.F32, extra=extra, **options)


class Model:
    """folder and file of one tiny model; lives until the process ends."""

    def __init__(self, **how):
        self.work = testing.temp_dir()
        self.file = os.path.join(self.work.name, "tiny.gguf")
        self.folder = os.path.join(self.work.name, "tiny")
        self.truth = write(self.file, **how)
        run = testing.treadle("build", self.file, "-o", self.folder)
        testing.equal((run.returncode, run.stdout), (0, ""), run.stderr)

    def greedy(self, ids, n):
        """New tokens and the logits each was chosen from, by NumPy in float64."""
        ids, rows = list(ids), []
        for _ in range(n):
            rows.append(checkpoints.reference(self.truth, ids, **SHAPE)[-1])
            ids.append(int(rows[-1].argmax()))
        return ids[len(ids) - n:], np.array(rows)

    def tokenizer(self):
        from tokenizers import Tokenizer
        return Tokenizer.from_file(os.path.join(self.folder, "tokenizer.json"))
