"""Between plain Python rows and Arrow tables.

A row is a mapping with every column of its table; JSON columns hold plain data (mappings and lists), not
text. Nothing is converted but what loses nothing: an int where a double is wanted, a NumPy scalar, a tuple
where a list is wanted. All else is an error, so that a wrong type is found when it is written, not in a report.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from steelyard.core.errors import StoreError
from steelyard.store.escape import escape, restore
from steelyard.store.schema import Table, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]


def encode(spec: Table, rows: Sequence[Row]) -> pa.Table:
    """Rows as an Arrow table with the schema of `spec`.

    Raises:
        StoreError: a column is missing or unknown, or a value does not fit its type.
    """
    import pyarrow as pa

    names = set(spec.names)
    for index, row in enumerate(rows):
        if row.keys() != names:
            wrong = sorted(row.keys() ^ names)
            raise StoreError(
                f"Row {index} for the table {spec.name} must have the columns {', '.join(spec.names)}; "
                f"missing or unknown: {', '.join(map(str, wrong))}."
            )
    schema = arrow_schema(spec)
    arrays = []
    for column in spec.columns:
        convert = _CONVERT[column.kind]
        values: list[Any] = []
        for index, row in enumerate(rows):
            value = row[column.name]
            try:
                values.append(None if value is None and column.nullable else convert(value))
            except (TypeError, ValueError, OverflowError) as error:
                raise StoreError(
                    f"Row {index} for the table {spec.name}: the column {column.name!r} must be "
                    f"{column.kind}{' or null' if column.nullable else ''}; got {value!a:.120} "
                    f"({type(value).__name__}: {ascii(str(error))[1:-1]})."
                ) from error
        try:
            arrays.append(pa.array(values, type=schema.field(column.name).type))
        except (pa.ArrowException, OverflowError) as error:
            raise StoreError(
                f"The column {column.name!r} of the table {spec.name} must be {column.kind}: {error}."
            ) from error
    return pa.Table.from_arrays(arrays, schema=schema)


def decode(spec: Table, data: pa.Table) -> list[dict[str, Any]]:
    """The inverse of `encode`: rows with text restored, JSON parsed and lists as tuples.

    Raises:
        StoreError: a JSON column holds no JSON.
    """
    columns = []
    for column in spec.columns:
        back = _RESTORE.get(column.kind)
        values = data.column(column.name).to_pylist()
        if back is not None:
            try:
                values = [None if value is None else back(value) for value in values]
            except ValueError as error:
                raise StoreError(
                    f"A row of the table {spec.name} holds no JSON in the column {column.name!r} ({error}). "
                    "The store was written or changed by something else; move that table's folder away and "
                    "run the same command again."
                ) from error
        columns.append(values)
    names = spec.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return escape(value)


def _integer(value: object) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError("not an integer")
    return int(value)


def _double(value: object) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError("not a number")
    return float(value)


def _bool(value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError("neither true nor false")
    return bool(value)


def _list_of(convert: Callable[[object], Any]) -> Callable[[object], list[Any]]:
    def converted(value: object) -> list[Any]:
        # a text is a sequence of texts too, and would be taken apart
        if not isinstance(value, list | tuple):
            raise TypeError("not a list")
        return [convert(element) for element in value]

    return converted


def _json(value: object) -> str:
    if not isinstance(value, Mapping | list | tuple):
        raise TypeError("JSON columns take a mapping or a list, not its text")
    # sorted keys: the same data have the same text, so that an unchanged score is recognised
    return json.dumps(
        _plain(value), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def _plain(value: object) -> object:
    # Each text is escaped before it becomes JSON: then the column is valid JSON for every reader. The other
    # order would leave "\ud83d" as a JSON escape, which DuckDB refuses and Python merges into its neighbour.
    match value:
        case None | bool():
            return value
        case str():
            return escape(value)
        case Mapping():
            if not all(isinstance(name, str) for name in value):
                raise TypeError("the keys of JSON objects must be texts")
            return {escape(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case np.bool_():
            return bool(value)
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            if not math.isfinite(value):
                raise ValueError("JSON has no NaN or infinity; what is missing is null")
            return float(value)
        case _:
            raise TypeError(f"{type(value).__name__} is no JSON")


def _parsed(text: str) -> object:
    value = json.loads(text)
    # a million details rarely hold a mark, plain or as a JSON escape: do not walk through them
    return _unplain(value) if "\ufffd" in text or "\\u" in text else value


def _unplain(value: object) -> object:
    match value:
        case str():
            return restore(value)
        case dict():
            return {restore(name): _unplain(inner) for name, inner in value.items()}
        case list():
            return [_unplain(inner) for inner in value]
        case _:
            return value


_CONVERT: Mapping[str, Callable[[object], Any]] = {
    "string": _text,
    "json": _json,
    "int32": _integer,
    "int64": _integer,
    "double": _double,
    "bool": _bool,
    "list<string>": _list_of(_text),
    "list<double>": _list_of(_double),
}
_RESTORE: Mapping[str, Callable[[Any], Any]] = {
    "string": restore,
    "json": _parsed,
    "list<string>": lambda texts: tuple(restore(text) for text in texts),
    "list<double>": tuple,
}
