"""``steelyard plan``: what a study will cost, before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from steelyard.plan.build import Plan
from steelyard.plan.cost import Cost, cost
from steelyard.plan.study import Study
from steelyard.running.estimate import Speed, probe_speed, seconds_left
from steelyard.running.session import answered, load_sources, plan_model


def plan_study(study: Study, *, probe: bool, as_json: bool) -> None:
    """Plan for every model, count, time a few requests, and print."""
    sources = load_sources(study)
    plans: list[dict[str, Any]] = []
    console = Console(soft_wrap=True, highlight=False)
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
        console.print("Next: the same flags with steelyard run", markup=False)


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
    table = Table(title=f"{plan.identity.model}", title_justify="left", box=None, pad_edge=False)
    table.add_column("benchmark")
    table.add_column("form")
    table.add_column("template")
    for name in ("shots", "cells", "requests", "tokens", "distinct", "sharing", "new tokens"):
        table.add_column(name, justify="right")
    for form in plain["forms"]:
        table.add_row(
            form["benchmark"],
            form["form"],
            form["template"],
            str(form["shots"]),
            f"{form['cells']:,}",
            *_cells(form),
        )
    table.add_row("together", "", "", "", f"{plain['cells']:,}", *_cells(plain["total"]), style="bold")
    console.print(table)
    console.print(
        "tokens: every request taken whole; distinct: prefixes that differ, the least a prefix-sharing engine "
        "computes; requests that several forms share are asked once.",
        markup=False,
    )
    for line in (f"{i['benchmark']}: {i['selection']}" for i in plain["items"]):
        console.print(line, markup=False)
    for note in plain["notes"]:
        console.print(f"note: {note}", markup=False)
    if plain["overlong"]:
        console.print(f"{plain['overlong']} cells do not fit the context (--overlong).", markup=False)
    left = plain["left"]["requests"]
    if not left:
        console.print("Everything is answered already.", markup=False)
    elif plain["seconds"] is not None:
        console.print(
            f"{left:,} requests are left: about {_duration(plain['seconds'])} at the measured "
            f"{plain['tokens_per_second']:,.0f} tokens/s"
            + (
                f" and {plain['new_tokens_per_second']:,.0f} new tokens/s (if every answer used its limit)"
                if plain["new_tokens_per_second"]
                else ""
            ),
            markup=False,
        )
    else:
        console.print(f"{left:,} requests are left.", markup=False)


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
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
