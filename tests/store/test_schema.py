from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import StoreError, UnknownNameError
from steelyard.store import CELLS, TABLES
from steelyard.store.codec import decode, encode
from steelyard.store.schema import arrow_schema, table

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "schema.md").read_text(encoding="utf-8")

# a union inside st.text would draw surrogates in proportion to their number, that is hardly ever
ANY_TEXT = st.lists(st.sampled_from("\ud800\udbff\udc00\udfff\0\ufffd\\") | st.characters(), max_size=6).map(
    "".join
)
VALUES = {
    "string": ANY_TEXT,
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(),
    "bool": st.booleans(),
    "list<string>": st.lists(ANY_TEXT, max_size=3).map(tuple),
    "list<double>": st.lists(st.floats(), max_size=3).map(tuple),
    "json": st.dictionaries(
        ANY_TEXT,
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | ANY_TEXT,
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ANY_TEXT, inner, max_size=2),
            max_leaves=4,
        ),
        max_size=3,
    ),
}


def row_of(name):
    columns = TABLES[name].columns
    return st.fixed_dictionaries(
        {c.name: VALUES[c.kind] | st.none() if c.nullable else VALUES[c.kind] for c in columns}
    )


def documented(name):
    section = re.search(rf"### {name} — .*?Key: ([\w, ]+)(.*?)(?=\n##)", PAGE, re.DOTALL)
    key = tuple(re.sub(r"\(.*", "", section[1]).replace(" ", "").split(","))
    columns = []
    for names, kind in re.findall(r"^\| ([\w, ]+) \| ([\w<>]+\??) \|", section[2], re.MULTILINE):
        columns += [(n.strip(), kind) for n in names.split(",")] if kind != "type" else []
    return key, columns


@pytest.mark.parametrize("name", TABLES)
def test_the_page_and_the_code_name_the_same_columns_types_and_keys(name):
    key, columns = documented(name)
    spec = TABLES[name]
    ours = [(c.name, c.kind.replace("json", "string") + "?" * c.nullable) for c in spec.columns]
    assert sorted(ours) == sorted(columns)
    assert spec.key == key


def test_the_page_names_the_columns_of_cells():
    assert f"`{', '.join(CELLS)}`" in PAGE


@pytest.mark.parametrize("name", TABLES)
def test_any_row_comes_back_from_arrow_unchanged(name):
    @settings(max_examples=25, deadline=None)
    @given(st.lists(row_of(name), max_size=3))
    def check(rows):
        data = encode(TABLES[name], rows)
        assert data.schema == arrow_schema(TABLES[name])
        # repr tells NaN, -0.0 and 1 from 1.0, which == does not
        assert repr(decode(TABLES[name], data)) == repr([in_order(TABLES[name], row) for row in rows])

    check()


def in_order(spec, row):
    return {n: sort_keys(row[n]) for n in spec.names}


def sort_keys(value):
    if isinstance(value, dict):
        from steelyard.store import escape

        return {k: sort_keys(value[k]) for k in sorted(value, key=escape)}
    return [sort_keys(v) for v in value] if isinstance(value, list) else value


def response(**changed):
    fresh = dict.fromkeys(("text", "logprob", "greedy", "token_logprobs", "error"))
    fresh |= {"request_id": "r", "run_id": "R", "n_tokens": 1, "n_bytes": 1, "finish": "eos", "batch_id": "B"}
    return fresh | changed


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("request_id", None),
        ("request_id", 7),
        ("text", b"bytes"),
        ("n_tokens", 1.0),
        ("n_tokens", True),
        ("n_tokens", 2**31),
        ("n_tokens", "1"),
        ("logprob", "1.5"),
        ("logprob", True),
        ("greedy", 1),
        ("token_logprobs", "ab"),
        ("token_logprobs", [None]),
    ],
)
def test_a_value_of_another_type_is_refused_and_named(column, value):
    with pytest.raises(StoreError, match=column):
        encode(TABLES["responses"], [response(**{column: value})])


@pytest.mark.parametrize(
    "detail", [{"a": math.nan}, {"a": math.inf}, {1: "a"}, {"a": object()}, '{"a": 1}', None]
)
def test_what_is_no_json_is_refused(detail):
    row = dict.fromkeys(("cell_id", "run_id", "item_id", "form_id", "scorer", "status"), "x")
    with pytest.raises(StoreError, match="detail"):
        encode(TABLES["scores"], [row | {"sample": 0, "value": None, "extracted": None, "detail": detail}])


def test_numpy_scalars_are_taken_as_the_numbers_they_are():
    row = response(n_tokens=np.int64(3), logprob=np.float32(0.5), greedy=np.bool_(True))
    back = decode(TABLES["responses"], encode(TABLES["responses"], [row]))[0]
    assert (back["n_tokens"], back["logprob"], back["greedy"]) == (3, 0.5, True)


def test_missing_and_unknown_columns_are_named():
    row = response(extra=1)
    del row["text"]
    with pytest.raises(StoreError, match="missing or unknown: extra, text"):
        encode(TABLES["responses"], [row])


def test_an_unknown_table_is_answered_with_near_misses():
    with pytest.raises(UnknownNameError, match="Did you mean scores"):
        table("score")


def test_importing_the_store_loads_neither_arrow_nor_duckdb():
    code = "import sys, steelyard.store; print({'pyarrow', 'duckdb', 'scipy', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
