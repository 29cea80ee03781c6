from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def rows() -> Callable[[str], list[dict[str, Any]]]:
    """Reads a JSON-lines file of the shared data; skips the test where there is none."""
    root = Path(os.environ.get("STEELYARD_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))

    def read(name: str) -> list[dict[str, Any]]:
        path = root / name
        if not path.exists():
            pytest.skip(f"shared data not here: {name}")
        data = path.read_bytes()
        text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
        return [json.loads(line) for line in text.split("\n") if line]

    return read
