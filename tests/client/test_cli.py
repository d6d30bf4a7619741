#!/usr/bin/env python3
"""The command line as the README promises it: results on stdout, one line of reason on stderr, exit 0, 1 or 2."""
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXE = os.environ.get("ATTEND", str(ROOT / "build/attend"))
SLOW = {"asan": 4, "tsan": 10}.get(os.environ.get("MODE", ""), 1)
CONFORMANCE = pathlib.Path(os.environ.get("ATTEND_CONFORMANCE", ROOT / "../shared/conformance"))
WORKED = ROOT / "tests/golden/worked.gguf"
STORIES = next((p for p in (ROOT / "tests/golden/stories260K/model-f32.gguf", CONFORMANCE / "stories260K/model-f32.gguf")
                if p.exists()), None)
SMOLLM2 = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
COMMANDS = ["serve", "run", "logits", "tokenize", "detokenize", "inspect", "bench", "health"]
# Nothing of the caller's environment may be a setting here.
ENV = {k: v for k, v in os.environ.items() if not k.startswith("ATTEND_")}
counts = {"passed": 0, "failed": 0, "skipped": 0}


class Skip(Exception):
    pass


def attend(*args, env=None, stdin=b"", timeout=60, **more):
    """Runs the program; .out and .err are text, .raw the bytes of stdout."""
    r = subprocess.run([EXE, *map(str, args)], input=stdin, capture_output=True, timeout=timeout * SLOW,
                       env={**ENV, **(env or {})}, **more)
    r.raw, r.out, r.err = r.stdout, r.stdout.decode(errors="replace"), r.stderr.decode(errors="replace")
    return r


def short(value):
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"


def same(got, want, what="value"):
    if got != want:
        raise AssertionError(f"{what}: got {short(got)}, wanted {short(want)}")


def holds(text, part, what="text"):
    if part not in text:
        raise AssertionError(f"{what} lacks {part!r}: {text[-300:]!r}")


def fails(args, code, says, **more):
    """Fails with this status, nothing on stdout and one line on stderr, which has these words."""
    r = attend(*args, **more)
    same((r.returncode, r.out), (code, ""), f"{args}: status, stdout ({r.err.strip()[-200:]})")
    same(r.err.count("\n"), 1, f"{args}: lines on stderr in {r.err!r}")
    if not r.err.startswith("attend: "):
        raise AssertionError(f"{args}: {r.err!r} does not begin with the program's name")
    holds(r.err, says, f"{args}: stderr")


def works(*args, **more):
    r = attend(*args, **more)
    same(r.returncode, 0, f"{args}: status ({r.err.strip()[-300:]})")
    return r


def stories():
    if not STORIES:
        raise Skip("stories260K is not here")
    return STORIES


def smollm2():
    if not SMOLLM2.exists():
        raise Skip("the default model is not here")
    return SMOLLM2


def folder():
    d = tempfile.TemporaryDirectory(prefix="attend-cli-")
    os.chmod(d.name, 0o755)
    return d


class Server:
    """`attend serve` in the foreground; its log is in a file."""

    def __init__(self, *args, env=None):
        self.log = tempfile.TemporaryFile()
        self.p = subprocess.Popen([EXE, "serve", *map(str, args)], stdout=subprocess.PIPE, stderr=self.log,
                                  env={**ENV, **(env or {})})
        ready, _, _ = select.select([self.p.stdout], [], [], 20 * SLOW)
        self.line = self.p.stdout.readline().decode() if ready else ""
        m = re.fullmatch(r"listening on http://(\S+):(\d+)\n", self.line)
        if not m:
            self.__exit__()
            raise AssertionError(f"no listening line, but {self.line!r}; log: {self.text()[-300:]}")
        self.port = int(m[2])

    def text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.terminate()
            try:
                self.p.wait(20 * SLOW)
            except subprocess.TimeoutExpired:
                self.p.kill()
        self.p.wait()
        self.p.stdout.close()


# ---- the program itself ----

def test_version_names_what_it_is_made_of():
    r = works("--version")
    for word in ("attend ", "built by ", "libmicrohttpd ", "libuv ", "jansson ", "pcre2 ", "cpu "):
        holds(r.out, word, "--version")
    same(r.err, "", "stderr")


