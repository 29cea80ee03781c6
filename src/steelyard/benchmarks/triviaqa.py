"""TriviaQA without contexts: trivia questions with aliases of the answer (Joshi et al. 2017, arXiv 1705.03551)."""

from __future__ import annotations

from steelyard.benchmarks.base import Benchmark, Capability, Record
from steelyard.benchmarks.fields import has, text, texts
from steelyard.core.types import Item, TextAnswer


def parse(record: Record, index: int, split: str) -> Item:
    """Fields: question, answer{value, aliases}; question_id where there is one. The normalized_* are not used."""
    value = text(record, "answer.value")
    aliases = texts(record, "answer.aliases", at_least=0)
    return Item(
        # not question_id: the hub's validation split joins a web and a Wikipedia part that share questions
        item_id=f"{split}-{index:05d}",
        benchmark="triviaqa",
        question=text(record, "question"),
        reference=TextAnswer(tuple(dict.fromkeys((value, *aliases)))),
        # ... and a question asked twice is no independent second item
        group=text(record, "question_id") if has(record, "question_id") else None,
    )


_NO_WORKED = "an answer here has no worked solution, so this would equal the form without _ao"
_NO_OPTIONS = "the data bring no wrong answers to choose among: use mc_rnd"

BENCHMARK = Benchmark(
    name="triviaqa",
    title="TriviaQA (rc.nocontext)",
    capability=Capability.KNOWLEDGE,
    answer_type="text",
    parse=parse,
    scorers=("exact_match", "exact_match_legacy"),
    hub="mandarjoshi/trivia_qa",
    config="rc.nocontext",
    split=("validation",),  # the test split's answers are hidden
    shot_split=("train",),
    folders=("trivia_qa", "triviaqa"),
    refuse={"mc": _NO_OPTIONS, "mc_ao": _NO_WORKED, "ll_ao": _NO_WORKED, "letters": _NO_OPTIONS},
    card="mandarjoshi/trivia_qa, licence as upstream (code: Apache-2.0); 17,944 validation rows, some "
    "questions twice.",
)
