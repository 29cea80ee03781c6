"""A small, seeded part of a plan: whole cells, evenly over its forms, with greedy and sampled texts both in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from steelyard.core.ids import request_id
from steelyard.core.rng import key, keys, ranked
from steelyard.core.types import Ask, Generate, Work
from steelyard.plan.build import Plan
from steelyard.testing.compare import is_greedy

_TEMPERATURE = 1.0  # of draws that are added to greedy texts


@dataclass(frozen=True, slots=True)
class Sample:
    """What is asked to compare engines.

    Attributes:
        work: the requests, distinct.
        cells: asks of each cell that was taken, with their requests in `work`.
        planned: requests of the whole plan. added: of `work`, those that the plan does not have.
    """

    work: tuple[Work, ...]
    cells: tuple[tuple[Ask, ...], ...]
    planned: int
    added: int


def draw_sample(plan: Plan, requests: int, seed: int) -> Sample:
    """Some of a plan's cells, until they have as many distinct requests, or all of it if it has fewer.

    Forms take turns, so that each is in the sample; a cell is taken whole, so that choices can be compared.
    Beside every second text comes its twin of the other kind: greedy beside sampled, sampled beside greedy.

    Args:
        plan: of one model.
        requests: distinct requests to reach, at least 1; the last cell may go beyond.
        seed: of the study; another seed draws another sample.
    """
    taken: dict[str, Work] = {}
    cells: list[tuple[Ask, ...]] = []
    queues = _queues(plan, seed)
    while queues and len(taken) < requests:
        queue = queues.pop(0)
        asks = queue.pop()
        cells.append(asks)
        taken |= {a.request_id: plan.work[a.request_id] for a in asks if a.request_id is not None}
        if queue:
            queues.append(queue)
    planned = set(taken)
    for piece in [p for p in taken.values() if isinstance(p.request, Generate)][::2]:
        twin = _twin(plan, piece, seed)
        taken.setdefault(twin.request_id, twin)
    return Sample(tuple(taken.values()), tuple(cells), len(plan.work), len(taken.keys() - planned))


def _queues(plan: Plan, seed: int) -> list[list[tuple[Ask, ...]]]:
    """For each form, its cells in a seeded order, the first at the end."""
    cells: dict[str, dict[str, list[Ask]]] = defaultdict(lambda: defaultdict(list))
    for ask in plan.asks:
        if ask.request_id is not None:  # what does not fit the context is not asked
            cells[ask.form_id][ask.cell_id].append(ask)
    return [_shuffled(form, list(found.values()), seed) for form, found in cells.items()]


def _shuffled(form: str, cells: Sequence[list[Ask]], seed: int) -> list[tuple[Ask, ...]]:
    # by item and draw: the cell's id has the model in it, and two models should be asked the same
    names = keys(f"{asks[0].item_id} {asks[0].sample}" for asks in cells)
    return [tuple(cells[n]) for n in ranked(seed, "selfcheck", form, ids=names)][::-1]


def _twin(plan: Plan, piece: Work, seed: int) -> Work:
    request = piece.request
    assert isinstance(request, Generate)  # noqa: S101  texts only
    if is_greedy(request):
        sampling = replace(request.sampling, temperature=_TEMPERATURE)
        twin = replace(request, sampling=sampling, seed=key(seed, "selfcheck", request.prompt))
    else:
        twin = replace(request, sampling=replace(request.sampling, temperature=0.0), draw=0, seed=None)
    return Work(request_id(plan.identity, twin, piece.tokens), twin, piece.tokens)
