"""What a report says, as frozen values: the one thing that the terminal, the page, the figure and JSON all read.

Fractions inside, percent only when printing. Missing is None, and `ScoreRow.status_counts` says why.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.core.errors import InputError, UnknownNameError

SCHEMA = 1
"""Version of the JSON report. It grows when a key changes its meaning or goes, not when one is added."""

UNITS = ("fraction", "nats", "bits/byte")
VALIDITY = ("n", "unparsed", "overlong", "cut", "ties", "errors", "duplicates", "moved", "short")

RUN_KEYS = ("model", "step", "backend", "dtype", "weights_digest", "versions", "hardware", "seed", "started")
SOURCE_KEYS = (
    "benchmark", "kind", "location", "revision", "split", "content_hash", "n_items", "n_selected", "selection",
    "shot_source",
)  # fmt: skip
TOKEN_KEYS = ("model", "requests", "asked", "computed", "trie", "scored", "new_tokens", "steps", "saved")
SPEED_KEYS = (
    "model", "seconds", "tokens_per_second", "prefill_rate", "prefill_share", "new_tokens_per_second", "peak_memory",
)  # fmt: skip
WORK_KEYS = (*TOKEN_KEYS, *SPEED_KEYS[1:])
EXAMPLE_KEYS = ("benchmark", "form", "item_id", "question", "gold", "answer", "value", "status")

# JSON itself escapes the C0 controls only. A report is also read on terminals, where C1 controls and
# bidirectional overrides act, and written as UTF-8, which has no place for a lone surrogate.
_ACTS_WHEN_PRINTED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One number of a report: a model, a benchmark, a form and a metric.

    Attributes:
        model: name in reports. step: training step of a checkpoint, or None.
        benchmark: name in the catalog.
        form: formulation name (nlg, mc, mc_rnd, ...). template: name of its wording. shots: how many.
        metric: name of the scorer or normalisation.
        value: the estimate in `unit`, or None; then `status_counts` or `diagnostics` say why.
        se: standard error in `unit`, or None where it is not identified.
        low, high: limits of the interval in `unit`, or None. level: its level in (0, 1), such as 0.95.
        n_items: items that the value rests on. n_samples: answers that it rests on, over all items.
        chance: the score of blind guessing on the same items, in [0, 1], or None where there is none.
        status_counts: status -> number of cells.
        diagnostics: sentences that say when not to believe the number.
        validity: what went wrong, under the keys of `VALIDITY`: counts of cells among "n" cells; duplicates are
            counted in items.
        primary: whether this metric stands for the form in tables and plots.
        unit: "fraction" (in [0, 1]), "nats" or "bits/byte".
        capability: what the benchmark is meant to measure.
        variant: what is not usual about how it was asked ("T=0.7", "chat"), "" for nothing.
    """

    model: str
    step: int | None
    benchmark: str
    form: str
    template: str
    metric: str
    value: float | None
    se: float | None
    low: float | None
    high: float | None
    level: float
    n_items: int
    n_samples: int
    chance: float | None
    status_counts: Mapping[str, int]
    diagnostics: tuple[str, ...]
    validity: Mapping[str, int]
    primary: bool
    unit: str
    capability: str
    shots: int
    variant: str = ""

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise UnknownNameError("unit", self.unit, UNITS)
        for name in ("value", "se", "low", "high", "chance"):
            number = getattr(self, name)
            if number is not None and not math.isfinite(number):
                raise InputError(
                    f"The {name} of {self.model} on {self.benchmark} ({self.form}, {self.metric}) must be a finite "
                    f"number or None. Got {number!r}. A number that does not exist is None, with its reason."
                )

    @property
    def form_key(self) -> tuple[object, ...]:
        """What a form is asked of: rows that share it differ by their metric only."""
        return (self.model, self.step, self.benchmark, self.form, self.template, self.shots, self.variant)

    def to_json(self) -> dict[str, Any]:
        """As plain data; the keys and their order are part of the contract (docs/report.md)."""
        return {
            "model": self.model,
            "step": self.step,
            "benchmark": self.benchmark,
            "form": self.form,
            "template": self.template,
            "metric": self.metric,
            "value": self.value,
            "se": self.se,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "n_items": self.n_items,
            "n_samples": self.n_samples,
            "chance": self.chance,
            "status_counts": _ordered(self.status_counts, ()),
            "diagnostics": list(self.diagnostics),
            "validity": _ordered(self.validity, VALIDITY),
            "primary": self.primary,
            "unit": self.unit,
            "capability": self.capability,
            "shots": self.shots,
            "variant": self.variant,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything a report shows.

    Attributes:
        title: of the report.
        created: ISO 8601, UTC.
        scores: in the order in which they are shown; models and benchmarks appear in order of first mention.
        runs, sources, work, examples: records with the keys of `RUN_KEYS`, `SOURCE_KEYS`, `WORK_KEYS` and
            `EXAMPLE_KEYS`. A key that is absent is shown as unknown; further keys are kept in JSON.
        notes: sentences that a reader must see beside the numbers, such as a limit.
    """

    title: str
    created: str
    scores: tuple[ScoreRow, ...]
    runs: tuple[Mapping[str, Any], ...] = ()
    sources: tuple[Mapping[str, Any], ...] = ()
    work: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()

    def headline(self) -> tuple[ScoreRow, ...]:
        """The primary row of each form; a form without one keeps all its rows, so that none disappears."""
        with_primary = {row.form_key for row in self.scores if row.primary}
        return tuple(row for row in self.scores if row.primary or row.form_key not in with_primary)

    def to_json(self) -> dict[str, Any]:
        """As plain data; see docs/report.md."""
        return {
            "schema": SCHEMA,
            "title": self.title,
            "created": self.created,
            "scores": [row.to_json() for row in self.scores],
            "runs": [_ordered(run, RUN_KEYS) for run in self.runs],
            "sources": [_ordered(source, SOURCE_KEYS) for source in self.sources],
            "work": [_ordered(work, WORK_KEYS) for work in self.work],
            "notes": list(self.notes),
            "examples": [_ordered(example, EXAMPLE_KEYS) for example in self.examples],
        }


def to_json_text(data: ReportData) -> str:
    r"""The report as JSON text, the same bytes for the same data.

    Keys are in the documented order, records of unknown keys sorted. Numbers are never NaN or infinite.
    Characters that act on a terminal are written as ``\uXXXX``, which reads back as the same text.

    Raises:
        InputError: a record holds a number that is not finite, or a value that JSON cannot hold.
    """
    try:
        return json_text(data.to_json())
    except (ValueError, TypeError) as error:
        raise InputError(
            f"The report cannot be written as JSON: {error}. Records hold text, finite numbers, booleans, None, "
            "and lists or mappings of these; a number that does not exist is None."
        ) from error


def json_text(value: object) -> str:
    r"""Plain data as JSON text that can be shown on a terminal and written as UTF-8, with a newline at its end.

    Raises:
        ValueError, TypeError: a number is not finite, or a value is none that JSON has.

    >>> print(json_text({"text": "\u202eevil"}), end="")
    {
     "text": "\u202eevil"
    }
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1)
    return _ACTS_WHEN_PRINTED.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def _ordered(record: Mapping[str, Any], first: Sequence[str]) -> dict[str, Any]:
    """A copy with the keys of `first` in front (those it has), the others sorted, and so on inside."""
    keys: Iterable[str] = [key for key in first if key in record]
    return {key: _plain(record[key]) for key in [*keys, *sorted(record.keys() - set(first))]}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return _ordered(value, ())
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value
