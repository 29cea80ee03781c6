"""Scoring, the plain way: every request whole, right-padded, in one forward pass per batch.

This is the twin that faster engines must agree with, so nothing in it is clever.

Which logits score which token is the classic slip. Position ``i`` of the output is the distribution of the
token at position ``i + 1``: to score ``ids[start:]`` one reads the output at ``start - 1 .. len(ids) - 2``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.core.types import Tokens
from steelyard.engine.transformers.model import LanguageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One continuation's likelihood.

    Attributes:
        token_logprobs: nats, one per scored token.
        greedy: whether each scored token had the largest logit (a tie for it counts).
    """

    token_logprobs: tuple[float, ...]
    greedy: bool

    @property
    def logprob(self) -> float:
        """Nats, summed in float64 without rounding on the way."""
        return math.fsum(self.token_logprobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """What was computed: positions run (padding included), positions with logits, forward passes."""

    computed: int = 0
    scored: int = 0
    steps: int = 0

    def __add__(self, other: Passes) -> Passes:
        """Both together."""
        return Passes(
            computed=self.computed + other.computed,
            scored=self.scored + other.scored,
            steps=self.steps + other.steps,
        )


def score(model: LanguageModel, batch: Sequence[Tokens]) -> tuple[list[Scored], Passes]:
    """Log-probabilities of the tokens from `Tokens.start` on, given all before them.

    Padding stands to the right, where causal attention never looks back at it; the mask is passed all the
    same, for architectures that read it. Each number is a float32 logit minus a float32 log-sum-exp, and
    only the sum over tokens is wider: rounding then stays near 1e-6 nats per token.

    Args:
        model: is loaded if it is not.
        batch: not empty, each with ``1 <= start < len(ids)``.

    Returns:
        One result per element, in order, and the count of what was computed. Values can be -inf or NaN where
        the model's logits are; the caller judges.
    """
    import torch

    width = max(len(t.ids) for t in batch)
    ids = torch.zeros((len(batch), width), dtype=torch.int64)
    mask = torch.zeros((len(batch), width), dtype=torch.int64)
    rows: list[int] = []
    columns: list[int] = []
    targets: list[int] = []
    for row, tokens in enumerate(batch):
        length = len(tokens.ids)
        ids[row, :length] = torch.tensor(tokens.ids)
        mask[row, :length] = 1
        rows += [row] * (length - tokens.start)
        columns += range(tokens.start - 1, length - 1)
        targets += tokens.ids[tokens.start :]
    device = model.device
    logits, _ = model.logits(
        ids.to(device),
        mask.to(device),
        torch.tensor(rows, device=device),
        torch.tensor(columns, device=device),
    )
    wanted = logits.gather(-1, torch.tensor(targets, device=device).unsqueeze(-1)).squeeze(-1)
    logprobs = (wanted.double() - logits.logsumexp(-1).double()).tolist()
    best = (wanted == logits.amax(-1)).tolist()
    results: list[Scored] = []
    first = 0
    for tokens in batch:
        last = first + len(tokens.ids) - tokens.start
        results.append(Scored(token_logprobs=tuple(logprobs[first:last]), greedy=all(best[first:last])))
        first = last
    return results, Passes(computed=ids.numel(), scored=len(targets), steps=1)
