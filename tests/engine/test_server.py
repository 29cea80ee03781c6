"""The server backend against scripted servers: no network, no waiting."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from steelyard.core.errors import BackendError, InputError, RefusedError, SteelyardError, UnknownNameError
from steelyard.core.ids import request_id
from steelyard.core.types import Finish, Generate, Likelihood, Sampling, Work
from steelyard.engine.server import client, likelihood, open_server
from steelyard.engine.server.client import Clock

URL = "server:http://fake.test/v1"
KEY = "sk-very-secret-key-0123456789"
MODELS = {"object": "list", "data": [{"id": "m", "owned_by": "us", "created": 1, "max_model_len": 512}]}
GREEDY = Sampling(max_tokens=16)


class FakeClock(Clock):
    """Sleeping takes no time: when nothing else can go on, time jumps to the earliest sleeper's end."""

    def __init__(self):
        self.time, self.slept, self.ends = 0.0, [], []

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.slept.append(seconds)
        end = self.time + seconds
        self.ends.append(end)
        while self.time < end:
            for _ in range(50):  # turns of the loop for whoever is not asleep
                await asyncio.sleep(0)
            if end == min(self.ends):
                self.time = end
        self.ends.remove(end)


class Script:
    """A server whose answers to POST are scripted: a list that is used up, or a function."""

    def __init__(self, answers=(), models=MODELS):
        self.models, self.seen, self.times = models, [], []
        self.answers = answers if callable(answers) else list(answers)
        self.clock = FakeClock()

    def __call__(self, request):
        self.times.append(self.clock.time)
        if request.method == "GET":
            return (
                self.models
                if isinstance(self.models, httpx.Response)
                else httpx.Response(200, json=self.models)
            )
        body = json.loads(request.content)
        self.seen.append((request, body))
        answer = self.answers(body) if callable(self.answers) else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    @property
    def bodies(self):
        return [body for _, body in self.seen]


def completion(*texts, finish="stop", **usage):
    choices = [{"index": i, "text": text, "finish_reason": finish} for i, text in enumerate(texts)]
    return {"choices": choices, "usage": usage or {"prompt_tokens": 3, "completion_tokens": 2}}


def error(status, message="no", **more):
    headers = more.pop("headers", {})
    return httpx.Response(status, json={"error": {"message": message, **more}}, headers=headers)


@pytest.fixture
def connect():
    opened = []

    def make(script, name=URL, **options):
        backend = open_server(name, transport=httpx.MockTransport(script), clock=script.clock, **options)
        opened.append(backend)
        return backend

    yield make
    for backend in opened:
        backend.close()


def as_work(backend, requests):
    return [Work(request_id(backend.identity, r, None), r) for r in requests]


def ask(backend, *requests, batch_size=8):
    work = as_work(backend, requests)
    found = {r.request_id: r for batch in backend.run(work, batch_size=batch_size) for r in batch.responses}
    return [found[piece.request_id] for piece in work]


# ------------------------------------------------------------------------------------------------ generation
def test_a_draw_is_one_request_with_its_own_seed_and_explicit_sampling(connect):
    script = Script([completion(" a"), completion(" b")])
    backend = connect(script, concurrency=1)
    sampling = Sampling(max_tokens=9, temperature=0.7, top_p=0.9, stop=("\n",))
    one, two = ask(backend, Generate("p", sampling, 0, 2**31 - 1 + 5), Generate("p", sampling, 1, 2**62))
    assert (one.text, two.text) == (" a", " b")
    assert (one.finish, one.n_tokens, one.n_bytes, one.logprob) == (Finish.EOS, 2, 2, None)
    first, second = script.bodies
    assert first["seed"] == 5
    assert 0 <= second["seed"] < 2**31 - 1
    assert first | {"seed": 0} == {
        "model": "m",
        "prompt": "p",
        "max_tokens": 9,
        "temperature": 0.7,
        "top_p": 0.9,
        "stream": False,
        "stop": ["\n"],
        "seed": 0,
    }


def test_greedy_has_no_seed_and_top_k_is_sent_only_when_set(connect):
    script = Script([completion("a"), completion("b")])
    ask(connect(script, concurrency=1), Generate("p", GREEDY), Generate("p", Sampling(max_tokens=1, top_k=5)))
    assert not {"seed", "top_k", "n", "stop"} & set(script.bodies[0])
    assert script.bodies[1]["top_k"] == 5


