"""Our side: an engine, and what a run of it cost."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, fields

from bench.engine.clock import timed

from steelyard.core.types import Batch, Finish, Response, Work
from steelyard.engine.transformers.backend import TransformersBackend, open_transformers

ROWS = 64
"""Rows at once when sampling; the shared engine's own default."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run. Counters are sums over its batches (see `core.types.Batch`); seconds are those of the clock."""

    responses: tuple[Response, ...]
    seconds: float
    asked: int
    computed: int
    trie: int
    scored: int
    steps: int

    def counters(self) -> dict[str, int]:
        """The counted work."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in {"responses", "seconds"}}

    def __add__(self, other: Run) -> Run:
        """Two runs as one."""
        return Run(
            *(
                getattr(self, f.name) + getattr(other, f.name) for f in fields(self)
            )  # tuples join, numbers add
        )


def open_engine(engine: str = "shared", **options: object) -> TransformersBackend:
    """The embedded model in float32 with an engine of ours. Call this before torch is imported by anyone.

    It decides how idle threads wait, which a process settles once (OMP_WAIT_POLICY).
    """
    return open_transformers("smollm2", engine=engine, dtype="float32", device="cpu", **options)  # type: ignore[arg-type]


def run(backend: TransformersBackend, work: Sequence[Work], *, rows: int = ROWS) -> Run:
    """Answer everything once, timed.

    Raises:
        RuntimeError: an answer is missing or is an error: its time would not be comparable.
    """
    got, seconds = timed(lambda: list(backend.run(work, batch_size=rows)))
    return _checked(work, got, seconds)


def _checked(work: Sequence[Work], got: list[Batch], seconds: float) -> Run:
    responses = tuple(r for batch in got for r in batch.responses)
    bad = [r for r in responses if r.finish is Finish.ERROR]
    if bad or {r.request_id for r in responses} != {w.request_id for w in work}:
        why = bad[0].error if bad else f"{len(responses)} answers to {len(work)} requests"
        raise RuntimeError(f"The engine did not answer everything ({len(bad)} errors): {why}")
    total = {
        name: sum(getattr(b, name) for b in got) for name in ("asked", "computed", "trie", "scored", "steps")
    }
    return Run(responses=responses, seconds=seconds, **total)


def close(backend: TransformersBackend) -> None:
    """Free an engine's weights before another one is timed."""
    backend.close()
    gc.collect()
