"""BoolQ: yes-or-no questions that people asked, with a passage (Clark et al. 2019, arXiv 1905.10044)."""

from __future__ import annotations

from steelyard.benchmarks.base import Benchmark, Capability, Record
from steelyard.benchmarks.fields import flag, text
from steelyard.core.ids import digest
from steelyard.core.types import ChoiceAnswer, Item


def parse(record: Record, index: int, split: str) -> Item:
    """Fields: question (lower case, no question mark), passage, answer (true or false)."""
    passage = text(record, "passage")
    return Item(
        item_id=f"{split}-{index:05d}",
        benchmark="boolq",
        question=text(record, "question"),
        # the order of the standard task: no is 0
        reference=ChoiceAnswer(int(flag(record, "answer")), ("no", "yes")),
        group=f"passage-{digest(passage)[:12]}",  # some passages have several questions
        fields={"passage": passage},
    )


_NO_WORKED = "an answer here has no worked solution, so this would equal the form without _ao"

BENCHMARK = Benchmark(
    name="boolq",
    title="BoolQ",
    capability=Capability.READING,
    answer_type="choice",
    parse=parse,
    scorers=("exact_match",),
    hub="google/boolq",
    split=("validation",),
    shot_split=("train",),
    folders=("boolq",),
    refuse={"mc_ao": _NO_WORKED, "ll_ao": _NO_WORKED},
    card="google/boolq, CC BY-SA 3.0; 3270 validation questions, 62 % of them yes. mc_rnd equals mc: there is one "
    "other answer.",
)