def test_text_is_cut_before_the_first_of_all_stops_also_those_the_server_was_not_told(connect):
    stops = ("\n\n", "Question:", "###", "END", "zzzzzzzzz", "b")
    script = Script([completion("a zzzzzzzzz b ###", finish="length"), completion("fine", finish="length")])
    backend = connect(script, concurrency=1)
    cut, whole = ask(backend, Generate("p", Sampling(16, stops)), Generate("q", Sampling(16, stops)))
    assert (cut.text, cut.finish, cut.n_bytes) == ("a ", Finish.STOP, 2)
    assert (whole.text, whole.finish) == ("fine", Finish.LENGTH)
    assert len(script.bodies[0]["stop"]) == 4


def test_a_server_that_names_its_stop_string_is_believed(connect):
    answer = completion("a")
    answer["choices"][0]["stop_reason"] = "\n"
    (got,) = ask(connect(Script([answer])), Generate("p", Sampling(16, ("\n",))))
    assert got.finish is Finish.STOP


def test_n_asks_for_all_draws_at_once_and_says_so_in_the_identity(connect):
    script = Script([completion("a", "b", "c"), completion("d"), completion("e")])
    backend = connect(script, use_n=True, concurrency=1)
    hot = Sampling(max_tokens=4, temperature=1.0)
    got = ask(
        backend,
        *[Generate("p", hot, draw, draw) for draw in range(3)],
        Generate("q", hot, 0, 1),
        Generate("p", GREEDY),
    )
    assert [r.text for r in got] == ["a", "b", "c", "d", "e"]
    assert [body.get("n", 1) for body in script.bodies] == [3, 1, 1]
    # one number for three texts is nobody's
    assert [r.n_tokens for r in got] == [0, 0, 0, 2, 2]
    assert backend.identity.settings["n"] is True
    assert backend.identity.key() != connect(Script()).identity.key()


def test_n_counts_tokens_by_logprobs_and_marks_texts_that_did_not_come(connect):
    answer = completion("a", "b")
    answer["choices"][1]["logprobs"] = {"content": [{"token": "b"}, {"token": "c"}]}
    script = Script([answer])
    hot = Sampling(max_tokens=4, temperature=1.0)
    got = ask(connect(script, use_n=True), *[Generate("p", hot, draw, draw) for draw in range(3)])
    assert [(r.n_tokens, r.finish) for r in got] == [(0, Finish.EOS), (2, Finish.EOS), (0, Finish.ERROR)]
    assert "use_n=False" in got[2].error


def test_chat_sends_a_message_and_refuses_what_it_cannot_send(connect):
    answers = [
        {"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "message": {"content": None, "refusal": "no"}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "message": {"content": None}, "finish_reason": "length"}]},
    ]
    script = Script(answers)
    backend = connect(script, api="chat", system="Be brief.", concurrency=1)
    hi, refused, empty = ask(backend, *[Generate(text, GREEDY) for text in "xyz"])
    assert script.bodies[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "x"},
    ]
    assert str(script.seen[0][0].url).endswith("/v1/chat/completions")
    assert (hi.text, refused.finish, empty.text, empty.finish) == ("hi", Finish.REFUSED, "", Finish.LENGTH)
    assert backend.chat_prompt("x") == backend.chat_prompt("x", "Be brief.") == "x"
    with pytest.raises(RefusedError, match="system"):
        backend.chat_prompt("x", "Be long.")
    assert not backend.capabilities.likelihood
    assert "hf:" in backend.capabilities.why_not
    assert len(script.seen) == 3  # no probe: a chat server cannot
    with pytest.raises(RefusedError, match="chat"):
        connect(Script()).chat_prompt("x")


def test_a_chat_model_that_wants_the_new_name_of_the_limit_gets_it(connect):
    def answers(body):
        if "max_tokens" in body:
            return error(400, "'max_tokens' is not supported with this model. Use 'max_completion_tokens'.")
        return {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}

    script = Script(answers)
    got = ask(connect(script, api="chat", concurrency=1), Generate("p", GREEDY), Generate("q", GREEDY))
    assert [r.text for r in got] == ["a", "a"]
    assert len(script.seen) == 3


