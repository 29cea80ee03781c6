"""``steelyard check``: what is wrong with a benchmark of one's own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from steelyard.benchmarks.check import Report, check_file
from steelyard.core.errors import InputError
from steelyard.report.display import visible


def check_benchmark(file: Path, *, as_json: bool) -> int:
    """Check a file; returns the exit code: 0 when it loads, 1 when an item is wrong."""
    if not file.exists():
        raise InputError(f"There is no file {file}. Give a benchmark's .toml file, or its .jsonl alone.")
    report = check_file(file)
    if as_json:
        from steelyard.cli.main import print_json

        print_json(asdict(report) | {"ok": report.ok})
    else:
        _show(report, file)
    return 0 if report.ok else 1


def _show(report: Report, file: Path) -> None:
    out = Console(soft_wrap=True, highlight=False)
    out.print(f"{report.name}: {report.n_rows} rows, {report.n_items} items", markup=False, style="bold")
    if report.guessed:
        out.print(
            f"No .toml was given; this one was guessed:\n\n{visible(report.guessed, keep=chr(10))}",
            markup=False,
        )
    for problem in report.problems:
        out.print(
            visible(str(problem)), markup=False, style="red" if problem.severity == "error" else "yellow"
        )
    for note in report.notes:
        out.print(visible(note), markup=False, style="dim")
    if report.example:
        out.print("The first item, as it was understood:", markup=False)
        for name, value in report.example.items():
            out.print(f"  {name}: {visible(value)}", markup=False)
    out.print(f"{len(report.errors)} errors, {len(report.warnings)} warnings.", markup=False, style="bold")
    if report.ok and file.suffix == ".toml":
        out.print(f"Next: steelyard run --model smollm2 --tasks {file} --limit 20", markup=False)
