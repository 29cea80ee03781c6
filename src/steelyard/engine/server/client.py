"""One question to one server, asked until it is answered: pace, retries, and which failures end the run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from steelyard.core.errors import BackendError, missing_package
from steelyard.core.rng import stream
from steelyard.engine.server.address import Address, Secret
from steelyard.engine.server.faults import Failure, Kind, MisfitError, classify, retry_after

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

_BACKOFF_S = 1.0  # before the first retry, doubled for each further one
_BACKOFF_CAP_S = 60.0
_LONGEST_WAIT_S = 600.0  # a server that asks for more has a quota for the day, not a rate
_UNREACHED = 3  # requests in a row that never got any answer: the server is gone
_MISFITS = 2  # whole answers of the wrong kind; more retries would only pay for the same again
_LARGEST_BODY = 64 * 2**20  # bytes; an answer with log-probabilities of 30,000 tokens is about 5 MB


class Clock:
    """Time as the client sees it; tests replace it, so that they wait for nothing."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Gate:
    """Spaces requests evenly, and holds all of them when the server asks for a pause.

    Every attempt passes it, a retry too: the server counts those as well.

    Args:
        rate: requests per second, None for no limit.
        clock: see `Clock`.
    """

    def __init__(self, rate: float | None, clock: Clock) -> None:
        self._interval = 1 / rate if rate else 0.0
        self._clock = clock
        self._next = 0.0
        self._held = 0.0

    def hold(self, seconds: float) -> None:
        """Let nothing through for so many seconds: a limit that one request met, the others will meet."""
        self._held = max(self._held, self._clock.now() + seconds)
        self._next = max(self._next, self._held)

    async def enter(self) -> None:
        """Wait for the next free turn."""
        while True:
            now = self._clock.now()
            turn = max(now, self._next)
            self._next = turn + self._interval
            if turn > now:
                await self._clock.sleep(turn - now)
            # a hold may have begun while this request slept: then its turn is void
            if self._held <= self._clock.now() + 1e-6:
                return


