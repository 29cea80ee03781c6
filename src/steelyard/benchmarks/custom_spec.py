"""What the TOML file of a benchmark of one's own may say, with its defaults; unknown keys are errors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from steelyard.benchmarks import catalog
from steelyard.benchmarks.base import Capability
from steelyard.benchmarks.custom_rows import ReferenceIs
from steelyard.benchmarks.rows import SUFFIXES, suffix
from steelyard.core.errors import DataError
from steelyard.core.types import AnswerType

_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)


class Fields(BaseModel):
    """[fields]: which field of a row holds what; dots reach into objects ("answer.value").

    Attributes:
        question: what is asked.
        reference: what counts as right; for programs the canonical solution.
        options: of a choice: one field with a list, or a list of fields with one option each.
        labels: of a choice whose reference is the label of an option: a field with one label for each option, or
            the labels themselves (["1", "2", "3"]).
        distractors: wrong answers, for items that are not choices by birth: a field with a list, or a list of fields.
        worked: the whole solution text that ends in the number.
        tests, entry_point: of a program.
        group: items that share it are not independent.
        id: a text or an integer; unset: the field "id" where every row has it, else file and row.
        extra: fields that templates may show, text only.
    """

    model_config = _STRICT
    question: str = "question"
    reference: str = "answer"
    options: str | list[str] = "choices"
    labels: str | list[str] | None = None
    distractors: str | list[str] | None = None
    worked: str | None = None
    tests: str = "test"
    entry_point: str = "entry_point"
    group: str | None = None
    id: str | None = None
    extra: list[str] = Field(default_factory=list)


class Spec(BaseModel):
    """The TOML file.

    Attributes:
        file: the rows, relative to the TOML file.
        name: default: the TOML file's name. title: default: the name.
        capability: in the words of `Capability`, such as "factual knowledge"; "language" by default.
        answer_type: text (default), number, choice or program.
        reference_is: of a choice: "index" (from 0; also as digits), "text" (of an option) or "letter" (A is the first).
            Unset: an integer is an index and a text is an option's text, where no other reading is possible.
        shots: how many unless the study says otherwise. shot_file: where they come from, relative; unset: a pool
            of the items is set aside.
        scorers: for generated answers, the primary one first; unset: by answer type.
        pool: extra fields that random distractors are restricted to, from narrow to wide.
        shot_match: an extra field in which shots must agree with the item.
        templates: name -> template, for the forms layer; passed through as it is.
        card: source, licence, known faults.
    """

    model_config = _STRICT
    file: str
    name: str = ""
    title: str = ""
    capability: str = Capability.LANGUAGE.value
    answer_type: AnswerType = "text"
    reference_is: ReferenceIs | None = None
    fields: Fields = Field(default_factory=Fields)
    shots: int = Field(default=0, ge=0)
    shot_file: str | None = None
    scorers: list[str] = Field(default_factory=list)
    pool: list[str] = Field(default_factory=list)
    shot_match: str = ""
    templates: dict[str, Any] = Field(default_factory=dict)
    card: str = ""


def spec_from(table: Mapping[str, Any], path: Path) -> Spec:
    """The spec in a TOML table; `path` is the file, which gives the default name.

    Raises:
        DataError: it says something unknown or contradictory; all faults in one message.
    """
    table = {"name": path.stem, **table}
    fields = table.get("fields")
    if "answer_type" not in table and isinstance(fields, dict) and "options" in fields:
        table["answer_type"] = "choice"
    table.setdefault("title", table["name"])
    try:
        spec = Spec.model_validate(table)
    except ValidationError as error:
        faults = [_told(e["loc"], e["type"], e["msg"]) for e in error.errors()]
        raise _faulty(path, faults) from None
    faults = _contradictions(spec)
    if faults:
        raise _faulty(path, faults)
    return spec


def _contradictions(spec: Spec) -> list[str]:
    known = [c.value for c in Capability]
    faults = []
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", spec.name):
        faults.append(f"name: expected lower-case letters, digits, '_', '-' and '.'; got {spec.name!r}")
    if spec.name in (*catalog.names(), *catalog.GROUPS):
        faults.append(f"name: {spec.name!r} is a benchmark of the catalog; choose another")
    if spec.capability not in known:
        faults.append(f"capability: expected one of {', '.join(known)}; got {spec.capability!r}")
    for key, name in (("file", spec.file), ("shot_file", spec.shot_file)):
        if name is not None and not suffix(name):
            faults.append(f"{key}: expected a name that ends in {', '.join(SUFFIXES)}; got {name!r}")
    if spec.shot_file == spec.file:
        faults.append(
            "shot_file: expected another file than `file`; leave it out to set a pool of the items aside"
        )
    return faults + _misplaced(spec)


def _misplaced(spec: Spec) -> list[str]:
    fields, kind = spec.fields, spec.answer_type
    belongs = {
        "fields.options": ("choice", "options" in fields.model_fields_set),
        "fields.labels": ("choice", fields.labels is not None),
        "reference_is": ("choice", spec.reference_is is not None),
        "fields.worked": ("number", fields.worked is not None),
        "fields.tests": ("program", "tests" in fields.model_fields_set),
        "fields.entry_point": ("program", "entry_point" in fields.model_fields_set),
    }
    faults = [
        f'{key}: belongs to answer_type = "{owner}", and this is "{kind}"'
        for key, (owner, said) in belongs.items()
        if said and owner != kind
    ]
    if kind == "choice" and fields.distractors is not None:
        faults.append("fields.distractors: a choice has its wrong answers among its options; leave it out")
    if fields.labels is not None and spec.reference_is is not None:
        faults.append("reference_is: with fields.labels the reference is a label; leave one of them out")
    if isinstance(fields.options, list) and len(fields.options) < 2:
        faults.append("fields.options: expected two or more fields with one option each")
    faults += [
        f"{key}: {name!r} is not among fields.extra ({', '.join(fields.extra) or 'which is empty'})"
        for key, names in (("pool", spec.pool), ("shot_match", [spec.shot_match] if spec.shot_match else []))
        for name in names
        if name not in fields.extra
    ]
    return faults


def _told(place: tuple[int | str, ...], kind: str, message: str) -> str:
    where = ".".join(map(str, place))
    if kind != "extra_forbidden":
        return f"{where}: {message}"
    known = list(Fields.model_fields if place[0] == "fields" else Spec.model_fields)
    near = difflib.get_close_matches(str(place[-1]), known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"{where}: unknown key.{hint} Known: {', '.join(known)}"


def _faulty(path: Path, faults: list[str]) -> DataError:
    return DataError(
        f"{path.name} does not describe a benchmark:\n" + "\n".join(f"  {fault}" for fault in faults)
    )
