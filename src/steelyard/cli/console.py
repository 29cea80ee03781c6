"""The console of the commands: texts are shown as they are, and nothing in them acts on the terminal."""

from __future__ import annotations

from typing import Any

import rich.console

from steelyard.reporting.display import visible


class Console(rich.console.Console):
    """Prints plain texts without markup, with every character that acts or hides written out.

    Args:
        stderr: to standard error.
        wrap: break long lines at words; else the terminal does, so that a command can be copied whole.
    """

    def __init__(self, *, stderr: bool = False, wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=not wrap, markup=False, highlight=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401  the signature of rich
        """As rich does it, texts made visible."""
        shown = [visible(o, keep="\n\t") if isinstance(o, str) else o for o in objects]
        super().print(*shown, **options)

    def on_broken_pipe(self) -> None:
        """The reader has left: rich would exit with 1, which here is a negative verdict."""
        raise BrokenPipeError
