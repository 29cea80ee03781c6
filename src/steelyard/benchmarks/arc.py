"""ARC: science questions from school examinations, an easy and a hard set (Clark et al. 2018, arXiv 1803.05457)."""

from __future__ import annotations

from functools import partial

from steelyard.benchmarks.base import Benchmark, Capability, Record
from steelyard.benchmarks.fields import FieldError, show, text, texts
from steelyard.core.types import ChoiceAnswer, Item


def parse(record: Record, index: int, split: str, *, benchmark: str) -> Item:  # noqa: ARG001 - the source's own ids
    """Fields: id, question, choices{text, label}, answerKey. Labels are A to E, or 1 to 5 in some items."""
    options = texts(record, "choices.text", at_least=2)
    labels = texts(record, "choices.label", at_least=2)
    if len(labels) != len(options):
        raise FieldError(
            "choices", "one label for each text", f"{len(labels)} labels and {len(options)} texts"
        )
    if len(set(labels)) < len(labels):
        raise FieldError("choices.label", "labels that differ", ", ".join(labels))
    key = text(record, "answerKey")
    if key not in labels:
        raise FieldError("answerKey", f"one of the labels {', '.join(labels)}", show(key))
    return Item(
        item_id=text(record, "id"),
        benchmark=benchmark,
        question=text(record, "question"),
        reference=ChoiceAnswer(labels.index(key), options),
    )


_NO_WORKED = "an answer here has no worked solution, so this would equal the form without _ao"


def _arc(name: str, title: str, config: str, n_test: int) -> Benchmark:
    return Benchmark(
        name=name,
        title=title,
        capability=Capability.KNOWLEDGE,
        answer_type="choice",
        parse=partial(parse, benchmark=name),
        scorers=("exact_match",),
        hub="allenai/ai2_arc",
        config=config,
        split=("test", "validation"),
        shot_split=("train",),
        folders=(f"ai2_arc/{config}", config),
        refuse={"mc_ao": _NO_WORKED, "ll_ao": _NO_WORKED},
        card=f"allenai/ai2_arc, CC BY-SA 4.0; {n_test} test questions, most with four options, a few with 3 or 5.",
    )


ARC_EASY = _arc("arc_easy", "ARC-Easy", "ARC-Easy", 2376)
ARC_CHALLENGE = _arc("arc_challenge", "ARC-Challenge", "ARC-Challenge", 1172)
BENCHMARKS = (ARC_EASY, ARC_CHALLENGE)