def test_help_names_every_subcommand():
    out = works("--help").out
    for c in COMMANDS:
        holds(out, f"attend {c} ", "--help")
    same(works("-h").out, out, "-h")


def test_help_of_every_subcommand():
    for c in COMMANDS:
        r = works(c, "--help")
        holds(r.out, f"attend {c} ", f"{c} --help")
        same(r.err, "", f"{c} --help: stderr")
        same(works(c, "-h").out, r.out, f"{c} -h")


def test_help_shows_the_engine_settings_where_they_are_taken():
    for c in ("serve", "run", "logits", "bench"):
        out = works(c, "--help").out
        for flag in ("--threads", "--context", "--kv-type", "--prefill-chunk", "--activations", "--blas", "--page-tokens"):
            holds(out, flag, f"{c} --help")
    if "--threads" in works("tokenize", "--help").out:
        raise AssertionError("tokenize takes no engine settings")


def test_first_word_that_is_no_subcommand_is_the_model():
    fails(["/nonexistent/model.gguf"], 1, "cannot open /nonexistent/model.gguf: No such file or directory")
    fails(["serve", "/nonexistent/model.gguf"], 1, "cannot open /nonexistent/model.gguf: No such file or directory")
    fails(["rnu"], 1, "did you mean `attend run`?")
    fails(["a.gguf", "b.gguf"], 2, 'one word too many: "b.gguf"')


def test_usage_errors_are_exit_2():
    for args, says in [
        ([], "no model: attend serve FILE, or ATTEND_MODEL=FILE"),
        (["serve"], "no model: attend serve FILE, or ATTEND_MODEL=FILE"),
        (["--frobnicate"], "unknown flag --frobnicate"),
        (["serve", "--prot", "1"], "unknown flag --prot, did you mean --port?"),
        (["--port", "99999"], "--port 99999: must be 0 to 65535"),
        (["--port"], "--port needs a value"),
        (["--kv-type", "f61"], "--kv-type f61: must be one of f16, f32, q8; did you mean f16?"),
        (["--page-tokens", "40"], "--page-tokens 40: must be a multiple of 16"),
        (["run"], "usage: attend run MODEL"),
        (["run", "m", "p", "q"], 'one word too many: "q"'),
        (["run", "m", "p", "--temprature", "0"], "unknown flag --temprature, did you mean --temperature?"),
        (["run", "m", "p", "--temperature", "hot"], "--temperature hot: must be 0 to 100"),
        (["run", "m", "p", "--temperature", "nan"], "--temperature nan: must be 0 to 100"),
        (["run", "m", "p", "-n", "-1"], "-n -1: must be 0 to"),
        (["run", "m", "p", "--seed", "9007199254740992"], "--seed 9007199254740992: must be 0 to 9007199254740991"),
        (["run", "m", "p", "--raw=yes"], "--raw takes no value"),
        (["run", "m", "p", "--port", "1"], "unknown flag --port"),
        (["logits"], "usage: attend logits MODEL"),
        (["logits", "m"], "logits needs --tokens"),
        (["logits", "m", "--tokens", ""], "--tokens : must be 0 to 4294967295"),
        (["logits", "m", "--tokens", "1,,2"], "--tokens : must be 0 to"),
        (["logits", "m", "--tokens", "1,-2"], "--tokens -2: must be 0 to"),
        (["logits", "m", "--tokens", "4294967296"], "--tokens 4294967296: must be 0 to 4294967295"),
        (["logits", "m", "--tokens", "1 2"], "--tokens 1 2: must be 0 to"),
        (["logits", "m", "--tokens"], "--tokens needs a value"),
        (["logits", "m", "--tokens", "1", "--threads", "two"], "--threads two: must be 0 to 1024"),
        (["tokenize"], "usage: attend tokenize MODEL"),
        (["tokenize", "m", "--specal"], "unknown flag --specal, did you mean --special?"),
        (["detokenize"], "usage: attend detokenize MODEL"),
        (["detokenize", "m", "-1"], "unknown flag -1"),
        (["inspect"], "usage: attend inspect MODEL"),
        (["bench", "m", "--batch", "0"], "--batch 0: must be 1 to 4096"),
        (["bench", "m", "--repeat", "0"], "--repeat 0: must be 1 to"),
        (["bench", "m", "--speculation", "on"], "bench: unknown flag --speculation"),  # what it does not do it does not take
        (["logits", "m", "--tokens", "1", "--step-ms", "9"], "logits: unknown flag --step-ms"),
        (["health", "word"], "one word too many"),
        (["health", "--url", "ftp://x"], "must begin with http://"),
        (["health", "--url", "http://"], "has no host"),
        (["health", "--url", "http://x:99999"], "99999: must be 1 to 65535"),
        (["health", "--port", "0"], "port is 0"),
    ]:
        fails(args, 2, says)


