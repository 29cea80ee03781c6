"""steelyard: trustworthy language-model benchmark numbers for a fraction of the compute.

    steelyard.run(model="smollm2", tasks="mini", forms="nlg,mc", store="runs/mini")   measure
    steelyard.report("runs/mini")                                                     the numbers, with intervals
    steelyard.open("runs/mini")                                                       the tables
    steelyard.stats                                                                   statistics on arrays

Importing this package loads nothing heavy; what a call needs is imported by the call.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"
__all__ = ["Study", "__version__", "open", "report", "run", "stats"]

if TYPE_CHECKING:
    from steelyard import stats as stats
    from steelyard.plan.study import Study as Study
    from steelyard.reporting.model import ReportData
    from steelyard.running.session import Outcome
    from steelyard.store.reader import Store


def run(study: Study | str | os.PathLike[str] | Mapping[str, Any] | None = None, **keys: Any) -> Outcome:  # noqa: ANN401  keys of a study
    """Do a study: ask what its store does not have, and judge.

    Args:
        study: a `Study`, the path of a YAML file, or a mapping of its keys; None takes the keywords alone.
        keys: further keys, laid over it.

    Raises:
        SteelyardError: see `steelyard.core.errors`; whatever was answered until then is on disk.
    """
    from steelyard.plan.study import Study, load_study
    from steelyard.running.session import run as run_session

    if isinstance(study, Study):
        study = study.model_dump(exclude_unset=True)
    if study is None or isinstance(study, Mapping):
        return run_session(load_study(None, {**(study or {}), **keys}))
    return run_session(load_study(Path(study), keys))


def report(store: str | os.PathLike[str], *, level: float = 0.95) -> ReportData:
    """The numbers of a store: scores with intervals, chance levels, what went wrong, where items came from."""
    from steelyard.running.summary import summarise

    return summarise(Path(store), level=level)


def open(store: str | os.PathLike[str]) -> Store:  # noqa: A001  steelyard.open(...) reads as what it does
    """The tables of a store, for reading; use it in a ``with`` statement."""
    from steelyard.store.reader import open_read

    return open_read(store)


def __getattr__(name: str) -> Any:  # noqa: ANN401  a module or a class
    if name == "stats":
        return importlib.import_module("steelyard.stats")
    if name == "Study":
        return importlib.import_module("steelyard.plan.study").Study
    raise AttributeError(f"module 'steelyard' has no attribute {name!r}")
