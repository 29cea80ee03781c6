"""MMLU: four-way questions from 57 subjects (Hendrycks et al. 2021, arXiv 2009.03300)."""

from __future__ import annotations

from steelyard.benchmarks.base import Benchmark, Capability, Record
from steelyard.benchmarks.fields import index as choice_index
from steelyard.benchmarks.fields import text, texts
from steelyard.core.types import ChoiceAnswer, Item


def parse(record: Record, index: int, split: str) -> Item:
    """Fields: question, subject, choices, answer (index from 0)."""
    options = texts(record, "choices", at_least=2)
    subject = text(record, "subject")
    return Item(
        item_id=f"{split}-{index:05d}",
        benchmark="mmlu",
        question=text(record, "question"),
        reference=ChoiceAnswer(choice_index(record, "answer", len(options)), options),
        group=subject,
        fields={"subject": subject, "subject_text": subject.replace("_", " ")},
    )


_NO_WORKED = "an answer here has no worked solution, so this would equal the form without _ao"

BENCHMARK = Benchmark(
    name="mmlu",
    title="MMLU",
    capability=Capability.KNOWLEDGE,
    answer_type="choice",
    parse=parse,
    scorers=("exact_match",),
    hub="cais/mmlu",
    config="all",
    split=("test", "validation"),
    shot_split=("dev",),
    folders=("mmlu",),
    shot_match="subject",
    refuse={"mc_ao": _NO_WORKED, "ll_ao": _NO_WORKED},
    card="cais/mmlu, MIT; 14,042 test questions, usually asked with 5 shots of the same subject from dev. About 6 % "
    "of the references are disputed (MMLU-Redux, 2024); some items repeat an option.",
)