def test_lone_surrogates_in_a_prompt_travel(connect):
    script = Script([httpx.Response(200, text=json.dumps(completion("a\ud800")))])
    (got,) = ask(connect(script), Generate("p\udfff", GREEDY))
    assert script.bodies[0]["prompt"] == "p\udfff"
    assert (got.text, got.n_bytes) == ("a\ud800", 4)


# ---------------------------------------------------------------------------------------------------- faults
@pytest.mark.parametrize(
    "fault",
    [
        error(429),
        error(500),
        error(503),
        httpx.Response(502, text="<html>Bad gateway</html>"),
        httpx.Response(200, text='{"choices": [{"te'),
        httpx.Response(200, text="[" * 100_000),
        httpx.Response(200, json={"choices": []}),
        httpx.Response(200, json={"error": {"message": "upstream", "code": 502}}),
        httpx.Response(200, json={"choices": [{"index": 0, "text": "half", "finish_reason": None}]}),
        httpx.ReadTimeout("slow"),
        httpx.ConnectError("refused"),
        httpx.RemoteProtocolError("peer closed connection without sending complete message body"),
        httpx.ReadError("reset"),
    ],
)
def test_a_passing_fault_is_retried(connect, fault):
    script = Script([fault, fault, completion("a")])
    (got,) = ask(connect(script), Generate("p", GREEDY))
    assert got.text == "a"
    one, two = script.clock.slept
    assert 0.5 <= one <= 1
    assert 1 <= two <= 2


def test_waiting_times_double_up_to_a_minute_and_are_the_requests_own(connect):
    def slept():
        script = Script(lambda _: error(500))
        (got,) = ask(connect(script, max_retries=9), Generate("p", GREEDY))
        assert (got.finish, got.text) == (Finish.ERROR, None)
        assert "10 attempt" in got.error
        return script.clock.slept

    times = slept()
    assert times == slept()
    assert all(min(60, 2**n) / 2 <= t <= min(60, 2**n) for n, t in enumerate(times))


def test_retry_after_holds_every_request(connect):
    script = Script([error(429, headers={"Retry-After": "30"})] + [completion("a")] * 3)
    got = ask(connect(script, concurrency=1), *[Generate(text, GREEDY) for text in "xyz"])
    assert [r.text for r in got] == ["a"] * 3
    # times: the look-up, the refused attempt, then nothing before the pause is over
    assert all(t >= 30 for t in script.times[2:])


def test_a_pause_of_hours_ends_the_run_with_what_is_answered_kept(connect):
    script = Script([completion("a"), error(429, "daily limit", headers={"Retry-After": "7200"})])
    backend = connect(script, concurrency=1)
    run = backend.run(as_work(backend, [Generate("p", GREEDY), Generate("q", GREEDY)]), batch_size=8)
    assert [r.text for r in next(run).responses] == ["a"]
    with pytest.raises(BackendError, match="7200"):
        next(run)


@pytest.mark.parametrize("status", [401, 403, 404, 402, 301])
def test_a_failure_that_every_request_would_meet_ends_the_run_at_once(connect, status):
    script = Script([error(status, f"bad key {KEY}")])
    backend = connect(script, concurrency=1)
    with pytest.raises(BackendError, match=str(status)) as caught:
        ask(backend, *[Generate(text, GREEDY) for text in "xyz"])
    assert len(script.seen) == 1
    assert "OPENAI_API_KEY" in str(caught.value)


def test_an_exhausted_quota_is_not_a_rate_limit(connect):
    script = Script([error(429, "You exceeded your current quota", code="insufficient_quota")])
    with pytest.raises(BackendError, match="quota"):
        ask(connect(script), Generate("p", GREEDY))


@pytest.mark.parametrize(
    ("status", "message", "more"),
    [
        (400, "This model's maximum context length is 4096 tokens. However, you requested 5000", {}),
        (
            400,
            "request (7500 tokens) exceeds the available context size (2048 tokens), try increasing it",
            {},
        ),
        (400, "no", {"code": "context_length_exceeded"}),
        (400, "The decoder prompt (length 900) is longer than the maximum model length of 512.", {}),
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000", {}),
        (413, "Payload Too Large", {}),
    ],
)
def test_a_prompt_that_does_not_fit_is_told_from_other_errors(connect, status, message, more):
    (got,) = ask(connect(Script([error(status, message, **more)])), Generate("p", GREEDY))
    assert got.finish is Finish.ERROR
    assert got.error.startswith("overlong:")


