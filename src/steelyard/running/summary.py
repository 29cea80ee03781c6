"""From a store to the numbers of a report: cells become arrays, arrays become estimates."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.core.rng import stream
from steelyard.core.types import Status
from steelyard.forms.formulation import FORMULATIONS
from steelyard.reporting.model import ReportData, ScoreRow
from steelyard.running.notes import notes
from steelyard.scoring import registry
from steelyard.scoring.corpus import corpus_score
from steelyard.stats import (
    Estimate,
    chance_level,
    corpus_bootstrap,
    mean_t,
    ratio_bootstrap,
    score_interval,
    total_t,
)
from steelyard.store.escape import restore
from steelyard.store.reader import Store, open_read
from steelyard.store.rows import FormRow, RunRow, SourceRow


@dataclass(slots=True)
class Column:
    """The cells of one run, form and scorer, one entry a cell."""

    items: list[str] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)
    details: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Context:
    """What a row of the report needs beside its cells."""

    run: RunRow
    form: FormRow
    source: SourceRow | None
    flags: Mapping[str, int]
    waiting: int
    unjudged: int
    level: float


def summarise(path: Path, *, level: float = 0.95) -> ReportData:
    """All that a report shows about a store.

    Args:
        path: of the store.
        level: of the intervals, in (0, 1).
    """
    with open_read(path) as store:
        runs = {r.run_id: r for r in store.runs()}
        forms = {f.form_id: f for f in store.forms()}
        sources = store.sources()
        flags, (waiting, unjudged) = _flags(store), _open_cells(store)
        columns = _columns(store)
        rows: list[ScoreRow] = []
        for (run_id, form_id), by_scorer in columns.items():
            run, form = runs[run_id], forms[form_id]
            context = _Context(
                run,
                form,
                _source(sources, run_id, form),
                flags[run_id, form_id],
                waiting[run_id, form_id],
                unjudged[run_id, form_id],
                level,
            )
            for scorer in form.scorers:
                if scorer in by_scorer:
                    rows += _rows(scorer, by_scorer[scorer], context)
        rows.sort(key=_order([s.benchmark for s in sources]))
        totals = store.work()
        return ReportData(
            title=f"steelyard: {path.name}",
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            scores=tuple(rows),
            runs=tuple(_plain(r) for r in runs.values()),
            sources=tuple(_plain(s) for s in sources),
            work=tuple({"model": runs[r].model, **t.to_json()} for r, t in totals.items()),
            notes=tuple(notes(rows, store, waiting.total(), unjudged.total())),
            examples=tuple(_examples(store, forms)),
        )


# ------------------------------------------------------------------------------------------ reading cells
def _columns(store: Store) -> dict[tuple[str, str], dict[str, Column]]:
    found: dict[tuple[str, str], dict[str, Column]] = defaultdict(lambda: defaultdict(Column))
    cells = store.cells()
    names = ("run_id", "form_id", "scorer", "item_id", "group", "sample", "status", "value", "detail")
    for run, form, scorer, item, group, sample, status, value, detail in zip(
        *(cells.column(name).to_pylist() for name in names), strict=True
    ):
        column = found[run, form][scorer]
        column.items.append(item)
        column.groups.append(group)
        column.samples.append(sample)
        column.statuses.append(status)
        column.values.append(value)
        column.details.append(json.loads(detail) if detail else {})
    return found


def _flags(store: Store) -> dict[tuple[str, str], dict[str, int]]:
    """Cells of each run and form by flag: the token boundary moved, distractors missing, shots dropped."""
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    table = store.query(
        "SELECT run_id, form_id, split_part(flag, ':', 1) AS flag, count(DISTINCT cell_id) AS cells "
        "FROM (SELECT run_id, form_id, cell_id, unnest(flags) AS flag FROM asks) GROUP BY ALL"
    )
    for row in table.to_pylist():
        found[row["run_id"], row["form_id"]][row["flag"]] = row["cells"]
    return found


def _open_cells(store: Store) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Cells of each run and form without a score: those that wait for an answer, and those that only wait for us."""
    table = store.query(
        "SELECT run_id, form_id, complete, count(*) AS cells FROM ("
        "SELECT a.run_id, a.form_id, a.cell_id, "
        "bool_and(a.request_id IS NULL OR r.request_id IS NOT NULL) AS complete "
        "FROM asks a LEFT JOIN responses r ON r.request_id = a.request_id "
        "WHERE a.cell_id NOT IN (SELECT cell_id FROM scores) GROUP BY ALL) GROUP BY ALL"
    )
    waiting: Counter[tuple[str, str]] = Counter()
    unjudged: Counter[tuple[str, str]] = Counter()
    for row in table.to_pylist():
        found = unjudged if row["complete"] else waiting
        found[row["run_id"], row["form_id"]] += row["cells"]
    return waiting, unjudged


