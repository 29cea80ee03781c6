"""`mini`: four small benchmarks of our own, in the package, so that a demo and the tests need no download.

The texts are original work of this package. Their sources and the script that makes and checks the data
files are ``bench/mini/*.toml`` and ``bench/make_mini.py`` in the repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType

from steelyard.benchmarks.assemble import Source, assemble
from steelyard.benchmarks.base import Benchmark, Capability, Record
from steelyard.benchmarks.fields import FieldError, number, pick, show, text, texts
from steelyard.benchmarks.rows import Row, read_rows
from steelyard.core.errors import UnknownNameError
from steelyard.core.types import EMPTY, Item, NumberAnswer, Option, ProgramAnswer, Reference, TextAnswer

TEST, SHOTS = "test", "shots"
N_DISTRACTORS = 3


# ------------------------------------------------------------------------------------------------ the rows
def _item(
    record: Record,
    split: str,
    reference: Reference,
    distractors: tuple[Option, ...],
    *,
    part: str,
    question: str = "question",
    fields: Mapping[str, str] = EMPTY,
    group: str | None = None,
) -> Item:
    if (there := text(record, "split")) != split:
        raise FieldError("split", f"{TEST} or {SHOTS}", show(there))
    item = Item(
        item_id=text(record, "id"),
        benchmark=f"mini_{part}",
        question=text(record, question),
        reference=reference,
        distractors=distractors,
        group=group,
        fields=MappingProxyType(dict(fields)),
    )
    different = {item.gold.answer, *(option.answer for option in distractors)}
    if len(distractors) != N_DISTRACTORS or len(different) != N_DISTRACTORS + 1:
        expected = f"{N_DISTRACTORS} texts, different from each other and from the right answer"
        raise FieldError("distractors", expected, f"{[option.answer for option in distractors]!r}")
    return item


def _worked(record: object, field: str) -> Option:
    """A worked solution with its number; its last line must be the number as GSM8K writes it."""
    if not isinstance(record, dict):
        raise FieldError(field, "an object with a worked solution and its answer", show(record))
    answer, full = text(record, "answer"), text(record, field)
    if not full.endswith(f"\n#### {answer}"):
        raise FieldError(field, f"a solution whose last line is '#### {answer}'", show(full[-20:]))
    return Option(full, answer, "data")


def _parse_math(record: Record, index: int, split: str) -> Item:  # noqa: ARG001 - rows carry their ids
    gold = _worked(record, "worked")
    wrong = pick(record, "distractors")
    if not isinstance(wrong, list):
        raise FieldError("distractors", "a list of worked solutions", show(wrong))
    value, written = number(gold.answer, "answer")
    options = tuple(_worked(entry, "full") for entry in wrong)
    return _item(record, split, NumberAnswer(value, written, gold.full), options, part="math")


def _options(record: Record) -> tuple[Option, ...]:
    return tuple(Option(wrong, wrong, "data") for wrong in texts(record, "distractors"))


def _parse_facts(record: Record, index: int, split: str) -> Item:  # noqa: ARG001 - rows carry their ids
    reference = TextAnswer(texts(record, "aliases"))
    fields = {"subject": text(record, "subject")}
    return _item(record, split, reference, _options(record), part="facts", fields=fields)


def _parse_reading(record: Record, index: int, split: str) -> Item:  # noqa: ARG001 - rows carry their ids
    passage, aliases = text(record, "passage"), texts(record, "aliases")
    if aliases[0] not in passage:
        raise FieldError("aliases", "a first answer that stands in the passage", show(aliases[0]))
    return _item(
        record,
        split,
        TextAnswer(aliases),
        _options(record),
        part="reading",
        fields={"passage": passage, "title": text(record, "title")},
        group=text(record, "passage_id"),  # questions about one passage are not independent
    )


def _parse_code(record: Record, index: int, split: str) -> Item:  # noqa: ARG001 - rows carry their ids
    entry_point = text(record, "entry_point")
    if not entry_point.isidentifier():
        raise FieldError("entry_point", "the name of a Python function", show(entry_point))
    reference = ProgramAnswer(text(record, "canonical_solution"), entry_point, text(record, "test"))
    # the prompt is kept to its last newline: a body continues it
    return _item(record, split, reference, _options(record), part="code", question="prompt")


# ------------------------------------------------------------------------------------------ the benchmarks
_NO_WORKED = MappingProxyType(
    {
        "mc_ao": "its answers have no worked solution to leave out, so this would equal mc",
        "ll_ao": "its answers have no worked solution to leave out, so this would equal ll",
    }
)
_LETTERS = "whole programs as lettered options do not fit a prompt: use mc"
_CARD = "Made for this package (Apache-2.0), for demonstrations and tests, not for ranking models. "

BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark(
        name="mini_math",
        title="mini: math",
        capability=Capability.MATH,
        answer_type="number",
        parse=_parse_math,
        scorers=("numeric", "strict-match", "flexible-extract"),
        split=(TEST,),
        shot_split=(SHOTS,),
        shots=3,
        card=_CARD + "52 word problems of one to four steps. Each wrong solution has one wrong step.",
    ),
    Benchmark(
        name="mini_facts",
        title="mini: facts",
        capability=Capability.KNOWLEDGE,
        answer_type="text",
        parse=_parse_facts,
        scorers=("exact_match",),
        split=(TEST,),
        shot_split=(SHOTS,),
        shots=3,
        refuse=_NO_WORKED,
        card=_CARD + "68 questions about facts that do not change.",
    ),
    Benchmark(
        name="mini_reading",
        title="mini: reading",
        capability=Capability.READING,
        answer_type="text",
        parse=_parse_reading,
        scorers=("exact_match", "f1", "contains"),
        split=(TEST,),
        shot_split=(SHOTS,),
        pool=("passage",),
        refuse=_NO_WORKED,
        card=_CARD + "70 questions about 14 invented passages; every answer stands in its passage.",
    ),
    Benchmark(
        name="mini_code",
        title="mini: code",
        capability=Capability.CODE,
        answer_type="program",
        parse=_parse_code,
        scorers=("program",),
        split=(TEST,),
        shot_split=(SHOTS,),
        refuse=MappingProxyType({**_NO_WORKED, "letters": _LETTERS}),
        card=_CARD
        + "49 Python functions with tests. Each wrong body differs from the right one in one place.",
    ),
)
"""The four parts."""

_BY_NAME = {benchmark.name: benchmark for benchmark in BENCHMARKS}


# ------------------------------------------------------------------------------------------------ the files
def _file(name: str) -> Traversable:
    return resources.files("steelyard.benchmarks") / "data" / f"{name}.jsonl"


def load_part(name: str) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The items of one part, in the order of its file, with their content hashes.

    Args:
        name: "mini_math", "mini_facts", "mini_reading" or "mini_code".

    Returns:
        The evaluated items, and the items that shots are drawn from. The two are disjoint.

    Raises:
        UnknownNameError: there is no such part.
        DataError: the file is missing or damaged; says which lines.
    """
    if name not in _BY_NAME:
        raise UnknownNameError("part of mini", name, _BY_NAME)
    with resources.as_file(_file(name)) as path:
        rows = read_rows(path, f"{name}.jsonl")
    split: dict[bool, list[Row]] = {False: [], True: []}
    for row in rows:
        # a row that cannot be read goes to the evaluated ones, where it is reported
        split[row.record is not None and row.record.get("split") == SHOTS].append(row)
    source = Source(
        kind="package",
        location=name,
        split=TEST,
        rows=split[False],
        shot_split=SHOTS,
        shot_rows=split[True],
    )
    # shots are given, so nothing is drawn and the seed has no effect
    loaded = assemble(_BY_NAME[name], source, seed=0)
    return loaded.items, loaded.shots
