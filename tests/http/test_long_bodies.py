"""Bodies of megabytes: read and made into tokens beside the loop, a few at a time, and given up when nobody waits."""
import contextlib
import json
import threading
import time

from daemon import CHAT, SLOW, STORY, Daemon, main, the, together, until

LIMIT = 8 << 20
# The slowest to make into tokens: a second or so, on slow builds too.
SPACES = json.dumps({"prompt": " " * (LIMIT // SLOW - 100), "stream": False})


def padded(**fields):
    """A small request in a long body."""
    return json.dumps({"stream": False, "temperature": 0, **fields}) + " " * 100_000


def worst_probe(d, work):
    """The longest that a probe took while work ran."""
    took, done = [], threading.Event()

    def probe():
        c = d.connection()
        while not done.is_set():
            begin = time.monotonic()
            c.request("GET", "/livez")
            c.getresponse().read()
            took.append(time.monotonic() - begin)
            time.sleep(0.002)
        c.close()

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        answer = work()
    finally:
        done.set()
        thread.join()
    return max(took), answer


def states(d):
    return [r["state"] for r in d.get("/requests").json()["requests"]]


def occupy(d, n):
    """n requests that keep the text role busy for a second or more."""
    wires = [d.send(SPACES) for _ in range(n)]
    until(lambda: len(states(d)) == n, 20 * SLOW, lambda: f"all are taken: {states(d)}")
    return wires


def test_the_loop_does_not_wait_for_long_bodies():
    keys = "".join(f',"key{i:x}":0' for i in range(120_000))
    bodies = {
        "escapes": '{"prompt":"' + "\\u00e9" * (LIMIT // 6 - 10) + '"}',
        "unknown fields": '{"prompt":"a","max_tokens":1' + keys + "}",
        "unknown fields of a message": '{"messages":[{"role":"user","content":"a"' + keys + "}]}",
        "token ids": '{"prompt":[' + "1," * 120_000 + "1]}",
        "empty arrays": '{"prompt":[' + "[]," * (LIMIT // 3 - 10) + "1]}",
        "biases": '{"prompt":"a","max_tokens":1,"logit_bias":[' + ",".join(f"[{i},1]" for i in range(512)) + "]}",
    }
    d = the()
    for name, body in bodies.items():
        worst, answer = worst_probe(d, lambda body=body: d.post(body))
        assert answer.status in (200, 400), f"{name}: {answer.status}"
        assert worst < 0.1 * SLOW, f"{name}: a probe waited for {worst * 1000:.0f} ms"


def test_a_long_body_is_read_as_a_short_one():
    d = the()
    short = d.generate(max_tokens=5, nonsense=1)
    answer = d.post(padded(prompt=STORY, max_tokens=5, nonsense=1)).json()
    for key in ("text", "tokens", "warnings", "usage"):
        assert answer[key] == short[key] or key == "usage", key
    for accept, kind in {"*/*": "text/plain", "text/event-stream": "text/event-stream"}.items():
        wire = d.send(padded(prompt=STORY, max_tokens=5, stream=True), {"Accept": accept})
        assert wire.head()[0] == 200 and wire.headers["content-type"].startswith(kind), wire.headers
        wire.body()
        wire.close()
    headers = {"X-Session-Id": "long"}
    assert d.post(padded(prompt=STORY, max_tokens=1), headers=headers).json()["session"]["id"] == "long"
    d.refused(padded(prompt=STORY, session="other"), param="session", has="X-Session-Id", headers=headers)
    d.refused(padded(prompt=STORY, top_p=2), param="top_p")
    d.refused('{"prompt":"a"' + " " * 100_000, has="line 1")


def test_more_values_than_anyone_needs_are_refused():
    d = the()
    d.refused('{"prompt":[' + "1," * 2_000_000 + "1]}", has="2000003 values, at most 131584")
    error = d.refused('{"prompt":[' + "1," * 599 + "1]}", has="512 tokens")
    assert error["n_prompt_tokens"] in (600, 601), error
    d.generate(session="cut", max_tokens=1)
    answer = d.request("POST", "/sessions/cut/fork", '{"to":"other"' + " " * 10_000 + "}")
    assert answer.status == 413 and "4096" in answer.text, answer.text


def test_short_requests_pass_long_ones():
    with Daemon() as d:
        wires = occupy(d, 6)
        d.generate(max_tokens=1)
        left = len(states(d))
        assert left >= 2, f"only {left} of 6 were still there"
        for w in wires:
            w.reset()
        d.gone(within=1)  # in the JSON's reading it is not asked to stop


def test_C1_left_while_the_prompt_is_made_into_tokens():
    with Daemon() as d:
        wires = occupy(d, 4)
        before = d.metrics()["attend_requests_cancelled_total"]
        time.sleep(0.3)  # past the reading of the JSON, which is not interrupted
        for w in wires:
            w.reset()
        d.gone()
        assert d.metrics()["attend_requests_cancelled_total"] - before == 4


def test_C8_deleted_before_the_engine_sees_it():
    with Daemon() as d:
        wires = occupy(d, 3)
        waiting = {}
        for i, accept in enumerate(("application/json", "application/x-ndjson", "text/event-stream", "text/plain")):
            headers = {"X-Request-Id": f"w{i}", "Accept": accept}
            waiting[f"w{i}"] = d.send(padded(prompt=STORY, stream=True, max_tokens=400), headers)
        until(lambda: len(states(d)) == 7, 5, "they wait")
        for name, wire in waiting.items():
            assert d.request("DELETE", f"/requests/{name}").json()["cancelled"]
            begin = time.monotonic()
            assert wire.head()[0] == 200
            body = wire.body()
            assert name == "w3" or b'"finish_reason":"cancelled"' in body, (name, body)
            assert time.monotonic() - begin < 0.25 * SLOW, name
            wire.close()
        for r in d.get("/requests").json()["requests"]:
            d.request("DELETE", f"/requests/{r['id']}")
        for w in wires:
            document = json.loads(w.body())
            assert w.status == 200 and document["finish_reason"] == "cancelled", document
            w.close()
        d.gone()


def test_deadline_counts_from_the_start():
    with Daemon() as d:
        wires = occupy(d, 6)
        late = json.loads(d.send(padded(prompt=STORY, max_tokens=3, deadline_ms=300)).body())
        assert late["finish_reason"] == "deadline", late
        for w in wires:
            w.reset()


def test_one_session_in_order_long_and_short():
    with Daemon() as d:
        wires = occupy(d, 3)
        first = d.send(padded(prompt=STORY, max_tokens=2, session="s"))
        until(lambda: len(states(d)) == 4, 5, "it waits")
        second = d.send(json.dumps({"prompt": " more", "stream": False, "max_tokens": 2, "session": "s"}))
        first, second = json.loads(first.body()), json.loads(second.body())
        assert first["session"]["created"] and not second["session"]["created"], (first, second)
        assert second["usage"]["prompt_tokens"] > first["session"]["tokens"], (first, second)
        for w in wires:
            w.close()


def test_O1_SIGTERM_with_long_bodies():
    with Daemon("--drain-ms", 500) as d:
        wires = occupy(d, 8)
        took = d.stop()
        assert took < 2 * SLOW, f"{took:.1f} s"
        for w in wires:
            w.close()


def test_bodies_that_wait_are_counted():
    """All that is held of bodies has a limit; above it 429, and what was counted is given back."""
    with Daemon("--body-limit", "64M", "--max-connections", 64) as d:
        big = json.dumps({"prompt": "a", "stream": False, "max_tokens": 1}) + " " * (60 << 20)

        def one(_):
            with contextlib.suppress(OSError):
                return d.post(big).status
            return None

        seen = together(12, one)
        assert set(seen) <= {200, 429, None} and 200 in seen and (429 in seen or None in seen), seen
        assert d.post(big).status == 200


if __name__ == "__main__":
    main()
