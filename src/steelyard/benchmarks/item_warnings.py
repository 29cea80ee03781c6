"""Remarks on items that load: what makes an item, or a set of them, measure something else than meant."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from steelyard.benchmarks.assemble import duplicates
from steelyard.core.text import answer_class
from steelyard.core.types import ChoiceAnswer, Item, NumberAnswer, ProgramAnswer, TextAnswer

FEW_ITEMS = 100
LONG_ANSWER = 200
_CHECKED_FROM = 20  # items from which a rate is worth a remark
_Z = 3.0
_NOTABLE = 0.05  # an excess that matters, however many items show it
_CLASS_FROM = 5  # items that share an answer make it a class ("True") that a question may well name


@dataclass(frozen=True, slots=True)
class Remark:
    """What was noticed. `field` may be ""; `position` is the item's in the sequence, None for the whole set."""

    what: str
    todo: str = ""
    field: str = ""
    position: int | None = None


# ---------------------------------------------------------------------------------------------- one item
def classes(items: Sequence[Item]) -> frozenset[str]:
    """Answers that several items share: there a question may name the answer without giving it away."""
    counts = Counter(answer_class(i.gold.answer) for i in items)
    return frozenset(answer for answer, n in counts.items() if n >= _CLASS_FROM)


def item_remarks(item: Item, common: frozenset[str] = frozenset()) -> Iterator[Remark]:
    """Everything noticed in one item by itself; `common` holds the set's `classes`."""
    yield from _repeated_options(item)
    yield from _gold_among_distractors(item)
    if answer_class(item.gold.answer) not in common:
        yield from _gold_in_question(item)
    yield from _loose_space(item)
    reference = item.reference
    answer = item.gold.answer
    if isinstance(reference, TextAnswer) and len(answer) > LONG_ANSWER:
        yield Remark(
            f"the reference has {len(answer)} characters, too long to be generated word for word",
            "score it with rougeL or chrF, or shorten it",
            "reference",
        )
    if isinstance(reference, NumberAnswer) and reference.worked is not None:
        plain = reference.worked.replace(",", "")
        if reference.text.replace(",", "").lstrip("$€£¥") not in plain:
            yield Remark(
                f"the worked solution does not contain the answer {answer!r}", "look at both", "worked"
            )


def wrong_answers(item: Item) -> tuple[str, ...]:
    """Its wrong options, the data's own or its distractors."""
    if isinstance(item.reference, ChoiceAnswer):
        return tuple(o for n, o in enumerate(item.reference.options) if n != item.reference.index)
    return tuple(o.answer for o in item.distractors)


def _same(text: str, item: Item) -> str:
    # answer_class drops punctuation, which is all that tells "-1" from "1" and one program from another
    exact = isinstance(item.reference, NumberAnswer | ProgramAnswer) or not any(c.isalpha() for c in text)
    return " ".join(text.split()).casefold() if exact else answer_class(text)


def _repeated_options(item: Item) -> Iterator[Remark]:
    wrong = wrong_answers(item)
    options = (item.gold.answer, *wrong) if isinstance(item.reference, ChoiceAnswer) else wrong
    counts = Counter(" ".join(o.split()).casefold() for o in options)
    repeated = [o for o, n in counts.items() if n > 1]
    if repeated:
        yield Remark(f"the options repeat {repeated[0]!r}", "make them differ", "options")


def _gold_among_distractors(item: Item) -> Iterator[Remark]:
    if not item.distractors:
        return
    right = set(item.reference.aliases) if isinstance(item.reference, TextAnswer) else {item.gold.answer}
    classes = {_same(r, item) for r in right}
    for option in item.distractors:
        if _same(option.answer, item) in classes:
            yield Remark(f"the distractor {option.answer!r} is a right answer", "take it out", "distractors")


def _gold_in_question(item: Item) -> Iterator[Remark]:
    if isinstance(item.reference, NumberAnswer | ProgramAnswer):
        return
    asked = f" {answer_class(item.question)} "

    def told(text: str) -> bool:
        return len(plain := answer_class(text)) > 3 and f" {plain} " in asked

    # where the wrong options stand in the question too ("red or blue?"), the right one gives nothing away
    if told(item.gold.answer) and not any(map(told, wrong_answers(item))):
        yield Remark(
            f"the answer {item.gold.answer!r} stands in the question", "reword one of them", "question"
        )


