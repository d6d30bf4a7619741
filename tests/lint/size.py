#!/usr/bin/env python3
"""A file has at most 800 lines; a function at most 80, but for kernels, which are unrolled by hand."""
import re

from common import finish, read, report, sources, without_comments

FILE, FUNCTION = 800, 80


def functions(text):
    """(name, first line, last line): in this style a body is between `{` and `}` at the start of a line."""
    name, start, opened = None, 0, None
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"[a-z_].*?\b(\w+)\s*\(", line):
            if opened is None and not line.rstrip().endswith(";"):
                name, start = found[1], number
        if line.startswith("{") and name:
            opened = number
        elif line.startswith("}") and opened:
            yield name, start, number
            name, opened = None, None


def faults():
    for path in sources(".c", ".h", folders=("core", "server", "config", "tests")):
        text = read(path)
        lines = text.count("\n")
        if lines > FILE:
            yield f"{path}: {lines} lines, at most {FILE}"
        if path.as_posix().startswith("core/kernel/"):
            continue
        for name, start, end in functions(without_comments(text)):
            if end - start + 1 > FUNCTION:
                yield f"{path}:{start}: {name} has {end - start + 1} lines, at most {FUNCTION}"


report("size", faults())
finish()