def test_model_that_is_not_there_is_exit_1_everywhere():
    for args in (["tokenize", "/nonexistent"], ["detokenize", "/nonexistent", "1"], ["inspect", "/nonexistent"],
                 ["logits", "/nonexistent", "--tokens", "1"], ["bench", "/nonexistent"], ["run", "/nonexistent", "hi"]):
        fails(args, 1, "cannot open /nonexistent: No such file or directory")


def test_file_that_is_no_model_is_exit_1_everywhere():
    with folder() as d:
        path = pathlib.Path(d, "x.gguf")
        path.write_bytes(b"not a model at all, but long enough to look at")
        for args in (["tokenize", path], ["inspect", path], ["logits", path, "--tokens", "1"], ["run", path, "hi"]):
            fails(args, 1, "x.gguf")


def test_unreadable_model_says_who_may_not_read_whose_file():
    if os.geteuid() != 0:
        raise Skip("needs root to become another user")
    with folder() as d:
        path = pathlib.Path(d, "x.gguf")
        path.write_bytes(WORKED.read_bytes())
        path.chmod(0o600)
        want = f"cannot open {path}: Permission denied (running as uid 65532, the file is 0600, owned by 0)"

        def other_user():
            os.setgroups([])
            os.setgid(65532)
            os.setuid(65532)

        for args in (["serve", path], ["tokenize", path], ["inspect", path]):
            try:
                fails(args, 1, want, preexec_fn=other_user)
            except PermissionError:
                raise Skip("the program cannot be run by another user") from None


def test_failed_write_to_stdout_is_exit_1():
    for args in (["--help"], ["serve", "--print-config"], ["inspect", WORKED], ["detokenize", WORKED, "72"],
                 ["logits", WORKED, "--tokens", "72"]):
        with open("/dev/full", "wb") as full:
            r = subprocess.run([EXE, *map(str, args)], stdout=full, stderr=subprocess.PIPE, env=ENV, timeout=30 * SLOW)
        same(r.returncode, 1, f"{args}: status")
        holds(r.stderr.decode(), "No space left on device", f"{args}: stderr")


# ---- settings ----

def test_settings_file_environment_and_flags_in_their_order():
    with folder() as d:
        path = pathlib.Path(d, "attend.conf")
        path.write_text("port = 1\nqueue = 1\nmax-tokens = 1 # a comment\nbody.limit = 16K\n")
        r = works("--config", path, "--max-tokens", "3", "--print-config", env={"ATTEND_QUEUE": "2", "ATTEND_MAX_TOKENS": "2"})
        got = dict(line.split(" = ", 1) for line in r.out.splitlines())
        same([got[k] for k in ("port", "queue", "max_tokens", "body_limit", "step_ms")], ["1", "2", "3", "16K", "100"])


def test_printed_settings_read_back_the_same():
    with folder() as d:
        path = pathlib.Path(d, "attend.conf")
        path.write_text(works("--port", "7", "--strict", "--model-name", ' "a" # b\\ ', "--print-config").out)
        same(works("--config", path, "--print-config").out, path.read_text(), "the settings")


def test_printed_example_is_the_one_checked_in_and_loads():
    path = ROOT / "config/attend.conf"
    same(works("serve", "--print-example").out, path.read_text(), "config/attend.conf (make docs renews it)")
    same(works("--config", path, "--print-config").out, works("--print-config").out, "the settings")


