#!/usr/bin/env python3
"""What measures: make_model's models, and `attend bench` on them. Never how fast, only what is said of it."""
import array
import hashlib
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXE = os.environ.get("ATTEND", str(ROOT / "build/attend"))
MAKE_MODEL = pathlib.Path(EXE).parent / "tests/bench/make_model"
SLOW = {"asan": 4, "tsan": 10}.get(os.environ.get("MODE", ""), 1)
ENV = {k: v for k, v in os.environ.items() if not k.startswith("ATTEND_") or k == "ATTEND_CPU"}
TYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q6_k", "q4_k", "q4_k_m"]
SMOLLM2 = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
counts = {"passed": 0, "failed": 0, "skipped": 0}


class Skip(Exception):
    pass


def run(*args, status=0, stdin=b""):
    r = subprocess.run(list(map(str, args)), input=stdin, capture_output=True, timeout=60 * SLOW, env=ENV)
    if r.returncode != status:
        raise AssertionError(f"{args}: status {r.returncode}, wanted {status}: {r.stderr.decode()[-300:]}")
    return r


def same(got, want, what="value"):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, wanted {want!r}")


def folder():
    return tempfile.TemporaryDirectory(prefix="attend-bench-")


def tiny(d, kind="q4_0", *flags):
    path = pathlib.Path(d, f"{kind}.gguf")
    run(MAKE_MODEL, *flags, "tiny", kind, path)
    return path


# ---- make_model ----

def test_models_of_every_type_speak():
    with folder() as d:
        for kind in TYPES:
            path = tiny(d, kind)
            logits = array.array("f", run(EXE, "logits", path, "--tokens", "1,2,3").stdout)
            same(len(logits), 3 * 512, f"{kind}: logits")
            if not all(map(math.isfinite, logits)):
                raise AssertionError(f"{kind}: a logit is not finite")
            spread = (sum(x * x for x in logits) / len(logits)) ** 0.5
            if not 0.05 < spread < 20:
                raise AssertionError(f"{kind}: logits of {spread:.3g}, wanted the size of a trained model's")


def test_models_have_the_types_that_quantised_files_have():
    with folder() as d:
        for kind, want in (("q4_0", "14 Q4_0, 5 F32, 1 Q6_K"), ("q8_0", "15 Q8_0, 5 F32"), ("q4_k_m", "12 Q4_K, 5 F32, 3 Q6_K")):
            got = json.loads(run(EXE, "inspect", tiny(d, kind), "--json").stdout)["types"]
            same(got, want, kind)


def test_models_are_made_by_a_seed():
    with folder() as d:
        digest = [hashlib.sha256(tiny(d, "q4_0", "--seed", s).read_bytes()).hexdigest() for s in (1, 1, 2)]
        same((digest[0] == digest[1], digest[0] == digest[2]), (True, False), "seeds 1, 1 and 2")
        same(sorted(os.listdir(d)), ["q4_0.gguf"], "files")


def test_models_are_not_made_of_nonsense():
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        for words, why in (
            (["--seed", "x", "tiny", "q4_0", folder + "/o"], "--seed"),
            (["--seed", "-1", "tiny", "q4_0", folder + "/o"], "--seed"),
            (["--sead", "1", "tiny", "q4_0", folder + "/o"], "--sead"),
            (["tiny", "q4_0", pipe], "no regular file"),
        ):
            run = subprocess.run([MAKE_MODEL, *words], capture_output=True, text=True, timeout=60)
            assert run.returncode == 1 and why in run.stderr, (words, run)
        assert os.listdir(folder) == ["pipe"] and not os.path.isfile(pipe)


def test_models_take_a_vocabulary():
    with folder() as d:
        donor = tiny(d, "f16")
        path = pathlib.Path(d, "with.gguf")
        run(MAKE_MODEL, "--tokenizer", donor, "tiny", "q8_0", path)
        ids = [run(EXE, "tokenize", m, stdin=b"the end").stdout for m in (donor, path)]
        same(ids[1], ids[0], "tokens")
        run(MAKE_MODEL, "--tokenizer", pathlib.Path(d, "absent"), "tiny", "q8_0", path, status=1)
        run(MAKE_MODEL, "tiny", "q9", path, status=1)


