from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the bench is no part of the package


@pytest.fixture(scope="session")
def data() -> Path:
    given = os.environ.get("STEELYARD_DATA")
    folder = Path(given) if given else ROOT.parent / "shared" / "data"
    if not (folder / "gsm8k" / "test.jsonl").is_file():
        pytest.skip("needs a folder of benchmark data (STEELYARD_DATA)")
    return folder
