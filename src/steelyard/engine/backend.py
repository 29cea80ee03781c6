"""The protocol between a plan and a model: what a backend says of itself, and the one call that does work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from steelyard.core.errors import InputError
from steelyard.core.types import Batch, Identity, Request, Tokens, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend can do; a plan refuses what it cannot, before anything is spent.

    Attributes:
        generate: can continue a prompt.
        likelihood: can give log p of a continuation. `why_not` says why it cannot, and the way out.
        chat: can render or send a chat prompt.
        max_length: tokens of prompt and continuation together; None where unknown.
        why_not: the sentence for the user when `likelihood` is False.
    """

    generate: bool = True
    likelihood: bool = True
    chat: bool = False
    max_length: int | None = None
    why_not: str = ""


def check_run(work: Sequence[Work], batch_size: int | None, default: int) -> int:
    """The batch size in force, after a look at what `Backend.run` was given.

    Args:
        work: each request id once.
        batch_size: as given; None takes `default`.
        default: the backend's own.

    Raises:
        InputError: it is below 1, or a request id comes twice.
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"The batch size must be at least 1, got {batch_size}.")
    if len({piece.request_id for piece in work}) < len(work):
        raise InputError("A request id comes twice in the work; each must be there once.")
    return default if batch_size is None else batch_size


class Backend(Protocol):
    """A model that answers requests.

    Building one reads names, digests and a tokenizer, never the weights: a plan, or a run with nothing left
    to ask, must not pay for them. The weights are loaded by the first `run` that has work.
    """

    @property
    def identity(self) -> Identity:
        """Who answers."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    def encode(self, request: Request) -> Tokens | None:
        """The request as token ids, or None where the server has the tokenizer."""
        ...

    def chat_prompt(self, text: str, system: str | None = None) -> str:
        """The text as one user message in the model's chat template, ready to be continued.

        A chat server returns it unchanged (it applies the template itself).
        """
        ...

    def run(
        self,
        work: Sequence[Work],
        done: AbstractSet[str] = frozenset(),
        *,
        batch_size: int | None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Batch]:
        """Answer every request that is not in `done`, batch by batch.

        `work` is the whole plan, also what is done already: batches are cut from all of it in one fixed
        order, so that a resumed run computes the very batches that an uninterrupted one would, and rounding
        cannot tell the two apart. A request that fails becomes a response with `Finish.ERROR`.

        Args:
            work: each request id once.
            done: request ids that have an answer.
            batch_size: requests at once, at most; None leaves the number to the backend.
            cancelled: asked between batches; when it says True, the iterator ends early.

        Raises:
            InputError: a batch size below 1, or a request id that comes twice.
        """
        ...

    def close(self) -> None:
        """Free the weights, threads and connections."""
        ...
