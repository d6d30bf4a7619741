#!/usr/bin/env python3
"""The hot loops of the kernels keep their vectors in registers: none on the stack inside an innermost hot loop, and no
pointer in a vector register, which costs eight cycles to fetch back.

A compiler that runs out of registers halves the speed of a tile and says nothing. Looks at the objects of the release build
with gcc on x86-64 (other compilers and builds allot registers otherwise), at the loops that are cut to fill the registers of
their level: the tiles of avx512vnni and of BF16, those of decoded blocks and one plane of avx2vnni, and attention's blocks of
queries at both widths. Other tiles do not fit: that they fetch some values again costs little. In attention a loop with a jump over hot
instructions masks the end of something, and is not looked at; in a tile it jumps over the second plane.
"""
import os
import pathlib
import platform
import re
import shutil
import subprocess

from common import ROOT, finish, report, skip

OBJ = ROOT / os.environ.get("BUILD", "build") / "obj" / "core" / "kernel"
# objects, functions in them, the instruction that makes a loop hot, how many such loops there are at least: attention has
# one for 1 to 6 queries, 3 types of KV, and whole vectors or the last of a row, which not all have such a loop for; and whether loops with
# jumps over hot instructions are looked at
HOT = [
    ("panel_int.o", r"_avx512vnni_\d_\d$", "vpdpbusd", 1, True),
    ("panel/*.o", r"_avx512vnni_\d_\d$", "vpdpbusd", 1, True),
    ("panel_int.o", r"_avx2vnni_1_\d$", "vpdpbusd", 1, True),
    ("panel/bf16.o", r"^dots_\d$", "vdpbf16ps", 1, False),
    ("attention.o", r"^scores_avx(2|512)$", "vfmadd", 36, False),
    ("attention.o", r"^values_avx(2|512)$", "vfmadd", 18, False),
]
STACK = re.compile(r"%[xyz]mm.*\(%r[sb]p[,)]|\(%r[sb]p[,)].*%[xyz]mm|^vmov[dq]\s+(%[xyz]mm.*%[er]|%[er])")
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
    """Jumps (from, to) within a function, and the loops (first, last) that backward ones enclose, short ones first."""
    at = {address: i for i, (address, _) in enumerate(body)}
    jumps = [(i, at[int(found[1], 16)]) for i, (_, text) in enumerate(body) if (found := JUMP.match(text)) and int(found[1], 16) in at]
    return jumps, sorted({(to, i) for i, to in jumps if to <= i}, key=lambda loop: loop[1] - loop[0])


def hot_loops(body, hot, jumpy):
    """The instructions of each innermost loop with a hot one that, unless jumpy, no other jump in it passes over."""
    is_hot = [text.removeprefix("{vex} ").startswith(hot) for _, text in body]
    jumps, ranges = loops(body)
    inner = []
    for first, last in ranges:
        if not any(is_hot[first:last + 1]) or any(first <= a and b <= last for a, b in inner):
            continue
        inner.append((first, last))
        if jumpy or not any(first <= i < last and any(is_hot[min(i, to):max(i, to)]) for i, to in jumps):
            yield [text for _, text in body[first:last + 1]]


def faults(counts):
    for pattern, wanted, hot, least, jumpy in HOT:
        for path in sorted(OBJ.glob(pattern)):
            for name, body in functions(path):
                if not re.search(wanted, name) or not any(hot in i for _, i in body):
                    continue
                found = list(hot_loops(body, hot, jumpy))
                counts.append(len(found))
                if len(found) < least:
                    yield f"{path.name}: {name} has {len(found)} loops with {hot} instead of {least}"
                for loop in found:
                    if stack := [i for i in loop if STACK.search(i)]:
                        yield f"{path.name}: {name} spills {len(stack)} times in an innermost loop: {stack[0]}"


def why_not():
    flags = OBJ.parents[2] / "flags"
    if platform.machine() != "x86_64":
        return "the tiles looked at are those of x86-64"
    if not shutil.which("objdump"):
        return "objdump is not installed"
    if not flags.exists():
        return "there is no release build"
    compiler = [pathlib.Path(word).name for word in flags.read_text().split()[:2]]
    if not compiler[compiler[0] == "ccache"].startswith("gcc"):
        return "not built with gcc"
    return None


if reason := why_not():
    skip("spills", reason)
else:
    looked_at = []
    report("spills", [*faults(looked_at), *([] if looked_at else ["no tile was found"])])
finish()
