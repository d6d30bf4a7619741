"""For tests of the daemon through its sockets: starts it on a free port, speaks HTTP with and without a
library, reads its metrics, stops it and looks at how it ended. Standard library only.

Environment: ATTEND (the program), MODE (asan and tsan are slow: times are stretched).
"""
import contextlib
import http.client
import json
import os
import pathlib
import queue
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ATTEND = os.environ.get("ATTEND", str(ROOT / "build/attend"))
TINY = str(ROOT / "tests/golden/stories260K/model-f32.gguf")
CHAT = os.environ.get("ATTEND_MODEL", str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"))
SLOW = {"asan": 6, "tsan": 15}.get(os.environ.get("MODE", ""), 1)
STORY = "Once upon a time"


class Daemon:
    """`attend serve` on a free port. Use with `with`: at the end it must exit with 0, in good time."""

    def __init__(self, *flags, model=TINY, wait=True, expect=0, wrap=(), env=None):
        self.expect, self.wait = expect, wait
        self.log_file = tempfile.TemporaryFile("w+")
        words = [*wrap, ATTEND, "serve", model, "--port", "0", *map(str, flags)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ATTEND_")}
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self.log_file, text=True,
                                        cwd=ROOT, env={**clean, **(env or {})})
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on http://(.+):(\d+)\n", line)
        if not found:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"no `listening on` but {line!r}; {self.log()}")
        self.host, self.port = found[1].strip("[]"), int(found[2])

    def __enter__(self):
        try:
            if self.wait:
                until(lambda: self.get("/readyz").status == 200, 30, "the model is loaded")
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            self.kill()
        else:
            self.stop()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log_file.close()

    def stop(self, number=signal.SIGTERM, within=15):
        """Ends it by a signal; returns how long that took."""
        begin = time.monotonic()
        if self.log_file.closed:
            return 0.0
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.ended(within, begin)

    def ended(self, within=15, begin=None):
        begin = begin or time.monotonic()
        try:
            code = self.process.wait(within * SLOW)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still there {within * SLOW} s after the signal") from None
        took = time.monotonic() - begin
        log = self.log()
        self.process.stdout.close()
        self.log_file.close()
        assert code == self.expect, f"exit {code}, not {self.expect}: {log[-2000:]}"
        return took

    def log(self):
        self.log_file.seek(0)
        return self.log_file.read()

    # ---- HTTP by the library ----

    def connection(self, timeout=60):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout * SLOW)

    def request(self, method, path, body=None, headers=None, timeout=60):
        """An answer with status, headers, data (bytes), text, json()."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        elif isinstance(body, str):
            body = body.encode()
        with contextlib.closing(self.connection(timeout)) as c:
            c.request(method, path, body, headers or {})
            return Answer(c.getresponse())

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)

    def post(self, body, path="/generate", headers=None, timeout=60):
        return self.request("POST", path, body, headers, timeout)

    def generate(self, prompt=STORY, headers=None, **fields):
        """The document of a whole answer, greedy unless said otherwise."""
        key = "messages" if isinstance(prompt, list) and prompt and isinstance(prompt[0], dict) else "prompt"
        body = {key: prompt, "stream": False, "temperature": 0, **fields}
        answer = self.post(body, headers=headers)
        assert answer.status == 200, f"{answer.status}: {answer.text[:500]}"
        return answer.json()

    def refused(self, body, status=400, param=None, has=None, headers=None):
        """The error of a request that must be refused."""
        answer = self.post(body, headers=headers)
        shown = str(body)[:200]
        assert answer.status == status, f"{shown}: {answer.status}, not {status}: {answer.text[:300]}"
        error = answer.json()["error"]
        assert {"code", "type", "message", "param"} <= set(error), error
        assert isinstance(error["code"], str) and error["message"], error
        if param:
            assert error["param"] == param, f"{shown}: names {error['param']!r}, not {param!r}: {error}"
        if has:
            assert has in error["message"], f"{shown}: {has!r} is not in {error['message']!r}"
        return error

    # ---- HTTP by hand ----

    def socket(self, timeout=30):
        return socket.create_connection((self.host, self.port), timeout=timeout * SLOW)

    def send(self, body, headers=None, version="1.1", path="/generate", method="POST", s=None):
        """Sends a request and returns its Wire."""
        if isinstance(body, dict):
            body = json.dumps(body)
        body = (body or "").encode()
        lines = [f"{method} {path} HTTP/{version}", "Host: test"]
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        if method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        s = s or self.socket()
        s.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return Wire(s)

    # ---- metrics ----

    def metrics(self):
        """name or name{labels} -> value"""
        values = {}
        for line in self.get("/metrics").text.splitlines():
            if line and line[0] != "#":
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def busy(self):
        """What a request at work holds: requests, places, pages."""
        m = self.metrics()
        return {
            "running": m["attend_requests_running"],
            "waiting": m["attend_requests_waiting"],
            "places": m["attend_places_used"],
            "pages": m['attend_kv_pages_by_state{state="used"}'],
            "reserved": m['attend_kv_pages_by_state{state="reserved"}'],
        }

    def gone(self, base=None, within=0.25):
        """Waits until nothing is at work any more; fails after `within` seconds (stretched on slow builds)."""
        base = base or dict.fromkeys(self.busy(), 0)
        begin = time.monotonic()
        # a busy machine may run us late: what counts is what the daemon says at the first look after it
        until(lambda: self.busy() == base, max(within * SLOW, within), lambda: f"gone: {self.busy()}, not {base}")
        return time.monotonic() - begin

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Answer:
    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.data = response.read()

    @property
    def text(self):
        return self.data.decode()

    def json(self):
        return json.loads(self.data)


class Wire:
    """One answer read from a socket byte by byte, chunk by chunk."""

    def __init__(self, s):
        self.socket, self.buffer = s, b""

    def more(self):
        data = self.socket.recv(65536)
        self.buffer += data
        return bool(data)

    def take(self, n):
        while len(self.buffer) < n:
            if not self.more():
                raise EOFError(f"closed after {len(self.buffer)} of {n} bytes")
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def line(self):
        while b"\r\n" not in self.buffer:
            if not self.more():
                raise EOFError(f"closed in a line: {self.buffer[:100]!r}")
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def head(self):
        """Status and headers of the next final answer; interim ones are skipped as a client does."""
        while True:
            words = self.line().split(b" ", 2)
            headers = {}
            while line := self.line():
                name, value = line.decode("latin-1").split(":", 1)
                headers[name.lower()] = value.strip()
            self.status, self.headers = int(words[1]), headers
            if self.status != 100:
                return self.status, headers

    def chunk(self):
        """The next chunk; b"" is the last, then self.trailers is there."""
        n = int(self.line().split(b";")[0], 16)
        if n:
            data = self.take(n)
            assert self.take(2) == b"\r\n", "no line end behind a chunk"
            return data
        self.trailers = {}
        while line := self.line():
            name, value = line.decode().split(":", 1)
            self.trailers[name.lower()] = value.strip()
        return b""

    def chunks(self):
        """All chunks to the end."""
        if not hasattr(self, "status"):
            self.head()
        return list(iter(self.chunk, b""))

    def body(self):
        """The whole body, by whatever length it has."""
        if not hasattr(self, "status"):
            self.head()
        if self.headers.get("transfer-encoding") == "chunked":
            return b"".join(self.chunks())
        if "content-length" in self.headers:
            return self.take(int(self.headers["content-length"]))
        return self.rest()

    def rest(self):
        """Everything until the other side closes."""
        with contextlib.suppress(ConnectionResetError):
            while self.more():
                pass
        data, self.buffer = self.buffer, b""
        return data

    def close(self):
        self.socket.close()

    def reset(self):
        """Leaves without a goodbye."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def sse(data):
    """The objects of a body of server-sent events; comments are left out."""
    text = data.decode()
    assert text.endswith("\n\n"), f"an event does not end: {text[-80:]!r}"
    for event in text[:-2].split("\n\n"):
        if not event.startswith(":"):
            assert event.startswith("data: ") and "\n" not in event, f"not one data line: {event!r}"
            yield json.loads(event[6:])


