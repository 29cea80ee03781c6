"""The report on a terminal: one table per model, aligned across its benchmarks, then all that qualifies it.

Everything is built of `rich.text.Text`, never of markup, so that brackets in a name stay brackets; control
characters are spelled out before (see `display.visible`).
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from steelyard.report import display
from steelyard.report.model import ReportData, ScoreRow

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

GAP = 2
BAR = 25  # positions of the interval bar; 25 puts 0, 25, 50, 75 and 100 % on a whole one
LABEL = 22  # the narrowest useful first column
PROSE = 400  # characters of a note or diagnostic

_HEAD = {"score": "score", "chance": "chance", "n": "n", "k": "k", "note": "note"}
_RIGHT = {"score", "chance", "n", "k"}
_STYLE = {"label": "", "template": "dim", "metric": "dim", "score": "bold", "bar": "cyan", "chance": "dim",
          "n": "dim", "k": "dim", "note": "dim", "interval": ""}  # fmt: skip


def render(
    data: ReportData, *, width: int | None = None, all_metrics: bool = False, store: str | None = None
) -> Group:
    """The report as a rich renderable.

    Args:
        data: what to show.
        width: columns of the terminal; None asks the terminal.
        all_metrics: every metric instead of the primary one of each form.
        store: path of the store, for the commands suggested at the end; without it they say STORE.
    """
    from rich.console import Console, Group
    from rich.text import Text

    width = width if width is not None else Console().width
    rows = data.scores if all_metrics else data.headline()
    notes = display.footnotes(rows)
    parts: list[Any] = [
        Text(display.name(data.title, 200), style="bold"),
        Text(f"{display.scope(data)} · {display.name(data.created)}", style="dim"),
    ]
    for model in display.distinct((row.model, row.step) for row in rows):
        mine = [row for row in rows if (row.model, row.step) == model]
        parts += [Text(), _model_line(data, mine[0]), *_tables(mine, rows, notes, width)]
    if not rows:
        parts += [Text(), Text("No scores yet.")]
    parts += _section("Notes", [f"{index}  {text}" for text, index in notes.items()])
    parts += _section("Validity", _validity(rows))
    parts += _section("Read with this", data.notes)
    parts += _section("Work", [_work(work) for work in data.work])
    parts += _section("Next", _commands(data, rows, store))
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
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


# -------------------------------------------------------------------------------------------------- tables
def _tables(
    rows: Sequence[ScoreRow], everywhere: Sequence[ScoreRow], notes: Mapping[str, int], width: int
) -> Iterable[Any]:
    """One table per benchmark, all with the same column widths so that they read as one."""
    from rich.table import Table
    from rich.text import Text

    level = display.shared_level(everywhere)
    cells = [_cells(row, notes, with_level=level is None) for row in rows]
    columns = _fit(cells, rows, everywhere, width)
    label = columns[0]
    head = {**_HEAD, "interval": f"{level} interval" if level else "interval", "bar": _axis()}
    widths = {
        column: max(
            [_cell_width(head.get(column, "")), *(_cell_width(line[column]) for line in cells)], default=1
        )
        for column in columns
    }
    rest = sum(widths[column] + GAP for column in columns[1:])
    widths[label] = max(min(widths[label], width - rest - GAP), 8)

    def table() -> Table:
        grid = Table(box=None, show_header=False, padding=(0, GAP, 0, 0), pad_edge=False)
        grid.add_column(width=2)
        for column in columns:
            grid.add_column(
                width=widths[column],
                justify="right" if column in _RIGHT else "left",
                overflow="fold",
                no_wrap=column in {"bar", "score"},
            )
        return grid

    header = table()
    header.add_row("", *(Text(head.get(column, ""), style="dim") for column in columns))
    yield header
    for benchmark in display.distinct(row.benchmark for row in rows):
        mine = [(row, line) for row, line in zip(rows, cells, strict=True) if row.benchmark == benchmark]
        yield Text.assemble(
            (display.name(benchmark), "bold"), (f"  {display.name(mine[0][0].capability)}", "dim")
        )
        grid = table()
        for row, line in mine:
            faint = "dim" if row.value is None else None
            grid.add_row(
                "", *(Text(line[column], style=faint or _STYLE.get(column, "")) for column in columns)
            )
        yield grid


def _cells(row: ScoreRow, notes: Mapping[str, int], *, with_level: bool) -> dict[str, str]:
    fraction = row.unit == "fraction"
    form, template, metric = display.form_name(row), display.name(row.template), display.name(row.metric)
    return {
        "label": form,
        "template": template,
        "metric": metric,
        "long": f"{form} · {template} · {metric}",
        "score": display.score(row),
        "interval": display.interval(row, with_level=with_level),
        "bar": bar(row.value, row.low, row.high, row.chance) if fraction else "",
        "chance": display.number(row.chance, "fraction"),
        "n": f"{row.n_items:,}",
        "k": display.draws(row),
        "note": " ".join(str(notes[text]) for text in row.diagnostics),
    }


def _fit(
    cells: Sequence[Mapping[str, str]], rows: Sequence[ScoreRow], everywhere: Sequence[ScoreRow], width: int
) -> list[str]:
    """The columns that fit: the bar goes first, then template and metric move into the first column."""
    several = [
        column
        for column, values in (
            ("template", {row.template for row in everywhere}),
            ("metric", {row.metric for row in everywhere}),
        )
        if len(values) > 1
    ]
    last = ["note"] if any(row.diagnostics for row in rows) else []
    numbers = ["score", "interval", "chance", "n", "k", *last]

    def needs(columns: Iterable[str]) -> int:
        return sum(max((_cell_width(line[column]) for line in cells), default=0) + GAP for column in columns)

    for middle in (["bar"], []):
        columns = ["label", *several, "score", "interval", *middle, "chance", "n", "k", *last]
        if needs(columns) + GAP + 8 <= width:
            return columns
    return ["long" if several else "label", *numbers]


def bar(
    value: float | None, low: float | None, high: float | None, chance: float | None, width: int = BAR
) -> str:
    """A score in [0, 1] on a line of characters: interval, point, and chance as a dotted stroke.

    >>> bar(0.5, 0.25, 0.75, 0.0, width=9)
    '┊ ├─●─┤  '
    """

    def position(x: float) -> int:
        return round(min(max(x, 0.0), 1.0) * (width - 1))

    line = [" "] * width
    if value is None:
        return "".join(line)
    if low is not None and high is not None:
        start, end = position(low), position(high)
        line[start : end + 1] = "─" * (end - start + 1)
        line[start], line[end] = "├", "┤"
    if chance is not None:
        line[position(chance)] = "┊" if line[position(chance)] == " " else "┼"
    line[position(value)] = "●"
    return "".join(line)


def _axis() -> str:
    return "0 %" + "50".center(BAR - 8) + "100 %"


def _cell_width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


# ------------------------------------------------------------------------------------------------ sections
def _section(title: str, lines: Sequence[str]) -> list[Any]:
    """A heading and its lines, with hanging indent; nothing when there are no lines."""
    from rich.padding import Padding
    from rich.text import Text

    if not lines:
        return []
    shown = [" ".join(filter(None, display.shorten(line, PROSE))) for line in lines]
    return [
        Text(),
        Text(title, style="bold"),
        *(Padding(Text(line, overflow="fold"), (0, 0, 0, 2)) for line in shown),
    ]


def _model_line(data: ReportData, row: ScoreRow) -> Text:
    from rich.text import Text

    run = next(
        (run for run in data.runs if (run.get("model"), run.get("step")) == (row.model, row.step)), {}
    )
    facts = [str(run[key]) for key in ("backend", "dtype") if run.get(key)]
    if run.get("seed") is not None:
        facts.append(f"seed {run['seed']}")
    return Text.assemble(
        (display.model_name(row), "bold underline"), (f"  {display.name(', '.join(facts), 200)}", "dim")
    )


def _validity(rows: Sequence[ScoreRow]) -> list[str]:
    """One line per distinct finding of a form; metrics of a form that agree share it."""
    if not rows:
        return []
    found = {}
    for row in rows:
        if faults := display.faults(row):
            of = f" of {row.validity['n']:,}" if row.validity.get("n") else ""
            where = [display.model_name(row), display.name(row.benchmark), display.form_name(row)]
            found[(row.form_key, tuple(faults))] = (
                f"{' · '.join([*where, display.name(row.template)])}: {', '.join(faults)}{of}"
            )
    return list(found.values()) or ["Every cell was answered, read and judged; none was cut, tied or repeated."]


def _work(work: Mapping[str, Any]) -> str:
    def count(key: str) -> str:
        return f"{work[key]:,}" if isinstance(work.get(key), int) and work[key] else "an unknown number of"

    text = f"{work.get('model', 'all models')}: {count('requests')} requests, {count('computed')} tokens computed"
    text += f" for {count('asked')} asked"
    if isinstance(work.get("asked"), int) and isinstance(work.get("computed"), int) and work["asked"] > 0:
        text += f" ({work['computed'] / work['asked'] * 100:.0f} %)" if work["computed"] else ""
    seconds = work.get("seconds")
    return f"{text}, {seconds:,.1f} s" if isinstance(seconds, (int, float)) else text


def _commands(data: ReportData, rows: Sequence[ScoreRow], store: str | None) -> list[str]:
    place = shlex.quote(store) if store is not None else "STORE"
    hidden = len(data.scores) - len(rows)
    lines = [f"steelyard report {place} --html report.html    figure, sources and examples on one page"]
    more = f"all numbers, with {plural} not shown here" if (plural := hidden and f"{hidden} further metrics") else ""
    lines.append(f"steelyard report {place} --json                {more or 'all numbers as data'}")
    if any(row.status_counts.get("unscored") for row in data.scores):
        lines.append(f"steelyard score {place}                        judge what is not scored yet")
    return lines
