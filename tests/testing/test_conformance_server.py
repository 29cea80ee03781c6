"""The server backend under the conformance suite, against a scripted server with a model of its own."""

from __future__ import annotations

import hashlib
import json

import httpx
import pytest

from steelyard.engine.server import open_server
from steelyard.testing import conformance

MODELS = {"object": "list", "data": [{"id": "m", "owned_by": "us", "created": 1, "max_model_len": 96}]}


def dice(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "big")


def echoed(prompt: str) -> dict:
    """A token is a character; its log-probability depends on all before it."""
    values = [None, *(-(1 + dice(prompt[: n + 1]) % 1000 / 500) for n in range(1, len(prompt)))]
    tops = [None, *({"other": v - 0.5, t: v} for t, v in zip(prompt[1:], values[1:], strict=True))]
    return {
        "tokens": list(prompt),
        "token_logprobs": values,
        "top_logprobs": tops,
        "text_offset": list(range(len(prompt))),
    }


def written(body: dict) -> tuple[str, str]:
    """Some letters after the prompt, as many as allowed, until the model or a stop string ends them."""
    name = (body["prompt"], body.get("seed") if body["temperature"] else None)
    length = 3 + dice(name, "length") % 40
    text = "".join("abcdefgh, "[dice(name, n) % 10] for n in range(min(length, body["max_tokens"])))
    found = [at for stop in body.get("stop", []) if (at := text.find(stop)) >= 0]
    if found:
        return text[: min(found)], "stop"
    return text, "stop" if length <= body["max_tokens"] else "length"


def answer(request: httpx.Request) -> httpx.Response:
    if request.method == "GET":
        return httpx.Response(200, json=MODELS)
    body = json.loads(request.content)
    prompt = body["prompt"]
    if len(prompt) + body["max_tokens"] > 96:
        message = f"This model's maximum context length is 96 tokens, your request has {len(prompt)}."
        return httpx.Response(400, json={"error": {"message": message}})
    if body.get("echo"):
        choice = {"index": 0, "text": prompt, "finish_reason": "length", "logprobs": echoed(prompt)}
        new = 0
    else:
        text, reason = written(body)
        choice, new = {"index": 0, "text": text, "finish_reason": reason}, len(text)
    data = {"choices": [choice], "usage": {"prompt_tokens": len(prompt), "completion_tokens": new}}
    return httpx.Response(200, content=json.dumps(data).encode())  # escaped: half characters are no UTF-8


def connect(**options):
    return open_server("server:http://fake.test/v1#m", transport=httpx.MockTransport(answer), **options)


@pytest.mark.parametrize("check", conformance.pytest_params())
def test_the_server_backend_conforms(check):
    check(connect, reference=lambda: connect(concurrency=1))


def test_a_chat_server_conforms_in_what_it_can_do():
    def chat(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=MODELS)
        body = json.loads(request.content)
        prompt = body["messages"][-1]["content"]
        if len(prompt) + body["max_tokens"] > 96:
            return httpx.Response(400, json={"error": {"message": "too many tokens for the context window"}})
        text, reason = written(body | {"prompt": prompt})
        message = {"role": "assistant", "content": text}
        return httpx.Response(
            200, json={"choices": [{"index": 0, "message": message, "finish_reason": reason}]}
        )

    def make():
        transport = httpx.MockTransport(chat)
        return open_server("server:http://fake.test/v1#m", api="chat", transport=transport)

    results = {result.name: result for result in conformance.report(make)}
    assert not [r for r in results.values() if r.outcome == "failed"]
    assert results["texts_end_before_the_first_stop_string"].outcome == "passed"
    assert results["one_token_is_scored"].outcome == "skipped"
    assert "chat server" in results["one_token_is_scored"].message
