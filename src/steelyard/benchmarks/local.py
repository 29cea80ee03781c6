"""Rows of a benchmark from a folder or a file, in the schema of the hub."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from steelyard.benchmarks import catalog
from steelyard.benchmarks.assemble import Source, choose_splits
from steelyard.benchmarks.base import Benchmark
from steelyard.benchmarks.rows import SUFFIXES, Row, read_rows, suffix
from steelyard.core.errors import DataError

# "test.jsonl", "test-00000-of-00002.parquet", and the same with the hash that older hub files carry
_NAME = re.compile(
    r"(?P<split>[A-Za-z0-9_]+)(-(?P<part>[0-9]{5})-of-(?P<parts>[0-9]{5})(-[0-9a-f]{8,})?)?"
    rf"(?P<suffix>{'|'.join(re.escape(s) for s in SUFFIXES)})"
)


def open_local(benchmark: Benchmark, data: Path) -> Source:
    """The benchmark's rows under a path.

    Args:
        benchmark: what is looked for.
        data: a folder that holds one folder per benchmark, or the folder or the file of this one.

    Raises:
        DataError: it is not there; the message lists what was looked for and what there is.
    """
    if data.is_file():
        _refuse_foreign(benchmark, data.parent, data)
        name = _NAME.fullmatch(data.name)
        split = name["split"] if name else data.name.removesuffix(suffix(data.name))
        return Source(kind="local", location=data.name, split=split, rows=read_rows(data, data.name))
    if not data.is_dir():
        raise DataError(
            f"The data path {str(data)!r} does not exist. Expected a folder with one folder per benchmark "
            f"({', '.join(_folders(benchmark))} for {benchmark.name}), or a file of it. Correct --data or "
            "STEELYARD_DATA."
        )
    for folder in _candidates(benchmark, data):
        there = splits(folder)
        split, shot_split = choose_splits(benchmark, there)
        if split:
            files = [*there[split], *there.get(shot_split, [])]
            return Source(
                kind="local",
                location=", ".join(_relative(f, data) for f in files),
                split=split,
                rows=_read(there[split], data),
                shot_split=shot_split,
                shot_rows=_read(there[shot_split], data) if shot_split else (),
            )
    _refuse_foreign(benchmark, data, data)
    raise _nothing_there(benchmark, data)


def splits(folder: Path) -> Mapping[str, Sequence[Path]]:
    """The splits that a folder holds, each with its files in order.

    Raises:
        DataError: two files claim one split, or a part of a split in parts is not there.
    """
    found: dict[str, list[tuple[re.Match[str], Path]]] = {}
    if not folder.is_dir():
        return {}
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match and path.is_file():
            found.setdefault(match["split"], []).append((match, path))
    return {split: _whole(split, matches, folder) for split, matches in found.items()}


def _whole(split: str, matches: list[tuple[re.Match[str], Path]], folder: Path) -> list[Path]:
    names = ", ".join(path.name for _, path in matches)
    if len(matches) == 1 and matches[0][0]["part"] is None:
        return [matches[0][1]]
    parts = [(int(m["part"]), int(m["parts"]), m["suffix"]) if m["part"] else None for m, _ in matches]
    total = next((p[1] for p in parts if p), 0)
    whole = [(n, total, p[2]) for n in range(total) if (p := parts[0])]
    if parts != whole:
        raise DataError(
            f"The split {split!r} in the folder {folder.name!r} is not clear: it has {names}. Expected one file, or "
            "every part of one split (00000-of-00002, 00001-of-00002). Remove the others or fetch the rest."
        )
    return [path for _, path in matches]


def _folders(benchmark: Benchmark) -> list[str]:
    return list(dict.fromkeys((*benchmark.folders, benchmark.name)))


def _candidates(benchmark: Benchmark, data: Path) -> list[Path]:
    bases = [data / name for name in _folders(benchmark)]
    if not _foreign(benchmark, data):
        bases.append(data)
    inner = [
        p
        for p in (benchmark.config, f"data/{benchmark.config}" if benchmark.config else "", ".", "data")
        if p
    ]
    return [base / name for base in bases for name in inner]


def _foreign(benchmark: Benchmark, folder: Path) -> str:
    """The name of another benchmark whose folder this is, by its name; "" if it may be this benchmark's."""
    owners = [b.name for b in catalog.local() if folder.name in {Path(f).name for f in _folders(b)}]
    return "" if not owners or benchmark.name in owners else owners[0]


def _refuse_foreign(benchmark: Benchmark, folder: Path, data: Path) -> None:
    # ARC-Easy and ARC-Challenge have one schema: read from the other's folder they would load without a word
    other = _foreign(benchmark, folder)
    if other:
        raise DataError(
            f"The data path {str(data)!r} holds {other}, not {benchmark.name}. Give the folder above it, which holds "
            "a folder for each benchmark."
        )


def _read(files: Sequence[Path], data: Path) -> list[Row]:
    return [row for file in files for row in read_rows(file, _relative(file, data))]


def _relative(file: Path, data: Path) -> str:
    return file.relative_to(data).as_posix()


def _nothing_there(benchmark: Benchmark, data: Path) -> DataError:
    inside = sorted(p.name + ("/" if p.is_dir() else "") for p in data.iterdir())
    files = [
        f"{folder}/{p.name}"
        for folder in _folders(benchmark)
        if (data / folder).is_dir()
        for p in sorted((data / folder).iterdir())
    ]
    shown = ", ".join((files or inside)[:40]) or "nothing"
    more = f" and {len(files or inside) - 40} more" if len(files or inside) > 40 else ""
    return DataError(
        f"{benchmark.name} is not in the data folder {str(data)!r}. Looked for the folders "
        f"{', '.join(_folders(benchmark))} with a file {' or '.join(f'{s}.jsonl' for s in benchmark.split)} "
        f"(also {', '.join(s for s in SUFFIXES if s != '.jsonl')}, or the hub's SPLIT-00000-of-0000N files). "
        f"There is: {shown}{more}. Put the data there, or leave --data and STEELYARD_DATA out to use the hub."
    )
