"""How cost grows with items, options, wordings and draws: linear in what is new, flat in what is shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench.engine import count
from bench.engine.cases import Other
from bench.engine.clock import Spread
from bench.engine.harness import Peers
from bench.engine.machine import Prefill, described
from bench.engine.ours import Run, close, open_engine, run
from bench.engine.plots import draw
from bench.engine.results import Goal, Result
from bench.engine.texts import Gsm8k, flat, tokens_of

from steelyard.core.types import Generate, Work

REPEATS = 2


@dataclass(frozen=True, slots=True)
class Axis:
    """One of the four plots.

    Attributes:
        name: what grows. rest: what stays the same, for the plot's title.
        counts: values of what grows. make: the requests for one of them.
    """

    name: str
    rest: str
    counts: tuple[int, ...]
    make: Callable[[int], Sequence[Work]]


def run_case(case: Other, *, quick: bool) -> Result:
    """Measure every point twice, in rising and in falling order, and draw the plots."""
    backend = open_engine()  # before torch is imported
    axes = _axes(Gsm8k(backend), quick=quick)
    prefill = Prefill(Peers(backend.checkpoint.folder).net)
    list(backend.run(axes[0].make(1)[:1], batch_size=1))  # loads the weights, and packs them
    rates = [prefill.rate()]
    points: dict[str, list[dict[str, Any]]] = {axis.name: [] for axis in axes}
    for axis in axes:
        work = [list(axis.make(n)) for n in axis.counts]
        runs: list[list[Run]] = [[] for _ in work]
        for repeat in range(1 if quick else REPEATS):
            order = range(len(work)) if repeat % 2 == 0 else reversed(range(len(work)))
            for i in order:
                runs[i].append(run(backend, work[i]))
        points[axis.name] = [_point(n, w, r) for n, w, r in zip(axis.counts, work, runs, strict=True)]
    rates.append(prefill.rate())
    machine = described()
    close(backend)
    if not quick:
        draw([(axis.name, axis.rest, points[axis.name]) for axis in axes])
    worst = max(p["computed"] / p["least"] for axis in axes for p in points[axis.name])
    return Result(
        case=case.name,
        title=case.title,
        what="; ".join(f"{a.name} {', '.join(map(str, a.counts))} ({a.rest})" for a in axes),
        against="",
        goals=[
            Goal("tokens computed over the least, worst point", worst, 1.02, at_least=False, unit="x"),
            *(
                Goal(
                    f"share of the variance in seconds that tokens explain: {a.name}", _linear(points[a.name])
                )
                for a in axes
            ),
        ],
        detail={"points": points, "prefill": rates, "repeats": 1 if quick else REPEATS},
        machine=machine,
        quick=quick,
    )


def _axes(gsm8k: Gsm8k, *, quick: bool) -> list[Axis]:
    shots = "none" if quick else "first"

    def items(n: int) -> Sequence[Work]:
        return flat(gsm8k.choices(gsm8k.items(n), shots=shots, target="answer"))

    def options(n: int) -> Sequence[Work]:
        return flat(gsm8k.choices(gsm8k.items(2), shots="none", target="worked", options=n))

    def wordings(n: int) -> Sequence[Work]:
        return flat([p for part in gsm8k.worded(gsm8k.items(2), n, shots=shots) for p in part])

    def draws(n: int) -> Sequence[Work]:
        return flat(
            gsm8k.draws(gsm8k.items(2), shots=shots, chat=False, repeats=n, max_tokens=4 if quick else 16)
        )

    axes = [
        Axis("items", "5 fixed shots, 4 final answers", (1, 2, 4, 8), items),
        Axis("options", "2 items, no shots, worked options", (2, 4, 6, 8), options),
        Axis("wordings", "2 items, 5 fixed shots, 4 final answers", (1, 2, 3, 4), wordings),
        Axis("draws", "2 prompts with 5 fixed shots, 16 new tokens", (1, 4, 8, 16), draws),
    ]
    return [Axis(a.name, a.rest, a.counts[:2], a.make) for a in axes] if quick else axes


def _point(n: int, work: Sequence[Work], runs: Sequence[Run]) -> dict[str, Any]:
    rows, first = tokens_of(work), runs[0]
    seconds = Spread.of(r.seconds for r in runs)
    if isinstance(work[0].request, Generate):
        new = count.new_tokens(first.responses)
        least = count.least_sampling([row.ids for row in rows], new)
        whole = sum(len(row.ids) for row in rows) + sum(k - 1 for k in new)
    else:
        least, whole = count.least(rows), count.whole(rows)
    return {
        "n": n,
        "seconds": seconds.median,
        "low": seconds.low,
        "high": seconds.high,
        "whole": whole,
        "least": least,
        **first.counters(),
    }


def _linear(points: Sequence[dict[str, Any]]) -> float | None:
    """R squared of a straight line through seconds over tokens computed; None for fewer than three points."""
    if len(points) < 3:
        return None
    x, y = (np.array([p[name] for p in points], dtype=float) for name in ("computed", "seconds"))
    return float(np.corrcoef(x, y)[0, 1] ** 2)
