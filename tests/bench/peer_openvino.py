#!/usr/bin/env python3
"""One engine of peers.py: OpenVINO GenAI, which reads a GGUF file itself.

    tests/bench/peer_openvino.py MODEL THREADS

Jobs and answers are those of peer_llama.py. Logits are those of the graph that the package makes of the file, compiled with
its defaults. All is as the package's defaults have it, but for the number of threads, and the prefix cache: a prompt is computed."""
import json
import os
import random
import sys
import tempfile
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

    def logits(ids, path):
        """All positions' at once: the package itself gives tokens only."""
        if not graph:
            with tempfile.TemporaryDirectory() as folder:
                link = os.path.join(folder, "model.gguf")
                os.symlink(os.path.abspath(model), link)
                openvino_genai.LLMPipeline(link, "CPU", enable_save_ov_model=True, INFERENCE_NUM_THREADS=threads)
                xml = os.path.join(folder, "openvino_model.xml")
                graph.append(openvino.Core().compile_model(xml, "CPU", {"INFERENCE_NUM_THREADS": threads}).create_infer_request())
        row = numpy.array([ids], dtype=numpy.int64)
        graph[0].reset_state()
        answer = graph[0].infer({"input_ids": row, "attention_mask": numpy.ones_like(row),
                                 "position_ids": numpy.arange(len(ids))[None], "beam_idx": numpy.zeros(1, dtype=numpy.int32)})
        next(iter(answer.values())).astype("<f4").tofile(path)

    graph = []
    run(64, 4, 1)
    for line in sys.stdin:
        job, tok_s = json.loads(line), None
        if "logits" in job:
            logits(job["logits"], job["out"])
        else:
            first_s, rest_s = run(job["context"], job["steps"], job["batch"])
            tok_s = job["steps"] * job["batch"] / rest_s if job["steps"] else job["context"] / first_s
        print(json.dumps({"tok_s": tok_s}), file=out, flush=True)


if __name__ == "__main__":
    main()
