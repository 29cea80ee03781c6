"""HellaSwag: which ending continues a description of everyday events (Zellers et al. 2019, arXiv 1905.07830)."""

from __future__ import annotations

import re

from steelyard.benchmarks.base import Benchmark, Capability, Record
from steelyard.benchmarks.fields import FieldError, has, pick, show, text, texts
from steelyard.core.types import ChoiceAnswer, Item

_BRACKETS = re.compile(r"\[.*?\]")


def preprocess(written: str) -> str:
    """Text without the marks of its WikiHow part, as the field's standard task (lm-eval 0.4.13) shows it.

    >>> preprocess(" How to bake [title] Heat the oven [step] to 200 degrees. ")
    'How to bake. Heat the oven to 200 degrees.'
    """
    plain = written.strip().replace(" [title]", ". ")
    # a removed mark leaves two spaces; one pass and no more, so that the text stays the standard one
    return _BRACKETS.sub("", plain).replace("  ", " ")


def parse(record: Record, index: int, split: str) -> Item:
    """Fields: activity_label, ctx_a, ctx_b, or instead `query`, preprocessed already; endings, label ("0" to "3")."""
    raw = texts(record, "endings", at_least=2)
    options = tuple(map(preprocess if not has(record, "query") else _unless_done, raw))
    for n, option in enumerate(options):
        if not option.strip():
            raise FieldError(f"endings[{n}]", "an ending with text beside its [marks]", "none")
    return Item(
        item_id=f"{split}-{index:05d}",
        benchmark="hellaswag",
        question=_question(record),
        reference=ChoiceAnswer(_label(record, len(options)), options),
        # items cut from one video or one article
        group=text(record, "source_id") if has(record, "source_id") else None,
    )


def _unless_done(ending: str) -> str:
    # `preprocess` is not idempotent: a mark at an end leaves a blank there, which a second pass would strip. Rows
    # with `query` are preprocessed already, blanks and all; an ending that still has marks is the exception
    return preprocess(ending) if _BRACKETS.search(ending) else ending


def _question(record: Record) -> str:
    if has(record, "query"):
        return text(record, "query")
    # str.capitalize also makes the rest lower case; the standard task has it so
    second = text(record, "ctx_b", blank=True).capitalize()
    activity, first = text(record, "activity_label"), text(record, "ctx_a")
    return preprocess(f"{activity}: {first} {second}")


def _label(record: Record, n_options: int) -> int:
    label = pick(record, "label")
    if type(label) is str and label in {str(n) for n in range(n_options)}:
        return int(label)
    if type(label) is int and 0 <= label < n_options:
        return label
    hint = "the hub's test split has no labels: use validation" if label == "" else ""
    raise FieldError("label", f"0 to {n_options - 1}, as an integer or as a digit", show(label), hint)


_NO_WORKED = "an answer here has no worked solution, so this would equal the form without _ao"

BENCHMARK = Benchmark(
    name="hellaswag",
    title="HellaSwag",
    capability=Capability.COMMONSENSE,
    answer_type="choice",
    parse=parse,
    scorers=("exact_match",),
    hub="Rowan/hellaswag",
    split=("validation",),
    shot_split=("train",),
    folders=("hellaswag",),
    refuse={"mc_ao": _NO_WORKED, "ll_ao": _NO_WORKED},
    card="Rowan/hellaswag, MIT; 10,042 validation items. Many have faults of grammar or more than one right ending; "
    "nlg by exact match is near zero by its nature.",
)
