"""Merging small parts (rule 5 of docs/schema.md), safe against a kill at any instant."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from steelyard.store.check import column_names, unreadable
from steelyard.store.parts import list_parts, merged_name, sync_folder, write_atomic
from steelyard.store.schema import PARQUET, Table, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

MANY_PARTS = 32
"""A table is merged only when it has more parts."""
SMALL_BYTES = 2**26
"""Larger parts are left alone, so that a long study is not copied whole at the end of every run."""
_GROUP_ROWS = 2**16
_GROUP_BYTES = 2**26


def merge_small_parts(spec: Table, folder: Path) -> int:
    """Merge neighbouring small parts of a table when it has many; how many parts fewer there are.

    Every row is kept, in order, duplicates included: the rules that settle them are the views' alone.

    Raises:
        OSError: the disk refuses.
        StoreError: a part cannot be read.
    """
    parts = list_parts(folder)
    if len(parts) <= MANY_PARTS:
        return 0
    fewer = 0
    # a part that is gone was merged by another process, which thereby does what is to be done here
    with contextlib.suppress(FileNotFoundError):
        sized = [(part, _is_small(spec, part)) for part in parts]
        for small, group in itertools.groupby(sized, key=lambda entry: entry[1]):
            run = [part for part, _ in group]
            if small and len(run) > 1:
                fewer += _merge(spec, folder, run)
    return fewer


def _is_small(spec: Table, part: Path) -> bool:
    if merged_name(part) is None or part.stat().st_size >= SMALL_BYTES:
        return False
    # a part with a column of its own stays as it is: merging would drop the column
    return set(column_names(spec, part)) <= set(spec.names)


def _merge(spec: Table, folder: Path, run: Sequence[Path]) -> int:
    name = merged_name(run[0])
    assert name is not None, "only parts with a writer's name are merged"  # noqa: S101 - our own mistake
    target = folder / name
    write_atomic(target, lambda file: _copy(spec, run, file))
    # Oldest first: a kill in between leaves the merged part, in the place of the first, and then the newest
    # ones. So the last row of a key is still its last, which it would not be with an older part left over.
    for part in run:
        with contextlib.suppress(FileNotFoundError):  # another process may be merging too
            part.unlink()
    sync_folder(folder)
    return len(run) - 1


def _copy(spec: Table, run: Sequence[Path], file: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(spec)
    with pq.ParquetWriter(file, schema, **PARQUET) as writer:
        # Gathered into large row groups: one per little part would make reading slow, which merging is against.
        waiting: list[pa.RecordBatch] = []
        count = size = 0
        for batch in _batches(spec, run):
            waiting.append(batch)
            count += batch.num_rows
            size += batch.nbytes
            if count >= _GROUP_ROWS or size >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting, count, size = [], 0, 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))


def _batches(spec: Table, run: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(spec)
    for part in run:
        try:
            with (
                part.open("rb") as source,
                pq.ParquetFile(source, page_checksum_verification=True) as parquet,
            ):
                for batch in parquet.iter_batches(batch_size=_GROUP_ROWS):
                    data = pa.Table.from_batches([batch])
                    for column in spec.columns:
                        if column.late and column.name not in data.column_names:
                            kind = schema.field(column.name).type
                            data = data.append_column(column.name, pa.nulls(data.num_rows, kind))
                    yield from data.select(schema.names).cast(schema).to_batches()
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise unreadable(spec, part, str(error)) from error
