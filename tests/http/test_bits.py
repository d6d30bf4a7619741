#!/usr/bin/env python3
"""The same request gives the same bytes whatever else the server is doing: text and log-probabilities digit
for digit alone, among 16 others, cold and warm, in a fresh and in a continued session."""
import os
import pathlib

from daemon import CHAT, ROOT, SLOW, Daemon, Skip, main, together

GOLDEN = pathlib.Path(ROOT) / "tests/golden"


def answer_of(document):
    return document["tokens"], document["text"], document["logprobs"]


def spread(n_vocab, n, seed):
    x, ids = 977 * seed + 5, []
    for _ in range(n):
        x = (x * 1103515245 + 12345) % 2**31
        ids.append(3 + x % (n_vocab - 3))
    return ids


def same_in_any_company(model, n_vocab, n_prompt, n_tokens, *flags):
    if not os.path.exists(model):
        raise Skip(f"{model} is not there")
    prompts = [spread(n_vocab, n_prompt + 7 * i, i) for i in range(17)]
    ask = {"max_tokens": n_tokens, "logprobs": 3, "ignore_eos": True, "seed": 4242, "temperature": 0.7}
    with Daemon("--page-tokens", 16, *flags, model=model) as d:
        alone = [answer_of(d.generate(p, cache=False, **ask)) for p in prompts[:3]]
        cold = together(17, lambda i: answer_of(d.generate(prompts[i], **ask)), timeout=300)
        warm = together(17, lambda i: answer_of(d.generate(prompts[i], **ask)), timeout=300)
        assert cold[:3] == alone, "among 16 others another answer than alone"
        assert warm == cold, "with the prefix cached another answer"
        head, tail = prompts[0][:n_prompt // 2], prompts[0][n_prompt // 2:]
        first = d.generate(head, session="s", max_tokens=0)
        assert first["tokens"] == [], first["tokens"]
        for company in (1, 8):  # the continued turn, alone and among others; forked, so that each begins the same
            names = [f"s{company}-{i}" for i in range(company)]
            for name in names:
                assert d.request("POST", "/sessions/s/fork", {"to": name}).status == 200
            for i, got in enumerate(together(company, lambda i: answer_of(d.generate(tail, session=names[i], **ask)))):
                assert got == alone[0], f"continued session {i} of {company}: another answer than in one request"
    with Daemon("--page-tokens", 16, "--threads", 1, "--prefill-chunk", 7, *flags, model=model) as d:
        assert answer_of(d.generate(prompts[0], **ask)) == alone[0], "one thread, chunks of 7: another answer"


def test_default_model():
    if SLOW > 1:
        raise Skip("too slow under a sanitizer")
    same_in_any_company(CHAT, 49152, 40, 12)


def test_Q8_0():
    same_in_any_company(str(GOLDEN / "stories260K/model-q8_0.gguf"), 512, 90, 24)


def test_cache_of_codes():
    same_in_any_company(str(GOLDEN / "stories260K/model-q8_0.gguf"), 512, 90, 24, "--kv-type", "q8")


def test_Q4_K():
    same_in_any_company(str(GOLDEN / "quant/Q4_K.gguf"), 256, 90, 24)


main()
