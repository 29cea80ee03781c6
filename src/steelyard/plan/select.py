"""Which items of a benchmark are evaluated: all, a seeded nested subset, or the ones named."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from steelyard.benchmarks.base import Loaded
from steelyard.core.errors import InputError
from steelyard.core.rng import keys, ranked
from steelyard.core.types import Item


@dataclass(frozen=True, slots=True)
class Selection:
    """The items to evaluate, in source order (or as named), and a sentence that says how they were chosen."""

    items: tuple[Item, ...]
    sentence: str


def select(loaded: Loaded, *, shots: int, limit: int | None, ids: tuple[str, ...], seed: int) -> Selection:
    """Choose the items.

    A limit takes the first items of a random order that is fixed by (seed, benchmark): a larger limit
    contains the smaller one. Items set aside as shots are not evaluated with shots.

    Raises:
        InputError: a named item is set aside as a shot, or nothing is left.
    """
    name = loaded.benchmark.name
    aside = _set_aside(loaded) if shots else frozenset()
    if ids:
        return _named(loaded, ids, aside)
    pool = [i for i in loaded.items if i.item_id not in aside]
    if not pool:
        raise InputError(
            f"{name} has {len(loaded.items)} items and all of them are set aside as shots (--shots 0)."
        )
    held = f"; {len(aside)} set aside as shots, never evaluated with shots" if aside else ""
    if limit is None or limit >= len(pool):
        return Selection(tuple(pool), f"all {len(pool)}{held}")
    order = ranked(seed, "subset", name, ids=keys(i.item_id for i in pool))
    chosen = sorted(position for position, _ in zip(order, range(limit), strict=False))
    return Selection(
        tuple(pool[p] for p in chosen), f"seeded random {limit} of {len(pool)} (seed {seed}, nested){held}"
    )


def _set_aside(loaded: Loaded) -> frozenset[str]:
    if loaded.provenance.shot_source != "pool":
        return frozenset()
    return frozenset(i.item_id for i in loaded.shots)


def _named(loaded: Loaded, ids: tuple[str, ...], aside: frozenset[str]) -> Selection:
    by_id = {i.item_id: i for i in loaded.items}
    here = [item_id for item_id in ids if item_id in by_id]
    for item_id in here:
        if item_id in aside:
            raise InputError(
                f"Item {item_id} of {loaded.benchmark.name} is set aside as a shot and is never evaluated with "
                "shots. Ask without shots (--shots 0), or with another seed."
            )
    return Selection(tuple(by_id[i] for i in here), f"{len(here)} named items")


def check_named(loaded: Iterable[Loaded], ids: tuple[str, ...]) -> None:
    """Every named item must exist in one of the benchmarks of a study. Raises InputError."""
    benchmarks = list(loaded)
    known = {i.item_id for b in benchmarks for i in b.items}
    for item_id in ids:
        if item_id not in known:
            near = difflib.get_close_matches(item_id, known, n=3, cutoff=0.5) or sorted(known)[:3]
            names = ", ".join(b.benchmark.name for b in benchmarks)
            comma = (
                " An id that holds a comma goes into a list: --items '[\"a,1\"]'." if "," in near[0] else ""
            )
            raise InputError(
                f"There is no item {item_id!r} in {names} ({len(known)} items). Near: {', '.join(near)}.{comma}"
            )
