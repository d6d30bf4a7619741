#!/usr/bin/env python3
"""The hot loops of the kernels keep their values in registers: nothing on the stack inside an innermost loop of a tile.

A compiler that runs out of registers halves the speed of a tile and says nothing. Looks at the objects of the release build
with gcc on x86-64 (other compilers and builds allot registers otherwise), level avx512vnni, whose tiles are cut to fill the
registers; the levels below have tiles that do not fit and pay for it by design.
"""
import os
import pathlib
import platform
import re
import shutil
import subprocess

from common import ROOT, finish, report, skip

OBJ = ROOT / os.environ.get("BUILD", "build") / "obj" / "core" / "kernel"
# objects, functions in them, the instruction that makes a loop hot
HOT = [
    ("panel_int.o", r"_avx512vnni_\d_\d$", "vpdpbusd"),
    ("panel/*.o", r"_avx512vnni_\d_\d$", "vpdpbusd"),
]
STACK = re.compile(r"\(%r[sb]p[,)]")
JUMP = re.compile(r"^j\w+\s+([0-9a-f]+)")


def functions(path):
    """(name, [(address, instruction)])"""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True).stdout
    name, body = None, []
    for line in text.splitlines():
        if found := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            if name:
                yield name, body
            name, body = found[1], []
        elif found := re.match(r"\s*([0-9a-f]+):\s+(\S.*)", line):
            body.append((int(found[1], 16), found[2]))
    if name:
        yield name, body


def loops(body):
    """(first address, last address) of what backward jumps enclose."""
    start = body[0][0] if body else 0
    for address, instruction in body:
        found = JUMP.match(instruction)
        if found and start <= int(found[1], 16) <= address:
            yield int(found[1], 16), address


def spills(body, hot):
    """What the innermost loops with a hot instruction do on the stack."""
    seen = [[i for a, i in body if first <= a <= last] for first, last in sorted(set(loops(body)), key=lambda l: l[1] - l[0])]
    inner = [loop for loop in seen if any(i.startswith(hot) for i in loop)]
    return inner, [i for i in inner[0] if STACK.search(i)] if inner else []


def faults(counts):
    for pattern, wanted, hot in HOT:
        for path in sorted(OBJ.glob(pattern)):
            for name, body in functions(path):
                if not re.search(wanted, name) or not any(i.startswith(hot) for _, i in body):
                    continue
                found, stack = spills(body, hot)
                counts.append(name)
                if not found:
                    yield f"{path.name}: {name} has no loop with {hot}"
                elif stack:
                    yield f"{path.name}: {name} spills {len(stack)} times in its innermost loop: {stack[0]}"


def why_not():
    flags = OBJ.parents[2] / "flags"
    if platform.machine() != "x86_64":
        return "the tiles looked at are those of x86-64"
    if not shutil.which("objdump"):
        return "objdump is not installed"
    if not flags.exists():
        return "there is no release build"
    if not pathlib.Path(flags.read_text().split()[0]).name.startswith("gcc"):
        return "not built with gcc"
    return None


if reason := why_not():
    skip("spills", reason)
else:
    looked_at = []
    report("spills", [*faults(looked_at), *([] if looked_at else ["no tile was found"])])
finish()
