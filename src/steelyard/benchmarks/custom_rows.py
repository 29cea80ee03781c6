"""One row of a benchmark of one's own as an item, by what its TOML file says of the fields."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any, Literal

from steelyard.benchmarks.base import Record
from steelyard.benchmarks.fields import (
    FieldError,
    ascii_safe,
    check_index,
    clean,
    number,
    pick,
    show,
    text,
    texts,
)
from steelyard.core.types import (
    AnswerType,
    ChoiceAnswer,
    Item,
    NumberAnswer,
    Option,
    ProgramAnswer,
    Reference,
    TextAnswer,
)

ReferenceIs = Literal["index", "text", "letter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the fields of a row mean; see `custom.Fields` and `custom.Spec`."""

    benchmark: str
    answer_type: AnswerType
    question: str
    reference: str
    reference_is: ReferenceIs | None = None
    options: str | tuple[str, ...] = "choices"
    labels: str | tuple[str, ...] | None = None
    distractors: str | tuple[str, ...] | None = None
    worked: str | None = None
    tests: str = "test"
    entry_point: str = "entry_point"
    group: str | None = None
    item_id: str | None = None
    extra: tuple[str, ...] = ()


def parse(layout: Layout, record: Record, row: int, split: str) -> Item:
    """The item of a row. Raises FieldError."""
    return Item(
        item_id=_name(record, layout.item_id) if layout.item_id else f"{split}-{row:05d}",
        benchmark=layout.benchmark,
        question=text(record, layout.question),
        reference=_reference(layout, record),
        distractors=_distractors(layout, record),
        group=_name(record, layout.group)
        if layout.group and pick(record, layout.group) is not None
        else None,
        fields={name: text(record, name, blank=True) for name in layout.extra},
    )


def _name(record: Record, field: str) -> str:
    value = pick(record, field)
    if type(value) is int:  # a number that names something is no quantity: written out, 7 stays "7"
        return str(value)
    return clean(value, field)


def _reference(layout: Layout, record: Record) -> Reference:
    match layout.answer_type:
        case "text":
            return TextAnswer(_aliases(record, layout.reference))
        case "number":
            value, written = number(pick(record, layout.reference), layout.reference)
            return NumberAnswer(value, written, text(record, layout.worked) if layout.worked else None)
        case "choice":
            options = _options(layout, record)
            return ChoiceAnswer(_choice(layout, record, options), options)
        case "program":
            entry_point = text(record, layout.entry_point)
            if not entry_point.isidentifier():
                raise FieldError(layout.entry_point, "the name of a function", show(entry_point))
            return ProgramAnswer(text(record, layout.reference), entry_point, text(record, layout.tests))


def _aliases(record: Record, field: str) -> tuple[str, ...]:
    value = pick(record, field)
    if isinstance(value, list | tuple):
        return tuple(dict.fromkeys(texts(record, field)))
    if type(value) in {int, float}:
        raise FieldError(
            field, "a text or a list of texts", show(value), 'for numbers say answer_type = "number"'
        )
    return (clean(value, field),)


def _options(layout: Layout, record: Record) -> tuple[str, ...]:
    if isinstance(layout.options, str):
        return texts(record, layout.options, at_least=2)
    return tuple(text(record, name) for name in layout.options)


def _choice(layout: Layout, record: Record, options: tuple[str, ...]) -> int:
    value = pick(record, layout.reference)
    if layout.labels is None:
        return choice(value, options, layout.reference, layout.reference_is)
    labels = texts(record, layout.labels) if isinstance(layout.labels, str) else layout.labels
    if len(labels) != len(options) or len(set(labels)) != len(labels):
        expected = f"{len(options)} labels that differ, one for each option"
        raise FieldError("labels", expected, ", ".join(map(show, labels)))
    if type(value) is not str or value not in labels:
        raise FieldError(layout.reference, f"one of the labels {', '.join(map(show, labels))}", show(value))
    return labels.index(value)


