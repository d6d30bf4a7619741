#!/usr/bin/env python3
"""Tokenizers against ids that llama.cpp gave, by `attend tokenize` and `attend detokenize`."""
import base64
import concurrent.futures
import json
import os

from golden import HERE, SANITIZER, attend, finish, say

CASES = {
    "gpt-2": (HERE / "tokenizer/gpt-2.gguf", {262, 264}),  # rows whose decoded text the reference cleaned up
    "stories260K": (HERE / "stories260K/model-f32.gguf", set()),
}


def ids_wrong(model, text, want, *flags):
    got = json.loads(attend("tokenize", model, *flags, stdin=text))
    return "" if got == want else f"{' '.join(flags)} {got} instead of {want}"


def bytes_wrong(model, ids, want):
    got = attend("detokenize", model, *ids)
    return "" if got in (want, want + b"\n") else f"{got!r} instead of {want!r}"


def row_wrong(name, row):
    """'' or what is wrong with one string: its ids as text, with control tokens, and back."""
    model, cleaned = CASES[name]
    text, plain = base64.b64decode(row["text_base64"]), row.get("ids_noparse", row["ids"])
    why = ids_wrong(model, text, plain)
    if not why and row["ids"] != plain:
        why = ids_wrong(model, text, row["ids"], "--special")
    if not why and row["ids"] and row["id"] not in cleaned:
        why = bytes_wrong(model, row["ids"], base64.b64decode(row["decoded_base64"]))
    return why


def judge(name, row):
    try:
        return row_wrong(name, row)
    except (RuntimeError, ValueError) as e:
        return str(e)[-300:]


with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
    for name in CASES:
        lines = (HERE / f"tokenizer/{name}.llama.cpp.jsonl").read_text().splitlines()
        found = [r for r in map(json.loads, filter(None, lines)) if r["utf8"]][::20 if SANITIZER else 1]
        for row, why in zip(found, pool.map(lambda r: judge(name, r), found)):
            say("not ok" if why else "ok", f"{name} {row['id']} {row['cat']}", why)
finish()
