"""The cache folder, and writing into it so that a reader never sees half a file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def cache_root(cache_dir: str | Path | None = None) -> Path:
    """``cache_dir``, else $STEELYARD_CACHE, else $XDG_CACHE_HOME/steelyard, else ~/.cache/steelyard."""
    if cache_dir is not None:
        return Path(cache_dir)
    if own := os.environ.get("STEELYARD_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "steelyard"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    Path(temporary).chmod(0o644)  # a cache may be shared; mkstemp makes files for their owner alone
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
