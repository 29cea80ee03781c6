"""Requests of every benchmark and form of the data folder, in whole cells, for the comparison of answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.engine.data import data_folder

from steelyard.benchmarks import catalog
from steelyard.core.types import Ask, Generate, Role, Sampling, Work
from steelyard.engine.backend import Backend
from steelyard.plan.build import build
from steelyard.plan.study import Study
from steelyard.running.session import load_sources

_OPTIONS = (Role.GOLD, Role.DISTRACTOR)


@dataclass(frozen=True, slots=True)
class Cell:
    """One item in one form, asked by likelihoods.

    Attributes:
        form: benchmark, formulation and shots, such as "mmlu letters 0".
        options: request id and text of each option, in order; one entry for a form without options.
        work: all its requests, those after the null context included.
    """

    form: str
    options: tuple[tuple[str, str], ...]
    work: tuple[Work, ...]

    @property
    def tokens(self) -> int:
        """Of all its requests together."""
        return sum(len(one.tokens.ids) for one in self.work if one.tokens is not None)

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return max(len(one.tokens.ids) for one in self.work if one.tokens is not None)


def cells(backend: Backend, *, shots: int, items: int, longest: int) -> tuple[list[Cell], int]:
    """Cells of all forms of all benchmarks that are not in the package, the forms taking turns.

    Args:
        backend: whose tokenizer is used.
        shots: before each question.
        items: per benchmark, at random.
        longest: tokens; cells with a longer request are left out.

    Returns:
        The cells, and how many were left out for their length.
    """
    study = Study(
        model=("smollm2",),
        tasks=tuple(benchmark.name for benchmark in catalog.local()),
        forms=("mc", "mc_rnd", "mc_ao", "ll", "ll_ao", "letters"),
        templates=("harness",),
        shots=shots,
        limit=items,
        skip_refused=True,
        data=data_folder(),
    )
    plan = build(study, backend, load_sources(study))
    forms = {form.form_id: f"{form.benchmark} {form.formulation.name} {shots}" for form, _ in plan.forms}
    asked: dict[str, list[Ask]] = defaultdict(list)
    for ask in plan.asks:
        if ask.request_id is not None:
            asked[ask.cell_id].append(ask)
    by_form: dict[str, list[Cell]] = defaultdict(list)
    left_out = 0
    for asks in asked.values():
        cell = _cell(forms[asks[0].form_id], asks, plan.work)
        if cell.longest > longest:
            left_out += 1
        else:
            by_form[cell.form].append(cell)
    # the cheapest first: the slow path reads every request whole, and length is not what is compared
    return list(_in_turn([sorted(one, key=lambda cell: cell.tokens) for one in by_form.values()])), left_out


def take(found: Sequence[Cell], requests: int) -> list[Cell]:
    """The first cells that hold at least so many distinct requests together."""
    chosen: list[Cell] = []
    seen: set[str] = set()
    for cell in found:
        if len(seen) >= requests:
            break
        chosen.append(cell)
        seen |= {one.request_id for one in cell.work}
    return chosen


def distinct(found: Sequence[Cell]) -> list[Work]:
    """Every request of some cells, once."""
    return list({one.request_id: one for cell in found for one in cell.work}.values())


def prompts(backend: Backend, found: Sequence[Cell], *, each: int, max_tokens: int) -> list[Work]:
    """Greedy generations from the contexts of a few cells of every benchmark."""
    taken: dict[str, dict[str, None]] = defaultdict(dict)
    for cell in found:
        request = cell.work[0].request
        if not isinstance(request, Generate) and request.context and len(taken[cell.form.split()[0]]) < each:
            taken[cell.form.split()[0]][request.context] = None
    work: list[Work] = []
    for benchmark, contexts in taken.items():
        for i, context in enumerate(contexts):
            request = Generate(context, Sampling(max_tokens))
            work.append(Work(f"{benchmark}/{i}", request, backend.encode(request)))
    return work


def _cell(form: str, asks: Sequence[Ask], work: dict[str, Work]) -> Cell:
    options = tuple((a.request_id, a.text) for a in asks if a.role in _OPTIONS and a.request_id is not None)
    return Cell(form, options, tuple(work[a.request_id] for a in asks if a.request_id is not None))


def _in_turn(lists: Sequence[list[Cell]]) -> Iterator[Cell]:
    for i in range(max(map(len, lists), default=0)):
        for one in lists:
            if i < len(one):
                yield one[i]
