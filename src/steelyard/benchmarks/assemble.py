"""From rows to a loaded benchmark: parse, hash, find repeats, set a shot pool aside. The same for every source."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from steelyard.benchmarks.base import Benchmark, Loaded, Provenance
from steelyard.benchmarks.fields import FieldError
from steelyard.benchmarks.rows import Row
from steelyard.core.errors import DataError
from steelyard.core.ids import content_hash, digest
from steelyard.core.rng import keys, ranked
from steelyard.core.types import ChoiceAnswer, Item, NumberAnswer, ProgramAnswer, TextAnswer

MAX_TOLD = 20
MAX_SHOT_ROWS = 10_000
"""A train split can have 138,000 rows; shots are drawn from a fixed random part of a longer one."""
POOL_SIZE = 32
_POOL_SHARE = 4  # at most one in four items is set aside
_POOL_PER_VALUE = 5  # of each subject, where shots must share the item's subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows with their origin.

    Attributes:
        kind: "hub", "local" or "package". location, revision: see `Provenance`.
        split: the evaluated split, its rows are `rows`.
        shot_split: where shots come from, its rows are `shot_rows`; "" sets a pool of the evaluated split aside.
    """

    kind: str
    location: str
    split: str
    rows: Sequence[Row]
    revision: str = ""
    shot_split: str = ""
    shot_rows: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row is no item.

    Attributes:
        row: where it is. index: its number in the split, from 0, as in item ids.
        field: the field at fault, "" for the row as a whole.
        expected, got, todo: phrases for the user.
    """

    row: Row
    index: int
    field: str
    expected: str
    got: str
    todo: str = ""

    @property
    def place(self) -> str:
        """File, line and row, as a person looks it up."""
        return f"{self.row.file}, " + (
            f"line {self.row.line} (row {self.index})" if self.row.line else f"row {self.index}"
        )

    def __str__(self) -> str:
        """One sentence for the user."""
        what = f"field {self.field!r}: " if self.field else ""
        said = f"expected {self.expected}; got {self.got}" if self.got else self.expected
        return f"{self.place}: {what}{said}" + (f" ({self.todo})" if self.todo else "")


def choose_splits(benchmark: Benchmark, there: Iterable[str]) -> tuple[str, str]:
    """The evaluated split and the one that shots come from, by the benchmark's order of preference.

    Where none of its shot splits is there, another of its evaluable splits serves (ARC's validation rows when
    test is evaluated); "" where there is no other. ("", "") when nothing can be evaluated.
    """
    have = set(there)
    split = next((s for s in benchmark.split if s in have), "")
    spare = (*benchmark.shot_split, *reversed(benchmark.split))
    return split, next((s for s in spare if split and s in have and s != split), "")


def parse_row(benchmark: Benchmark, row: Row, index: int, split: str) -> Item | Fault:
    """One row as an item with its content hash, or why it is none."""
    if row.record is None:
        return Fault(row, index, "", row.fault, "")
    try:
        item = benchmark.parse(row.record, index, split)
    except FieldError as error:
        return Fault(row, index, error.field, error.expected, error.got, error.todo)
    except KeyError as error:
        return Fault(row, index, str(error.args[0]) if error.args else "", "a value", "no such field")
    except (ValueError, TypeError) as error:
        return Fault(row, index, "", f"a row of {benchmark.name}", str(error))
    if item.answer_type != benchmark.answer_type:
        return Fault(
            row, index, "", f"an answer of type {benchmark.answer_type}", f"one of type {item.answer_type}"
        )
    return dataclasses.replace(item, content_hash=content_hash(item))


def parse_rows(
    benchmark: Benchmark, rows: Sequence[Row], split: str, at: Sequence[int] | None = None
) -> tuple[Item, ...]:
    """Every row as an item, or those at the positions `at`.

    Raises:
        DataError: some row is no item; one error tells up to 20 of them. Or an id occurs twice.
    """
    numbered = enumerate(rows) if at is None else ((n, rows[n]) for n in at)
    parsed = [parse_row(benchmark, row, n, split) for n, row in numbered]
    faults = [p for p in parsed if isinstance(p, Fault)]
    if faults:
        told = "\n".join(f"  {fault}" for fault in faults[:MAX_TOLD])
        more = f"\n  and {len(faults) - MAX_TOLD} more rows" if len(faults) > MAX_TOLD else ""
        raise DataError(
            f"{benchmark.name}: {len(faults)} of {len(parsed)} rows do not fit:\n{told}{more}\n"
            "Nothing was loaded: a wrong reference would count as a wrong answer. Correct or remove these rows."
        )
    items = tuple(p for p in parsed if isinstance(p, Item))
    _refuse_repeated_ids(benchmark, items, at or range(len(items)), rows[0].file if rows else "")
    return items


def _refuse_repeated_ids(benchmark: Benchmark, items: Sequence[Item], at: Sequence[int], file: str) -> None:
    counts = Counter(i.item_id for i in items)
    repeated = [i for i, n in counts.items() if n > 1]
    if repeated:
        where = defaultdict(list)
        for n, item in zip(at, items, strict=True):
            if counts[item.item_id] > 1:
                where[item.item_id].append(n)
        told = "; ".join(f"{i!r} in rows {', '.join(map(str, where[i]))}" for i in repeated[:10])
        more = f"; and {len(repeated) - 10} more" if len(repeated) > 10 else ""
        raise DataError(
            f"{benchmark.name}: {file} has {len(repeated)} ids that occur more than once: {told}{more}. "
            "Expected one row an id. Remove the repeated rows or give them ids of their own."
        )


def assemble(benchmark: Benchmark, source: Source, *, seed: int) -> Loaded:
    """The benchmark with its items, shots and provenance.

    Raises:
        DataError: rows that do not fit, repeated ids, or an id that both splits have.
    """
    items = parse_rows(benchmark, source.rows, source.split)
    at = _shot_positions(benchmark, len(source.shot_rows))
    shots = parse_rows(benchmark, source.shot_rows, source.shot_split, at) if source.shot_split else ()
    both = sorted({i.item_id for i in items} & {i.item_id for i in shots})
    if both:
        raise DataError(
            f"{benchmark.name}: {len(both)} ids are in {source.split} and in {source.shot_split}, where shots come "
            f"from: {', '.join(both[:10])}. Expected two splits that share no item. Remove them from one."
        )
    return package(benchmark, items, shots, source, seed=seed)


def _shot_positions(benchmark: Benchmark, n: int) -> Sequence[int] | None:
    # of a split with `shot_match` every row may be needed: a part of it could miss a subject
    if n <= MAX_SHOT_ROWS or benchmark.shot_match:
        return None
    # no seed: the same part for every study, and shots are then drawn from it with the study's
    draw = ranked(0, "shot-rows", benchmark.name, ids=keys(map(str, range(n))))
    return sorted(islice(draw, MAX_SHOT_ROWS))


def package(
    benchmark: Benchmark, items: tuple[Item, ...], shots: tuple[Item, ...], source: Source, *, seed: int
) -> Loaded:
    """Items that exist already as a loaded benchmark; without shots, a pool of the items is set aside."""
    return Loaded(
        benchmark=benchmark,
        items=items,
        shots=shots or shot_pool(benchmark, items, seed=seed),
        provenance=Provenance(
            kind=source.kind,
            location=source.location,
            revision=source.revision,
            split=source.split,
            content_hash=digest(sorted([i.item_id, i.content_hash] for i in items)),
            shot_source=source.shot_split if shots else "pool",
        ),
        duplicates=duplicates(items),
    )


def shot_pool(benchmark: Benchmark, items: Sequence[Item], *, seed: int) -> tuple[Item, ...]:
    """Items set aside as shots, in source order: 32, or a quarter of the items where that is fewer.

    Each item has its own key for the draw, so a pool hardly changes when items are added. Where shots must
    share a field with the item (`Benchmark.shot_match`), up to 5 of each value are taken instead.
    """
    if not benchmark.shot_match:
        chosen = _drawn(benchmark, items, range(len(items)), POOL_SIZE, seed)
    else:
        values: Mapping[str, list[int]] = defaultdict(list)
        for position, item in enumerate(items):
            values[item.fields.get(benchmark.shot_match, "")].append(position)
        chosen = [p for at in values.values() for p in _drawn(benchmark, items, at, _POOL_PER_VALUE, seed)]
    return tuple(items[p] for p in sorted(chosen))


def _drawn(benchmark: Benchmark, items: Sequence[Item], at: Sequence[int], size: int, seed: int) -> list[int]:
    ids = keys(items[p].item_id for p in at)
    draw = ranked(seed, "shot-pool", benchmark.name, ids=ids)
    return [at[n] for n in islice(draw, min(size, len(at) // _POOL_SHARE))]


def duplicates(items: Iterable[Item]) -> tuple[str, ...]:
    """Ids of items that ask the same and have the same answer as an earlier one, white space and case aside."""
    seen: set[str] = set()
    found = []
    for item in items:
        asked = [_plain(item.question), _answer(item)]
        group = _plain((item.group or "").replace("_", " "))
        # a passage is part of what is asked; a subject or a title only says where the item stands
        asked += [
            f"{name}={plain}"
            for name, value in sorted(item.fields.items())
            if (plain := _plain(value)) and _plain(plain.replace("_", " ")) != group
        ]
        key = digest(asked)
        if key in seen:
            found.append(item.item_id)
        seen.add(key)
    return tuple(found)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _answer(item: Item) -> str:
    match item.reference:
        case TextAnswer(aliases):
            return _plain(aliases[0])
        case NumberAnswer(value=value):
            return str(value.normalize())
        case ChoiceAnswer(index, options):
            # the same options in another order are the same question
            return "\x1f".join([_plain(options[index]), *sorted(map(_plain, options))])
        case ProgramAnswer(solution=solution):
            return _plain(solution)
