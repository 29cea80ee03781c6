"""Typed reading of a row's fields: what is not exactly right is an error that says so, never a guess.

Python would let a lot pass: True is an int, "18" becomes an index, a missing key becomes "None". A gold that
is read wrongly looks like a wrong model, so nothing is coerced here (lm-evaluation-harness #3170, #597).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_SHOWN = 80
_NUMBER = re.compile(
    r"""
    (?P<sign>[-+\u2212]?) \s* (?P<currency>[$€£¥]?) (?P<inner>[-\u2212]?) \s*
    (?P<whole>[0-9][0-9,]*|) (?P<fraction>\.[0-9]*|)
    """,
    re.VERBOSE,
)
_GROUPED = re.compile(r"[0-9]{1,3}(,[0-9]{3})+")


class FieldError(ValueError):
    """A field of a row is not what the schema says.

    Args:
        field: its name, dotted where it is nested ("answer.value").
        expected: what it should have been, as a phrase.
        got: what came, already fit to be shown.
        todo: what to do about it; "" when `expected` says it.
    """

    def __init__(self, field: str, expected: str, got: str, todo: str = "") -> None:
        super().__init__(f"field {field!r}: expected {expected}; got {got}")
        self.field, self.expected, self.got, self.todo = field, expected, got, todo


def show(value: object) -> str:
    r"""A value for an error message: shortened with its length said, and nothing a terminal would obey.

    >>> show("a\x1b[2J")
    "'a\\x1b[2J' (text)"
    >>> show(True)
    'True (true or false)'
    """
    kinds = {
        str: "text",
        bool: "true or false",
        int: "integer",
        float: "number",
        list: "list",
        dict: "object",
    }
    if value is None:
        return "null"
    kind = kinds.get(type(value), type(value).__name__)
    if isinstance(value, str):
        cut = f"{ascii_safe(value[:_SHOWN])}... of {len(value)} characters" if len(value) > _SHOWN else ""
        return f"{cut or ascii_safe(value)} ({kind})"
    if isinstance(value, Mapping):
        return f"an object with the fields {', '.join(sorted(ascii_safe(str(k)[:40]) for k in value)) or '(none)'}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if (
        type(value) is int and value.bit_length() > 200
    ):  # its digits could be thousands, and Python may refuse
        return f"an integer of {value.bit_length()} bits"
    return f"{value!r} ({kind})"


def ascii_safe(text: str) -> str:
    """`repr` with lone surrogates and invisible or reordering characters escaped; other scripts stay readable."""
    return repr(text).encode("utf-8", "backslashreplace").decode("utf-8")


def pick(record: Mapping[str, Any], field: str) -> Any:  # noqa: ANN401 - what comes out is what has to be checked
    """The value at a field, dotted for nested ones. Raises FieldError where there is none."""
    value: Any = record
    for depth, part in enumerate(parts := field.split(".")):
        if not isinstance(value, Mapping):
            raise FieldError(".".join(parts[:depth]), f"an object with the field {part!r}", show(value))
        if part not in value:
            there = ", ".join(sorted(ascii_safe(str(k)) for k in value)[:12]) or "no field at all"
            raise FieldError(field, "a value", f"no such field (the row has {there})")
        value = value[part]
    return value


def has(record: Mapping[str, Any], field: str) -> bool:
    """Whether a top-level field is there and not null."""
    return record.get(field) is not None


def clean(value: object, field: str, *, blank: bool = False) -> str:
    """Text that a model can be asked: not blank, no NUL, no lone surrogate. Returned exactly as it came."""
    if type(value) is not str:
        raise FieldError(field, "text", show(value))
    if not blank and not value.strip():
        raise FieldError(field, "text that is not blank", show(value))
    if "\x00" in value:
        raise FieldError(
            field, "text without NUL characters", f"one at position {value.index(chr(0))}", "remove it"
        )
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FieldError(
            field,
            "valid Unicode text",
            f"half a surrogate pair (U+{ord(value[error.start]):04X}) at position {error.start}",
            "write the whole character, or remove it",
        ) from None
    return value


def text(record: Mapping[str, Any], field: str, *, blank: bool = False) -> str:
    """A text field; blank text is an error unless allowed."""
    return clean(pick(record, field), field, blank=blank)


def texts(record: Mapping[str, Any], field: str, *, at_least: int = 1) -> tuple[str, ...]:
    """A field that is a list of texts, none of them blank."""
    value = pick(record, field)
    if not isinstance(value, list | tuple):
        raise FieldError(field, "a list of texts", show(value))
    if len(value) < at_least:
        raise FieldError(field, f"a list of {at_least} or more texts", show(value))
    return tuple(clean(entry, f"{field}[{n}]") for n, entry in enumerate(value))


def index(record: Mapping[str, Any], field: str, n_options: int) -> int:
    """A field that is an index into options, counted from 0. True and "1" are not indices."""
    return check_index(pick(record, field), field, n_options)


def check_index(value: object, field: str, n_options: int) -> int:
    """The same for a value that is read already."""
    if type(value) is not int or not 0 <= value < n_options:
        hint = ""
        if value in {n_options, str(n_options)}:
            hint = "indices count from 0; these seem to count from 1"
        elif isinstance(value, str) and value.strip().isdigit():
            hint = "a text is no index: write the integer without quotes"
        raise FieldError(field, f"an index from 0 to {n_options - 1} (integer)", show(value), hint)
    return value


def flag(record: Mapping[str, Any], field: str) -> bool:
    """A field that is true or false, and not 0, 1 or "true"."""
    value = pick(record, field)
    if type(value) is not bool:
        raise FieldError(field, "true or false", show(value))
    return value


def parse_number(written: str, *, any_grouping: bool = False) -> Decimal:
    """The number that a text is, all of it: sign, currency sign, thousands commas and decimals are understood.

    Args:
        written: such as "18", "-1,000.50", "$18", "$-5".
        any_grouping: commas may stand anywhere (GSM8K's own grader deletes them); otherwise only between
            groups of three digits, since "1,5" means one and a half in half of the world.

    Raises:
        ValueError: it is not exactly one number; says why.

    >>> parse_number("$1,450,000")
    Decimal('1450000')
    """
    match = _NUMBER.fullmatch(written.strip())
    if match is None or not (match["whole"] or match["fraction"].strip(".")):
        raise ValueError("a number and nothing else")
    if match["sign"] and match["inner"]:
        raise ValueError("a number with one sign")
    whole = match["whole"]
    if "," in whole and not any_grouping and not _GROUPED.fullmatch(whole):
        raise ValueError("a number whose commas stand between groups of three digits")
    negative = match["sign"] in {"-", "\u2212"} or bool(match["inner"])
    return Decimal(f"{'-' if negative else ''}{whole.replace(',', '') or '0'}{match['fraction']}")


def number(value: object, field: str) -> tuple[Decimal, str]:
    """A number given as an integer, a finite number or a text, with how it is written."""
    if type(value) is int:
        return Decimal(value), str(value)
    if type(value) is float:
        # repr is the shortest text that reads back as this float: 0.1 stays 0.1
        exact = Decimal(repr(value))
        if not exact.is_finite():
            raise FieldError(field, "a finite number", show(value))
        return exact, f"{exact:f}"
    if type(value) is Decimal and value.is_finite():
        return value, f"{value:f}"
    if type(value) is not str:
        raise FieldError(field, "a number, or a text that is one", show(value))
    written = clean(value, field).strip()
    try:
        return parse_number(written), written
    except ValueError as error:
        raise FieldError(field, str(error), show(value)) from None
