"""The Python side of tests/support/test.h. A test file:

    import testing

    def test_answer():
        out = testing.treadle("ops", "--json")
        testing.equal(out.returncode, 0)

    testing.main()

Each function test_* is one test. A failed check (testing.equal, a plain assert, any exception) ends that test only.
Closing line and exit codes are those of test.h; arguments select tests by substring.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback


class Skip(Exception):
    """Raised by skip(); ends the test as skipped."""


def skip(reason):
    raise Skip(reason)


def equal(got, expected, what=""):
    assert got == expected, f"{what + ': ' if what else ''}{got!r} != {expected!r}"


def near(got, expected, tolerance, what=""):
    """Shapes equal and every element within the tolerance; NaN equals NaN."""
    import numpy as np
    got, expected = np.asarray(got), np.asarray(expected)
    equal(got.shape, expected.shape, what + " shape")
    both_nan = np.isnan(got) & np.isnan(expected)
    with np.errstate(invalid="ignore"):
        off = np.where(both_nan | (got == expected), 0.0, np.abs(got.astype(np.float64) - expected.astype(np.float64)))
    assert off.size == 0 or off.max() <= tolerance, \
        f"{what + ': ' if what else ''}off by {off.max():.3g} at {np.unravel_index(off.argmax(), off.shape)}, allowed {tolerance:.3g}"


def _must_exist():
    return os.environ.get("CI") or os.environ.get("TREADLE_SHARED")


def shared(path):
    """A file or folder of the independent test data; skips without TREADLE_SHARED, fails if missing with it."""
    base = os.environ.get("TREADLE_SHARED")
    if not base:
        skip(f"TREADLE_SHARED is not set ({path})")
    full = os.path.join(base, path)
    assert os.path.exists(full), f"{full}: not found, though TREADLE_SHARED is set"
    return full


def model(path):
    """What scripts/fetch-* put under TREADLE_MODELS; skips if missing, fails where it must be there."""
    full = os.path.join(os.environ.get("TREADLE_MODELS") or source("models"), path)
    if not os.path.exists(full):
        assert not _must_exist(), f"{full}: not found; `make models` gets it"
        skip(f"{full} is not fetched")
    return full


def ort_library():
    """ONNX Runtime's library: TREADLE_ORT_LIB, else that of the tests' Python packages; skips if missing, fails where it must be there."""
    named = os.environ.get("TREADLE_ORT_LIB")
    found = [named] if named else glob.glob(source(".venv/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*"))
    if not found:
        assert not _must_exist(), "libonnxruntime.so: not found; scripts/setup installs it"
        skip("no libonnxruntime.so (TREADLE_ORT_LIB, or scripts/setup)")
    return found[0]


def engines():
    """Of light and ort those that are there; ort by TREADLE_ORT_LIB, which this sets."""
    try:
        os.environ["TREADLE_ORT_LIB"] = ort_library()
    except Skip:
        return ("light",)
    return "light", "ort"


def source(path):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.path.join(os.environ.get("TREADLE_SOURCE") or root, path)


def treadle(*arguments, stdin="", timeout=600, **more):
    """Runs the command; returns CompletedProcess with text in stdout and stderr."""
    command = os.environ.get("TREADLE") or source("build/bin/treadle")
    return subprocess.run([command, *map(str, arguments)], input=stdin, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=timeout, check=False, **more)


def treadle_json(*arguments, **more):
    """Runs the command, which must succeed, and parses its standard output."""
    run = treadle(*arguments, **more)
    assert run.returncode == 0, f"treadle {' '.join(map(str, arguments))}: exit {run.returncode}\n{run.stderr}"
    return json.loads(run.stdout)


def sanitized():
    """Whether the command was built with sanitizers: it is then slow, and reserves terabytes of address space."""
    cache = os.path.join(os.environ.get("TREADLE_BUILD") or source("build"), "CMakeCache.txt")
    try:
        with open(cache, encoding="utf-8") as f:
            return bool(re.search(r"^TREADLE_SANITIZE:\w+=.+", f.read(), re.M))
    except OSError:
        return False


def temp_dir():
    """A folder that is removed when the returned object is: `with temp_dir() as folder:`."""
    return tempfile.TemporaryDirectory(prefix="treadle-test-")


def main():
    tests = {k: v for k, v in vars(sys.modules["__main__"]).items() if k.startswith("test_") and callable(v)}
    wanted = sys.argv[1:]
    passed = failed = skipped = 0
    for name, function in tests.items():
        if wanted and not any(w in name for w in wanted):
            continue
        try:
            function()
            passed += 1
        except Skip as reason:
            print(f"SKIP: {name}: {reason}", flush=True)
            skipped += 1
        except Exception:  # any fault of one test is that test's
            print(f"{name}:\n{traceback.format_exc()}", flush=True)
            failed += 1
    if passed + failed + skipped == 0:
        print("no test of that name" if wanted else "no test_* function")
        failed = 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(1 if failed else 0 if passed else 77)
