"""``steelyard report`` and ``steelyard score``."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from steelyard.core.errors import InputError
from steelyard.reporting.model import ReportData, to_json_text
from steelyard.running.session import judge
from steelyard.running.summary import summarise


def report_store(
    store: Path, *, as_json: bool, html: Path | None, plot: Path | None, every: bool, level: float
) -> None:
    """Print the report of a store; write the page and the plot where asked."""
    data = summarise(store, level=level)
    written = [write_page(data, html)] if html else []
    if plot:
        from steelyard.reporting.figures import save, score_plot

        save(score_plot(data), plot)
        written.append(plot)
    if as_json:
        sys.stdout.write(to_json_text(data))
        return
    show(data, store, every=every)
    for path in written:
        Console(soft_wrap=True).print(f"Wrote {path}", markup=False, highlight=False)


def show(data: ReportData, store: Path, *, every: bool = False) -> None:
    """Print the tables."""
    from steelyard.reporting.terminal import render

    console = Console(highlight=False)
    console.print(render(data, width=console.width, all_metrics=every, store=str(store)))


def write_page(data: ReportData, path: Path) -> Path:
    """Write the HTML page."""
    from steelyard.reporting.page import html

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html(data), "utf-8")
    except OSError as error:
        raise InputError(
            f"The page cannot be written to {path}: {error.strerror}. Give another --html."
        ) from None
    return path


def score_again(store: Path, *, as_json: bool) -> None:
    """Judge and say what changed."""
    judged = judge(store)
    if as_json:
        from steelyard.cli.main import print_json

        print_json({"store": str(store)} | {n: getattr(judged, n) for n in judged.__slots__})
        return
    out = Console(soft_wrap=True, highlight=False)
    waiting = f", {judged.waiting} cells wait for an answer" if judged.waiting else ""
    out.print(
        f"{judged.scores} judgements of {judged.cells} cells, {judged.changed} new or changed{waiting}.",
        markup=False,
    )
    out.print(f"Next: steelyard report {store}", markup=False)
