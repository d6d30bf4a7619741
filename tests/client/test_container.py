#!/usr/bin/env python3
"""O6: the container image. Built with buildah from a base made here, run as Docker would run it: another root file
system, read-only, process 1 of its own namespace, not root.                                       timeout: 1500"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORE = ROOT / "build" / "container"
BUILDAH = ["buildah", "--root", f"{STORE}/storage", "--runroot", f"{STORE}/run", "--storage-driver", "vfs"]
BASE = "debian:bookworm-slim"
TINY = ROOT / "tests/golden/stories260K/model-f32.gguf"
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
counts = {"passed": 0, "failed": 0, "skipped": 0}


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def buildah(*args):
    done = subprocess.run([*BUILDAH, *args], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"buildah {args[0]}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout.strip()


def mirror():
    """Where this machine's apt has bookworm from."""
    lines = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME) $(COMPONENT)"],
                           capture_output=True, text=True).stdout.splitlines()
    return next((site for site, *suite in map(str.split, lines) if suite == ["bookworm", "main"]), None)


def make_base():
    """Imports a minimal Debian under the name that the Dockerfile begins with."""
    if subprocess.run([*BUILDAH, "inspect", "--type", "image", BASE], capture_output=True).returncode == 0:
        return
    with tempfile.TemporaryDirectory(prefix="base-") as folder:
        command = ["debootstrap", "--variant=minbase", "bookworm", f"{folder}/base", *filter(None, [mirror()])]
        done = subprocess.run(command, capture_output=True, text=True)
        expect(done.returncode == 0, f"debootstrap: {done.stdout[-300:]}")
        subprocess.run(["tar", "-C", f"{folder}/base", "-cf", f"{folder}/base.tar", "."], check=True)
        container = buildah("from", "scratch")
        buildah("add", "-q", container, f"{folder}/base.tar", "/")
        buildah("commit", "-q", "--format", "docker", "--rm", container, BASE)


def make_context(folder):
    """What .dockerignore lets through, and nothing else: buildah would walk through everything that lies there."""
    for name in ("Dockerfile", ".dockerignore", "Makefile", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("core", "config", "server"):
        shutil.copytree(ROOT / name, f"{folder}/{name}", ignore=shutil.ignore_patterns("__pycache__"))
    if (ROOT / "models" / MODEL).exists():
        os.mkdir(f"{folder}/models")
        shutil.copy(ROOT / "models" / MODEL, f"{folder}/models")


class Image:
    """A built image: its settings, and its files where they can be run."""

    def __init__(self, name, context, *args):
        buildah("bud", "--format", "docker", "--isolation", "chroot", "--network", "host", "--pull-never", "--layers",
                "-t", name, *args, context)
        self.config = json.loads(buildah("inspect", "--type", "image", name))["Docker"]["config"]
        self.container = buildah("from", name)
        self.root = pathlib.Path(buildah("mount", self.container))
        self.files = {p: p.stat().st_size for p in self.root.rglob("*") if p.is_file()}
        for folder in ("proc", "dev"):  # as a container engine mounts them
            (self.root / folder).mkdir(exist_ok=True)

    def start(self, *args, models=None, **environment):
        """The image's entry point, with the image's environment and user."""
        env = dict(pair.split("=", 1) for pair in self.config["Env"]) | environment
        mounts = f"mount --bind {self.root} {self.root}; mount --bind /dev {self.root}/dev"
        if models:
            mounts += f"; mount --bind {models} {self.root}/models"
        run = f"set -e; {mounts}; mount -t proc proc {self.root}/proc; mount -o remount,ro,bind {self.root}; " \
              f'exec chroot --userspec={self.config["User"]} {self.root} "$@"'
        program = ["/usr/bin/" + self.config["Entrypoint"][0], *(self.config["Cmd"] or []), *args]
        # The tools come from this machine's PATH; inside, PATH is the image's.
        inside = [f"{key}={value}" for key, value in env.items() if key != "PATH"]
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "env", "-i",
                   f"PATH={os.environ['PATH']}", *inside, "sh", "-c", run, "sh", *program]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *args, **options):
        process = self.start(*args, **options)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def free(self):
        buildah("rm", self.container)


class Server:
    """A started image that listens on a port of its own choice."""

    def __init__(self, image, **options):
        self.process = image.start(ATTEND_PORT="0", ATTEND_LOG_FILE="", **options)
        line = self.process.stdout.readline()
        found = re.search(r"listening on http://\S+:(\d+)", line)
        if not found:
            self.process.kill()
            raise AssertionError(f"said {line!r}, {self.process.stderr.read()[-400:]}")
        self.port = int(found[1])
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.pid = int(children[0])
        self.wait_ready()

    def wait_ready(self):
        for _ in range(600):
            try:
                if self.open("/readyz").status == 200:
                    return
            except OSError:
                time.sleep(0.1)
        raise AssertionError("not ready after 60 s")

    def open(self, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        return urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data, timeout=60)

    def stop(self):
        """Seconds that SIGTERM takes, and what the program left behind."""
        start = time.monotonic()
        os.kill(self.pid, signal.SIGTERM)
        _, err = self.process.communicate(timeout=30)
        return time.monotonic() - start, self.process.returncode, err


