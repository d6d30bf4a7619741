#!/usr/bin/env python3
"""Whole models against what other software computed (README.md), by `attend logits`.
timeout: 1200"""
import json
import math

import worked
from golden import (CONFORMANCE, HERE, ROOT, SANITIZER, absent, attend, best, case, continues, diverges, far, finish,
                    floats, greedy_differs, log_sum, logits, rows, say)

STORIES = HERE / "stories260K"
F32_KV = ("--kv-type", "f32")
FLOAT = ("--activations", "float", *F32_KV)
TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1")
DEFAULT_MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
TINY_IDS = [int(x) for x in (HERE / "tiny/tokens.txt").read_text().split()]


def worked_example():
    model, prompt = HERE / "worked.gguf", [314, 926, 72]
    answer = [268, 266, 144, 270, 0]  # 小, two bytes of 明, its third, 。, the end token
    _, tensors = worked.read(model)
    ids = prompt + answer[:-1]
    for mode in ((), ("--decode",)):
        name = " ".join(("worked", *mode))
        case(name, lambda: far(worked.logits(tensors, ids), logits(model, ids, *F32_KV, *mode), 1e-4))
        case(f"{name} greedy", lambda: greedy_differs(model, prompt, answer, *mode))

    def exact():
        one, other = logits(model, ids), logits(model, ids, "--decode")
        return "" if one == other else "prefill and --decode differ"
    case("worked prefill equals decode", exact)
    case("worked tokenize", lambda: said(attend("tokenize", model, stdin="我的名字是".encode()), [314, 926, 72]))


def said(stdout, want):
    got = json.loads(stdout)
    return "" if got == want else f"{got} instead of {want}"


def stories():
    ref = json.loads((STORIES / "ref.json").read_text())
    model = STORIES / "model-f32.gguf"
    for key, r in ref.items():
        want = rows(floats(STORIES / f"ref_{key}.float64.f32"), r["n_vocab"])
        for mode in ((), ("--decode",)):
            name = " ".join((f"stories260K {key}", *mode))
            case(name, lambda: far(want, logits(model, r["ids"], *F32_KV, *mode), 1e-4))
        case(f"stories260K {key} greedy",
             lambda: greedy_differs(model, r["ids"], r["greedy_64"], *F32_KV, "--decode"))
    for kind in TYPES:
        case(f"stories260K {kind} best ids", lambda: few_equal(kind, ref))


def few_equal(kind, ref):
    """'' or how many rows keep the best id of the float64 logits, where ref.json's share less 2 % must."""
    equal = wanted = total = 0
    for key, r in ref.items():
        want = rows(floats(STORIES / f"ref_{key}.float64.f32"), r["n_vocab"])
        got = logits(STORIES / f"model-{kind}.gguf", r["ids"])
        equal += sum(best(a) == best(b) for a, b in zip(want, got))
        wanted += int(r["argmax_equal"][kind].split("/")[0])
        total += len(want)
    return "" if equal >= wanted - 0.02 * total else f"{equal} of {total} rows, the reference has {wanted}"


def tiny(folder, name):
    want = rows(floats(folder / name / "logits.float64.f32"), 256)
    for mode in ((), ("--decode",)):
        case(" ".join((f"tiny {name}", *mode)),
             lambda: far(want, logits(folder / name / "f32.gguf", TINY_IDS, *F32_KV, *mode), 1e-4))


def quant(folder, kind):
    model, want = folder / f"{kind}.gguf", rows(floats(folder / f"{kind}.dequant.f32"), 256)
    case(f"quant {kind}", lambda: diverges(want, logits(model, TINY_IDS, *F32_KV), 1e-3))
    case(f"quant {kind} int16",
         lambda: diverges(want, logits(model, TINY_IDS, *F32_KV, "--activations", "int16"), 1e-3))
    case(f"quant {kind} float", lambda: far(want, logits(model, TINY_IDS, *FLOAT), 1e-4))


def pair(form):
    """'[[id, log-probability], ...]' of a reference, which may be written as text."""
    return json.loads(form) if isinstance(form, str) else form


def smollm2_rows(r, got):
    """'' or the worst of the reference's log-probabilities: its five best ids of the last rows."""
    worst, top5 = 0.0, pair(r["top5"])
    for want, row in zip(top5, got[len(got) - len(top5):]):
        z = log_sum(row)
        worst = max([worst] + [abs(row[id] - z - p) for id, p in want])
    return "" if worst <= 2e-3 else f"log-probabilities differ by {worst:.3g}, allowed is 2e-3"


def smollm2_nll(r, got):
    ids, want = r["ids"], r["nll"]
    total = math.fsum(log_sum(row) - row[id] for row, id in zip(got, ids[1:]))
    nll = min((total, total / max(len(ids) - 1, 1)), key=lambda v: abs(v - want))  # a sum or a mean
    return "" if abs(nll - want) <= 0.01 * want else f"nll {nll:.4f}, wanted {want:.4f} within 1 %"


def smollm2_prompt(key, r):
    """One pass with the default activations, one in floats that runs on over the reference's continuation."""
    n, name = len(r["ids"]), f"smollm2 {key}"
    last = CONFORMANCE / f"smollm2/{key}.last.f32"
    got = logits(DEFAULT_MODEL, r["ids"])
    case(f"{name} nll", lambda: smollm2_nll(r, got))
    if last.exists():
        case(f"{name} last row", lambda: diverges([floats(last)], got[-1:], 2e-2))
    if SANITIZER:
        return
    codes = logits(DEFAULT_MODEL, r["ids"], "--kv-type", "q8")
    case(f"{name} KV q8", lambda: diverges(got[-8:], codes[-8:], 2e-2))
    greedy = pair(r["greedy"])
    exact = logits(DEFAULT_MODEL, r["ids"] + greedy[:-1], *FLOAT)
    case(f"{name} float", lambda: smollm2_rows(r, exact[:n]))
    case(f"{name} float greedy", lambda: continues(greedy, exact[n - 1:]))
    if last.exists():
        case(f"{name} float last row", lambda: far([floats(last)], exact[n - 1:n], 2e-3))
    else:
        absent([f"{name} last row", f"{name} float last row"], f"{last.name} is not there")


def smollm2():
    ref = json.loads((HERE / "smollm2/ref.json").read_text())
    for key, r in list(ref.items())[:1 if SANITIZER else None]:
        if not DEFAULT_MODEL.exists():
            say("skip", f"smollm2 {key}", f"{DEFAULT_MODEL.relative_to(ROOT)} is not there")
            continue
        smollm2_prompt(key, r)


def conformance():
    kinds = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
    if not CONFORMANCE.is_dir():
        absent(["tiny llama_k256", *(f"quant {k}" for k in kinds)], f"{CONFORMANCE} is not there")
        return
    tiny(CONFORMANCE / "tiny", "llama_k256")
    for kind in kinds:
        quant(CONFORMANCE / "quant", kind)


worked_example()
stories()
tiny(HERE / "tiny", "llama")
tiny(HERE / "tiny", "gpt2")
quant(HERE / "quant", "Q4_K")
quant(HERE / "quant", "Q6_K")
smollm2()
conformance()
finish()
