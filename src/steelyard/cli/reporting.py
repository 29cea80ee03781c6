"""``steelyard report`` and ``steelyard score``."""

from __future__ import annotations

import os
from pathlib import Path

from steelyard.cli import streams
from steelyard.cli.console import Console
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
        streams.write_json(to_json_text(data))
        return
    show(data, store, every=every)
    for path in written:
        Console().print(f"Wrote {path}")


def show(data: ReportData, store: Path, *, every: bool = False) -> None:
    """Print the tables."""
    from steelyard.reporting.terminal import render

    console = Console(wrap=True)
    console.print(render(data, width=console.width, all_metrics=every, store=str(store)))


def write_page(data: ReportData, path: Path) -> Path:
    """Write the HTML page."""
    from steelyard.reporting.page import html

    text = html(data)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_text(text, "utf-8")  # a device or a pipe; a folder says so
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise InputError(
            f"The page cannot be written to {path}: {error.strerror}. Give another --html."
        ) from None
    return path


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all: a full disk must not cost an earlier page."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def score_again(store: Path, *, as_json: bool) -> None:
    """Judge and say what changed."""
    judged = judge(store)
    if as_json:
        from steelyard.cli.main import print_json

        print_json({"store": str(store)} | {n: getattr(judged, n) for n in judged.__slots__})
        return
    out = Console()
    waiting = f", {judged.waiting} cells wait for an answer" if judged.waiting else ""
    out.print(
        f"{judged.scores} judgements of {judged.cells} cells, {judged.changed} new or changed{waiting}.",
    )
    out.print(f"Next: steelyard report {store}")
