"""What is wrong with a benchmark of one's own, item by item: everything at once instead of the first fault.

Errors are what loading refuses. Warnings are items that load and may still measure something else than meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from steelyard.benchmarks.assemble import Fault, parse_row
from steelyard.benchmarks.base import Benchmark
from steelyard.benchmarks.custom import Custom, read_custom
from steelyard.benchmarks.guess import guess, to_toml
from steelyard.benchmarks.item_warnings import Remark, classes, item_remarks, set_remarks
from steelyard.benchmarks.rows import Row, read_rows
from steelyard.core.errors import DataError
from steelyard.core.types import Item

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding.

    Attributes:
        severity: "error": loading refuses it; "warning": it loads, and somebody should look.
        place: file, line and row; the file alone for the whole of it.
        row: number in the file from 0, as in item ids; None for the whole file.
        item_id: of the item, "" where the row is none.
        field: at fault, "" for the row as a whole.
        expected, got, todo: phrases for the user; `got` and `todo` may be "".
    """

    severity: Severity
    place: str
    row: int | None
    field: str
    expected: str
    got: str
    todo: str
    item_id: str = ""

    def __str__(self) -> str:
        """One sentence for the user."""
        what = f"field {self.field!r}: " if self.field else ""
        said = f"expected {self.expected}; got {self.got}" if self.got else self.expected
        return f"{self.severity}: {self.place}: {what}{said}" + (f" ({self.todo})" if self.todo else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What `check_file` found.

    Attributes:
        name: of the benchmark. file: what was checked.
        n_rows, n_items: rows read, and those that are items.
        problems: errors and warnings, the whole file's first, then by row.
        notes: facts that are neither ("longest option is right in 31 %").
        guessed: the TOML that was guessed for a file of rows alone, else "".
        example: the first item as it was understood, field by field; empty when there is none.
    """

    name: str
    file: str
    n_rows: int
    n_items: int
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    guessed: str = ""
    example: dict[str, str] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """What loading refuses."""
        return tuple(p for p in self.problems if p.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What loads and should be looked at."""
        return tuple(p for p in self.problems if p.severity == "warning")

    @property
    def ok(self) -> bool:
        """Whether it loads."""
        return not self.errors


def check_file(path: Path) -> Report:
    """Check a benchmark of one's own.

    Args:
        path: its TOML file; or a file of rows alone, whose fields are then guessed and the guess reported.

    Returns:
        The report, also for files that cannot be read: then they are its errors.
    """
    guessed = ""
    try:
        if path.name.endswith(".toml"):
            custom = read_custom(path)
        else:
            custom = guess(path, read_rows(path, path.name))
            guessed = to_toml(custom.spec)
        rows, shot_rows = custom.rows()
    except DataError as error:
        return Report(
            name=path.stem,
            file=path.name,
            n_rows=0,
            n_items=0,
            problems=(_whole("error", path.name, str(error)),),
        )
    return _check(custom, rows, shot_rows, path.name, guessed)


def _check(custom: Custom, rows: list[Row], shot_rows: list[Row], file: str, guessed: str) -> Report:
    benchmark = custom.benchmark([*rows, *shot_rows])
    items, problems = _items(benchmark, rows, benchmark.split[0])
    shots, shot_problems = _items(benchmark, shot_rows, (*benchmark.shot_split, "")[0])
    places = [_place(rows[n], n) for n, _ in items]
    common = classes([item for _, item in items])
    for (n, item), place in zip(items, places, strict=True):
        problems += [_warning(place, n, item, remark) for remark in item_remarks(item, common)]
    overall, notes = set_remarks([item for _, item in items], places)
    for remark in overall:
        if remark.position is None:
            problems.append(_warning(rows[0].file, None, None, remark))
        else:
            n, item = items[remark.position]
            problems.append(_warning(places[remark.position], n, item, remark))
    problems += shot_problems
    leak = sorted({i.item_id for _, i in items} & {i.item_id for _, i in shots})
    if leak:
        problems.append(
            _whole("error", file, f"{len(leak)} ids are in the shot file too: {', '.join(leak[:10])}")
        )
    problems += _id_remarks(custom, rows)
    if not guessed and not custom.templates:
        shown = f"no template shows the fields {', '.join(custom.spec.fields.extra)}"
        problems.append(_whole("error", file, shown, "add [templates.plain] with question = '...'"))
    problems.sort(key=lambda p: (p.row is not None, p.row or 0))
    return Report(
        name=benchmark.name,
        file=file,
        n_rows=len(rows),
        n_items=len(items),
        problems=tuple(problems),
        notes=notes,
        guessed=guessed,
        example=_example(items[0][1]) if items else {},
    )


def _items(
    benchmark: Benchmark, rows: Sequence[Row], split: str
) -> tuple[list[tuple[int, Item]], list[Problem]]:
    items, problems = [], []
    first: dict[str, str] = {}
    for n, row in enumerate(rows):
        parsed = parse_row(benchmark, row, n, split)
        place = _place(row, n)
        if isinstance(parsed, Fault):
            problems.append(_error(place, n, parsed))
            continue
        items.append((n, parsed))
        if parsed.item_id in first:
            told = Fault(
                row, n, "id", "an id of its own", f"{parsed.item_id!r}, the id of {first[parsed.item_id]}"
            )
            problems.append(_error(place, n, told))
        first.setdefault(parsed.item_id, place)
    return items, problems


def _id_remarks(custom: Custom, rows: Sequence[Row]) -> list[Problem]:
    have = Counter(row.record is not None and row.record.get("id") is not None for row in rows)
    if custom.spec.fields.id is None and have[True] and have[False]:
        remark = f"{have[True]} of {have[True] + have[False]} rows have a field 'id', so it is not used"
        return [_whole("warning", rows[0].file, remark, "give every row one, or items are named by row")]
    return []


def _place(row: Row, n: int) -> str:
    return Fault(row, n, "", "", "").place


def _error(place: str, n: int, fault: Fault) -> Problem:
    return Problem(
        severity="error",
        place=place,
        row=n,
        field=fault.field,
        expected=fault.expected,
        got=fault.got,
        todo=fault.todo,
    )


def _warning(place: str, n: int | None, item: Item | None, remark: Remark) -> Problem:
    return Problem(
        severity="warning",
        place=place,
        row=n,
        item_id=item.item_id if item else "",
        field=remark.field,
        expected=remark.what,
        got="",
        todo=remark.todo,
    )


def _whole(severity: Severity, file: str, what: str, todo: str = "") -> Problem:
    return Problem(severity=severity, place=file, row=None, field="", expected=what, got="", todo=todo)


def _example(item: Item) -> dict[str, str]:
    shown: dict[str, Any] = {"id": item.item_id, "question": item.question, "right": item.gold.full}
    wrong = [o.full for o in item.distractors]
    reference = item.reference.to_json()
    if reference["type"] == "choice":
        wrong = [o for n, o in enumerate(reference["options"]) if n != reference["index"]]
    if wrong:
        shown["wrong"] = " | ".join(wrong)
    if item.group is not None:
        shown["group"] = item.group
    return shown | dict(item.fields)
