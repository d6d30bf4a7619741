#!/usr/bin/env python3
"""One server of peers.py: llama.cpp's, as PyPI's xllamacpp has it, until stdin ends.

    tests/bench/peer_llama_server.py MODEL THREADS SLOTS CONTEXT      CONTEXT: tokens of each slot

Writes its URL as a line. All is as the package's defaults have it, but for what is named here."""
import os
import sys


def main():
    model, threads, slots, context = sys.argv[1], *map(int, sys.argv[2:5])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import xllamacpp

    p = xllamacpp.CommonParams()
    p.model.path = model
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
    p.n_parallel, p.n_ctx = slots, slots * context
    p.hostnames, p.port = ["127.0.0.1"], 0
    server = xllamacpp.Server(p)
    print(server.listening_address, file=out, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
