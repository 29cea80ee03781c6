"""How a number, a name and a hostile text are written for people; the terminal, the page and the figure share it.

A text that a model or a data set wrote may hold anything: escape sequences, bidirectional overrides, a
megabyte without a space. What cannot be seen is made visible; what is too long is cut with a mark that says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from steelyard.report.model import ReportData, ScoreRow

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

# status of a cell without a value -> words
REASONS = {
    "unscored": "not scored yet",
    "overlong": "too long for the context",
    "error": "failed",
    "refused": "refused by the server",
}
# key of ScoreRow.validity -> heading of its column, and what it counts
FAULTS = {
    "unparsed": ("unparsed", "answers from which nothing could be read; they count as wrong"),
    "overlong": ("too long", "prompts that do not fit the context; not asked, and not in the score"),
    "cut": ("cut", "texts that hit the token limit before an answer could be read; they count as wrong"),
    "ties": ("tied", "choices in which another option scored exactly as well as the right one"),
    "errors": ("failed", "requests that the backend could not answer; the next run asks them again"),
    "duplicates": ("duplicates", "items whose content an earlier item has"),
    "moved": ("moved", "continuations whose first token reaches into the prompt, so the boundary moved back"),
    "short": ("short", "items with fewer wrong options than asked for"),
}


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
    """
    if len(text) <= limit:
        return visible(text, keep=keep), ""
    return visible(text[:limit], keep=keep), f"… {limit:,} of {len(text):,} characters shown"


def name(text: str, limit: int = 60) -> str:
    """A name for a table cell: visible, on one line, with a mark if it was too long for one."""
    shown, mark = shorten(text, limit)
    return f"{shown}{mark and f'… ({len(text):,} characters)'}"


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


def score(row: ScoreRow) -> str:
    """The value with its unit, or a dash."""
    sign = "%" if row.unit == "fraction" else row.unit
    return MISSING if row.value is None else f"{number(row.value, row.unit)} {sign}"


def interval(row: ScoreRow, *, with_level: bool = False) -> str:
    """The limits in the unit of the score; without a value the reason for that.

    Args:
        row: of the report.
        with_level: add the level, for tables whose rows do not share one.
    """
    if row.value is None:
        return reason(row)
    if row.low is None or row.high is None:
        return "no interval"
    limits = span(row.low, row.high, row)
    return f"{limits} at {row.level * 100:g} %" if with_level else limits


def reason(row: ScoreRow) -> str:
    """Why a row has no value, from its statuses.

    A status without words of its own is shown by its name; "ok" and the like explain nothing and are left out.
    """
    parts = [
        f"{count:,} {REASONS.get(status, name(status))}"
        for status, count in sorted(row.status_counts.items())
        if count and status not in {"ok", "unparsed", "cut"}
    ]
    if parts:
        return ", ".join(parts)
    return "no estimate" if any(row.status_counts.values()) else "no answers"


def draws(row: ScoreRow) -> str:
    """Answers per item, k: a whole number when every item has as many.

    >>> from types import SimpleNamespace as Row
    >>> draws(Row(n_items=20, n_samples=80)), draws(Row(n_items=20, n_samples=78))
    ('4', '3.9')
    """
    if not row.n_items:
        return MISSING
    each, rest = divmod(row.n_samples, row.n_items)
    return f"{row.n_samples / row.n_items:.1f}" if rest else str(each)


def model_name(row: ScoreRow) -> str:
    """The model with its checkpoint."""
    return name(row.model) if row.step is None else f"{name(row.model)} @ step {row.step:,}"


def form_name(row: ScoreRow) -> str:
    """The form with its shots; zero shots go without saying."""
    return f"{name(row.form)} {row.shots}-shot" if row.shots else name(row.form)


def span(low: float, high: float, row: ScoreRow) -> str:
    """Two limits in the unit of a row, written with the decimals of its value."""
    return f"[{number(low, row.unit, like=row.value)}, {number(high, row.unit, like=row.value)}]"


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
        return f"{', '.join(words[:limit])} and {len(words) - limit} more"
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def distinct(values: Iterable[T]) -> list[T]:
    """Each value once, in order of first mention."""
    return list(dict.fromkeys(values))


def footnotes(rows: Iterable[ScoreRow]) -> dict[str, int]:
    """Diagnostics -> number of the footnote, in order of first mention."""
    texts = distinct(text for row in rows for text in row.diagnostics)
    return {text: index for index, text in enumerate(texts, start=1)}


def items_measured(data: ReportData) -> int:
    """Items evaluated, each benchmark counted once; from the sources where known, else from the scores."""
    counts: dict[str, int] = {}
    for row in data.scores:
        counts[row.benchmark] = max(counts.get(row.benchmark, 0), row.n_items)
    for source in data.sources:
        if isinstance(selected := source.get("n_selected"), int):
            benchmark = str(source.get("benchmark"))
            counts[benchmark] = max(counts.get(benchmark, 0), selected)
    return sum(counts.values())


def shared_level(rows: Iterable[ScoreRow]) -> str | None:
    """The level that the rows share, as "95 %"; None when they differ."""
    levels = distinct(row.level for row in rows)
    return f"{levels[0] * 100:g} %" if len(levels) == 1 else None


def scope(data: ReportData) -> str:
    """What was measured, in a line: "2 models, 4 benchmarks, 3 forms, 160 items"."""
    counts = [
        (len({(row.model, row.step) for row in data.scores}), "model"),
        (len({row.benchmark for row in data.scores}), "benchmark"),
        (len({row.form for row in data.scores}), "form"),
        (items_measured(data), "item"),
    ]
    return ", ".join(plural(count, noun) for count, noun in counts)