def _loose_space(item: Item) -> Iterator[Remark]:
    if isinstance(item.reference, ProgramAnswer):
        return  # there, white space is code
    answers = item.reference.aliases if isinstance(item.reference, TextAnswer) else (item.gold.answer,)
    for name, texts in (
        ("question", [item.question]),
        ("reference", answers),
        ("options", wrong_answers(item)),
    ):
        if any(t != t.strip() for t in texts):
            yield Remark(
                "white space before or after the text, which a tokenizer reads as other tokens",
                "strip it",
                name,
            )


# ------------------------------------------------------------------------------------------------ the set
def set_remarks(items: Sequence[Item], places: Sequence[str]) -> tuple[list[Remark], tuple[str, ...]]:
    """Everything noticed in a set of items, and facts worth a line.

    Args:
        items: in the order of their rows.
        places: where each is, for remarks that name two items.
    """
    remarks = [*_repeats(items, places), *_groups(items)]
    if 0 < len(items) < FEW_ITEMS:
        half = 98 / math.sqrt(len(items))  # 1.96 * 0.5 / sqrt(n), in points
        remarks.append(
            Remark(
                f"{len(items)} items: the 95 % interval of a score near one half is about +-{half:.0f} points wide",
                "more items tell models apart",
            )
        )
    notes: list[str] = []
    for name in ("longest", "shortest"):
        remarks += _told_by_length(items, name, notes)
    remarks += _told_by_place(items)
    return remarks, tuple(notes)


def _repeats(items: Sequence[Item], places: Sequence[str]) -> Iterator[Remark]:
    repeated = set(duplicates(items))
    asked: dict[tuple[str, ...], int] = {}
    for position, item in enumerate(items):
        fields = (f"{k}={v}" for k, v in sorted(item.fields.items()))
        key = tuple(" ".join(t.split()).casefold() for t in (item.question, *fields))
        if item.item_id in repeated:
            where = f" as {places[asked[key]]}" if key in asked else " as an earlier item"
            yield Remark(f"the same question and answer{where}", "take one out", "question", position)
        elif key in asked:
            yield Remark(
                f"the same question as {places[asked[key]]} with another answer",
                "one is wrong",
                "question",
                position,
            )
        asked.setdefault(key, position)


def _groups(items: Sequence[Item]) -> Iterator[Remark]:
    sizes = Counter(i.group for i in items if i.group is not None)
    single = [g for g, n in sizes.items() if n == 1]
    if single:
        named = ", ".join(map(repr, single[:5])) + (", ..." if len(single) > 5 else "")
        yield Remark(
            f"{len(single)} of {len(sizes)} groups have one item ({named})",
            "a misspelt group does that; leave the group out if items are independent",
            "group",
        )


def _told_by_length(
    items: Sequence[Item], name: Literal["longest", "shortest"], notes: list[str]
) -> Iterator[Remark]:
    extreme = max if name == "longest" else min
    observed = expected = variance = 0.0
    n = 0
    for item in items:
        wrong = [len(w) for w in wrong_answers(item)]
        if not wrong or isinstance(item.reference, ProgramAnswer):
            continue
        lengths = [len(item.gold.answer), *wrong]
        best, p = extreme(lengths), 1 / len(lengths)
        observed += (lengths[0] == best) / lengths.count(best)
        expected, variance, n = expected + p, variance + p * (1 - p), n + 1
    if not n:
        return
    said = f"the {name} option is the right one in {observed / n:.0%} of {n} items (by chance {expected / n:.0%})"
    notes.append(said)
    excess = observed - expected
    if n >= _CHECKED_FROM and excess > max(_Z * math.sqrt(variance), _NOTABLE * n):
        yield Remark(
            said, "length alone gives answers away: make wrong options as long as right ones", "options"
        )


def _told_by_place(items: Sequence[Item]) -> Iterator[Remark]:
    places: dict[int, list[int]] = defaultdict(list)
    for item in items:
        if isinstance(item.reference, ChoiceAnswer):
            places[len(item.reference.options)].append(item.reference.index)
    for k, at in places.items():
        place, count = Counter(at).most_common(1)[0]
        n, p = len(at), 1 / k
        if n >= _CHECKED_FROM and count - n * p > (_Z + 1) * math.sqrt(n * p * (1 - p)):
            yield Remark(
                f"option {place} is the right one in {count} of {n} items with {k} options",
                "a model that prefers one letter profits: shuffle the options",
                "options",
            )
