"""A store, read: every table and the view `cells` through DuckDB, and the rows back as the core's types."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from steelyard.core.errors import InputError, StoreError
from steelyard.core.types import Ask, Item, Response, Score
from steelyard.store import rows, totals, views
from steelyard.store.check import MARKER, check_parts, column_names, read_marker, store_path
from steelyard.store.codec import decode
from steelyard.store.escape import escape, restore
from steelyard.store.parts import list_parts
from steelyard.store.schema import TABLES
from steelyard.store.schema import table as table_named

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_TRIES = 5  # a reader meets a merge of parts once in a while, never five times in a row


def open_read(path: str | os.PathLike[str], tables: Iterable[str] = tuple(TABLES)) -> Store:
    """Open a store for reading; it is not written to.

    Args:
        path: its folder.
        tables: those to look at; all of them unless only some are needed.

    Raises:
        StoreError: there is no store, it is newer than this version, or a part is broken.
    """
    return Store(store_path(path), tables)


class Store:
    """A reader of one store; it sees the parts that were there when it was opened or last refreshed.

    Not for several threads at once. Close it, or use it in a ``with`` statement.
    """

    def __init__(self, path: Path, tables: Iterable[str] = tuple(TABLES)) -> None:
        if not read_marker(path):
            raise StoreError(
                f"There is no store at {path} (no {MARKER}). A run makes one: "
                f"steelyard run --model MODEL --tasks TASKS --store {path}"
            )
        import duckdb

        self.path = path
        self._tables = [table_named(name) for name in tables]
        self._parts: dict[str, list[Path]] = {}
        self._columns: dict[Path, frozenset[str]] = {}  # of the parts that have been looked at
        self._con = duckdb.connect(
            ":memory:",
            config={
                # never load code from the network
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                # not ".tmp" in the folder that the user happens to be in
                "temp_directory": str(Path(tempfile.gettempdir()) / f"steelyard-duckdb-{os.getpid()}"),
            },
        )
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the connection."""
        self._con.close()

    def refresh(self) -> None:
        """See the parts that are there now. Raises StoreError when one cannot be read."""
        self._retried(self._bind)

    # ------------------------------------------------------------------------------------------- cells, SQL
    def cells(self) -> pa.Table:
        """Every judged cell x scorer, with the columns of docs/schema.md, in an order that nothing changes.

        The order is that of model, step, benchmark, form, item, sample and scorer: a seeded bootstrap over
        the rows gives the same numbers however the study was interrupted. Text is as stored (see `restore`).

        Raises:
            StoreError: a score names a run, form or item that the store does not have.
        """
        order = views.quoted(
            ("model", "step", "benchmark", "form_id", "item_id", "sample", "scorer", "run_id"), "c."
        )
        found = self._sql(f"SELECT * FROM _cells c ORDER BY {order}")  # noqa: S608 - names of ours
        orphans = found.column("orphan").drop_null().unique().to_pylist()
        if orphans:
            raise StoreError(
                f"Scores in {self.path} name {' and '.join(map(_one, sorted(orphans)))} that its tables do not have. "
                "A part was removed or an import is incomplete; run the same command again to write it anew."
            )
        return found.drop_columns(["orphan"])

    def query(self, sql: str, parameters: Sequence[object] = ()) -> pa.Table:
        """The rows of a SELECT over the views items, forms, runs, sources, asks, responses, batches, scores, cells.

        Args:
            sql: in DuckDB's dialect, with ``?`` for each of `parameters`. Text is as stored (see `restore`).
            parameters: bound, never pasted into the text.

        Raises:
            InputError: the query is wrong.
            StoreError: a part of the store cannot be read.
        """
        import duckdb

        try:
            return self._retried(lambda: self._rows(sql, parameters), asked_by_user=True)
        except duckdb.Error as error:
            raise InputError(f"The query cannot be answered: {error}") from error

    # -------------------------------------------------------------------------------------------- typed rows
    def items(self, benchmark: str | None = None) -> list[Item]:
        """Items in the order they were written; of one benchmark or of all. Changed content has rows of its own."""
        where, bound = ("", ()) if benchmark is None else ("WHERE t.benchmark = ?", (escape(benchmark),))
        return self._read("items", rows.item, where, bound)

    def forms(self) -> list[rows.FormRow]:
        """All forms in the order they were written."""
        return self._read("forms", rows.form)

    def runs(self) -> list[rows.RunRow]:
        """All runs in the order they were written."""
        return self._read("runs", rows.run)

    def sources(self) -> list[rows.SourceRow]:
        """Where the items of each run came from."""
        return self._read("sources", rows.source)

    def asks(self, run_id: str | None = None) -> list[Ask]:
        """What the cells ask, in the order written; of one run or of all."""
        return self._read("asks", rows.ask, *_of_run(run_id))

    def scores(self, run_id: str | None = None) -> list[Score]:
        """The judgements that count; of one run or of all."""
        return self._read("scores", rows.score, *_of_run(run_id))

    def responses(self, request_ids: Iterable[str] | None = None) -> dict[str, Response]:
        """Responses by request id, errors included; of these requests or of all.

        A request without a response is not in the result.
        """
        if request_ids is None:
            found = self._read("responses", rows.response)
        else:
            import pyarrow as pa

            wanted = pa.table({"id": pa.array([escape(i) for i in request_ids], type=pa.string())})
            with self._registered("_wanted", wanted):
                found = self._read(
                    "responses", rows.response, "WHERE t.request_id IN (SELECT id FROM _wanted)"
                )
        return {response.request_id: response for response in found}

    def answered(self, run_id: str | None = None) -> set[str]:
        """Request ids that have an answer; an error is none, it is asked again.

        Args:
            run_id: only requests that this run asks or was the first to ask. Runs with one engine share
                requests, so what is left to ask is decided by the answers of all runs (None).
        """
        sql = "SELECT request_id FROM responses WHERE finish <> 'error'"
        bound: tuple[str, ...] = ()
        if run_id is not None:
            sql += " AND (run_id = ? OR request_id IN (SELECT request_id FROM asks WHERE run_id = ?))"
            bound = (escape(run_id), escape(run_id))
        return {restore(value) for value in self._sql(sql, bound).column("request_id").to_pylist()}

    def work(self) -> dict[str, totals.Totals]:
        """What was computed, by run id: sums over its batches."""
        sums = ", ".join(f"{sql} AS {name}" for name, sql in zip(totals.NAMES, totals.SUMS, strict=True))
        found = self._sql(f"SELECT run_id, {sums} FROM batches GROUP BY run_id ORDER BY run_id")  # noqa: S608
        return {restore(row.pop("run_id")): totals.Totals(**row) for row in found.to_pylist()}

    def verify(self) -> int:
        """Read every part whole with its checksums; the number of parts. Raises StoreError at the first bad one."""
        for spec in self._tables:
            check_parts(spec, self._parts[spec.name])
        return sum(len(parts) for parts in self._parts.values())

    # --------------------------------------------------------------------------------------- for the writer
    def unseen(self, name: str, new: pa.Table) -> list[int]:
        """Positions in `new` of the rows that would change what the view of the table shows."""
        spec = table_named(name)
        if spec.last_wins:
            same = " AND ".join(f'n."{column}" IS NOT DISTINCT FROM p."{column}"' for column in spec.names)
        else:
            same = f"NOT ({spec.weak.format(row='p')} AND NOT ({spec.weak.format(row='n')}))"
        with self._registered("_new", _numbered(new)):
            found = self._sql(
                f"SELECT n._position FROM (SELECT *, {views.choice(spec, 'v', '_position')} AS _rank FROM _new v) n "  # noqa: S608
                f'ANTI JOIN "{name}" p ON {views.same_key(spec, "n", "p")} AND {same} '
                "WHERE n._rank = 1 ORDER BY n._position"
            )
        positions: list[int] = found.column("_position").to_pylist()
        return positions

    def clashing_cells(self, new: pa.Table) -> list[str]:
        """Cells in `new` rows of `asks` that ask, in one place, something else than they did before."""
        key = views.same_key(TABLES["asks"], "n", "p")
        with self._registered("_new", _numbered(new)):
            found = self._sql(
                "SELECT DISTINCT n.cell_id FROM _new n JOIN "  # noqa: S608
                "(SELECT cell_id, role, option, request_id FROM asks UNION ALL "
                f"SELECT cell_id, role, option, request_id FROM _new) p ON {key} "
                "WHERE n.request_id <> p.request_id ORDER BY n.cell_id"
            )
        clashing: list[str] = found.column("cell_id").to_pylist()
        return clashing

    # ---------------------------------------------------------------------------------------------- plumbing
    def _read(
        self, name: str, make: Callable[[dict[str, Any]], T], where: str = "", bound: Sequence[object] = ()
    ) -> list[T]:
        spec = TABLES[name]
        found = self._sql(
            f'SELECT {views.quoted(spec.names, "t.")} FROM "_{name}" t {where} ORDER BY t._position',  # noqa: S608
            bound,
        )
        try:
            return [make(row) for row in decode(spec, found)]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"A row of the table {name} in {self.path} cannot be understood ({type(error).__name__}: {error}). "
                "The store was written or changed by something else."
            ) from error

    @contextlib.contextmanager
    def _registered(self, name: str, data: pa.Table) -> Iterator[None]:
        self._con.register(name, data)
        try:
            yield
        finally:
            self._con.unregister(name)

    def _sql(self, sql: str, bound: Sequence[object] = ()) -> pa.Table:
        return self._retried(lambda: self._rows(sql, bound))

    def _rows(self, sql: str, bound: Sequence[object]) -> pa.Table:
        relation = self._con.sql(sql, params=list(bound)) if bound else self._con.sql(sql)
        # None stands for a statement that is not a query (CREATE, SET)
        if relation is None:
            raise InputError("The query returns no rows; a SELECT was expected.")
        return relation.to_arrow_table()

    def _bind(self) -> None:
        self._parts = {spec.name: list_parts(self.path / spec.name) for spec in self._tables}
        for spec in self._tables:
            for part in self._parts[spec.name]:
                if part not in self._columns:
                    self._columns[part] = frozenset(column_names(spec, part))
        views.create(self._con, self._parts, self._columns)

    def _retried(self, action: Callable[[], T], *, asked_by_user: bool = False) -> T:
        """Do it; when it fails, look whether parts were merged away meanwhile, else which part is broken.

        Args:
            action: what to do.
            asked_by_user: errors that do not come from a part are passed on as DuckDB's, not made StoreErrors.
        """
        import duckdb

        for _ in range(_TRIES):
            try:
                return action()
            except (duckdb.Error, FileNotFoundError) as error:
                last = error
                if asked_by_user and isinstance(error, _wrong_queries()):
                    raise
                if all(part.exists() for parts in self._parts.values() for part in parts):
                    for spec in self._tables:
                        check_parts(spec, self._parts[spec.name])
                    break
            with contextlib.suppress(duckdb.Error, FileNotFoundError):
                self._bind()
        if asked_by_user:
            raise last
        raise StoreError(f"The store {self.path} cannot be read: {last}") from last


def _wrong_queries() -> tuple[type[Exception], ...]:
    import duckdb

    return (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException)


def _one(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _of_run(run_id: str | None) -> tuple[str, tuple[str, ...]]:
    return ("", ()) if run_id is None else ("WHERE t.run_id = ?", (escape(run_id),))


def _numbered(data: pa.Table) -> pa.Table:
    import pyarrow as pa

    return data.append_column("_position", pa.array(range(data.num_rows), type=pa.int64()))