# ---- bench ----

QUICK = ["--prefill", "32", "--decode", "8", "--long", "64", "--repeat", "2"]


def bench(path, *flags):
    return [json.loads(line) for line in run(EXE, "bench", path, "--json", *flags).stdout.splitlines()]


def test_bench_has_a_line_for_each_section():
    with folder() as d:
        rows = bench(tiny(d), *QUICK, "--no-limits", "--batch", "1,3")
        same([r["section"] for r in rows], ["load", "prefill", "decode", "decode", "decode", "memory"], "sections")
        got = [(r["tokens"], r["batch"], r["context"]) for r in rows[1:-1]]
        same(got, [(32, 1, 0), (8, 1, 32), (8, 3, 32), (8, 1, 64)], "tokens, sequences, tokens before them")
        if not all(r["tok_s"] > 0 and "percent" not in r for r in rows[1:-1]) or not rows[0]["weight_mb"] > 0:
            raise AssertionError(f"a figure is missing, or a limit is there: {rows}")
        if not rows[-1]["resident_mb"] > rows[-1]["beyond_mb"] > 0:
            raise AssertionError(f"memory: {rows[-1]}")


def test_bench_can_leave_sections_out():
    with folder() as d:
        path = tiny(d)
        only = lambda *flags: [r["section"] for r in bench(path, "--no-limits", "--repeat", "1", "--long", "0", "--batch", "2", *flags)]
        same(only("--prefill", "0", "--decode", "4"), ["load", "decode", "memory"])
        same(only("--prefill", "16", "--decode", "0"), ["load", "prefill", "memory"])


def test_bench_keeps_to_the_context():
    with folder() as d:
        rows = bench(tiny(d), "--no-limits", "--repeat", "1", "--prefill", "0", "--decode", "4", "--batch", "1")
        same([r["context"] for r in rows[1:-1]], [32, 508], "tokens before those decoded, in a context of 512")


def test_bench_measures_the_machine():
    if os.environ.get("MODE", "release") != "release":
        raise Skip("sanitizers make a machine of their own")
    with folder() as d:
        for kind, peak in (("q8_0", "int8_gop_s"), ("f32", "float_gflop_s")):
            rows = bench(tiny(d, kind), *QUICK, "--batch", "1,2")
            limits = rows[1]
            same(limits.pop("section"), "limits")
            same(sorted(limits), ["float_gflop_s", "int8_gop_s", "memory_gb_s", "model_gb_s"], "limits")
            if not all(0.01 < v < 1e6 for v in limits.values()):
                raise AssertionError(f"no machine's limits: {limits}")
            for r in rows[2:-1]:
                if abs(r["percent"] - 100 * r["tok_s"] / r["limit_tok_s"]) > 0.01 * r["percent"]:
                    raise AssertionError(f"percent: {r}")
            layers = 2 * (256 * (2 * 256 + 2 * 128) + 3 * 256 * 512)  # weights of the shape's two layers
            want = limits[peak] * 1e9 / (2 * layers)
            if abs(rows[2]["limit_tok_s"] / want - 1) > 0.01:
                raise AssertionError(f"{kind}: limit of prefill {rows[2]['limit_tok_s']}, by the formula {want}")
            one, two = rows[3]["limit_tok_s"], rows[4]["limit_tok_s"]
            if not one < two <= 2.01 * one:
                raise AssertionError(f"limits of one sequence and of two: {one}, {two}")


def test_bench_prints_a_table():
    with folder() as d:
        lines = run(EXE, "bench", tiny(d), *QUICK, "--no-limits", "--batch", "1,3").stdout.decode().splitlines()
        same([line.split()[0] for line in lines if line][1:], ["tokens", "prefill", "decode", "decode", "decode", "memory:"], "the table")


