# timeout: 600
"""Damaged files of every kind through the command: a message that names the file and exit code 3, or the file still means something. Never
a signal, never much memory, never a byte written outside the output folder. The changes come from a fixed seed."""
import copy
import json
import os
import random
import resource
import shutil
import struct
import subprocess

import testing
import tiny

SLOW = testing.sanitized()
N = 60 if SLOW else 300       # changes of a kind
MEMORY = 1 << 30              # address space of the command
SECONDS = 60 if SLOW else 20  # for one command

work = testing.temp_dir()
pristine = tiny.Model(ffn=64, layers=1)


def limit():
    if not SLOW:  # a sanitizer reserves terabytes
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def command(*arguments, cwd=None):
    try:
        return subprocess.run([os.environ["TREADLE"], *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS,
                              preexec_fn=limit, cwd=cwd, check=False)
    except subprocess.TimeoutExpired as e:
        raise AssertionError(f"no end in {SECONDS} s") from e


def survived(run, what, *names, codes=(0, 3)):
    """What every ending has to be; returns whether the input was refused."""
    said = run.stderr.decode(errors="replace")
    assert run.returncode >= 0, f"{what}: signal {-run.returncode}\n{said[-2000:]}"
    assert run.returncode in codes, f"{what}: exit {run.returncode}\n{said[-2000:]}"
    if run.returncode == 3:
        said += run.stdout.decode(errors="replace")  # `check` prints what it finds
        assert any(n in said for n in names), f"{what}: does not name {names}: {said[-500:]}"
    return run.returncode != 0


# --- changes of bytes

def cut(rng, data, reach):
    return data[:rng.randrange(reach)]


def flip(rng, data, reach):
    for _ in range(rng.choice((1, 1, 2, 5))):
        data[rng.randrange(reach)] ^= 1 << rng.randrange(8)
    return data


def overwrite(rng, data, reach):
    at = rng.randrange(reach)
    data[at:at + 4] = rng.randbytes(4)
    return data


def long_length(rng, data, reach):
    """A length, wherever there may be one, becomes huge."""
    form, values = rng.choice((("<Q", (1 << 63, (1 << 64) - 1, 1 << 40, 1 << 32, 1 << 20)), ("<I", ((1 << 32) - 1, 1 << 31, 1 << 20))))
    at = rng.randrange(max(1, reach - 8))
    struct.pack_into(form, data, at, rng.choice(values))
    return data


def varint(rng, data, reach):
    at = rng.randrange(reach)
    data[at:at + 1] = b"\xff" * rng.randrange(1, 10) + b"\x01"
    return data


def remove(rng, data, reach):
    at = rng.randrange(reach)
    del data[at:at + rng.choice((1, 4, 8, 100))]
    return data


def repeat(rng, data, reach):
    at = rng.randrange(reach)
    data[at:at] = data[at:at + rng.choice((1, 8, 50))]
    return data


BYTES = (cut, flip, flip, overwrite, long_length, varint, remove, repeat)


def changed_bytes(rng, original, head):
    """Mostly in the head, where the structure is."""
    reach = min(head, len(original)) if rng.random() < 0.85 else len(original)
    change = rng.choice(BYTES)
    return change.__name__, bytes(change(rng, bytearray(original), max(reach, 1)))


# --- changes of JSON

ODD = (None, True, -1, 0, 1.5, 1e300, 2 ** 63, -2 ** 63, "", "x", "\u0000", "a" * 5000, [], {}, [[]], [None], {"x": {}}, "{% for %}", "{{", "(?P<", "([")


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        if not (isinstance(key, int) and key > 3):  # the first of a long list stand for all
            yield from places(below, (*path, key))


def changed_json(rng, original):
    """Another type, a missing key, a doubled one, a broken text."""
    if rng.random() < 0.25:
        return changed_bytes(rng, json.dumps(original).encode(), 1 << 20)
    value = copy.deepcopy(original)
    path = rng.choice([p for p in places(value) if p])
    at = value
    for key in path[:-1]:
        at = at[key]
    how = rng.choice(("replace", "replace", "replace", "remove", "add"))
    if how == "replace":
        at[path[-1]] = rng.choice(ODD)
    elif how == "remove":
        del at[path[-1]]
    elif isinstance(at, dict):
        at["nosuch"] = rng.choice(ODD)
    else:
        at.append(rng.choice(ODD))
    return f"{how} {'/'.join(map(str, path))}", json.dumps(value).encode()


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def folder(name):
    path = os.path.join(work.name, name)
    shutil.copytree(pristine.folder, path)
    return path


# --- the kinds

def test_gguf():
    rng, original = random.Random(1), read(pristine.file)
    here = os.path.join(work.name, "gguf")
    os.makedirs(here)
    path, out, refused = os.path.join(here, "damaged.gguf"), os.path.join(here, "out"), 0
    for i in range(N):
        how, data = changed_bytes(rng, original, 9000)
        write(path, data)
        what = f"change {i}, {how}"
        if survived(command("build", path, "-o", out, cwd=here), what, "damaged.gguf"):
            refused += 1
            testing.equal(sorted(os.listdir(here)), ["damaged.gguf"], what)
        else:
            testing.equal(sorted(os.listdir(here)), ["damaged.gguf", "out"], what)
            survived(command("run", out, "--ids", "5,6", "-n", 2), what, "out", "model", codes=(0, 1, 3))
            shutil.rmtree(out)
    assert refused > N // 4, f"only {refused} of {N} were refused"


def test_onnx():
    rng, here = random.Random(2), folder("onnx")
    path = os.path.join(here, "model.onnx")
    original, refused = read(path), 0
    head = len(original)
    for i in range(N):
        how, data = changed_bytes(rng, original, head)
        write(path, data)
        what = f"change {i}, {how}"
        refused += survived(command("run", here, "--ids", "5,6", "-n", 2, "--no-cache"), what, "model.onnx", "genai_config.json", codes=(0, 1, 3))
        if i % 4 == 0:
            survived(command("inspect", path), what, "model.onnx", "/pipeline/sessions")
            survived(command("check", here), what, "model.onnx", "genai_config.json")
    assert refused > N // 4, f"only {refused} of {N} were refused"


def test_external_data():
    rng, here = random.Random(3), folder("data")
    names = [n for n in os.listdir(here) if n.endswith(".data")]
    if not names:
        return  # all weights are in model.onnx
    path = os.path.join(here, names[0])
    original = read(path)
    for n in (0, 1, len(original) // 2, len(original) - 1):
        write(path, original[:n])
        assert survived(command("run", here, "--ids", "5,6", "-n", 2), f"{n} bytes", names[0], "model.onnx"), n
    for i in range(20):
        write(path, bytes(flip(rng, bytearray(original), len(original))))
        survived(command("run", here, "--ids", "5,6", "-n", 2, "--no-cache"), f"flip {i}", "model.onnx", codes=(0, 1, 3))
    os.unlink(path)
    assert survived(command("run", here, "--ids", "5,6", "-n", 2), "missing", names[0])


def json_kind(seed, name, *commands, codes=(0, 3)):
    rng, here = random.Random(seed), folder(name + ".dir")
    path = os.path.join(here, name)
    original, refused = json.loads(read(path)), 0
    for i in range(N):
        how, data = changed_json(rng, original)
        write(path, data)
        for arguments in commands:
            words = [here if a is None else a for a in arguments]
            refused += survived(command(*words), f"change {i}, {how}, {arguments[0]}", name, "model.onnx", "prompt", "chat template", codes=codes)
    assert refused > 0


def test_config():
    json_kind(4, "genai_config.json", ("run", None, "--ids", "5,6", "-n", 2), ("check", None), ("explain", None), codes=(0, 1, 2, 3))


def test_tokenizer():
    json_kind(5, "tokenizer.json", ("tokenize", None, "-p", "hello the <|im_end|> in"), ("detokenize", None, "--ids", "5,60,261"), codes=(0, 1, 3))


def test_tokenizer_config():
    json_kind(6, "tokenizer_config.json", ("template", None, "-p", "hello"), codes=(0, 1, 3))


def test_template():
    """The template's text itself, cut and changed."""
    rng, here = random.Random(7), folder("template")
    path = os.path.join(here, "tokenizer_config.json")
    config, refused = json.loads(read(path)), 0
    text = config["chat_template"]
    words = ["{%", "%}", "{{", "}}", "for", "in", "if", "endif", "endfor", "loop", "|", "(", ")", "[", "]", "'", "~", "**", "9" * 30, "m", "range(10**9)", "{#", "set", "macro", "."]
    for i in range(N):
        parts = list(text)
        at = rng.randrange(len(parts))
        how = rng.choice(("cut", "insert", "insert", "replace", "remove"))
        if how == "cut":
            parts = parts[:at]
        elif how == "insert":
            parts[at:at] = rng.choice(words)
        elif how == "replace":
            parts[at:at + rng.randrange(1, 8)] = rng.choice(words)
        else:
            del parts[at:at + rng.randrange(1, 12)]
        config["chat_template"] = "".join(parts)
        write(path, json.dumps(config).encode())
        refused += survived(command("template", here, "-p", "hello"), f"{how} at {at}: {config['chat_template']!r}", "template", "tokenizer_config.json", codes=(0, 1, 3))
    assert refused > N // 4, f"only {refused} of {N} were refused"


def test_files_of_another_kind():
    """Each file of a folder replaced by each other, by nothing, by a folder."""
    here = folder("swapped")
    names = sorted(os.listdir(here))
    for name in names:
        path = os.path.join(here, name)
        original = read(path)
        for other in [*names, None, "empty", "folder"]:
            if other == name:
                continue
            os.unlink(path)
            if other == "empty":
                write(path, b"")
            elif other == "folder":
                os.makedirs(path)
            elif other is not None:
                write(path, read(os.path.join(pristine.folder, other)))
            for arguments in (("run", here, "--ids", "5", "-n", 1), ("run", here, "-p", "x", "-n", 1), ("check", here), ("inspect", here)):
                survived(command(*arguments), f"{name} is {other}, {arguments}", name, "model.onnx", "tokenizer", "template", codes=(0, 1, 2, 3))
            if os.path.isdir(path):
                os.rmdir(path)
            elif os.path.exists(path):
                os.unlink(path)
            write(path, original)


def test_external_data_stays_inside_the_folder():
    """A location that leads out of the model's folder is refused."""
    import onnx
    from onnx import TensorProto, helper
    secret = os.path.join(work.name, "secret.bin")
    write(secret, b"\0" * 64)
    here = os.path.join(work.name, "confined")
    os.makedirs(here)
    for location in ("../secret.bin", secret, "a/../../secret.bin", "./../secret.bin"):
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[16], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", location), ("offset", "0"), ("length", "64")):
            entry = weight.external_data.add()
            entry.key, entry.value = key, value
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [16])
        graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [y], [weight])
        path = os.path.join(here, "model.onnx")
        write(path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
        run = command("run", path, "--ids", "1")
        testing.equal(run.returncode, 3, run.stderr)
        assert b"secret.bin" in run.stderr and b"folder" in run.stderr, run.stderr


testing.main()
