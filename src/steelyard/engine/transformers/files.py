"""Files of a model: their hashes, remembered in the cache, and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from steelyard.core.cache import write_json

_CHUNK = 1 << 22
_SETTLED = 2.0  # seconds; file times come in ticks, of 10 ms on ext4 and up to 2 s elsewhere
_STALE = 24 * 3600  # seconds after which a temporary folder belongs to a process that died


def offline() -> bool:
    """Whether the hub's own switch, HF_HUB_OFFLINE, forbids the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").strip().upper() in {"1", "ON", "YES", "TRUE"}


def sha256(path: Path) -> str:
    """Hash of a file's content as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def digest_files(paths: Iterable[Path], cache: Path) -> str:
    """Hash of files: their names in order and their contents, never where they are.

    A file's own hash is remembered under its place, number, size and times, so that the second start of a large
    model reads nothing; a file that changes in any of these is read again. A file that was written a moment
    ago could change once more within the same tick, so its hash is not remembered yet.

    Returns:
        64 hexadecimal digits.
    """
    total = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        total.update(f"{path.name}\0{_remembered_sha256(path, cache)}\n".encode())
    return total.hexdigest()


def _remembered_sha256(path: Path, cache: Path) -> str:
    path = path.resolve()  # the hub's cache keeps links to blobs
    before = _state(path)
    place = "\0".join(map(str, (path, *before)))
    note = cache / "digests" / f"{hashlib.sha256(place.encode('utf-8', 'surrogateescape')).hexdigest()}.json"
    # a note that cannot be read costs a second look at the file, nothing else
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(note.read_text("utf-8"))["sha256"]
        if isinstance(known, str) and len(known) == 64:
            return known
    value, now = sha256(path), time.time()
    if _state(path) == before and now - max(before[2:]) / 1e9 > _SETTLED:
        with contextlib.suppress(OSError):  # a read-only cache only costs time
            write_json(note, {"sha256": value})
    return value


def _state(path: Path) -> tuple[int, int, int, int]:
    """Number, size and times of a file; ctime too: mtime can be set by anyone (tar, rsync, touch), ctime cannot."""
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


@contextlib.contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder beside its final place (so that a rename is atomic), removed unless it was renamed away.

    Folders that dead processes left behind for a day are removed on the way.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.glob(".tmp-*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _STALE:
                shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=".tmp-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