def names_no_architecture():
    for name in ("Dockerfile", "config/image.sh", ".dockerignore"):
        found = re.search(r"x86|amd64|aarch64|arm64|i386|linux-gnu", (ROOT / name).read_text())
        expect(not found, f"{name} names {found and found[0]}")


def settings():
    config = images["default"].config
    expect(config["User"] == "65532:65532", f"user {config['User']}")
    expect("8080/tcp" in config["ExposedPorts"], config["ExposedPorts"])
    expect("ATTEND_HOST=0.0.0.0" in config["Env"], config["Env"])
    expect(config["Entrypoint"] == ["attend"], f"entry point {config['Entrypoint']}")
    expect(config.get("Healthcheck", {}).get("Test") == ["CMD", "attend", "health"], config.get("Healthcheck"))


def below_100_mb():
    slim = sum(images["slim"].files.values())
    default = sum(n for p, n in images["default"].files.items() if p.name != MODEL)
    print(f"# {slim} bytes without the model")
    expect(0 < slim < 100e6 and default == slim, f"{slim} bytes, the default target {default} without its model")
    expect(any(p.name == MODEL for p in images["default"].files), "the default target has no model")


def has_no_more_than_it_needs():
    names = {p.relative_to(images["slim"].root).as_posix() for p in images["slim"].files}
    rest = {n for n in names if not re.search(r"\.so[.0-9]*$", n)}
    expect(rest == {"usr/bin/attend", "etc/passwd", "etc/group", "etc/ssl/certs/ca-certificates.crt",
                    "usr/share/doc/attend/LICENSE"}, f"it has {sorted(rest)}")


def answers_with_the_default_model():
    server = Server(images["default"])
    try:
        uids = re.search(r"^Uid:\s+(\d+)", pathlib.Path(f"/proc/{server.pid}/status").read_text(), re.M)
        expect(uids[1] == "65532", f"runs as user {uids[1]}")
        ask = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0,
               "stream": False, "max_tokens": 16}
        answer = json.load(server.open("/generate", ask))
        expect("Paris" in answer["text"], answer["text"])
        env = {"ATTEND_PORT": str(server.port)}
        status, _, err = images["default"].run("health", **env)
        expect(status == 0, f"attend health: {status}, {err}")
        stream = server.open("/generate", {"prompt": "Once", "max_tokens": 4000, "ignore_eos": True})
        expect(stream.read(1), "no first token")
        seconds, status, err = server.stop()
        expect(status == 0 and seconds < 10, f"SIGTERM took {seconds:.1f} s, exit status {status}: {err[-300:]}")
    finally:
        server.process.kill()


def health_fails_without_a_server():
    status, _, err = images["slim"].run("health", ATTEND_PORT="9")
    expect(status == 1 and err.strip(), f"exit status {status}, said {err!r}")


def slim_says_what_to_mount():
    status, _, err = images["slim"].run(ATTEND_PORT="0")
    expect(status == 1, f"exit status {status}")
    expect("-v $PWD/models:/models" in err and "ATTEND_MODEL=" in err, f"said {err!r}")


def slim_serves_what_is_mounted():
    with tempfile.TemporaryDirectory(prefix="models-") as folder:
        os.chmod(folder, 0o755)
        shutil.copy(TINY, folder)
        server = Server(images["slim"], models=folder)
        try:
            answer = json.load(server.open("/generate", {"prompt": "Once upon", "temperature": 0, "stream": False, "max_tokens": 8}))
            expect(len(answer["tokens"]) == 8, answer)
            _, status, err = server.stop()
            expect(status == 0, f"exit status {status}")
            expect(re.search("openblas", err, re.I), f"OpenBLAS was not loaded from the image: {err[-500:]}")
        finally:
            server.process.kill()


def run(name, test):
    try:
        test()
        print(f"ok O6_{name}", flush=True)
        counts["passed"] += 1
        return True
    except (AssertionError, OSError, KeyError, ValueError, subprocess.SubprocessError) as why:
        print(f"not ok O6_{name} - {' '.join(str(why).split())[-500:]}", flush=True)
        counts["failed"] += 1
        return False


def build():
    make_base()
    with tempfile.TemporaryDirectory(prefix="context-") as context:
        make_context(context)
        images["slim"] = Image("attend-slim", context, "--target", "slim")
        images["default"] = Image("attend", context)


TESTS = [settings, below_100_mb, has_no_more_than_it_needs, answers_with_the_default_model,
         health_fails_without_a_server, slim_says_what_to_mount, slim_serves_what_is_mounted]
images = {}
run("names_no_architecture", names_no_architecture)
mode = os.environ.get("MODE", "release")  # the image is always built as released
missing = [f"MODE=release, not {mode}"] if mode != "release" else [p for p in ("buildah", "debootstrap", "unshare") if not shutil.which(p)] + (["root"] if os.getuid() else [])
if missing:
    for test in [build, *TESTS]:
        print(f"skip O6_{test.__name__} - needs {', '.join(missing)}")
        counts["skipped"] += 1
else:
    STORE.mkdir(parents=True, exist_ok=True)
    if run("build", build):
        for test in TESTS:
            run(test.__name__, test)
    for image in images.values():
        image.free()
print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
sys.exit(1 if counts["failed"] else 0)
