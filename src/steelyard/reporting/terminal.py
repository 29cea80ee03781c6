"""The report on a terminal: one table per model, aligned across its benchmarks, then all that qualifies it.

Everything is built of `rich.text.Text`, never of markup, so that brackets in a name stay brackets; control
characters are spelled out before (see `display.visible`).
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from steelyard.reporting import cells, display
from steelyard.reporting.group import Spread, collapse, fault_keys, faults, first_of
from steelyard.reporting.model import ReportData, ScoreRow
from steelyard.reporting.terminal_table import GAP, Layout, plain_grid

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

PROSE = 500  # characters of a note or diagnostic


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
    layout = Layout(entries, width)
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


# ------------------------------------------------------------------------------------------------ sections
def _section(title: str, lines: Sequence[str], *, numbered: bool = False) -> list[Any]:
    """A heading and its lines with a hanging indent; nothing when there are no lines."""
    from rich.text import Text

    if not lines:
        return []
    grid = plain_grid()
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
    grid = plain_grid()
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


def _work(record: Mapping[str, Any]) -> str:
    """The counters of one run on a line; what is unknown has a dash."""

    def shown(key: str) -> str:
        value = record.get(key)
        known = isinstance(value, (int, float)) and not isinstance(value, bool)
        return display.work(key, value if known else None)

    return (
        f"{record.get('model', 'all models')}: {shown('requests')} requests in {shown('seconds')} s; "
        f"tokens: {shown('asked')} asked, {shown('computed')} computed (saved {shown('saved')}; least possible "
        f"{shown('trie')}), {shown('scored')} scored, {shown('new_tokens')} new, in {shown('steps')} steps; "
        f"{shown('tokens_per_second')} tokens/s, {shown('prefill_share')} of the plain rate of "
        f"{shown('prefill_rate')}; {shown('new_tokens_per_second')} new tokens/s; "
        f"peak memory {shown('peak_memory')}"
    )


def _commands(data: ReportData, hidden: int, store: str | None, width: int) -> list[Any]:
    from rich.text import Text

    place = display.visible(shlex.quote(store)) if store is not None else "STORE"
    more = f", with {display.plural(hidden, 'further metric')}" if hidden else ""
    lines = [
        (f"steelyard report {place} --html report.html", "one page with figure, sources and examples"),
        (f"steelyard report {place} --json", f"all numbers as data{more}"),
    ]
    if not data.scores:
        lines = [(f"steelyard score {place}", "judge the answers that are there")]
    if not data.runs and not data.scores:
        lines = [(f"steelyard run --model MODEL --tasks TASKS --store {place}", "ask something")]
    wide = max(len(command) for command, _ in lines) + GAP
    if wide + max(len(purpose) for _, purpose in lines) + GAP > width:
        wide = 0  # then a command and its purpose do not stand on one line
    out = [Text(), Text("Next", style="bold")]
    for command, purpose in lines:
        out += [Text.assemble("  ", command.ljust(wide), "" if wide else "\n    ", (purpose, "dim"))]
    return out
