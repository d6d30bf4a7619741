#!/usr/bin/env python3
"""One engine of peers.py: OpenVINO GenAI, which reads a GGUF file itself.

    tests/bench/peer_openvino.py MODEL THREADS

Jobs and answers are those of peer_llama.py. All is as the package's defaults have it, but for the number of threads, and the prefix cache: a prompt is computed."""
import json
import os
import random
import sys
import time

SAFE_ID = 30000  # smaller ids are in every vocabulary, and no marks


def main():
    model, threads = sys.argv[1], int(sys.argv[2])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import numpy
    import openvino
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    scheduler.max_num_batched_tokens = 4096
    begin = time.monotonic()
    pipe = openvino_genai.LLMPipeline(model, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=threads)
    load_s = round(time.monotonic() - begin, 3)
    print(json.dumps({"load_s": load_s, "info": "openvino_genai " + openvino_genai.__version__}), file=out, flush=True)

    def run(context, steps, batch):
        """Seconds until the first tokens are there, and from these to the last ones."""
        words = random.Random(time.monotonic_ns())
        ids = numpy.array([[words.randrange(1000, SAFE_ID) for _ in range(context)] for _ in range(batch)], dtype=numpy.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
        answer = pipe.generate(inputs, max_new_tokens=steps + 1, ignore_eos=True, do_sample=False)
        first_s = answer.perf_metrics.get_ttft().mean / 1e3
        return first_s, answer.perf_metrics.get_generate_duration().mean / 1e3 - first_s

    run(64, 4, 1)
    for line in sys.stdin:
        job = json.loads(line)
        first_s, rest_s = run(job["context"], job["steps"], job["batch"])
        tok_s = job["steps"] * job["batch"] / rest_s if job["steps"] else job["context"] / first_s
        print(json.dumps({"tok_s": tok_s}), file=out, flush=True)


if __name__ == "__main__":
    main()
