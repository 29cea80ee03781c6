"""What is read of vLLM's answers, as protocols: the package runs in an environment of its own and has no types here.

Names and meanings are those of `vllm.outputs.RequestOutput`, `CompletionOutput` and `vllm.logprobs.Logprob` (0.32).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Entry(Protocol):
    """A token's log-probability at one position, nats."""

    @property
    def logprob(self) -> float:
        """Under the model's own distribution, before temperature and filters."""
        ...


class Completion(Protocol):
    """One text that was generated."""

    @property
    def index(self) -> int:
        """Among the texts of one request, from 0."""
        ...

    @property
    def token_ids(self) -> Sequence[int]:
        """Every new token, the one that ended the text included."""
        ...

    @property
    def cumulative_logprob(self) -> float | None:
        """Sum over the new tokens, nats; None where log-probabilities were not asked for."""
        ...

    @property
    def finish_reason(self) -> str | None:
        """One of "stop", "length", "abort", "error", "repetition"; None while it is not finished."""
        ...

    @property
    def stop_reason(self) -> int | str | None:
        """The stop string or token id that ended the text."""
        ...


class Output(Protocol):
    """The answer to one request."""

    @property
    def prompt_token_ids(self) -> Sequence[int] | None:
        """The prompt as vLLM read it."""
        ...

    @property
    def prompt_logprobs(self) -> Sequence[Mapping[int, Entry] | None] | None:
        """By position; which positions it holds is the question that `likelihood` is about."""
        ...

    @property
    def outputs(self) -> Sequence[Completion]:
        """The texts."""
        ...

    @property
    def finished(self) -> bool:
        """Whether this is the last word."""
        ...

    @property
    def num_cached_tokens(self) -> int | None:
        """Leading tokens of the prompt whose keys and values came from the prefix cache."""
        ...
