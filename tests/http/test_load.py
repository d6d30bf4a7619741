#!/usr/bin/env python3
"""serve, the load client (tests/bench/serve.c): what it counts, against servers whose answers are known, and attend."""
import contextlib
import http.server
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree

from daemon import ATTEND, ROOT, TINY, Skip, main, the

BUILD, MODE = os.environ.get("BUILD", "build"), os.environ.get("MODE", "release")
SERVE = ROOT / pathlib.Path(BUILD) / ("" if MODE == "release" else MODE) / "tests/bench/serve"
LLAMA = [{"content": "a", "tokens": [5], "stop": False}, {"content": "b", "tokens": [6, 7], "stop": False},
         {"content": 'c "tokens":[1,2]', "tokens": [8], "stop": False}, {"content": "", "tokens": [], "stop": True}]
OPENAI = [{"choices": [{"text": t}]} for t in ("a", "b", "", "c", 'd"text":"e')]


class Known(http.server.BaseHTTPRequestHandler):
    """Answers as llama-server and as OpenAI's do, a byte of HTTP at a time where that is hardest."""
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        events = LLAMA if self.path == "/completion" else OPENAI
        text = "".join(f"data: {json.dumps(e, separators=(',', ':'))}\n\n" for e in events)
        text += "" if events is LLAMA else "data: [DONE]\n\n"
        refuse = self.path == "/completion" and body["prompt"] == "no"
        self.send_response(429 if refuse else 200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # who is refused hears no more
            for i in range(0, len(text), 7):
                part = text[i:i + 7].encode()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


def known():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Known)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def serve(port, *flags, status=0):
    if not SERVE.exists():
        raise Skip(f"{SERVE} is not built")
    run = subprocess.run([SERVE, *map(str, flags), "--json", f"http://127.0.0.1:{port}"], capture_output=True, text=True, timeout=600)
    assert run.returncode == status, f"exit {run.returncode}: {run.stdout}{run.stderr}"
    return [json.loads(line) for line in run.stdout.splitlines()]


def check_known(dialect, path, n_tokens):
    server = known()
    [row] = serve(server.server_port, "--dialect", dialect, "--requests", 3, "--warm-up", 0, "--tokens", 9, "--prompt-words", 5,
                  "--temperature", 0.5)
    n = [row[k]["n"] for k in ("ttft_ms", "itl_ms", "e2e_ms")]
    assert n == [3, 3 * (n_tokens - 1), 3], n
    assert row["failed"] == row["refused"] == 0 and row["tok_s"] > 0, row
    assert len(server.asked) == 3 and len({b["prompt"] for _, b in server.asked}) == 3, server.asked
    for where, body in server.asked:
        assert where == path and len(body["prompt"].split()) == 5 and body["stream"] is True and body["temperature"] == 0.5, body
    server.shutdown()


def test_tokens_of_llama_server_are_counted():
    check_known("llama", "/completion", 4)


def test_tokens_of_openai_servers_are_counted():
    check_known("openai", "/v1/completions", 4)


def test_refusals_are_no_answers():
    server = known()
    words = ROOT / "build" / "test_load.txt"
    words.parent.mkdir(exist_ok=True)
    words.write_text("no\nyes\n")
    [row] = serve(server.server_port, "--dialect", "llama", "--requests", 2, "--warm-up", 0, "--prompt-file", words)
    assert row["refused"] >= 1 and row["e2e_ms"]["n"] == 2 and row["failed"] == 0, row
    assert {b["prompt"] for _, b in server.asked} == {"yes", "no"}
    server.shutdown()


def test_no_server_is_a_failure():
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    [row] = serve(port, "--requests", 2, "--warm-up", 0, status=1)
    assert row["failed"] == 2 and "refused" in row["why"], row


def test_a_server_that_falls_silent_is_a_failure():
    with socket.create_server(("127.0.0.1", 0)) as s:
        [row] = serve(s.getsockname()[1], "--requests", 1, "--warm-up", 0, "--timeout", 0.1, status=1)
    assert row["failed"] == 1 and "nothing was heard" in row["why"], row


