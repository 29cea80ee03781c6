"""GSM8K: word problems of grade-school mathematics with worked solutions (Cobbe et al. 2021, arXiv 2110.14168)."""

from __future__ import annotations

from steelyard.benchmarks.base import Benchmark, Capability, Record
from steelyard.benchmarks.fields import FieldError, parse_number, show, text
from steelyard.core.types import Item, NumberAnswer

_MARK = "####"


def parse(record: Record, index: int, split: str) -> Item:
    """Fields: question, answer (steps with <<calculations>>, then "#### N")."""
    worked = text(record, "answer")
    _, mark, final = worked.rpartition(_MARK)
    if not mark:
        raise FieldError("answer", f"a solution that ends in '{_MARK} N'", f"no {_MARK} in {show(worked)}")
    try:
        # the source's own grader deletes commas wherever they stand
        value = parse_number(final, any_grouping=True)
    except ValueError as error:
        raise FieldError("answer", f"{error} after {_MARK}", show(final)) from None
    return Item(
        item_id=f"{split}-{index:05d}",
        benchmark="gsm8k",
        question=text(record, "question"),
        # the calculations in << >> stay: they are in the field's standard shots
        reference=NumberAnswer(value, final.strip(), worked),
    )


_NO_OPTIONS = "the data bring no wrong solutions to choose among: use mc_rnd"

BENCHMARK = Benchmark(
    name="gsm8k",
    title="GSM8K",
    capability=Capability.MATH,
    answer_type="number",
    parse=parse,
    scorers=("numeric", "strict-match", "flexible-extract"),
    hub="openai/gsm8k",
    config="main",
    split=("test",),
    shot_split=("train",),
    folders=("gsm8k",),
    shots=5,
    refuse={"mc": _NO_OPTIONS, "mc_ao": _NO_OPTIONS, "letters": _NO_OPTIONS},
    card="openai/grade-school-math, MIT; 1319 test problems. A few references are wrong (GSM8K-Platinum, 2025).",
)
