"""Generation in OpenAI's protocol: what is sent for a prompt, and what a choice that comes back means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from steelyard.core.errors import InputError
from steelyard.core.types import Finish, Generate, Response, Sampling
from steelyard.engine.server.faults import MisfitError

Api = Literal["completions", "chat"]
PATHS: Mapping[Api, str] = {"completions": "/completions", "chat": "/chat/completions"}

_SENT_STOPS = 4  # OpenAI's limit; more are refused with a 400
_SEED_RANGE = 2**31 - 1  # servers keep seeds in 32 bits, some of them signed


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counts them; 0 where it does not say."""

    prompt: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One text as the server gave it, before stop strings are looked for here.

    Attributes:
        text: may be empty.
        reason: the server's finish reason.
        stopped_by: the stop string that ended it, where the server tells (vLLM), else "".
        n_tokens: tokens of this choice, None where the server does not tell.
    """

    text: str
    reason: str
    stopped_by: str
    n_tokens: int | None


def seed_of(seed: int) -> int:
    """A request's seed in the range that servers accept, [0, 2**31 - 2]."""
    return seed % _SEED_RANGE


def body(
    request: Generate,
    *,
    api: Api,
    model: str,
    n: int,
    system: str | None,
    limit_field: str,
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """The JSON that asks for `n` continuations of one prompt.

    top_p and temperature are always sent, since servers take defaults of their own from the model's
    generation config. The same holds for top_k and min_p, which OpenAI's protocol does not know and strict
    servers refuse: they are sent only where they are set, in the sampling or in `extra`.

    Args:
        request: prompt and sampling.
        api: see `PATHS`.
        model: the model's id at the server.
        n: how many.
        system: the system message of a chat.
        limit_field: "max_tokens", or "max_completion_tokens" for the chat models that want it so.
        extra: further fields.
    """
    sampling = request.sampling
    if "" in sampling.stop:
        raise InputError("An empty stop string would cut every text to nothing; remove it from the study.")
    data: dict[str, Any] = {"model": model}
    if api == "chat":
        messages = [{"role": "user", "content": request.prompt}]
        data["messages"] = [{"role": "system", "content": system}, *messages] if system else messages
    else:
        data["prompt"] = request.prompt
    data |= {
        limit_field: sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stream": False,
    }
    if sampling.top_k is not None:
        data["top_k"] = sampling.top_k
    if request.seed is not None:
        data["seed"] = seed_of(request.seed)
    if sampling.stop:
        # the shortest ones, which tend to come first; what they miss is cut here (see `response`)
        data["stop"] = sorted(sampling.stop, key=lambda stop: (len(stop), stop))[:_SENT_STOPS]
    if n > 1:
        data["n"] = n
    return data | dict(extra)


def read_choices(data: Mapping[str, Any], api: Api) -> tuple[tuple[Choice, ...], Usage]:
    """The choices of an answer in order of their index, and the tokens it cost.

    Raises:
        MisfitError: it is no such answer.
    """
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise MisfitError("expected a list of choices, got none")
    if not all(isinstance(choice, dict) for choice in choices):
        raise MisfitError("a choice is no JSON object")
    ordered = sorted(enumerate(choices), key=lambda pair: _count(pair[1].get("index"), pair[0]))
    return tuple(_read_choice(choice, api) for _, choice in ordered), read_usage(data)


def read_usage(data: Mapping[str, Any]) -> Usage:
    """What the answer says about tokens."""
    usage = data.get("usage")
    if not isinstance(usage, dict):
        return Usage()
    return Usage(_count(usage.get("prompt_tokens"), 0), _count(usage.get("completion_tokens"), 0))


def response(request_id: str, choice: Choice, sampling: Sampling, n_tokens: int | None) -> Response:
    """A choice as a response, cut before the first of all its stop strings.

    Servers differ in what they do with stop strings (some keep them, some look at four only, some at none),
    so the cut is always made again. "stop" from a server covers the end of the text and a stop string
    alike; the finish is STOP only where it is known to be one.

    Args:
        request_id: of the request answered.
        choice: what came.
        sampling: with the stop strings.
        n_tokens: generated tokens, where the answer held one choice and said how many it cost.
    """
    found = [at for stop in sampling.stop if (at := choice.text.find(stop)) >= 0]
    text = choice.text[: min(found)] if found else choice.text
    error = None
    if choice.reason == "content_filter":
        # what came before the filter struck is no answer, but it is a fact
        finish, error = Finish.REFUSED, "the server's content filter ended the text"
    elif found or (choice.reason != "length" and choice.stopped_by in sampling.stop):
        finish = Finish.STOP
    else:
        finish = Finish.LENGTH if choice.reason == "length" else Finish.EOS
    tokens = choice.n_tokens if n_tokens is None else n_tokens
    return Response(
        request_id=request_id,
        text=text,
        n_tokens=tokens or 0,
        n_bytes=len(text.encode("utf-8", "surrogatepass")),
        finish=finish,
        error=error,
    )


def _read_choice(choice: Mapping[str, Any], api: Api) -> Choice:
    reason = choice.get("finish_reason")
    refused = False
    if api == "chat":
        message = choice.get("message")
        if not isinstance(message, dict):
            raise MisfitError("a choice holds no message")
        if "content" not in message:
            raise MisfitError("a message holds no content")
        if message.get("tool_calls"):
            raise MisfitError("the model called a tool instead of answering")
        # null is how the protocol writes "nothing said", such as when all tokens went into reasoning
        text = "" if message["content"] is None else message["content"]
        refused = bool(message.get("refusal"))
    else:
        text = choice.get("text")
    if not isinstance(text, str):
        raise MisfitError(f"expected a text in a choice, got {type(text).__name__}")
    if not isinstance(reason, str):
        # a stream's unfinished choice, or a server that was stopped: half a text must not pass for a whole one
        raise MisfitError("a choice does not say how it ended (finish_reason)")
    if reason not in _REASONS:
        raise MisfitError(f"unknown finish_reason {reason!r}; expected one of {', '.join(sorted(_REASONS))}")
    stopped_by = choice.get("stop_reason")
    return Choice(
        text=text,
        reason="content_filter" if refused else _REASONS[reason],
        stopped_by=stopped_by if isinstance(stopped_by, str) else "",
        n_tokens=_tokens_of(choice.get("logprobs")),
    )


_REASONS = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "eos": "stop",  # text-generation-webui and others
    "eos_token": "stop",  # TGI
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
}
"""Finish reasons of OpenAI's protocol, and the dialects of it that are met."""


def _tokens_of(logprobs: object) -> int | None:
    """Tokens of a choice by its log-probabilities, in the completions' or the chat's way of writing them."""
    if not isinstance(logprobs, dict):
        return None
    lists: list[Sequence[Any]] = [
        part for name in ("tokens", "content") if isinstance(part := logprobs.get(name), list)
    ]
    return len(lists[0]) if lists else None


def _count(value: object, default: int) -> int:
    """A count, or `default` where it is none that could be true: tables hold 64 bits, sums of them included."""
    return value if type(value) is int and 0 <= value < 2**40 else default
