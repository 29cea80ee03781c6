"""The score tables on a terminal: which columns fit its width, and what stands in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from steelyard.reporting import cells, display
from steelyard.reporting.group import Spread, first_of
from steelyard.reporting.model import ScoreRow

if TYPE_CHECKING:
    from rich.table import Table

GAP = 2
BARS = (25, 17)  # widths of the interval bar that put 0, 50 and 100 % on a whole character
LABEL = 24  # the narrowest first column that is worth a bar beside it; below half of it names get lines of their own
INDENT = 1  # of the numbers below such a name

_RIGHT = {"score", "chance", "n", "k"}
_STYLES = {"score": "bold", "bar": "cyan", "label": "", "long": "", "interval": ""}  # the others are dim


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


class Layout:
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
            "note": " ".join(str(self.notes[text]) for text in cells.diagnostics(entry)),
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
        grid = plain_grid()
        grid.add_column(width=0)  # its padding indents the table
        for name in self.columns:
            justify: Literal["left", "right"] = "right" if name in _RIGHT else "left"
            grid.add_column(width=self.widths[name], justify=justify, overflow="fold")
        return grid


def plain_grid() -> Table:
    """A table without lines or heading, its columns a gap apart."""
    from rich.table import Table

    return Table(box=None, show_header=False, padding=(0, GAP, 0, 0), pad_edge=False)
