#!/usr/bin/env python3
"""Speculation off, adaptive and on, in turn: tokens a second, one JSON line per text and number of clients. Never gates.

    tests/bench/bench_speculation.py [MODEL] [CLIENTS,...] [ROUNDS]       default: the default model, 1,8, 10

Texts: `edit` (a list to be said again with a change, greedy), `prose` (a story, greedy), `sampled` (a story at
temperature 0.8). Each client asks for 128 tokens; rates are medians over the rounds, in which the daemons take turns in
random order. A ratio is the mean of those to `off` in the same round, and 1.96 standard errors; `off_again` is another
daemon like `off`, so that its ratio says how far two of a kind differ."""
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATTEND = os.environ.get("ATTEND", str(ROOT / "build/attend"))
MODES = ("off", "off_again", "auto", "on")
TOKENS = 128
ITEMS = [f'{{"id": {i}, "name": "item number {i}", "colour": "{c}", "price": {i}.50}}'
         for i, c in enumerate("red green blue black white brown grey pink".split())]
STORIES = ["Once upon a time a young fisherman", "The history of the city begins with", "My grandmother always told me that",
           "In the middle of the forest there was", "The machine in the cellar had never", "Every morning the old teacher",
           "When the war was over, the soldiers", "Nobody in the village believed that"]


def body(text, i):
    if text == "edit":
        items = "\n".join(ITEMS[i % 8:] + ITEMS[:i % 8])
        return {"prompt": f"{items}\n\nThe same list again:\n{items}\n\nThe same list again:\n", "temperature": 0}
    return {"prompt": STORIES[i % 8], "temperature": 0 if text == "prose" else 0.8, "seed": i}


def generate(port, fields):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("POST", "/generate", json.dumps({**fields, "max_tokens": TOKENS, "ignore_eos": True, "stream": False}))
    answer = json.loads(c.getresponse().read())
    assert answer["usage"]["completion_tokens"] == TOKENS, answer
    c.close()
    return answer["tokens"]


def load(port, text, n):
    threads = [threading.Thread(target=generate, args=(port, body(text, i))) for i in range(n)]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return n * TOKENS / (time.monotonic() - begin)


def ratio(rates, base):
    """Mean of the rounds' ratios, and 1.96 of its standard errors."""
    pairs = [r / b for r, b in zip(rates, base)]
    return [round(statistics.mean(pairs), 4), round(1.96 * statistics.stdev(pairs) / len(pairs) ** 0.5, 4)]


def start(model, mode):
    d = subprocess.Popen([ATTEND, "serve", model, "--port", "0", "--speculation", mode.split("_")[0]], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    d.port = int(d.stdout.readline().rsplit(":", 1)[1])
    for line in d.stderr:
        if "model ready" in line:
            break
    threading.Thread(target=d.stderr.read, daemon=True).start()
    return d


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    counts = [int(n) for n in (sys.argv[2] if len(sys.argv) > 2 else "1,8").split(",")]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    if rounds < 2:
        sys.exit(f"bench_speculation: ROUNDS is {rounds}, 2 are needed at least")
    daemons = {mode: start(model, mode) for mode in MODES}
    try:
        for text in ("edit", "prose", "sampled"):
            assert len({tuple(generate(d.port, body(text, 0))) for d in daemons.values()}) == 1, "other answers"
            for n in counts:
                rates = {mode: [] for mode in MODES}
                for _ in range(rounds):
                    for mode in random.sample(MODES, len(MODES)):
                        rates[mode].append(load(daemons[mode].port, text, n))
                result = {"bench": "speculation", "text": text, "clients": n, "rounds": rounds}
                for mode in MODES:
                    result[f"{mode}_tok_s"] = round(statistics.median(rates[mode]), 1)
                for mode in MODES[1:]:
                    result[f"{mode}_to_off"] = ratio(rates[mode], rates["off"])
                print(json.dumps(result), flush=True)
    finally:
        for d in daemons.values():
            d.terminate()
            d.wait()


if __name__ == "__main__":
    main()
