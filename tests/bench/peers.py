#!/usr/bin/env python3
"""attend beside its peers on the same GGUF, in turn in one run. Never gates.

    tests/bench/peers.py [--models a,b] [--cells a,b] [--rounds 3] [--llama-lib FILE] [--llama-server FILE] [--json FILE]

Peers are installed as their users do, from PyPI into build/peers (PEERS_VENV names another place): llama.cpp (xllamacpp),
OpenVINO GenAI. With --llama-lib (or LLAMA_LIB), a libllama.so built for this machine is the llama.cpp of the engine's
cells instead (and with --llama-server, a llama-server is the server): the package is built for any x86-64 with AVX2.
Two threads each. In every cell the engines take turns, round after round; figures are medians over the rounds, in tokens a
second, all sequences together. A bar is the least ratio to llama.cpp that is aimed at, with (stretch); where llama.cpp
stands near the machine's own limit, a share of that limit counts as well.

Then the servers, attend's and llama.cpp's, through the same load (serve.c): closed loops, first tokens of a prompt that is
new and of one that was seen before, and one stream beside a process that keeps a processor busy."""
import argparse
import contextlib
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
BUILD = ROOT / os.environ.get("BUILD", "build")
ATTEND = os.environ.get("ATTEND", str(BUILD / "attend"))
SERVE = str(BUILD / "tests/bench/serve")
VENV = pathlib.Path(os.environ.get("PEERS_VENV", BUILD / "peers"))
PACKAGES = ["xllamacpp", "openvino-genai", "numpy"]
DEFAULT = "smollm2-q4_1"
CELLS = {  # name: (tokens each sequence holds before, steps; 0: the prompt itself, sequences)
    "prefill 512": (512, 0, 1),
    "decode": (16, 128, 1),
    "decode at 2048": (2048, 48, 1),
    "8 streams": (32, 48, 8),
    "16 streams": (32, 48, 16),
}
BARS = {  # model: a (bar, stretch) for each cell, as ratios to llama.cpp
    "smollm2-q4_1": [(7, 7), (3, 3), (3, 3), (7, 7), (8, 8)],
    "135m-q8_0": [(3.5, 5), (2.6, 3.4), (3, 3), (3, 3), (3.5, 3.5)],
    "135m-q4_0": [(2.8, 4.2), (2.4, 2.9), (3, 3), (3.3, 5), (3.2, 4.9)],
    "1b-q8_0": [(4, 6), (1.7, 1.9), (1.8, 1.8), (2.7, 3.3), (3.7, 4.8)],
    "1b-q4_0": [(3.5, 4.5), (1.8, 2.2), (1.9, 1.9), (3.4, 4.4), (4, 5.2)],
    "1b-q4_k_m": [(3.3, 4.3), (1.7, 2.0), (1.8, 1.8), (3.2, 3.2), (3.8, 3.8)],
}
SHARES = [60, 85, 85, 45, 45]  # percent of the machine's own limit: a cell that reaches it holds too
SAMPLED = ["--temperature", "0.8"]  # greedy answers of small models go in circles, which is easy to guess ahead
LOADS = {  # name: flags of serve, and whether a busy process runs beside it
    "1 client": (["--clients", "1", *SAMPLED], False),
    "8 clients": (["--clients", "8", *SAMPLED], False),
    "16 clients": (["--clients", "16", *SAMPLED], False),
    "1 client greedy": (["--clients", "1"], False),
    "new prompt of 512": (["--prompt-ids", "512", "--tokens", "2", "--requests", "2"], False),
    "the same again": (["--prompt-ids", "512", "--tokens", "2", "--requests", "8", "--same"], False),
    "1 client beside a busy process": (["--clients", "1", "--tokens", "256", *SAMPLED], True),
}
SLOTS, SLOT_TOKENS = 16, 2048  # of llama.cpp's server
LEAST = 1.15  # in any cell, over the better of the peers


class Attend:
    name = "attend"

    def __init__(self, model, threads):
        self.command = [ATTEND, "bench", model, "--json", "--threads", str(threads)]

    def measure(self, context, steps, batch):
        prefill, prompt = (0, context) if steps else (context, 1)
        flags = ["--prefill", str(prefill), "--prompt", str(prompt), "--decode", str(steps), "--batch", str(batch),
                 "--long", "0", "--repeat", "1", "--no-limits"]
        lines = subprocess.run(self.command + flags, check=True, capture_output=True, text=True).stdout.splitlines()
        return next(row["tok_s"] for row in map(json.loads, lines) if row["section"] in ("prefill", "decode"))

    def shares(self):
        """For each cell, percent of the machine's limit, which attend measures in the same run; None where it has none."""
        lines = subprocess.run(self.command + ["--prompt", "32", "--repeat", "1"], check=True, capture_output=True, text=True).stdout
        rows = [row for row in map(json.loads, lines.splitlines()) if "tok_s" in row]
        return [next((r.get("percent") for r in rows if (r["section"] == "decode") == (steps > 0) and r["batch"] == batch and
                      (r["context"] > 1000) == (context > 1000 and steps > 0)), None) for context, steps, batch in CELLS.values()]

    def close(self):
        pass


