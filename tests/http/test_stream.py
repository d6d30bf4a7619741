#!/usr/bin/env python3
"""How answers travel: pieces, formats, and what holds for all of them."""
import json
import os
import random
import re
import time

from daemon import CHAT, SLOW, STORY, Daemon, Skip, main, ndjson, sse, the, until

FORMS = ("text/plain", "application/x-ndjson", "text/event-stream", "application/json")


def answer_of(d, body, accept, version="1.1"):
    """(wire, text of the pieces, final object or None)"""
    wire = d.send(body, {"Accept": accept}, version=version)
    data = wire.body()
    wire.close()
    assert wire.status == 200, (wire.status, data[:300])
    if accept == "text/plain":
        return wire, data.decode(), None
    if accept == "application/json":
        whole = json.loads(data)
        return wire, whole["text"], whole
    objects = list(sse(data) if accept == "text/event-stream" else ndjson(data))
    pieces = [o for o in objects[:-1] if "progress" not in o]
    assert all("text" in p and "tokens" in p and "done" not in p for p in pieces), pieces
    final = objects[-1]
    assert final["done"] is True
    assert [t for p in pieces for t in p["tokens"]] == final["tokens"], "tokens of the pieces are not those of the whole"
    assert final["usage"]["completion_tokens"] == len(final["tokens"])
    if "logprobs" in final:
        assert [x for p in pieces for x in p["logprobs"]] == final["logprobs"]
    return wire, "".join(p["text"] for p in pieces), final


def test_U4_concatenated_stream_is_the_whole_answer():
    d = the()
    rng = random.Random(7)
    words = ["Once", " upon", " a", " time", " Lily", " dog", "é", " 猫", "🙂", "\n", "x", "\u0000", '"', "\\"]
    for i in range(100):
        prompt = "".join(rng.choices(words, k=rng.randint(1, 12)))
        body = {"prompt": prompt, "max_tokens": rng.randint(1, 24), "temperature": 1.5, "seed": i,
                "logprobs": 1 if i % 5 == 0 else None, "stop": ["the", " a "] if i % 4 == 0 else None}
        whole = d.generate(**body)
        for accept in FORMS[:3] if i % 10 else FORMS:
            _, text, final = answer_of(d, body, accept)
            assert text == whole["text"], f"{accept} {body}: {text!r}, not {whole['text']!r}"
            if final:
                same = ("text", "tokens", "finish_reason", "stop", "seed")
                assert {k: final[k] for k in same} == {k: whole[k] for k in same}
                assert final.get("logprobs") == whole.get("logprobs")


def test_headers_of_every_form():
    kinds = {"text/plain": "text/plain; charset=utf-8", "application/x-ndjson": "application/x-ndjson",
             "text/event-stream": "text/event-stream", "application/json": "application/json"}
    for accept, kind in kinds.items():
        wire, _, _ = answer_of(the(), {"prompt": STORY, "max_tokens": 2, "seed": 5}, accept)
        h = wire.headers
        assert h["content-type"] == kind, h
        assert (h["cache-control"], h["x-accel-buffering"], h["x-seed"]) == ("no-cache", "no", "5"), h
        assert h["x-request-id"]
        chunked = h.get("transfer-encoding") == "chunked"
        assert chunked == (accept != "application/json"), h


def test_accept_chooses():
    d = the()
    body = {"prompt": "x", "max_tokens": 1}
    text, nd, ev, doc = "text/plain; charset=utf-8", "application/x-ndjson", "text/event-stream", "application/json"
    table = {
        None: text, "*/*": text, "text/*": text, "text/plain": text, "image/png": text,
        "application/json": doc, "application/json, text/plain, */*": doc, "application/*": doc,
        "text/event-stream, */*;q=0.1": ev, "*/*;q=0.1, application/x-ndjson": nd,
        "application/json;q=0.2, text/event-stream;q=0.9": ev, "TEXT/EVENT-STREAM": ev, "text/html, text/event-stream": ev,
        "text/event-stream;q=0, text/plain;q=0.5": text, "application/x-ndjson;charset=utf-8": nd,
    }
    for accept, want in table.items():
        got = d.post(body, headers={"Accept": accept} if accept else {}).headers["Content-Type"]
        assert got == want, f"Accept: {accept}: {got}"
    assert d.post({**body, "stream": False}, headers={"Accept": ev}).headers["Content-Type"] == doc


