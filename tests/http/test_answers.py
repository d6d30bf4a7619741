#!/usr/bin/env python3
"""What a newcomer sees: real answers through the curl program, in every form; the worked example, served."""
import json
import os
import shutil
import subprocess

from daemon import CHAT, ROOT, SLOW, Daemon, Skip, main, ndjson, sse

QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
WRITTEN_OUT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
_default = None


def default_model():
    """A daemon with the default model that the tests of this file share."""
    global _default
    if not os.path.exists(CHAT):
        raise Skip(f"{CHAT} is absent (make run fetches it)")
    if not shutil.which("curl"):
        raise Skip("no curl program")
    if _default is None:
        _default = Daemon("--context", 1024, model=CHAT).__enter__()
    return _default


def curl(d, body, *flags):
    run = subprocess.run(["curl", "-sS", "-N", *flags, f"http://127.0.0.1:{d.port}/generate", "-d", json.dumps(body)],
                         capture_output=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return run.stdout


def pieces_of(stream):
    objects = list(stream)
    assert objects[-1]["done"] is True and objects[-1]["finish_reason"] == "stop", objects[-1]
    assert "".join(o["text"] for o in objects[:-1] if "text" in o) == objects[-1]["text"]
    return objects[-1]["text"]


def test_Paris_in_every_form():
    d = default_model()
    body = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    assert curl(d, body).decode() == ANSWER
    assert pieces_of(ndjson(curl(d, body, "-H", "Accept: application/x-ndjson"))) == ANSWER
    assert pieces_of(sse(curl(d, body, "-H", "Accept: text/event-stream"))) == ANSWER
    assert json.loads(curl(d, {**body, "stream": False}))["text"] == ANSWER


def test_the_chat_form_written_out_as_prompt():
    d = default_model()
    turns = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "stream": False}
    asked, written = json.loads(curl(d, turns)), json.loads(curl(d, {"prompt": WRITTEN_OUT, "temperature": 0, "stream": False}))
    assert written["text"] == ANSWER and written["tokens"] == asked["tokens"]
    assert written["usage"]["prompt_tokens"] == asked["usage"]["prompt_tokens"], "no system turn of our own"


def test_Chinese_goes_in_and_comes_out_unbroken():
    d = default_model()
    body = {"prompt": "我的名字是", "temperature": 0, "max_tokens": 40 if SLOW == 1 else 10, "ignore_eos": True}
    text = curl(d, body).decode("utf-8", errors="strict")
    assert any("\u4e00" <= c <= "\u9fff" or "\u3000" <= c <= "\uffef" for c in text), text
    assert curl(d, {**body, "stream": False}).decode() and json.loads(curl(d, {**body, "stream": False}))["text"] == text
    assert "".join(o.get("text", "") for o in ndjson(curl(d, body, "-H", "Accept: application/x-ndjson"))[:-1]) == text


def test_curl_raw_shows_a_chunk_per_token():
    d = default_model()
    raw = curl(d, {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}, "--raw")
    chunks, rest = [], raw
    while True:
        size, rest = rest.split(b"\r\n", 1)
        n = int(size, 16)
        if n == 0:
            break
        chunks.append(rest[:n].decode())
        rest = rest[n + 2:]
    assert chunks == ["The", " capital", " of", " France", " is", " Paris", "."], chunks


def test_the_default_model_is_done():
    if _default:
        _default.stop()


def test_the_worked_example_is_served():
    with Daemon(model=str(ROOT / "tests/golden/worked.gguf")) as d:
        lines = ndjson(d.post({"prompt": "我的名字是", "temperature": 0}, headers={"Accept": "application/x-ndjson"}).data)
        assert [o["text"] for o in lines[:-1]] == ["小", "明", "。"], lines
        assert [o["tokens"] for o in lines[:-1]] == [[268], [266, 144], [270]], lines
        end = lines[-1]
        assert end["text"] == "小明。" and end["tokens"] == [268, 266, 144, 270], end
        assert end["finish_reason"] == "stop" and end["stop"]["type"] == "eos", end
        assert end["usage"] == {"prompt_tokens": 3, "cached_tokens": 0, "completion_tokens": 4}, end


if __name__ == "__main__":
    main()
