"""What the pages show is so. docs/howto/add-a-pipeline.md and add-a-plugin.md: every command is run, and prints what the page says; a block
of JSON in the first one is the config of the folder `mine` from there on. docs/config.md: its example. README.md: its program, and every
command has its row."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))
import testing
import tiny

work = testing.temp_dir()


def blocks(page):
    """The indented blocks of a page, each as its lines."""
    with open(testing.source("docs/howto/" + page), encoding="utf-8") as f:
        return [[line[4:] for line in block.rstrip("\n").split("\n")] for block in re.findall(r"(?:^    [^\n]*\n)+", f.read(), re.M)]


def words(lines):
    return " ".join(lines).split()


def run(lines):
    """A block `$ treadle ...` and what it prints; lines of a page are broken where they would be too long."""
    arguments = lines[0].split()[2:]
    if "ort" in arguments:
        arguments += ["--ort-lib", testing.ort_library()]
    done = testing.treadle(*arguments, cwd=work.name)
    testing.equal(words((done.stdout + done.stderr).split("\n")), words(lines[1:]), lines[0])


def save(name, tensor):
    import numpy as np
    np.save(os.path.join(work.name, name), np.array(tensor["data"], tensor["dtype"]).reshape(tensor["shape"]))


def golden(folder):
    with open(testing.source(f"examples/pipelines/{folder}/golden.json"), encoding="utf-8") as f:
        return json.load(f)


def make():
    """The folder and the tensors of the pages, by the command that they name."""
    subprocess.run([sys.executable, testing.source("examples/pipelines/howto.py"), work.name], check=True)


def test_add_a_pipeline():
    make()
    n = 0
    for block in blocks("add-a-pipeline.md"):
        if block[0].startswith("{"):
            with open(os.path.join(work.name, "mine", "genai_config.json"), "w", encoding="utf-8") as f:
                f.write("\n".join(block))
        elif block[0].startswith("$ treadle verify"):
            got = testing.treadle(*block[0].split()[2:], "--ort-lib", testing.ort_library(), cwd=work.name)
            testing.equal(got.returncode, 0, got.stdout + got.stderr)
            difference = re.compile(r"difference \S+ \(relative [^,)]+")  # rounding depends on the machine
            testing.equal(words(difference.sub("", got.stdout).split("\n")), words(difference.sub("", "\n".join(block[1:])).split("\n")))
            n += 1
        else:
            run(block)
            n += 1
    testing.equal(n, 6, "commands of the page")


def test_add_a_plugin():
    make()
    shutil.copytree(testing.source("examples"), os.path.join(work.name, "examples"))
    os.symlink(testing.source("include"), os.path.join(work.name, "include"))
    n = 0
    for block in blocks("add-a-plugin.md"):
        if block[-1].startswith("cc "):
            for command in block:
                subprocess.run([os.environ.get("CC", w) if w == "cc" else w for w in command.split()], cwd=work.name, check=True)
        elif block[0].startswith("$ treadle"):
            run(block)
            n += 1
    testing.equal(n, 2, "commands of the page")


def test_the_config_of_the_reference():
    """The example of docs/config.md fits the graphs of its kind, without a warning."""
    folder, source = os.path.join(work.name, "reference"), testing.source("examples/pipelines/2-vision-language/")
    os.makedirs(folder)
    for to, name in (("vision", "vision_encoder"), ("embedding", "embedding"), ("decoder", "decoder")):
        shutil.copy(os.path.join(source, name, "model.onnx"), os.path.join(folder, to + ".onnx"))
    with open(testing.source("docs/config.md"), encoding="utf-8") as f, open(os.path.join(folder, "genai_config.json"), "w", encoding="utf-8") as to:
        to.write(re.search(r"```json\n(.*?)```", f.read(), re.S)[1])
    done = testing.treadle("check", folder, "--strict")
    assert done.returncode == 0 and "warning" not in done.stdout, done
    case = golden("2-vision-language")[0]
    inputs = []
    for name, tensor in case["tensors"].items():
        save(name + ".npy", tensor)
        inputs += ["-i", f"{name}={work.name}/{name}.npy"]
    more = ["-n", len(case["tokens"]), "--greedy", "-q"]
    done = testing.treadle("run", folder, "--ids", ",".join(map(str, case["prompt"])), *inputs, *more)
    testing.equal(done.stdout.strip(), ",".join(map(str, case["tokens"])), done.stderr)


def readme():
    with open(testing.source("README.md"), encoding="utf-8") as f:
        return f.read()


def test_the_shortest_program():
    """Built against the shared library, as README.md says, it prints what `treadle run` does."""
    if testing.sanitized():
        testing.skip("built with sanitizers: a program would have to be, too")
    path, library = os.path.join(work.name, "program"), os.path.join(os.environ["TREADLE_BUILD"], "lib")
    with open(path + ".c", "w", encoding="utf-8") as f:
        f.write(re.search(r"```c\n(.*?)```", readme(), re.S)[1])
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I" + testing.source("include"), "-L" + library, "-Wl,-rpath," + library]
    subprocess.run([os.environ.get("CC", "cc"), *flags, path + ".c", "-ltreadle", "-o", path], check=True)
    model = tiny.Model(template=None)
    want = testing.treadle("run", model.folder, "-p", "hello the", "-n", 100).stdout
    got = subprocess.run([path, model.folder, "hello the"], capture_output=True, text=True, timeout=60, check=False)
    testing.equal((got.returncode, got.stdout, got.stderr), (0, want.removesuffix("\n"), ""))
    got = subprocess.run([path, "nosuch", "hello"], capture_output=True, text=True, timeout=60, check=False)
    assert got.returncode == 1 and "nosuch" in got.stderr, got


def test_readme_has_every_command():
    listed = [line.split()[0] for line in testing.treadle("--help").stdout.splitlines() if line.startswith("  ") and "treadle" not in line.split()[0]]
    rows = "".join(line for line in readme().splitlines() if line.startswith("| `"))
    testing.equal([c for c in listed if f"`{c}`" not in rows], [])


testing.main()
