"""``steelyard``: every command in one place. Heavy packages are imported by the commands that need them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
import typer.core

from steelyard.cli import streams
from steelyard.cli.options import takes_study

if TYPE_CHECKING:
    from steelyard.plan.study import Study


class _Commands(typer.core.TyperGroup):
    """The group of commands; a pipe whose reader has left ends them as it ends other programs."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  typer brings its own copy of click's types
        """Run a command and send what it printed."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                streams.flush()
        except BrokenPipeError:
            # typer would exit with 1, which is a negative verdict
            streams.give_up()
            raise SystemExit(streams.READER_GONE) from None


app = typer.Typer(
    name="steelyard",
    cls=_Commands,
    help="Trustworthy language-model benchmark numbers for a fraction of the compute.\n\n"
    "Start with: steelyard demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON with stable, documented keys.")]
Store = Annotated[
    Path, typer.Argument(metavar="STORE", help="Folder of a study's tables.", show_default=False)
]


def main() -> None:
    """Entry point: errors are printed without a traceback, and the exit code is 2."""
    from steelyard.core.errors import SteelyardError

    streams.prepare()
    try:
        app()
    except SteelyardError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("STEELYARD_TRACEBACK"):
            raise
        if isinstance(error, OSError):
            place = f"{error.filename}: " if error.filename else ""
            _fail(f"{place}{error.strerror or error}. Nothing that a store holds is lost.")
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _fail(
            f"{what}. This was not foreseen and is a fault of steelyard; nothing that a store holds is lost. "
            "STEELYARD_TRACEBACK=1 and the same command show where it happened."
        )


def _fail(message: str) -> NoReturn:
    from steelyard.cli.console import Console

    try:
        Console(stderr=True).print(f"error: {message}")
    finally:
        streams.give_up()
        sys.exit(2)


def _study(study_file: Path | None, flags: dict[str, Any]) -> Study:
    from steelyard.plan.study import load_study

    return load_study(study_file, flags)


def print_json(value: object) -> None:
    """Print JSON; NaN is not JSON and is refused."""
    from steelyard.reporting.model import json_text

    streams.write_json(json_text(value))


@app.command()
@takes_study()
def run(study_file: Path | None, flags: dict[str, Any], json: Json = False) -> None:
    """Measure: ask what is missing, judge, and say what to look at next.

    The same command again resumes: nothing is asked twice.

    Example: steelyard run --model smollm2 --tasks mini --forms nlg,mc --store runs/mini
    """
    from steelyard.cli.running import run_study

    run_study(_study(study_file, flags), as_json=json)


@app.command()
@takes_study()
def plan(
    study_file: Path | None,
    flags: dict[str, Any],
    probe: Annotated[bool, typer.Option(help="Run a few requests to estimate the time.")] = True,
    json: Json = False,
) -> None:
    """Say what a study will cost, before anything is spent.

    Example: steelyard plan --model smollm2 --tasks gsm8k --forms nlg,mc_rnd --data DIR
    """
    from steelyard.cli.planning import plan_study

    plan_study(_study(study_file, flags), probe=probe, as_json=json)


@app.command()
@takes_study(leave_out=frozenset({"tasks", "forms", "items", "limit", "store", "repeats", "templates"}))
def show(
    study_file: Path | None,
    flags: dict[str, Any],
    task: Annotated[str, typer.Option(help="A benchmark.", show_default=False)],
    form: Annotated[str, typer.Option(help="How it is asked.")] = "nlg",
    item: Annotated[str, typer.Option(help="Item id, or its position counted from 0.")] = "0",
    template: Annotated[str | None, typer.Option(help="Template name.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Show exactly what the model will see, with token ids and the boundary marked.

    Example: steelyard show --task mini_facts --form mc --item 3
    """
    from steelyard.cli.showing import show_item

    overrides = {"model": "smollm2", **flags, "tasks": task, "forms": form}
    if template is not None:
        overrides["templates"] = template
    show_item(_study(study_file, overrides), item, as_json=json)


@app.command()
def report(
    store: Store,
    json: Json = False,
    html: Annotated[
        Path | None, typer.Option(help="Write one self-contained HTML file.", show_default=False)
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the score plot: .svg, .png or .pdf.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every metric, not only the primary ones.")
    ] = False,
    level: Annotated[float, typer.Option(help="Level of the intervals, in (0, 1).")] = 0.95,
) -> None:
    """Report scores with intervals, chance levels and what went wrong.

    Example: steelyard report runs/mini --html mini.html
    """
    from steelyard.cli.reporting import report_store

    report_store(store, as_json=json, html=html, plot=plot, every=every, level=level)


@app.command()
def score(store: Store, json: Json = False) -> None:
    """Judge stored answers again, without a model.

    Example: steelyard score runs/mini
    """
    from steelyard.cli.reporting import score_again

    score_again(store, as_json=json)


@app.command()
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A benchmark's .toml or .jsonl file.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Check your own benchmark, item by item. Exits with 1 when an item is wrong.

    Example: steelyard check mybench.toml
    """
    from steelyard.cli.checking import check_benchmark

    sys.exit(check_benchmark(file, as_json=json))


@app.command()
@takes_study(leave_out=frozenset({"store", "engine", "batch_size"}))
def selfcheck(
    study_file: Path | None,
    flags: dict[str, Any],
    requests: Annotated[
        int, typer.Option(min=1, help="Requests of the study to ask; a seeded sample over all its forms.")
    ] = 100,
    json: Json = False,
) -> None:
    """Check that your machine gives your study the same answers however they are computed.

    Asks a sample with shared prefixes and without, at several batch sizes, and compares likelihoods, choices and
    texts. Without --tasks it takes the built-in benchmark mini. Nothing is stored. Exits with 1 when more differs
    than rounding explains.

    Example: steelyard selfcheck --model smollm2
    """
    from steelyard.cli.selfchecking import DEFAULTS, check_engine

    overrides = {**DEFAULTS, **flags} if study_file is None and "tasks" not in flags else flags
    sys.exit(check_engine(_study(study_file, overrides), requests=requests, as_json=json))


@app.command()
def demo(
    store: Annotated[Path, typer.Option(help="Folder of the tables.")] = Path("runs/demo"),
    html: Annotated[Path, typer.Option(help="The report page.")] = Path("runs/demo.html"),
    model: Annotated[str, typer.Option(help="Another model.")] = "smollm2",
    json: Json = False,
) -> None:
    """The main job on the embedded model and benchmark: a few minutes on two CPU cores, no download.

    Example: steelyard demo
    """
    from steelyard.cli.demo import run_demo

    run_demo(store, html, model, as_json=json)


@app.command()
def doctor(
    prepare: Annotated[bool, typer.Option("--prepare", help="Fetch and convert the embedded model.")] = False,
    json: Json = False,
) -> None:
    """Say what is installed, what is missing and how to get it.

    Example: steelyard doctor
    """
    from steelyard.cli.doctor import examine

    examine(prepare=prepare, as_json=json)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        from steelyard import __version__

        sys.stdout.write(f"steelyard {__version__}\n")
        raise typer.Exit
