"""The report on a terminal: one table per model, aligned across its benchmarks, then all that qualifies it.

Everything is built of `rich.text.Text`, never of markup, so that brackets in a name stay brackets; control
characters are spelled out before (see `display.visible`).
"""

from __future__ import annotations

import io
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from steelyard.report import cells, display
from steelyard.report.group import Spread, collapse, fault_keys, faults, first_of
from steelyard.report.model import ReportData, ScoreRow

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

GAP = 2
BARS = (25, 17)  # widths of the interval bar that put 0, 50 and 100 % on a whole character
LABEL = 24  # the narrowest first column that is worth a bar beside it; below half of it names get lines of their own
INDENT = 1  # of the numbers below such a name
PROSE = 500  # characters of a note or diagnostic

_RIGHT = {"score", "chance", "n", "k"}
_STYLES = {"score": "bold", "bar": "cyan", "label": "", "long": "", "interval": ""}  # the others are dim


def render(
    data: ReportData, *, width: int | None = None, all_metrics: bool = False, store: str | None = None
) -> Group:
    """The report as a rich renderable.

    Args:
        data: what to show.
        width: columns of the terminal; None asks the terminal.
        all_metrics: every row, instead of the primary metric of each form with many wordings put together.
        store: path of the store, for the commands suggested at the end; without it they say STORE.
    """
    from rich.console import Console, Group
    from rich.text import Text

    width = width if width is not None else Console().width
    rows = data.scores if all_metrics else data.headline()
    entries: Sequence[ScoreRow | Spread] = rows if all_metrics else collapse(rows)
    layout = _Layout(entries, width)
    parts: list[Any] = [
        Text(display.name(data.title, 200), style="bold"),
        Text(f"{cells.scope(data)} · {display.name(data.created)}", style="dim"),
    ]
    for model in display.distinct((first_of(entry).model, first_of(entry).step) for entry in entries):
        mine = [entry for entry in entries if (first_of(entry).model, first_of(entry).step) == model]
        parts += [Text(), _model_line(data, first_of(mine[0])), *layout.tables(mine)]
    if layout.unnamed:
        parts += [Text(), Text(f"Template {layout.unnamed} unless another is named.", style="dim")]
    if not rows:
        parts += [Text(), Text("No scores yet.")]
    parts += _section("Notes on scores", list(layout.notes), numbered=True)
    parts += _validity(rows)
    parts += _section("Conditions", data.notes)
    parts += _section("Work", [_work(work) for work in data.work])
    parts += _commands(data, len(data.scores) - len(rows), store, width)
    return Group(*parts)


def to_text(
    data: ReportData, width: int = 100, *, all_metrics: bool = False, store: str | None = None
) -> str:
    """The report as plain text without escape sequences, for files and tests; same arguments as `render`."""
    from rich.console import Console

    out = io.StringIO()
    # Everything that the environment could change (colours, width, a dumb terminal) is set here.
    console = Console(file=out, width=width, color_system=None, force_terminal=False, highlight=False)
    console.print(render(data, width=width, all_metrics=all_metrics, store=store))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n")[:-1]) + "\n"


def bar(entry: ScoreRow | Spread, width: int) -> str:
    """A score in [0, 1] on a line of characters: interval, point, and chance as a dotted stroke.

    Many wordings are dots, and their median the point. Other units have no common scale, and so no bar.
    """
    row = first_of(entry)
    line = [" "] * width
    if row.unit != "fraction":
        return "".join(line)

    def position(x: float) -> int:
        return round(min(max(x, 0.0), 1.0) * (width - 1))

    if isinstance(entry, Spread):
        value = entry.median
        for each in entry.values:
            line[position(each)] = "·"
    else:
        value = row.value
        if value is not None and row.low is not None and row.high is not None:
            start, end = position(row.low), position(row.high)
            line[start : end + 1] = "─" * (end - start + 1)
            line[start], line[end] = "├", "┤"
    if row.chance is not None:
        at = position(row.chance)
        line[at] = "┊" if line[at] == " " else "┼"
    if value is not None:
        line[position(value)] = "●"
    return "".join(line)