def ndjson(data):
    text = data.decode()
    assert text.endswith("\n"), f"a line does not end: {text[-80:]!r}"
    return [json.loads(line) for line in text[:-1].split("\n")]


def until(condition, seconds, what):
    """Waits for a condition; says what did not come."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            if condition():  # the time was lost while we were not running
                return
            raise AssertionError(f"did not come in {seconds:.2f} s: {what() if callable(what) else what}")
        time.sleep(0.01)


def together(n, work, timeout=120):
    """work(i) for i in range(n), a thread each; the results in order. The first failure is raised."""
    results, faults, threads = [None] * n, queue.Queue(), []

    def run(i):
        try:
            results[i] = work(i)
        except BaseException as fault:  # noqa: BLE001 - carried to the caller's thread
            faults.put(fault)

    for i in range(n):
        threads.append(threading.Thread(target=run, args=(i,), daemon=True))
        threads[-1].start()
    end = time.monotonic() + timeout * SLOW
    for t in threads:
        t.join(max(0.0, end - time.monotonic()))
        assert not t.is_alive(), f"{n} at once: not done in {timeout * SLOW} s"
    if not faults.empty():
        raise faults.get()
    return results


_shared = None


def the():
    """A daemon with default settings that the tests of a file share; main() looks at how it ends."""
    global _shared
    if _shared is None:
        _shared = Daemon().__enter__()
    return _shared


def _stop_shared():
    if _shared:
        _shared.stop()


class Skip(Exception):
    pass


def open_files(n):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < n:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(n, hard), hard))


def main():
    """Runs the caller's test_* functions in order. A name test_C1_gone reads `C1 gone`."""
    module = sys.modules["__main__"]
    wanted = sys.argv[1:]
    passed = failed = skipped = 0
    tests = [(k, f) for k, f in vars(module).items() if k.startswith("test_") and callable(f)]
    tests = [(k, f) for k, f in tests if not wanted or any(w in k for w in wanted)]
    for key, function in [*tests, ("test_the_shared_daemon_ends_well", _stop_shared)]:
        name = key[5:].replace("_", " ")
        try:
            function()
        except Skip as why:
            skipped += 1
            print(f"skip {name} - {why}", flush=True)
        except BaseException as why:  # noqa: BLE001 - every fault is a failed test
            failed += 1
            text = " ".join(str(why).split()) or type(why).__name__
            where = traceback.extract_tb(why.__traceback__)[-1]
            print(f"not ok {name} - {text[:1500]} ({os.path.basename(where.filename)}:{where.lineno})", flush=True)
            if isinstance(why, KeyboardInterrupt):
                break
        else:
            passed += 1
            print(f"ok {name}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)
