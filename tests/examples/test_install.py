"""What a program outside of this tree is built with: the installed headers and libraries, by pkg-config, and what `make demo` leaves in build/."""
import os
import re
import shutil
import subprocess

import testing

work = testing.temp_dir()
COMPILES = """#include <stdio.h>
#include <treadle/compile.h>
int main(void) {
    treadle_error error = {0};
    treadle_status status = treadle_compile("nosuch.gguf", "out", NULL, &error);
    puts(error.message);
    return status == TREADLE_NOT_FOUND ? 0 : 1;
}
"""


def readme():
    with open(testing.source("README.md"), encoding="utf-8") as f:
        return f.read()


def installed():
    """Installed, then moved: nothing in it may know where it was put first."""
    if testing.sanitized():
        testing.skip("built with sanitizers: a program would have to be, too")
    first, then = os.path.join(work.name, "first"), os.path.join(work.name, "then")
    if not os.path.exists(then):
        subprocess.run(["cmake", "--install", os.environ["TREADLE_BUILD"], "--prefix", first], check=True, capture_output=True)
        shutil.move(first, then)
    return then


def build(name, text, package):
    """A program from installed files alone; a library needs a path at run time if it is shared."""
    prefix = installed()
    folder = next(root for root, _, files in os.walk(prefix) if "treadle.pc" in files)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", package], env={**os.environ, "PKG_CONFIG_PATH": folder},
                           check=True, capture_output=True, text=True).stdout.split()
    path = os.path.join(work.name, name)
    with open(path + ".c", "w", encoding="utf-8") as f:
        f.write(text)
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", path + ".c", *flags, "-o", path], check=True)
    return subprocess.run([path], env={**os.environ, "LD_LIBRARY_PATH": os.path.dirname(folder)}, cwd=work.name, capture_output=True,
                          text=True, timeout=60, check=False)


def test_a_program_that_runs_models():
    run = build("runs", re.search(r"```c\n(.*?)```", readme(), re.S)[1], "treadle")
    testing.equal((run.returncode, run.stderr), (2, ""))


def test_a_program_that_compiles_checkpoints():
    run = build("compiles", COMPILES, "treadle-compile")
    assert run.returncode == 0 and "nosuch.gguf" in run.stdout, run


def test_the_demo_builds_what_is_installed():
    """README.md says that `make demo` is enough for its program and for an installation."""
    with open(testing.source("CMakeLists.txt"), encoding="utf-8") as f:
        wanted = set(" ".join(re.findall(r"install\(TARGETS ([\w\s-]+?)\s+(?:LIBRARY|RUNTIME)", f.read())).split())
    with open(testing.source("Makefile"), encoding="utf-8") as f:
        built = set(re.search(r"\ndemo:\n.*?--target ([^\n]*)", f.read(), re.S)[1].split())
    built |= {"treadle-static", "treadle-compile"}  # linked into the command
    testing.equal(wanted - built, set())


testing.main()
