"""``steelyard check``: what is wrong with a benchmark of one's own."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

from steelyard.benchmarks.check import Report, check_file
from steelyard.benchmarks.custom import load_custom, read_custom
from steelyard.cli.console import Console
from steelyard.core.errors import DataError, InputError
from steelyard.forms.templates import parse_templates, render_text
from steelyard.reporting.display import plural, visible
from steelyard.scoring.registry import check_scorers

_MOST = 50  # warnings on a terminal


def check_benchmark(file: Path, *, as_json: bool) -> int:
    """Check a file; returns the exit code: 0 when it loads, 1 when an item is wrong."""
    if not file.is_file():
        what = f"{file} is a folder" if file.is_dir() else f"There is no file {file}"
        raise InputError(f"{what}. Give a benchmark's .toml file, or its .jsonl alone.")
    report = check_file(file)
    wrong = _settings(file) if file.suffix == ".toml" and report.n_rows else []
    if as_json:
        from steelyard.cli.main import print_json

        print_json(asdict(report) | {"settings": wrong, "ok": report.ok and not wrong})
    else:
        _show(report, file, wrong)
    return 0 if report.ok and not wrong else 1


def _settings(file: Path) -> list[str]:
    """What is wrong with the templates and scorers, which rows know nothing of: each template on the first item."""
    problems = []
    try:
        custom = read_custom(file)
        loaded = load_custom(file, seed=0)
        check_scorers(loaded.benchmark.scorers, loaded.benchmark.answer_type)
        for template in parse_templates(custom.templates, where=file.name).values():
            for text in (
                template.description,
                template.question,
                template.letters_description,
                template.letters,
            ):
                try:
                    render_text(
                        text, template, loaded.items[0], ("an option",) if text == template.letters else ()
                    )
                except InputError as error:
                    problems.append(f"error: {error}")
    except DataError:
        pass  # the rows themselves are wrong, and the report says so
    except InputError as error:
        problems.append(f"error: {error}")
    return problems


def _show(report: Report, file: Path, settings: list[str]) -> None:
    out = Console()
    out.print(
        f"{report.name}: {plural(report.n_rows, 'row')}, {plural(report.n_items, 'item')}", style="bold"
    )
    if report.guessed:
        out.print(f"No .toml was given; this one was guessed:\n\n{report.guessed}")
    for sentence in settings:
        out.print(sentence, style="red")
    for problem in (*report.errors, *report.warnings[:_MOST]):
        out.print(str(problem), style="red" if problem.severity == "error" else "yellow")
    if len(report.warnings) > _MOST:
        out.print(f"and {len(report.warnings) - _MOST} further warnings (--json lists all)")
    for note in report.notes:
        out.print(visible(note), style="dim")
    if report.example:
        out.print("The first item, as it was understood:")
        for name, value in report.example.items():
            out.print(f"  {name}: {visible(value)}")
    counts = (plural(len(report.errors) + len(settings), "error"), plural(len(report.warnings), "warning"))
    out.print(f"{', '.join(counts)}.", style="bold")
    if report.ok and not settings and file.suffix == ".toml":
        out.print(f"Next: steelyard run --model smollm2 --tasks {shlex.quote(str(file))} --limit 20")
