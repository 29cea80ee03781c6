"""``steelyard check``: what is wrong with a benchmark of one's own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from steelyard.benchmarks.check import Report, check_file
from steelyard.benchmarks.custom import load_custom, read_custom
from steelyard.core.errors import DataError, InputError
from steelyard.forms.templates import parse_templates, render_text
from steelyard.reporting.display import visible
from steelyard.scoring.registry import for_form

_MOST = 50  # warnings on a terminal


def check_benchmark(file: Path, *, as_json: bool) -> int:
    """Check a file; returns the exit code: 0 when it loads, 1 when an item is wrong."""
    if not file.exists():
        raise InputError(f"There is no file {file}. Give a benchmark's .toml file, or its .jsonl alone.")
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
        for_form("generate", loaded.benchmark.scorers)
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
    out = Console(soft_wrap=True, highlight=False)
    out.print(f"{report.name}: {report.n_rows} rows, {report.n_items} items", markup=False, style="bold")
    if report.guessed:
        out.print(
            f"No .toml was given; this one was guessed:\n\n{visible(report.guessed, keep=chr(10))}",
            markup=False,
        )
    for sentence in settings:
        out.print(visible(sentence), markup=False, style="red")
    for problem in (*report.errors, *report.warnings[:_MOST]):
        out.print(
            visible(str(problem)), markup=False, style="red" if problem.severity == "error" else "yellow"
        )
    if len(report.warnings) > _MOST:
        out.print(f"and {len(report.warnings) - _MOST} further warnings (--json lists all)", markup=False)
    for note in report.notes:
        out.print(visible(note), markup=False, style="dim")
    if report.example:
        out.print("The first item, as it was understood:", markup=False)
        for name, value in report.example.items():
            out.print(f"  {name}: {visible(value)}", markup=False)
    out.print(
        f"{len(report.errors) + len(settings)} errors, {len(report.warnings)} warnings.",
        markup=False,
        style="bold",
    )
    if report.ok and not settings and file.suffix == ".toml":
        out.print(f"Next: steelyard run --model smollm2 --tasks {file} --limit 20", markup=False)
