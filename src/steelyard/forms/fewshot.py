"""Which worked examples stand before a question.

Fixed (default): one set for the whole form, so that every item shares its text. Per item: a draw named by
(seed, benchmark, item), the same for any worker, order, limit or resume. In both, never the evaluated item
and never one that asks the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from steelyard.core.errors import RefusedError
from steelyard.core.rng import keys, ranked
from steelyard.core.types import Item

ShotMode = Literal["fixed", "per_item"]


class ShotSource:
    """Items that shots are drawn from, indexed once for a benchmark.

    Args:
        items: the candidates, in source order.
        match: a field in which a shot must agree with the item (MMLU: the subject); "" for none.
        seed: of the study.
    """

    def __init__(self, items: Sequence[Item], *, match: str = "", seed: int) -> None:
        self._items = list(items)
        self._keys = keys(i.item_id for i in items)
        self._asked = [same_question(i) for i in items]
        self._match = match
        self._seed = seed
        self._fixed: dict[tuple[str, ...], list[int]] = {}

    def draw(self, item: Item, k: int, mode: ShotMode) -> tuple[Item, ...]:
        """The k shots of an item, in source order when fixed.

        Raises:
            RefusedError: there are not enough candidates; the message says how many there are.
        """
        if k == 0:
            return ()
        name = ("shots", item.benchmark) if mode == "fixed" else ("shots", item.benchmark, item.item_id)
        asked = same_question(item)
        chosen: list[int] = []
        for position in self._order(name):
            other = self._items[position]
            if other.item_id == item.item_id or self._asked[position] == asked:
                continue
            if self._match and other.fields.get(self._match) != item.fields.get(self._match):
                continue
            chosen.append(position)
            if len(chosen) == k:
                # source order: a curated set (MMLU's dev rows) keeps the order its authors gave it
                return tuple(self._items[p] for p in (sorted(chosen) if mode == "fixed" else chosen))
        raise RefusedError(
            f"{item.benchmark} was asked for {k} shots, and only {len(chosen)} can be shown with item "
            f"{item.item_id}. Ask for at most {len(chosen)} (--shots)."
        )

    def _order(self, name: tuple[str, ...]) -> Iterable[int]:
        if len(name) > 2:  # one item's own draw: asked for once, and only its first few are looked at
            return ranked(self._seed, *name, ids=self._keys)
        if name not in self._fixed:
            self._fixed[name] = list(ranked(self._seed, *name, ids=self._keys))
        return self._fixed[name]


def same_question(item: Item) -> str:
    """A key that two items share when they ask the same of the same text."""
    parts = [item.question, *(f"{name}={text}" for name, text in sorted(item.fields.items()))]
    return " ".join("\x1f".join(parts).casefold().split())
