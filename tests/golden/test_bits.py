#!/usr/bin/env python3
"""Bits do not depend on company (README: the same bits): `attend logits` writes identical files whatever
the prefill chunk, the number of threads, prefill or decode."""
import itertools
import os
import pathlib
import tempfile

import golden

PREFILL = [("--prefill-chunk", str(c), "--threads", str(t)) for c, t in itertools.product((1, 7, 64, 512), (1, 2))]
DECODE = [("--decode", "--threads", str(t)) for t in (1, 2)]
LEVELS = ("scalar", "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16")  # those that a machine has
VARIANTS = [PREFILL[3], PREFILL[5], DECODE[1]] if golden.SANITIZER else PREFILL + DECODE


def logits(model, ids, *flags, env=None):
    with tempfile.NamedTemporaryFile(suffix=".f32") as out:
        golden.attend("logits", model, "--tokens", ",".join(map(str, ids)), "--out", out.name, *flags,
                      env=env)
        return pathlib.Path(out.name).read_bytes()


def spread(n_vocab, n):
    """n ids from all over the vocabulary, the same every time."""
    x, ids = 12345, []
    for _ in range(n):
        x = (x * 1103515245 + 12345) % 2**31
        ids.append(3 + x % (n_vocab - 3))
    return ids


def identical(model, n_vocab, n, *more, env=None):
    if golden.SANITIZER:
        n = min(n, 24 if n_vocab < 1024 else 10)
    ids = spread(n_vocab, n)
    want = logits(model, ids, "--prefill-chunk", "512", "--threads", "1", *more, env=env)
    if len(want) != n * n_vocab * 4:
        return f"{len(want)} bytes instead of {n * n_vocab * 4}"
    for flags in VARIANTS:
        got = logits(model, ids, *flags, *more, env=env)
        if got != want:
            first = next(i for i in range(0, len(want), 4) if got[i:i + 4] != want[i:i + 4]) // 4
            return f"{' '.join(flags)} differs first at row {first // n_vocab}, logit {first % n_vocab}"
    return ""


def check(name, model, *args):
    if not model.exists():
        golden.say("skip", name, f"{model} is not there")
    else:
        golden.case(name, lambda: identical(model, *args))


check("bits: default model, Q4_1", golden.ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf", 49152, 150)
for kv in ("f16", "f32", "q8"):
    check(f"bits: Q8_0, KV {kv}", golden.HERE / "stories260K/model-q8_0.gguf", 512, 300, "--kv-type", kv)
for activations, length in (("int8", 200), ("int16", 200), ("float", 48)):
    check(f"bits: Q4_K, activations {activations}", golden.HERE / "quant/Q4_K.gguf", 256, length, "--activations", activations)
check("bits: Q6_K", golden.HERE / "quant/Q6_K.gguf", 256, 200)
check("bits: F32 on our kernels", golden.HERE / "stories260K/model-f32.gguf", 512, 300, "--blas", "off")
check("bits: GPT-2 on our kernels", golden.HERE / "tiny/gpt2/f32.gguf", 256, 100, "--blas", "off")


def at_level(level):
    """Each CPU level keeps its own bits: in prefill of any chunk, in decode, on any number of threads."""
    for name, n_vocab, length in (("quant/Q4_K", 256, 90), ("quant/Q6_K", 256, 40), ("stories260K/model-q8_0", 512, 90),
                                  ("stories260K/model-bf16", 512, 90)):
        why = identical(golden.HERE / f"{name}.gguf", n_vocab, length, "--blas", "off", env={"ATTEND_CPU": level})
        if why:
            return f"{name}: {why}"
    return ""


def runs_here(level):
    try:
        golden.attend("logits", golden.HERE / "quant/Q4_K.gguf", "--tokens", 1, env={"ATTEND_CPU": level})
    except RuntimeError as e:
        if "this machine has" not in str(e):
            raise
        print(f"# not on this machine: CPU level {level}")
        return False
    return True


for level in filter(runs_here, LEVELS):
    golden.case(f"bits: CPU level {level}", lambda: at_level(level))
golden.finish()
