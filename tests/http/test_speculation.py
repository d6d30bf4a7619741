#!/usr/bin/env python3
"""Speculation changes how many steps an answer takes and nothing else: whole documents (tokens, text, log
probabilities digit for digit, usage, finish) are the same with it off, on and adaptive."""
import os

from daemon import CHAT, SLOW, TINY, Daemon, Skip, main, together

LIST = "apple, pear, plum, cherry, apple, pear, plum, cherry, apple, pear, plum, cherry, apple,"
CODE = "def add_one(x):\n    return x + 1\n\ndef add_two(x):\n    return x + 2\n\ndef add_three(x):\n    return x + 3\n\ndef"
IDS = [5, 6, 7, 8] * 12
ASKS = [
    {"prompt": LIST, "max_tokens": 48, "logprobs": 3, "ignore_eos": True},
    {"prompt": LIST, "max_tokens": 48, "logprobs": 0, "temperature": 0.9, "seed": 7, "ignore_eos": True},
    {"prompt": CODE, "max_tokens": 40, "temperature": 0.3, "seed": 11, "logprobs": 2},
    {"prompt": IDS, "max_tokens": 60, "ignore_eos": True},
    {"prompt": IDS, "max_tokens": 33, "temperature": 1.2, "seed": 3, "top_k": 0, "top_p": 1, "min_p": 0},
    {"prompt": LIST, "max_tokens": 48, "stop": ["plum, ch"], "ignore_eos": True},  # in the middle of a draft
    {"prompt": LIST, "max_tokens": 48, "stop": [" pear"], "min_tokens": 9, "ignore_eos": True},
    {"prompt": LIST, "max_tokens": 40, "repeat_penalty": 1.05, "frequency_penalty": 0.1, "presence_penalty": 0.1,
     "repeat_last_n": -1, "logprobs": 1, "ignore_eos": True},
    {"prompt": CODE, "max_tokens": 40, "min_tokens": 20, "temperature": 0.5, "seed": 5},
    *({"prompt": LIST, "max_tokens": n, "ignore_eos": True} for n in (1, 2, 3, 8, 9)),
]
SAME = ("tokens", "text", "logprobs", "usage", "finish_reason", "stop", "session")


def answers(d, company):
    def ask(i):
        got = d.generate(**ASKS[i])
        return {k: got[k] for k in SAME if k in got}

    n = len(ASKS)
    rows = together(n, ask, timeout=300) if company else [ask(i) for i in range(n)]
    first = d.generate(LIST, session="turns", max_tokens=21, ignore_eos=True)  # and goes on from there
    second = d.generate(" plum, cherry, apple, pear,", session="turns", max_tokens=21, ignore_eos=True)
    return rows, [first["tokens"], second["tokens"], second["usage"]["prompt_tokens"]]


def same_answers(model):
    if not os.path.exists(model):
        raise Skip(f"{model} is not there")
    want = None
    for mode in ("off", "on", "auto"):
        with Daemon("--speculation", mode, "--page-tokens", 16, model=model) as d:
            for company in (False, True):
                rows, turns = answers(d, company)
                for row in rows:  # what was cached differs from round to round
                    row["usage"] = row["usage"]["completion_tokens"], row["usage"]["prompt_tokens"]
                if not want:
                    want = rows, turns
                for i, (a, b) in enumerate(zip(rows, want[0])):
                    assert a == b, f"{mode}, company {company}, request {i}: {a} instead of {b}"
                if not company:
                    assert turns == want[1], f"{mode}: a session's turns: {turns} instead of {want[1]}"
                d.request("DELETE", "/sessions/turns")
            m = d.metrics()
            drafted, held = m["attend_drafted_tokens_total"], m["attend_drafts_held_total"]
            assert (drafted > 0 and 0 < held <= drafted) if mode == "on" else held <= drafted, (mode, drafted, held)
            assert mode != "off" or drafted == 0, drafted


def test_tiny_model():
    same_answers(TINY)


def test_default_model():
    if SLOW > 1:
        raise Skip("too slow under a sanitizer")
    same_answers(CHAT)


def test_fewer_steps():
    """What repeats itself takes fewer steps: that is what it is for."""
    steps = {}
    for mode in ("off", "on"):
        with Daemon("--speculation", mode, "--prefill-chunk", 64) as d:  # the prompt in one step, on any machine
            before = d.metrics()["attend_steps_total"]
            assert len(d.generate(IDS, max_tokens=200, ignore_eos=True)["tokens"]) == 200
            steps[mode] = d.metrics()["attend_steps_total"] - before
    assert steps["off"] == 200, steps
    assert steps["on"] < 190, steps


main()