def test_a_rejected_request_costs_only_itself(connect):
    script = Script([error(400, "logprobs must be <= 5"), completion("a")])
    bad, good = ask(connect(script, concurrency=1), Generate("p", GREEDY), Generate("q", GREEDY))
    assert bad.finish is Finish.ERROR
    assert not bad.error.startswith("overlong:")
    assert "must be <= 5" in bad.error
    assert good.text == "a"


def test_content_filters_are_refusals_in_either_form(connect):
    script = Script([completion("half", finish="content_filter"), error(400, "no", code="content_filter")])
    one, two = ask(connect(script, concurrency=1), Generate("p", GREEDY), Generate("q", GREEDY))
    assert one.finish is two.finish is Finish.REFUSED


def test_an_answer_of_the_wrong_kind_is_not_paid_for_seven_times(connect):
    script = Script(lambda _: completion("a", finish="because"))
    (got,) = ask(connect(script), Generate("p", GREEDY))
    assert got.finish is Finish.ERROR
    assert "because" in got.error
    assert len(script.seen) == 3


def test_a_server_that_is_gone_ends_the_run_and_one_that_answers_others_does_not(connect):
    script = Script(lambda _: httpx.ConnectError("Connection refused"))
    backend = connect(script, max_retries=1, concurrency=1)
    with pytest.raises(BackendError, match=r"cannot be reached.*Connection refused"):
        ask(backend, *[Generate(str(i), GREEDY) for i in range(50)])
    assert len(script.seen) == 6

    def flaky(body):
        return completion("a") if int(body["prompt"]) % 3 else httpx.ReadTimeout("slow")

    got = ask(
        connect(Script(flaky), max_retries=1, concurrency=1), *[Generate(str(i), GREEDY) for i in range(30)]
    )
    assert sum(r.finish is Finish.ERROR for r in got) == 10


def test_a_dead_server_is_found_out_when_opened(connect):
    with pytest.raises(BackendError, match="does not say which models"):
        connect(Script(models=httpx.Response(500)))


# ------------------------------------------------------------------------------------------------------ pace
def test_the_rate_limit_spaces_every_attempt(connect):
    script = Script([completion("a"), error(500), *[completion("a")] * 7])
    backend = connect(script, rate_limit=4.0, concurrency=5)
    ask(backend, *[Generate(str(i), GREEDY) for i in range(8)])
    assert len(script.times) == 10
    gaps = [b - a for a, b in zip(script.times, script.times[1:], strict=False)]
    assert all(gap >= 0.25 - 1e-9 for gap in gaps)


def test_concurrency_is_used_and_never_exceeded_and_answers_may_come_in_any_order():
    lock, busy, most, barrier = threading.Lock(), 0, 0, threading.Barrier(4)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def send(self, data):
            body = json.dumps(data).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.send(MODELS)

        def do_POST(self):
            nonlocal busy, most
            prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
            with lock:
                busy += 1
                most = max(most, busy)
            if int(prompt) < 4:
                barrier.wait(10)  # only four at once get through
            time.sleep(0.002 * (7 - int(prompt) % 7))
            with lock:
                busy -= 1
            self.send(completion(f"to {prompt}"))

    with _serve(Handler) as url:
        backend = open_server(url, concurrency=4)
        work = as_work(backend, [Generate(str(i), GREEDY) for i in range(20)])
        batches = list(backend.run(work, batch_size=3))
        backend.close()
    found = {r.request_id: r.text for batch in batches for r in batch.responses}
    assert found == {piece.request_id: f"to {piece.request.prompt}" for piece in work}
    assert max(len(batch.responses) for batch in batches) <= 3
    assert sum(batch.asked for batch in batches) == 20 * 5
    assert most == 4


