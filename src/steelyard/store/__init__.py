"""The store: Parquet tables on disk, written so that nothing is lost and read through DuckDB (docs/schema.md).

Start with `writer.py` (appending) and `reader.py` (views and typed rows); `schema.py` has the tables.
"""

from __future__ import annotations

from steelyard.store.escape import escape, restore
from steelyard.store.reader import Store, open_read
from steelyard.store.rows import FormRow, RunRow, SourceRow
from steelyard.store.schema import SCHEMA_VERSION, TABLES
from steelyard.store.totals import Totals
from steelyard.store.views import CELLS
from steelyard.store.writer import Writer, open_store

__all__ = [
    "CELLS",
    "SCHEMA_VERSION",
    "TABLES",
    "FormRow",
    "RunRow",
    "SourceRow",
    "Store",
    "Totals",
    "Writer",
    "escape",
    "open_read",
    "open_store",
    "restore",
]
