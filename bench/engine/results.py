"""One case's result: goals with what was reached, and everything that was measured."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.engine.clock import Spread
from bench.engine.data import ROOT

KEPT = ROOT / "bench" / "results" / "engine"
TRIED = ROOT / "build" / "bench"  # of --quick: never mistaken for a measurement


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure beside what is asked of it.

    Attributes:
        name: of the figure, as in the table.
        value: what was measured, None where it was not.
        target: what is asked, None for a figure that is only reported.
        at_least: whether the target is a lower bound (else an upper one).
        low, high: of the repeats. unit: "x", "tokens", ...
        note: beside the figure in the table.
    """

    name: str
    value: float | None
    target: float | None = None
    at_least: bool = True
    low: float | None = None
    high: float | None = None
    unit: str = ""
    note: str = ""

    @classmethod
    def spread(cls, name: str, over: Spread, target: float | None, *, unit: str = "", note: str = "") -> Goal:
        """A median over repeats that must be at least the target."""
        return cls(name, over.median, target, True, over.low, over.high, unit, note)

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; None where there is none. What was not measured is not met."""
        if self.target is None:
            return None
        if self.value is None:
            return False
        return self.value >= self.target if self.at_least else self.value <= self.target

    def to_json(self) -> dict[str, Any]:
        """With whether it is reached."""
        return asdict(self) | {"reached": self.reached}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a case gave.

    Attributes:
        what: the case in a sentence. against: the peer with its version and batch size, "" for none.
        detail: per-repeat figures, counters, the search for the batch size.
        notes: what a reader must know beside the figures (samples, scaling).
    """

    case: str
    title: str
    what: str
    against: str
    goals: list[Goal]
    detail: dict[str, Any]
    machine: dict[str, Any]
    seconds: float = 0.0
    quick: bool = False
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"goals": [goal.to_json() for goal in self.goals]}


def write(result: Result, folder: Path) -> Path:
    """Keep a result; the file of an earlier run of the case is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.case}.json"
    body = json.dumps(_rounded(result.to_json()), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(body + "\n", "utf-8")
    return path


def read(folder: Path) -> list[dict[str, Any]]:
    """Every result of a folder, by name of its case."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]


def say(line: str) -> None:
    """Progress of a case, at once: it is watched for minutes."""
    print(f"  {line}", flush=True)


def _rounded(value: Any) -> Any:
    """Floats to six significant digits: more is noise, and a diff of results should show what changed."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {k: _rounded(v) for k, v in value.items()}
        case list() | tuple():
            return [_rounded(v) for v in value]
    return value
