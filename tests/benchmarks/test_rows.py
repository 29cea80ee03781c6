from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.benchmarks.rows import read_rows
from steelyard.core.errors import DataError

ROWS = [{"question": "a line\u2028separator, \x85 and \x0b stay", "n": 1}, {"question": "zwei\n", "n": 2}]


def records(path):
    return [row.record for row in read_rows(path, path.name)]


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.json", "x.json.gz", "x.parquet"])
def test_every_format_gives_the_same_rows(write, name):
    assert records(write(name, ROWS)) == ROWS


def test_only_a_newline_ends_a_line(write):
    path = write("x.jsonl", json.dumps({"q": "one\u2028two\u2029three"}, ensure_ascii=False) + "\n")
    assert records(path) == [{"q": "one\u2028two\u2029three"}]


def test_a_byte_order_mark_carriage_returns_and_blank_lines_are_no_content(write):
    rows = read_rows(write("x.jsonl", b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\n\n'), "x.jsonl")
    assert [r.record for r in rows] == [{"a": 1}, {"a": 2}]
    assert [r.line for r in rows] == [1, 3]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{oops}", "expected JSON"),
        (b"[1, 2]", "expected a JSON object"),
        (b"7", "expected a JSON object"),
        (b'{"a": 1, "a": 2}', "'a' occurs twice"),
        (b'{"a": NaN}', "NaN is no JSON value"),
        (b'{"a": "\xff"}', "expected UTF-8; got the byte 0xff"),
        (b'{"a": "\xed\xa0\x80"}', "expected UTF-8"),
        (b'{"a": "\x00"}', "expected JSON"),
        (b"\x00" * 9, "expected JSON"),
        (b'{"a":' * 30000 + b"1" + b"}" * 30000, "expected plain JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "expected plain JSON"),
    ],
)
def test_a_bad_line_is_a_row_with_a_fault_and_the_others_are_read(write, line, said):
    rows = read_rows(write("x.jsonl", b'{"a": 1}\n' + line + b'\n{"a": 3}\n'), "x.jsonl")
    assert [r.record for r in rows] == [{"a": 1}, None, {"a": 3}]
    assert said in rows[1].fault


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("x.jsonl", b"", "no rows"),
        ("x.jsonl", b"\n \n", "no rows"),
        ("x.json", b"[]", "no rows"),
        ("x.json", b"[1", "not a JSON array"),
        ("x.parquet", b"", "Parquet"),
        ("x.parquet", b"PAR1 not really", "Parquet"),
        ("x.csv", b"a,b", "ends in none of"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, name, raw, said):
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(DataError, match=said):
        read_rows(path, name)


@pytest.mark.parametrize("cut", [0, 5, 25])
def test_a_gzip_file_that_is_cut_or_none_says_so(write, cut):
    path = write("x.jsonl.gz", ROWS)
    path.write_bytes(path.read_bytes()[:cut] or b"plain text")
    with pytest.raises(DataError, match=r"x\.jsonl\.gz"):
        read_rows(path, "x.jsonl.gz")


def test_a_file_that_is_not_there_is_named(tmp_path):
    for name in ("no.jsonl", "no.parquet"):
        with pytest.raises(DataError, match=name):
            read_rows(tmp_path / name, name)


@settings(max_examples=60)
@given(raw=st.binary(max_size=60))
def test_any_bytes_are_rows_faults_or_a_data_error(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("any") / "x.jsonl"
    path.write_bytes(raw)
    try:
        rows = read_rows(path, "x.jsonl")
    except DataError:
        assert not raw.removeprefix(b"\xef\xbb\xbf").strip()
    else:
        assert all((r.record is None) == bool(r.fault) for r in rows)
