"""Opening a server: options are checked, the model is looked up, nothing else is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steelyard.core.errors import InputError, UnknownNameError
from steelyard.core.types import EMPTY
from steelyard.engine.server import generation
from steelyard.engine.server.address import parse_address, read_key
from steelyard.engine.server.backend import ServerBackend
from steelyard.engine.server.client import Client, Clock
from steelyard.engine.server.loop import Loop
from steelyard.engine.server.models import look_up

if TYPE_CHECKING:
    import httpx

_OWNED = frozenset(
    {"model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed"}
    | {"stop", "n", "stream", "echo", "logprobs", "best_of", "suffix"}
)


def open_server(
    name: str,
    *,
    api: str = "completions",
    concurrency: int = 8,
    rate_limit: float | None = None,
    timeout_s: float = 120.0,
    max_retries: int = 6,
    use_n: bool = False,
    api_key_env: str = "OPENAI_API_KEY",
    max_length: int | None = None,
    system: str | None = None,
    extra: Mapping[str, Any] = EMPTY,
    unlisted: bool = False,
    transport: httpx.AsyncBaseTransport | None = None,
    clock: Clock | None = None,
) -> ServerBackend:
    """Open an OpenAI-compatible server. Asks it which models it serves, and nothing else.

    Args:
        name: ``server:URL#model``; without "#model" the only model that the server lists.
        api: "completions" (text is continued as it is) or "chat" (one user message; the server's template).
        concurrency: requests in flight at once.
        rate_limit: requests per second, None for no limit.
        timeout_s: seconds for one attempt, from the first to the last byte.
        max_retries: further attempts after a failed one, with waiting times of 1, 2, 4, ... up to 60 seconds
            (each shortened by up to half at random), or as long as the server's Retry-After says.
        use_n: ask for all draws of a prompt in one request. Cheaper on some servers, but then draws are not
            reproducible one by one; the run's settings say so.
        api_key_env: the environment variable with the API key. It is sent to this server and nowhere else,
            and never stored; unset means no key.
        max_length: tokens of prompt and continuation together; None takes what the server says, if anything.
        system: the system message of every chat request; part of the identity.
        extra: further fields of every generation request, part of the identity. Sampling defaults that
            OpenAI's protocol does not know are switched off here: llama.cpp restricts draws to top_k=40 and
            min_p=0.05 unless told ``{"top_k": 0, "min_p": 0}``.
        unlisted: accept a model that the server does not list.
        transport: replaces the network, for tests.
        clock: replaces time, for tests.

    Raises:
        InputError: the name, or a number out of range.
        RefusedError: credentials in the URL.
        UnknownNameError: another `api`, or a model that the server does not list.
        MissingError: httpx is not installed.
        BackendError: the server cannot be reached or declines everything.
    """
    if api not in generation.PATHS:
        raise UnknownNameError("server API", api, generation.PATHS)
    _check("concurrency", concurrency, concurrency >= 1, "at least 1")
    _check("rate_limit", rate_limit, rate_limit is None or rate_limit > 0, "above 0 requests per second")
    _check("timeout_s", timeout_s, timeout_s > 0, "above 0 seconds")
    _check("max_retries", max_retries, max_retries >= 0, "at least 0")
    _check("max_length", max_length, max_length is None or max_length >= 1, "at least 1 token")
    if system is not None and api != "chat":
        raise InputError("A system message needs the chat API (api='chat'); a completions server has none.")
    if owned := sorted(_OWNED & set(extra)):
        raise InputError(f"The fields {', '.join(owned)} are set by the study, so they cannot be in extra.")
    address = parse_address(name)
    client = Client(
        address,
        read_key(api_key_env),
        key_name=api_key_env if os.environ.get(api_key_env) else f"{api_key_env}, which is not set",
        timeout_s=timeout_s,
        max_retries=max_retries,
        rate_limit=rate_limit,
        concurrency=concurrency,
        transport=transport,
        clock=clock or Clock(),
    )
    loop = Loop()
    try:
        served = loop.call(look_up(client, address, unlisted=unlisted))
    except BaseException:
        loop.call(client.aclose())
        loop.close()
        raise
    chosen: generation.Api = "chat" if api == "chat" else "completions"
    return ServerBackend(
        loop,
        client,
        address,
        served,
        api=chosen,
        concurrency=concurrency,
        use_n=use_n,
        max_length=max_length,
        system=system,
        extra=extra,
    )


def _check(what: str, value: object, good: bool, expected: str) -> None:
    if not good:
        raise InputError(f"{what} must be {expected}, got {value!r}.")