class _NoAnswerError(Exception):
    """The server could not be reached, or broke off."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    retry_after: str
    body: bytes


class Client:
    """Sends JSON and reads JSON, with everything that can go wrong in between.

    Args:
        address: where.
        key: the API key.
        key_name: the environment variable it came from, for messages.
        timeout_s: seconds for one attempt from the first to the last byte. (A limit per read would let
            a server that sends a byte a minute hang the run.)
        max_retries: further attempts after the first.
        rate_limit: requests per second, None for no limit.
        concurrency: connections at once.
        transport: replaces the network in tests.
        clock: replaces time in tests.
    """

    def __init__(
        self,
        address: Address,
        key: Secret,
        *,
        key_name: str,
        timeout_s: float,
        max_retries: int,
        rate_limit: float | None,
        concurrency: int,
        transport: httpx.AsyncBaseTransport | None,
        clock: Clock,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise missing_package("httpx", "server", "Asking a server") from None

        self._address, self._key, self._key_name = address, key, key_name
        self._timeout_s, self._max_retries = timeout_s, max_retries
        self._clock = clock
        self._gate = Gate(rate_limit, clock)
        self._unreached = 0
        self._http = httpx.AsyncClient(
            headers={"Content-Type": "application/json", **key.headers()},
            timeout=None,  # noqa: S113 - asyncio.timeout in _send bounds the whole attempt
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            transport=transport,
            # redirects are errors: the key must not follow them to another host
            follow_redirects=False,
            # a proxy from the environment cannot reach this machine's own servers
            trust_env=not address.loopback,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        read: Callable[[Mapping[str, Any]], T],
        *,
        label: str,
        max_retries: int | None = None,
    ) -> T | Failure:
        """Ask until there is an answer that `read` understands, or no retry is left.

        Args:
            method: "GET" or "POST".
            path: below the base URL.
            body: is sent as JSON.
            read: makes a value of the answer's JSON object; raises MisfitError where the answer is not
                what it should be, which counts as a fault of the server and is retried.
            label: names the random stream of the waiting times.
            max_retries: instead of the client's own number.

        Returns:
            What `read` made, or why there is nothing.

        Raises:
            BackendError: no request of this run can succeed (key, address, model, quota, server gone).
        """
        retries = self._max_retries if max_retries is None else max_retries
        # ensure_ascii: a lone surrogate in a prompt travels as an escape, where UTF-8 would refuse it
        content = None if body is None else json.dumps(body, allow_nan=False).encode("ascii")
        trouble, reached, attempt, misfits = "", False, 0, 0
        for attempt in range(retries + 1):
            if attempt:
                await self._clock.sleep(self._backoff(label, attempt))
            await self._gate.enter()
            try:
                answer = await self._send(method, path, content)
            except _NoAnswerError as error:
                trouble, reached = str(error), False
                continue
            self._unreached, reached = 0, True
            try:
                if answer is None:
                    raise MisfitError(f"it is larger than {_LARGEST_BODY >> 20} MiB")
                # bytes that are no JSON count as a fault only in a success: error pages are often HTML
                fault = classify(answer.status, answer.body, self._key.scrub)
                if fault is None:
                    return read(self._decode(answer.body))
            except (ValueError, RecursionError) as error:  # RecursionError: hostile nesting
                trouble = f"the answer is not what it should be: {self._key.scrub(str(error))[:300]}"
                misfits += isinstance(error, MisfitError)
                if misfits > _MISFITS:
                    break
                continue
            if fault.kind is Kind.FATAL:
                raise BackendError(self._fatal(path, fault.reason))
            if fault.kind is not Kind.AGAIN:
                return fault
            trouble = fault.reason
            self._pause(answer.retry_after, trouble)
        if not reached:
            self._unreached += 1
            if self._unreached >= _UNREACHED:
                raise BackendError(
                    f"The server {self._address.base} cannot be reached: {self._unreached} requests in a row "
                    f"got no answer in {attempt + 1} attempts each; the last trouble: {trouble}. What was "
                    "answered is kept. See that the server runs and that the address is right, then run again."
                )
        return Failure(Kind.EXHAUSTED, f"no answer in {attempt + 1} attempt(s); the last trouble: {trouble}")

    def _decode(self, body: bytes) -> Mapping[str, Any]:
        data = json.loads(body)
        if not isinstance(data, dict):
            raise MisfitError(f"expected a JSON object, got {type(data).__name__}")
        # in the parsed text: JSON can write any letter as an escape
        if self._key.is_in(data):
            raise MisfitError("it repeats the API key, so it is not kept")
        return data

    def _backoff(self, label: str, attempt: int) -> float:
        # half fixed, half random: requests that failed together do not come back together
        share = 0.5 + 0.5 * float(stream(0, "backoff", label, attempt).random())
        return share * min(_BACKOFF_CAP_S, _BACKOFF_S * 2.0 ** (attempt - 1))

    def _pause(self, header: str, trouble: str) -> None:
        wait = retry_after(header)
        if wait is None:
            return
        if wait > _LONGEST_WAIT_S:
            raise BackendError(
                f"The server {self._address.base} asks to wait {wait:.0f} s ({trouble}). What was answered is "
                "kept: run again after that time, and only the rest is asked."
            )
        self._gate.hold(wait)

    def _fatal(self, path: str, reason: str) -> str:
        return (
            f"The server {self._address.base} declines every request to {path}: {reason}. "
            f"The key is read from the environment variable {self._key_name}; the address is what comes "
            "before '#' in the model's name (with /v1 where the server has it), the model what comes after; "
            "a server may offer only one of --api completions and --api chat."
        )

    async def _send(self, method: str, path: str, content: bytes | None) -> _Answer | None:
        """What came; None for more than anyone should keep. Raises _NoAnswerError where nothing whole came."""
        import httpx

        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._http.stream(method, self._address.base + path, content=content) as response,
            ):
                body = bytearray()
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _LARGEST_BODY:
                        return None
                return _Answer(
                    response.status_code, str(response.headers.get("retry-after", "")), bytes(body)
                )
        except (TimeoutError, httpx.TimeoutException):
            raise _NoAnswerError(f"no complete answer within {self._timeout_s:g} s") from None
        except httpx.RequestError as error:
            # "from None" and scrubbed: the library's errors hold the request, and that holds the key
            detail = self._key.scrub(str(error))[:200]
            raise _NoAnswerError(
                f"{type(error).__name__}: {detail}" if detail else type(error).__name__
            ) from None
