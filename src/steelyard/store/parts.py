"""Files of a store: names of parts, atomic writing, leftovers of killed writers.

A part exists whole or not at all: it is written under a temporary name, synced, renamed, and its folder synced.
Names begin with the time in nanoseconds, 20 digits, and never go backwards: a new name is later than every
name of this process and every name in the folder, also when the clock was set back in between.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from steelyard.core.errors import StoreError

_PART = re.compile(r"part-([0-9]{20})-([0-9a-z]+)(?:-[0-9a-z]+)?\.parquet")
_TEMPORARY = re.compile(r"\.tmp-([0-9a-f]{8})-([0-9]+)-[0-9a-f]+")
_STALE_SECONDS = 3600.0
# Process numbers mean nothing on another machine that shares the folder.
_HOST = hashlib.blake2b(platform.node().encode("utf-8", "replace"), digest_size=4).hexdigest()

_lock = threading.Lock()
_latest = 0


def list_parts(folder: Path) -> list[Path]:
    """The parts in a table's folder in order of their names; empty when there is no folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - thousands of parts; iterdir would build a Path for each first
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"The folder {folder} of the store cannot be read: {error.strerror}.") from error
    return [folder / name for name in sorted(names) if name.startswith("part-") and name.endswith(".parquet")]


def new_name(existing: Sequence[Path]) -> str:
    """A name for a new part that sorts after every existing one and after all earlier names of this process."""
    global _latest  # noqa: PLW0603 - the guard is the process's: two writers of one folder share it
    newest = max((int(match[1]) for p in existing if (match := _PART.fullmatch(p.name))), default=0)
    with _lock:
        _latest = max(time.time_ns(), _latest + 1, newest + 1)
        return f"part-{_latest:020d}-{secrets.token_hex(6)}.parquet"


def merged_name(first: Path) -> str | None:
    """A name that takes the place of `first` in the order; None when `first` was not named by a writer.

    A hyphen sorts before the dot, so ``part-T-R-x.parquet`` comes directly before ``part-T-R.parquet``.
    """
    match = _PART.fullmatch(first.name)
    return None if match is None else f"part-{match[1]}-{match[2]}-{secrets.token_hex(6)}.parquet"


def write_atomic(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Write a file so that it is there whole and for good, or not at all.

    Args:
        path: the final name; its folder is made when missing.
        fill: writes the content.

    Raises:
        OSError: whatever the disk says; the temporary file is removed.
    """
    folder = path.parent
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    temporary = folder / f".tmp-{_HOST}-{os.getpid()}-{secrets.token_hex(6)}"
    try:
        with temporary.open("xb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in a folder durable, where the system can."""
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # some network file systems have no such call, and promise no more than they can
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def is_temporary(name: str) -> bool:
    """Whether a file name is one that `write_atomic` uses on the way."""
    return name.startswith(".tmp-")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writers that are gone: killed on this machine, or an hour old."""
    try:
        names = [name for name in os.listdir(folder) if is_temporary(name)]  # noqa: PTH208 - names only
    except FileNotFoundError:
        return
    for name in names:
        # somebody else may remove it first, or may not let us: neither harms
        with contextlib.suppress(OSError):
            path = folder / name
            if _writer_is_gone(name) or time.time() - path.stat().st_mtime > _STALE_SECONDS:
                path.unlink()


def _writer_is_gone(name: str) -> bool:
    match = _TEMPORARY.fullmatch(name)
    # os.kill with signal 0 only asks on POSIX; on Windows it would end the process
    if match is None or match[1] != _HOST or os.name == "nt":
        return False
    try:
        os.kill(int(match[2]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
