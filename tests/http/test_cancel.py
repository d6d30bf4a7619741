#!/usr/bin/env python3
"""Clients that leave, and clients that only seem to.
timeout: 120"""
import json
import signal
import socket
import threading
import time

from daemon import STORY, Daemon, main, until

LONG = {"prompt": STORY, "max_tokens": 480, "temperature": 0, "ignore_eos": True}
FLAGS = ("--max-running", 4)
SLOW_PREFILL = ("--prefill-chunk", 1)  # a row a step: a prompt of 450 tokens takes a second or so


def ids(n, first=300):
    """A prompt of n tokens that no other test has sent."""
    return [first + (i * 7 + i // 11) % 200 for i in range(n)]


def test_C1_killed_after_5_streamed_tokens():
    with Daemon(*FLAGS) as d:
        for accept in ("text/plain", "text/event-stream", "application/x-ndjson"):
            before = d.metrics()
            wire = d.send(LONG, {"Accept": accept})
            wire.head()
            for _ in range(5):
                wire.chunk()
            wire.reset()
            d.gone()
            after = d.metrics()
            assert after["attend_requests_cancelled_total"] == before["attend_requests_cancelled_total"] + 1
            made = after["attend_completion_tokens_total"] - before["attend_completion_tokens_total"]
            assert made < 450, f"{accept}: {made} tokens were made for nobody"


def test_C1_closed_without_reset():
    with Daemon(*FLAGS) as d:
        wire = d.send(LONG)
        wire.head()
        wire.chunk()
        wire.close()
        d.gone()


def stalled(d):
    """A request that fills its socket long before its end, and keeps its place until it is read."""
    wire = d.send({**LONG, "logprobs": 20}, {"Accept": "application/x-ndjson"})
    wire.head()
    return wire


def test_C2_queued_one_leaves_and_is_never_prefilled():
    with Daemon("--max-running", 1) as d:
        first = stalled(d)
        first.chunk()
        queued = d.send({"prompt": ids(300), "max_tokens": 5})
        until(lambda: d.busy()["waiting"] == 1, 5, "a request waits")
        before = d.metrics()["attend_prompt_tokens_total"]
        queued.reset()
        until(lambda: d.busy()["waiting"] == 0, 0.25 * 8, "the queue is empty")
        assert d.busy()["running"] == 1, "the running one must not be touched"
        text = b"".join(first.chunks())
        assert text
        d.gone()
        assert d.metrics()["attend_prompt_tokens_total"] == before, "the one that left was prefilled"


def test_C3_as_C1_with_stream_false():
    with Daemon(*FLAGS) as d:
        wire = d.send({**LONG, "stream": False})
        until(lambda: d.busy()["running"] == 1, 5, "it runs")
        wire.reset()
        d.gone()
        wire = d.send({**LONG, "stream": False})
        until(lambda: d.busy()["running"] == 1, 5, "it runs")
        wire.close()
        d.gone()


def test_C4_killed_in_a_long_prefill():
    with Daemon(*FLAGS, *SLOW_PREFILL) as d:
        for leave in ("reset", "close"):
            before = d.metrics()["attend_prompt_tokens_total"]
            wire = d.send({"prompt": ids(450, 250 if leave == "reset" else 300), "max_tokens": 4})
            until(lambda b=before: d.metrics()["attend_prompt_tokens_total"] > b + 5, 10, "prefill has begun")
            getattr(wire, leave)()
            d.gone()
            done = d.metrics()["attend_prompt_tokens_total"] - before
            assert done < 440, f"{leave}: {done} of 450 tokens were computed for nobody"


def test_C5_same_prompt_again_reuses_what_was_computed():
    with Daemon(*FLAGS, *SLOW_PREFILL, "--page-tokens", 16) as d:
        prompt = ids(450)
        alone = None
        wire = d.send({"prompt": prompt, "max_tokens": 4})
        until(lambda: d.metrics()["attend_prompt_tokens_total"] > 40, 10, "prefill has begun")
        wire.reset()
        d.gone()
        again = d.generate(prompt, max_tokens=8)
        assert 16 <= again["usage"]["cached_tokens"] < 449, again["usage"]
        with Daemon(*FLAGS) as fresh:
            alone = fresh.generate(prompt, max_tokens=8)
        assert again["tokens"] == alone["tokens"], "the reused prefix changed the answer"


def test_C6_abort_during_anothers_long_prefill():
    with Daemon(*FLAGS, *SLOW_PREFILL) as d:
        prompt, got = ids(400), {}
        want = d.generate(prompt, max_tokens=12, cache=False)
        other = threading.Thread(target=lambda: got.update(d.generate(prompt, max_tokens=12, cache=False)))
        begun = d.metrics()["attend_prompt_tokens_total"]
        other.start()
        until(lambda: d.metrics()["attend_prompt_tokens_total"] > begun + 5, 10, "prefill has begun")
        for i in range(6):
            wire = d.send({**LONG, "prompt": ids(20, 270 + i)})
            time.sleep(0.02)
            wire.reset()
        other.join()
        assert got["tokens"] == want["tokens"], "the other's answer is wrong"
        d.gone()
        assert d.stop(signal.SIGTERM) < 5 * 15


def test_C7_half_close_is_not_a_departure():
    with Daemon(*FLAGS) as d:
        body = {"prompt": STORY, "max_tokens": 150, "temperature": 0, "ignore_eos": True}
        want = d.generate(**body)["text"]
        forms = {"text/plain": {}, "text/event-stream": {}, "application/x-ndjson": {}, "application/json": {}}
        for accept in forms:
            wire = d.send(body, {"Accept": accept})
            wire.socket.shutdown(socket.SHUT_WR)
            data = wire.body()
            assert wire.status == 200, (accept, wire.status)
            if accept == "text/plain":
                text = data.decode()
            elif accept == "text/event-stream":
                text = json.loads(data.decode().rstrip("\n").rsplit("data: ", 1)[1])["text"]
            else:
                text = json.loads(data.decode().rstrip("\n").rsplit("\n", 1)[-1])["text"]
            assert text == want, f"{accept}: {text[:60]!r}..., not {want[:60]!r}..."
        d.gone()


def test_C7_half_close_while_queued_and_after_the_first_token():
    with Daemon("--max-running", 1) as d:
        first = d.send(LONG)
        first.head()
        first.chunk()
        queued = d.send({"prompt": STORY, "max_tokens": 5, "temperature": 0})
        queued.socket.shutdown(socket.SHUT_WR)
        first.socket.shutdown(socket.SHUT_WR)
        assert len(first.chunks()) > 100
        assert queued.body() == d.generate(STORY, max_tokens=5)["text"].encode()


def test_C7_half_close_that_arrives_with_the_request():
    with Daemon() as d:
        d.process.send_signal(signal.SIGSTOP)  # so that it finds request and FIN at once
        wires = [d.send({"prompt": 5}), d.send({"prompt": STORY, "max_tokens": 2, "stream": False}),
                 d.send(None, path="/livez", method="GET")]
        for wire in wires:
            wire.socket.shutdown(socket.SHUT_WR)
        d.process.send_signal(signal.SIGCONT)
        for wire in wires:
            assert wire.body()
            wire.socket.settimeout(5)
            assert wire.rest() == b"", "closed when it is answered, not when it was idle for long"
        assert [wire.status for wire in wires] == [400, 200, 200]


def test_clients_that_leave_in_the_middle_of_a_request():
    parts = [b"", b"GET /li", b"\r\n", b"POST /generate HTTP/1.1\r\nHost: t\r\nContent-",
             b"POST /generate HTTP/1.1\r\nHost: t\r\nContent-Length: 50\r\n\r\n{",
             b"POST /generate HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n50\r\n{"]
    with Daemon() as d:
        base = d.descriptors()
        d.process.send_signal(signal.SIGSTOP)  # so that it finds bytes and FIN at once
        for part in parts * 5:
            with d.socket() as s:
                s.sendall(part)
        d.process.send_signal(signal.SIGCONT)
        assert d.get("/livez").status == 200  # came after them
        until(lambda: d.descriptors() <= base, 5, lambda: f"{d.descriptors()} descriptors, {base} before")


def test_C7_half_closed_client_that_then_leaves():
    with Daemon("--max-running", 1) as d:
        ahead = stalled(d)
        queued = d.send({**LONG, "stream": False})
        until(lambda: d.busy()["waiting"] == 1, 5, "it waits")
        queued.socket.shutdown(socket.SHUT_WR)
        assert queued.line() == b"HTTP/1.1 100 Continue", "it is asked whether it is there"
        queued.take(2)
        queued.close()  # its FIN was sent before, and nothing is unread: no packet tells of this
        until(lambda: d.busy()["waiting"] == 0, 5, "the second probe, a second later, finds out")
        assert d.metrics()["attend_requests_cancelled_total"] == 1
        ahead.body()
        d.gone(within=5)
        m = d.metrics()
        assert m["attend_requests_cancelled_total"] == 1, m["attend_requests_cancelled_total"]
        assert m["attend_completion_tokens_total"] == LONG["max_tokens"], m["attend_completion_tokens_total"]


def test_C8_delete_from_another_connection():
    with Daemon(*FLAGS) as d:
        for accept in ("application/x-ndjson", "text/event-stream", "text/plain", "application/json"):
            wire = d.send(LONG, {"Accept": accept, "X-Request-Id": "kill-me", "TE": "trailers"})
            until(lambda: d.busy()["running"] == 1, 5, "it runs")
            listed = d.get("/requests").json()["requests"]
            assert [r["id"] for r in listed] == ["kill-me"], listed
            assert set(listed[0]) == {"id", "state", "prompt_tokens", "prefilled", "completion_tokens", "age_ms",
                                      "session"}, listed
            answer = d.request("DELETE", "/requests/kill-me")
            assert (answer.status, answer.json()) == (200, {"id": "kill-me", "cancelled": True}), answer.text
            data = wire.body()
            if accept == "text/plain":
                assert wire.trailers.get("x-finish-reason") == "cancelled", wire.trailers
            else:
                last = json.loads(data.decode().rstrip("\n").replace("data: ", "").rsplit("\n", 1)[-1])
                assert last["finish_reason"] == "cancelled" and last["done"], last
            d.gone()
        answer = d.request("DELETE", "/requests/kill-me")
        assert answer.status == 404, answer.text


def test_C8_delete_of_a_queued_one():
    with Daemon("--max-running", 1) as d:
        first = stalled(d)
        queued = d.send({"prompt": ids(100), "stream": False}, {"X-Request-Id": "q"})
        until(lambda: d.busy()["waiting"] == 1, 5, "it waits")
        assert d.request("DELETE", "/requests/q").status == 200
        last = json.loads(queued.body())
        assert last["finish_reason"] == "cancelled" and last["tokens"] == [], last
        first.reset()
        d.gone()


def test_C8_delete_of_one_whose_long_body_is_unread():
    with Daemon() as d:
        text = {"prompt": "Once upon a time " * 400_000, "max_tokens": 1}
        ahead = [d.send(text) for _ in range(2)]  # two long bodies at a time are read
        until(lambda: d.busy()["places"] == 2, 10, "they are there")
        wire = d.send({"prompt": [300] * 30_000, "stream": False}, {"X-Request-Id": "ids"})
        until(lambda: d.busy()["places"] == 3, 10, "all are there")
        assert d.request("DELETE", "/requests/ids").status == 200
        last = json.loads(wire.body())
        assert (wire.status, last.get("finish_reason")) == (200, "cancelled"), last
        for other in ahead:
            assert b"context length" in other.body()
        d.gone()


def test_D2_30_cancelled_streams_leave_no_descriptor():
    with Daemon("--max-running", 8) as d:
        old = d.connection()
        old.request("GET", "/health")
        old.getresponse().read()
        base = d.descriptors()
        for i in range(30):
            version = "1.0" if i % 3 == 0 else "1.1"
            wire = d.send(LONG, {"Accept": "text/event-stream"}, version=version)
            wire.head()
            wire.take(20)
            wire.reset() if i % 2 else wire.close()
        d.gone()
        until(lambda: d.descriptors() <= base + 1, 5, lambda: f"{d.descriptors()} descriptors, {base} before")
        for i in range(9):  # the ends that are no cancellations
            head = {"Connection": "close", "Accept": ("text/plain", "text/event-stream", "application/json")[i % 3]}
            assert d.send({**LONG, "max_tokens": 3}, head, version="1.0").body()
            wire = d.send({**LONG, "max_tokens": 3}, head)
            assert wire.body() and wire.rest() == b"", "closed after its answer"
        until(lambda: d.descriptors() <= base + 1, 5, lambda: f"{d.descriptors()} descriptors, {base} before")
        old.request("GET", "/health")
        assert old.getresponse().status == 200
        old.close()


def small_socket(d):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect((d.host, d.port))
    return s


def test_client_that_leaves_after_the_engine_ended():
    with Daemon() as d:
        # the sockets hold a part of the answer, the ring the rest: the engine is done before anyone has read it
        body = {**LONG, "max_tokens": 110, "logprobs": 20}
        wires = [d.send(body, {"Accept": "application/x-ndjson"}, s=small_socket(d)) for _ in range(4)]
        until(lambda: d.metrics()["attend_completion_tokens_total"] == 4 * 110, 20, "the engine is done")
        until(lambda: d.busy()["running"] == 0, 5, "nothing runs")
        assert d.busy()["places"] > 0, "all of it fits into the sockets: the test needs longer answers"
        for wire in wires:
            wire.reset()
        d.gone()
        assert d.get("/requests").json() == {"requests": []}


def test_stalled_reader_is_cut_and_others_run_on():
    with Daemon("--stall-ms", 500, "--context", 512) as d:
        s = small_socket(d)
        # logprobs make an answer of 2 MB: more than the sockets hold
        wire = d.send({**LONG, "logprobs": 20}, {"Accept": "text/event-stream"}, s=s)
        until(lambda: d.busy()["running"] == 1, 5, "it runs")
        assert d.generate(STORY, max_tokens=20)["usage"]["completion_tokens"] == 20
        d.gone(within=10)
        wire.close()
        assert "reads nothing" in d.log()


main()
