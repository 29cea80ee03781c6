"""The errors a user can meet, each with what was wrong, expected, received, and what to do.

    SteelyardError
    ├── InputError            a file, an option or a value is not what it should be
    │   ├── UnknownNameError  a name that does not exist, with near misses
    │   ├── DataError         a benchmark source or one of its items
    │   └── StudyError        the study (YAML or flags)
    ├── RefusedError          a request that makes no sense or that this backend cannot answer
    ├── MissingError          a package, a model or a file has to be installed or fetched first
    ├── BackendError          the model or the server failed
    └── StoreError            the tables on disk cannot be read or written

The command line prints the message and exits with 2. A traceback is never the user's message.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SteelyardError(Exception):
    """Base of every error that is meant for the user."""


class InputError(SteelyardError):
    """A file, an option or a value is not what it should be."""


class DataError(InputError):
    """A benchmark source, or one of its items, does not fit."""


class StudyError(InputError):
    """The study (YAML or flags) cannot be read as one."""


class RefusedError(SteelyardError):
    """What was asked for makes no sense, or this backend cannot answer it."""


class MissingError(SteelyardError):
    """Something must be installed or fetched first; the message holds the command."""


class BackendError(SteelyardError):
    """The model or the server failed in a way that retrying did not mend."""


class StoreError(SteelyardError):
    """The tables on disk cannot be read or written."""


class UnknownNameError(InputError):
    """A name that does not exist.

    Args:
        kind: what was looked for, such as "benchmark".
        got: the name received.
        known: every name that exists.

    >>> print(UnknownNameError("form", "mc_rdn", ["mc", "mc_rnd"]))
    Unknown form 'mc_rdn'. Did you mean mc_rnd? Known: mc, mc_rnd.
    """

    def __init__(self, kind: str, got: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(got, names, n=3, cutoff=0.6)
        hint = f" Did you mean {' or '.join(near[:1] if len(near) == 1 else near)}?" if near else ""
        super().__init__(f"Unknown {kind} {got!r}.{hint} Known: {', '.join(names)}.")
        self.kind, self.got, self.known = kind, got, tuple(names)


def missing_package(package: str, extra: str, why: str) -> MissingError:
    """The error for an optional dependency, with the command that installs it."""
    return MissingError(
        f"{why} needs the package {package!r}, which is not installed. "
        f"Install it with: pip install 'steelyard[{extra}]'"
    )
