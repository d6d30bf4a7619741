#!/usr/bin/env python3
"""Many clients at once: fairness, the queue, equal answers in any company."""
import statistics
import threading
import time

from daemon import SLOW, STORY, Daemon, main, open_files, the, together, until

LONG = {"prompt": STORY, "max_tokens": 480, "temperature": 0, "ignore_eos": True}
WORDS = ["Lily", "the dog", "a big tree", "one day", "Tom and Sue", "the moon", "red", "it was", "her mom", "blue"]


def prompt(i):
    return f"{WORDS[i % 10]} {WORDS[i // 10 % 10]} {i}"


def ids(n, seed=0):
    return [1] + [270 + (i * 13 + i // 7 + seed * 31) % 230 for i in range(n - 1)]


def test_256_streaming_clients_all_200_and_equal_to_alone():
    open_files(1024)
    with Daemon() as d:
        bodies = [{"prompt": prompt(i), "max_tokens": 12 + i % 9, "temperature": 0.9, "seed": i, "ignore_eos": True}
                  for i in range(256)]
        alone = [d.generate(**b)["text"] for b in bodies]

        def one(i):
            wire = d.send(bodies[i])
            data = wire.body()
            wire.close()
            return wire.status, data.decode()

        got = together(256, one)
        assert [s for s, _ in got] == [200] * 256, [s for s, _ in got if s != 200]
        wrong = [i for i in range(256) if got[i][1] != alone[i]]
        assert not wrong, f"{len(wrong)} answers differ from those alone: {wrong[:10]}"
        d.gone(within=1)


def test_H2_probes_beside_many_short_requests():
    with Daemon() as d:
        over, times = threading.Event(), []

        def probe():
            while not over.is_set():
                begin = time.monotonic()
                assert d.get("/health").status == 200
                times.append(time.monotonic() - begin)
                time.sleep(0.05)

        prober = threading.Thread(target=probe)
        prober.start()
        together(12, lambda i: [d.generate(prompt(i * 50 + n), max_tokens=3) for n in range(50)])
        together(3, lambda i: d.generate(ids(450, i), max_tokens=2))
        over.set()
        prober.join()
        assert len(times) > 5
        # our own threads compete for the processors, too: the usual probe counts
        assert statistics.median(times) < 0.05 * SLOW, f"median {statistics.median(times) * 1e3:.0f} ms"


def test_H3_one_of_four_asks_for_the_whole_pool():
    with Daemon("--kv-memory", 640 * 64 * 9, "--context", 512) as d:  # 9 pages
        pages = d.metrics()["attend_kv_pages"]
        assert 8 <= pages <= 9, pages
        alone = [d.generate(prompt(i), max_tokens=40, ignore_eos=True, cache=False)["tokens"] for i in range(3)]

        def one(i):
            if i == 3:
                return d.generate(STORY, max_tokens=500, ignore_eos=True)
            return d.generate(prompt(i), max_tokens=40, ignore_eos=True)

        got = together(4, one)
        assert [g["tokens"] for g in got[:3]] == alone
        assert got[3]["usage"]["completion_tokens"] == 500
        d.gone(within=1)
        # more than the pool holds
    with Daemon("--kv-memory", 640 * 64 * 4, "--context", 512, wait=False, expect=1) as d:
        until(lambda: d.process.poll() is not None, 20, "a context that cannot fit is refused at the start")


def test_H4_different_prompts_at_once_as_one_by_one():
    d = the()
    bodies = [{"prompt": prompt(i), "max_tokens": 24, "logprobs": 1, "cache": i % 2 == 0} for i in range(24)]
    alone = [d.generate(**{**b, "cache": False}) for b in bodies]
    for _ in range(2):
        got = together(24, lambda i: d.generate(**bodies[i]))
        for i in range(24):
            assert got[i]["text"] == alone[i]["text"] and got[i]["logprobs"] == alone[i]["logprobs"], f"prompt {i}"


def test_H5_64_clients_at_once_are_queued_or_429():
    with Daemon("--max-running", 4, "--queue", 20) as d:
        def one(i):
            answer = d.post({"prompt": prompt(i), "max_tokens": 20, "stream": bool(i % 2)})
            if answer.status == 429:
                assert answer.headers["Retry-After"] and answer.json()["error"]["code"] == "queue_full"
            return answer.status

        got = together(64, one)  # a reset connection would raise
        assert set(got) <= {200, 429} and got.count(200) >= 24, got
        d.gone(within=1)
        assert d.generate(max_tokens=1)


def test_H7_a_stream_runs_on_beside_a_long_prefill():
    with Daemon("--prefill-chunk", 8) as d:
        stream = d.send(LONG)
        stream.head()
        stream.chunk()
        before = d.metrics()
        other = d.send({"prompt": ids(500), "max_tokens": 1, "temperature": 0, "stream": False})
        other.body()
        assert other.status == 200
        after = d.metrics()
        steps = after["attend_steps_total"] - before["attend_steps_total"]
        made = after["attend_completion_tokens_total"] - before["attend_completion_tokens_total"]
        assert steps > 50, steps
        assert made >= steps - 5, f"{made} tokens of the stream in {steps} steps"
        assert after["attend_longest_step_seconds"] < 0.4 * SLOW, after["attend_longest_step_seconds"]
        stream.close()


def test_H8_queue_full():
    with Daemon("--max-running", 1, "--queue", 1) as d:
        running = d.send(LONG)
        running.head()
        running.chunk()
        waiting = d.send({**LONG, "max_tokens": 1})
        until(lambda: d.busy()["places"] == 2, 5, "both places are taken")
        times = []
        for stream in (True, False, True, False, True):
            begin = time.monotonic()
            answer = d.post({"prompt": "x", "stream": stream})
            times.append(time.monotonic() - begin)
            assert answer.status == 429, answer.status
            assert int(answer.headers["Retry-After"]) >= 1 and answer.headers["Connection"] == "close"
            assert "1 run, 1 wait" in answer.json()["error"]["message"]
        assert min(times) < 0.01 * SLOW, times
        for path in ("/livez", "/readyz", "/health", "/metrics", "/requests"):
            assert d.get(path).status == 200
        running.reset()
        waiting.body()
        d.gone()
        assert d.generate(max_tokens=1)


def test_H9_ends_at_the_default():
    with Daemon("--max-tokens", 33) as d:
        got = d.generate(ignore_eos=True)
        assert (got["usage"]["completion_tokens"], got["finish_reason"]) == (33, "length")


def test_priority():
    with Daemon("--max-running", 1) as d:
        # it fills the socket long before its end, and then runs no further until it is read
        first = d.send({**LONG, "max_tokens": 450, "logprobs": 20}, {"Accept": "application/x-ndjson"})
        first.head()
        order = []

        def later(name, priority):
            d.generate(prompt(len(name)), max_tokens=200, ignore_eos=True, priority=priority)  # long enough to tell ends apart
            order.append(name)

        threads = []
        for name, priority in (("low", -1), ("normal", 0), ("high", 5)):
            threads.append(threading.Thread(target=later, args=(name, priority)))
            threads[-1].start()
            until(lambda n=len(threads): d.busy()["waiting"] == n, 5, f"{name} waits")
        first.chunks()
        for t in threads:
            t.join()
        assert order == ["high", "normal", "low"], order


main()
