"""How long a plan will take: a few of its own requests are timed. Their answers are not kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from steelyard.core.types import Generate, Likelihood, Work
from steelyard.engine.backend import Backend
from steelyard.plan.cost import Cost

_PROBE = 4  # requests a kind: enough to fill a small batch, few enough to take seconds
_NEW = 16  # new tokens a probed generation


@dataclass(frozen=True, slots=True)
class Speed:
    """Measured rates. `requests` is used where tokens are not known (servers)."""

    prefill: float | None
    decode: float | None
    requests: float


def probe_speed(backend: Backend, work: Sequence[Work], batch_size: int | None) -> Speed:
    """Time a few requests of middling length, after one that loads the weights."""
    ordered = sorted(work, key=_length)
    scored = _middle([w for w in ordered if isinstance(w.request, Likelihood)])
    written = [_short(w) for w in _middle([w for w in ordered if isinstance(w.request, Generate)])]
    prefill = decode = None
    began, asked = time.monotonic(), 0
    if scored or written:
        _time(backend, (scored or written)[:1], 1)
        began = time.monotonic()
    if scored:
        seconds, computed, _ = _time(backend, scored, batch_size)
        asked += len(scored)
        prefill = computed / seconds if computed else None
    if written:
        seconds, computed, new = _time(backend, written, batch_size)
        asked += len(written)
        if prefill is None:
            # one new token each is nearly all prefill
            first = [_short(w, 1) for w in written]
            short, computed, _ = _time(backend, first, batch_size)
            prefill = computed / short if computed else None
        before = (computed - new) / prefill if prefill and computed else 0.0
        decode = new / max(seconds - before, seconds / 4) if new else None
    return Speed(prefill, decode, asked / max(time.monotonic() - began, 1e-9))


def seconds_left(cost: Cost, speed: Speed) -> float | None:
    """Seconds for a plan at a measured speed, if every generation used its limit; None where it cannot be said."""
    if cost.tokens is None or speed.prefill is None:
        return cost.requests / speed.requests if speed.requests else None
    return cost.tokens / speed.prefill + (cost.new_tokens / speed.decode if speed.decode else 0.0)


def _length(work: Work) -> int:
    if work.tokens is not None:
        return len(work.tokens.ids)
    request = work.request
    return len(request.prompt if isinstance(request, Generate) else request.context + request.continuation)


def _middle(ordered: Sequence[Work]) -> list[Work]:
    start = max(0, (len(ordered) - _PROBE) // 2)
    return list(ordered[start : start + _PROBE])


def _short(work: Work, new: int = _NEW) -> Work:
    request = work.request
    if not isinstance(request, Generate):
        return work
    sampling = replace(request.sampling, max_tokens=min(new, request.sampling.max_tokens))
    return replace(work, request=replace(request, sampling=sampling))


def _time(backend: Backend, work: Sequence[Work], batch_size: int | None) -> tuple[float, int, int]:
    began = time.monotonic()
    computed = new = 0
    for batch in backend.run(work, frozenset(), batch_size=batch_size):
        computed += batch.computed
        new += sum(r.n_tokens for r in batch.responses if r.text is not None)
    return max(time.monotonic() - began, 1e-9), computed, new
