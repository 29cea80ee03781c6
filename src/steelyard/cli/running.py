"""``steelyard run``: progress, Ctrl-C, and the sentence that says what to do next."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

from steelyard.plan.study import Study
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
        self._console.print("stopping after this batch (Ctrl-C again: at once)", markup=False)


def run_study(study: Study, *, as_json: bool) -> None:
    """Run, show progress on stderr, and print the outcome."""
    console = Console(stderr=True)
    interrupt = Interrupt(console)
    with Bar(console) as bar, interrupt.listening():
        try:
            outcome = run(study, progress=bar, cancelled=interrupt)
        except KeyboardInterrupt:
            bar.stop()
            _say_resume(console, study)
            sys.exit(130)
    if as_json:
        from steelyard.cli.main import print_json

        print_json(as_plain(outcome))
    else:
        show_outcome(outcome)
    if outcome.interrupted:
        _say_resume(console, study)
        sys.exit(130)


def show_outcome(outcome: Outcome) -> None:
    """A line or two per model, then the next command."""
    out = Console(soft_wrap=True, highlight=False)
    for model in outcome.models:
        out.print(sentence(model), markup=False)
    judged = outcome.judged
    waiting = f", {judged.waiting} wait for an answer" if judged.waiting else ""
    out.print(f"{judged.cells} cells judged in {outcome.store}{waiting}.", markup=False)
    out.print(f"Next: steelyard report {shlex.quote(str(outcome.store))}", markup=False)


def sentence(model: ModelOutcome) -> str:
    """What happened to one model, in words."""
    if model.planned == model.found:
        return f"{model.model}: all {model.planned} requests are answered already; no model work was done."
    parts = [f"{model.asked} of {model.planned} requests answered in {model.seconds:.0f} s"]
    if model.computed:
        parts.append(
            f"{model.computed:,} tokens computed, {model.computed / max(model.seconds, 1e-9):,.0f} tokens/s"
        )
    if model.found:
        parts.append(f"{model.found} were answered before")
    if model.failed:
        parts.append(f"{model.failed} failed and are asked again by the next run")
    if model.left:
        parts.append(f"{model.left} are left")
    if model.overlong:
        parts.append(f"{model.overlong} cells do not fit the context and were not asked")
    return f"{model.model}: " + "; ".join(parts) + "."


def as_plain(outcome: Outcome) -> dict[str, object]:
    """The outcome as JSON: keys are those of `ModelOutcome` and `Judged`."""
    return {
        "store": str(outcome.store),
        "interrupted": outcome.interrupted,
        "models": [{n: getattr(m, n) for n in m.__slots__} for m in outcome.models],
        "judged": {n: getattr(outcome.judged, n) for n in outcome.judged.__slots__},
    }


def _say_resume(console: Console, study: Study) -> None:
    console.print(
        f"Stopped. Every finished batch is in {study.store}; the same command goes on from there:\n"
        f"  {shlex.join(['steelyard', *sys.argv[1:]])}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