class Peer:
    """A process that answers jobs (peer_*.py); it rests between them."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen([str(VENV / "bin/python")] + command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.hello = self.read()

    def read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, job):
        """The answer to a job; None where it cannot."""
        if not self.hello:
            return None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            return self.read()
        except BrokenPipeError:
            return None

    def measure(self, context, steps, batch):
        answer = self.ask({"context": context, "steps": steps, "batch": batch})
        return answer and answer["tok_s"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


class Server:
    """A server on a port of its own."""

    def __init__(self, name, dialect, command, url=None):
        self.name, self.dialect = name, dialect
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = url
        while not self.url:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit(f"{name} did not start: {command}")
            self.url = re.search(r"http://\S+", line) and re.search(r"http://\S+", line)[0]
        for _ in range(1200):
            with contextlib.suppress(OSError), urllib.request.urlopen(self.url + "/health", timeout=5):
                return
            time.sleep(0.1)
        raise SystemExit(f"{name} is not ready")

    def load(self, flags, beside, seconds, seed):
        """What serve says of a load; with a process beside it that is never idle."""
        command = [SERVE, "--json", "--dialect", self.dialect, "--seconds", str(seconds), "--seed", str(seed), *flags, self.url]
        busy = beside and subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if run.returncode:
                raise SystemExit(f"{' '.join(command)}: {run.stdout}{run.stderr}")
            return json.loads(run.stdout)
        finally:
            if busy:
                busy.kill()
                busy.wait()

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as f:
            return round(int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6)

    def close(self):
        self.process.terminate()
        self.process.wait(60)


def install(peers):
    if peers and not (VENV / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        subprocess.run([str(VENV / "bin/pip"), "install", "-q", *PACKAGES], check=True)


def find_llama(given):
    if given:
        return given
    for found in VENV.glob("lib*/python*/site-packages/xllamacpp/xllamacpp*.so"):
        return str(found)
    sys.exit(f"{VENV} has no xllamacpp")


def find_model(name):
    if os.path.exists(name):
        return name
    if name == DEFAULT:
        return str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    path = pathlib.Path(os.environ.get("PEERS_MODELS", BUILD / "models")) / f"{name}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(BUILD / "tests/bench/make_model"), *name.split("-", 1), str(path)], check=True)
    return str(path)


def open_engines(model, args):
    engines = [Attend(model, args.threads)]
    if "llama.cpp" in args.peers:
        engines.append(Peer("llama.cpp", [str(HERE / "peer_llama.py"), find_llama(args.llama_lib), model, str(args.threads)]))
    if "openvino" in args.peers:
        engines.append(Peer("openvino", [str(HERE / "peer_openvino.py"), model, str(args.threads)]))
    return engines


def take_turns(engines, cell, n_rounds):
    return [[e.measure(*CELLS[cell]) for e in engines] for _ in range(n_rounds)]


def judge(model, cell, median, share=None):
    """The bar's verdict on a cell's medians by engine, and its percent of the machine's limit."""
    at = list(CELLS).index(cell)
    ours, llama = median["attend"], median.get("llama.cpp")
    best = max((v for k, v in median.items() if k != "attend" and v), default=None)
    row = {"ratio": llama and ours / llama, "ratio_best": best and ours / best, "share": share}
    if model in BARS and llama:
        row["bar"], row["stretch"] = BARS[model][at]
        holds = row["ratio"] >= row["bar"] or (share or 0) >= SHARES[at]
        row["pass"] = holds and row["ratio_best"] >= LEAST
    return row


def show(value, form):
    return "-" if value is None else form % value


def print_row(model, cell, row):
    m = row["median"]
    bar = f"{row['bar']} ({row['stretch']})" if "bar" in row else "-"
    verdict = {True: "pass", False: "FAIL", None: ""}[row.get("pass")]
    print(f"| {model} | {cell} | " + " | ".join(show(m[k], "%.1f") for k in m) +
          f" | {show(row['ratio'], '%.2fx')} | {bar} | {show(row['share'], '%.0f %%')} | {show(row['ratio_best'], '%.2fx')} | {verdict} |",
          flush=True)


