"""Where the items come from: a folder of public benchmark data, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from steelyard.core.errors import MissingError

ROOT = Path(__file__).resolve().parents[2]


def data_folder() -> Path:
    """$STEELYARD_DATA, or ``../shared/data`` beside the repository.

    Raises:
        MissingError: neither is there. Made-up items would have other lengths, so no others are taken.
    """
    given = os.environ.get("STEELYARD_DATA")
    folder = Path(given) if given else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        raise MissingError(
            "The bench takes its items from a folder of benchmark data, and there is none "
            + ("at STEELYARD_DATA." if given else "beside the repository (../shared/data).")
            + " Set STEELYARD_DATA to a folder that holds gsm8k/test.jsonl and gsm8k/train.jsonl."
        )
    return folder
