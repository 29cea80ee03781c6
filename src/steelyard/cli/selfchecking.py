"""``steelyard selfcheck``: the same sample in several ways, and what differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from steelyard.cli.console import Console
from steelyard.plan.study import Study
from steelyard.reporting import display
from steelyard.running.progress import Bar
from steelyard.running.selfcheck import Checked, Pass, how_many, kinds, selfcheck

DEFAULTS = {"tasks": "mini", "forms": "nlg,mc,ll", "skip_refused": True}
"""The study where none is given."""

_SHOWN = 5  # flips on a terminal


def check_engine(study: Study, *, requests: int, as_json: bool) -> int:
    """Check every model of a study; returns the exit code: 0 when rounding explains every difference, else 1."""
    err = Console(stderr=True)
    with Bar(err) as bar:
        checked = selfcheck(study, requests=requests, progress=bar)
    if as_json:
        from steelyard.cli.main import print_json

        print_json({"ok": all(c.ok for c in checked), "models": [_as_plain(c) for c in checked]})
    else:
        out = Console(wrap=True)
        for each in checked:
            _show(out, each)
    return 0 if all(c.ok for c in checked) else 1


def _as_plain(checked: Checked) -> dict[str, Any]:
    sample = checked.sample
    return {
        "model": checked.model,
        "dtype": checked.dtype,
        "tolerance": {"per_token": checked.tolerance.per_token, "greedy": checked.tolerance.greedy,
                      "sampled": checked.tolerance.sampled},
        "sharing": checked.sharing,
        "sample": {"requests": len(sample.work), "planned": sample.planned, "added": sample.added,
                   "cells": len(sample.cells), **kinds(sample)},
        "passes": [_plain_pass(each) for each in checked.passes],
        "ok": checked.ok,
    }  # fmt: skip


def _plain_pass(each: Pass) -> dict[str, Any]:
    difference = None
    if each.difference is not None:
        difference = {
            "per_token": each.difference.per_token,
            "total": each.difference.total,
            "furthest": each.difference.furthest or None,
            "greedy_texts": len(each.difference.greedy_texts),
            "greedy_ties": len(each.ties),
            "sampled_texts": len(each.difference.sampled_texts),
            "outcomes": len(each.difference.outcomes),
            "choices": each.choices,
            "flipped": [asdict(flip) for flip in each.flipped],
        }
    return {
        "engine": each.engine,
        "batch_size": each.batch_size,
        "failed": each.failed,
        "work": each.work.to_json(),
        "difference": difference,
        "beyond": list(each.beyond),
    }


# --------------------------------------------------------------------------------------------- for people
def _show(out: Console, checked: Checked) -> None:
    sample, count = checked.sample, kinds(checked.sample)
    texts = f"{display.plural(count['greedy'], 'greedy text')} and {count['sampled']:,} sampled"
    added = f" ({sample.added:,} of the texts were added, to have both kinds)" if sample.added else ""
    out.print(checked.model, style="bold")
    out.print(
        f"{display.plural(len(sample.work), 'request')}, a seeded sample of {sample.planned:,}: "
        f"{display.plural(count['likelihoods'], 'likelihood')}, {texts}{added}."
    )
    if checked.sharing:
        out.print(f"Prefixes are not shared here: {checked.sharing}")
    for line in _table(checked.passes):
        out.print(line, soft_wrap=True)
    out.print("Differences are those to the first line.", style="dim")
    for line in _flipped(checked.passes):
        out.print(line)
    dtype = f" ({checked.dtype})" if checked.dtype else ""
    allowed = f"{checked.tolerance.per_token:g} nats per token{dtype}"
    if checked.ok:
        out.print(f"The answers are the same within {allowed}.", style="bold")
        return
    out.print(f"More differs than rounding explains (allowed: {allowed}):", style="bold red")
    for each in checked.passes:
        for sentence in each.beyond:
            out.print(f"  {_name(each)}: {sentence}", style="red")


def _table(passes: Sequence[Pass]) -> Iterator[str]:
    head = ("", "computed", "seconds", "nats/token", "nats", "flipped", "greedy", "sampled")
    rows = [head, *map(_row, passes)]
    wide = [max(len(row[n]) for row in rows) for n in range(len(head))]
    for row in rows:
        cells = [row[0].ljust(wide[0]), *(text.rjust(w) for text, w in zip(row[1:], wide[1:], strict=True))]
        yield "  " + "  ".join(cells).rstrip()


def _row(each: Pass) -> tuple[str, ...]:
    start = (_name(each), display.work("computed", each.work.computed), f"{each.work.seconds:,.1f}")
    found = each.difference
    if found is None:
        return (*start, *(display.MISSING,) * 5)
    ties = sum(flip.tie for flip in each.flipped)
    return (
        *start,
        f"{found.per_token:.1e}" if found.likelihoods else display.MISSING,
        f"{found.total:.1e}" if found.likelihoods else display.MISSING,
        _of(len(each.flipped), each.choices, ties),
        _of(len(found.greedy_texts), found.greedy, len(each.ties)),
        _of(len(found.sampled_texts), found.sampled, 0),
    )


def _of(different: int, count: int, ties: int) -> str:
    if not count:
        return display.MISSING
    return f"{different}/{count}" + (f" ({display.plural(ties, 'tie')})" if ties else "")


def _flipped(passes: Sequence[Pass]) -> Iterator[str]:
    found = [(each, flip) for each in passes for flip in each.flipped]
    for each, flip in found[:_SHOWN]:
        why = "a tie within the tolerance" if flip.tie else "no tie"
        yield (
            f"{_name(each)}: item {display.name(flip.item_id)} chose option {flip.after} instead of {flip.before} "
            f"({flip.normalisation}); the margin was {flip.margin:.1e} nats: {why}."
        )
    if len(found) > _SHOWN:
        yield f"and {len(found) - _SHOWN} further flipped choices (--json lists all)"


def _name(each: Pass) -> str:
    return f"{each.engine}, {how_many(each.batch_size)}".removeprefix(", ")
