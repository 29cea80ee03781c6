"""Rows of a benchmark from the Hugging Face hub: one commit, resolved once, pinned from then on. No remote code.

A name on the hub moves; a pinned commit does not. Pins are in ``pins.json`` in the cache folder, as
``{"openai/gsm8k": {"main": "<commit>"}}``. To move to newer data, remove the entry.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard, overload

from steelyard.benchmarks.assemble import Source, choose_splits
from steelyard.benchmarks.base import Benchmark
from steelyard.benchmarks.rows import Row
from steelyard.core.cache import cache_root, write_json
from steelyard.core.errors import DataError, InputError, MissingError

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PINS = "pins.json"


def open_hub(benchmark: Benchmark, *, revision: str | None, cache: Path | None) -> Source:
    """The benchmark's rows on the hub, at its pinned commit.

    Args:
        benchmark: with `hub` and `config`.
        revision: a branch, tag or commit; None for the main branch. Each is pinned for itself.
        cache: folder of the pins; None for `core.cache.cache_root`.

    Raises:
        MissingError: it cannot be reached and is not there already; says what to do instead.
        DataError: it has no split that can be evaluated.
    """
    try:
        import datasets
        import huggingface_hub
    except ImportError as error:
        raise MissingError(
            f"{benchmark.name} comes from the Hugging Face hub, which needs the package {error.name!r}. "
            f"Install it with: pip install 'steelyard[hub]'\n{_instead(benchmark)}"
        ) from None

    def resolve() -> str:
        try:
            commit = huggingface_hub.dataset_info(benchmark.hub, revision=revision).sha
        except Exception as error:  # each version and transport has errors of its own
            raise MissingError(
                f"{benchmark.name} ({benchmark.hub}) could not be found on the Hugging Face hub, and no commit of it "
                f"is pinned here: {type(error).__name__}: {error}\n{_instead(benchmark)}"
            ) from error
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise MissingError(
                f"The hub named no commit for {benchmark.hub} (got {commit!r}). {_instead(benchmark)}"
            )
        return commit

    # a full commit never moves: nothing to look up, nothing to pin
    commit = (
        revision
        if revision and _COMMIT.fullmatch(revision)
        else pinned(cache_root(cache), benchmark.hub, revision or "main", resolve)
    )
    return _fetch(benchmark, commit, datasets.load_dataset)


def _fetch(benchmark: Benchmark, commit: str, load_dataset: Callable[..., Any]) -> Source:
    options: dict[str, Any] = {"revision": commit}
    # versions before 4 run a repository's own script unless told not to; later ones have dropped the option
    if "trust_remote_code" in inspect.signature(load_dataset).parameters:
        options["trust_remote_code"] = False
    try:
        tables = load_dataset(benchmark.hub, benchmark.config or None, **options)
    except Exception as error:  # each version and transport has errors of its own
        raise MissingError(
            f"{benchmark.name} ({benchmark.hub} at {commit[:12]}) could not be fetched and is not in the local "
            f"Hugging Face cache: {type(error).__name__}: {error}\n{_instead(benchmark)}"
        ) from error
    split, shot_split = choose_splits(benchmark, tables)
    if not split:
        raise DataError(
            f"{benchmark.hub} at {commit[:12]} has the splits {', '.join(tables)}; expected one of "
            f"{', '.join(benchmark.split)}. The data set has changed: give another commit with --revision."
        )
    for name in filter(None, (split, shot_split)):
        _check_commit(benchmark, tables[name], commit)
    return Source(
        kind="hub",
        location=f"{benchmark.hub} ({benchmark.config})" if benchmark.config else benchmark.hub,
        revision=commit,
        split=split,
        rows=_Rows(tables[split], f"{benchmark.hub}/{split}"),
        shot_split=shot_split,
        shot_rows=_Rows(tables[shot_split], f"{benchmark.hub}/{shot_split}") if shot_split else (),
    )


class _Rows(Sequence[Row]):
    """Rows of a table, read when they are asked for: of a long train split only some are."""

    def __init__(self, table: Any, name: str) -> None:  # noqa: ANN401 - a datasets.Dataset, whose package is optional
        self._table, self._name = table, name

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        if isinstance(at, slice):
            return [self[n] for n in range(*at.indices(len(self)))]
        return Row(self._name, None, self._table[at])

    def __iter__(self) -> Iterator[Row]:
        for record in self._table:  # reads whole blocks, unlike one index after the other
            yield Row(self._name, None, record)


def _check_commit(benchmark: Benchmark, table: Any, commit: str) -> None:  # noqa: ANN401 - as above
    # offline, `datasets` falls back to the newest copy in its cache and does not look at the commit asked for
    # (CachedDatasetModuleFactory). The files' addresses and paths tell which commit it really is.
    found = {
        c for place in _places(table) for c in re.findall(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])", place)
    }
    if found and commit not in found:
        raise MissingError(
            f"{benchmark.name} is pinned to {benchmark.hub} at {commit[:12]}, but the local Hugging Face cache holds "
            f"{', '.join(sorted(c[:12] for c in found))} and the hub cannot be reached. Run once with network, or give "
            f"one of these commits with --revision."
        )


def _places(table: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    yield from getattr(getattr(table, "info", None), "download_checksums", None) or {}
    for file in getattr(table, "cache_files", None) or ():
        yield str(file.get("filename", ""))


def pinned(cache: Path, hub: str, revision: str, resolve: Callable[[], str]) -> str:
    """The commit that a data set is pinned to; resolved and recorded the first time.

    Raises:
        InputError: the pin file cannot be read or written.
    """
    path = cache / _PINS
    if commit := _read(path).get(hub, {}).get(revision):
        return commit
    commit = resolve()
    pins = {name: dict(commits) for name, commits in _read(path).items()}
    # read again: another process may have pinned it meanwhile, and then its commit counts for both
    commit = pins.setdefault(hub, {}).setdefault(revision, commit)
    try:
        write_json(path, pins)
    except OSError as error:
        raise InputError(
            f"The commit of {hub} cannot be recorded in {str(path)!r}: {error}. Expected a folder that can be written; "
            "set STEELYARD_CACHE to one."
        ) from error
    return commit


def _read(path: Path) -> Mapping[str, Mapping[str, str]]:
    try:
        pins: Any = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}. {_unpin(path)}") from error
    if not _is_pins(pins):
        raise InputError(
            f"{str(path)!r} is not a pin file: expected data set -> revision -> commit of 40 hexadecimal digits. "
            f"{_unpin(path)}"
        )
    return pins


def _is_pins(value: object) -> TypeGuard[Mapping[str, Mapping[str, str]]]:
    return isinstance(value, dict) and all(
        isinstance(commits, dict)
        and all(isinstance(c, str) and _COMMIT.fullmatch(c) for c in commits.values())
        for commits in value.values()
    )


def _unpin(path: Path) -> str:
    return f"Correct it, or remove {path.name}: every data set is then resolved anew, and may have changed."


def _instead(benchmark: Benchmark) -> str:
    folders = ", ".join(dict.fromkeys((*benchmark.folders, benchmark.name)))
    return (
        "Without the hub: give a folder with the data, --data DIR or STEELYARD_DATA=DIR. There, the folder "
        f"{folders} is looked for, with {' or '.join(f'{s}.jsonl' for s in benchmark.split)} (or .jsonl.gz, .parquet)."
    )