def test_a_real_connection_that_is_cut_dripped_or_stalled_is_retried():
    calls = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            self._send(json.dumps(MODELS).encode())

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            calls.append(0)
            body = json.dumps(completion("whole")).encode()
            if len(calls) == 1:
                self._send(body[:20], len(body))  # cut off in the middle
            elif len(calls) == 2:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                for byte in body[:15]:  # a byte now and then defeats a timeout per read
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(0.1)
            else:
                self._send(body)

        def _send(self, body, length=None):
            self.send_response(200)
            self.send_header("Content-Length", str(length or len(body)))
            self.end_headers()
            self.wfile.write(body)

    class Quick(Clock):
        async def sleep(self, seconds):
            pass

    with _serve(Handler) as url:
        backend = open_server(url, timeout_s=0.5, clock=Quick())
        (got,) = ask(backend, Generate("p", GREEDY))
        backend.close()
    assert got.text == "whole"
    assert len(calls) == 3


class _serve:  # noqa: N801 - a context manager
    def __init__(self, handler):
        class Server(ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # a client that gave up is part of the test

        self.server = Server(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self):
        self.thread.start()
        return f"server:http://127.0.0.1:{self.server.server_port}/v1"

    def __exit__(self, *exc):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def test_what_is_done_is_not_asked_and_cancelling_keeps_what_came(connect):
    script = Script(lambda body: completion(body["prompt"]))
    backend = connect(script, concurrency=1)
    work = as_work(backend, [Generate(str(i), GREEDY) for i in range(6)])
    done = {piece.request_id for piece in work[::2]}
    got = [r.text for batch in backend.run(work, done, batch_size=2) for r in batch.responses]
    assert sorted(got) == ["1", "3", "5"]
    assert not list(backend.run(work, {p.request_id for p in work}, batch_size=2))
    assert not [
        r for b in backend.run(work, batch_size=2, cancelled=lambda: True) for r in b.responses if r.error
    ]
    run = backend.run(work, batch_size=1)
    next(run)
    run.close()  # the reader stops: nothing hangs, and closing the backend drops the rest
    backend.close()
    backend.close()
    with pytest.raises(BackendError, match="closed"):
        ask(backend, Generate("p", GREEDY))


def test_an_answer_too_large_to_keep_is_an_error_and_no_sign_that_the_server_is_gone(connect, monkeypatch):
    monkeypatch.setattr(client, "_LARGEST_BODY", 1000)
    script = Script(lambda body: completion("x" * 2000 if "long" in body["prompt"] else "x"))
    backend = connect(script, concurrency=1)
    *large, small = ask(backend, *[Generate(f"long {i}", GREEDY) for i in range(4)], Generate("p", GREEDY))
    assert small.text == "x"
    for response in large:
        assert response.finish is Finish.ERROR
        assert "larger than" in response.error
    assert len(script.seen) == 4 * 3 + 1  # the same comes again: seven attempts would only pay for it


def test_counts_that_cannot_be_true_are_not_believed(connect):
    far = 10**30
    responses = ask(
        connect(Script([completion("x", prompt_tokens=far, completion_tokens=far)])), Generate("p", GREEDY)
    )
    assert (responses[0].text, responses[0].n_tokens) == ("x", 0)


# ------------------------------------------------------------------------------------------------ likelihood
def echo_server(tokenize, *, refuse_zero=False, bos=False):
    """An honest server: token i of a text has log-probability -(i + 1) / 8, and every third is the argmax."""

    def answer(body):
        if not body.get("echo"):
            return completion("x")
        if refuse_zero and body["max_tokens"] == 0:
            return error(400, "max_tokens must be at least 1")
        tokens = (["<s>"] if bos else []) + tokenize(body["prompt"])
        tokens += [" made"] if body["max_tokens"] else []
        values = [None, *(-(i + 1) / 8 for i in range(1, len(tokens)))]
        tops = [
            None if v is None else {"other": v + (0 if i % 3 else 1), t: v}
            for i, (t, v) in enumerate(zip(tokens, values, strict=True))
        ]
        offsets = [sum(map(len, tokens[:i])) for i in range(len(tokens))]
        logprobs = {"tokens": tokens, "token_logprobs": values, "text_offset": offsets, "top_logprobs": tops}
        choice = {"index": 0, "text": "".join(tokens), "finish_reason": "length", "logprobs": logprobs}
        return {"choices": [choice], "usage": {"prompt_tokens": len(tokens), "completion_tokens": 0}}

    return answer


def words(text):
    """Words with the space before them, as GPT-like tokenizers have them."""
    import re

    return re.findall(r" ?[^\s]+|\s", text)


@pytest.mark.parametrize("refuse_zero", [False, True])
@pytest.mark.parametrize("bos", [False, True])
def test_an_honest_echo_server_scores_the_continuation(connect, refuse_zero, bos):
    script = Script(echo_server(words, refuse_zero=refuse_zero, bos=bos))
    backend = connect(script, concurrency=1)
    assert backend.capabilities.likelihood
    probes = len(script.seen)
    one, two = ask(backend, Likelihood("one two", " three four"), Likelihood("one", " two"))
    first = 2 + bos  # index of the first scored token
    assert one.logprob == pytest.approx(-(first + 1) / 8 - (first + 2) / 8)
    assert (one.n_tokens, one.n_bytes, one.finish) == (2, len(" three four"), Finish.SCORED)
    assert one.greedy is False
    assert two.greedy is True  # tokens 1 and 2 are argmax, 3 is not
    assert backend.capabilities.likelihood
    assert len(script.seen) == probes + 2  # probed once


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("-Infinity", "not finite"),
        ("NaN", "token 2 is 'nan'"),
        ("-1" + "0" * 400, "token 2"),
        ("1", "token 2"),
    ],
)
def test_a_log_probability_that_is_none_is_an_error_of_its_request_alone(connect, value, what):
    honest = echo_server(words)

    def answer(body):
        text = json.dumps(honest(body))
        if "odd" in body["prompt"]:
            text = text.replace("-0.375", value)  # the third token's
        return httpx.Response(200, text=text)

    odd, before, plain = ask(
        connect(Script(answer), concurrency=1),
        Likelihood("one odd", " three"),
        Likelihood("one two three four", " five"),
        Likelihood("one two", " three"),
    )
    assert odd.finish is Finish.ERROR
    assert what in odd.error
    assert odd.logprob is None
    assert before.finish is plain.finish is Finish.SCORED


