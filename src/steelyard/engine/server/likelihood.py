"""Log-likelihoods from a completions server that echoes the prompt with log-probabilities.

Few servers can: vLLM does; llama.cpp accepts ``echo`` and ignores it; chat servers cannot at all. So a server
is believed only after a known text came back token by token, and every later answer is checked the same way:
a server that truncates a prompt, or computes another text than was asked, is found out on that request.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.core.types import Finish, Likelihood, Response
from steelyard.engine.server.faults import MisfitError

PROBE = "The steelyard weighs one thing, then 23 others; it never guesses."
"""Several words, digits and punctuation, but plain ASCII: whether a server spells the parts of a split
character correctly is no reason to refuse it (texts that it does spell wrongly fail one by one)."""

WAY_OUT = (
    "Ask for generated answers instead (form nlg), or take a server that echoes prompts with "
    "log-probabilities (vLLM, with --api completions), or a local model (hf:name)."
)

_HIGHEST = 1e-3  # nats; rounding can lift a certain token a little above 0
_LOWEST = -(10**30)  # nats; servers write -9999 where they mean "never"
_ESCAPED = re.compile(r"bytes:((?:\\x[0-9a-fA-F]{2})+)")


@dataclass(frozen=True, slots=True)
class Echo:
    """The tokens of an echoed prompt.

    Attributes:
        ends: for each token, the number of UTF-8 bytes of the prompt up to its end.
        logprobs: nats, None where the server gives none (the first token has no context).
        top: whether the token was the likeliest one; None where unknown.
    """

    ends: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    top: tuple[bool | None, ...]


def body(text: str, *, model: str, max_tokens: int) -> dict[str, Any]:
    """The JSON that asks for the log-probabilities of a text.

    Args:
        text: the prompt.
        model: the model's id at the server.
        max_tokens: 0, or 1 for servers that refuse 0; the generated token is dropped.
    """
    return {
        "model": model,
        "prompt": text,
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "echo": True,
        "logprobs": 1,
        "stream": False,
    }


def read_echo(data: Mapping[str, Any], text: str) -> Echo:
    """The echoed tokens of a prompt.

    Args:
        data: the server's answer.
        text: the prompt: the tokens must spell it, then whatever was generated. A leading token without a
            log-probability may spell something else (BOS).

    Raises:
        MisfitError: the answer does not hold this, and says what it holds instead.
    """
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    logprobs = choice.get("logprobs") if isinstance(choice, dict) else None
    if not isinstance(logprobs, dict):
        raise MisfitError("it returned no log-probabilities")
    if "tokens" not in logprobs and isinstance(logprobs.get("content"), list):
        raise MisfitError("it returned log-probabilities of the generated tokens only, not of the prompt's")
    tokens, values, offsets = (logprobs.get(name) for name in ("tokens", "token_logprobs", "text_offset"))
    if not (isinstance(tokens, list) and isinstance(values, list) and len(tokens) == len(values)):
        raise MisfitError("it returned no list of tokens with as many log-probabilities")
    if not (
        isinstance(offsets, list) and len(offsets) == len(tokens) and all(type(at) is int for at in offsets)
    ):
        raise MisfitError("it returned no text offset for every token")
    if not all(isinstance(token, str) for token in tokens):
        raise MisfitError("a token is no text")
    pieces = [_spelled(token) for token in tokens]
    wanted = text.encode("utf-8", "surrogatepass")
    first = _first_piece(pieces, values, wanted)
    ends, at = [0] * first, 0
    for piece in pieces[first:]:
        if at >= len(wanted):
            break  # what follows was generated
        at += len(piece)
        ends.append(at)
    if ends and ends[-1] > len(wanted):
        raise MisfitError("a token spans the end of the prompt and generated text")
    count = len(ends)
    tops = logprobs.get("top_logprobs")
    best = tops if isinstance(tops, list) and len(tops) == len(tokens) else [None] * len(tokens)
    numbers = tuple(_number(value, index) for index, value in enumerate(values[:count]))
    return Echo(tuple(ends), numbers, tuple(map(_is_top, numbers, best[:count])))


def score(request_id: str, request: Likelihood, echo: Echo) -> Response:
    """The log-likelihood of the continuation, from the echo of context and continuation together.

    As with local models, white space at the end of the context counts with the continuation, and where a
    token spans the join, the scored part begins with that token: it may hold the end of the context.

    Args:
        request_id: of the request.
        request: what was asked.
        echo: of ``request.context + request.continuation``.
    """
    join = len(request.context.rstrip().encode("utf-8", "surrogatepass"))
    start = _start(echo, join)
    scored = echo.logprobs[start:]
    if not scored or any(value is None for value in scored):
        reason = (
            "the server gives no probability for the first token of a text, and this text is scored from its "
            "first token on; ask with a context that is not empty"
        )
        return Response(request_id=request_id, finish=Finish.ERROR, error=reason)
    tops = echo.top[start:]
    total = math.fsum(value for value in scored if value is not None)
    if not math.isfinite(total):
        reason = f"the server gave a log-probability of {total}, which is not finite"
        return Response(request_id=request_id, finish=Finish.ERROR, error=reason)
    return Response(
        request_id=request_id,
        logprob=total,
        greedy=None if None in tops else all(tops),
        n_tokens=len(scored),
        n_bytes=len(request.continuation.encode("utf-8", "surrogatepass")),
        finish=Finish.SCORED,
    )


def _start(echo: Echo, join: int) -> int:
    """The index of the first scored token: the first that ends after the join."""
    start = next((index for index, end in enumerate(echo.ends) if end > join), len(echo.ends))
    # a character of several tokens is spelled by its last one, the others come empty: they go with it
    while (
        start
        and echo.logprobs[start - 1] is not None
        and echo.ends[start - 1] == (echo.ends[start - 2] if start > 1 else 0)
    ):
        start -= 1
    return start


def _spelled(token: str) -> bytes:
    r"""The bytes of a token; OpenAI and vLLM write a part of a character as "bytes:\xe2\x80"."""
    if match := _ESCAPED.fullmatch(token):
        return bytes.fromhex(match[1].replace("\\x", ""))
    return token.encode("utf-8", "surrogatepass")


def _first_piece(pieces: list[bytes], values: list[object], wanted: bytes) -> int:
    """The index of the first token of the prompt: 0, or 1 behind a BOS."""
    for first in (0, 1):
        if b"".join(pieces[first:]).startswith(wanted) and (first == 0 or values[0] is None):
            return first
    got = b"".join(pieces).decode("utf-8", "replace")
    shown = got if len(got) <= 60 else got[:60] + "…"
    raise MisfitError(f"its tokens do not spell the prompt but {shown!r}")


def _number(value: object, index: int) -> float | None:
    if value is None and index == 0:
        return None
    # False for NaN as well; an integer may be too large for a float; -inf is a fact, and `score` judges it
    if isinstance(value, float) and value <= _HIGHEST:
        return value
    if type(value) is int and _LOWEST <= value <= _HIGHEST:
        return float(value)
    raise MisfitError(
        f"the log-probability of token {index} is {str(value)[:40]!r}, expected a number of at most 0"
    )


def _is_top(value: float | None, best: object) -> bool | None:
    """Whether no other token was likelier; the server lists the likeliest one and the token itself."""
    if value is None or not isinstance(best, dict) or not best:
        return None
    others = [other for other in best.values() if isinstance(other, int | float)]
    return value >= max(others) if others else None