def test_bad_values_name_their_source():
    with folder() as d:
        path = pathlib.Path(d, "a.conf")
        for text, says in [("\nport = x\n", f"{path}:2: port = x: must be 0 to 65535"),
                           ("prot = 1\n", f'{path}:1: unknown setting "prot", did you mean port?'),
                           ("port\n", f'{path}:1: "port" is not `name = value`'),
                           ("port = 1\nport = 2\n", f"{path}:2: port was already set in line 1")]:
            path.write_text(text)
            fails(["--config", path, "--check-config"], 2, says)
    fails(["--check-config"], 2, "ATTEND_PORT=x: must be 0 to 65535", env={"ATTEND_PORT": "x"})
    fails(["--check-config"], 2, "enableServiceLinks: false", env={"ATTEND_PORT": "tcp://10.0.0.1:80"})
    fails(["--config", "/nonexistent.conf", "--check-config"], 1, "cannot open /nonexistent.conf: No such file or directory")
    fails(["logits", WORKED, "--tokens", "72"], 2, "ATTEND_KV_TYPE=f61: must be one of f16, f32", env={"ATTEND_KV_TYPE": "f61"})


def test_check_config_is_exit_0_for_good_ones():
    r = works("--check-config", "--port", "0")
    same((r.out, r.err), ("the settings are right\n", ""))


def test_environment_variable_nearly_a_setting_is_warned_of():
    r = works("--check-config", env={"ATTEND_KVTYPE": "f16", "ATTEND_SOMETHING_ELSE": "1", "ATTEND_CPU": "scalar"})
    holds(r.err, "name=ATTEND_KVTYPE nearest_setting=kv_type", "stderr")
    same(r.err.count("\n"), 1, "lines on stderr")


# ---- tokenize, detokenize ----

def test_tokenize_prints_a_json_array():
    r = works("tokenize", WORKED, stdin="我的名字是".encode())
    same(r.out, "[314,926,72]\n")
    same(works("tokenize", WORKED).out, "[]\n", "of nothing")


def test_detokenize_gives_the_exact_bytes():
    same(works("detokenize", WORKED, 314, 926, 72).raw, "我的名字是".encode())
    same(works("detokenize", WORKED, "[314,926,72]").raw, "我的名字是".encode(), "of what tokenize prints")
    same(works("detokenize", WORKED).raw, b"", "of nothing")


def test_tokenize_and_detokenize_are_inverse():
    text = "Hello, wörld! 我的名字是 🦙\n\n  tabs\tand spaces  ".encode()
    for model in [m for m in (STORIES, SMOLLM2 if SMOLLM2.exists() else None) if m]:
        ids = works("tokenize", model, stdin=text).out
        same(works("detokenize", model, ids).raw, text, f"{model.name}: text")


def test_special_tokens_only_when_asked():
    m = smollm2()
    same(works("tokenize", m, "--special", stdin=b"<|im_start|>").out, "[1]\n")
    plain = json.loads(works("tokenize", m, stdin=b"<|im_start|>").out)
    if len(plain) < 2 or 1 in plain:
        raise AssertionError(f"without --special it is text, got {plain}")
    same(works("detokenize", m, 1, 2).out, "<|im_start|><|im_end|>", "control tokens by name")


def test_bos_goes_in_front():
    ids = json.loads(works("tokenize", stories(), stdin=b"Once").out)
    same(json.loads(works("tokenize", stories(), "--bos", stdin=b"Once").out), [1] + ids)


def test_bad_text_and_bad_ids_are_refused():
    fails(["tokenize", WORKED], 1, "stdin is not valid UTF-8: byte 0xff at offset 3", stdin="我".encode() + b"\xff")
    fails(["tokenize", WORKED], 1, "at offset 0 begins a character that the end cuts off", stdin="我".encode()[:2])
    fails(["detokenize", WORKED, "1", "x"], 2, "token x: must be 0 to")
    fails(["detokenize", WORKED, "99999999"], 2, "token 99999999: must be 0 to")


def test_model_without_a_tokenizer_says_so():
    model = CONFORMANCE / "tiny/gpt2/f32.gguf"
    if not model.exists():
        raise Skip("conformance tiny/gpt2 is not here")
    for args in (["tokenize", model], ["detokenize", model, "1"], ["run", model, "hi"]):
        fails(args, 1, "has no tokenizer")


def test_vocabulary_without_tensors_will_do():
    model = CONFORMANCE / "tokenizer/gguf/ggml-vocab-gpt-2.gguf"
    if not model.exists():
        raise Skip("conformance tokenizer/gguf is not here")
    same(works("tokenize", model, stdin=b"Hello world").out, "[15496,995]\n")
    same(works("detokenize", model, 15496, 995).out, "Hello world")
    d = json.loads(works("inspect", model, "--json").out)
    same((d["supported"], d["n_tensors"]), (False, 0))
    fails(["logits", model, "--tokens", "1"], 1, "")


