"""Loading a benchmark: from the package, a local folder or the hub, always through the same adapter."""

from __future__ import annotations

import os
from pathlib import Path

from steelyard.benchmarks import catalog
from steelyard.benchmarks.assemble import Source, assemble, package
from steelyard.benchmarks.base import Loaded
from steelyard.benchmarks.hub import open_hub
from steelyard.benchmarks.local import open_local
from steelyard.core.errors import InputError


def load(
    name: str,
    *,
    data: Path | None = None,
    seed: int = 0,
    revision: str | None = None,
    cache: Path | None = None,
) -> Loaded:
    """A benchmark with its items, shots and provenance.

    Args:
        name: in the catalog, or the path of a TOML file (see `custom`).
        data: folder with one folder per benchmark, or the folder or file of this one; None: the environment
            variable STEELYARD_DATA, and where that is not set, the hub. Packaged benchmarks ignore both.
        seed: of the study; draws the pool that is set aside where there is no split for shots.
        revision: branch, tag or commit on the hub; None: the pinned commit, or the newest which is then pinned.
        cache: folder of the pins; None: see `core.cache.cache_root`.

    Raises:
        UnknownNameError: no such benchmark.
        DataError: the data are not there or do not fit; says what was expected where.
        MissingError: the hub cannot be reached.
        InputError: a revision is given with local data.
    """
    if catalog.is_own(name):
        from steelyard.benchmarks.custom import load_custom

        return load_custom(Path(name), seed=seed)
    benchmark = catalog.get(name)
    if catalog.is_packaged(name):
        return _packaged(name, seed=seed)
    set_by_user = os.environ.get("STEELYARD_DATA")
    folder = data or (Path(set_by_user) if set_by_user else None)
    if folder is None:
        return assemble(benchmark, open_hub(benchmark, revision=revision, cache=cache), seed=seed)
    if revision:
        raise InputError(
            f"A revision ({revision!r}) names a commit on the hub, but {name} is read from {str(folder)!r}. "
            "Leave out the revision, or --data and STEELYARD_DATA."
        )
    return assemble(benchmark, open_local(benchmark, folder), seed=seed)


def _packaged(name: str, *, seed: int) -> Loaded:
    if name == "simulated":
        from steelyard.benchmarks.simulated import load_simulated

        # the study's seed does not enter: the same items for every study, like any other benchmark
        return load_simulated()
    from steelyard.benchmarks.mini import load_part

    items, shots = load_part(name)
    source = Source(kind="package", location=name, split="test", rows=(), shot_split="shots")
    return package(catalog.get(name), items, shots, source, seed=seed)
