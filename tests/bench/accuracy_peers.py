#!/usr/bin/env python3
"""How far attend's, llama.cpp's and OpenVINO's logits are from those of exact activations, on one text.

    build/peers/bin/python tests/bench/accuracy_peers.py [MODEL [TEXT]]    default: the default model, tests/bench/accuracy.txt

`make bench-peers` installs the peers and runs this. The text is cut into windows of 512 tokens. The reference is attend with
`--activations float --kv-type f32`, which multiplies the file's weights exactly; every other way computes the same
windows. Prints one JSON line for each: mean, 99th percentile and greatest KL(reference || it) over all positions,
share of positions where the likeliest token is another one, perplexity, and mean KL relative to llama.cpp's.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

import peers

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXE = os.environ.get("ATTEND", str(ROOT / "build/attend"))
MODEL = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf")
TEXT = sys.argv[2] if len(sys.argv) > 2 else str(ROOT / "tests/bench/accuracy.txt")
WINDOW, ROWS = 512, 64
ATTEND = {
    "attend int8": ["--activations", "int8"],
    "attend int16": ["--activations", "int16"],
    "attend float": ["--activations", "float"],
}


def tokens():
    with open(TEXT, "rb") as text:
        return json.loads(subprocess.run([EXE, "tokenize", MODEL], stdin=text, check=True, capture_output=True).stdout)


def by_attend(ids, flags, folder):
    path = pathlib.Path(folder, "logits")
    subprocess.run([EXE, "logits", MODEL, "--tokens", ",".join(map(str, ids)), "--out", path, *flags], check=True)
    logits = numpy.fromfile(path, "<f4").reshape(len(ids), -1)
    path.unlink()
    return logits


def by_peer(peer, ids, folder):
    path = pathlib.Path(folder, "logits")
    if not peer.ask({"logits": ids, "out": str(path)}):
        sys.exit(f"{peer.name} has no logits of {MODEL}")
    return numpy.fromfile(path, "<f4").reshape(len(ids), -1)


def log_softmax(logits):
    x = logits.astype(numpy.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - numpy.log(numpy.exp(x).sum(axis=1, keepdims=True))


def compare(reference, logits, ids):
    """Per position: KL, whether the likeliest token is another one, and -log p of the next token but for the last."""
    kl, flips, loss = [], [], []
    for at in range(0, len(ids), ROWS):
        p, q = log_softmax(reference[at : at + ROWS]), log_softmax(logits[at : at + ROWS])
        kl += list((numpy.exp(p) * (p - q)).sum(axis=1).clip(0))
        flips += list(p.argmax(axis=1) != q.argmax(axis=1))
        loss += [-row[i] for row, i in zip(q, ids[at + 1 : at + ROWS + 1])]
    return kl, flips, loss


def main():
    ids = tokens()
    others = {"llama.cpp": [str(peers.HERE / "peer_llama.py"), peers.find_llama(os.environ.get("LLAMA_LIB")), MODEL, "2"],
              "openvino": [str(peers.HERE / "peer_openvino.py"), MODEL, "2"]}
    others = {name: peers.Peer(name, command) for name, command in others.items()}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for at in range(0, len(ids), WINDOW):
            window = ids[at : at + WINDOW]
            reference = by_attend(window, ["--activations", "float", "--kv-type", "f32"], folder)
            for name in [*others, *ATTEND]:
                logits = by_attend(window, ATTEND[name], folder) if name in ATTEND else by_peer(others[name], window, folder)
                for total, more in zip(found.setdefault(name, ([], [], [])), compare(reference, logits, window)):
                    total += more
    for other in others.values():
        other.close()
    peer = numpy.mean(found["llama.cpp"][0])
    for name, (kl, flips, loss) in found.items():
        print(json.dumps({"bench": "accuracy", "model": pathlib.Path(MODEL).name, "who": name, "tokens": len(ids),
                          "mean_kl": float(f"{numpy.mean(kl):.3g}"), "p99_kl": float(f"{numpy.quantile(kl, 0.99):.3g}"),
                          "max_kl": float(f"{max(kl):.3g}"), "flips": round(float(numpy.mean(flips)), 4),
                          "perplexity": round(float(numpy.exp(numpy.mean(loss))), 4),
                          "to_llama_cpp": round(float(numpy.mean(kl) / peer), 4)}), flush=True)


if __name__ == "__main__":
    main()
