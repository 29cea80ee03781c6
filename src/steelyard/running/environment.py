"""What a run was made with: versions and hardware, recorded once per run."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "steelyard", "numpy", "scipy", "pyarrow", "duckdb", "torch", "transformers", "tokenizers", "datasets", "httpx",
    "sacrebleu", "rouge-score", "altair", "vl-convert-python",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Versions of Python and of every package that can change a number; absent ones are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """CPU, cores, memory and platform, read without importing a model library."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "platform": platform.platform(),
        "machine": platform.machine(),
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
