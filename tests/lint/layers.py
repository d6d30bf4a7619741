#!/usr/bin/env python3
"""Includes point downwards (layers.txt), and the engine knows neither settings nor how to end the process."""
import pathlib
import re

from common import ROOT, finish, read, report, sources, without_comments

RULES = pathlib.Path(__file__).with_name("layers.txt").read_text()


def rules():
    rooms, libraries = {}, {}
    for line in RULES.splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, allowed = line.partition(":")
            (libraries if name.startswith("<") else rooms)[name.strip("<>")] = allowed.split()
    return rooms, libraries


def under(path, prefix):
    """Is path the file or folder of that name (with or without its ending), or in it?"""
    return path == prefix or path.startswith(prefix + "/") or path.rsplit(".", 1)[0] == prefix


def room_of(path, rooms):
    return max((r for r in rooms if under(path, r)), key=len, default=None)


def own(room, rooms):
    """A rule for one file of a folder with rules of its own: its folder is its room too."""
    folder = room.rpartition("/")[0]
    return [room, folder] if folder in rooms else [room]


def includes(path):
    for number, line in enumerate(read(path).splitlines(), 1):
        if found := re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line):
            yield number, found[1] == '"', found[2]


def layer_faults():
    rooms, libraries = rules()
    for path in sources(".c", ".h"):
        name = path.as_posix()
        room = room_of(name, rooms)
        if room is None:
            yield f"{name}: belongs to no room of layers.txt"
            continue
        for line, ours, target in includes(path):
            if not ours:
                owners = libraries.get(target)
                if owners and not any(under(name, owner) for owner in owners):
                    yield f"{name}:{line}: <{target}> belongs to {' '.join(owners)}"
                continue
            if not (ROOT / target).exists():
                yield f'{name}:{line}: "{target}" is not a path from the top of the project'
            elif not any(under(target, a) for a in [*own(room, rooms), *rooms[room]]):
                yield f"{name}:{line}: {room} may not include {target}, only: {' '.join(rooms[room]) or 'itself'}"


def call_faults():
    for path in sources(".c", ".h", folders=("core",)):
        for number, line in enumerate(without_comments(read(path)).splitlines(), 1):
            if found := re.search(r"\b(_?exit|quick_exit|getenv|secure_getenv)\s*\(", line):
                if found[1].endswith("getenv") and path.as_posix().startswith(("core/kernel/cpu", "core/kernel/blas")):
                    continue
                yield f"{path}:{number}: core never calls {found[1]}"


report("layers", layer_faults())
report("core_neither_exits_nor_reads_settings", call_faults())
finish()
