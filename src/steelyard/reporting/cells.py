"""The words for a row of a report, or for many wordings of a form: the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.reporting.display import MISSING, distinct, name, number, plural
from steelyard.reporting.group import Spread
from steelyard.reporting.model import ReportData, ScoreRow

Entry = ScoreRow | Spread
SPREAD_NOTES = 4

# status of a cell without a value -> words
REASONS = {
    "unscored": "unscored",
    "overlong": "too long for the context",
    "error": "failed",
    "refused": "refused by the server",
}
_VALUED = {"ok", "unparsed", "cut"}

# key of ScoreRow.validity -> heading of its column, and what it counts
FAULTS = {
    "unparsed": ("unparsed", "answers from which nothing could be read; they count as wrong"),
    "overlong": ("too long", "prompts that do not fit the context; not asked, and not in the score"),
    "cut": ("cut", "texts that hit the token limit before an answer could be read; they count as wrong"),
    "ties": ("tied", "choices in which another option scored exactly as well as the best"),
    "errors": ("failed", "requests that the backend could not answer; the next run asks them again"),
    "duplicates": ("duplicates", "items whose content an earlier item has"),
    "moved": ("moved", "continuations whose first token reaches into the prompt, so that the boundary moved"),
    "short": ("short", "items with fewer wrong options than asked for"),
}


def fault_heading(key: str) -> str:
    """The heading of a validity column; an unknown key stands for itself."""
    return FAULTS[key][0] if key in FAULTS else name(key)


def rows_of(entry: Entry) -> tuple[ScoreRow, ...]:
    """The rows behind an entry."""
    return entry.rows if isinstance(entry, Spread) else (entry,)


def score(entry: Entry) -> str:
    """The value (of many wordings: the median) with its unit, or a dash."""
    row, value = (entry.first, entry.median) if isinstance(entry, Spread) else (entry, entry.value)
    if value is None:
        return MISSING
    return f"{number(value, row.unit)} {'%' if row.unit == 'fraction' else row.unit}"


def interval(entry: Entry, *, with_level: bool = False, pad: int = 0) -> str:
    """The limits "[low, high]" in the unit of the score, or the reason why there are none.

    Of many wordings it is their range "least … most", which is no interval and does not look like one.

    Args:
        entry: of the report.
        with_level: add the level, for tables whose rows do not share one.
        pad: write each limit this wide, so that limits stand below each other.
    """
    if isinstance(entry, Spread):
        values = entry.values
        if not values:
            return reason(entry.first)
        least, most = (_limit(value, entry.first, pad) for value in (values[0], values[-1]))
        return f"{least} … {most}"
    if entry.value is None:
        return reason(entry)
    if entry.low is None or entry.high is None:
        return "no interval"
    limits = f"[{_limit(entry.low, entry, pad)}, {_limit(entry.high, entry, pad)}]"
    return f"{limits} at {entry.level * 100:g} %" if with_level else limits


def _limit(value: float, row: ScoreRow, pad: int) -> str:
    return number(value, row.unit, like=row.value).rjust(pad)


def reason(row: ScoreRow) -> str:
    """Why a row has no value, from its statuses; those that have a value explain nothing and are left out."""
    parts = [
        f"{count:,} {REASONS.get(status, name(status))}"
        for status, count in sorted(row.status_counts.items())
        if count and status not in _VALUED
    ]
    if parts:
        return ", ".join(parts)
    return "no estimate" if any(row.status_counts.values()) else "no answers"


def template(entry: Entry) -> str:
    """The template's name, or what stands for many."""
    if not isinstance(entry, Spread):
        return name(entry.template)
    known = len(entry.values)
    asked = f" of {len(entry.rows):,}" if known < len(entry.rows) else ""
    return f"median of {known:,}{asked} templates"


def n_items(entry: Entry) -> str:
    """Items that the value rests on; of many wordings from the least to the most."""
    counts = [row.n_items for row in rows_of(entry)]
    return f"{min(counts):,}" if min(counts) == max(counts) else f"{min(counts):,}–{max(counts):,}"


def draws(entry: Entry) -> str:
    """Answers per item, k: a whole number when every item has as many, else with one decimal."""
    items = sum(row.n_items for row in rows_of(entry))
    if not items:
        return MISSING
    samples = sum(row.n_samples for row in rows_of(entry))
    return f"{samples / items:.1f}" if samples % items else f"{samples // items:,}"


def chance(entry: Entry) -> str:
    """The chance level in percent, where there is one and all wordings share it."""
    levels = {number(row.chance, "fraction") for row in rows_of(entry)}
    return levels.pop() if len(levels) == 1 else MISSING


def model_name(row: ScoreRow) -> str:
    """The model with its checkpoint."""
    return name(row.model) if row.step is None else f"{name(row.model)} @ step {row.step:,}"


def form_name(row: ScoreRow) -> str:
    """The form with its shots and what is not usual about it; zero shots go without saying."""
    shots = f"{row.shots}-shot" if row.shots else ""
    return " ".join(part for part in (name(row.form), shots, name(row.variant)) if part)


def diagnostics(entry: Entry) -> tuple[str, ...]:
    """The notes on a score; many different ones on many wordings are counted instead of listed."""
    if isinstance(entry, Spread) and len(entry.diagnostics) > SPREAD_NOTES:
        count = f"{len(entry.diagnostics):,} different notes stand on single templates"
        return (f"{count}; the table of all scores and the JSON report have them",)
    return entry.diagnostics


def footnotes(entries: Iterable[Entry]) -> dict[str, int]:
    """Diagnostics -> number of the footnote, in order of first mention."""
    texts = distinct(text for entry in entries for text in diagnostics(entry))
    return {text: index for index, text in enumerate(texts, start=1)}


def shared_level(rows: Iterable[ScoreRow]) -> str | None:
    """The level that the rows share, as "95 %"; None when they differ."""
    levels = distinct(row.level for row in rows)
    return f"{levels[0] * 100:g} %" if len(levels) == 1 else None


def items_measured(data: ReportData) -> dict[str, int]:
    """Benchmark -> items evaluated; from the sources where known, else from the scores."""
    counts: dict[str, int] = {}
    for row in data.scores:
        counts[row.benchmark] = max(counts.get(row.benchmark, 0), row.n_items)
    for source in data.sources:
        benchmark, selected = str(source.get("benchmark")), source.get("n_selected")
        if benchmark in counts and isinstance(selected, int):
            counts[benchmark] = max(counts[benchmark], selected)
    return counts


def scope(data: ReportData) -> str:
    """What was measured, in a line: "2 models, 4 benchmarks, 3 forms, 160 items"."""
    counts = [
        (len({(row.model, row.step) for row in data.scores}), "model"),
        (len({row.benchmark for row in data.scores}), "benchmark"),
        (len({row.form for row in data.scores}), "form"),
        (sum(items_measured(data).values()), "item"),
    ]
    return ", ".join(plural(count, noun) for count, noun in counts)