def test_an_infinity_in_the_context_does_no_harm(connect):
    honest = echo_server(words)

    def answer(body):
        return httpx.Response(
            200, text=json.dumps(honest(body)).replace("-0.25", "-Infinity")
        )  # the second token's

    (response,) = ask(connect(Script(answer), concurrency=1), Likelihood("one two three", " four"))
    assert response.logprob == pytest.approx(-4 / 8)


def test_white_space_of_the_context_and_a_token_over_the_join_are_scored_with_the_continuation(connect):
    backend = connect(Script(echo_server(words)), concurrency=1)
    plain, moved, inside = ask(
        backend, Likelihood("a b", " c"), Likelihood("a b ", "c"), Likelihood("a b xx", "yy")
    )
    assert plain.logprob == moved.logprob == inside.logprob == pytest.approx(-3 / 8)
    assert inside.n_tokens == 1
    assert inside.n_bytes == 2


def test_an_empty_context_needs_a_first_probability(connect):
    (without,) = ask(connect(Script(echo_server(words))), Likelihood("", "a b"))
    assert without.finish is Finish.ERROR
    assert "first token" in without.error
    (spanning,) = ask(connect(Script(echo_server(words))), Likelihood("Ans", "wer b"))
    assert spanning.finish is Finish.ERROR
    (with_bos,) = ask(connect(Script(echo_server(words, bos=True))), Likelihood("", "a b"))
    assert with_bos.logprob == pytest.approx(-(2 + 3) / 8)


@pytest.mark.parametrize(
    "spell",
    [
        lambda text: [
            c if ord(c) < 128 else "bytes:" + "".join(f"\\x{b:02x}" for b in c.encode()) for c in text
        ],
        lambda text: [p for c in text for p in ([c] if ord(c) < 128 else ["", c])],
    ],
)
def test_parts_of_characters_are_spelled_either_way(connect, spell):
    got, *_ = ask(connect(Script(echo_server(spell))), Likelihood("ä:", "öü"))
    expected = len(spell("öü"))
    assert (got.n_tokens, got.n_bytes) == (expected, 4)


