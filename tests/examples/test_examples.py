"""The examples: short enough to read, and they do what they say. Each one built by the build is run here."""
import os
import subprocess
import sys
import wave

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))
import testing
import tiny

work = testing.temp_dir()
MOST_LINES = 79
sources = sorted(n[:-2] for n in os.listdir(testing.source("examples")) if n.endswith(".c"))


def example(name, *arguments):
    path = os.path.join(os.environ["TREADLE_BUILD"], "examples", name)
    return subprocess.run([path, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


def test_length_and_headers():
    for name in sources:
        with open(testing.source(f"examples/{name}.c"), encoding="utf-8") as f:
            lines = f.read().splitlines()
        assert len(lines) <= MOST_LINES, f"{name}.c has {len(lines)} lines, at most {MOST_LINES}"
        own = [line for line in lines if line.startswith("#include") and "<" not in line]
        testing.equal(own, [], f"{name}.c: public headers only")


def test_each_one_is_run_here():
    for name in sources:
        assert f"test_{name}" in globals(), f"tests/examples/test_examples.py has no test_{name}"
        run = example(name)
        assert run.returncode == 2 and "usage" in run.stderr, run


def test_generate():
    model, plain = tiny.Model(), tiny.Model(template=None)
    for folder, prompt in ((model.folder, "hello"), (model.folder, 'quotes " and \\ and\nlines, na\u00efve'), (plain.folder, "hello the")):
        want = testing.treadle("run", folder, "-p", prompt, "-n", 128)
        run = example("generate", folder, prompt)
        testing.equal((run.returncode, run.stdout, run.stderr), (0, want.stdout, ""), prompt)
    run = example("generate", "nosuch", "hello")
    assert run.returncode == 1 and run.stdout == "" and "nosuch" in run.stderr, run


def test_transcribe():
    """What it refuses; that it hears what the command hears is in tests/model, where a real recogniser is."""
    sound = os.path.join(work.name, "beep.wav")
    with wave.open(sound, "wb") as f:
        f.setparams((1, 2, 16000, 0, "NONE", ""))
        f.writeframes(b"\0\x40\0\xc0" * 800)
    model = tiny.Model()
    for arguments, said in ((("nosuch", sound), "nosuch"), ((model.folder, sound), "no transcriber"), ((model.folder, "none.wav"), "none.wav")):
        run = example("transcribe", *arguments)
        assert run.returncode == 1 and run.stdout == "" and said in run.stderr, run


testing.main()