# ---- inspect ----

def test_inspect_json():
    d = json.loads(works("inspect", WORKED, "--json").out)
    same((d["supported"], d["why_not"], "tensors" in d), (True, None, False))
    same(d["architecture"], d["keys"]["general.architecture"])
    e = json.loads(works("inspect", WORKED, "--json", "--tensors").out)
    same(len(e["tensors"]), d["n_tensors"], "tensors")
    for t in e["tensors"]:
        n = 1
        for k in t["shape"]:
            n *= k
        same((t["type"], t["bytes"]), ("F32", 4 * n), f"type and bytes of {t['name']}")


def test_inspect_of_the_default_model():
    d = json.loads(works("inspect", smollm2(), "--json").out)
    same((d["layers"], d["heads"], d["kv_heads"], d["head_dim"], d["context"]), (30, 9, 3, 64, 8192))
    same(d["kv_token_bytes_f16"], 23040, "KV bytes a token")
    same(d["types"], "210 Q4_1, 61 F32, 1 Q8_0")
    same(d["keys"]["tokenizer.ggml.tokens"]["n"], 49152, "length of a long array")
    same(d["chat"], True, "chat")


def test_inspect_for_people():
    out = works("inspect", WORKED).out
    for word in ("architecture", "parameters", "KV cache", "supported", "general.architecture"):
        holds(out, word, "inspect")
    if "token_embd.weight" in out:
        raise AssertionError("tensors only with --tensors")
    holds(works("inspect", WORKED, "--tensors").out, "token_embd.weight", "inspect --tensors")


# ---- logits, bench ----

def test_logits_are_rows_of_float32():
    n_vocab = json.loads(works("inspect", WORKED, "--json").out)["vocabulary"]
    raw = works("logits", WORKED, "--tokens", "314,926,72").raw
    same(len(raw), 3 * n_vocab * 4, "bytes")
    if any(x != x for x in struct.unpack(f"<{3 * n_vocab}f", raw)):
        raise AssertionError("a logit is NaN")
    same(works("logits", WORKED, "--tokens", "314,926,72", "--decode").raw, raw, "with --decode")
    with folder() as d:
        path = pathlib.Path(d, "out.f32")
        r = works("logits", WORKED, "--tokens=314,926,72", "--out", path)
        same((r.raw, path.read_bytes()), (b"", raw), "--out")


def test_logits_take_the_engine_settings():
    m = stories()
    ids = "1," + ",".join(str(3 + i % 500) for i in range(70))
    want = works("logits", m, "--tokens", ids, "--kv-type", "f32").raw
    for flags in (["--threads", "1"], ["--prefill-chunk", "7"], ["--context", "128"], ["--decode"]):
        same(works("logits", m, "--tokens", ids, "--kv-type", "f32", *flags).raw == want, True, f"the same bytes with {flags}")
    same(len(works("logits", m, "--tokens", ids, "--kv-type", "f32", "--page-tokens", "16").raw), len(want), "bytes with --page-tokens 16")
    if works("logits", m, "--tokens", ids).raw == want:
        raise AssertionError("--kv-type f32 changed nothing")
    same(works("logits", m, "--tokens", ids, env={"ATTEND_KV_TYPE": "f32"}).raw == want, True, "the same by ATTEND_KV_TYPE")


def test_logits_refuse_what_they_cannot_do():
    fails(["logits", WORKED, "--tokens", "99999999"], 1, "99999999")
    fails(["logits", WORKED, "--tokens", "72", "--out", "/nonexistent/x"], 1, "cannot open /nonexistent/x: No such file or directory")
    fails(["logits", WORKED, "--tokens", "72", "--out", "/dev/full"], 1, "No space left on device")
    with folder() as d:
        path = pathlib.Path(d, "out.f32")
        fails(["logits", WORKED, "--tokens", "99999999", "--out", path], 1, "99999999")
        same(path.exists(), False, "a file after the failure")


