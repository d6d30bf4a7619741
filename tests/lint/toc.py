#!/usr/bin/env python3
"""The first line of every source file carries its stage on a request's way, or the room it belongs to.
With --print: the map of the source, in the order of a request."""
import re
import sys

from common import finish, read, report, sources

STAGES = ("main http api queue tokenizer scheduler embed norm qkv attention attn_out mlp block lm_head sample detok "
          "stream").split()
ROOMS = "base load kernel kv text model arch sched engine server cmd config".split()
WIDTH = 100  # of what a line of the map says
TAGS = [f"{number:02} {name}" for number, name in enumerate(STAGES)] + ROOMS


def first_line(path):
    """(tag, what the file says it is, in a sentence) or (None, the line)."""
    text = read(path)
    found = re.match(r"/\* \[([a-z0-9_ ]+)\] ?(.*?)\s*\*/", text, re.S)
    if not found:
        return None, text.partition("\n")[0]
    paragraph = re.split(r"\n \*\s*\n|\n \*   ", found[2])[0]
    words = re.sub(r"\s*\n \*\s?", " ", paragraph)
    sentence = re.match(r".*?(?:(?<![ (][A-Z])\.(?=\s)|$)", words, re.S)[0]
    return found[1], sentence if len(sentence) <= WIDTH else sentence[:WIDTH].rsplit(" ", 1)[0] + " ..."


def faults():
    seen = set()
    for path in sources(".c", ".h"):
        tag, text = first_line(path)
        seen.add(tag)
        if tag is None:
            yield f"{path}:1: does not begin with /* [tag] what it is for"
        elif tag not in TAGS:
            yield f"{path}:1: no stage or room is called [{tag}]; there are {', '.join(TAGS)}"
        elif not text:
            yield f"{path}:1: says nothing behind its tag"
    for stage in TAGS[:len(STAGES)]:
        if stage not in seen:
            yield f"no file carries [{stage}]"


def entries():
    """(order, path, tag, text) of each .c file, in the order of a request."""
    return sorted((TAGS.index(tag), str(path), tag, text) for path in sources(".c")
                  for tag, text in [first_line(path)] if tag in TAGS)


def print_map():
    wide = max(len(path) for _, path, _, _ in entries())
    last = None
    for _, path, tag, text in entries():
        print(f"{'[' + tag + ']' if tag != last else '':<15} {path:<{wide}}  {text}")
        last = tag


if __name__ == "__main__":
    if "--print" in sys.argv:
        print_map()
    else:
        report("toc", faults())
        finish()