def test_a_server_that_shortens_a_prompt_is_found_out_on_that_request(connect):
    def answer(body):
        return echo_server(words)(body | {"prompt": body["prompt"][-90:]})

    backend = connect(Script(answer), concurrency=1)
    assert backend.capabilities.likelihood
    long, short = ask(backend, Likelihood("w " * 200, "end"), Likelihood("a b", " c"))
    assert long.finish is Finish.ERROR
    assert "do not spell the prompt" in long.error
    assert short.finish is Finish.SCORED


def _content_only(body):
    """llama.cpp's way: echo is ignored, log-probabilities come in the chat's form."""
    answer = completion(" Paris", finish="length")
    answer["choices"][0]["logprobs"] = {"content": [{"token": " Paris", "logprob": -0.2, "top_logprobs": []}]}
    return answer


def _generated_only(body):
    answer = completion(" x", finish="length")
    answer["choices"][0]["logprobs"] = {"tokens": [" x"], "token_logprobs": [-0.1], "text_offset": [0]}
    return answer


def _no_numbers(body):
    answer = echo_server(words)(body)
    answer["choices"][0]["logprobs"]["token_logprobs"] = [None] * len(words(body["prompt"]))
    return answer


def _no_offsets(body):
    answer = echo_server(words)(body)
    del answer["choices"][0]["logprobs"]["text_offset"]
    return answer


def _probabilities(body):
    answer = echo_server(words)(body)
    logprobs = answer["choices"][0]["logprobs"]
    logprobs["token_logprobs"] = [None if v is None else math.exp(v) for v in logprobs["token_logprobs"]]
    return answer


@pytest.mark.parametrize(
    "liar",
    [
        _content_only,
        _generated_only,
        _no_numbers,
        _no_offsets,
        _probabilities,
        lambda body: completion(body["prompt"]),
        lambda _: error(400, "Setting 'echo' and 'logprobs' at the same time is not supported"),
        echo_server(lambda text: words(text.lower())),
        echo_server(lambda text: [text]),
    ],
)
def test_the_probe_refuses_servers_that_do_not_give_it(connect, liar):
    script = Script(liar)
    backend = connect(script)
    capabilities = backend.capabilities
    assert not capabilities.likelihood
    assert capabilities.generate
    for word in ("nlg", "vLLM", "hf:"):
        assert word in capabilities.why_not
    assert len(script.seen) <= 2
    assert all(body["prompt"] == likelihood.PROBE for body in script.bodies)
    with pytest.raises(RefusedError):
        ask(backend, Likelihood("a", " b"))


def test_an_empty_continuation_is_named_and_kills_nothing(connect):
    backend = connect(Script(echo_server(words)), concurrency=1)
    with pytest.raises(InputError, match="empty"):
        backend.encode(Likelihood("a", ""))
    bad, good = ask(backend, Likelihood("a b", ""), Likelihood("a b", " c"))
    assert (bad.finish, good.finish) == (Finish.ERROR, Finish.SCORED)


# -------------------------------------------------------------------------------------- names, models and key
def test_identity_is_what_the_server_says_and_says_again_tomorrow(connect):
    def digest(name=URL, **entry):
        return connect(Script(models={"data": [{"id": "m", **entry}]}), name).identity.weights_digest

    assert digest(created=1, permission=[{"id": "x1"}]) == digest(created=2, permission=[{"id": "x2"}])
    assert digest(meta={"n_params": 5, "n_ctx": 10}) == digest(meta={"n_params": 5, "n_ctx": 20})
    assert digest(root="a") != digest(root="b")
    assert (
        digest()
        == digest(URL + "/")
        == digest(URL.upper().replace("SERVER:HTTP", "server:HTTP").replace("V1", "v1"))
    )
    assert digest() != digest("server:http://other.test/v1")
    backend = connect(Script())
    assert backend.identity.model == "server:http://fake.test/v1#m"
    assert backend.identity.backend == "server"
    assert backend._max_length == 512


def test_a_list_of_models_with_odd_fields_is_read_all_the_same(connect):
    entry = {"id": "m", "aliases": 5, "meta": "x", "max_model_len": "long", "root": None}
    backend = connect(Script(models={"data": [entry, "no model", {"id": 3}]}), name=f"{URL}#m")
    assert backend.identity.model.endswith("#m")