def test_bench_refuses():
    with folder() as d:
        r = run(EXE, "bench", tiny(d), "--prefill", "600", "--no-limits", status=1)
        same("context" in r.stderr.decode(), True, "a prompt beyond the context")
        for flags in (["--batch", "0"], ["--repeat", "0"], ["--long", "x"]):
            run(EXE, "bench", tiny(d), *flags, status=2)


# ---- bench --accuracy ----

def accuracy(path, text, *flags):
    d = json.loads(run(EXE, "bench", path, "--accuracy", text, "--json", *flags).stdout)
    same(list(d["activations"]), ["float", "int8", "int16"], "kinds of activations")
    return d


def test_accuracy_tells_kinds_of_activations_apart():
    with folder() as d:
        text = pathlib.Path(d, "text")
        text.write_text("The quick brown fox jumps over the lazy dog, and 狐狸 too. " * 4)
        a = accuracy(tiny(d, "q4_0"), text, "--window", "100")
        same((a["tokens"] > 200, a["window"]), (True, 100), "tokens, window")
        of = a["activations"]
        same([of["float"][k] for k in ("mean_kl", "p99_kl", "max_kl", "flips")], [0, 0, 0, 0], "float against itself")
        if not 0 < of["int16"]["mean_kl"] < of["int8"]["mean_kl"] / 10 < 0.01:
            raise AssertionError(f"mean KL of int8 and int16: {of}")
        for kind in of.values():
            if not kind["mean_kl"] <= kind["p99_kl"] <= kind["max_kl"] or not 100 < kind["perplexity"] < 5000:
                raise AssertionError(f"{kind}")
        whole = accuracy(tiny(d, "f32"), text, "--window", "100")["activations"]
        same(whole["int8"], whole["float"], "a model without quantised matrices")
        out = run(EXE, "bench", tiny(d, "q4_0"), "--accuracy", text, "--window", "100").stdout.decode()
        same([line.split()[0] for line in out.splitlines()[1:]], ["activations", "float", "int8", "int16"], "the table")


def test_accuracy_refuses():
    with folder() as d:
        model, text = tiny(d), pathlib.Path(d, "text")
        for content, says in ((b"a", "the text has 1 tokens"), (b"a\xffb", "not valid UTF-8")):
            text.write_bytes(content)
            same(says in run(EXE, "bench", model, "--accuracy", text, status=1).stderr.decode(), True, says)
        text.write_text("word " * 400)
        same("context" in run(EXE, "bench", model, "--accuracy", text, "--window", "1000", status=1).stderr.decode(), True, "a window beyond the context")
        run(EXE, "bench", model, "--accuracy", pathlib.Path(d, "absent"), status=1)
        run(EXE, "bench", model, "--accuracy", text, "--window", "1", status=2)
        text.write_text("some words")
        content = bytearray(pathlib.Path(model).read_bytes())
        content[-1024:] = b"\xff\xff\xff\x7f" * 256  # the last tensor: the gain of the last norm, NaN
        pathlib.Path(model).write_bytes(content)
        same("not finite" in run(EXE, "bench", model, "--accuracy", text, status=1).stderr.decode(), True, "a model of NaN")


def test_accuracy_of_the_default_model():
    if not SMOLLM2.exists() or SLOW > 1:
        raise Skip("the default model is not here, or too slow under a sanitizer")
    with folder() as d:
        text = pathlib.Path(d, "text")
        text.write_text((ROOT / "tests/bench/accuracy.txt").read_text()[:1200])
        of = accuracy(SMOLLM2, text)["activations"]
        if of["int8"]["mean_kl"] > 0.0018 or of["int16"]["mean_kl"] > 1e-4:  # 60 % of what rounding to 8 bits costs, and nothing
            raise AssertionError(f"mean KL: {of}")


def main():
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            counts["passed"] += 1
            print(f"ok {name}", flush=True)
        except Skip as e:
            counts["skipped"] += 1
            print(f"skip {name} - {e}", flush=True)
        except Exception as e:
            counts["failed"] += 1
            print(f"not ok {name} - {type(e).__name__}: {e}", flush=True)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
