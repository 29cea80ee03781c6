"""``steelyard plan``: what a study will cost, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steelyard.cli.console import Console
from steelyard.plan.build import Plan
from steelyard.plan.cost import Cost, cost
from steelyard.plan.study import Study
from steelyard.reporting.display import cell_width, plural, visible
from steelyard.running.estimate import Speed, probe_speed, seconds_left
from steelyard.running.session import answered, load_sources, plan_model


def plan_study(study: Study, *, probe: bool, as_json: bool) -> None:
    """Plan for every model, count, time a few requests, and print."""
    sources = load_sources(study)
    plans: list[dict[str, Any]] = []
    console = Console()
    for name in study.model:
        with plan_model(name, study, sources) as (plan, backend):
            done = answered(study.store) & plan.work.keys()
            left = [w for w in plan.work.values() if w.request_id not in done]
            speed = probe_speed(backend, left, study.batch_size) if probe and left else None
            plans.append(_as_plain(plan, study.store, done, left, speed))
            if not as_json:
                _show(console, plan, plans[-1])
    if as_json:
        from steelyard.cli.main import print_json

        print_json({"plans": plans})
    else:
        console.print("Next: the same flags with steelyard run")


def _as_plain(
    plan: Plan, store: Path, done: set[str], left: list[Any], speed: Speed | None
) -> dict[str, Any]:
    whole, rest = cost(plan.work.values()), cost(left)
    forms = [
        {
            "benchmark": form.benchmark,
            "form": form.formulation.name,
            "template": form.template.name,
            "shots": form.shots,
            "cells": len({a.cell_id for a in asks}),
            **_counts(cost({a.request_id: plan.work[a.request_id] for a in asks if a.request_id}.values())),
        }
        for form, _ in plan.forms
        if (asks := [a for a in plan.asks if a.form_id == form.form_id])
    ]
    return {
        "model": plan.identity.model,
        "store": str(store),
        "cells": len({a.cell_id for a in plan.asks}),
        "answered": len(done),
        "total": _counts(whole),
        "left": _counts(rest),
        "seconds": seconds_left(rest, speed) if speed else (0.0 if not left else None),
        "tokens_per_second": speed.prefill if speed else None,
        "new_tokens_per_second": speed.decode if speed else None,
        "forms": forms,
        "overlong": len({a.cell_id for a in plan.asks if "overlong" in a.flags}),
        "items": [{"benchmark": s.loaded.benchmark.name, "selection": s.sentence} for s in plan.sources],
        "notes": plan.notes,
    }


def _counts(counted: Cost) -> dict[str, Any]:
    return {name: getattr(counted, name) for name in counted.__slots__} | {"sharing": counted.sharing}


def _show(console: Console, plan: Plan, plain: dict[str, Any]) -> None:
    console.print(f"{plan.identity.model}", style="bold")
    for line, style in _table(plain, console.width):
        console.print(line, style=style)
    console.print(
        "tokens: every request taken whole; distinct: prefixes that differ, the least that a prefix-sharing engine "
        "computes; new: tokens written, at most. Requests that several forms share are asked once.",
        soft_wrap=False,
    )
    for line in (f"{i['benchmark']}: {i['selection']}" for i in plain["items"]):
        console.print(line)
    for note in plain["notes"]:
        console.print(f"note: {note}", soft_wrap=False)
    if plain["overlong"]:
        console.print(f"{plural(plain['overlong'], 'cell')} do not fit the context (--overlong).")
    console.print(_outlook(plain), soft_wrap=False)


def _table(plain: dict[str, Any], width: int) -> Iterator[tuple[str, str | None]]:
    """Lines with their styles: a heading, then the benchmarks with a line per form, then the sum.

    Where the terminal is too narrow for that, the name of a form has a line of its own above its numbers.
    """
    head = ("form", "template", "shots", "cells", "requests", "tokens", "distinct", "sharing", "new")
    forms = [
        (f["form"], visible(f["template"]), str(f["shots"]), f"{f['cells']:,}", *_cells(f))
        for f in plain["forms"]
    ]
    total = ("together", "", "", f"{plain['cells']:,}", *_cells(plain["total"]))
    rows = [head, *forms, total]
    names = 2  # columns of text; the others are numbers
    wide = [max(cell_width(row[n]) for row in rows) for n in range(len(head))]
    stacked = 2 + sum(wide) + 2 * (len(head) - 1) > width

    def line(row: Sequence[str]) -> str:
        cells = [_pad(text, wide[n], right=n >= names) for n, text in enumerate(row)]
        return "  " + "  ".join(cells[names:] if stacked else cells).rstrip()

    def name(row: Sequence[str]) -> str:
        return "  " + " · ".join(filter(None, row[:names]))

    yield line(head), "dim"
    benchmark = None
    for form, row in zip(plain["forms"], forms, strict=True):
        if form["benchmark"] != benchmark:
            benchmark = form["benchmark"]
            yield visible(benchmark), "bold"
        if stacked:
            yield name(row), None
        yield line(row), None
    if stacked:
        yield name(total).strip(), "bold"
    yield line(total), "bold"


def _pad(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - cell_width(text))
    return space + text if right else text + space


def _outlook(plain: dict[str, Any]) -> str:
    """What is left to do, and how long it will take where that can be said."""
    left = plain["left"]["requests"]
    if not left:
        return "Everything is answered already."
    text = f"{plural(left, 'request')} to ask"
    if plain["seconds"] is None:
        return f"{text}."
    text += f": about {_duration(plain['seconds'])} at the measured "
    if plain["tokens_per_second"] is None:
        # a server that does not tell how many tokens it computed
        return f"{text}{left / max(plain['seconds'], 1e-9):,.1f} requests/s."
    text += f"{plain['tokens_per_second']:,.0f} tokens/s"
    if plain["new_tokens_per_second"]:
        text += f" and {plain['new_tokens_per_second']:,.0f} new tokens/s (if every answer used its limit)"
    return f"{text}."


def _cells(counts: dict[str, Any]) -> tuple[str, ...]:
    tokens, distinct, sharing = counts["tokens"], counts["distinct"], counts["sharing"]
    return (
        f"{counts['requests']:,}",
        "?" if tokens is None else f"{tokens:,}",
        "?" if distinct is None else f"{distinct:,}",
        "" if sharing is None else f"{sharing:.1f}x",
        f"{counts['new_tokens']:,}" if counts["new_tokens"] else "",
    )


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
