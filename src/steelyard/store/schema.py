"""The tables: columns, types and keys. docs/schema.md says the same in words, and a test compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from steelyard.core.errors import UnknownNameError

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
"""Of the tables below; a store that says a higher number is refused."""

PARQUET: Mapping[str, Any] = MappingProxyType(
    {"compression": "zstd", "store_schema": False, "write_page_checksum": True}
)
"""How parts are written. Checksums let a flipped bit be found; the Arrow schema would repeat docs/schema.md."""

Kind = Literal["string", "json", "int32", "int64", "double", "bool", "list<string>", "list<double>"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `kind` "json" is a Parquet string that holds JSON.

    Attributes:
        name, kind: as in docs/schema.md.
        nullable: whether it may be null.
        late: it came after the first stores were written, so a part may lack it; its values are null then.
    """

    name: str
    kind: Kind
    nullable: bool
    late: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the store.

    Attributes:
        name: also the name of its folder and of its view.
        key: columns that name a row; of several rows with one key, one counts.
        columns: in file order.
        last_wins: whether the last row of a key counts, else the first one.
        weak: SQL condition on a row ("{row}.column ..."); a weak row gives way to any later one.
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    last_wins: bool = False
    weak: str = "false"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return tuple(column.name for column in self.columns)


def _table(name: str, key: str, columns: str, *, last_wins: bool = False, weak: str = "false") -> Table:
    """A table from lines of ``type: name name ...``; a name with "?" is nullable, with "+" nullable and late."""
    parsed = []
    for line in columns.strip().splitlines():
        kind, _, names = line.partition(":")
        parsed += [
            Column(column.rstrip("?+"), cast("Kind", kind.strip()), column[-1] in "?+", column[-1] == "+")
            for column in names.split()
        ]
    return Table(name, tuple(key.split()), tuple(parsed), last_wins, weak)


_ALL = (
    # the group says which items hang together, not what is asked: a later run may know better
    _table(
        "items",
        "benchmark item_id content_hash",
        """
        string: item_id benchmark group? question
        json: reference options
        string: answer_type
        json: meta
        string: content_hash
        """,
        last_wins=True,
    ),
    # the scorers are how answers are judged, not what is asked: a later run may name others
    _table(
        "forms",
        "form_id",
        """
        string: form_id benchmark formulation template_id
        int32: shots
        string: text_hash
        json: settings
        list<string>: scorers
        """,
        last_wins=True,
    ),
    _table(
        "runs",
        "run_id",
        """
        string: run_id model
        int64: step? tokens_seen?
        double: flops?
        string: weights_digest tokenizer_digest backend dtype
        json: settings versions hardware
        int64: seed
        string: started
        """,
    ),
    # the selection is not in the key: a later run with a higher limit describes the same source anew
    _table(
        "sources",
        "run_id benchmark content_hash",
        """
        string: run_id benchmark kind location revision split content_hash shot_source
        int64: n_items n_selected
        string: selection
        list<string>: duplicates
        """,
        last_wins=True,
    ),
    _table(
        "asks",
        "cell_id role option",
        """
        string: cell_id run_id item_id form_id
        int32: sample
        string: role
        int32: option?
        string: text source request_id?
        list<string>: flags
        """,
        weak="{row}.request_id IS NULL",
    ),
    _table(
        "responses",
        "request_id",
        """
        string: request_id run_id text?
        double: logprob?
        bool: greedy?
        list<double>: token_logprobs?
        int32: n_tokens n_bytes
        string: finish error? batch_id
        """,
        weak="{row}.finish = 'error'",
    ),
    _table(
        "batches",
        "batch_id",
        """
        string: batch_id run_id
        int32: requests
        int64: asked computed trie scored steps
        double: seconds
        int64: new_tokens+ peak_memory+
        double: prefill_rate+
        """,
    ),
    _table(
        "scores",
        "cell_id scorer",
        """
        string: cell_id run_id item_id form_id
        int32: sample
        string: scorer status
        double: value?
        string: extracted?
        json: detail
        """,
        last_wins=True,
    ),
)
TABLES: Mapping[str, Table] = MappingProxyType({table.name: table for table in _ALL})
"""Every table by its name."""


def table(name: str) -> Table:
    """The table of this name. Raises UnknownNameError."""
    if name not in TABLES:
        raise UnknownNameError("table", name, TABLES)
    return TABLES[name]


def arrow_schema(spec: Table) -> pa.Schema:
    """The Arrow schema of a table's parts."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "json": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        # Parquet's own name for what a list holds, so that a part reads back with the type it was written in
        "list<string>": pa.list_(pa.field("element", pa.string())),
        "list<double>": pa.list_(pa.field("element", pa.float64())),
    }
    return pa.schema([pa.field(c.name, types[c.kind], nullable=c.nullable) for c in spec.columns])
