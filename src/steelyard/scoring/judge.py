"""Judge what a store holds: every cell by every scorer of its form. No model is needed, and seconds suffice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from steelyard.core.errors import StoreError
from steelyard.core.types import Ask, Finish, Item, Response, Role, Score, Status
from steelyard.scoring import registry
from steelyard.scoring.choice import OptionScore, judge_choice
from steelyard.scoring.likelihood import judge_likelihood
from steelyard.scoring.verdict import Verdict
from steelyard.store.reader import Store
from steelyard.store.rows import FormRow
from steelyard.store.writer import Writer

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Judged:
    """What judging a store came to.

    Attributes:
        cells: cells whose answers are complete. waiting: cells that still wait for an answer.
        scores: judgements made. changed: of them new, or different from the stored ones.
    """

    cells: int
    waiting: int
    scores: int
    changed: int


def judge_store(writer: Writer, store: Store) -> Judged:
    """Judge every answered cell and store the judgements; those equal to the stored ones are not written again.

    Raises:
        StoreError: a cell names a form or an item that the store does not have.
    """
    items = {(i.benchmark, i.item_id): i for i in store.items()}
    forms = {f.form_id: f for f in store.forms()}
    responses = store.responses()
    cells = waiting = 0
    scores: list[Score] = []
    for asks in _cells(store.asks()):
        form = _known(forms, asks[0].form_id, "form")
        item = _known(items, (form.benchmark, asks[0].item_id), "item")
        if any(a.request_id is not None and a.request_id not in responses for a in asks):
            waiting += 1
            continue
        cells += 1
        scores.extend(judge_cell(asks, form, item, responses))
    changed = writer.add_scores(scores)
    return Judged(cells, waiting, len(scores), changed)


def judge_cell(
    asks: list[Ask], form: FormRow, item: Item, responses: Mapping[str, Response]
) -> Iterator[Score]:
    """The scores of one cell, whose requests are all answered or were not asked."""
    for scorer in form.scorers:
        verdict = _verdict(scorer, asks, item, responses)
        first = asks[0]
        yield Score(
            cell_id=first.cell_id,
            run_id=first.run_id,
            item_id=first.item_id,
            form_id=first.form_id,
            sample=first.sample,
            scorer=scorer,
            status=verdict.status,
            value=verdict.value,
            extracted=verdict.extracted,
            detail=verdict.detail,
        )


def _verdict(scorer: str, asks: list[Ask], item: Item, responses: Mapping[str, Response]) -> Verdict:
    if any("overlong" in a.flags for a in asks):
        return Verdict(Status.OVERLONG, None)
    kind = registry.get(scorer).kind
    used = [a for a in asks if kind != "choice" or scorer == "pmi" or a.role in {Role.GOLD, Role.DISTRACTOR}]
    for ask in used:
        if failure := _failure(responses[ask.request_id or ""]):
            return failure
    if kind == "generation":
        response = responses[asks[0].request_id or ""]
        return registry.judge_generation(scorer, response.text or "", response.finish, item.reference)
    if kind == "likelihood":
        gold = next(a for a in asks if a.role is Role.GOLD)
        response = responses[gold.request_id or ""]
        return judge_likelihood(gold.text, response.logprob, response.n_tokens, scorer)
    return judge_choice(_options(used, responses), scorer)


def _failure(response: Response) -> Verdict | None:
    """The verdict on a request that has no answer to judge."""
    if response.finish is Finish.REFUSED:
        return Verdict(Status.REFUSED, None, detail={"why": response.error or "the server declined"})
    if response.finish is Finish.ERROR:
        why = response.error or "no reason given"
        # a server that counts tokens itself says so in its own words (see engine.server)
        status = Status.OVERLONG if why.startswith("overlong:") else Status.ERROR
        return Verdict(status, None, detail={"why": why})
    return None


def _options(asks: Iterable[Ask], responses: Mapping[str, Response]) -> list[OptionScore]:
    null = {
        a.option: responses[a.request_id or ""].logprob
        for a in asks
        if a.role in {Role.NULL_GOLD, Role.NULL_DISTRACTOR}
    }
    options = sorted((a for a in asks if a.role in {Role.GOLD, Role.DISTRACTOR}), key=lambda a: a.option or 0)
    return [
        OptionScore(
            text=a.text,
            gold=a.role is Role.GOLD,
            logprob=(response := responses[a.request_id or ""]).logprob,
            n_tokens=response.n_tokens,
            null_logprob=null.get(a.option),
        )
        for a in options
    ]


def _cells(asks: Iterable[Ask]) -> Iterator[list[Ask]]:
    ordered = sorted(asks, key=lambda a: (a.cell_id, a.role, -1 if a.option is None else a.option))
    for _, group in groupby(ordered, key=lambda a: a.cell_id):
        yield list(group)


def _known(table: Mapping[K, V], name: K, kind: str) -> V:
    try:
        return table[name]
    except KeyError:
        raise StoreError(
            f"A cell names the {kind} {name}, which the store does not have. "
            "A part was removed; run the same command again to write it anew."
        ) from None
