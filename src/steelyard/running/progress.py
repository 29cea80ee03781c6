"""Progress of a run, as events. The terminal draws them; tests and libraries may listen or stay silent."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from steelyard.core.types import Batch

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class Progress(Protocol):
    """Listens to a run."""

    def note(self, sentence: str) -> None:
        """Something worth a line."""
        ...

    def start(self, label: str, total: int, done: int) -> None:
        """A model is going to answer `total` requests, `done` of which have an answer."""
        ...

    def batch(self, batch: Batch) -> None:
        """A batch is on disk."""
        ...

    def stop(self) -> None:
        """The model has no more to answer."""
        ...


class Silent:
    """Listens and says nothing."""

    def note(self, sentence: str) -> None:
        """Ignore it."""

    def start(self, label: str, total: int, done: int) -> None:
        """Ignore it."""

    def batch(self, batch: Batch) -> None:
        """Ignore it."""

    def stop(self) -> None:
        """Ignore it."""


class Bar:
    """A progress bar with tokens per second and the time left; plain lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._console = console
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._tokens, self._began, self._said = 0, 0.0, 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def note(self, sentence: str) -> None:
        """Print it above the bar."""
        self._console.print(sentence, markup=False, highlight=False)

    def start(self, label: str, total: int, done: int) -> None:
        """Draw the bar."""
        self._tokens, self._began = 0, time.monotonic()
        self._said = self._began
        self._task = self._bar.add_task(label, total=total, completed=done, rate="")
        if self._console.is_terminal:  # elsewhere it would only leave an empty line
            self._bar.start()

    def batch(self, batch: Batch) -> None:
        """Move the bar."""
        if self._task is None:
            return
        self._tokens += batch.computed or sum(r.n_tokens for r in batch.responses)
        now = time.monotonic()
        rate = f"{self._tokens / max(now - self._began, 1e-9):,.0f} tokens/s"
        self._bar.update(self._task, advance=len(batch.responses), rate=rate)
        if not self._console.is_terminal and now - self._said > 30:
            self._said = now
            task = self._bar.tasks[self._task]
            self.note(f"{task.description}: {task.completed:.0f} of {task.total:.0f} requests, {rate}")

    def stop(self) -> None:
        """Take the bar away."""
        if self._task is not None:
            if self._console.is_terminal:
                self._bar.stop()
            self._bar.remove_task(self._task)
            self._task = None
