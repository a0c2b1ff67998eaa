#!/usr/bin/env python3
"""Writes unicode_data.inc, the character tables of unicode.c, from the Unicode version of the Python that runs it.

Usage: make_unicode_data.py > unicode_data.inc
"""
import sys
import unicodedata

MAX = 0x110000


def case_ignorable(cp):
    """The property has no accessor: a final sigma looks through exactly such characters."""
    c = chr(cp)
    return ("a" + c + "\u03a3").lower()[-1] == "\u03c2" and ("1" + c + "\u03a3").lower()[-1] == "\u03c3"


def flags(cp):
    c = chr(cp)
    title = unicodedata.category(c) == "Lt"
    bits = [c.isalpha(), c.isdecimal(), c.isdigit(), c.isnumeric(), c.isspace(), c.isprintable(),
            c.isupper(), c.islower(), title, case_ignorable(cp)]
    return sum(1 << i for i, bit in enumerate(bits) if bit)


def runs(mapping):
    """Runs (first, last, step, delta) of single-character mappings."""
    out = []
    items = sorted(mapping.items())
    i = 0
    while i < len(items):
        cp, delta = items[i]
        best = (cp, cp, 1, delta)
        for step in (1, 2):
            j, last = i, cp
            while j + 1 < len(items) and items[j + 1] == (last + step, delta):
                j += 1
                last += step
            if last - cp >= step and (last - cp) // step > (best[1] - best[0]) // best[2]:
                best = (cp, last, step, delta)
        out.append(best)
        while i < len(items) and items[i][0] <= best[1] and (items[i][0] - cp) % best[2] == 0:
            i += 1
    return out


def main():
    version = unicodedata.unidata_version
    print(f"/* Made by make_unicode_data.py from Unicode {version}; do not edit. */")
    print("\n/* (first code point << 10 | flags), ascending */\nstatic const uint32_t flag_runs[] = {")
    row, last = [], None
    for cp in range(MAX):
        f = flags(cp)
        if f != last:
            row.append(f"0x{cp << 10 | f:x},")
            last = f
    for i in range(0, len(row), 10):
        print("    " + " ".join(row[i:i + 10]))
    print("};")
    functions = {"lower": str.lower, "upper": str.upper, "title": str.title, "fold": str.casefold}
    for name, function in functions.items():
        single, several = {}, {}
        for cp in range(MAX):
            c = chr(cp)
            r = function(c)
            if r == c:
                continue
            if len(r) == 1:
                single[cp] = ord(r) - cp
            else:
                several[cp] = [ord(x) for x in r] + [0] * (3 - len(r))
        print(f"\nstatic const case_run {name}_runs[] = {{")
        row = ["{0x%x, 0x%x, %d, %d}," % r for r in runs(single)]
        for i in range(0, len(row), 4):
            print("    " + " ".join(row[i:i + 4]))
        print("};")
        print(f"static const case_many {name}_many[] = {{")
        row = ["{0x%x, {0x%x, 0x%x, 0x%x}}," % (cp, *r) for cp, r in sorted(several.items())]
        for i in range(0, len(row), 3):
            print("    " + " ".join(row[i:i + 3]))
        print("};")


if __name__ == "__main__":
    sys.exit(main())