def test_a_chunk_per_token():
    d = the()
    whole = d.generate(max_tokens=60, ignore_eos=True)
    wire = d.send({"prompt": STORY, "max_tokens": 60, "temperature": 0, "ignore_eos": True})
    chunks = wire.chunks()
    assert len(chunks) == 60 == whole["usage"]["completion_tokens"], f"{len(chunks)} chunks for 60 tokens"
    assert b"".join(chunks).decode() == whole["text"]
    for accept, read in (("application/x-ndjson", ndjson), ("text/event-stream", sse)):
        wire = d.send({"prompt": STORY, "max_tokens": 60, "temperature": 0, "ignore_eos": True}, {"Accept": accept})
        chunks = wire.chunks()
        assert len(chunks) == 61, f"{accept}: {len(chunks)} chunks for 60 tokens and the final object"
        for chunk in chunks:
            assert len(list(read(chunk))) == 1, chunk


def test_tokens_come_when_they_are_made():
    with Daemon("--max-running", 1) as d:
        wire = d.send({"prompt": STORY, "max_tokens": 400, "temperature": 0, "ignore_eos": True})
        wire.head()
        begin = time.monotonic()
        wire.chunk()
        first = time.monotonic() - begin
        rest = len(wire.chunks())
        all_of_it = time.monotonic() - begin
        assert rest > 300 and first < all_of_it / 2, f"first after {first:.3f} s of {all_of_it:.3f} s"


def test_trailers_where_the_client_takes_them():
    body = {"prompt": STORY, "max_tokens": 7, "temperature": 0, "ignore_eos": True}
    wire = the().send(body, {"TE": "trailers"})
    wire.chunks()
    assert "x-finish-reason" in wire.headers["trailer"].lower()
    assert wire.trailers == {"x-finish-reason": "length", "x-completion-tokens": "7"}, wire.trailers
    wire = the().send(body)
    wire.chunks()
    assert wire.trailers == {} and "trailer" not in wire.headers


def test_http_1_0_ends_with_the_connection():
    d = the()
    whole = d.generate(max_tokens=12)
    for accept in FORMS:
        wire, text, _ = answer_of(d, {"prompt": STORY, "max_tokens": 12, "temperature": 0}, accept, version="1.0")
        assert text == whole["text"]
        assert "transfer-encoding" not in wire.headers, wire.headers
    wire = d.send({"prompt": STORY, "max_tokens": 2}, version="1.0")
    wire.head()
    assert wire.headers.get("connection", "close").lower() == "close"
    wire.rest()


def keep_alives(data, accept):
    """(prefilled, prompt_tokens) of each."""
    if accept == "text/event-stream":
        return [(int(a), int(b)) for a, b in re.findall(rb"^: prefill (\d+)/(\d+)$", data, re.M)]
    progress = [o["progress"] for o in ndjson(data) if "progress" in o]
    assert all(set(p) == {"prefilled", "prompt_tokens"} for p in progress), progress
    return [(p["prefilled"], p["prompt_tokens"]) for p in progress]


def test_keep_alive_while_queued():
    with Daemon("--max-running", 1, "--keepalive-ms", 100) as d:
        for accept in ("text/event-stream", "application/x-ndjson"):
            # it fills the socket long before its end, and keeps its place until it is read
            first = d.send({"prompt": STORY, "max_tokens": 450, "ignore_eos": True, "logprobs": 20},
                           {"Accept": "application/x-ndjson"})
            first.head()
            second = d.send({"prompt": "Lily", "max_tokens": 2}, {"Accept": accept})
            second.head()
            begin, data = time.monotonic(), second.chunk()
            while len(keep_alives(data, accept)) < 3:
                data += second.chunk()
            assert time.monotonic() - begin < 2 * SLOW, "silent for long"
            first.close()
            while chunk := second.chunk():
                data += chunk
            assert {k[0] for k in keep_alives(data, accept)[:3]} == {0}, data[:300]
            assert list(sse(data) if accept == "text/event-stream" else ndjson(data))[-1]["done"]
            until(lambda: d.busy()["running"] == 0, 5, "idle")


def test_keep_alive_in_a_long_prefill():
    if not os.path.exists(CHAT):
        raise Skip(f"{CHAT} is absent (make run fetches it)")
    n = 400 // SLOW
    with Daemon("--keepalive-ms", 100, "--prefill-chunk", 1, "--context", 512, model=CHAT) as d:
        for accept in ("text/event-stream", "application/x-ndjson"):
            wire = d.send({"prompt": [300 + i % 100 for i in range(n)], "max_tokens": 2, "cache": False}, {"Accept": accept})
            wire.head()
            data, quiet, last = b"", 0.0, time.monotonic()
            while chunk := wire.chunk():
                now = time.monotonic()
                quiet, last = max(quiet, now - last), now
                data += chunk
            assert quiet < 1.0 * SLOW, f"{accept}: silent for {quiet:.2f} s"
            seen = keep_alives(data, accept)
            assert seen and seen == sorted(seen) and {k[1] for k in seen} == {n}, seen
            assert seen[-1][0] > 0, f"no progress is told: {seen}"


