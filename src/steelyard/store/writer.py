"""Writing a store: parts are appended and never changed; what a view already shows is not written again."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from steelyard.core.errors import StoreError
from steelyard.core.types import Ask, Batch, Item, Score, Status
from steelyard.store import rows
from steelyard.store.check import MARKER, read_marker, store_path
from steelyard.store.codec import Row, encode
from steelyard.store.compaction import merge_small_parts
from steelyard.store.escape import escape
from steelyard.store.parts import list_parts, new_name, remove_leftovers, sync_folder, write_atomic
from steelyard.store.reader import open_read
from steelyard.store.schema import PARQUET, SCHEMA_VERSION, TABLES, Table
from steelyard.store.schema import table as table_named

if TYPE_CHECKING:
    import pyarrow as pa

_JUDGED = (Status.OK, Status.UNPARSED, Status.CUT)


def open_store(path: str | os.PathLike[str], *, create: bool = True) -> Writer:
    """Open a store for writing.

    Several writers may have one store open, in one process or in many.

    Args:
        path: its folder.
        create: make the store when the folder is empty or not there.

    Raises:
        StoreError: the folder is something else, its schema is newer, it cannot be written to, or there is
            no store and `create` is False.
    """
    folder = store_path(path)
    if not read_marker(folder):
        if not create:
            raise StoreError(
                f"There is no store at {folder} (no {MARKER}). A run makes one: "
                f"steelyard run --model MODEL --tasks TASKS --store {folder}"
            )
        marker = {"schema": SCHEMA_VERSION, "created": datetime.now(UTC).isoformat(timespec="seconds")}
        with _explained(folder, "making the store", lambda: "Nothing was asked yet."):
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)
            write_atomic(folder / MARKER, lambda file: file.write(json.dumps(marker).encode()))
    for place in (folder, *(folder / name for name in TABLES)):
        with _explained(folder, "opening the store", lambda: "Nothing was changed."):
            remove_leftovers(place)
    return Writer(folder)


class Writer:
    """Appends to one store. Every method that writes returns after its rows are on the disk for good.

    Its methods may be called from several threads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held open between writes; this is for symmetry with the reader."""

    def append(self, table: str, new: Sequence[Row]) -> Path | None:
        """Write rows as one part, whatever the table already holds.

        Args:
            table: its name.
            new: rows with every column of the table; JSON columns as plain data.

        Returns:
            The part, or None when there are no rows.

        Raises:
            UnknownNameError: there is no such table.
            StoreError: a row does not fit, or the disk refuses; nothing of `new` is written then.
        """
        spec = table_named(table)
        return self._write(spec, encode(spec, new))

    def append_batch(self, run_id: str, batch: Batch) -> str:
        """Write what one step of an engine brought: its responses, then its work.

        A crash between the two loses the count of the work, never an answer.

        Returns:
            The id given to the batch.

        Raises:
            StoreError: a value does not fit, or the disk refuses.
        """
        batch_id = secrets.token_hex(8)
        responses = [rows.response_row(response, run_id, batch_id) for response in batch.responses]
        work = encode(TABLES["batches"], [rows.batch_row(batch, run_id, batch_id)])
        self.append("responses", responses)
        self._write(TABLES["batches"], work)
        return batch_id

    def add_items(self, items: Iterable[Item]) -> int:
        """Write the items that are not there yet; how many were written. Raises StoreError."""
        return self._add("items", [rows.item_row(item) for item in items])

    def add_forms(self, forms: Iterable[rows.FormRow]) -> int:
        """Write the forms that are not there yet; how many were written. Raises StoreError."""
        return self._add("forms", [rows.plain_row(form) for form in forms])

    def add_run(self, run: rows.RunRow) -> int:
        """Write the run unless it is there; 1 when it was written. Raises StoreError."""
        return self._add("runs", [rows.plain_row(run)])

    def add_source(self, source: rows.SourceRow) -> int:
        """Write the source unless the same is there; 1 when it was written. Raises StoreError.

        Another selection from the same content replaces the earlier one.
        """
        return self._add("sources", [rows.plain_row(source)])

    def add_asks(self, asks: Iterable[Ask]) -> int:
        """Write the asks that are not there yet; how many were written.

        An ask without a request (it did not fit the context) gives way to one with a request.

        Raises:
            StoreError: a cell asks something else than it did before, so that its old answers would be taken
                for answers to the new question; or the disk refuses.
        """
        return self._add("asks", [rows.plain_row(ask) for ask in asks])

    def add_scores(self, scores: Iterable[Score]) -> int:
        """Write the scores that differ from what is there; they replace it. How many were written.

        Raises:
            StoreError: a score has a value that its status does not allow, or the disk refuses.
        """
        judged = []
        for score in scores:
            if score.value is not None and (score.status not in _JUDGED or math.isnan(score.value)):
                raise StoreError(
                    f"The score {score.scorer!r} of cell {score.cell_id} (item {score.item_id!r}) has the value "
                    f"{score.value} with the status {score.status.value!r}. A value must be a number, and only "
                    f"{', '.join(s.value for s in _JUDGED)} have one; what is missing is null with a status."
                )
            judged.append(rows.plain_row(score))
        return self._add("scores", judged)

    def compact(self) -> int:
        """Merge the small parts of every table that has many; how many parts fewer there are.

        To be called when a run ends. Killed at any instant, it changes nothing that a view shows.

        Raises:
            StoreError: a part cannot be read, or the disk refuses; nothing is lost.
        """
        fewer = 0
        for spec in TABLES.values():
            with self._lock, self._safe(f"merging the parts of the table {spec.name}"):
                fewer += merge_small_parts(spec, self.path / spec.name)
        return fewer

    # ---------------------------------------------------------------------------------------------- plumbing
    def _add(self, name: str, new: Sequence[Row]) -> int:
        import pyarrow as pa

        spec = table_named(name)
        data = encode(spec, new)
        if not data.num_rows:
            return 0
        # another thread must not add the same rows between the look and the write; another process may,
        # and the views settle it
        with self._lock, open_read(self.path, [name]) as store:
            if name == "asks" and (cells := store.clashing_cells(data)):
                raise _clash(self.path, cells, new)
            positions = store.unseen(name, data)
            self._write_locked(spec, data.take(pa.array(positions, type=pa.int64())))
        return len(positions)

    def _write(self, spec: Table, data: pa.Table) -> Path | None:
        with self._lock:
            return self._write_locked(spec, data)

    def _write_locked(self, spec: Table, data: pa.Table) -> Path | None:
        import pyarrow.parquet as pq

        if not data.num_rows:
            return None
        folder = self.path / spec.name
        part = folder / new_name(list_parts(folder))
        with self._safe(f"writing to the table {spec.name}"):
            write_atomic(part, lambda file: pq.write_table(data, file, **PARQUET))
        return part

    def _safe(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return _explained(self.path, doing, lambda: f"{_count_answers(self.path)} on disk and safe.")


def _clash(path: Path, cells: Sequence[str], new: Sequence[Row]) -> StoreError:
    first = next(row for row in new if escape(row["cell_id"]) == cells[0])
    return StoreError(
        f"{len(cells)} cells ask something else than the store {path} has for them, the first is item "
        f"{first['item_id']!r} in form {first['form_id']}. The text of the item, of its options or of its shots "
        "has changed since; the stored answers are to the old text. Use a new store for the new text, or the old "
        "data with this one."
    )


def _count_answers(path: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 0
    try:
        for part in list_parts(path / "responses"):
            with part.open("rb") as file:
                count += pq.read_metadata(file).num_rows
    except (OSError, pa.ArrowException, StoreError):
        # only for the message of another error: do not replace it
        return "All answers written before are"
    return "1 answer is" if count == 1 else f"{count} answers are"


@contextlib.contextmanager
def _explained(path: Path, doing: str, safe: Callable[[], str]) -> Iterator[None]:
    """Turn what the disk says into a StoreError that says what is safe and what to do."""
    try:
        yield
    except OSError as error:
        again = "run the same command again: it asks only what is missing."
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what, way = "the disk (or your quota on it) is full", f"Free some space and {again}"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            what, way = "it may not be written to", f"Make it writable, or name another store, and {again}"
        else:
            what, way = (error.strerror or str(error)), f"When the disk works, {again}"
        raise StoreError(f"The store {path} failed while {doing}: {what}. {safe()} {way}") from error
