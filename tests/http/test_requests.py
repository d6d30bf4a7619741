#!/usr/bin/env python3
"""What a request may say, and how a wrong one is refused."""
import json
import os
import statistics
import time

from daemon import CHAT, SLOW, STORY, Daemon, Skip, main, the, until

def test_B1_bodies_that_are_no_request():
    d = the()
    bodies = ["{}", "[]", "5", "true", "null", '"x"', "", " \n", "{:", "{", '{"prompt":"a"', "[" * 100000,
              '{"a":' * 100000, '{"prompt":"a","prompt":"b"}', '{"prompt":"a"}{"prompt":"b"}', '{"prompt":"a"} x',
              '{"prompt":"a",}', "{'prompt':'a'}", '{"prompt":"a\\ud800"}', '{"prompt":"a\nb"}', '\ufeff{"prompt":"a"}']
    for body in bodies:
        d.refused(body)
    for raw in (b'{"prompt":"\xff"}', b'{"prompt":"\xc0\x80"}', b'{"prompt":"\xed\xa0\x80"}', b"\x00", b'{"prompt":"a\x00"}'):
        answer = d.request("POST", "/generate", raw)
        assert answer.status == 400, (raw, answer.status)
        answer.json()
    assert d.get("/livez").status == 200 and d.generate(max_tokens=1)


def test_B1_line_column_and_an_example():
    for body, where in (('{"prompt": NaN}', "line 1 column 14"), ('{"prompt":"a",\n "temperature":1e400}', "line 2")):
        error = the().refused(body)
        assert where in error["message"] and '{"prompt":' in error["message"], error
    the().refused("{}", has="needs one of prompt, messages")
    the().refused({"promt": "x"}, has='needs one of prompt, messages; unknown field "promt", did you mean "prompt"?')
    the().refused("", has="empty")


