"""Benchmarks by name. A name is a line in a table; its module is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import cast

from steelyard.benchmarks.base import Benchmark
from steelyard.core.errors import UnknownNameError

_HERE = "steelyard.benchmarks"
_MODULES = {
    "gsm8k": "gsm8k",
    "triviaqa": "triviaqa",
    "squad": "squad",
    "humaneval": "humaneval",
    "mmlu": "mmlu",
    "boolq": "boolq",
    "arc_easy": "arc",
    "arc_challenge": "arc",
    "hellaswag": "hellaswag",
    "mini_math": "mini",
    "mini_facts": "mini",
    "mini_reading": "mini",
    "mini_code": "mini",
    "simulated": "simulated",
}
GROUPS = {
    "arc": ("arc_easy", "arc_challenge"),
    "mini": ("mini_math", "mini_facts", "mini_reading", "mini_code"),
}
"""Names that stand for several benchmarks."""


def names() -> tuple[str, ...]:
    """Every benchmark of the catalog, in the order of the documentation."""
    return tuple(_MODULES)


def is_own(name: str) -> bool:
    """Whether this is the path of a benchmark of one's own (a TOML file) and not a name of the catalog."""
    return name.endswith(".toml")


def get(name: str) -> Benchmark:
    """The benchmark of that name, or of that TOML file.

    Raises:
        UnknownNameError: there is none, with near misses.
        DataError: a TOML file that does not describe a benchmark.
    """
    if is_own(name):
        from steelyard.benchmarks.custom import read_custom

        return read_custom(Path(name)).benchmark()
    return _get(name)


@cache
def _get(name: str) -> Benchmark:
    if name not in _MODULES:
        raise UnknownNameError("benchmark", name, (*_MODULES, *GROUPS))
    module = importlib.import_module(f"{_HERE}.{_MODULES[name]}")
    # a module holds one benchmark or several
    several = getattr(module, "BENCHMARKS", None) or (module.BENCHMARK,)
    return next(b for b in cast("tuple[Benchmark, ...]", several) if b.name == name)


def local() -> tuple[Benchmark, ...]:
    """The benchmarks whose items are not in the package, but on the hub or in a data folder."""
    return tuple(_get(n) for n, module in _MODULES.items() if module not in {"mini", "simulated"})


def is_packaged(name: str) -> bool:
    """Whether the items come with the package."""
    return _MODULES.get(name) in {"mini", "simulated"}


def expand(given: Iterable[str]) -> tuple[str, ...]:
    """Names with groups replaced by their members, each once, in the order given. TOML paths stay.

    Raises:
        UnknownNameError: a name that is neither a benchmark, nor a group, nor a TOML file.
    """
    found: dict[str, None] = {}
    for name in given:
        if name in GROUPS:
            found.update(dict.fromkeys(GROUPS[name]))
        elif name in _MODULES or is_own(name):
            found[name] = None
        else:
            raise UnknownNameError("benchmark", name, (*_MODULES, *GROUPS))
    return tuple(found)
