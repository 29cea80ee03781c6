"""What a check works on: a backend with what is allowed of it, and the asking that all checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NoReturn

from steelyard.core.ids import request_id
from steelyard.core.types import Batch, Finish, Generate, Likelihood, Request, Response, Work
from steelyard.engine.backend import Backend
from steelyard.testing.compare import compare
from steelyard.testing.tolerance import Tolerance


class NonconformanceError(AssertionError):
    """A backend does not do what `engine.backend.Backend` says; the message says what came instead."""


class NotApplicableError(Exception):
    """A check has nothing to look at in this backend; the message says why. It is neither passed nor failed."""


def fail(message: str) -> NoReturn:
    """End a check that found something wrong. Raises NonconformanceError."""
    raise NonconformanceError(message)


def require(condition: bool, message: str) -> None:
    """End the check unless a condition holds. Raises NonconformanceError."""
    if not condition:
        fail(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The backend of one check.

    Attributes:
        backend: just made, with nothing asked of it yet.
        tolerance: between configurations of it, and to the reference.
        reference: gives the right answers; None where there is none.
    """

    backend: Backend
    tolerance: Tolerance
    reference: Backend | None = None

    def work(self, requests: Iterable[Request]) -> list[Work]:
        """Requests as a plan hands them over, with ids and tokens; those with one id, once.

        A tokenizer that normalises makes one request of two spellings.
        """
        pieces: dict[str, Work] = {}
        for request in requests:
            piece = self.piece(request)
            pieces.setdefault(piece.request_id, piece)
        return list(pieces.values())

    def piece(self, request: Request) -> Work:
        """One request with its id and tokens."""
        tokens = self.backend.encode(request)
        return Work(request_id(self.backend.identity, request, tokens), request, tokens)

    def can(self, requests: Iterable[Request]) -> list[Request]:
        """The requests of kinds that the backend says it can answer. Raises NotApplicableError when none is."""
        capabilities = self.backend.capabilities
        kept = [
            request
            for request in requests
            if (capabilities.generate if isinstance(request, Generate) else capabilities.likelihood)
        ]
        if not kept:
            raise NotApplicableError(f"the backend does not answer such requests: {capabilities.why_not}")
        return kept

    def batches(
        self,
        work: Sequence[Work],
        done: AbstractSet[str] = frozenset(),
        *,
        batch_size: int | None = 8,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[Batch]:
        """What a run brings, all of it."""
        return list(self.backend.run(work, done, batch_size=batch_size, cancelled=cancelled))

    def answers(
        self, work: Sequence[Work], done: AbstractSet[str] = frozenset(), *, batch_size: int | None = 8
    ) -> dict[str, Response]:
        """Answers by request id, after a look that each of the rest was answered once."""
        return once(work, done, self.batches(work, done, batch_size=batch_size))

    def ask(self, requests: Sequence[Request], *, batch_size: int | None = 8) -> list[Response]:
        """Answers in the order of the requests, none of which may fail."""
        work = [self.piece(request) for request in requests]
        found = self.answers(
            list({piece.request_id: piece for piece in work}.values()), batch_size=batch_size
        )
        for piece in work:
            answered(piece, found[piece.request_id])
        return [found[piece.request_id] for piece in work]

    def same(
        self,
        work: Sequence[Work],
        one: dict[str, Response],
        other: dict[str, Response],
        what: str,
        *,
        per_token: float | None = None,
    ) -> None:
        """Require that two sets of answers agree within the tolerance, or within another number of nats per token."""
        tolerance = self.tolerance
        if per_token is not None:
            exact = per_token == 0
            tolerance = replace(
                tolerance,
                per_token=per_token,
                greedy=0.0 if exact else tolerance.greedy,
                sampled=0.0 if exact else tolerance.sampled,
            )
        difference = compare(work, one, other)
        if found := difference.beyond(tolerance):
            ids = (*difference.outcomes, *difference.greedy_texts, *difference.sampled_texts)
            first = next((p for p in work if p.request_id in (ids or (difference.furthest,))), work[0])
            left, right = one.get(first.request_id), other.get(first.request_id)
            fail(f"{what}: {'; '.join(found)}. For {show(first.request)}: {left} against {right}.")


def once(work: Sequence[Work], done: AbstractSet[str], batches: Sequence[Batch]) -> dict[str, Response]:
    """Answers by request id; requires that each request which was not done has exactly one, and nothing else."""
    found: dict[str, Response] = {}
    wanted = {piece.request_id for piece in work} - done
    for response in (r for batch in batches for r in batch.responses):
        name = response.request_id
        require(name in wanted, f"The id {name!r} was answered and not asked, or was done already.")
        require(name not in found, f"The id {name!r} was answered twice.")
        found[name] = response
    missing = [piece for piece in work if piece.request_id in wanted - found.keys()]
    if missing:
        fail(
            f"{len(missing)} of {len(wanted)} requests were not answered, the first is {show(missing[0].request)}."
        )
    return found


def answered(piece: Work, response: Response) -> None:
    """Require that a response is an answer, of the right kind and with counts that are true."""
    where = f"{show(piece.request)} was answered with {response}"
    require(response.finish not in {Finish.ERROR, Finish.REFUSED} and response.error is None, where)
    match piece.request:
        case Likelihood(continuation=text):
            require(
                response.finish is Finish.SCORED and response.text is None, f"{where}; SCORED was expected"
            )
            value = response.logprob
            # a little above 0 is rounding; below -1e30 is a server's way of writing "never"
            require(value is not None and -1e30 < value < 1e-3, f"{where}; a log-probability was expected")
            require(response.n_tokens >= 1, f"{where}; at least one token is scored")
            if piece.tokens is not None:
                count = len(piece.tokens.ids) - piece.tokens.start
                require(response.n_tokens == count, f"{where}; its tokens to score are {count}")
            require(response.n_bytes == size(text), f"{where}; the continuation has {size(text)} bytes")
        case Generate(sampling=sampling):
            text = response.text if response.text is not None else fail(f"{where}; a text was expected")
            require(response.finish in {Finish.STOP, Finish.EOS, Finish.LENGTH}, where)
            require(response.n_bytes == size(text), f"{where}; the text has {size(text)} bytes")
            require(
                0 <= response.n_tokens <= sampling.max_tokens,
                f"{where}; at most {sampling.max_tokens} tokens",
            )


def size(text: str) -> int:
    """UTF-8 bytes of a text."""
    return len(text.encode("utf-8", "surrogatepass"))


def show(request: Request) -> str:
    """A request in a message, shortened, in ASCII."""
    text = ascii(request)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-60:]}"
