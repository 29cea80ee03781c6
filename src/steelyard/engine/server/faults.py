"""What a server's complaint means: for this request, for the next attempt, or for the whole run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

_ERROR_BODY = 100_000  # bytes, at most
_MESSAGE = 300  # characters of a server's message that are kept


class Kind(StrEnum):
    """What follows from a failure."""

    AGAIN = "again"  # may succeed later
    OVERLONG = "overlong"  # this prompt does not fit
    FILTERED = "filtered"  # a content filter declined the prompt
    REJECTED = "rejected"  # this request is wrong in the server's eyes
    EXHAUSTED = "exhausted"  # every retry failed
    FATAL = "fatal"  # no request can succeed


class MisfitError(ValueError):
    """An answer that is not what the protocol says; the message is a part of a sentence."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer, in words for the user."""

    kind: Kind
    reason: str


# Wordings of OpenAI, vLLM, SGLang, llama.cpp, TGI and others. There is no common code for it.
_OVERLONG = re.compile(
    r"context[ _-]?(length|size|window)|maximum model length|max_model_len|longer than the maximum"
    r"|(prompt|inputs?|messages?|request)\b.{0,60}\btoo (long|large)|too many (input |prompt )?tokens"
    r"|reduce the length|inputs.{0,60}must (be|have).{0,20}<=|(input|prompt|requested) tokens? .{0,20}exceed",
    re.IGNORECASE | re.DOTALL,
)
_FILTERED = re.compile(r"content[ _-]?(filter|policy|management)|responsible ?ai", re.IGNORECASE)
_QUOTA = re.compile(r"insufficient_quota|billing|exceeded your current quota", re.IGNORECASE)

_FATAL = {
    401: "it does not accept the API key (401)",
    402: "it wants to be paid (402)",
    403: "it does not permit this (403)",
    404: "it knows no such address or model (404)",
    405: "it does not offer this (405)",
    410: "it no longer offers this (410)",
    501: "it does not offer this (501)",
}
_AGAIN = {408, 409, 425, 429}


def classify(status: int, body: bytes, scrub: Callable[[str], str]) -> Failure | None:
    """What an HTTP answer means.

    Args:
        status: HTTP status.
        body: as it came.
        scrub: takes secrets out of a text.

    Returns:
        None for a success.
    """
    success = 200 <= status < 300
    # a long success is an answer: it is not read twice
    error = None if success and len(body) > _ERROR_BODY else _error_of(body)
    if success:
        if error is None:
            return None
        # some gateways report the fault of a server behind them inside a success
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
    message = scrub(_message(error, body))
    # the whole error, since servers put the telling word into "code", "type" or the message
    words = f"{error if error is not None else ''} {message}"
    said = f": {message}" if message else ""
    if 300 <= status < 400:
        return Failure(
            Kind.FATAL, f"it redirects ({status}), and a key must not follow; give the final address"
        )
    if status in {400, 413, 422} and (status == 413 or _OVERLONG.search(words)):
        return Failure(Kind.OVERLONG, f"the server says that the prompt is too long ({status}){said}")
    if status in {400, 403, 422, 451} and _FILTERED.search(words):
        return Failure(Kind.FILTERED, f"the server's content filter declined ({status}){said}")
    if status == 429 and _QUOTA.search(words):
        return Failure(Kind.FATAL, f"the quota of this key is used up (429){said}")
    if status in _FATAL:
        return Failure(Kind.FATAL, _FATAL[status] + said)
    if status in _AGAIN or status >= 500 or status < 200:
        return Failure(Kind.AGAIN, f"HTTP status {status}{said}")
    return Failure(Kind.REJECTED, f"the server rejects the request ({status}){said}")


def retry_after(header: str) -> float | None:
    """The seconds that a Retry-After header asks for (RFC 9110, 10.2.3), or None where it asks for none.

    >>> retry_after("2.5"), retry_after("soon")
    (2.5, None)
    """
    text = header.strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except (ValueError, TypeError):
            return None
        # a date in "-0000" comes without a zone and means UTC
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _error_of(body: bytes) -> object:
    """The error object in an answer, None where there is none."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or "choices" in data or isinstance(data.get("data"), list):
        return None
    # "detail": FastAPI; "message": bare objects of older servers
    return next((data[name] for name in ("error", "detail", "message") if data.get(name)), None)


def _message(error: object, body: bytes) -> str:
    text = error.get("message", error) if isinstance(error, dict) else error
    if text is None:
        text = body.decode("utf-8", "replace")
    words = " ".join(str(text).split())
    return words if len(words) <= _MESSAGE else words[:_MESSAGE] + "…"