def test_text_head_leaves_with_the_first_text():
    with Daemon("--max-running", 1, "--keepalive-ms", 100) as d:
        first = d.send({"prompt": STORY, "max_tokens": 450, "ignore_eos": True, "logprobs": 20},
                       {"Accept": "application/x-ndjson"})  # keeps its place until it is read
        first.head()
        second = d.send({"prompt": STORY, "max_tokens": 2})
        until(lambda: d.busy()["waiting"] == 1, 5, "it waits")
        second.socket.settimeout(0.3)
        try:
            early = second.socket.recv(1)
        except TimeoutError:
            early = b""
        if d.busy()["running"] and d.busy()["waiting"]:
            assert early == b"", "the head left before there was a text"
        second.buffer += early
        second.socket.settimeout(60)
        first.close()
        second.body()
        assert second.status == 200


def test_errors_have_their_true_status_in_every_form():
    for accept in FORMS:
        wire = the().send({"prompt": [1] * 600, "max_tokens": 5}, {"Accept": accept})
        error = json.loads(wire.body())["error"]
        assert (wire.status, error["code"]) == (400, "context_length_exceeded"), (accept, wire.status, error)
        assert wire.headers["content-type"] == "application/json"


def test_U1_bytes_that_are_no_character():
    d = the()
    for byte, limit in ((0xE4, 1), (0xE4, 5), (0xF0, 2), (0x80, 3), (0xFF, 4), (0xC3, 1)):
        body = {"prompt": STORY, "max_tokens": limit, "temperature": 0, "logprobs": 0,
                "logit_bias": {str(3 + byte): 1000}}
        for accept in FORMS:
            _, text, final = answer_of(d, body, accept)
            assert set(text) == {"\ufffd"}, f"{byte:#x} {accept}: {text!r}"
            if final:
                assert final["tokens"] == [3 + byte] * limit
                assert [e["bytes"] for e in final["logprobs"]] == [[byte]] * limit


def test_U2_hot_answers_parse():
    d = the()
    for seed in range(100):
        body = {"prompt": STORY, "max_tokens": 30, "temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0, "seed": seed}
        for accept in FORMS[1:3]:
            answer_of(d, {**body, "temperature": 100}, accept)


def test_U3_stop_strings_of_every_split():
    d = the()
    whole = d.generate(max_tokens=40, ignore_eos=True)["text"]
    for at in range(0, 40, 3):
        for n in (1, 2, 5, 11):
            stop = whole[at:at + n]
            if len(stop) < n:
                continue
            want = whole[:whole.index(stop)]
            for accept in ("text/plain", "application/json", "text/event-stream"):
                body = {"prompt": STORY, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "stop": stop}
                _, text, final = answer_of(d, body, accept)
                assert text == want, f"stop {stop!r} {accept}: {text!r}, not {want!r}"
                if final:
                    assert (final["finish_reason"], final["stop"]) == ("stop", {"type": "word", "word": stop}), final


def test_U3_stop_strings_that_overlap_and_prefixes():
    d = the()
    whole = d.generate(max_tokens=40, ignore_eos=True)["text"]
    piece = whole[10:20]
    cases = [
        ([piece[:6], piece[3:]], piece[:6], whole.index(piece[:6])),  # overlap: the one that ends first
        ([piece, piece[:4]], piece[:4], whole.index(piece[:4])),      # a prefix of the other ends first
        ([piece[2:6], piece[:6]], piece[:6], whole.index(piece[:6])), # both end at once: the longest
        (["never there", piece], piece, whole.index(piece)),
    ]
    for stops, word, at in cases:
        got = d.generate(max_tokens=40, ignore_eos=True, stop=stops)
        assert (got["text"], got["stop"]) == (whole[:at], {"type": "word", "word": word}), (stops, got)
    half = d.generate(max_tokens=40, ignore_eos=True, stop=[whole[-3:] + "never"])
    assert half["text"] == whole, "what was held back at the end is lost"


def test_final_object():
    got = the().generate(max_tokens=4, ignore_eos=True)
    assert list(got) == ["id", "model", "text", "tokens", "finish_reason", "stop", "seed", "usage", "timings", "session",
                         "warnings", "done"], list(got)
    assert got["model"] == "model-f32"
    assert set(got["usage"]) == {"prompt_tokens", "cached_tokens", "completion_tokens"}
    assert set(got["timings"]) == {"queue_ms", "prefill_ms", "ttft_ms", "decode_ms", "prefill_tok_s", "decode_tok_s"}
    t = got["timings"]
    assert 0 <= t["queue_ms"] <= t["ttft_ms"] and t["decode_ms"] > 0, t
    with Daemon("--model-name", "my model") as d:
        assert d.generate(max_tokens=1)["model"] == "my model"


main()