def test_logits_do_not_go_to_a_terminal():
    main, sub = pty.openpty()
    r = subprocess.run([EXE, "logits", WORKED, "--tokens", "72"], stdout=sub, stderr=subprocess.PIPE, env=ENV, timeout=30 * SLOW)
    os.close(sub)
    os.close(main)
    same(r.returncode, 2, "status")
    holds(r.stderr.decode(), "stdout is a terminal: --out FILE", "stderr")


# ---- run ----

def test_run_continues_a_prompt():
    args = ["run", stories(), "Once upon a time", "-n", "16", "--temperature", "0", "--raw"]
    a = works(*args)
    same(a.err, "", "stderr")
    if len(a.out) < 10 or not a.out.endswith("\n"):
        raise AssertionError(f"an answer and a newline, got {a.out!r}")
    same(works(*args).out, a.out, "again")
    longer = works("run", stories(), "Once upon a time", "--max-tokens=32", "--temperature", "0", "--raw").out
    same(longer.startswith(a.out[:-1]), True, "32 tokens begin as 16 do")
    same(works("run", stories(), "--raw", "-n", "16", "--temperature", "0", stdin=b"Once upon a time\n").out, a.out, "prompt by stdin")


def test_run_seed_decides():
    def one(seed):
        return works("run", stories(), "Once", "-n", "24", "--raw", "--temperature", "1.5", "--seed", seed).out
    same(one(1), one(1), "the same seed")
    if len({one(s) for s in range(4)}) < 2:
        raise AssertionError("four seeds gave one answer")


def test_run_says_when_there_is_no_chat_form():
    r = works("run", stories(), "Once", "-n", "4", "--temperature", "0")
    holds(r.err, "no chat form", "stderr")
    same(r.out, works("run", stories(), "Once", "-n", "4", "--temperature", "0", "--raw").out)


def test_run_is_one_chat_turn():
    m = smollm2()
    r = works("run", m, "What is the capital of France?", "-n", "24", "--temperature", "0")
    holds(r.out, "Paris", "the answer")
    same(r.err, "", "stderr")
    form = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    same(works("run", m, form, "-n", "24", "--temperature", "0", "--raw").out, r.out, "the form written out")


def test_run_refuses():
    fails(["run", WORKED, b"\xff".decode("utf-8", "surrogateescape"), "--raw"], 1, "the prompt is not valid UTF-8: byte 0xff at offset 0")
    with open("/dev/full", "wb") as full:
        r = subprocess.run([EXE, "run", stories(), "Once", "--raw"], stdout=full, stderr=subprocess.PIPE, env=ENV, timeout=60 * SLOW)
    same(r.returncode, 1, "status on a full disk")
    holds(r.stderr.decode(), "No space left on device", "stderr")


