"""What the tables and examples of the page hold, as text and as positions of marks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steelyard.reporting import cells, display
from steelyard.reporting.figures import PALETTE
from steelyard.reporting.group import Faults, Spread, fault_keys, first_of
from steelyard.reporting.model import ReportData, ScoreRow

CELL = 200  # characters of a value in a table of records
PASSAGE = 600  # of a question, gold or answer
DIGEST = 12  # of a hash; the whole one is in the cell's title and in the JSON report

_DIGESTS = {"weights_digest", "content_hash", "revision"}
_HEADINGS = {"weights_digest": "weights", "content_hash": "content", "n_items": "items", "n_selected": "evaluated",
             "shot_source": "shots from", "trie": "least possible", "new_tokens": "new",
             "tokens_per_second": "tokens/s", "new_tokens_per_second": "new tokens/s", "prefill_rate": "plain rate",
             "prefill_share": "share of it", "peak_memory": "peak memory"}  # fmt: skip


def scores(
    data: ReportData, entries: Sequence[ScoreRow | Spread], notes: Mapping[str, int]
) -> dict[str, Any]:
    """The score table: a group per benchmark; within it forms, then templates, then models."""
    rows = [first_of(entry) for entry in entries]
    models = {
        name: i for i, name in enumerate(display.distinct(cells.model_name(row) for row in data.scores))
    }
    level = cells.shared_level(rows)
    sources = {str(source.get("benchmark")): source for source in data.sources}
    shows = {
        "templates": len({cells.template(entry) for entry in entries}) > 1,
        "models": len(models) > 1,
        "notes": any(entry.diagnostics for entry in entries),
    }
    by_benchmark: dict[str, list[ScoreRow | Spread]] = {}
    for entry in entries:
        by_benchmark.setdefault(first_of(entry).benchmark, []).append(entry)
    groups = []
    for benchmark, mine in by_benchmark.items():
        about = [display.name(first_of(mine[0]).capability), _selection(sources.get(benchmark, {}))]
        lines = [_line(entry, models, notes, with_level=level is None) for entry in _in_order(mine)]
        for before, line in itertools.pairwise(lines):
            line["again"] = line["form"] == before["form"]
            line["template_again"] = line["again"] and line["template"] == before["template"]
        name, text = display.name(benchmark), " · ".join(filter(None, about))
        groups.append({"benchmark": name, "about": text, "rows": lines})
    interval = f"{level} interval" if level else "interval"
    return {"groups": groups, "interval": interval, "columns": 8 + sum(shows.values()), **shows}


def _in_order(entries: Sequence[ScoreRow | Spread]) -> list[ScoreRow | Spread]:
    """Models side by side: forms, templates and metrics in order of first mention, then models as they come."""

    def form(entry: ScoreRow | Spread) -> tuple[str, int, str]:
        return (first_of(entry).form, first_of(entry).shots, first_of(entry).variant)

    def wording(entry: ScoreRow | Spread) -> tuple[object, ...]:
        return (*form(entry), cells.template(entry), first_of(entry).metric)

    forms = {key: i for i, key in enumerate(display.distinct(map(form, entries)))}
    wordings = {key: i for i, key in enumerate(display.distinct(map(wording, entries)))}
    return sorted(entries, key=lambda entry: (forms[form(entry)], wordings[wording(entry)]))


def _selection(source: Mapping[str, Any]) -> str:
    selected, total = source.get("n_selected"), source.get("n_items")
    if not isinstance(selected, int) or not isinstance(total, int):
        return ""
    return f"all {total:,} items" if selected == total else f"{selected:,} of {total:,} items"


def _line(
    entry: ScoreRow | Spread, models: Mapping[str, int], notes: Mapping[str, int], *, with_level: bool
) -> dict[str, Any]:
    row = first_of(entry)
    return {
        "form": cells.form_name(row),
        "again": False,
        "template": cells.template(entry),
        "template_again": False,
        "model": cells.model_name(row),
        "metric": display.name(row.metric),
        "missing": cells.score(entry) == display.MISSING,
        "score": cells.score(entry),
        "interval": cells.interval(entry, with_level=with_level),
        "marks": _marks(entry, models[cells.model_name(row)]),
        "chance": cells.chance(entry),
        "n": cells.n_items(entry),
        "k": cells.draws(entry),
        "notes": [notes[text] for text in cells.diagnostics(entry)],
    }


def _marks(entry: ScoreRow | Spread, model: int) -> dict[str, Any]:
    """Where the marks of a bar stand, in percent of its width; nothing is drawn for units without a scale."""

    def at(x: float | None) -> str | None:
        return None if x is None else f"{min(max(x, 0.0), 1.0) * 100:.2f}"

    row = first_of(entry)
    many = isinstance(entry, Spread)
    value = entry.median if isinstance(entry, Spread) else entry.value
    limits = not many and row.low is not None and row.high is not None
    return {
        "drawn": row.unit == "fraction" and value is not None,
        "colour": model % len(PALETTE),
        "chance": at(row.chance),
        "strokes": [at(each) for each in entry.values] if isinstance(entry, Spread) else [],
        "low": at(row.low) if limits else None,
        "high": at(row.high) if limits else None,
        "value": at(value),
    }


def validity(records: Sequence[Faults]) -> dict[str, Any]:
    """A line per form in which something went wrong, a column per kind of fault that occurred."""
    records = [record for record in records if record.any]
    keys = fault_keys(records)
    several = len({(record.row.model, record.row.step) for record in records}) > 1
    columns = [("model", False)] if several else []
    columns += [("benchmark", False), ("form", False), ("templates", True), ("cells", True)]
    columns += [(cells.fault_heading(key), True) for key in keys]
    lines = []
    for record in records:
        where = [cells.model_name(record.row)] if several else []
        where += [display.name(record.row.benchmark), cells.form_name(record.row)]
        total = f"{record.counts['n']:,}" if "n" in record.counts else display.MISSING
        counts = [record.counts.get(key, 0) for key in keys]
        lines.append(
            [
                *(_cell(text) for text in where),
                _cell(f"{record.templates:,}", "num soft"),
                _cell(total, "num soft"),
                *(_cell(f"{count:,}" if count else "·", "num" if count else "num soft") for count in counts),
            ]
        )
    return {"columns": [{"name": name, "number": number} for name, number in columns], "rows": lines}


def records(rows: Iterable[Mapping[str, Any]], keys: Sequence[str], *, every: bool = False) -> dict[str, Any]:
    """A table of records: the keys that any of them has, in order; unknown keys are left to the JSON report.

    Args:
        rows: the records.
        keys: in the order of the columns.
        every: also those that no record has a value for.
    """
    rows = list(rows)
    shown = [key for key in keys if every or any(row.get(key) not in (None, "") for row in rows)]
    numeric = {
        key for key in shown if all(isinstance(row.get(key), (int, float, type(None))) for row in rows)
    }
    columns = [{"name": _HEADINGS.get(key, key.replace("_", " ")), "number": key in numeric} for key in shown]
    lines = [[_value(key, row.get(key)) for key in shown] for row in rows]
    # two models on the same items have the same source: one line of it is enough
    once = [line for i, line in enumerate(lines) if line not in lines[:i]]
    return {"columns": columns, "rows": once}


def _value(key: str, value: object) -> dict[str, str]:
    if value is None or value == "":
        return _cell(display.MISSING, "soft")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        text = _joined(value) if isinstance(value, Mapping) else str(value)
        if key in _DIGESTS and len(text) > DIGEST:
            return _cell(f"{display.visible(text[:DIGEST])}…", "code", display.name(text, CELL))
        return _cell(display.name(text, CELL), "code" if key in _DIGESTS else "")
    if key in {"seed", "step"}:
        return _cell(str(value), "num")
    if key in display.WORK:
        return _cell(display.work(key, value), "num")
    return _cell(f"{value:,}" if isinstance(value, int) else f"{value:,.1f}", "num")


def _joined(record: Mapping[str, Any]) -> str:
    """A nested record on one line: "torch 2.6.0, python 3.11"; what is unknown is left out."""
    parts = []
    for key, value in record.items():
        if key == "memory" and isinstance(value, int):
            parts.append(f"{value / 2**30:.0f} GiB memory")
        elif value is not None:
            parts.append(f"{key} {value}")
    return ", ".join(parts)


def _cell(text: str, kind: str = "", title: str = "") -> dict[str, str]:
    return {"text": text, "kind": kind, "title": title}


def example(data: ReportData, record: Mapping[str, Any]) -> dict[str, Any]:
    """One item as asked and answered, with what it earned."""
    unit = next(
        (
            row.unit
            for row in data.headline()
            if (row.benchmark, row.form) == (record.get("benchmark"), record.get("form"))
        ),
        "",
    )
    value, status = record.get("value"), str(record.get("status") or "")
    if not isinstance(value, (int, float)):
        verdict = cells.REASONS.get(status, display.name(status) or "no score")
    elif unit == "fraction":
        verdict = "wrong" if value == 0 else "right" if value == 1 else f"{display.number(value, unit)} %"
    else:
        verdict = f"{display.number(value, unit)} {unit}".rstrip()
    if isinstance(value, (int, float)) and status not in {"", "ok"}:
        verdict += f": {display.name(cells.fault_heading(status))}"
    where = [display.name(str(record[key])) for key in ("model", "benchmark", "form") if record.get(key)]
    return {
        "where": " · ".join(where),
        "item": display.name(str(record.get("item_id", ""))),
        "verdict": verdict,
        **{key: _passage(record.get(key)) for key in ("question", "gold", "answer")},
    }


def _passage(text: object) -> dict[str, Any]:
    if text is None:
        return {"missing": True, "text": "", "mark": ""}
    shown, mark = display.shorten(str(text), PASSAGE, keep="\n\t")
    return {"missing": False, "text": shown, "mark": mark}
