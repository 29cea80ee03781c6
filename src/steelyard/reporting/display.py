"""How a number, a name and a hostile text are written for people; the terminal, the page and the figure share it.

A text that a model or a data set wrote may hold anything: escape sequences, bidirectional overrides, a
megabyte without a space. What cannot be seen is made visible; what is too long is cut with a mark that says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

MISSING = "–"
MINUS = "\u2212"

# Controls, invisible formatting, direction changes, line separators, noncharacters, lone surrogates and tag
# characters. The joiners U+200C and U+200D stay: Persian and many emoji are misspelled without them.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def visible(text: str, *, keep: str = "") -> str:
    r"""The text with every character that acts or hides written out, such as ``\x1b`` or ``\u202e``.

    Args:
        text: anything.
        keep: control characters that the place of display can hold ("\n\t" in a block of text).

    >>> visible("red\x1b[31m \u202eevil")
    'red\\x1b[31m \\u202eevil'
    """

    def spell(match: re.Match[str]) -> str:
        char, code = match[0], ord(match[0])
        if char in keep:
            return char
        if char in _SHORT:
            return _SHORT[char]
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return _UNSEEN.sub(spell, text)


def shorten(text: str, limit: int, *, keep: str = "") -> tuple[str, str]:
    """The visible beginning of a text, and a mark that tells its full length when it was cut, else "".

    Cut before spelling out, so that a megabyte costs no more than a line.

    >>> shorten("x" * 2000, 3)
    ('xxx', '… 3 of 2,000 characters shown')
    """
    if len(text) <= limit:
        return visible(text, keep=keep), ""
    return visible(text[:limit], keep=keep), f"… {limit:,} of {len(text):,} characters shown"


def name(text: str, limit: int = 60) -> str:
    """A name for a table cell: visible, on one line, with a mark if it was too long for one."""
    shown, mark = shorten(text, limit)
    return f"{shown}… ({len(text):,} characters)" if mark else shown


def number(value: float | None, unit: str, *, like: float | None = None) -> str:
    """A value without its unit: percent for fractions (one decimal), else about four significant digits.

    Args:
        value: in `unit`.
        unit: "fraction", "nats" or "bits/byte".
        like: take as many decimals as this value would (limits are written like their estimate).

    >>> number(0.415, "fraction"), number(-1312.44, "nats"), number(1.0834, "bits/byte"), number(None, "nats")
    ('41.5', '−1,312', '1.083', '–')
    """
    if value is None:
        return MISSING
    scaled = value * 100 if unit == "fraction" else value
    size = abs(value if like is None else like)
    decimals = 1 if unit == "fraction" else 3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    text = f"{scaled:,.{decimals}f}"
    if not text.strip("-0.,"):  # no "-0.0"
        text = text.removeprefix("-")
    return text.replace("-", MINUS)


WORK = ("saved", "prefill_share", "peak_memory")
"""Counters of work that have a way of writing of their own."""


def work(key: str, value: float | None) -> str:
    """A counter of work with its unit; a dash where it is unknown (None, or 0 where nothing could be counted).

    >>> work("saved", 6.47), work("prefill_share", 0.913), work("peak_memory", 3 * 2**29), work("computed", 0)
    ('6.5x', '91 %', '1.5 GiB', '–')
    """
    if value is None or (value == 0 and key not in {"seconds", "new_tokens"}):
        return MISSING
    match key:
        case "saved":
            return f"{value:.1f}x"
        case "prefill_share":
            return f"{value * 100:.0f} %"
        case "peak_memory":
            return f"{value / 2**30:,.1f} GiB"
        case _:
            return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "item"), plural(1200, "item")
    ('1 item', '1,200 items')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listing(words: Sequence[str], limit: int = 6) -> str:
    """Words as an enumeration; beyond `limit` the rest is counted.

    >>> listing(["nlg", "mc", "ll"])
    'nlg, mc and ll'
    """
    if len(words) > limit:
        return f"{', '.join(words[:limit])} and {len(words) - limit:,} more"
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def distinct(values: Iterable[T]) -> list[T]:
    """Each value once, in order of first mention."""
    return list(dict.fromkeys(values))


def cell_width(text: str) -> int:
    """Columns that a text takes on a terminal (wide and combining characters counted as such)."""
    from rich.cells import cell_len

    return cell_len(text)