def _source(sources: Sequence[SourceRow], run_id: str, form: FormRow) -> SourceRow | None:
    content = form.settings.get("content")
    wanted = (run_id, form.benchmark, content)
    return next((s for s in sources if (s.run_id, s.benchmark, s.content_hash) == wanted), None)


# --------------------------------------------------------------------------------------------- estimating
def _rows(scorer: str, column: Column, context: _Context) -> Iterator[ScoreRow]:
    kept = [n for n, value in enumerate(column.values) if value is not None]
    aggregate = registry.get(scorer).aggregate
    metrics = {"sum": (f"{scorer}_sum", scorer)}.get(aggregate, (scorer,))
    for metric in metrics:
        yield _row(scorer, metric, column, kept, context)


def _estimate(scorer: str, metric: str, column: Column, kept: list[int], context: _Context) -> Estimate:
    level = context.level
    items = list(dict.fromkeys(column.items[n] for n in kept))
    position = {item: n for n, item in enumerate(items)}
    labels: list[str | None] = [None] * len(items)
    for n in kept:
        labels[position[column.items[n]]] = column.groups[n]
    counts = Counter(label for label in labels if label is not None)
    groups = labels if any(c > 1 for c in counts.values()) else None
    match registry.get(scorer).aggregate:
        case "mean":
            y = np.full((len(items), max(column.samples[n] for n in kept) + 1), np.nan)
            for n in kept:
                y[position[column.items[n]], column.samples[n]] = column.values[n]
            y = y[:, ~np.isnan(y).all(axis=0)]
            return score_interval(y, groups=groups, level=level, deterministic=not _sampled(context.form))
        case "sum":
            values = np.array([column.values[n] for n in kept], dtype=float)
            of = total_t if metric.endswith("_sum") else mean_t
            return of(values, groups=groups, level=level, deterministic=True)
        case "ratio":
            bits = np.array([-column.details[n]["nats"] / np.log(2) for n in kept])
            size = np.array([column.details[n]["bytes"] for n in kept], dtype=float)
            return ratio_bootstrap(bits, size, groups=groups, level=level, rng=_stream(metric, context))
        case "corpus":
            # several draws of an item are added up: they are one item's share of the corpus
            stats = np.zeros((len(items), len(column.details[kept[0]]["stats"])))
            for n in kept:
                stats[position[column.items[n]]] += column.details[n]["stats"]
            score = partial(corpus_score, scorer)
            return corpus_bootstrap(stats, score, groups=groups, level=level, rng=_stream(metric, context))


def _stream(metric: str, context: _Context) -> np.random.Generator:
    return stream(0, "bootstrap", context.run.run_id, context.form.form_id, metric)


def _sampled(form: FormRow) -> bool:
    sampling = form.settings.get("sampling")
    return bool(sampling and sampling["temperature"] > 0)


def _row(scorer: str, metric: str, column: Column, kept: list[int], context: _Context) -> ScoreRow:
    estimate = _estimate(scorer, metric, column, kept, context) if kept else None
    run, form = context.run, context.form
    statuses = Counter(column.statuses)
    chances = [d["chance"] for d in column.details if "chance" in d]
    validity = _validity(column, context)
    return ScoreRow(
        model=run.model,
        step=run.step,
        benchmark=form.benchmark,
        form=form.formulation,
        template=form.template_id,
        metric=metric,
        value=estimate.value if estimate else None,
        se=estimate.se if estimate else None,
        low=estimate.low if estimate else None,
        high=estimate.high if estimate else None,
        level=context.level,
        n_items=estimate.n_items if estimate else 0,
        n_samples=len(kept),
        chance=chance_level(chances) if chances else None,
        status_counts=dict(sorted(statuses.items())),
        diagnostics=tuple(_diagnostics(column, estimate, context)),
        validity=validity,
        primary=metric == _primary(form),
        unit={"sum": "nats", "ratio": "bits/byte"}.get(registry.get(scorer).aggregate, "fraction"),
        capability=str(form.settings.get("capability", "")),
        shots=form.shots,
        variant=_variant(context),
    )


def _variant(context: _Context) -> str:
    """What tells this form from the usual one of the same name, template and shots."""
    settings = context.form.settings
    sampling = settings.get("sampling") or {}
    parts = []
    if _sampled(context.form):
        parts.append(f"T={sampling['temperature']:g}")
        parts += [f"top_p={sampling['top_p']:g}"] if sampling["top_p"] < 1 else []
        parts += [f"top_k={sampling['top_k']}"] if sampling["top_k"] is not None else []
    if settings.get("chat"):
        parts.append("chat")
    if context.form.shots and settings.get("shot_mode") == "per_item":
        parts.append("per-item shots")
    if context.run.seed:
        parts.append(f"seed {context.run.seed}")
    return ", ".join(parts)


def _primary(form: FormRow) -> str:
    # bits per byte is comparable between models; the sum depends on how long the answers are
    return "bits_per_byte" if "bits_per_byte" in form.scorers else form.scorers[0]


