#!/usr/bin/env python3
"""A closed loop of clients against a daemon of its own: one JSON line per number of clients. Never gates.

    tests/bench/bench_http.py [MODEL] [CLIENTS,...]        default: the default model, 1,8,16

Each client sends prompts of 32 words (all different) and reads 64 tokens, as NDJSON. Figures are medians over
the requests; tokens a second are of all clients together. Then the time to the first token of a new prompt of
512 tokens, and of the same again."""
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
WORDS = "the of river a small bird house sings over green hill under rain old man walks slowly home with bread".split()


def generate(port, **body):
    """Seconds to the first token, between tokens (median), and all; and how many tokens."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    begin = time.monotonic()
    c.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json", "Accept": "application/x-ndjson"})
    answer, times = c.getresponse(), []
    assert answer.status == 200, answer.read()
    for line in answer:
        if b'"done"' not in line:
            times.append(time.monotonic())
    c.close()
    gaps = [b - a for a, b in zip(times, times[1:])]
    return times[0] - begin, statistics.median(gaps) if gaps else 0.0, time.monotonic() - begin, len(times)


def loop(port, n_clients, n_rounds):
    rows, lock = [], threading.Lock()

    def client(i):
        words = random.Random(1000 * n_clients + i)
        for _ in range(n_rounds):
            row = generate(port, prompt=" ".join(words.choices(WORDS, k=32)), max_tokens=64, ignore_eos=True)
            with lock:
                rows.append(row)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(n_clients)]
    begin = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return rows, time.monotonic() - begin


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    counts = [int(n) for n in sys.argv[2].split(",")] if len(sys.argv) > 2 else [1, 8, 16]
    begin = time.monotonic()
    daemon = subprocess.Popen([ATTEND, "serve", model, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = int(daemon.stdout.readline().rsplit(":", 1)[1])
        for line in daemon.stderr:
            if "model ready" in line:
                break
        print(json.dumps({"bench": "http", "ready_s": round(time.monotonic() - begin, 3)}), flush=True)
        threading.Thread(target=daemon.stderr.read, daemon=True).start()
        generate(port, prompt="Once upon a time", max_tokens=64, ignore_eos=True)
        for n in counts:
            rows, seconds = loop(port, n, 4)
            print(json.dumps({"bench": "http", "clients": n, "tok_s": round(sum(r[3] for r in rows) / seconds, 1),
                              "first_token_ms": round(1e3 * statistics.median(r[0] for r in rows), 1),
                              "between_tokens_ms": round(1e3 * statistics.median(r[1] for r in rows), 2)}), flush=True)
        prompt = [100 + i * 17 % 4000 for i in range(512)]
        for state in ("cold", "cached"):
            first = generate(port, prompt=prompt, max_tokens=2, ignore_eos=True)[0]
            print(json.dumps({"bench": "http", "prompt": 512, "state": state, "first_token_ms": round(1e3 * first, 1)}), flush=True)
        resident = int(pathlib.Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        print(json.dumps({"bench": "http", "rss_mb": round(resident / 1e6)}), flush=True)
    finally:
        daemon.terminate()
        daemon.wait(20)


if __name__ == "__main__":
    main()
