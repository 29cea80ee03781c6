"""The SQL of the views: one per table with the duplicates settled, and `cells` over them.

Only names of our own tables and columns, and file names as quoted literals, ever enter the text of a query;
all other values are bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.store.schema import TABLES, Table

if TYPE_CHECKING:
    import duckdb

_TYPES = {
    "string": "VARCHAR",
    "json": "VARCHAR",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "list<string>": "VARCHAR[]",
    "list<double>": "DOUBLE[]",
}
_ROWS_PER_PART = 2**40  # more than a part can hold: (part, row in it) becomes one sortable number

CELLS = (
    *("model", "step", "benchmark", "group", "item_id", "form_id", "formulation", "template_id", "shots"),
    *("run_id", "sample", "scorer", "status", "value", "extracted", "detail"),
)
"""Columns of the view `cells`."""


def quoted(names: Iterable[str], prefix: str = "") -> str:
    """Column names for SQL ("group" is a keyword)."""
    return ", ".join(f'{prefix}"{name}"' for name in names)


def same_key(spec: Table, left: str, right: str) -> str:
    """Condition that two rows have one key, in which null equals null (asks.option)."""
    return " AND ".join(f'{left}."{name}" IS NOT DISTINCT FROM {right}."{name}"' for name in spec.key)


def choice(spec: Table, row: str, position: str) -> str:
    """The number, from 1, of a row among those of its key; the first is the one that counts (rule 2).

    Args:
        spec: the table.
        row: alias of the rows.
        position: column that tells the order of writing.
    """
    weak = spec.weak.format(row=row)
    # among weak rows the latest counts: each of them gave way to the next
    order = f"({weak}), CASE WHEN {weak} THEN -{row}.{position} ELSE {row}.{position} END"
    if spec.last_wins:
        order = f"{row}.{position} DESC"
    return f"row_number() OVER (PARTITION BY {quoted(spec.key, row + '.')} ORDER BY {order})"


def create(
    con: duckdb.DuckDBPyConnection, parts: dict[str, list[Path]], columns: Mapping[Path, AbstractSet[str]]
) -> None:
    """Make or renew the views of the tables in `parts`, and `cells` when all that it needs is there.

    Beside each public view T there is ``_T`` with the column ``_position`` for the order of writing.

    Args:
        con: the connection.
        parts: of each table, in order.
        columns: names of the columns of every part.
    """
    con.execute("CREATE OR REPLACE TABLE _parts (file VARCHAR, number BIGINT)")
    for name, files in parts.items():
        spec = TABLES[name]
        con.execute(
            "INSERT INTO _parts SELECT unnest($files), unnest(range(len($files)))",
            {"files": [str(file) for file in files]},
        )
        chosen = _empty(spec) if not files else _settled(spec, files, columns)
        con.execute(f'CREATE OR REPLACE VIEW "_{name}" AS {chosen}')
        con.execute(f'CREATE OR REPLACE VIEW "{name}" AS SELECT {quoted(spec.names)} FROM "_{name}"')  # noqa: S608
    if parts.keys() >= {"scores", "runs", "forms", "items"}:
        con.execute(f"CREATE OR REPLACE VIEW _cells AS {_CELLS}")
        con.execute(f"CREATE OR REPLACE VIEW cells AS SELECT {quoted(CELLS)} FROM _cells")  # noqa: S608


def _empty(spec: Table) -> str:
    columns = ", ".join(f'CAST(NULL AS {_TYPES[c.kind]}) AS "{c.name}"' for c in spec.columns)
    return f"SELECT {columns}, CAST(NULL AS BIGINT) AS _position WHERE false"


def _settled(spec: Table, files: Sequence[Path], found: Mapping[Path, AbstractSet[str]]) -> str:
    # a column that came late is null in the parts that lack it
    lacking = {c.name: sum(c.name not in found[file] for file in files) for c in spec.columns if c.late}
    nowhere = {name for name, count in lacking.items() if count == len(files)}
    mixed = any(0 < count < len(files) for count in lacking.values())
    # DuckDB takes the name of an existing file literally, also when it looks like a pattern. Hive partitioning
    # is off because a folder named "a=b" would add a column.
    names = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
    columns = ", ".join(
        f'CAST({value} AS {_TYPES[c.kind]}) AS "{c.name}"'
        for c in spec.columns
        for value in ("NULL" if c.name in nowhere else f'd."{c.name}"',)
    )
    # by name only where it must be: it opens every file once more
    by_name = ", union_by_name = true" if mixed else ""
    # a left join, so that no row could be lost if a name came back in another spelling
    rows = (
        f"SELECT {columns}, p.number * {_ROWS_PER_PART} + d.file_row_number AS _position "  # noqa: S608
        f"FROM read_parquet([{names}], filename = true, file_row_number = true, hive_partitioning = false{by_name}) d "
        "LEFT JOIN _parts p ON p.file = d.filename"
    )
    return f"SELECT * FROM ({rows}) r QUALIFY {choice(spec, 'r', '_position')} = 1"  # noqa: S608


# Left joins keep a score whose run, form or item is not there; `orphan` names what is missing, and
# `Store.cells` refuses it, so that it neither vanishes nor is averaged without its group.
# An item whose content changed has several rows; the latest is the one that the study sees now.
_CELLS = """
SELECT r.model, r.step, f.benchmark, i."group", s.item_id, s.form_id, f.formulation, f.template_id, f.shots,
       s.run_id, s.sample, s.scorer, s.status, s.value, s.extracted, s.detail,
       CASE WHEN r.run_id IS NULL THEN 'run' WHEN f.form_id IS NULL THEN 'form'
            WHEN i.item_id IS NULL THEN 'item' END AS orphan
FROM scores s
LEFT JOIN runs r ON r.run_id = s.run_id
LEFT JOIN forms f ON f.form_id = s.form_id
LEFT JOIN (
    SELECT benchmark, item_id, "group" FROM _items
    QUALIFY row_number() OVER (PARTITION BY benchmark, item_id ORDER BY _position DESC) = 1
) i ON i.benchmark = f.benchmark AND i.item_id = s.item_id
"""