def _validity(column: Column, context: _Context) -> dict[str, int]:
    statuses = Counter(column.statuses)
    duplicates = set(context.source.duplicates) if context.source else set()
    counts = {
        "n": len(column.items),
        "unparsed": statuses[Status.UNPARSED],
        "overlong": statuses[Status.OVERLONG],
        "cut": sum(
            s == Status.CUT or bool(d.get("cut"))
            for s, d in zip(column.statuses, column.details, strict=True)
        ),
        "ties": sum(bool(d.get("tie")) for d in column.details),
        "errors": statuses[Status.ERROR] + statuses[Status.REFUSED],
        "duplicates": len(duplicates & set(column.items)),
        "moved": context.flags.get("moved", 0),
        "short": context.flags.get("short", 0),
    }
    return {name: int(count) for name, count in counts.items()}


def _diagnostics(column: Column, estimate: Estimate | None, context: _Context) -> Iterator[str]:
    if estimate is not None:
        yield from estimate.diagnostics
    statuses = Counter(column.statuses)
    unread = statuses[Status.UNPARSED] + statuses[Status.CUT]
    if unread:
        read = [
            v for v, s in zip(column.values, column.statuses, strict=True) if s == Status.OK and v is not None
        ]
        without = f"; without them the mean is {np.mean(read):.4f}" if read else ""
        yield f"{unread} of {len(column.items)} answers could not be read and count as wrong{without}"
    missing = len(column.items) - sum(v is not None for v in column.values)
    if missing:
        reasons = ", ".join(f"{n} {s}" for s, n in statuses.items() if s not in {"ok", "unparsed", "cut"})
        whys = Counter(
            str(d["why"])
            for d, v in zip(column.details, column.values, strict=True)
            if v is None and "why" in d
        )
        first = f": {whys.most_common(1)[0][0]}" if whys else ""
        yield f"{missing} of {len(column.items)} cells have no value and are left out of the mean ({reasons}){first}"
    if context.waiting:
        yield f"{context.waiting} cells have no answer yet; run the same command again"
    if context.unjudged:
        yield f"{context.unjudged} cells are answered and not judged yet; see steelyard score"
    for flag, sentence in (
        ("shots_dropped", "cells were asked with fewer shots, since the prompt was too long"),
        ("truncated", "cells were asked with a prompt cut from the left"),
        (
            "left",
            "cells were asked without some other answers of their passage, which has more than are taken",
        ),
    ):
        if context.flags.get(flag):
            yield f"{context.flags[flag]} {sentence}"


# ---------------------------------------------------------------------------------------------- the rest
def _order(benchmarks: list[str]) -> Any:  # noqa: ANN401  a sort key
    names = list(dict.fromkeys(benchmarks))
    forms = list(FORMULATIONS)

    def key(row: ScoreRow) -> tuple[Any, ...]:
        place = names.index(row.benchmark) if row.benchmark in names else len(names)
        form = forms.index(row.form) if row.form in forms else len(forms)
        return row.model, row.step or 0, place, form, row.template, row.shots, row.variant, not row.primary

    return key


def _plain(row: RunRow | SourceRow) -> dict[str, Any]:
    plain = {name: getattr(row, name) for name in row.__slots__}
    return {
        n: dict(v) if isinstance(v, Mapping) else list(v) if isinstance(v, tuple) else v
        for n, v in plain.items()
    }


def _examples(store: Store, forms: Mapping[str, FormRow], each: int = 2) -> Iterator[dict[str, Any]]:
    """A few answers of each generative form, as they came."""
    table = store.query(
        "SELECT s.form_id, s.item_id, u.model, i.question, i.reference, r.text, s.value, s.status FROM scores s "
        "JOIN asks a ON a.cell_id = s.cell_id AND a.role = 'generate' "
        "JOIN responses r ON r.request_id = a.request_id JOIN runs u ON u.run_id = s.run_id "
        "JOIN forms f ON f.form_id = s.form_id AND s.scorer = f.scorers[1] "
        "JOIN items i ON i.benchmark = f.benchmark AND i.item_id = s.item_id "
        "QUALIFY row_number() OVER (PARTITION BY s.form_id ORDER BY s.item_id, s.sample, s.run_id) <= ? "
        "ORDER BY f.benchmark, s.form_id, s.item_id",
        [each],
    )
    for row in table.to_pylist():
        form = forms[row["form_id"]]
        yield {
            "model": restore(row["model"]),
            "benchmark": form.benchmark,
            "form": form.formulation,
            "item_id": restore(row["item_id"]),
            "question": restore(row["question"]),
            "gold": _gold(json.loads(restore(row["reference"]))),
            "answer": restore(row["text"] or ""),
            "value": row["value"],
            "status": row["status"],
        }


def _gold(reference: Mapping[str, Any]) -> str:
    match reference["type"]:
        case "text":
            return str(reference["aliases"][0])
        case "number":
            return str(reference["text"])
        case "choice":
            return str(reference["options"][reference["index"]])
        case _:
            return str(reference["solution"])