def choice(value: object, options: tuple[str, ...], field: str, reading: ReferenceIs | None) -> int:
    """Which option a reference names.

    Declared, it is read in that way only: "index" (an integer from 0, or its digits as a text), "text" (exactly
    an option's) or "letter". Undeclared, an integer is an index and a text is an option's own text. "2" is then
    never an index: and where a text would name another option when read as an index or as a letter, the reading
    has to be declared.

    Args:
        value: the reference, as it stands in the row.
        options: to choose from.
        field: its name, for messages.
        reading: what it is declared to be.

    Raises:
        FieldError: it names none, or more than one.
    """
    n = len(options)
    match reading:
        case "index":
            digits = _digits(value, n)
            return check_index(value, field, n) if digits is None else digits
        case "letter":
            found = _letter(value, n)
            if found is None:
                raise FieldError(
                    field, f"a letter from A to {string.ascii_uppercase[min(n, 26) - 1]}", show(value)
                )
            return found
        case "text":
            return _by_text(field, value, options)
    if type(value) is int:
        return check_index(value, field, n)
    found = _by_text(field, value, options)
    others = [m for m in (_letter(value, n), _digits(value, n)) if m is not None and m != found]
    if others:
        raise FieldError(
            field,
            "a reference that can be read in one way only",
            f"{show(value)}, the text of option {found} and also a name of option {others[0]}",
            'say reference_is = "text", "index" or "letter"',
        )
    return found


def _letter(value: object, n: int) -> int | None:
    if type(value) is not str or len(value) != 1:
        return None
    at = string.ascii_uppercase.find(value.upper())
    return at if 0 <= at < n else None


def _digits(value: object, n: int) -> int | None:
    if type(value) is not str or not value.isascii() or not value.isdigit() or len(value) > 3:
        return None
    return int(value) if int(value) < n else None


def _by_text(field: str, value: object, options: tuple[str, ...]) -> int:
    at = [n for n, option in enumerate(options) if option == value and type(value) is str]
    if len(at) == 1:
        return at[0]
    if at:
        raise FieldError(field, "the text of one option", f"{show(value)}, the text of options {at}")
    hint = ""
    if _letter(value, len(options)) is not None:
        hint = 'if it is a letter, say reference_is = "letter"'
    elif _digits(value, len(options)) is not None:
        hint = 'if it is an index, say reference_is = "index"'
    elif type(value) is str and value.strip() in {o.strip() for o in options}:
        hint = "it differs from an option in white space only: make them equal"
    shown = ", ".join(ascii_safe(o if len(o) <= 30 else f"{o[:30]}...") for o in options[:4])
    more = ", ..." if len(options) > 4 else ""
    raise FieldError(field, f"exactly the text of an option ({shown}{more})", show(value), hint)


def _distractors(layout: Layout, record: Record) -> tuple[Option, ...]:
    where = layout.distractors
    if where is None:
        return ()
    if not isinstance(where, str):
        return tuple(_distractor(layout, pick(record, name), name) for name in where)
    value = pick(record, where)
    if not isinstance(value, list | tuple):
        raise FieldError(where, "a list of wrong answers", show(value))
    return tuple(_distractor(layout, entry, f"{where}[{n}]") for n, entry in enumerate(value))


def _distractor(layout: Layout, entry: Any, field: str) -> Option:  # noqa: ANN401 - what it is has to be checked
    if layout.answer_type == "number" and layout.worked:
        # with worked solutions an option is one too, and its answer is compared alone by mc_ao
        if not isinstance(entry, dict) or set(entry) != {"full", "answer"}:
            raise FieldError(field, 'an object {"full": worked solution, "answer": number}', show(entry))
        _, answer = number(entry["answer"], f"{field}.answer")
        return Option(clean(entry["full"], f"{field}.full"), answer, "data")
    answer = number(entry, field)[1] if layout.answer_type == "number" else clean(entry, field)
    return Option(answer, answer, "data")