def test_run_interrupted_dies_of_the_signal():
    p = subprocess.Popen([EXE, "run", stories(), "Once", "--raw", "-n", "100000", "--temperature", "1", "--context", "512"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
    try:
        p.stdout.read(1)  # it is answering
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=20 * SLOW)
    finally:
        p.kill()
        p.wait()
    # an answer that was over before the signal came is a success
    if p.returncode not in (-signal.SIGINT, 0):
        raise AssertionError(f"status {p.returncode}: {err!r}")


class Terminal:
    """The program with a terminal of its own: stdin and stderr are the terminal, stdout a pipe."""

    def __init__(self, *args):
        self.main, sub = pty.openpty()
        self.p = subprocess.Popen([EXE, *map(str, args)], stdin=sub, stderr=sub, stdout=subprocess.PIPE, env=ENV,
                                  start_new_session=True, preexec_fn=lambda: __import__("fcntl").ioctl(sub, 0x540E, 0))
        os.close(sub)
        self.seen = ""

    def wait_for(self, text, n=1):
        until = time.monotonic() + 30 * SLOW
        while self.seen.count(text) < n:
            if not select.select([self.main], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError(f"the terminal shows no {text!r} {n} times: {self.seen[-300:]!r}")
            try:
                self.seen += os.read(self.main, 4096).decode(errors="replace")
            except OSError:  # the program has closed the terminal
                raise AssertionError(f"the program ended; the terminal shows {self.seen[-300:]!r}") from None

    def send(self, text):
        os.write(self.main, text.encode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.p.wait()
        self.p.stdout.close()
        os.close(self.main)


def test_chat_in_the_terminal():
    with Terminal("run", smollm2(), "-n", "32", "--temperature", "0") as t:
        t.wait_for("> ")
        t.send("My name is Zacharias. What is the capital of France?\n")
        t.wait_for("> ", 2)
        t.send("\x03")  # at the prompt it only drops the line
        t.wait_for("> ", 3)
        t.send("What is my name?\n")
        t.wait_for("> ", 4)
        t.send("\x04")
        out = t.p.stdout.read().decode()
        same(t.p.wait(20 * SLOW), 0, "status")
        holds(out, "Paris", "the first answer")
        holds(out, "Zacharias", "the second answer, which needs the first line")


def test_interrupt_stops_an_answer_and_the_chat_goes_on():
    with Terminal("run", stories(), "--raw", "-n", "100000", "--temperature", "1") as t:
        t.wait_for("> ")
        t.send("Once upon a time\n")
        os.read(t.p.stdout.fileno(), 1)
        t.send("\x03")
        t.wait_for("> ", 2)
        t.send("\x04")
        same(t.p.wait(20 * SLOW), 0, "status")


# ---- health ----

def fake_server(answer, delay=0.0):
    """Answers one connection with these bytes; gives its port and the request's bytes, later, in a list."""
    s = socket.create_server(("127.0.0.1", 0))
    got = []

    def serve():
        c, _ = s.accept()
        got.append(c.recv(4096))
        time.sleep(delay)
        c.sendall(answer)
        c.close()
        s.close()

    t = threading.Thread(target=serve, daemon=True)
    t.start()
    return s.getsockname()[1], got, t


def test_health_is_exit_0_when_ready():
    port, got, t = fake_server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    r = works("health", "--url", f"http://127.0.0.1:{port}")
    t.join()
    same((r.out, r.err), ("", ""))
    same(got[0].split(b"\r\n")[0], b"GET /readyz HTTP/1.1", "the request")
    holds(got[0].decode(), f"\r\nHost: 127.0.0.1:{port}\r\n", "the request")


def test_health_finds_the_server_by_the_settings():
    for env in ({"ATTEND_HOST": "0.0.0.0"}, {}):
        port, _, t = fake_server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        works("health", env={**env, "ATTEND_PORT": str(port)})
        t.join()


def test_health_is_exit_1_with_the_reason():
    port, _, t = fake_server(b"HTTP/1.1 503 Service Unavailable\r\n\r\nLoading model\n")
    fails(["health", "--url", f"http://127.0.0.1:{port}/readyz"], 1, "not ready: /readyz is 503: Loading model")
    t.join()
    port, _, t = fake_server(b"SSH-2.0-OpenSSH_9.2\r\n")
    fails(["health", "--url", f"http://127.0.0.1:{port}"], 1, "does not speak HTTP")
    t.join()
    fails(["health", "--url", f"http://127.0.0.1:{port}"], 1, f"cannot connect to 127.0.0.1:{port}: Connection refused")
    fails(["health", "--url", "http://nowhere.invalid"], 1, "cannot find nowhere.invalid")


def test_health_does_not_hang():
    port, _, t = fake_server(b"", delay=4.5)
    start = time.monotonic()
    fails(["health", "--url", f"http://127.0.0.1:{port}"], 1, "Connection timed out")
    took = time.monotonic() - start
    if not 2.5 < took < 4.4 * SLOW:
        raise AssertionError(f"took {took:.1f} s, the limit is 3")


# ---- serve ----

def test_serve_prints_one_line_and_ends_well():
    with Server(WORKED, "--port", "0") as s:
        same(re.fullmatch(r"listening on http://127\.0\.0\.1:\d+\n", s.line) is not None, True, s.line)
        until = time.monotonic() + 20 * SLOW
        while attend("health", "--url", f"http://127.0.0.1:{s.port}").returncode and time.monotonic() < until:
            time.sleep(0.05)
        works("health", env={"ATTEND_PORT": str(s.port)})
        s.p.terminate()
        same(s.p.wait(20 * SLOW), 0, "status after SIGTERM")
        same(s.p.stdout.read(), b"", "the rest of stdout")
        holds(s.text(), "curl", "the log")


def test_serve_takes_its_model_from_the_environment():
    with Server("--port", "0", env={"ATTEND_MODEL": str(WORKED)}):
        pass


def test_port_in_use_says_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        r = attend("serve", WORKED, "--port", port)
        same((r.returncode, r.out), (1, ""))
        holds(r.err, f"cannot listen on 127.0.0.1:{port}: in use; --port 0 picks one", "stderr")


def test_log_file_takes_the_log_and_stderr_the_reason():
    with folder() as d, socket.create_server(("127.0.0.1", 0)) as taken:
        log = pathlib.Path(d, "a.log")
        log.write_text("kept\n")
        port = taken.getsockname()[1]
        fails(["serve", WORKED, "--port", port, "--log-file", log], 1, f"cannot listen on 127.0.0.1:{port}: in use")
        holds(log.read_text(), "kept\n", "the log")
        holds(log.read_text(), "level=error", "the log")
        with Server(WORKED, "--port", "0", "--log-file", log) as s:
            until = time.monotonic() + 20 * SLOW
            while "curl" not in log.read_text() and time.monotonic() < until:
                time.sleep(0.05)
            holds(log.read_text(), "curl", "the log")
            same(s.text(), "", "stderr")
    fails(["serve", WORKED, "--port", "0", "--log-file", "/nonexistent/a.log"], 1,
          "cannot open the log file /nonexistent/a.log: No such file or directory")


def wait_gone(pid):
    until = time.monotonic() + 20 * SLOW
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False


def test_daemon_is_in_the_background_once_it_listens():
    with folder() as d:
        pid_file, log = pathlib.Path(d, "a.pid"), pathlib.Path(d, "a.log")
        flags = [WORKED, "--port", "0", "--daemon", "--pid-file", pid_file, "--log-file", log]
        r = works("serve", *flags)
        pid = int(pid_file.read_text())
        try:
            same(r.err, "", "stderr")
            m = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", r.out)
            same(m is not None, True, f"the line {r.out!r}")
            socket.create_connection(("127.0.0.1", int(m[1])), 5).close()
            same(os.getsid(pid), pid, "its session")
            fails(["serve", *flags], 1, f"{pid_file} is held by process {pid}: it runs")
            same(int(pid_file.read_text()), pid, "the process id file after a second start")
        finally:
            os.kill(pid, signal.SIGTERM)
            gone = wait_gone(pid)
        same(gone, True, "ended by SIGTERM")
        same(pid_file.exists(), False, "the process id file at the end")
        holds(log.read_text(), "level=info", "the log")


def test_daemon_that_cannot_start_says_so_itself():
    with folder() as d, socket.create_server(("127.0.0.1", 0)) as taken:
        pid_file, port = pathlib.Path(d, "a.pid"), taken.getsockname()[1]
        fails(["serve", WORKED, "--port", port, "--daemon", "--pid-file", pid_file, "--log-file", pathlib.Path(d, "a.log")], 1,
              f"cannot listen on 127.0.0.1:{port}: in use")
        same(pid_file.exists(), False, "a process id file")
    with folder() as d:
        model, pipe = pathlib.Path(d, "model.gguf"), pathlib.Path(d, "pipe")
        model.write_bytes(b"GGUF")
        os.mkfifo(pipe)
        for path in (model, pipe, d):
            fails(["serve", WORKED, "--port", "0", "--pid-file", path], 1, str(path))
        same(model.read_bytes(), b"GGUF", "a file that is no process id file")
        same(pipe.is_fifo(), True, "a pipe that is no process id file")
    fails(["serve", WORKED, "--daemon", "--pid-file", "/nonexistent/a.pid", "--log-file", "/dev/null"], 1,
          "cannot open the process id file /nonexistent/a.pid")


def main():
    only = sys.argv[1:]
    for name, test in list(globals().items()):
        if not name.startswith("test_") or (only and not any(o in name for o in only)):
            continue
        name = name[5:]
        try:
            test()
            print(f"ok {name}", flush=True)
            counts["passed"] += 1
        except Skip as why:
            print(f"skip {name} - {why}", flush=True)
            counts["skipped"] += 1
        except Exception as why:  # any fault of a test is its failure, and the others go on
            print(f"not ok {name} - {type(why).__name__}: {why}".replace("\n", " "), flush=True)
            counts["failed"] += 1
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    sys.exit(1 if counts["failed"] else 0)


main()
