"""``steelyard run``: progress, Ctrl-C, and the sentence that says what to do next."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from steelyard.cli.console import Console
from steelyard.plan.study import Study
from steelyard.reporting.display import plural
from steelyard.running.progress import Bar
from steelyard.running.session import ModelOutcome, Outcome, run


class Interrupt:
    """Ctrl-C once: stop after the batch in flight. Twice: stop at once; what is on disk is safe either way."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.asked = False

    def __call__(self) -> bool:
        """Whether it was pressed."""
        return self.asked

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over SIGINT for a while."""
        before = signal.signal(signal.SIGINT, self._caught)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _caught(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  the protocol of signal
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self._console.print("stopping after this batch (Ctrl-C again: at once)")


def run_study(study: Study, *, as_json: bool) -> None:
    """Run, show progress on stderr, and print the outcome."""
    console = Console(stderr=True)
    interrupt = Interrupt(console)
    with Bar(console) as bar, interrupt.listening():
        try:
            outcome = run(study, progress=bar, cancelled=interrupt)
        except KeyboardInterrupt:
            bar.stop()
            stop(console, study.store)
    if as_json:
        from steelyard.cli.main import print_json

        print_json(as_plain(outcome))
    else:
        show_outcome(outcome)
    if outcome.interrupted:
        stop(console, study.store)


def show_outcome(outcome: Outcome) -> None:
    """A line or two per model, then the next command."""
    out = Console()
    for model in outcome.models:
        out.print(sentence(model))
        if saved := saving(model):
            out.print(saved)
    judged = outcome.judged
    waiting = f", {judged.waiting:,} wait for an answer" if judged.waiting else ""
    out.print(f"{plural(judged.cells, 'cell')} judged in {outcome.store}{waiting}.")
    out.print(f"Next: steelyard report {shlex.quote(str(outcome.store))}")


def sentence(model: ModelOutcome) -> str:
    """What happened to one model, in words."""
    if model.planned == model.found:
        asked = f"all {plural(model.planned, 'request')} are answered already" if model.planned else ""
        parts = [f"{asked or 'there is nothing to ask'}; no model work was done"]
    else:
        parts = [f"{model.asked:,} of {plural(model.planned, 'request')} answered in {model.seconds:.0f} s"]
    if model.computed:
        parts.append(
            f"{model.computed:,} tokens computed, {model.computed / max(model.seconds, 1e-9):,.0f} tokens/s"
        )
    if model.found and model.planned != model.found:
        parts.append(f"{model.found:,} were answered before")
    if model.failed:
        parts.append(f"{model.failed:,} failed and are asked again by the next run")
    if model.left:
        parts.append(f"{model.left:,} are left")
    if model.overlong:
        parts.append(
            f"{plural(model.overlong, 'cell')} did not fit the context (--overlong) and were not asked"
        )
    return f"{model.model}: " + "; ".join(parts) + "."


def saving(model: ModelOutcome) -> str:
    """What sharing saved, for someone who never heard of it; "" where nothing was saved or it is not known."""
    asked, computed = model.work.asked, model.work.computed
    percent = round(100 * (1 - computed / asked)) if computed and asked else 0
    if percent < 1:
        return ""
    return (
        f"Requests have much text in common, which was computed once: {computed:,} tokens instead of {asked:,}, "
        f"{percent} % of the work saved."
    )


def as_plain(outcome: Outcome) -> dict[str, object]:
    """The outcome as JSON: keys are those of `ModelOutcome`, of a report's `work`, and of `Judged`."""
    return {
        "store": str(outcome.store),
        "interrupted": outcome.interrupted,
        "models": [
            {n: getattr(m, n) for n in m.__slots__} | {"work": m.work.to_json()} for m in outcome.models
        ],
        "judged": {n: getattr(outcome.judged, n) for n in outcome.judged.__slots__},
    }


def stop(console: Console, store: Path) -> NoReturn:
    """Say how to go on, and exit as a program does that was interrupted."""
    console.print(
        f"Stopped. Every finished batch is in {store}; the same command goes on from there:\n"
        f"  {shlex.join(['steelyard', *sys.argv[1:]])}",
    )
    sys.exit(130)
