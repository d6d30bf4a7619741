#!/usr/bin/env python3
"""From start to stop: loading, draining, failing."""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from daemon import ATTEND, CHAT, ROOT, SLOW, STORY, TINY, Daemon, Skip, main, sse, together, until

LONG = {"prompt": STORY, "max_tokens": 490, "temperature": 0, "ignore_eos": True}


def fails(*words, code=1, has, env=None):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ATTEND_")}
    run = subprocess.run([ATTEND, "serve", *words], capture_output=True, text=True, timeout=30 * SLOW, cwd=ROOT,
                         env={**clean, **(env or {})}, check=False)
    assert run.returncode == code, f"exit {run.returncode}: {run.stderr}"
    assert has in run.stderr, f"{has!r} is not in {run.stderr!r}"
    return run


def test_O1_SIGTERM_when_idle():
    for number in (signal.SIGTERM, signal.SIGINT):
        with Daemon() as d:
            old = d.connection()
            old.request("GET", "/livez")
            old.getresponse().read()
            took = d.stop(number)
            assert took < 2 * SLOW, f"{took:.2f} s"
            old.close()


def test_O1_SIGTERM_while_loading():
    model = CHAT if os.path.exists(CHAT) else TINY
    with Daemon(model=model, wait=False) as d:
        assert d.stop() < 5 * SLOW


def test_O1_SIGTERM_in_prefill():
    with Daemon("--prefill-chunk", 1, "--drain-ms", 6000) as d:
        wire = d.send({"prompt": [1] + [300] * 450, "max_tokens": 3}, {"Accept": "text/event-stream"})
        until(lambda: d.metrics()["attend_prompt_tokens_total"] > 5, 10, "prefill has begun")
        d.process.send_signal(signal.SIGTERM)
        final = list(sse(wire.body()))[-1]
        assert final["done"] and len(final["tokens"]) == 3 and final["finish_reason"] == "length", final
        d.ended(6)


def test_O1_8_streams_finish():
    with Daemon() as d:
        wires = [d.send({**LONG, "max_tokens": 60 + i}, {"Accept": "text/event-stream"}) for i in range(8)]
        for wire in wires:
            wire.head()
        d.process.send_signal(signal.SIGTERM)
        for i, wire in enumerate(wires):
            final = list(sse(wire.body()))[-1]
            assert (final["finish_reason"], len(final["tokens"])) == ("length", 60 + i), final["finish_reason"]
        d.ended(8)


def test_O1_8_streams_are_cancelled_at_the_deadline():
    with Daemon("--drain-ms", 800, "--max-running", 8) as d:
        forms = ["text/event-stream", "application/x-ndjson", "text/plain", "application/json"]
        # a row a step: long enough to outlast the deadline
        wires = [d.send({**LONG, "logprobs": 20}, {"Accept": forms[i % 4], "TE": "trailers"}) for i in range(8)]
        until(lambda: d.metrics()["attend_requests_running"] == 8, 10 * SLOW, "all run")
        begin = time.monotonic()
        d.process.send_signal(signal.SIGTERM)
        reasons = []
        for i, wire in enumerate(wires):
            data = wire.body()
            if forms[i % 4] == "text/plain":
                reasons.append(wire.trailers["x-finish-reason"])
            else:
                last = data.decode().rstrip("\n").replace("data: ", "").rsplit("\n", 1)[-1]
                reasons.append(json.loads(last)["finish_reason"])
        assert set(reasons) <= {"cancelled", "length"}, reasons
        d.ended(5)
        assert time.monotonic() - begin < 0.8 + 2 * SLOW


def test_O1_a_second_signal_stops_at_once():
    with Daemon("--drain-ms", 60000, "--prefill-chunk", 1, "--max-running", 2) as d:
        wires = [d.send({"prompt": [1] + [300 + i] * 400, "max_tokens": 100, "ignore_eos": True}) for i in range(6)]
        until(lambda: d.metrics()["attend_requests_running"] == 2, 5 * SLOW, "two run")
        d.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert d.process.poll() is None, "it waits for the running ones"
        took = d.stop()
        assert took < 2 * SLOW, f"{took:.2f} s"
        for wire in wires:
            wire.rest()
            wire.close()


