#!/usr/bin/env python3
"""Throughput and inter-token time by number of clients, as a picture. Never gates.

    tests/bench/curve.py [MODEL] [--out tests/bench/curve.svg] [--clients 1,2,4,8,16,32,64] [--seconds 8]

Starts attend on a free port and loads it with serve (a closed loop: prompts of 32 random words, 64 tokens each), one run
for each number of clients. Writes a JSON object a line to stdout, and the SVG: tokens a second of all clients
together (left scale), the 99th percentile and the median of the time between tokens (right scale)."""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build")
ATTEND = os.environ.get("ATTEND", str(BUILD / "attend"))
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 320, 64, 64, 44, 48
INK, LINES = "#666", {"tok_s": "#1864ab", "p99": "#c92a2a", "p50": "#e8590c"}


def measure(model, clients, seconds):
    """What serve says for each number of clients; and the model's name."""
    daemon = subprocess.Popen([ATTEND, "serve", model, "--port", "0", "--log-level", "error", "--max-running", str(max(clients))],
                              stdout=subprocess.PIPE, text=True)
    try:
        url = daemon.stdout.readline().split()[-1]
        while True:
            try:
                urllib.request.urlopen(url + "/readyz").close()
                break
            except urllib.error.HTTPError:
                pass
        command = [str(BUILD / "tests/bench/serve"), "--json", "--temperature", "0.8", "--seconds", str(seconds), "--clients", ",".join(map(str, clients)), url]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        sys.stdout.write(lines)
        return [json.loads(line) for line in lines.splitlines()]
    finally:
        daemon.terminate()
        daemon.wait(60)


def ceiling(value):
    """The next number that makes a good end of a scale: four equal parts of it are round."""
    power = 10 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if m * power >= value)


class Picture:
    def __init__(self, xs):
        self.xs, self.parts = xs, []

    def x(self, clients):
        """Doublings are equally far apart."""
        low, high = math.log2(self.xs[0]), math.log2(self.xs[-1])
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(clients) - low) / ((high - low) or 1)

    def y(self, share):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def text(self, x, y, text, anchor="middle", color=INK):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{text}</text>')

    def axes(self, left_end, right_end):
        for i in range(5):
            y = self.y(i / 4)
            self.parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-opacity=".25"/>')
            self.text(LEFT - 8, y + 4, f"{left_end * i / 4:g}", "end", LINES["tok_s"])
            self.text(WIDTH - RIGHT + 8, y + 4, f"{right_end * i / 4:g}", "start", LINES["p99"])
        for clients in self.xs:
            self.text(self.x(clients), HEIGHT - BOTTOM + 18, clients)
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "clients")
        self.text(LEFT - 40, TOP - 18, "tokens/s, all together", "start", LINES["tok_s"])
        self.text(WIDTH - RIGHT + 40, TOP - 18, "between tokens, ms: 99th percentile", "end", LINES["p99"])
        self.text(WIDTH - RIGHT + 40, TOP - 4, "median", "end", LINES["p50"])

    def line(self, values, end, color):
        points = [(self.x(c), self.y(v / end)) for c, v in zip(self.xs, values)]
        self.parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" stroke="{color}" stroke-width="2"/>')
        self.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points]

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">\n'
                f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def draw(rows):
    tok_s = [r["tok_s"] for r in rows]
    p50, p99 = ([r["itl_ms"][p] for r in rows] for p in ("p50", "p99"))
    picture = Picture([r["clients"] for r in rows])
    left, right = ceiling(max(tok_s)), ceiling(max(p99))
    picture.axes(left, right)
    picture.line(tok_s, left, LINES["tok_s"])
    picture.line(p50, right, LINES["p50"])
    picture.line(p99, right, LINES["p99"])
    return picture.svg()


def main():
    p = argparse.ArgumentParser(description="throughput and inter-token time by number of clients, as an SVG")
    p.add_argument("model", nargs="?", default=str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    p.add_argument("--out", default=str(ROOT / "tests/bench/curve.svg"))
    p.add_argument("--clients", default="1,2,4,8,16,32,64")
    p.add_argument("--seconds", type=float, default=8)
    args = p.parse_args()
    rows = measure(args.model, [int(n) for n in args.clients.split(",")], args.seconds)
    pathlib.Path(args.out).write_text(draw(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