# -------------------------------------------------------------------------------------------------- tables
class _Layout:
    """Which columns fit the terminal, and how wide they are: the same for every table of the report."""

    def __init__(self, entries: Sequence[ScoreRow | Spread], width: int) -> None:
        rows = [first_of(entry) for entry in entries]
        self.notes = cells.footnotes(entries)
        self.level = cells.shared_level(rows)
        self.several = [
            name
            for name, values in (
                ("template", {cells.template(entry) for entry in entries}),
                ("metric", {row.metric for row in rows}),
            )
            if len(values) > 1
        ]
        named = Counter(row.template for row in entries if isinstance(row, ScoreRow))
        usual = named.most_common(1)[0][0] if named else None
        self.usual = usual if "template" in self.several else None
        for first, bar_width in [*((kind, size) for kind in ("label", "long") for size in BARS), ("long", 0)]:
            self.columns = [
                *([first] if first == "long" else [first, *self.several]),
                *(["score", "interval", "bar"] if bar_width else ["score", "interval"]),
                *(["chance", "n", "k", "note"] if self.notes else ["chance", "n", "k"]),
            ]
            self.bar_width = bar_width
            lines = [self.head(), *(self.texts(entry) for entry in entries)]
            widths = {name: max(display.cell_width(line[name]) for line in lines) for name in self.columns}
            room = width - GAP - sum(widths[name] + GAP for name in self.columns[1:])
            enough = min(widths[first], LABEL) if (first, bar_width) == ("long", min(BARS)) else widths[first]
            if room >= enough:
                break
        self.stacked = room < min(widths[first], LABEL // 2)
        self.widths = {**widths, first: INDENT if self.stacked else min(widths[first], room)}
        self.unnamed = display.name(usual) if first == "long" and self.usual is not None and usual else ""

    def head(self) -> dict[str, str]:
        """The heading of each column."""
        axis = "0 %" + "50".center(self.bar_width - 8) + "100 %" if self.bar_width else ""
        interval = f"{self.level} interval" if self.level else "interval"
        names = {name: name for name in ("template", "metric", "score", "chance", "n", "k", "note")}
        return {**names, "label": "", "long": "", "interval": interval, "bar": axis}

    def texts(self, entry: ScoreRow | Spread) -> dict[str, str]:
        """The text of each column."""
        row, template = first_of(entry), cells.template(entry)
        form, metric = cells.form_name(row), display.name(row.metric)
        named = "template" in self.several and (isinstance(entry, Spread) or row.template != self.usual)
        long = [form, *([template] if named else []), *([metric] if "metric" in self.several else [])]
        return {
            "label": form,
            "template": template,
            "metric": metric,
            "long": " · ".join(long),
            "score": cells.score(entry),
            "interval": cells.interval(entry, with_level=self.level is None, pad=4),
            "bar": bar(entry, self.bar_width) if self.bar_width else "",
            "chance": cells.chance(entry),
            "n": cells.n_items(entry),
            "k": cells.draws(entry),
            "note": " ".join(str(self.notes[text]) for text in entry.diagnostics),
        }

    def tables(self, entries: Sequence[ScoreRow | Spread]) -> Iterable[Any]:
        """The heading, then a line and a table per benchmark."""
        from rich.text import Text

        header = self._grid()
        header.add_row("", *(Text(self.head()[name], style="dim") for name in self.columns))
        yield header
        for benchmark in display.distinct(first_of(entry).benchmark for entry in entries):
            mine = [entry for entry in entries if first_of(entry).benchmark == benchmark]
            capability = display.name(first_of(mine[0]).capability)
            yield Text.assemble((display.name(benchmark), "bold"), (f"  {capability}", "dim"))
            grid = self._grid()
            for entry in mine:
                texts = self.texts(entry)
                if self.stacked:
                    yield from (grid, Text(f"  {texts['long']}", overflow="fold"))
                    grid, texts = self._grid(), {**texts, "long": ""}
                styles = _STYLES if texts["score"] != display.MISSING else {}
                grid.add_row("", *(Text(texts[name], style=styles.get(name, "dim")) for name in self.columns))
            yield grid

    def _grid(self) -> Table:
        grid = _grid()
        grid.add_column(width=0)  # its padding indents the table
        for name in self.columns:
            justify: Literal["left", "right"] = "right" if name in _RIGHT else "left"
            grid.add_column(width=self.widths[name], justify=justify, overflow="fold")
        return grid


def _grid() -> Table:
    from rich.table import Table

    return Table(box=None, show_header=False, padding=(0, GAP, 0, 0), pad_edge=False)


# ------------------------------------------------------------------------------------------------ sections
def _section(title: str, lines: Sequence[str], *, numbered: bool = False) -> list[Any]:
    """A heading and its lines with a hanging indent; nothing when there are no lines."""
    from rich.text import Text

    if not lines:
        return []
    grid = _grid()
    grid.add_column(width=0)
    for _ in range(1 + numbered):
        grid.add_column(overflow="fold")
    for index, line in enumerate(lines, start=1):
        shown = Text(" ".join(filter(None, display.shorten(line, PROSE))))
        grid.add_row("", *([Text(str(index), style="dim")] if numbered else []), shown)
    return [Text(), Text(title, style="bold"), grid]


def _model_line(data: ReportData, row: ScoreRow) -> Text:
    from rich.text import Text

    run = next((run for run in data.runs if (run.get("model"), run.get("step")) == (row.model, row.step)), {})
    facts = [str(run[key]) for key in ("backend", "dtype") if run.get(key)]
    facts += [f"seed {run['seed']}"] if run.get("seed") is not None else []
    return Text.assemble(
        (cells.model_name(row), "bold underline"), (f"  {display.name(', '.join(facts), 200)}", "dim")
    )


def _validity(rows: Sequence[ScoreRow]) -> list[Any]:
    """The forms in which something went wrong, with a column for each kind of fault that occurred."""
    from rich.text import Text

    if not rows:
        return []
    records = [record for record in faults(rows) if record.any]
    if not records:
        return _section(
            "Validity", ["Nothing to report: no cell failed, was cut, tied, unparsed or repeated."]
        )
    keys = fault_keys(records)
    several = len({(row.model, row.step) for row in rows}) > 1
    grid = _grid()
    grid.add_column(width=0)
    grid.add_column(overflow="fold")
    for _ in ["cells", *keys]:
        grid.add_column(justify="right", overflow="fold")
    headings = ["", "", "cells", *(cells.fault_heading(key) for key in keys)]
    grid.add_row(*(Text(heading, style="dim") for heading in headings))
    for record in records:
        where = [cells.model_name(record.row)] if several else []
        where += [display.name(record.row.benchmark), cells.form_name(record.row)]
        where += [display.plural(record.templates, "template")] if record.templates > 1 else []
        counts = [record.counts.get(key, 0) for key in keys]
        total = f"{record.counts['n']:,}" if "n" in record.counts else display.MISSING
        grid.add_row(
            "",
            Text(" · ".join(where)),
            Text(total, style="dim"),
            *(Text(f"{count:,}" if count else "·", style="" if count else "dim") for count in counts),
        )
    return [Text(), Text("Validity", style="bold"), grid]


def _work(work: Mapping[str, Any]) -> str:
    def count(key: str, noun: str) -> str:
        return f"{work[key]:,} {noun}" if isinstance(work.get(key), int) and work[key] else f"unknown {noun}"

    text = f"{work.get('model', 'all models')}: {count('requests', 'requests')}, "
    asked, computed, seconds = work.get("asked"), work.get("computed"), work.get("seconds")
    text += f"{count('computed', 'tokens computed')} for {count('asked', 'asked')}"
    if isinstance(asked, int) and isinstance(computed, int) and asked and computed:
        text += f" ({computed / asked * 100:.0f} %)"
    return f"{text}, {seconds:,.1f} s" if isinstance(seconds, (int, float)) else text


def _commands(data: ReportData, hidden: int, store: str | None, width: int) -> list[Any]:
    from rich.text import Text

    place = display.visible(shlex.quote(store)) if store is not None else "STORE"
    more = f", with {display.plural(hidden, 'further metric')}" if hidden else ""
    lines = [
        (f"steelyard report {place} --html report.html", "one page with figure, sources and examples"),
        (f"steelyard report {place} --json", f"all numbers as data{more}"),
    ]
    if any(row.status_counts.get("unscored") for row in data.scores):
        lines.append((f"steelyard score {place}", "judge what is not scored yet"))
    wide = max(len(command) for command, _ in lines) + GAP
    if wide + max(len(purpose) for _, purpose in lines) + GAP > width:
        wide = 0  # then a command and its purpose do not stand on one line
    out = [Text(), Text("Next", style="bold")]
    for command, purpose in lines:
        out += [Text.assemble("  ", command.ljust(wide), "" if wide else "\n    ", (purpose, "dim"))]
    return out
