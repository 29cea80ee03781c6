"""The work of a run: its batches summed, and what follows from the sums."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from steelyard.core.types import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The work of a run: sums over its batches.

    A batch *writes* when it has new tokens, else it *reads*: the two have speeds of their own.

    Attributes:
        batches: how many. requests: answered in them, errors included.
        asked, computed, trie, scored, steps: see `core.types.Batch`; 0 where unknown.
        seconds: wall time of all batches.
        new_tokens: generated; None when a batch was stored before they were counted.
        peak_memory: bytes, the most of any batch; None where unknown.
        rates, rate_sum: batches that know the plain forward's tokens/s, and the sum of it.
        reading_tokens, reading_seconds: positions computed by the batches that read, and their wall time.
        writing_tokens, writing_seconds: new tokens of the batches that write, and their wall time.
    """

    batches: int = 0
    requests: int = 0
    asked: int = 0
    computed: int = 0
    trie: int = 0
    scored: int = 0
    steps: int = 0
    seconds: float = 0.0
    new_tokens: int | None = 0
    peak_memory: int | None = None
    rates: int = 0
    rate_sum: float = 0.0
    reading_tokens: int = 0
    reading_seconds: float = 0.0
    writing_tokens: int = 0
    writing_seconds: float = 0.0

    def plus(self, batch: Batch) -> Totals:
        """These sums with one batch more."""
        reads, writes = batch.computed > 0 and batch.new_tokens == 0, batch.new_tokens > 0
        rate = batch.prefill_rate
        peak = max(self.peak_memory or 0, batch.peak_memory) or None
        return replace(
            self,
            batches=self.batches + 1,
            requests=self.requests + len(batch.responses),
            asked=self.asked + batch.asked,
            computed=self.computed + batch.computed,
            trie=self.trie + batch.trie,
            scored=self.scored + batch.scored,
            steps=self.steps + batch.steps,
            seconds=self.seconds + batch.seconds,
            new_tokens=None if self.new_tokens is None else self.new_tokens + batch.new_tokens,
            peak_memory=peak,
            rates=self.rates + (rate is not None),
            rate_sum=self.rate_sum + (rate or 0.0),
            reading_tokens=self.reading_tokens + (batch.computed if reads else 0),
            reading_seconds=self.reading_seconds + (batch.seconds if reads else 0.0),
            writing_tokens=self.writing_tokens + batch.new_tokens,
            writing_seconds=self.writing_seconds + (batch.seconds if writes else 0.0),
        )

    @property
    def saved(self) -> float | None:
        """Tokens asked by tokens computed: how many times more work one request at a time is; None if unknown."""
        return _ratio(self.asked, self.computed)

    @property
    def prefill_rate(self) -> float | None:
        """Tokens/s of the library's own plain forward, the mean over the batches that know it; None if none does."""
        return _ratio(self.rate_sum, self.rates)

    @property
    def prefill_share(self) -> float | None:
        """Tokens/s of the batches that read, by the plain forward's; in [0, 1] or a little above; None if unknown."""
        return _ratio(_ratio(self.reading_tokens, self.reading_seconds), self.prefill_rate)

    def to_json(self) -> dict[str, Any]:
        """As a record of a report (docs/report.md): what is unknown is null, and rates stand beside the sums."""
        counts = ("asked", "computed", "trie", "scored", "steps", "peak_memory")
        return {
            "batches": self.batches,
            "requests": self.requests,
            **{name: getattr(self, name) or None for name in counts},
            "new_tokens": self.new_tokens,
            "seconds": self.seconds,
            "tokens_per_second": _ratio(self.computed, self.seconds),
            "new_tokens_per_second": _ratio(self.writing_tokens, self.writing_seconds),
            "prefill_rate": self.prefill_rate,
            "prefill_share": self.prefill_share,
            "saved": self.saved,
        }


NAMES = tuple(f.name for f in fields(Totals))
"""Fields of `Totals`, in the order of `SUMS`."""

SUMS = (
    "count(*)",
    *(f"sum({name})::BIGINT" for name in ("requests", "asked", "computed", "trie", "scored", "steps")),
    "sum(seconds)",
    # a sum over some of the batches would pass for the whole
    "CASE WHEN count(new_tokens) = count(*) THEN sum(new_tokens)::BIGINT END",
    "max(peak_memory)::BIGINT",
    "count(prefill_rate)",
    "coalesce(sum(prefill_rate), 0)::DOUBLE",
    "coalesce(sum(computed) FILTER (new_tokens = 0), 0)::BIGINT",
    "coalesce(sum(seconds) FILTER (new_tokens = 0 AND computed > 0), 0)::DOUBLE",
    "coalesce(sum(new_tokens), 0)::BIGINT",
    "coalesce(sum(seconds) FILTER (new_tokens > 0), 0)::DOUBLE",
)
"""The fields of `Totals` as SQL over the rows of `batches`; a test keeps the two ways of adding equal."""


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None
