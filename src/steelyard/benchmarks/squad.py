"""SQuAD v1.1: questions on paragraphs of Wikipedia, answered by a span (Rajpurkar et al. 2016, arXiv 1606.05250)."""

from __future__ import annotations

from steelyard.benchmarks.base import Benchmark, Capability, Record
from steelyard.benchmarks.fields import FieldError, pick, text, texts
from steelyard.core.types import Item, TextAnswer


def parse(record: Record, index: int, split: str) -> Item:  # noqa: ARG001 - the ids are the source's own
    """Fields: id, title, context, question, answers{text}: one reference or several, repeats are one."""
    if pick(record, "answers.text") == []:
        raise FieldError(
            "answers.text", "at least one answer (SQuAD v1.1)", "none", "SQuAD v2 has such questions"
        )
    title = text(record, "title")
    return Item(
        item_id=text(record, "id"),
        benchmark="squad",
        question=text(record, "question"),
        reference=TextAnswer(tuple(dict.fromkeys(texts(record, "answers.text")))),
        group=title,  # several questions share a passage, several passages an article
        fields={"passage": text(record, "context"), "title": title},
    )


_NO_WORKED = "an answer here has no worked solution, so this would equal the form without _ao"
_NO_OPTIONS = "the data bring no wrong answers to choose among: use mc_rnd"

BENCHMARK = Benchmark(
    name="squad",
    title="SQuAD v1.1",
    capability=Capability.READING,
    answer_type="text",
    parse=parse,
    scorers=("exact_match", "f1", "contains"),
    hub="rajpurkar/squad",
    config="plain_text",
    split=("validation",),
    shot_split=("train",),
    folders=("squad",),
    pool=("passage", "title"),
    refuse={"mc": _NO_OPTIONS, "mc_ao": _NO_WORKED, "ll_ao": _NO_WORKED, "letters": _NO_OPTIONS},
    card="rajpurkar/squad, CC BY-SA 4.0; 10,570 validation questions with three or more references each.",
)