def test_numbers_that_are_none_are_refused():
    for option, value in (("seconds", "-1"), ("seconds", "nan"), ("rate", "1e300"), ("requests", "2x"), ("tokens", "-1"),
                          ("tokens", "1.5"), ("vocab", "0"), ("timeout", "0"), ("seed", "")):
        if not SERVE.exists():
            raise Skip(f"{SERVE} is not built")
        run = subprocess.run([SERVE, f"--{option}", value, "http://127.0.0.1:1"], capture_output=True, text=True, timeout=60)
        assert run.returncode == 1 and f"--{option}" in run.stderr and not run.stdout, (option, value, run)


def test_closed_loop_on_attend():
    before = the().metrics()["attend_completion_tokens_total"]
    rows = serve(the().port, "--clients", "1,3", "--requests", 6, "--warm-up", 0, "--tokens", 8, "--prompt-words", 8)
    assert [r["clients"] for r in rows] == [1, 3]
    for row in rows:
        assert row["e2e_ms"]["n"] >= 6 and row["itl_ms"]["n"] >= 6 * 7 and row["failed"] == 0, row
        assert 0 < row["ttft_ms"]["p50"] <= row["e2e_ms"]["p99"] and row["good_req_s"] > 0, row
    assert the().metrics()["attend_completion_tokens_total"] - before >= 2 * 6 * 8


def test_open_loop_on_attend():
    [row] = serve(the().port, "--clients", 8, "--rate", 100, "--requests", 10, "--warm-up", 0, "--tokens", 4, "--prompt-ids", 8,
                  "--vocab", 500, "--ttft-ms", 0.001)
    assert row["e2e_ms"]["n"] >= 10 and row["failed"] == 0, row
    assert row["good_req_s"] == 0, f"no first token comes in a microsecond: {row}"


def test_the_same_prompt_always():
    cached = the().metrics()["attend_cached_tokens_total"]
    serve(the().port, "--same", "--requests", 3, "--warm-up", 0, "--prompt-ids", 130, "--vocab", 500, "--tokens", 2)
    assert the().metrics()["attend_cached_tokens_total"] - cached >= 2 * 129


def script(name, *flags):
    if not SERVE.exists():
        raise Skip(f"{SERVE} is not built")
    out = SERVE.parents[2]
    run = subprocess.run([sys.executable, ROOT / "tests/bench" / name, *map(str, flags)], capture_output=True, text=True, timeout=600,
                         env={**os.environ, "BUILD": str(out), "ATTEND": ATTEND})
    assert run.returncode == 0, f"exit {run.returncode}: {run.stdout}{run.stderr}"
    return run.stdout


def test_peers_without_a_peer():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "figures"
        table = script("peers.py", "--models", TINY, "--peers", "", "--no-limits", "--cells", "decode,8 streams", "--loads", "1 client", "--rounds", 2,
                       "--seconds", 0.2, "--json", out)
        decode, streams, load = [json.loads(line) for line in out.read_text().splitlines()]
    assert decode["cell"] == "decode" and len(decode["values"]["attend"]) == 2 and decode["median"]["attend"] > 0, decode
    assert streams["cell"] == "8 streams" and streams["ratio"] is None and "pass" not in streams, streams
    assert load["load"] == "1 client" and [r["failed"] for r in load["rounds"]] == [0, 0], load
    assert table.count(TINY) == 4, table  # two cells, a load, the memory


def test_peers_judges_by_its_bars():
    sys.path.insert(0, str(ROOT / "tests/bench"))
    import peers
    good = peers.judge("1b-q4_0", "decode", {"attend": 40.0, "llama.cpp": 20.0, "openvino": 30.0})
    assert good["pass"] and good["ratio"] == 2 and good["bar"] == 1.8 and good["stretch"] == 2.2, good
    assert not peers.judge("1b-q4_0", "decode", {"attend": 35.0, "llama.cpp": 20.0, "openvino": None})["pass"]
    assert peers.judge("1b-q4_0", "decode", {"attend": 35.0, "llama.cpp": 20.0, "openvino": None}, 86)["pass"], "at the machine's limit"
    assert not peers.judge("1b-q4_0", "decode", {"attend": 40.0, "llama.cpp": 20.0, "openvino": 35.0})["pass"], "not 1.15 of the better"


def test_curve_draws_what_it_measured():
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "curve.svg"
        lines = script("curve.py", TINY, "--clients", "1,4", "--seconds", 0.3, "--out", out).splitlines()
        picture = xml.etree.ElementTree.parse(out).getroot()
    assert [json.loads(line)["clients"] for line in lines] == [1, 4]
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))) == 6, "two points on three lines"


if __name__ == "__main__":
    main()
