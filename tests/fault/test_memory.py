#!/usr/bin/env python3
"""Allocations that fail while the daemon serves: a request is refused or its connection closed, nobody else is
disturbed, nothing is lost.
timeout: 120"""
import collections
import contextlib
import http.client
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))

from daemon import ROOT, SLOW, STORY, Daemon, Skip, main, together  # noqa: E402


@contextlib.contextmanager
def failing():
    """A daemon, and what sets how many of its allocations fail."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    if SLOW != 1:
        raise Skip("a sanitizer has an allocator of its own")
    if not compiler:
        raise Skip("no compiler here")
    with tempfile.TemporaryDirectory(prefix="memory-") as folder:
        library, control = pathlib.Path(folder, "fail.so"), pathlib.Path(folder, "control")
        subprocess.run([*compiler.split(), "-O1", "-shared", "-fPIC", "-o", library,
                        ROOT / "tests/fault/fail_malloc.c", "-ldl"], check=True)
        control.write_bytes(bytes(4))

        def one_in(n):
            with open(control, "r+b") as f:
                f.write(struct.pack("I", n))

        with Daemon("--max-running", 4, "--page-tokens", 16,
                    env={"LD_PRELOAD": str(library), "FAIL_MALLOC": str(control)}) as d:
            yield d, one_in


def ask(d, r):
    """One request of any kind; its answer."""
    kind = r.randrange(8)
    if kind == 0:
        return d.get(r.choice(["/metrics", "/sessions", "/requests", "/health", "/"]))
    if kind == 1:
        return d.post({"to": f"t{r.randrange(9)}"}, f"/sessions/s{r.randrange(3)}/fork")
    if kind == 2:
        return d.request("DELETE", f"/sessions/{r.choice('st')}{r.randrange(9)}")
    body = {"prompt": r.choice([STORY, [1] + [r.randrange(260, 500) for _ in range(r.randrange(1, 200))]]),
            "max_tokens": r.randrange(20), "stop": ["zz", "Lily"][:r.randrange(3)], "n": 1, "tools": [],
            "response_format": {"type": "text"}}
    body |= r.choice([{}, {"session": f"s{r.randrange(3)}"}, {"logprobs": 5}, {"logit_bias": {"300": 5}}])
    return d.post(body, headers={"Accept": r.choice(["text/plain", "application/json", "text/event-stream"])})


def test_allocations_that_fail_while_serving():
    with failing() as (d, one_in):
        want = d.generate(max_tokens=20)["text"]
        seen = collections.Counter()

        def client(i):
            r = random.Random(i)
            for _ in range(60):
                try:
                    answer = ask(d, r)
                    seen[answer.status] += 1
                    # sessions that are made, deleted and in use: 404, 409; too long: 400
                    assert answer.status in (200, 404, 409, 503) or b"context_length" in answer.data or \
                        b"at most" in answer.data, f"{answer.status} {answer.text}"
                except (ConnectionError, http.client.HTTPException):
                    seen["closed"] += 1

        for n in (1000, 100, 30):
            one_in(n)
            together(4, client)
            one_in(0)
            d.gone(within=2)
            assert d.get("/requests").json() == {"requests": []}
            assert d.generate(max_tokens=20, cache=False)["text"] == want
        assert seen[503] > 10 and seen[200] > 10, seen


main()
