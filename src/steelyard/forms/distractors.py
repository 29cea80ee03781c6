"""Which options an item is given: the data's own, its smart distractors, or other items' right answers.

Random distractors follow these rules (specs of the paper's forms are unpublished; these are ours):
the draw is named by (seed, benchmark, item) and ranks every candidate on its own, so adding items or using
more processes moves nothing else; a candidate that shares a form of its answer (an alias, after normalisation;
for numbers the value) with the right answer or with an earlier option is rejected; on passage tasks candidates
come from the same passage, then the same article, and a span that contains or lies in a gold alias is rejected;
the source item is recorded. Items that stay short are flagged, never padded.
Context distractors (mc_rnd*) are the same, but all of the item's own passage are taken, `CONTEXT_MOST` at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.core.errors import RefusedError
from steelyard.core.rng import keys, ranked, stream
from steelyard.core.text import answer_class
from steelyard.core.types import ChoiceAnswer, Item, NumberAnswer, Option, ProgramAnswer, TextAnswer
from steelyard.forms.formulation import Candidates, Formulation

CONTEXT_MOST = 16
"""Other answers of one passage at most, as in the paper (Hangya et al. 2025: 6 +- 2.22 an item, at most 16)."""


@dataclass(frozen=True, slots=True)
class Options:
    """An item's options in the order in which they are asked or shown.

    Attributes:
        options: the gold among them. gold: its position.
        short: how many distractors are missing of those asked for.
        left: other answers of the passage that were left out because there are more than `CONTEXT_MOST`.
    """

    options: tuple[Option, ...]
    gold: int
    short: int = 0
    left: int = 0


class Pool:
    """Other items' right answers, indexed once for a benchmark.

    Args:
        items: every item of the evaluated split, also those that are not evaluated.
        tiers: fields that candidates must share with the item, from narrow to wide; empty: no restriction.
    """

    def __init__(self, items: Sequence[Item], tiers: Sequence[str] = ()) -> None:
        self._items = list(items)
        self._keys = keys(i.item_id for i in items)
        self._tiers = tuple(tiers)
        self._members: dict[tuple[str, str], list[int]] = defaultdict(list)
        for position, item in enumerate(self._items):
            for tier in self._tiers:
                self._members[tier, item.fields[tier]].append(position)

    def candidates(self, item: Item, seed: int) -> Iterator[tuple[Item, bool]]:
        """Other items in the order in which they are tried, and whether each is of the narrowest tier: these first."""
        seen: set[int] = set()
        for tier, positions in enumerate(self._positions(item)):
            for rank in ranked(seed, "distractors", item.benchmark, item.item_id, ids=self._keys[positions]):
                position = int(positions[rank])
                other = self._items[position]
                if position not in seen and other.item_id != item.item_id:
                    seen.add(position)
                    yield other, tier == 0

    @property
    def spans(self) -> bool:
        """Whether answers are spans of a shared text, so that overlapping ones are rejected."""
        return bool(self._tiers)

    def _positions(self, item: Item) -> Iterator[np.ndarray]:
        if not self._tiers:
            yield np.arange(len(self._items))
        for tier in self._tiers:
            yield np.array(self._members.get((tier, item.fields[tier]), []), dtype=np.int64)


def options_for(item: Item, formulation: Formulation, pool: Pool, *, k: int, seed: int) -> Options:
    """The options of an item under a formulation that chooses.

    Args:
        item: the item.
        formulation: with candidates "smart", "random" or "context".
        pool: of the item's benchmark.
        k: random distractors wanted per item, >= 1; of context ones there are as many as the passage has, and
            where these are fewer than k, others of the next wider tier.
        seed: of the study.

    Raises:
        RefusedError: smart options are asked for and the item has none.
    """
    if formulation.candidates is Candidates.RANDOM:
        return _random(item, pool, k=k, seed=seed)
    if formulation.candidates is Candidates.CONTEXT:
        return _random(item, pool, k=k, seed=seed, whole=True)
    if isinstance(item.reference, ChoiceAnswer):
        index, texts = item.reference.index, item.reference.options
        own = tuple(Option(t, t, "gold" if n == index else "data") for n, t in enumerate(texts))
        return Options(own, index)
    if not item.distractors:
        raise RefusedError(
            f"{formulation.name} needs smart options, and item {item.item_id} of {item.benchmark} brings none. "
            "Use mc_rnd, which takes other items' answers."
        )
    return _shuffled(item, list(item.distractors), seed, short=0)


def _random(item: Item, pool: Pool, *, k: int, seed: int, whole: bool = False) -> Options:
    """Other answers, k where there are so many; `whole`: and all of the narrowest tier, up to `CONTEXT_MOST`."""
    taken = _classes(item)
    spans = [answer_class(a) for a in _texts(item)] if pool.spans else []
    found: list[Option] = []
    left, most = 0, max(k, CONTEXT_MOST)
    for other, near in pool.candidates(item, seed):
        if len(found) >= k and not (whole and near):
            break
        candidate, classes = other.gold, _classes(other)
        # all aliases of the candidate count: "USA" is right where "United States" is, if its item says so
        if classes & taken or any(_overlap(answer_class(candidate.answer), span) for span in spans):
            continue
        taken |= classes
        if len(found) == most:
            left += 1
            continue
        found.append(Option(candidate.full, candidate.answer, f"item:{other.item_id}"))
    return _shuffled(item, found, seed, short=max(0, k - len(found)), left=left)


def _shuffled(item: Item, wrong: list[Option], seed: int, short: int, left: int = 0) -> Options:
    # the gold's position is drawn per item: always first would teach a model (or a bug) where it is
    order = stream(seed, "option-order", item.benchmark, item.item_id).permutation(len(wrong) + 1)
    options = [item.gold, *wrong]
    return Options(tuple(options[i] for i in order), int(np.flatnonzero(order == 0)[0]), short, left)


def _classes(item: Item) -> set[Hashable]:
    """Every form of the right answer; two items that share one have the same answer."""
    match item.reference:
        case NumberAnswer(value=value):
            return {value}  # equal and hashed by value: 7 and 7.00, but not 7 and -7
        case ProgramAnswer(solution=solution):
            return {" ".join(solution.split())}
        case _:
            return {answer_class(text) for text in _texts(item)}


def _texts(item: Item) -> tuple[str, ...]:
    """The right answer as short texts; () where it is none."""
    match item.reference:
        case TextAnswer(aliases):
            return aliases
        case ChoiceAnswer():
            return (item.gold.answer,)
        case _:
            return ()


def _overlap(a: str, b: str) -> bool:
    """Whether one span of words contains the other ("14 june" and "june"; not "art" and "party")."""
    return f" {a} " in f" {b} " or f" {b} " in f" {a} "


def equals_own_options(item: Item, options: Options) -> bool:
    """Whether random options turned out to be the item's own options (a yes/no benchmark has only one other)."""
    if not isinstance(item.reference, ChoiceAnswer):
        return False
    return {o.full for o in options.options} == set(item.reference.options)
