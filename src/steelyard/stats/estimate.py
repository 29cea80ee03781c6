"""What every statistic returns: a number, its uncertainty, and when not to believe it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

_REAL = ("value", "se", "low", "high", "level", "within", "between", "n_eff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its standard error, interval, counts, method and diagnostics.

    A statistic may refuse: then `se` or the interval is None and `diagnostics` says why. None is the only
    code for "not known"; no field is ever NaN or infinite, and an unknown standard error is never 0.

    Attributes:
        value: the estimate, in the unit of the scores.
        se: standard error, in the same unit; 0.0 only if all item means (or group sums) are equal.
        low: lower end of the interval, None together with `high`.
        high: upper end of the interval.
        level: nominal coverage of the interval, in (0, 1).
        n_items: items that entered.
        n_samples: answers that entered, over all items.
        method: how the interval was made: "wilson_neff", "t", "bootstrap_items", "fixed_items",
            "ratio_bootstrap", "corpus_bootstrap".
        target: what the interval speaks about: "population" (items like these) or "benchmark" (these items).
        diagnostics: sentences for the reader, one for each entry of `flags` and in its order.
        flags: the same as stable names, for programs ("few_events", "one_group", ...).
        within: variance of `value` due to drawing answers; None where it is not identified (one draw).
        between: variance of `value` due to drawing items, signed (it may be negative); None like `within`.
        n_groups: groups of items that the standard error allows for; None if items stand alone.
        n_eff: effective number of independent yes/no answers, where the method uses one.

    Examples:
        >>> e = Estimate(value=0.75, se=0.02, low=0.7, high=0.8, n_items=400, n_samples=400, method="t")
        >>> print(e)
        0.7500 [0.7000, 0.8000]
        >>> f"{e:.1%}"
        '75.0% [70.0%, 80.0%]'
        >>> print(Estimate(value=1.0, n_items=1, n_samples=1, method="t", flags=("one_item",),
        ...                diagnostics=("one item has no spread",)))
        1.0000 [no interval: one item has no spread]
    """

    value: float
    se: float | None = None
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    n_items: int
    n_samples: int
    method: str
    target: str = "population"
    diagnostics: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    within: float | None = None
    between: float | None = None
    n_groups: int | None = None
    n_eff: float | None = None

    def __post_init__(self) -> None:
        # these are mistakes of a statistic, not of a user: hence ValueError, not InputError
        for name in _REAL:
            number = getattr(self, name)
            if number is not None and not math.isfinite(number):
                raise ValueError(f"Estimate.{name} must be finite or None, got {number!r}")
        if (self.low is None) != (self.high is None):
            raise ValueError(f"low and high go together, got {self.low!r} and {self.high!r}")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low must not exceed high, got {self.low!r} > {self.high!r}")
        if len(self.flags) != len(self.diagnostics):
            raise ValueError(f"each flag has its sentence, got {self.flags} and {self.diagnostics}")

    def noted(self, flag: str, sentence: str) -> Estimate:
        """A copy with one more diagnostic: its stable name and its sentence for the reader."""
        return replace(self, flags=(*self.flags, flag), diagnostics=(*self.diagnostics, sentence))

    def to_json(self) -> dict[str, Any]:
        """As plain data: every field under its own name, unknown as None, tuples as lists."""
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in data.items()}

    def __format__(self, spec: str) -> str:
        """``value [low, high]``; the format applies to each number, four decimals by default."""
        spec = spec or ".4f"
        value = format(self.value, spec)
        if self.low is None or self.high is None:
            # refusing sentences are written last, after the remarks on what did work
            why = f": {self.diagnostics[-1]}" if self.diagnostics else ""
            return f"{value} [no interval{why}]"
        return f"{value} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        return format(self, "")
