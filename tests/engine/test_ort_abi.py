"""The declarations of ONNX Runtime's ABI in src/engine: every row of ort_api.inc and every constant of ort_api.h against a real
header (scripts/fetch-ort-header), and against the tables of facts."""
import os
import re
import shutil
import subprocess

import testing


def rows():
    """[(slot, since, name, result, parameters)]"""
    with open(testing.source("src/engine/ort_api.inc"), encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    found = re.findall(r"TD_ORT_FN\((\d+), (\d+), (\w+), ([^(]*?), \((.*?)\)\)\n", text)
    assert len(found) == text.count("TD_ORT_FN(") > 80, (len(found), text.count("TD_ORT_FN("))
    return [(int(slot), int(since), name, result, parameters) for slot, since, name, result, parameters in found]


def constants():
    """[(enum, name, value)]"""
    with open(testing.source("src/engine/ort_api.h"), encoding="utf-8") as f:
        return [(e, n, int(v)) for e, n, v in re.findall(r"X\((\w+), (\w+), (\d+)\)", f.read())]


def squeezed(declaration):
    return re.sub(r"\b(enum|struct)\b|\s", "", declaration).replace("OrtStatusPtr", "OrtStatus*")


def table(name):
    with open(testing.shared(f"data/abi/{name}"), encoding="utf-8") as f:
        return [line.rstrip("\n").split("\t") for line in f][1:]


def test_rows_are_sorted():
    slots = [row[0] for row in rows()]
    testing.equal(slots, sorted(set(slots)))


def test_against_tables():
    facts = {int(r[1]): r for r in table("ort_api_slots.tsv") if r[0] == "OrtApi"}
    for slot, since, name, result, parameters in rows():
        fact = facts[slot]
        known = fact[5].split(".")[-1]
        testing.equal((name, since), (fact[3], max(18, int(known))), slot)
        testing.equal(squeezed(result), squeezed(fact[6]), name)
        testing.equal(squeezed(parameters) if parameters != "void" else "", squeezed(fact[7].replace("; ", ",")), name)
    values = {(r[0], r[1]): int(r[2]) for r in table("ort_consts.tsv") if len(r) == 3 and re.fullmatch(r"-?\d+", r[2])}
    assert len(constants()) > 20
    for enum, name, value in constants():
        testing.equal(value, values[enum, name], name)


def compile_against_header(more=""):
    """Compiles the declarations, and more rows, beside the real header; returns what the compiler says, "" if all is well."""
    base = os.environ.get("TREADLE_MODELS") or testing.source("models")
    header = os.path.join(base, "ort-header")
    if not os.path.isdir(header):
        testing.skip("the header is not fetched (scripts/fetch-ort-header, which needs go)")
    compiler = os.environ.get("CC", "cc").split()
    if not shutil.which(compiler[0]):
        testing.skip(f"no {compiler[0]}")
    with open(os.path.join(header, "onnxruntime_c_api.h"), encoding="utf-8") as f:
        words = set(re.findall(r"\w+", f.read()))
    known = [c for c in constants() if c[1] in words]  # newer constants are in the tables only
    assert len(known) >= len(constants()) - 1
    checks = "".join(f'_Static_assert((int){name} == {value}, "{name}");\n' for _, name, value in known)
    for enum in sorted({e for e, _, _ in known}):
        signed = enum in ("OrtMemType", "OrtAllocatorType")
        checks += f'_Static_assert(sizeof({enum}) == sizeof(int) && (({enum})-1 < 0) == {int(signed)}, "{enum}");\n'
    unit = """#include <stddef.h>
#include <onnxruntime_c_api.h>
#define TD_ORT_FN(slot, since, name, result, parameters) \\
    _Static_assert(offsetof(OrtApi, name) == (slot) * sizeof(void *), #name " is not at this slot"); \\
    _Static_assert(__builtin_types_compatible_p(__typeof__(((OrtApi *)0)->name), result (*) parameters), #name " has another type");
#include "engine/ort_api.inc"
_Static_assert(offsetof(OrtApiBase, GetApi) == 0 && offsetof(OrtApiBase, GetVersionString) == sizeof(void *), "OrtApiBase");
""" + checks + more
    run = subprocess.run([*compiler, "-std=gnu11", "-w", "-fsyntax-only", "-isystem", header, "-I", testing.source("src"), "-x", "c", "-"],
                         input=unit, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert (run.returncode != 0) == bool(run.stdout), run
    return run.stdout


def test_against_header():
    testing.equal(compile_against_header(), "")
    assert "ReleaseEnv is not at this slot" in compile_against_header("TD_ORT_FN(91, 18, ReleaseEnv, void, (OrtEnv *input))\n")
    assert "ReleaseEnv has another type" in compile_against_header("TD_ORT_FN(92, 18, ReleaseEnv, int, (OrtEnv *input))\n")


testing.main()