def test_a_model_must_be_named_where_there_are_several_and_exist(connect):
    two = {"data": [{"id": "llama:latest"}, {"id": "qwen"}]}
    with pytest.raises(InputError, match=r"llama:latest, qwen"):
        connect(Script(models=two))
    assert connect(Script(models=two), URL + "#llama").identity.model.endswith("#llama:latest")
    with pytest.raises(UnknownNameError, match="Did you mean qwen"):
        connect(Script(models=two), URL + "#qwem")
    assert connect(Script(models=two), URL + "#new", unlisted=True).identity.model.endswith("#new")
    assert connect(Script(models=error(404)), URL + "#any").identity.model.endswith("#any")
    with pytest.raises(BackendError):
        connect(Script(models=error(404)))
    with pytest.raises(BackendError, match="401"):
        connect(Script(models=error(401)), URL + "#any")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("server:http://user:pass@host/v1", RefusedError),
        ("server:http://:pass@host/v1", RefusedError),
        ("server:ftp://host/v1", InputError),
        ("server:host:8000", InputError),
        ("server:http://host/v1?api_key=pass", InputError),
        ("server:http://host/v1/chat/completions", InputError),
        ("server:http://pass@host:port/v1", SteelyardError),
        ("server:http://[pass/v1", InputError),
        ("hf:a/b", InputError),
    ],
)
def test_a_bad_address_is_refused_without_repeating_a_password(connect, name, kind):
    with pytest.raises(kind) as caught:
        connect(Script(), name)
    assert "pass" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"rate_limit": 0.0},
        {"timeout_s": 0.0},
        {"max_retries": -1},
        {"max_length": 0},
        {"system": "x"},
        {"extra": {"seed": 1}},
    ],
)
def test_options_out_of_range_are_named(connect, options):
    with pytest.raises(InputError, match=next(iter(options)).replace("system", "system message")):
        connect(Script(), **options)


def test_extra_fields_are_sent_and_are_part_of_the_identity(connect):
    script = Script([completion("a")])
    backend = connect(script, extra={"min_p": 0})
    ask(backend, Generate("p", GREEDY))
    assert script.bodies[0]["min_p"] == 0
    assert backend.identity.key() != connect(Script()).identity.key()


def test_the_api_is_a_known_one(connect):
    with pytest.raises(UnknownNameError, match="Did you mean completions"):
        connect(Script(), api="completion")


def test_the_key_goes_to_the_server_and_nowhere_else(connect, monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", f"  {KEY}\n")
    caplog.set_level(logging.DEBUG)
    leaks = []
    script = Script(
        [
            completion("fine"),
            error(400, f"bad {KEY}"),
            completion(f"your key is {KEY}"),
            httpx.Response(200, text=json.dumps(completion(KEY)).replace("sk-", "\\u0073k-")),
            httpx.ConnectError(f"header {KEY}"),
            error(401, f"Incorrect API key provided: {KEY}"),
        ]
    )
    backend = connect(script, concurrency=1, max_retries=2)
    work = as_work(backend, [Generate(text, GREEDY) for text in "wxyz"])
    try:
        leaks.extend(map(repr, backend.run(work, batch_size=1)))
    except BackendError as caught:
        error_seen = caught
        while error_seen is not None:
            leaks += [str(error_seen), repr(error_seen)]
            error_seen = error_seen.__cause__ or error_seen.__context__
    assert script.seen[0][0].headers["Authorization"] == f"Bearer {KEY}"
    leaks += [repr(backend), repr(backend.identity), json.dumps(backend.identity.key()), caplog.text]
    leaks += [repr(vars(backend._asker)), repr(vars(backend._asker._client))]
    assert "fine" in leaks[0]
    assert len(leaks) > 8
    assert not [text for text in leaks if KEY in text]


def test_a_key_that_cannot_be_a_header_is_not_quoted(connect, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret\u201dpart two")
    with pytest.raises(InputError, match="MY_KEY") as caught:
        connect(Script(), api_key_env="MY_KEY")
    assert "secret" not in str(caught.value)


def test_without_a_key_no_header_is_sent(connect, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    script = Script([completion("a")])
    ask(connect(script), Generate("p", GREEDY))
    assert "Authorization" not in script.seen[0][0].headers
