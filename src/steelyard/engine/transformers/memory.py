"""Memory: what is free, what has been used at most, and what running out of it looks like."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out, on any device."""
    import torch

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    # the CPU allocator has no error class of its own
    said = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in said or "can't allocate memory" in said)


def free_memory() -> None:
    """Gives back what is no longer used."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def available(device: str) -> int | None:
    """Bytes that can still be taken on a device; None where the system does not tell."""
    import torch

    if device.startswith("cuda"):
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    if device != "cpu":
        return None
    found = [n for n in (_meminfo(), _cgroup()) if n is not None]
    return min(found) if found else None


def peak(device: str) -> int:
    """Bytes in use at most so far: of the device, or of the process where it computes on the CPU; 0 if unknown."""
    import torch

    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated(device))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    return int(found["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in found else None


def _cgroup() -> int | None:
    """What a container leaves: its limit less what it has in use, without the page cache."""
    try:
        limit = (_CGROUP / "memory.max").read_text("ascii").strip()
        used = int((_CGROUP / "memory.current").read_text("ascii"))
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text("ascii").splitlines())
        return None if limit == "max" else max(0, int(limit) - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None
