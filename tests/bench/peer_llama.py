#!/usr/bin/env python3
"""One engine of peers.py: llama.cpp through its C API, in any build of it.

    tests/bench/peer_llama.py LIB MODEL THREADS     LIB: libllama.so, or the module of PyPI's xllamacpp

Jobs come by stdin, a JSON object a line: {"context", "steps", "batch"}: `batch` sequences of `context` tokens each
that are decoded for `steps`; 0 steps: the prompt itself, computed. The answer to each is a line {"tok_s"}. Or
{"logits": [ids], "out": FILE}: the logits of all positions, float32 [n_ids, n_vocab], little endian.
Only what has kept its place for years is touched: the first four fields of the context's parameters, and
llama_batch; all else is as the library's defaults have it (memory-mapped, weights repacked, flash attention where
it can, KV in f16)."""
import ctypes
import json
import os
import random
import sys
import time
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int8, c_int32, c_void_p


class Params(ctypes.Structure):
    """A parameter struct, larger than that of any version: passed by value, it is read as far as the library knows it."""
    _fields_ = [("word", ctypes.c_uint32 * 256)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", c_int32), ("token", POINTER(c_int32)), ("embd", POINTER(c_float)),
                ("pos", POINTER(c_int32)), ("n_seq_id", POINTER(c_int32)),
                ("seq_id", POINTER(POINTER(c_int32))), ("logits", POINTER(c_int8))]


FUNCTIONS = {
    "llama_backend_init": (None, []),
    "llama_log_set": (None, [c_void_p, c_void_p]),
    "llama_model_default_params": (Params, []),
    "llama_context_default_params": (Params, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, Params]),
    "llama_init_from_model": (c_void_p, [c_void_p, Params]),
    "llama_free": (None, [c_void_p]),
    "llama_set_n_threads": (None, [c_void_p, c_int32, c_int32]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_memory_clear": (None, [c_void_p, c_bool]),
    "llama_memory_seq_rm": (c_bool, [c_void_p, c_int32, c_int32, c_int32]),
    "llama_batch_init": (Batch, [c_int32, c_int32, c_int32]),
    "llama_decode": (c_int32, [c_void_p, Batch]),
    "llama_synchronize": (None, [c_void_p]),
    "llama_get_logits_ith": (POINTER(c_float), [c_void_p, c_int32]),
    "llama_print_system_info": (c_char_p, []),
}
UBATCH = 512
WARM = 2  # steps before the clock starts


def load(path):
    lib = ctypes.CDLL(path)
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    if hasattr(lib, "ggml_backend_load_all"):
        lib.ggml_backend_load_all()  # where the processor's code is a library of its own
    return lib


class Llama:
    def __init__(self, path, model, threads):
        self.lib, self.threads, self.context, self.key = load(path), threads, None, None
        quiet = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)(lambda *_: None)
        self.quiet = quiet
        self.lib.llama_log_set(ctypes.cast(quiet, c_void_p), None)
        self.lib.llama_backend_init()
        begin = time.monotonic()
        self.model = self.lib.llama_model_load_from_file(model.encode(), self.lib.llama_model_default_params())
        if not self.model:
            sys.exit(f"{path} cannot load {model}")
        self.load_s = time.monotonic() - begin
        self.n_vocab = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))
        self.batch = self.lib.llama_batch_init(UBATCH, 0, 1)
        self.filled = 0  # tokens that every sequence begins with

    def open(self, n_context, n_sequences):
        """A context for n_sequences of n_context tokens each; kept while the same is asked for."""
        n_context = -(-n_context // 256) * 256
        if self.key == (n_context, n_sequences):
            return
        if self.context:
            self.lib.llama_free(self.context)
        params = self.lib.llama_context_default_params()
        params.word[0:4] = [n_context * n_sequences, max(UBATCH, n_context), UBATCH, n_sequences]
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit("llama_init_from_model failed")
        self.lib.llama_set_n_threads(self.context, self.threads, self.threads)
        self.key, self.filled = (n_context, n_sequences), 0

    def forget(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), False)
        self.filled = 0

    def some_ids(self, n):
        words = random.Random(1)
        return [words.randrange(self.n_vocab) for _ in range(n)]

    def step(self, rows):
        """One llama_decode of rows (token, position, sequence, whether its logits are wanted)."""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (token, pos, seq, wanted) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, pos, 1, wanted
            b.seq_id[i][0] = seq
        if self.lib.llama_decode(self.context, b):
            sys.exit("llama_decode failed")
        self.lib.llama_synchronize(self.context)

    def fill(self, ids, seq, begin=0):
        for at in range(begin, len(ids), UBATCH):
            part = ids[at:at + UBATCH]
            self.step([(t, at + i, seq, at + i == len(ids) - 1) for i, t in enumerate(part)])

    def prefill(self, n_tokens):
        """Seconds of a prompt of n_tokens, of which the last one's logits are wanted."""
        self.open(n_tokens + 1, 1)
        ids = self.some_ids(n_tokens)
        for _ in range(2):  # the first warms up
            self.forget()
            begin = time.monotonic()
            self.fill(ids, 0)
        return time.monotonic() - begin

    def decode(self, n_context, n_steps, n_sequences):
        """Seconds of n_steps of a token for each of n_sequences, that hold n_context tokens at the first."""
        self.open(n_context + n_steps + WARM, n_sequences)
        if self.filled != n_context:
            self.forget()
            for seq in range(n_sequences):
                self.fill(self.some_ids(n_context), seq)
            self.filled = n_context
        words, memory = random.Random(2), self.lib.llama_get_memory(self.context)
        for seq in range(n_sequences):
            self.lib.llama_memory_seq_rm(memory, seq, n_context, -1)
        begin = 0.0
        for i in range(-WARM, n_steps):
            if i == 0:
                begin = time.monotonic()
            self.step([(words.randrange(self.n_vocab), n_context + WARM + i, seq, True) for seq in range(n_sequences)])
        return time.monotonic() - begin


    def logits(self, ids, path):
        self.open(len(ids), 1)
        self.forget()
        with open(path, "wb") as out:
            for at in range(0, len(ids), UBATCH):
                part = ids[at:at + UBATCH]
                self.step([(t, at + i, 0, True) for i, t in enumerate(part)])
                for i in range(len(part)):
                    out.write(ctypes.string_at(self.lib.llama_get_logits_ith(self.context, i), 4 * self.n_vocab))


def main():
    path, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = Llama(path, model, threads)
    info = engine.lib.llama_print_system_info().decode()
    print(json.dumps({"load_s": round(engine.load_s, 3), "info": info}), file=out, flush=True)
    for line in sys.stdin:
        job, tok_s = json.loads(line), None
        if "logits" in job:
            engine.logits(job["logits"], job["out"])
        elif job["steps"]:
            tok_s = job["steps"] * job["batch"] / engine.decode(job["context"], job["steps"], job["batch"])
        else:
            tok_s = job["context"] / engine.prefill(job["context"])
        print(json.dumps({"tok_s": tok_s}), file=out, flush=True)


if __name__ == "__main__":
    main()
