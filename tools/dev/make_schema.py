#!/usr/bin/env python3
"""Writes src/onnx/schema.inc from the operator schemas of the pinned onnx package.

usage: make_schema.py > src/onnx/schema.inc

Equal runs of formals, attributes, types and lists are written once and shared by pointer.
"""
import re
import sys

import numpy
import onnx
from onnx import defs

VERSION = "1.22.0"
DTYPES = {"float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9,
          "float16": 10, "double": 11, "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16,
          "float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20, "uint4": 21, "int4": 22,
          "float4e2m1": 23, "float8e8m0": 24, "uint2": 25, "int2": 26}
MAPS = {"int64, double": 1, "int64, float": 2, "int64, string": 4, "string, double": 8, "string, float": 16, "string, int64": 32}
FIELDS = ["tensor", "sequence", "optional", "optional_sequence", "sparse", "map", "sequence_map"]
FORMS = [(r"tensor\((\w+)\)", "tensor"), (r"seq\(tensor\((\w+)\)\)", "sequence"), (r"optional\(tensor\((\w+)\)\)", "optional"),
         (r"optional\(seq\(tensor\((\w+)\)\)\)", "optional_sequence"), (r"sparse_tensor\((\w+)\)", "sparse"),
         (r"map\((\w+, \w+)\)", "map"), (r"seq\(map\((\w+, \w+)\)\)", "sequence_map")]
UNBOUNDED = 2147483647


def quote(text):
    if isinstance(text, bytes):
        text = text.decode()
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def type_row(name, texts):
    bits = dict.fromkeys(FIELDS, 0)
    for text in texts:
        for pattern, field in FORMS:
            match = re.fullmatch(pattern, text)
            if match:
                key = match.group(1)
                bits[field] |= MAPS[key] if field.endswith("map") else 1 << DTYPES[key]
                break
        else:
            sys.exit(f"unknown type {text}")
    return "{%s, %s}" % (quote(name), ", ".join(hex(bits[f]) + ("u" if i < 5 else "") for i, f in enumerate(FIELDS)))


class Pool:
    """Runs of rows in one C array; a run that is already there is reused."""

    def __init__(self):
        self.rows, self.runs = [], {}

    def add(self, run):
        run = tuple(run)
        if not run:
            return None
        if run not in self.runs:
            self.runs[run] = len(self.rows)
            self.rows.extend(run)
        return self.runs[run]


def number(value):
    return repr(float(numpy.float32(value)))


def attr_row(a, lists):
    d = a.default_value
    kind = int(a.type.value) if hasattr(a.type, "value") else int(a.type)
    f, i, s, items, n = "0", "0", "NULL", "NULL", 0
    has = d.type != 0
    if d.type == 1:
        f = number(d.f)
    elif d.type == 2:
        i = "%d" % d.i
    elif d.type == 3:
        s = quote(d.s)
    elif d.type in (6, 7, 8):
        values = {6: [number(x) for x in d.floats], 7: [str(x) for x in d.ints], 8: [quote(x) for x in d.strings]}[d.type]
        start = lists[d.type].add(values)
        n = len(values)
        if n:
            items = "default_%s + %d" % ({6: "floats", 7: "ints", 8: "strings"}[d.type], start)
    elif has:
        sys.exit(f"default of attribute {a.name} has type {d.type}")
    flags = "true" if a.required else "false", "true" if has else "false"
    return "{%s, %d, %s, %s, %d, %s, %s, %s, %s}" % (quote(a.name), kind, *flags, n, f, i, s, items)


def formal_row(v, types):
    option = {"Single": 0, "Optional": 1, "Variadic": 2}[str(v.option).split(".")[-1]]
    return "{%s, %d, %d, %s, %d}" % (quote(v.name), option, types[v.type_str], "true" if v.is_homogeneous else "false", v.min_arity)


def at(name, start):
    return "NULL" if start is None else f"{name} + {start}"


def main():
    if onnx.__version__ != VERSION:
        sys.exit(f"onnx {VERSION} is wanted, this is {onnx.__version__}")
    formals, attrs, types = Pool(), Pool(), Pool()
    lists = {6: Pool(), 7: Pool(), 8: Pool()}
    rows = []
    schemas = sorted(defs.get_all_schemas_with_history(), key=lambda s: (s.domain.encode(), s.name.encode(), s.since_version))
    for s in schemas:
        names, run = {}, []
        constraints = {t.type_param_str: t.allowed_type_strs for t in s.type_constraints}
        for v in list(s.inputs) + list(s.outputs):
            if v.type_str not in names:
                names[v.type_str] = len(run)
                run.append(type_row(v.type_str, constraints.get(v.type_str, [v.type_str])))
        inputs, outputs = [formal_row(v, names) for v in s.inputs], [formal_row(v, names) for v in s.outputs]
        attributes = [attr_row(a, lists) for _, a in sorted(s.attributes.items())]
        bound = ["INT_MAX" if x == UNBOUNDED else str(x) for x in (s.min_input, s.max_input, s.min_output, s.max_output)]
        is_function = s.has_function or s.has_context_dependent_function
        rows.append("{%s, %s, %d, %s, %s, %s, %d, %d, %d, %d, %s, %s, %s, %s}" % (
            quote(s.domain), quote(s.name), s.since_version, str(s.deprecated).lower(), str(is_function).lower(), ", ".join(bound),
            len(inputs), len(outputs), len(attributes), len(run), at("formals", formals.add(inputs)),
            at("formals", formals.add(outputs)), at("attrs", attrs.add(attributes)), at("types", types.add(run))))
    print(f"/* onnx/schema.inc - generated by tools/dev/make_schema.py from onnx {VERSION}; do not edit. */")
    print("/* clang-format off */")
    for ctype, name, pool in (("float", "default_floats", lists[6]), ("int64_t", "default_ints", lists[7]),
                              ("char *const", "default_strings", lists[8])):
        suffix = "f" if ctype == "float" else ""
        if not pool.rows:
            continue
        print(f"static const {ctype} {name}[] = {{{', '.join(x + suffix for x in pool.rows)}}};")
    for ctype, name, pool in (("td_schema_type", "types", types), ("td_schema_attr", "attrs", attrs), ("td_schema_formal", "formals", formals)):
        print(f"static const {ctype} {name}[] = {{")
        print("\n".join(f"    {r}," for r in pool.rows))
        print("};")
    print("static const td_schema standard[] = {")
    print("\n".join(f"    {r}," for r in rows))
    print("};")
    print("/* clang-format on */")


if __name__ == "__main__":
    main()
