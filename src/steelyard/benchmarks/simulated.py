"""A benchmark of simulated items, whose true score is known for every simulated model.

For trying methods and for tests: with ``simulated`` models, every number can be held against the truth
(`truth` and `core.simulation.true_score`).
"""

from __future__ import annotations

from dataclasses import replace

from steelyard.benchmarks.base import Benchmark, Capability, Loaded, Provenance, Record
from steelyard.core import rng, simulation
from steelyard.core.errors import InputError
from steelyard.core.ids import content_hash, digest
from steelyard.core.simulation import N_WRONG, Question
from steelyard.core.types import Item, Option, TextAnswer

NAME = "simulated"
N_SHOTS = 32
"""Items to draw shots from; their labels are all true."""

_SHOTS_FROM = 100_000_000  # numbers of shot items, beyond those of any evaluated one


def parse(record: Record, index: int, split: str) -> Item:
    """A row as an item.

    Args:
        record: "number", "seed", "group" (None stands alone) and "label", which picks what counts as right:
            0 is the true answer, 1 to 3 one of the wrong ones.
        index: of the row.
        split: "test" or "train".
    """
    question = Question(record["number"], record["seed"], record["group"])
    label = int(record["label"])
    if not 0 <= label <= N_WRONG:
        raise ValueError(f"label must be 0 to {N_WRONG}, got {label}")
    gold = question.answers[label]
    return Item(
        item_id=f"{split}-{index:05d}",
        benchmark=NAME,
        question=question.text(),
        reference=TextAnswer((gold,)),
        # with a wrong label, the true answer is among the distractors
        distractors=tuple(Option(text, text, "data") for text in question.answers if text != gold),
        group=None if question.group is None else f"group-{question.group}",
    )


BENCHMARK = Benchmark(
    name=NAME,
    title="Simulated items",
    capability=Capability.KNOWLEDGE,
    answer_type="text",
    parse=parse,
    scorers=("exact_match",),
    split=("test",),
    shot_split=("train",),
    card=(
        "Made by a seeded law (steelyard.core.simulation), not from data: items of known difficulty in groups, "
        "some with wrong labels. The true score of a simulated model is known; of any other model it says nothing."
    ),
)


def load_simulated(
    n_items: int = 200, n_groups: int | None = None, seed: int = 0, wrong_labels: float = 0.05
) -> Loaded:
    """Make the benchmark. An item depends on seed, number and group only: more items change none of the others.

    Args:
        n_items: evaluated items, 1 to 10^8.
        n_groups: groups that share a part of their difficulty, item i is in group ``i % n_groups``; None
            makes items that stand alone.
        seed: of all that is random here.
        wrong_labels: probability that an item's label is wrong, each item by itself, in [0, 1].

    Raises:
        InputError: a number out of range.
    """
    if not 1 <= n_items <= _SHOTS_FROM:
        raise InputError(f"n_items must be from 1 to {_SHOTS_FROM}, got {n_items}.")
    if n_groups is not None and not 1 <= n_groups <= n_items:
        raise InputError(f"n_groups must be from 1 to the {n_items} items, got {n_groups}.")
    if abs(seed) >= 10**18:
        raise InputError(f"seed must have at most 18 digits, got {seed}.")
    if not 0 <= wrong_labels <= 1:
        raise InputError(f"wrong_labels is a probability in [0, 1], got {wrong_labels}.")
    items = tuple(
        _make(number, number, "test", seed=seed, n_groups=n_groups, label=_label(seed, number, wrong_labels))
        for number in range(n_items)
    )
    shots = tuple(
        _make(_SHOTS_FROM + row, row, "train", seed=seed, n_groups=None, label=0) for row in range(N_SHOTS)
    )
    return Loaded(
        benchmark=BENCHMARK,
        items=items,
        shots=shots,
        provenance=Provenance(
            kind="package",
            location=f"{NAME}(n_items={n_items}, n_groups={n_groups}, seed={seed}, wrong_labels={wrong_labels})",
            revision="",
            split="test",
            content_hash=digest(sorted([item.item_id, item.content_hash] for item in items)),
            shot_source="train",
        ),
    )


def truth(item: Item) -> Question:
    """What the law knows of an item: its number, group, true answer (``answers[0]``) and wrong ones.

    The item's own label is ``item.gold.answer``; where it differs from the true answer it is wrong.

    Raises:
        InputError: it is no simulated item.
    """
    cell = simulation.parse(item.question)
    if cell is None:
        raise InputError(f"The item {item.item_id} of {item.benchmark} is not a simulated one.")
    return cell.question


def _label(seed: int, number: int, wrong_labels: float) -> int:
    generator = rng.stream(seed, NAME, "label", number)
    return 1 + int(generator.integers(N_WRONG)) if generator.random() < wrong_labels else 0


def _make(number: int, row: int, split: str, *, seed: int, n_groups: int | None, label: int) -> Item:
    group = None if n_groups is None else number % n_groups
    item = parse({"number": number, "seed": seed, "group": group, "label": label}, row, split)
    return replace(item, content_hash=content_hash(item))
