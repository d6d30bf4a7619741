#!/usr/bin/env python3
"""What the engine does with the machine: its workers, OpenBLAS, memory of keys and values."""
import os
import pathlib
import re

from daemon import CHAT, SLOW, TINY, Daemon, Skip, main, together

MODEL = CHAT if os.path.exists(CHAT) and SLOW == 1 else TINY


def worker_ticks(d):
    """Processor time of each thread named attend-worker-N."""
    ticks = {}
    for task in pathlib.Path(f"/proc/{d.process.pid}/task").iterdir():
        stat = (task / "stat").read_text()
        name, fields = stat[stat.index("(") + 1:stat.rindex(")")], stat.rsplit(")", 1)[1].split()
        if name.startswith("attend-worker-"):
            ticks[name] = int(fields[11]) + int(fields[12])
    return ticks


def shares(d, work):
    before = worker_ticks(d)
    work()
    after = worker_ticks(d)
    return {name: after[name] - before[name] for name in after}


def test_both_workers_use_the_processor():
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("one processor")
    with Daemon("--threads", 2, model=MODEL) as d:
        n, steps = (2000, 300) if MODEL == CHAT else (400, 100)
        prefill = shares(d, lambda: together(4, lambda i: d.generate([5 + (j * 7 + i) % 400 for j in range(n)], max_tokens=0)))
        decode = shares(d, lambda: d.generate([5, 6, 7], max_tokens=steps, ignore_eos=True))
        for phase, used in (("prefill", prefill), ("decode", decode)):
            assert sorted(used) == ["attend-worker-0", "attend-worker-1"], used
            if sum(used.values()) >= 40:  # clock ticks: enough to tell
                assert min(used.values()) > 0.25 * max(used.values()), f"{phase}: {used}"
            elif MODEL == CHAT:
                raise AssertionError(f"{phase}: too little work to tell: {used}")


def test_OpenBLAS_runs_the_prefill_of_float_models_only():
    prompt = [5 + i % 400 for i in range(300)]
    for flags, model, used in (((), TINY, True), (("--blas", "off"), TINY, False), ((), TINY.replace("f32", "q8_0"), False)):
        with Daemon(*flags, model=model) as d:
            ready = next(line for line in d.log().splitlines() if "model ready" in line)
            said = re.search(r'blas="OpenBLAS [0-9.]+ \w+"', ready)
            if used and not said:
                raise Skip("no OpenBLAS here")
            assert bool(said) == used, ready
            d.generate(prompt, max_tokens=20, ignore_eos=True)
            calls = d.metrics()["attend_blas_calls_total"]
            assert (calls > 0) == used, f"{model} {flags}: {calls} calls"
            d.generate([7, 8, 9], max_tokens=20, ignore_eos=True)
            assert d.metrics()["attend_blas_calls_total"] == calls, "short prompts and decode are ours"


def test_a_token_of_the_default_model_holds_23040_bytes():
    if MODEL != CHAT:
        raise Skip("no default model, or too slow under a sanitizer")
    with Daemon(model=CHAT) as d:
        d.generate("Once upon a time", max_tokens=20, session="s", ignore_eos=True)
        s = d.get("/sessions/s").json()
        assert s["tokens"] == 24 and s["bytes"] == 24 * 23040, s
    with Daemon("--kv-type", "f32", model=CHAT) as d:
        d.generate("Once upon a time", max_tokens=20, session="s", ignore_eos=True)
        assert d.get("/sessions/s").json()["bytes"] == 24 * 46080


if __name__ == "__main__":
    main()
