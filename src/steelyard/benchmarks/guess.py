"""What a file of rows alone seems to mean, for `check`: a guess that is shown and that nobody runs unseen."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steelyard.benchmarks.base import Record
from steelyard.benchmarks.custom import Custom
from steelyard.benchmarks.custom_spec import Spec, spec_from
from steelyard.benchmarks.fields import FieldError, parse_number, pick
from steelyard.benchmarks.rows import Row, suffix
from steelyard.core.errors import DataError

_QUESTION = ("question", "question_stem", "query", "prompt", "input", "problem", "instruction", "q")
_REFERENCE = (
    "answer",
    "correct_answer",
    "best_answer",
    "reference",
    "target",
    "gold",
    "label",
    "solution",
    "output",
    "answerkey",
    "answer_index",
    "answers",
    "a",
)
_OPTIONS = ("choices", "options", "endings", "candidates")
_DISTRACTORS = ("distractors", "wrong", "incorrect_answers")
_NUMBERED = re.compile(r"(answer|option|choice|sol|ending|distractor)_?[A-Ea-e1-5]")
_EXTRA = ("passage", "body", "context", "title", "subject", "support")
_GROUP = ("group", "passage_id", "subject", "topic", "category")
_PROGRAM = ("entry_point", "canonical_solution")


def guess(path: Path, rows: Sequence[Row]) -> Custom:
    """The spec that a file of rows seems to need.

    Raises:
        DataError: no field looks like a question or a reference; says which fields there are and what to write.
    """
    records = [row.record for row in rows if row.record is not None]
    common = [name for name, n in Counter(k for r in records for k in r).items() if 2 * n > len(records)]
    table: dict[str, Any] = {"file": path.name, "name": _name(path)}
    fields = _fields(records, common)
    if all(name in common for name in _PROGRAM):
        fields |= {"reference": "canonical_solution"}
        table["answer_type"] = "program"
    missing = [what for what in ("question", "reference") if what not in fields]
    if missing:
        raise DataError(
            f"{path.name}: no field looks like the {' and the '.join(missing)}. Most rows have the fields "
            f"{', '.join(common) or '(none)'}. Say which is which in a TOML file beside it:\n"
            f'  file = "{path.name}"\n  answer_type = "text"\n  [fields]\n  question = "..."\n  reference = "..."'
        )
    if "options" in fields and "answer_type" not in table:
        table |= {"answer_type": "choice"} | ({} if _labelled(records, fields) else _reading(records, fields))
    elif "answer_type" not in table:
        table["answer_type"] = "number" if _numbers(records, fields["reference"]) else "text"
    if table["answer_type"] == "choice":
        fields.pop("distractors", None)
    return Custom(path, spec_from(table | {"fields": fields}, path))


def to_toml(spec: Spec) -> str:
    """The guessed spec as a TOML file that a user can save and correct."""
    said = spec.model_dump(exclude_unset=True)
    fields = said.pop("fields", {})
    said = {k: v for k, v in said.items() if k != "title"}
    # a JSON text or list of texts is TOML as well
    lines = [f"{key} = {json.dumps(value)}" for key, value in said.items()]
    return "\n".join([*lines, "", "[fields]", *(f"{k} = {json.dumps(v)}" for k, v in fields.items()), ""])


def _name(path: Path) -> str:
    stem = path.name.removesuffix(suffix(path.name)).lower()
    allowed = string.ascii_lowercase + string.digits + "_.-"
    return ("".join(c if c in allowed else "-" for c in stem).strip("_.-") or "own") + "-guess"


def _fields(records: Sequence[Record], common: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    lower = {name.lower(): name for name in common}
    for what, names in (
        ("question", _QUESTION),
        ("reference", _REFERENCE),
        ("options", _OPTIONS),
        ("distractors", _DISTRACTORS),
        ("group", _GROUP),
    ):
        if name := next((lower[n] for n in names if n in lower), None):
            found[what] = name
    numbered = [n for n in common if _NUMBERED.fullmatch(n) and n != found.get("reference")]
    if len(numbered) > 1:
        what = "distractors" if numbered[0].lower().startswith("distractor") else "options"
        found.setdefault(what, sorted(numbered))
    if isinstance(options := found.get("options"), str):
        found["options"] = _nested(records, options, ("text", "texts"))
        labels = _nested(records, options, ("label", "labels"))
        if labels != options:
            found["labels"] = labels
    if "reference" in found:
        found["reference"] = _nested(records, found["reference"], ("text", "value"))
    extra = [
        lower[n] for n in _EXTRA if n in lower and all(isinstance(r.get(lower[n]), str) for r in records)
    ]
    if extra:
        found["extra"] = extra
    return found


def _nested(records: Sequence[Record], name: str, inner: Sequence[str]) -> str:
    value = next((r[name] for r in records if name in r), None)
    return next((f"{name}.{i}" for i in inner if isinstance(value, dict) and i in value), name)


def _values(records: Sequence[Record], field: str) -> list[Any]:
    values = []
    for record in records:
        try:
            values.append(pick(record, field))
        except FieldError:
            continue
    return values


def _labelled(records: Sequence[Record], fields: dict[str, Any]) -> bool:
    if isinstance(fields["options"], list) and "labels" not in fields:
        names = [str(n) for n, _ in enumerate(fields["options"], start=1)]
        values = set(map(str, _values(records, fields["reference"])))
        if names[-1] in values and values <= set(names):  # answers counted from 1, as in Social IQa
            fields["labels"] = names
    return "labels" in fields


def _reading(records: Sequence[Record], fields: dict[str, Any]) -> dict[str, str]:
    values = _values(records, fields["reference"])
    options = _values(records, fields["options"]) if isinstance(fields["options"], str) else []
    pairs = list(zip(values, options, strict=False))
    if values and len(pairs) == len(values) and all(isinstance(o, list) and v in o for v, o in pairs):
        return {"reference_is": "text"}
    if values and all(type(v) is int or (type(v) is str and v.isdigit()) for v in values):
        return {"reference_is": "index"}
    letters = [type(v) is str and len(v) == 1 and v.upper() in string.ascii_uppercase for v in values]
    return {"reference_is": "letter"} if values and all(letters) else {}


def _numbers(records: Sequence[Record], field: str) -> bool:
    values = _values(records, field)
    return bool(values) and all(_is_number(v) for v in values)


def _is_number(value: object) -> bool:
    if type(value) in {int, float}:
        return True
    try:
        return type(value) is str and parse_number(value) is not None
    except ValueError:
        return False
