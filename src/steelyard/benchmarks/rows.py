"""Rows from a file: JSON Lines, a JSON array or Parquet, plain or gzipped. The file is hostile: it is only data."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from steelyard.benchmarks.base import Record
from steelyard.benchmarks.fields import show
from steelyard.core.errors import DataError, MissingError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")
"""What can be read, the longest match of a file's name counts."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file.

    Attributes:
        file: the file's name, as messages and provenance show it.
        line: its line from 1 in a text file, None elsewhere.
        record: the row, or None where it cannot be read as an object.
        fault: why it cannot, else "".
    """

    file: str
    line: int | None
    record: Record | None
    fault: str = ""


def suffix(name: str) -> str:
    """The readable suffix of a file name, "" when it has none."""
    return next((s for s in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(s)), "")


def read_rows(path: Path, name: str) -> list[Row]:
    """Every row of a file, in order; blank lines are no rows.

    A line that is not a JSON object becomes a row with a fault, so that all faults of a file can be told at once.

    Args:
        path: of the file.
        name: how to call it in messages (relative to the data folder: no machine paths).

    Raises:
        DataError: the file as a whole cannot be read.
    """
    kind = suffix(path.name)
    if not kind:
        raise DataError(f"{name} cannot be read: its name ends in none of {', '.join(SUFFIXES)}.")
    try:
        rows = _parquet(path, name) if kind == ".parquet" else list(_text(_bytes(path), name, kind))
    except FileNotFoundError:
        raise DataError(f"There is no file {name}.") from None
    except (OSError, EOFError, zlib.error) as error:
        # gzip reports a cut file as EOFError and a wrong one as BadGzipFile (an OSError) or zlib.error
        raise DataError(
            f"{name} cannot be read: {error}. It may be cut short or not be {kind}; fetch it again."
        ) from None
    if not rows:
        raise DataError(f"{name} has no rows. Expected one JSON object a line, or a table with rows.")
    return rows


def _bytes(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.name.endswith(".gz") else raw


def _text(raw: bytes, name: str, kind: str) -> Iterator[Row]:
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if kind.startswith(".json") and not kind.startswith(".jsonl") and raw.lstrip()[:1] == b"[":
        yield from _array(raw, name)
        return
    # only "\n" ends a line: str.splitlines would also cut at U+2028 and others that stand inside strings
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if line.strip():
            record, fault = _object(line)
            yield Row(name, number, record, fault)


def _array(raw: bytes, name: str) -> Iterator[Row]:
    value, fault = _parse(raw)
    if fault:
        raise DataError(f"{name} is not a JSON array: {fault}.")
    for entry in value:
        yield (
            Row(name, None, entry, "")
            if isinstance(entry, dict)
            else Row(name, None, None, _not_object(entry))
        )


def _object(line: bytes) -> tuple[Record | None, str]:
    value, fault = _parse(line)
    if fault:
        return None, fault
    return (value, "") if isinstance(value, dict) else (None, _not_object(value))


def _not_object(value: object) -> str:
    return f"expected a JSON object of fields and values; got {show(value)}"


def _parse(raw: bytes) -> tuple[Any, str]:
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_constant), ""
    except UnicodeDecodeError as error:
        return None, f"expected UTF-8; got the byte 0x{raw[error.start]:02x} at position {error.start}"
    except json.JSONDecodeError as error:
        return None, f"expected JSON; {error.msg} at character {error.pos + 1}"
    except (ValueError, RecursionError) as error:
        return None, f"expected plain JSON; {error}"


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):  # Python would keep the last and drop the others without a word
        names = [k for k, _ in pairs]
        raise ValueError(
            f"the field {next(k for k in names if names.count(k) > 1)!r} occurs twice in one object"
        )
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _parquet(path: Path, name: str) -> list[Row]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:  # pragma: no cover - a declared dependency
        raise MissingError(
            f"{name} needs pyarrow, which is not installed. Install it with: pip install pyarrow"
        ) from None
    if not path.is_file():
        raise FileNotFoundError(name)
    try:
        # ParquetFile, not read_table: the latter guesses partition columns from the names of folders
        with pq.ParquetFile(path) as file:
            return [Row(name, None, record) for record in file.read().to_pylist()]
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{name} cannot be read as Parquet: {error}. Fetch it again.") from None
