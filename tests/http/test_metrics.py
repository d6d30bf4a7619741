#!/usr/bin/env python3
"""/metrics, and that it tells the truth."""
import re
import shutil
import subprocess

from daemon import STORY, Daemon, main, until

NEEDED = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
          "attend_prompt_tokens_total", "attend_completion_tokens_total", "attend_cached_tokens_total",
          "attend_requests_cancelled_total", "attend_steps_total", "attend_kv_pages", "attend_connections"]


def test_O3_form():
    with Daemon() as d:
        answer = d.get("/metrics")
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        types, helped, last = {}, set(), None
        for line in answer.text.splitlines():
            if line.startswith("# HELP "):
                helped.add(line.split(" ")[2])
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in types, f"{name} has two types"
                types[name] = kind
            else:
                found = re.fullmatch(r'([a-zA-Z_:][\w:]*)(\{(\w+="(\\.|[^"\\\n])*",?)*\})? (\S+)', line)
                assert found, line
                float(found[5])
                base = re.sub(r"_(bucket|sum|count)$", "", found[1]) if found[1] not in types else found[1]
                assert base in types and base in helped, f"{found[1]}: no type or help"
                assert (types[base] == "counter") == base.endswith("_total"), base
                assert last in (None, base) or base not in seen, f"{base} is not in one piece"
                seen = {base} if last is None else seen | {base}
                last = base
        if shutil.which("promtool"):
            run = subprocess.run(["promtool", "check", "metrics"], input=answer.text, text=True, capture_output=True,
                                 check=False)
            assert run.returncode in (0, 3), run.stderr


def test_O3_all_series_exist_before_the_first_request():
    with Daemon() as d:
        before = d.metrics()
        for name in NEEDED:
            assert name in before, name
        d.generate(max_tokens=3)
        d.refused("{")
        d.get("/nowhere")
        d.request("PUT", "/health")
        wire = d.send({"prompt": STORY, "max_tokens": 400})
        wire.head()
        wire.reset()
        d.gone()
        new = set(d.metrics()) - set(before)
        assert not new, f"series that were not there: {sorted(new)[:5]}"


def test_requests_by_route_and_status():
    with Daemon() as d:
        def count(route, method, code):
            return d.metrics()[f'attend_requests_total{{route="{route}",method="{method}",code="{code}"}}']

        d.generate(max_tokens=1)
        d.post({"prompt": "x", "max_tokens": 2})
        d.refused("{")
        d.get("/nowhere")
        wire = d.send({"prompt": STORY, "max_tokens": 480, "stream": False, "ignore_eos": True})
        until(lambda: d.busy()["running"] == 1, 5, "it runs")
        wire.reset()
        d.gone()
        assert count("/generate", "POST", 200) == 2 and count("/generate", "POST", 400) == 1
        assert count("none", "any", 404) == 1 and count("/generate", "POST", 499) == 1


def test_tokens_in_out_and_cached():
    with Daemon() as d:
        a, b = d.generate(STORY, max_tokens=9, ignore_eos=True), d.generate(STORY, max_tokens=9, ignore_eos=True)
        m = d.metrics()
        computed = sum(g["usage"]["prompt_tokens"] - g["usage"]["cached_tokens"] for g in (a, b))
        assert m["attend_prompt_tokens_total"] == computed, (m["attend_prompt_tokens_total"], computed)
        assert m["attend_completion_tokens_total"] == 18
        assert m["attend_cached_tokens_total"] == b["usage"]["cached_tokens"] > 0
        assert m["attend_steps_total"] >= 18


def test_histograms():
    with Daemon() as d:
        for _ in range(3):
            d.generate(max_tokens=5, ignore_eos=True)
        m = d.metrics()
        assert m["attend_queue_wait_seconds_count"] == 3 and m["attend_time_to_first_token_seconds_count"] == 3
        assert m["attend_inter_token_seconds_count"] == 12, "4 gaps in each of 3 answers of 5 tokens"
        for name in ("attend_queue_wait_seconds", "attend_time_to_first_token_seconds", "attend_inter_token_seconds",
                     "attend_request_seconds"):
            buckets = [(float(re.search(r'le="([^"]+)"', k)[1].replace("+Inf", "inf")), v)
                       for k, v in m.items() if k.startswith(name + "_bucket")]
            assert buckets[0][0] == 0.001 and buckets[-2][0] >= 2000
            assert [b for b, _ in buckets] == sorted(b for b, _ in buckets)
            assert [v for _, v in buckets] == sorted(v for _, v in buckets), name
            assert buckets[-1][1] == m[name + "_count"]
        assert 0 < m["attend_time_to_first_token_seconds_sum"] < 60


def test_pages_add_up():
    with Daemon() as d:
        d.generate([1] + [300] * 300, max_tokens=20, session="s", ignore_eos=True)
        m = d.metrics()
        by = {s: m[f'attend_kv_pages_by_state{{state="{s}"}}'] for s in ("used", "cached", "free")}
        assert sum(by.values()) == m["attend_kv_pages"], (by, m["attend_kv_pages"])
        assert 0 <= m["vllm:kv_cache_usage_perc"] <= 1 and m["attend_sessions"] == 1
        info = [k for k in m if k.startswith("attend_model_info")]
        assert len(info) == 1 and 'model="model-f32"' in info[0] and m[info[0]] == 1
        assert any(k.startswith('vllm:cache_config_info{block_size="64"') for k in m)
        assert m['attend_memory_bytes{owner="resident"}'] > 1e6


def test_scores_of_a_decode_step():
    with Daemon() as d:
        d.generate([1] + [300] * 40, max_tokens=1, cache=False)
        before = d.metrics()["attend_scores_total"]
        d.generate([1] + [300] * 40, max_tokens=2, ignore_eos=True, cache=False)
        after = d.metrics()["attend_scores_total"]
        # the prompt: 1 + 2 + ... + 41; one decode step at length 41: 42
        assert after - before == 41 * 42 // 2 + 42, after - before


main()
