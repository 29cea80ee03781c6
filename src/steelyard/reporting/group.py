"""Which rows of a report stand together: wordings of one form, and what went wrong in a form."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steelyard.reporting.model import VALIDITY, ScoreRow

WORDINGS = 12
"""With more templates than this, a form is shown by their distribution instead of by a row per template."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One form in many wordings: how its score spreads over the templates that were asked.

    It describes the templates at hand and claims nothing about others, so it has a range and no interval.
    """

    rows: tuple[ScoreRow, ...]

    @property
    def first(self) -> ScoreRow:
        """The row whose model, benchmark, form and metric all the others share."""
        return self.rows[0]

    @property
    def values(self) -> list[float]:
        """Scores of the templates that have one, ascending."""
        return sorted(row.value for row in self.rows if row.value is not None)

    @property
    def median(self) -> float | None:
        """The median over templates, None when none has a score."""
        return statistics.median(self.values) if self.values else None

    @property
    def diagnostics(self) -> tuple[str, ...]:
        """Diagnostics of all templates, each once."""
        return tuple(dict.fromkeys(text for row in self.rows for text in row.diagnostics))


def collapse(rows: Iterable[ScoreRow]) -> list[ScoreRow | Spread]:
    """Rows in their order; the wordings of a form become one `Spread` where there are more than `WORDINGS`."""
    together: dict[tuple[object, ...], list[ScoreRow]] = {}
    for row in rows:
        key = (row.model, row.step, row.benchmark, row.form, row.shots, row.variant, row.metric, row.unit)
        together.setdefault(key, []).append(row)
    out: list[ScoreRow | Spread] = []
    for group in together.values():
        many = len({row.template for row in group}) > WORDINGS
        out += [Spread(tuple(group))] if many else group
    return out


def first_of(entry: ScoreRow | Spread) -> ScoreRow:
    """A row that speaks for the entry's model, benchmark, form and metric."""
    return entry.first if isinstance(entry, Spread) else entry


@dataclass(frozen=True, slots=True)
class Faults:
    """What went wrong in a form, over its templates.

    Attributes:
        row: a row of the form.
        templates: how many templates the counts cover.
        counts: key of `VALIDITY` -> count; "n" is the number of cells that could have gone wrong.
    """

    row: ScoreRow
    templates: int
    counts: dict[str, int]

    @property
    def any(self) -> bool:
        """Whether anything went wrong at all."""
        return any(count for key, count in self.counts.items() if key != "n")


def faults(rows: Iterable[ScoreRow]) -> list[Faults]:
    """One record per model, benchmark and form, in order of first mention.

    Metrics of a form look at the same cells, so the largest count of a key stands for them; templates are other
    cells, so their counts add up, except duplicates: these are items, and the same ones for each template.
    """
    forms: dict[tuple[object, ...], tuple[ScoreRow, dict[str, dict[str, int]]]] = {}
    for row in rows:
        key = (row.model, row.step, row.benchmark, row.form, row.shots, row.variant)
        templates = forms.setdefault(key, (row, {}))[1]
        counts = templates.setdefault(row.template, {})
        for what, count in row.validity.items():
            counts[what] = max(counts.get(what, 0), count)
    out = []
    for row, templates in forms.values():
        keys = {what for counts in templates.values() for what in counts}
        ordered = [*(key for key in VALIDITY if key in keys), *sorted(keys - set(VALIDITY))]
        total = {
            key: (max if key == "duplicates" else sum)(counts.get(key, 0) for counts in templates.values())
            for key in ordered
        }
        out.append(Faults(row, len(templates), total))
    return out


def fault_keys(records: Sequence[Faults]) -> list[str]:
    """The kinds of faults that occurred, in the order of `VALIDITY`; columns for the others would be empty."""
    found = {key for record in records for key, count in record.counts.items() if count and key != "n"}
    return [*(key for key in VALIDITY if key in found), *sorted(found - set(VALIDITY))]