def test_O1_as_process_1():
    if not shutil.which("unshare") or subprocess.run(["unshare", "--pid", "--fork", "true"], check=False,
                                                     capture_output=True).returncode:
        raise Skip("no PID namespaces here")
    # the leak check finds its threads by numbers in /proc, which are those of another namespace here
    quiet = {"ASAN_OPTIONS": os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"} if "ASAN_OPTIONS" in os.environ else {}
    with Daemon(wrap=("unshare", "--pid", "--fork", "--kill-child"), env=quiet) as d:
        children = f"/proc/{d.process.pid}/task/{d.process.pid}/children"
        inner = int(open(children, encoding="ascii").read().split()[0])
        wire = d.send({**LONG, "max_tokens": 100}, {"Accept": "text/event-stream"})
        wire.head()
        os.kill(inner, signal.SIGTERM)
        assert list(sse(wire.body()))[-1]["finish_reason"] == "length"
        d.ended(8)


def test_a_hail_of_signals_does_not_change_how_it_ends():
    for _ in range(5):
        d = Daemon().__enter__()
        end = time.monotonic() + 15
        while d.process.poll() is None and time.monotonic() < end:
            d.process.send_signal(signal.SIGTERM)
            time.sleep(0.0003)  # without a pause the loop reads signals for ever
        assert d.process.poll() == 0, f"exit {d.process.poll()}"
        d.kill()


def test_draining_refuses_new_work():
    with Daemon("--drain-ms", 5000) as d:
        old = [d.connection() for _ in range(3)]
        for c in old:
            c.request("GET", "/livez")
            c.getresponse().read()
        wire = d.send({**LONG, "logprobs": 20}, {"Accept": "text/event-stream"})
        wire.head()
        d.process.send_signal(signal.SIGTERM)
        until(lambda: "msg=draining" in d.log(), 3, "it drains")
        for c, method, path, status in ((old[0], "POST", "/generate", 503), (old[1], "GET", "/readyz", 503),
                                        (old[2], "GET", "/livez", 200)):
            c.request(method, path, b'{"prompt":"x"}' if method == "POST" else None)
            answer = c.getresponse()
            assert answer.status == status and answer.headers["Connection"] == "close", (path, answer.status)
            if status == 503:
                assert answer.headers["Retry-After"]
                assert json.loads(answer.read())["error"]["code"] == "shutting_down"
            c.close()
        try:
            d.socket().close()
            raise AssertionError("a new connection was accepted")
        except ConnectionRefusedError:
            pass
        assert list(sse(wire.body()))[-1]["done"]


def test_SIGHUP_drops_nothing():
    with Daemon() as d:
        wire = d.send({**LONG, "max_tokens": 100})
        wire.head()
        d.process.send_signal(signal.SIGHUP)
        assert wire.body()
        assert d.generate(max_tokens=1)
        until(lambda: "SIGHUP" in d.log(), 3, "it is logged")


def test_while_loading_503_and_alive():
    if not os.path.exists(CHAT):
        raise Skip(f"{CHAT} is absent (make run fetches it)")
    seen = set()
    with Daemon(model=CHAT, wait=False) as d:
        while True:
            answers = [d.get(p) for p in ("/livez", "/readyz", "/health")]
            refused = d.post({"prompt": "x", "max_tokens": 1, "stream": False})
            metrics = d.metrics()
            seen.add((*(a.status for a in answers), refused.status))
            assert answers[0].status == 200
            if (*(a.status for a in answers), refused.status) == (200, 200, 200, 200):
                break
            if refused.status == 200:  # it became ready while we asked
                continue
            assert refused.status == 503 and refused.headers["Retry-After"], refused.text
            assert "Loading model" in refused.json()["error"]["message"]
            if answers[2].status == 503:
                assert "Loading model" in answers[2].text and metrics["vllm:num_requests_running"] == 0
        assert len(seen) > 1, f"never seen loading: {seen}"
        assert 'msg="model ready"' in d.log() and "curl -N http://127.0.0.1:" in d.log()


def is_ready(d):
    try:
        return d.get("/readyz").status == 200
    except (OSError, http.client.HTTPException):  # it ends just then
        return False


def test_model_that_is_cut_while_it_is_loaded():
    if not os.path.exists(CHAT):
        raise Skip(f"{CHAT} is absent (make run fetches it)")
    ends = []
    with tempfile.TemporaryDirectory(prefix="cut-") as folder:
        for wait_ms in (0, 10, 20, 40, 60, 80):
            model = f"{folder}/{wait_ms}.gguf"
            shutil.copy(CHAT, model)
            with Daemon(model=model, wait=False, expect=1) as d:
                time.sleep(wait_ms / 1000)
                d.process.send_signal(signal.SIGSTOP)
                os.truncate(model, 4096)
                d.process.send_signal(signal.SIGCONT)
                until(lambda d=d: d.process.poll() is not None or is_ready(d), 20, "it ends, or is ready")
                time.sleep(0.1)
                if d.process.poll() is None:  # it was read already
                    d.expect = 0
                else:
                    ends.append((d.process.returncode, [x for x in d.log().splitlines() if x.startswith("attend: ")]))
    assert ends, "all were loaded before they could be cut"
    assert all(code == 1 and says for code, says in ends), ends


def test_start_that_fails():
    fails(code=2, has="no model: attend serve FILE, or ATTEND_MODEL=FILE")
    fails("/nowhere/x.gguf", "--port", "0", has="/nowhere/x.gguf")
    fails(str(ROOT / "README.md"), "--port", "0", has="README.md")
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
        fails(TINY, "--port", str(port), has=f"cannot listen on 127.0.0.1:{port}: in use; --port 0 picks one")
    fails(TINY, "--port", "0", "--host", "192.0.2.1", has="192.0.2.1")
    fails(TINY, "--port", "0", "--host", "no.such.host.invalid", has="no.such.host.invalid")


def test_two_daemons_of_one_port():
    with Daemon() as d:
        fails(TINY, "--port", str(d.port), has=f"cannot listen on 127.0.0.1:{d.port}: in use; --port 0 picks one")
        assert d.get("/livez").status == 200
    if os.path.exists("/proc/net/if_inet6"):
        with Daemon("--host", "::1") as d:
            fails(TINY, "--host", "::1", "--port", str(d.port), has=f"cannot listen on [::1]:{d.port}: in use")


def test_threads_bear_names():
    with Daemon("--threads", 2) as d:
        together(4, lambda i: d.generate(f"{STORY} {i}", max_tokens=2))
        folder = f"/proc/{d.process.pid}/task"
        names = {open(f"{folder}/{t}/comm", encoding="ascii").read().strip() for t in os.listdir(folder)}
        assert {"attend-loop", "attend-worker-0", "attend-text-0"} <= names, names


main()
