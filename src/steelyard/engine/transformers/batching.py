"""How work is cut into batches, and how it is counted.

The cut depends on the whole list of work and on nothing else (not on its order, nor on what is done), so
that a resumed run meets the very batches of an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from steelyard.core.types import Generate, Likelihood, Tokens, Work

_POSITIONS = 1 << 15  # padded positions of a batch at most: bounds activations and the KV cache
_LOGITS = 1 << 28  # logits of a batch at most: 1 GiB in float32


@dataclass(frozen=True, slots=True)
class Row:
    """A request that can be run, with its tokens and the length that its batch must hold."""

    work: Work
    tokens: Tokens
    length: int

    @property
    def heads(self) -> int:
        """Positions at which the vocabulary layer runs in one pass."""
        return len(self.tokens.ids) - self.tokens.start if isinstance(self.work.request, Likelihood) else 1


def cut(rows: Iterable[Row], batch_size: int, vocabulary: int, edge: int | None = None) -> list[list[Row]]:
    """Batches of one kind each, likelihoods first, longest first.

    The longest come first so that memory fails at the start or never, and rows of like length share a batch
    so that little is padded. Ties go by tokens, which puts draws of one prompt side by side, then by id.

    Args:
        rows: in any order.
        batch_size: rows in a batch at most, >= 1. Fewer where the batch would have more than 32,768
            positions or more than 2^28 logits; a row that is larger than that on its own gets its own batch.
        vocabulary: logits per position.
        edge: length from which on the model computes a whole batch otherwise (`LanguageModel.edge`). Rows on
            different sides of it never share a batch, and texts that may cross it share one only with draws
            of the same prompt, which cross it together.
    """
    ordered = sorted(
        rows,
        key=lambda r: (
            isinstance(r.work.request, Generate),
            -r.length,
            r.tokens.ids,
            r.tokens.start,
            r.work.request_id,
        ),
    )
    batches: list[list[Row]] = []
    kind: type | None = None
    width = heads = 0
    for row in ordered:
        batch = batches[-1] if batches else []
        fits = (
            kind is type(row.work.request)
            and _alike(row, batch[0], edge)
            and len(batch) < batch_size
            and (len(batch) + 1) * width <= _POSITIONS
            and (heads + row.heads) * vocabulary <= _LOGITS
        )
        if fits:
            batch.append(row)
            heads += row.heads
        else:
            batches.append([row])
            kind, width, heads = type(row.work.request), row.length, row.heads
    return batches


def _alike(row: Row, first: Row, edge: int | None) -> bool:
    """Whether two rows of one kind, of which the first is no shorter, are computed alike together and alone."""
    if edge is None or first.length <= edge:
        return True
    if isinstance(row.work.request, Generate):
        return row.tokens.ids == first.tokens.ids
    return row.length > edge
