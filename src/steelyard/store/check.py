"""What is a store, and which of its files is broken: the checks behind the error messages."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.core.errors import StoreError
from steelyard.store.parts import is_temporary
from steelyard.store.schema import SCHEMA_VERSION, Table, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

MARKER = "steelyard.json"
"""The file that makes a folder a store."""

_MENDED_BY = {
    "responses": "its requests are asked again",
    "batches": "the work it counted stays uncounted",
    "scores": "'steelyard score' judges its cells again",
}


def store_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a store. Raises StoreError when its name is no text (DuckDB takes UTF-8 only)."""
    absolute = Path(path).absolute()
    try:
        str(absolute).encode()
    except UnicodeEncodeError as error:
        raise StoreError(
            f"The path {str(absolute)!a} of the store is no UTF-8 text. Name a folder that is."
        ) from error
    return absolute


def read_marker(path: Path) -> bool:
    """Whether the folder is a store that this version can read; False when it is empty or not there.

    Raises:
        StoreError: it is something else, it is broken, or its schema is newer.
    """
    marker = path / MARKER
    try:
        if not path.exists():
            return False
        if not path.is_dir():
            raise StoreError(f"A store is a folder, but {path} is a file. Name another place.")
        if not marker.exists():
            foreign = sorted(entry.name for entry in path.iterdir() if not is_temporary(entry.name))
            if foreign:
                raise StoreError(
                    f"The folder {path} is no store: it has no {MARKER}, but other files ({foreign[0]!r}, ...). "
                    "Name a new folder, an empty one, or an existing store."
                )
            return False
        text = marker.read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(f"The store {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise _broken_marker(marker, "no UTF-8 text") from error
    try:
        content = json.loads(text)
    except ValueError as error:
        raise _broken_marker(marker, str(error)) from error
    version = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _broken_marker(marker, f"its 'schema' is {version!r}")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"The store {path} has schema {version}, written by a newer steelyard; this one reads schemas up to "
            f"{SCHEMA_VERSION}. Nothing was changed. Upgrade with: pip install -U steelyard"
        )
    return True


def _broken_marker(marker: Path, why: str) -> StoreError:
    return StoreError(
        f"The file {marker} should say {{'schema': {SCHEMA_VERSION}, ...}}, but cannot be understood: {why}. "
        "The tables beside it are not touched by this: put that text into the file, or name another store."
    )


def column_names(spec: Table, part: Path) -> list[str]:
    """The names of a part's columns, from its footer; columns that came late may be missing.

    Raises:
        FileNotFoundError: it is gone.
        StoreError: it cannot be read, or a column of the table is missing or has another type. DuckDB would
            convert a wrong type without a word.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # an own handle: pyarrow would read some characters of a path as a URI or a pattern
        with part.open("rb") as file:
            found = pq.read_schema(file)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise unreadable(spec, part, str(error)) from error
    late = {column.name for column in spec.columns if column.late}
    wrong = [
        f.name
        for f in arrow_schema(spec)
        if (not _alike(found, f) if f.name in found.names else f.name not in late)
    ]
    if wrong:
        raise unreadable(spec, part, f"the columns {', '.join(wrong)} are missing or have another type")
    return list(found.names)


def check_part(spec: Table, part: Path) -> None:
    """Read a part whole, with its checksums.

    Raises:
        FileNotFoundError: it is gone.
        StoreError: it cannot be read or has other columns; the message names the file and the way on.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    column_names(spec, part)
    try:
        with part.open("rb") as file, pq.ParquetFile(file, page_checksum_verification=True) as parquet:
            for _ in parquet.iter_batches(batch_size=2**14):
                pass
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise unreadable(spec, part, str(error)) from error


def check_parts(spec: Table, parts: Iterable[Path]) -> None:
    """Check every part of a table; see `check_part`. A part that went meanwhile (merged) is passed over."""
    for part in parts:
        with contextlib.suppress(FileNotFoundError):
            check_part(spec, part)


def unreadable(spec: Table, part: Path, why: str) -> StoreError:
    """The error for a part that cannot be read."""
    mended = _MENDED_BY.get(spec.name, "its rows are written again")
    return StoreError(
        f"The part {part} of the table {spec.name} cannot be read: {why.rstrip('.')}. All other parts are "
        f"untouched. Move this file out of the store and run the same command again: {mended}."
    )


def _alike(found: pa.Schema, wanted: pa.Field) -> bool:
    # other writers name the type of the same Parquet column "large_string" or call list elements "item"
    spelled = str(found.field(wanted.name).type)
    for theirs, ours in (("large_", ""), ("string_view", "string"), ("item:", "element:")):
        spelled = spelled.replace(theirs, ours)
    return spelled == str(wanted.type)