def run_model(name, args, out):
    engines = open_engines(find_model(name), args)
    for e in engines[1:]:
        json.dump({"bench": "peers", "model": name, "engine": e.name, "hello": e.hello}, out)
        out.write("\n")
    shares = dict(zip(CELLS, engines[0].shares() if args.limits else [None] * len(CELLS)))
    for cell in args.cells:
        rounds = take_turns(engines, cell, args.rounds)
        values = {e.name: [r[i] for r in rounds] for i, e in enumerate(engines)}
        median = {k: None if None in v else statistics.median(v) for k, v in values.items()}
        row = {"bench": "peers", "model": name, "cell": cell, "values": values, "median": median, **judge(name, cell, median, shares[cell])}
        out.write(json.dumps(row) + "\n")
        out.flush()
        print_row(name, cell, row)
    for e in engines:
        e.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def open_servers(model, args, servers):
    threads = str(args.threads)
    servers.append(Server("attend", "attend", [ATTEND, "serve", model, "--port", "0", "--threads", threads, "--log-level", "warn"]))
    if "llama.cpp" in args.peers and args.llama_server:
        port = free_port()
        command = [args.llama_server, "-m", model, "-t", threads, "-np", str(SLOTS), "-c", str(SLOTS * SLOT_TOKENS), "--port", str(port)]
        servers.append(Server("llama.cpp", "llama", command, f"http://127.0.0.1:{port}"))
    elif "llama.cpp" in args.peers:
        command = [str(VENV / "bin/python"), str(HERE / "peer_llama_server.py"), model, threads, str(SLOTS), str(SLOT_TOKENS)]
        servers.append(Server("llama.cpp", "llama", command))


def take_loads(servers, load, args):
    flags, beside = LOADS[load]
    seed = args.seed + 1000000 * list(LOADS).index(load)  # no load finds another's prompts in the cache
    return [[s.load(flags, beside, args.seconds, seed + 100000 * i) for s in servers] for i in range(args.rounds)]


def median_of(rows, *path):
    def value(row):
        for key in path:
            row = row[key]
        return row
    return statistics.median(value(r) for r in rows)


def print_load(name, load, servers, rounds, out):
    cells = []
    for i, s in enumerate(servers):
        rows = [r[i] for r in rounds]
        out.write(json.dumps({"bench": "peers-http", "model": name, "load": load, "engine": s.name, "rounds": rows}) + "\n")
        first = median_of(rows, "ttft_ms", "p50") if all(r["ttft_ms"]["n"] for r in rows) else None
        cells.append([median_of(rows, "tok_s"), first, median_of(rows, "itl_ms", "p50"), median_of(rows, "itl_ms", "p99"),
                      max(r["itl_ms"]["max"] for r in rows)])
    out.flush()
    print(f"| {name} | {load} | " + " | ".join(" / ".join(show(c[k], "%.4g") for c in cells) for k in range(5)) + " |", flush=True)


def run_servers(name, args, out):
    servers = []
    try:
        open_servers(find_model(name), args, servers)
        for load in args.loads:
            print_load(name, load, servers, take_loads(servers, load, args), out)
        print(f"| {name} | MB resident | " + " / ".join(str(s.resident_mb()) for s in servers) + " | | | | |")
    finally:
        for s in servers:
            s.close()


def read_arguments():
    p = argparse.ArgumentParser(description="attend beside llama.cpp and OpenVINO GenAI")
    p.add_argument("--models", default=DEFAULT, help=f"of {', '.join(BARS)}, or paths [{DEFAULT}]")
    p.add_argument("--cells", default=",".join(CELLS), help="of " + ", ".join(CELLS))
    p.add_argument("--loads", default=",".join(LOADS), help="of " + ", ".join(LOADS))
    p.add_argument("--peers", default="llama.cpp,openvino")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=5, help="of a load [5]")
    p.add_argument("--seed", type=int, default=int(time.time()), help="of the loads' prompts")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--no-limits", dest="limits", action="store_false", help="do not measure what the machine allows")
    p.add_argument("--llama-lib", default=os.environ.get("LLAMA_LIB"), help="libllama.so of a llama.cpp built here")
    p.add_argument("--llama-server", default=os.environ.get("LLAMA_SERVER"), help="its llama-server")
    p.add_argument("--json", default=str(BUILD / "bench-peers.jsonl"), help="where the figures go, a JSON object a line")
    args = p.parse_args()
    for name in ("models", "cells", "loads", "peers"):
        setattr(args, name, [s for s in getattr(args, name).split(",") if s])
    for name, known in (("cells", CELLS), ("loads", LOADS)):
        if unknown := [s for s in getattr(args, name) if s not in known]:
            p.error(f"--{name}: {unknown[0]} is none of {', '.join(known)}")
    return args


def main():
    args = read_arguments()
    install(args.peers)
    with open(args.json, "a", encoding="utf-8") as out:
        if args.cells:
            print("| model | cell | " + " | ".join(["attend"] + args.peers) + " | to llama.cpp | bar | of the limit | to the better | |\n" +
                  "|---" * (8 + len(args.peers)) + "|", flush=True)
        for name in args.models if args.cells else []:
            run_model(name, args, out)
        if args.loads:
            print("\n| model | over HTTP: attend / llama.cpp | tokens/s | first token, ms | between tokens, ms: median | p99 | most |\n" +
                  "|---" * 7 + "|", flush=True)
        for name in args.models if args.loads else []:
            run_servers(name, args, out)


if __name__ == "__main__":
    main()
