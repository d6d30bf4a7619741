#!/usr/bin/env python3
"""Running streams while one long prompt arrives: one JSON line per number of streams. Never gates.

    tests/bench/bench_streams.py [MODEL] [STREAMS,...] [PROMPT]       default: the default model, 1,8, 4096 tokens

Each stream decodes at temperature 0. Gaps between the tokens of all of them: without the prompt (2 s before it
arrives and 2 s after its first token, for the streams' own context grows meanwhile) and beside it; how long it
took to its first token there, and how long it takes alone. Without speculation, for what such streams say
repeats itself; FLAGS in the environment are flags of the daemon."""
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATTEND = os.environ.get("ATTEND", str(ROOT / "build/attend"))
FLAGS = os.environ.get("FLAGS", "--speculation off").split()


def stream(port, body, times, until=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    c.request("POST", "/generate", json.dumps({**body, "ignore_eos": True}),
              {"Content-Type": "application/json", "Accept": "application/x-ndjson"})
    answer = c.getresponse()
    assert answer.status == 200, answer.read()
    for line in answer:
        if b'"done"' not in line:
            times.append(time.monotonic())
        if until and until.is_set():
            break
    c.close()


def ids(n, seed):
    x = seed
    for _ in range(n):
        x = (x * 1103515245 + 12345) % 2**31
        yield 100 + x % 40000


def quantile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def first_token(port, prompt):
    times, begin = [], time.monotonic()
    stream(port, {"prompt": prompt, "max_tokens": 1}, times)
    return begin, times[0]


def measure(port, n, n_prompt):
    times, end = [[] for _ in range(n)], threading.Event()
    threads = [threading.Thread(target=stream, args=(port, {"prompt": list(ids(20, i + 1)), "max_tokens": 3000, "temperature": 0},
                                                     times[i], end)) for i in range(n)]
    for t in threads:
        t.start()
    while min(map(len, times)) < 20:
        time.sleep(0.05)
    begin = time.monotonic()
    time.sleep(2)
    arrived, first = first_token(port, list(ids(n_prompt, 99 + n)))
    time.sleep(2)
    end.set()
    for t in threads:
        t.join()
    _, alone = first_token(port, list(ids(n_prompt, 199 + n)))
    alone -= _
    gaps = [(b, b - a) for one in times for a, b in zip(one, one[1:])]
    without = [g for at, g in gaps if begin < at < arrived or at > first + 0.1]
    beside = [g for at, g in gaps if arrived < at < first]
    row = {"bench": "streams", "streams": n, "prompt": n_prompt}
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        a, b = quantile(without, q) * 1e3, quantile(beside, q) * 1e3
        row[name] = {"without_ms": round(a, 2), "beside_ms": round(b, 2), "ratio": round(b / a, 2)}
    row["mean_ratio"] = round(statistics.mean(beside) / statistics.mean(without), 2)
    row["first_token_s"] = {"beside": round(first - arrived, 3), "alone": round(alone, 3)}
    print(json.dumps(row), flush=True)


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    streams = [int(n) for n in (sys.argv[2] if len(sys.argv) > 2 else "1,8").split(",")]
    n_prompt = int(sys.argv[3]) if len(sys.argv) > 3 else 4096
    daemon = subprocess.Popen([ATTEND, "serve", model, "--port", "0", *FLAGS], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
    port = int(daemon.stdout.readline().rsplit(":", 1)[1])
    for line in daemon.stderr:
        if "model ready" in line:
            break
    threading.Thread(target=daemon.stderr.read, daemon=True).start()
    try:
        for n in streams:
            measure(port, n, n_prompt)
    finally:
        daemon.terminate()
        daemon.wait()


if __name__ == "__main__":
    main()
