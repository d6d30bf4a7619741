#!/usr/bin/env python3
"""Sessions and the prefix cache, through `usage` and /sessions."""
import json
import os

from daemon import CHAT, STORY, Daemon, Skip, main, the, together, until


def ids(n, seed=0):
    return [1] + [270 + (i * 13 + i // 7 + seed * 31) % 230 for i in range(n - 1)]


def usage(answer):
    u = answer["usage"]
    return u["prompt_tokens"], u["cached_tokens"]


def test_P1_sessions_A_B_A():
    with Daemon() as d:
        a1 = d.generate(ids(100, 1), max_tokens=8, session="A", ignore_eos=True)
        d.generate(ids(100, 2), max_tokens=8, session="B", ignore_eos=True)
        a2 = d.generate(ids(20, 3)[1:], max_tokens=8, session="A", ignore_eos=True)
        assert usage(a1) == (100, 0) and usage(a2) == (127, 107), (usage(a1), usage(a2))
        assert (a1["session"]["created"], a2["session"]["created"]) == (True, False)
        # the last token of the first answer was returned, but never computed: it is the 108th
        whole = d.generate(ids(100, 1) + a1["tokens"] + ids(20, 3)[1:], max_tokens=8, ignore_eos=True, cache=False)
        assert whole["tokens"] == a2["tokens"], "continued and fresh differ"


def test_P2_the_same_long_prompt_twice():
    with Daemon() as d:
        prompt = ids(300)
        first, second = d.generate(prompt, max_tokens=4), d.generate(prompt, max_tokens=4)
        assert usage(first) == (300, 0) and usage(second) == (300, 299), (usage(first), usage(second))
        assert first["tokens"] == second["tokens"]
        before = d.metrics()["attend_prompt_tokens_total"]
        d.generate(prompt, max_tokens=1)
        assert d.metrics()["attend_prompt_tokens_total"] == before + 1, "the second evaluates one token"
        assert usage(d.generate(prompt, max_tokens=4, cache=False))[1] == 0
        assert usage(d.generate(prompt, max_tokens=4, cache_salt="other"))[1] == 0, "salted prefixes are apart"


def test_P3_prompts_around_a_page_hit_and_miss():
    with Daemon("--page-tokens", 16) as d:
        for pages in (1, 2, 5):
            for n in (16 * pages - 1, 16 * pages, 16 * pages + 1):
                body = {"max_tokens": 12, "logprobs": 2, "ignore_eos": True}
                miss = d.generate(ids(n, pages), **body, cache=False)
                first = d.generate(ids(n, pages), **body)
                hit = d.generate(ids(n, pages), **body)
                assert usage(hit) == (n, n - 1), (n, usage(hit))
                assert miss["logprobs"] == first["logprobs"] == hit["logprobs"], f"{n} tokens: bits differ"


def test_P4_the_same_system_prompt_and_different_secrets():
    with Daemon("--page-tokens", 16) as d:
        system = ids(200)
        secrets = [[400 + i, 410 + i, 420 + i] for i in range(6)]
        alone = [d.generate(system + s, max_tokens=10, cache=False, logprobs=1) for s in secrets]
        for _ in range(2):
            shared = together(6, lambda i: d.generate(system + secrets[i], max_tokens=10, logprobs=1))
            for i in range(6):
                assert shared[i]["logprobs"] == alone[i]["logprobs"], f"secret {i}: another answer beside the others"
        assert usage(d.generate(system + [499], max_tokens=1))[1] >= 192


CHAT_TURNS = [{"role": "system", "content": "You answer in one short sentence."},
              {"role": "user", "content": "What is the capital of France?"}]


def chat():
    if not os.path.exists(CHAT):
        raise Skip(f"{CHAT} is absent (make run fetches it)")
    return Daemon("--context", 1024, model=CHAT)


def test_P5_the_turn_before_is_sent_again():
    with chat() as d:
        first = d.generate(CHAT_TURNS, max_tokens=16, session="c")
        turns = [*CHAT_TURNS, {"role": "assistant", "content": first["text"]}, {"role": "user", "content": "And of Italy?"}]
        second = d.generate(turns, max_tokens=16, session="c")
        assert usage(second)[1] >= first["session"]["tokens"] - 2, (usage(second), first["session"])
        again = d.generate(CHAT_TURNS, max_tokens=16, session="c")
        assert usage(again) == (usage(first)[0], usage(first)[0] - 1), (usage(again), usage(first))
        assert again["text"] == first["text"] and not again["session"]["created"]
        assert again["session"]["tokens"] == first["session"]["tokens"], "it was not rewound"


def test_P6_the_last_message_is_edited():
    with chat() as d:
        first = d.generate(CHAT_TURNS, max_tokens=16, session="c")
        edited = [CHAT_TURNS[0], {"role": "user", "content": "What is the capital of Spain?"}]
        second = d.generate(edited, max_tokens=16, session="c")
        common = usage(second)[1]
        assert 10 < common < usage(first)[0], usage(second)
        assert second["text"] == d.generate(edited, max_tokens=16, cache=False)["text"]


def test_P11_delete_during_its_own_request():
    with Daemon() as d:
        wire = d.send({"prompt": STORY, "max_tokens": 480, "session": "busy", "ignore_eos": True, "temperature": 0},
                      {"Accept": "text/event-stream"})
        wire.head()
        wire.chunk()
        listed = d.get("/sessions/busy").json()
        assert listed["state"] == "running", listed
        for path in ("/sessions/busy/fork", "/sessions/busy/rewind"):
            answer = d.post({"to": "x" if "fork" in path else 1}, path)
            assert answer.status == 409 and answer.json()["error"]["code"] == "session_busy", answer.text
        answer = d.request("DELETE", "/sessions/busy")
        assert (answer.status, answer.json()) == (200, {"id": "busy", "deleted": True}), answer.text
        assert b'"cancelled"' in b"".join(wire.chunks())
        d.gone(within=2)
        assert d.get("/sessions/busy").status == 404


def test_sessions_are_listed_forked_rewound_deleted():
    with Daemon() as d:
        assert d.get("/sessions").json() == {"sessions": []}
        d.generate(ids(100), max_tokens=5, session="one", ignore_eos=True)
        one = d.get("/sessions/one").json()
        assert set(one) == {"id", "tokens", "bytes", "created", "last_used", "state"}, one
        assert (one["id"], one["tokens"], one["state"]) == ("one", 105, "idle"), one
        assert one["bytes"] == 105 * 640, f"2 x 5 layers x 4 KV heads x 8 x 2 bytes a token: {one}"
        assert d.get("/sessions").json() == {"sessions": [one]}

        fork = d.post({"to": "two", "at": 50}, "/sessions/one/fork")
        assert fork.status == 200 and (fork.json()["id"], fork.json()["tokens"]) == ("two", 50), fork.text
        whole = d.post({"to": "three"}, "/sessions/one/fork").json()
        assert whole["tokens"] == 105
        rewound = d.post({"to": 60}, "/sessions/three/rewind").json()
        assert (rewound["id"], rewound["tokens"]) == ("three", 60), rewound
        assert sorted(s["id"] for s in d.get("/sessions").json()["sessions"]) == ["one", "three", "two"]

        more = d.generate([300, 301], max_tokens=4, session="two", ignore_eos=True)
        assert usage(more) == (52, 50), usage(more)
        assert more["tokens"] == d.generate(ids(100)[:50] + [300, 301], max_tokens=4, cache=False, ignore_eos=True)["tokens"]
        assert d.get("/sessions/one").json()["tokens"] == 105, "the fork wrote into the original"

        for name in ("one", "two", "three"):
            assert d.request("DELETE", f"/sessions/{name}").status == 200
            assert d.request("DELETE", f"/sessions/{name}").json()["error"]["code"] == "session_not_found"
        assert d.get("/sessions").json() == {"sessions": []}
        d.gone()


def test_session_requests_that_are_wrong():
    d = the()
    d.generate(ids(20), max_tokens=1, session="w")
    for path, body, status in (
        ("/sessions/none/fork", {"to": "x"}, 404), ("/sessions/none/rewind", {"to": 1}, 404),
        ("/sessions/w/fork", {}, 400), ("/sessions/w/fork", {"to": "a b"}, 400), ("/sessions/w/fork", {"to": 5}, 400),
        ("/sessions/w/fork", {"to": "y", "at": 10_000}, 400), ("/sessions/w/fork", {"to": "y", "at": -1}, 400),
        ("/sessions/w/fork", {"to": "y", "foo": 1}, 400), ("/sessions/w/rewind", {}, 400),
        ("/sessions/w/rewind", {"to": 10_000}, 400), ("/sessions/w/rewind", {"to": "x"}, 400),
        ("/sessions/w/rewind", "x", 400), ("/sessions/a%20b/rewind", {"to": 1}, 404),
    ):
        answer = d.post(body, path)
        assert answer.status == status, f"{path} {body}: {answer.status} {answer.text[:200]}"
        assert answer.json()["error"]["message"]
    assert d.get("/sessions/none").json()["error"]["code"] == "session_not_found"
    assert d.request("DELETE", "/sessions/w").status == 200


def test_one_session_one_request_at_a_time_in_order():
    with Daemon() as d:
        first = d.send({"prompt": ids(50), "max_tokens": 200, "session": "q", "temperature": 0, "ignore_eos": True})
        first.head()
        wires = []
        for i in range(4):
            wires.append(d.send({"prompt": [300 + i], "max_tokens": 3, "session": "q", "temperature": 0,
                                 "ignore_eos": True, "stream": False}))
            until(lambda n=i + 1: d.metrics()["attend_places_used"] >= n, 5, "it is there")
        n = 50 + len(first.chunks())

        for i, wire in enumerate(wires):
            got = json.loads(wire.body())
            assert got["usage"]["prompt_tokens"] >= n, f"request {i} did not wait: {got['usage']}"
            n = got["session"]["tokens"]
        assert d.get("/sessions/q").json()["tokens"] == n


def test_unknown_session_where_none_is_made():
    with Daemon("--no-sessions-auto-create") as d:
        error = d.refused({"prompt": "x", "session": "new"}, status=404)
        assert error["code"] == "session_not_found"
        assert d.generate(max_tokens=1)["session"] is None


main()