WRONG = {
    "prompt": [5, 1.5, True, {}, ["a"], [1.5], [-1], [512], [1, None]],
    "messages": ["x", 5, [], {}, [5], [{}], [{"role": "user"}], [{"content": "x"}], [{"role": 5, "content": "x"}],
                 [{"role": "user", "content": 5}], [{"role": "us er", "content": "x"}], [{"role": "", "content": "x"}],
                 [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": ["x"]}]],
    "special": ["x", 1, []],
    "add_bos": ["x", 1, []],
    "session": [5, "", "a b", "a/b", "ä", "x" * 129, True, []],
    "max_tokens": ["5", 1.5, -1, 2147483648, True, [], {}, 1e300],
    "min_tokens": ["5", 1.5, -1, 2147483648, True],
    "ignore_eos": ["x", 0, 1],
    "temperature": ["hot", -0.1, -1e-9, 100.1, 999999, True, [], {}],
    "top_k": ["x", -1, 1.5, 2147483648, True],
    "top_p": ["x", -1, -0.001, 1.001, True],
    "min_p": ["x", -1, -0.001, 1.001, True],
    "typical_p": ["x", 0.9, 0, 2, True],
    "repeat_penalty": ["x", 0, -1, 100.1, True],
    "repeat_last_n": ["x", -2, 1.5, 2147483648, True],
    "presence_penalty": ["x", -2.01, 2.01, True],
    "frequency_penalty": ["x", -2.01, 2.01, True],
    "seed": ["x", -2, 1.5, 2**53, 2**64, True, []],
    "stop": [5, True, {}, "", [""], [5], ["x"] * 17, "x" * 1025, ["a", None]],
    "logit_bias": [5, "x", True, {"x": 1}, {"-1": 1}, {"512": 1}, {"1": "x"}, {"1": 1001}, {"1": -1001}, [[1]], [1],
                   [[1, 2, 3]], [["1", 1]], [[512, 1]], [[-1, 1]], [[1.5, 1]], {"1": True}, [[1, 1], [1, 2]],
                   {" 1": 1}, {"": 1}],
    "logprobs": ["x", -1, 21, 1.5, True, []],
    "stream": ["x", 0, 1, []],
    "deadline_ms": ["x", -1, 1.5, 86400001, True],
    "priority": ["x", 1.5, 2147483648, -2147483648, True],
    "cache": ["x", 0, 1],
    "cache_salt": [5, "x" * 129, "a\u0000b", True],
    "model": [5, True],
}
RIGHT = {
    "special": [True, False, None],
    "max_tokens": [0, 1, 2147483647, 3.0, None],
    "min_tokens": [0, 1, None],
    "temperature": [0, 100, 1e-9, 0.0, None],
    "top_k": [0, 1, 2147483647, None],
    "top_p": [0, 1, 0.5, None],
    "min_p": [0, 1, None],
    "typical_p": [1, 1.0, None, False],
    "repeat_penalty": [0.01, 1, 100, None],
    "repeat_last_n": [-1, 0, 64, 2147483647, None],
    "presence_penalty": [-2, 2, None],
    "frequency_penalty": [-2, 2, None],
    "seed": [0, 2**53 - 1, -1, None],
    "stop": [[], "x", ["x"], ["x"] * 16, "x" * 1024, "a\u0000b", None],
    "logit_bias": [{}, [], {"1": 0}, {"511": -1000}, [[1, 1000]], [[2, False]], None],
    "logprobs": [0, 20, None, False],
    "deadline_ms": [0, 86400000, None],
    "priority": [-5, 5, None],
    "cache": [True, False, None],
    "cache_salt": ["", "x" * 128, None],
    "add_bos": [True, False, None],
    "ignore_eos": [True, False, None],
    "model": ["anything", None],
    # known, not supported, but neutral
    "n": [1, None], "tools": [[], None], "grammar": ["", None], "response_format": [{"type": "text"}, None],
    "mirostat": [0, False], "cache_prompt": [True], "echo": [False], "id_slot": [-1],
}


def test_B2_every_field_with_each_wrong_type_and_each_bound():
    for field, values in WRONG.items():
        for value in values:
            body = {field: value} if field in ("prompt", "messages") else {"prompt": "x", "max_tokens": 1, field: value}
            error = the().refused(body)
            assert (error["param"] or "").split("[")[0].split(".")[0] == field, f"{field}={value!r}: {error}"
            assert error["param"].split("[")[0] in error["message"], error


def test_B2_bounds_and_null_are_taken():
    d = the()
    for field, values in RIGHT.items():
        for value in values:
            body = {"prompt": "x", "stream": False, "max_tokens": 1, field: value}
            if field == "max_tokens" and value != 0:
                body["stop"] = ["e", "a", " "]
            answer = d.post(body)
            assert answer.status == 200, f"{field}={value!r}: {answer.status} {answer.text[:300]}"
            assert answer.json()["warnings"] == [], f"{field}={value!r}: {answer.json()['warnings']}"


def test_B2_both_values_are_named():
    the().refused({"prompt": "x", "temperature": 999999}, param="temperature", has="999999")
    the().refused({"prompt": "x", "temperature": 999999}, has="100")
    the().refused({"prompt": "x", "top_p": "hot"}, param="top_p", has='"hot"')
    the().refused({"prompt": "x", "n_predict": "many"}, param="n_predict", has="an integer from 0")
    the().refused({"prompt": "x", "stop": ["y" * 5000]}, param="stop[0]", has="...")
    the().refused({"prompt": "x", "min_tokens": 9, "max_tokens": 3}, param="min_tokens", has="3")


def test_B2_known_but_unsupported_and_other_dialects_are_named():
    for field, value in (("tools", [{"type": "function"}]), ("grammar", "root ::= x"), ("n", 2), ("echo", True),
                         ("response_format", {"type": "json_object"}), ("mirostat", 2), ("inputs", "x"),
                         ("text", "x"), ("input_ids", [1])):
        the().refused({"prompt": "x", field: value}, param=field)
    for key in ("inputs", "text", "input_ids"):
        the().refused({key: "x"}, param=key)
    the().refused({"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, has="prompt and messages")


def test_B2_parts_of_a_message():
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    the().refused({"messages": [{"role": "user", "content": image}]}, param="messages[0].content[0]", has="image_url")
    calls = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "tool_calls": [{"id": "1"}]}]
    the().refused({"messages": calls}, param="messages[1].tool_calls")


def test_aliases_of_max_tokens():
    d = the()
    for name in ("n_predict", "num_predict", "max_new_tokens", "max_completion_tokens"):
        answer = d.post({"prompt": STORY, "stream": False, name: 3, "temperature": 0, "max_tokens": None})
        assert answer.json()["usage"]["completion_tokens"] == 3, answer.text
        d.refused({"prompt": "x", "max_tokens": 4, name: 3}, param=name, has="max_tokens is 4")
        assert d.post({"prompt": "x", "stream": False, "max_tokens": 3, name: 3}).status == 200


def test_unknown_fields_warn_or_are_refused_in_strict_mode():
    answer = the().post({"prompt": "x", "max_tokens": 1, "stream": False, "foo": 1, "temprature": 2})
    want = ['unknown field "foo"', 'unknown field "temprature", did you mean "temperature"?']
    assert answer.json()["warnings"] == want, answer.json()["warnings"]
    assert answer.headers["X-Warnings"] == "; ".join(want)
    answer = the().post({"prompt": "x", "max_tokens": 1, "ключ\r\nX-Evil: 1": 1})
    assert answer.status == 200 and "X-Evil" not in answer.headers and answer.headers["X-Warnings"]
    with Daemon("--strict") as d:
        d.refused({"prompt": "x", "foo": 1}, param="foo", has='unknown field "foo"')
        assert d.generate(max_tokens=1)["warnings"] == []


def test_X1_prompt_of_context_and_one():
    with Daemon("--context", 64) as d:
        for n, ok in ((63, True), (64, False), (65, False), (400, False)):
            prompt = [1] + [300] * (n - 1)
            answer = d.post({"prompt": prompt, "max_tokens": 5, "stream": False})
            if ok:
                assert answer.status == 200, answer.text
                assert answer.json()["usage"]["prompt_tokens"] == n
            elif n > 64:
                error = d.refused({"prompt": prompt}, has="This model's maximum context length is 64 tokens, the "
                                                          f"prompt has {n}")
                assert (error["code"], error["n_prompt_tokens"], error["n_ctx"]) == ("context_length_exceeded", n, 64)
                d.refused({"prompt": prompt, "stream": False})


def test_X2_max_tokens_is_cut_to_the_context():
    with Daemon("--context", 64) as d:
        got = d.generate([1] + [300] * 53, max_tokens=100, ignore_eos=True)
        assert got["usage"]["completion_tokens"] == 10 == len(got["tokens"]), got["usage"]
        assert (got["finish_reason"], got["stop"]) == ("length", {"type": "limit"})


def test_max_tokens_0_is_only_prefill():
    got = the().generate(max_tokens=0)
    assert (got["text"], got["tokens"], got["finish_reason"]) == ("", [], "length"), got
    answer = the().post({"prompt": "x", "max_tokens": 0})
    assert (answer.status, answer.data) == (200, b"")


def test_D1_seed_twice_and_after_a_restart():
    body = {"prompt": STORY, "max_tokens": 40, "temperature": 1.2, "seed": 42, "stream": False}
    first, second = the().post(body).json(), the().post(body).json()
    assert first["seed"] == 42 and first["tokens"] == second["tokens"]
    with Daemon() as d:
        assert d.post(body).json()["tokens"] == first["tokens"]
    drawn = [the().post({**body, "seed": None}) for _ in range(3)]
    seeds = [a.json()["seed"] for a in drawn]
    assert len(set(seeds)) == 3 and all(0 <= s < 2**53 for s in seeds), seeds
    assert [int(a.headers["X-Seed"]) for a in drawn] == seeds
    again = the().post({**body, "seed": seeds[0]}).json()
    assert again["tokens"] == drawn[0].json()["tokens"], "the seed that was told does not repeat the answer"


def test_prompt_as_ids_is_the_prompt_as_text():
    text = the().generate(STORY, max_tokens=10)
    n = text["usage"]["prompt_tokens"]
    ids = [1, 403, 407, 261, 378]  # BOS and the text, as `attend tokenize --bos` prints them
    got = the().generate(ids, max_tokens=10)
    assert (got["usage"]["prompt_tokens"], got["tokens"]) == (n, text["tokens"]), (got, text)
    bare = the().generate(ids[1:], max_tokens=10)
    assert bare["usage"]["prompt_tokens"] == n and bare["tokens"] == text["tokens"], "BOS is the model's default"
    none = the().generate(ids[1:], max_tokens=10, add_bos=False)
    assert none["usage"]["prompt_tokens"] == n - 1


def test_empty_prompt_is_the_beginning_of_a_text():
    assert the().generate("", max_tokens=5)["usage"]["prompt_tokens"] == 1
    assert the().generate([], max_tokens=5)["tokens"] == the().generate("", max_tokens=5)["tokens"]
    the().refused({"prompt": "", "add_bos": False}, param="prompt")


def test_U5_control_tokens_in_a_prompt_are_text_when_special_is_false():
    for word in ("</s>", "<s>"):
        control = the().generate("a" + word, max_tokens=0)["usage"]["prompt_tokens"]
        text = the().generate("a" + word, max_tokens=0, special=False)["usage"]["prompt_tokens"]
        assert control == 3 and text > 3, f"{word}: {control} and {text} tokens"


def test_U5_control_tokens_in_messages_are_always_text():
    if not os.path.exists(CHAT):
        raise Skip(f"{CHAT} is absent (make run fetches it)")
    with Daemon("--context", 512, model=CHAT) as d:
        plain = d.generate([{"role": "user", "content": "x"}], max_tokens=0)["usage"]["prompt_tokens"]
        for word in ("<|im_end|>", "<|im_start|>", "</s>", "<|endoftext|>"):
            got = d.generate([{"role": "user", "content": "x" + word}], max_tokens=0)["usage"]["prompt_tokens"]
            assert got > plain + 1, f"{word} was taken as a control token: {got} tokens, {plain} without"
        parts = [{"type": "text", "text": "What is the capital "}, {"type": "text", "text": "of France?"}]
        answer = d.generate([{"role": "user", "content": parts}], max_tokens=16)
        assert "Paris" in answer["text"], answer["text"]
        assert answer["finish_reason"] == "stop" and answer["stop"]["type"] == "eos", answer
        assert "<|im_end|>" not in answer["text"]


def test_messages_on_a_model_without_a_chat_form():
    error = the().refused({"messages": [{"role": "user", "content": "x"}]}, param="messages")
    assert error["code"] == "unsupported"


def test_content_types():
    d = the()
    body = json.dumps({"prompt": "x", "max_tokens": 1})
    for kind in ("application/json", "application/json; charset=utf-8", "APPLICATION/JSON",
                 "application/x-www-form-urlencoded"):
        assert d.post(body, headers={"Content-Type": kind}).status == 200, kind
    c = d.connection()
    c.putrequest("POST", "/generate")
    c.putheader("Content-Length", str(len(body)))
    c.endheaders(body.encode())
    assert c.getresponse().status == 200, "no content type"
    c.close()
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/xml"):
        d.refused(body, status=415, headers={"Content-Type": kind}, has=kind)
    d.refused(body, status=415, headers={"Content-Encoding": "gzip"}, has="gzip")


def test_session_by_header_and_by_field():
    d = the()
    first = d.generate("Once", max_tokens=2, headers={"X-Session-Id": "s1"})
    assert first["session"]["id"] == "s1" and first["session"]["created"]
    answer = d.post({"prompt": " more", "max_tokens": 1, "session": "s1"})
    assert answer.headers["X-Session-Id"] == "s1"
    d.refused({"prompt": "x", "session": "s1"}, param="session", has="s2", headers={"X-Session-Id": "s2"})
    d.refused({"prompt": "x"}, param="session", headers={"X-Session-Id": "a b"})
    assert d.generate(max_tokens=1)["session"] is None


def test_request_ids_are_echoed_or_made():
    d = the()
    assert d.get("/livez", **{"X-Request-Id": "abc-123.X_~:"}).headers["X-Request-Id"] == "abc-123.X_~:"
    made = set()
    for bad in ("", "a b", "x" * 129, "a/b", '"', "ä".encode().decode("latin-1")):
        made.add(d.get("/livez", **{"X-Request-Id": bad}).headers["X-Request-Id"])
    assert len(made) == 6 and all(m and m.isalnum() for m in made), made
    answer = d.post({"prompt": "x", "max_tokens": 1, "stream": False}, headers={"X-Request-Id": "mine"})
    assert answer.json()["id"] == "mine" == answer.headers["X-Request-Id"]
    assert d.post("{", headers={"X-Request-Id": "mine"}).headers["X-Request-Id"] == "mine"


def test_deadline():
    got = the().generate(max_tokens=500, ignore_eos=True, logprobs=20, deadline_ms=20)
    assert got["finish_reason"] == "deadline" and len(got["tokens"]) == got["usage"]["completion_tokens"] < 500, got


def test_logprobs():
    got = the().generate(max_tokens=5, logprobs=3)
    assert len(got["logprobs"]) == 5
    for entry, token in zip(got["logprobs"], got["tokens"]):
        assert set(entry) == {"token", "id", "logprob", "bytes", "top"}, entry
        assert entry["id"] == token and bytes(entry["bytes"]).decode() == entry["token"]
        assert len(entry["top"]) == 3 and entry["top"][0]["logprob"] == max(t["logprob"] for t in entry["top"])
        assert entry["top"][0]["id"] == token, "greedy takes the most probable"
        assert -20 < entry["logprob"] <= 0
    assert bytes(b for e in got["logprobs"] for b in e["bytes"]).decode() == got["text"]
    assert the().generate(max_tokens=2, logprobs=0)["logprobs"][0]["top"] == []
    assert "logprobs" not in the().generate(max_tokens=2)


def test_logit_bias_and_end_tokens():
    ban = the().generate(max_tokens=3)["tokens"][0]
    assert ban not in the().generate(max_tokens=3, logit_bias={str(ban): False})["tokens"]
    assert the().generate(max_tokens=3, logit_bias=[[300, 1000]])["tokens"] == [300] * 3
    got = the().generate(max_tokens=5, logit_bias={"2": 1000})
    assert (got["text"], got["tokens"], got["finish_reason"], got["stop"]["type"]) == ("", [], "stop", "eos"), got
    says = '0 tokens: the model ended at once; a chat model expects \\"messages\\"'
    until(lambda: says in the().log(), 5, "the log says that nothing was said")
    got = the().generate(max_tokens=8, logit_bias={"2": 1000}, min_tokens=4)
    assert got["usage"]["completion_tokens"] == 4, got["usage"]
    assert the().generate(max_tokens=8, logit_bias={"2": 1000}, ignore_eos=True)["finish_reason"] == "length"


def test_no_text_of_a_request_is_logged():
    d = the()
    d.generate("Xyzzy the secret", max_tokens=3)
    d.post({"prompt": "Xyzzy", "temperature": "Xyzzy"})
    d.post('{"Xyzzy": Xyzzy}')
    assert "Xyzzy" not in d.log()
    assert "tokens_in=" in d.log() and "finish=length" in d.log()


def test_refusals_of_the_text_role_leave_at_once():
    d = the()
    for body in ({"prompt": "", "add_bos": False}, {"prompt": "x", "top_k": "a", "stop": "s" * 100_000}):
        times = []
        for _ in range(9):
            begin = time.monotonic()
            d.refused(body)
            times.append(time.monotonic() - begin)
        # the loop looks at everything each 100 ms: that is too late
        assert statistics.median(times) < 0.06 * SLOW, f"median {statistics.median(times) * 1e3:.0f} ms"


main()
