"""Texts under way: what a job asks for, when it ends, and which token comes next.

Stop strings, token limit, temperature and seed belong to a row, and a row ends by itself. Both ways of generating
(`generate`, the plain one, and `decode`) share this, so that they can differ in the network's arithmetic alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from steelyard.core.types import Finish, Sampling
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.sampling import draw
from steelyard.engine.transformers.stream import TextStream
from steelyard.engine.transformers.tokenizer import LocalTokenizer

if TYPE_CHECKING:
    import torch

_MANY = 1 << 16  # logits from which on threads bring more than they cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A prompt to continue.

    Attributes:
        ids: of the prompt, at least one.
        sampling: settings; temperature 0 takes the likeliest token (the first of equals).
        seed: of the request's own stream; unused when greedy.
        limit: new tokens at most, >= 1: max_tokens, or what the context leaves.
    """

    ids: tuple[int, ...]
    sampling: Sampling
    seed: int | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """What came of it.

    Attributes:
        ids: every token the model chose, the one that ended the text included.
        text: decoded, special tokens left out, cut before the first stop string. Equal to the tokenizer's
            decoding of the tokens: a character cut in two by the limit shows as U+FFFD.
        n_tokens: tokens that `text` takes when a stop string ended it (a token that is only partly kept
            counts, one that is wholly behind the cut does not); else all tokens but the EOS.
        finish: STOP, EOS, LENGTH or ERROR.
    """

    ids: tuple[int, ...]
    text: str
    n_tokens: int
    finish: Finish


@dataclass(slots=True)
class Running:
    """A job under way."""

    job: Job
    stream: TextStream
    eos: frozenset[int]
    stop_ids: frozenset[int]
    ids: list[int] = field(default_factory=list)
    finish: Finish | None = None
    n_tokens: int = 0

    @property
    def sampled(self) -> bool:
        """Whether its tokens are drawn."""
        return self.job.sampling.temperature > 0 and self.job.seed is not None

    def take(self, token: int | None) -> None:
        """Adds a token and decides whether the row ends with it; None ends it with an error."""
        if token is None:
            self.finish = Finish.ERROR
            return
        self.ids.append(token)
        if token in self.eos or token in self.stop_ids:
            self._end(Finish.EOS if token in self.eos else Finish.STOP, len(self.ids) - 1)
        elif self.stream.push(token):
            self._end(Finish.STOP, 0)
        elif len(self.ids) == self.job.limit:
            self._end(Finish.LENGTH, len(self.ids))

    def _end(self, finish: Finish, n_tokens: int) -> None:
        if not self.stream.stopped:
            self.stream.finish()
        # a stop string can also turn up in what was held back until now
        stopped = self.stream.stopped
        self.finish = Finish.STOP if stopped else finish
        self.n_tokens = self.stream.kept() if stopped else n_tokens

    def result(self) -> Generated:
        """The finished row."""
        return Generated(
            ids=tuple(self.ids),
            text=self.stream.text,
            n_tokens=self.n_tokens,
            finish=self.finish or Finish.ERROR,
        )


def begin(job: Job, model: LanguageModel, tokenizer: LocalTokenizer) -> Running:
    """A job with nothing generated yet."""
    # a stop string that is a special token ("<|im_end|>") never shows in the text, so it is known by its id
    special = frozenset(tokenizer.special_ids[s] for s in job.sampling.stop if s in tokenizer.special_ids)
    plain = [s for s in job.sampling.stop if s not in tokenizer.special_ids]
    eos = model.eos_ids | (frozenset() if tokenizer.eos_id is None else {tokenizer.eos_id})
    return Running(job=job, stream=TextStream(tokenizer.decode, plain), eos=eos, stop_ids=special)


def choose(logits: torch.Tensor, rows: Sequence[Running]) -> list[int | None]:
    """The next token of each row, None where the model's numbers are no distribution."""
    peaks, greedy = logits.max(-1)  # NaN wins a maximum, so a finite one means that no logit is NaN or +inf
    sound, best = peaks.isfinite().tolist(), greedy.tolist()
    drawn = [i for i, row in enumerate(rows) if sound[i] and row.sampled]
    tokens: list[int | None] = [token if fine else None for token, fine in zip(best, sound, strict=True)]
    numbers = logits.cpu().numpy() if drawn else None

    def one(i: int) -> int:
        row = rows[i]
        assert numbers is not None  # noqa: S101  rows are drawn
        assert row.job.seed is not None  # noqa: S101  of `sampled`
        return draw(numbers[i], row.job.sampling, row.job.seed, len(row.ids))

    found = _in_threads(one, drawn) if logits.numel() > _MANY else [one(i) for i in drawn]
    for i, token in zip(drawn, found, strict=True):
        tokens[i] = token
    return tokens


def _in_threads(one: Callable[[int], int], rows: Sequence[int]) -> list[int]:
    """`one` of each row; a draw spends most of its time outside Python's lock."""
    if len(rows) < 4:
        return [one(i) for i in rows]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(one, rows))
