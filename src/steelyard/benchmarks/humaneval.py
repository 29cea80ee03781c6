"""HumanEval: Python functions to complete from their docstring (Chen et al. 2021, arXiv 2107.03374).

The programs are data here. Nothing in this package runs them.
"""

from __future__ import annotations

from steelyard.benchmarks.base import Benchmark, Capability, Record
from steelyard.benchmarks.fields import FieldError, show, text
from steelyard.core.types import Item, ProgramAnswer


def parse(record: Record, index: int, split: str) -> Item:  # noqa: ARG001 - the ids are the source's own
    """Fields: task_id, prompt, entry_point, canonical_solution, test. The prompt is kept to the last newline."""
    entry_point = text(record, "entry_point")
    if not entry_point.isidentifier():
        raise FieldError("entry_point", "the name of a Python function", show(entry_point))
    return Item(
        item_id=text(record, "task_id"),
        benchmark="humaneval",
        question=text(record, "prompt"),
        reference=ProgramAnswer(text(record, "canonical_solution"), entry_point, text(record, "test")),
    )


_NO_WORKED = "a program is its own answer, so this would equal the form without _ao"

BENCHMARK = Benchmark(
    name="humaneval",
    title="HumanEval",
    capability=Capability.CODE,
    answer_type="program",
    parse=parse,
    scorers=("program",),
    hub="openai/openai_humaneval",
    config="openai_humaneval",
    split=("test",),
    shot_split=(),
    folders=("humaneval", "openai_humaneval"),
    refuse={
        "mc": "the data bring no wrong programs to choose among: use mc_rnd",
        "mc_ao": _NO_WORKED,
        "ll_ao": _NO_WORKED,
        "letters": "whole programs as lettered options do not fit a prompt: use mc_rnd",
    },
    card="openai/human-eval, MIT; 164 problems. The tests of HumanEval/33 compare the candidate with itself in places.",
)
