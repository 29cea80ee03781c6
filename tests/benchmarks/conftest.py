"""Small files in every format, written by the test that reads them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write("gsm8k/test.jsonl", rows)``: the suffix decides the format; bytes and text are written as they are."""

    def write(name: str, rows: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(rows), path)
            return path
        if isinstance(rows, str):
            raw = rows.encode("utf-8")
        elif isinstance(rows, bytes):
            raw = rows
        elif name.removesuffix(".gz").endswith(".json"):
            raw = json.dumps(rows).encode("utf-8")
        else:
            raw = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode(
                "utf-8", "surrogatepass"
            )
        path.write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
        return path

    return write


@pytest.fixture(autouse=True)
def _no_data_from_outside(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A developer's STEELYARD_DATA must not decide what these tests load."""
    if "shared_data" in request.fixturenames:
        request.getfixturevalue("shared_data")  # reads the variable before it is removed
    monkeypatch.delenv("STEELYARD_DATA", raising=False)


@pytest.fixture
def problems() -> list[dict[str, str]]:
    """Forty problems in GSM8K's schema."""
    return [
        {"question": f"What is {n} plus one?", "answer": f"{n}+1=<<{n}+1={n + 1}>>{n + 1}\n#### {n + 1}"}
        for n in range(40)
    ]
