"""Standard output and error, made so that printing never ends in a traceback. Light: every command starts here."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from pathlib import Path

READER_GONE = 141
"""Exit code when the reader of a pipe has left: what a shell gives for SIGPIPE."""

# How the signs of our own tables look where the encoding has only ASCII: one character each, so columns stay.
_PLAIN = dict(zip("─━╸╺├┤┊●·┼–\u2212▌…", "----|||o.+--|~", strict=True))


def prepare() -> None:
    """Make both streams take every character, and writable when the caller has closed them."""
    codecs.register_error("steelyard", _spell)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  lives with the process
        elif hasattr(stream, "reconfigure") and not _is_utf(stream.encoding):
            stream.reconfigure(errors="steelyard")


def write_json(text: str) -> None:
    """Write JSON to standard output, in UTF-8 whatever the locale says."""
    if hasattr(sys.stdout, "reconfigure") and not _is_utf(sys.stdout.encoding):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text)


def flush() -> None:
    """Send what is buffered, so that a full disk or a gone reader shows while it can be handled."""
    sys.stdout.flush()
    sys.stderr.flush()


def give_up() -> None:
    """Let what is still buffered go nowhere; the interpreter would stumble over it at the end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _is_utf(encoding: str) -> bool:
    return encoding.lower().replace("_", "-").startswith("utf")


def _spell(error: UnicodeError) -> tuple[str, int]:
    """The error handler of the streams: our signs in ASCII, all else written out as its code."""
    assert isinstance(error, UnicodeEncodeError), "only for writing"  # noqa: S101  our own mistake
    missing = error.object[error.start : error.end]
    spelled = (_PLAIN.get(char) or char.encode("ascii", "backslashreplace").decode() for char in missing)
    return "".join(spelled), error.end
