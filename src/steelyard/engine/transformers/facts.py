"""What the model libraries make of a checkpoint's small files, remembered.

Importing torch and transformers takes seconds, and a plan, `show`, or a run with nothing left to ask needs
neither: only the tokenizer as they read it, the context length and the end tokens. These depend on the
files and on the libraries' versions alone, so they are kept under a hash of both.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from steelyard.core.cache import write_json
from steelyard.core.ids import digest
from steelyard.engine.transformers.files import digest_files

_VERSION = 2
"""Of what is kept; part of the hash, so that a change of it starts afresh."""
_LIBRARIES = ("transformers", "tokenizers", "sentencepiece", "tiktoken", "protobuf")
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx"}


def remembered(
    kind: str, folder: Path, cache: Path | None, make: Callable[[], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """`make()`, or what it gave for the same files and versions before.

    Args:
        kind: names what is made.
        folder: of the checkpoint; every file in it that holds no weights counts.
        cache: the cache folder; None remembers nothing.
        make: gives a JSON object that holds every key each time. What it raises is not remembered.
    """
    if cache is None:
        return make()
    name = digest([_VERSION, kind, _versions(), digest_files(_small(folder), cache)])
    note = cache / "facts" / f"{kind}-{name}.json"
    # a note that cannot be read costs the libraries' import, nothing else
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(note.read_text("utf-8"))
        if isinstance(known, dict):
            return known
    made = make()
    with contextlib.suppress(OSError):  # a read-only cache only costs time
        write_json(note, made)
    return made


def _small(folder: Path) -> list[Path]:
    inside = [*folder.iterdir(), *folder.glob("additional_chat_templates/*")]
    return [path for path in inside if path.is_file() and path.suffix not in _WEIGHTS]


def _versions() -> dict[str, str]:
    found = {}
    for library in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[library] = metadata.version(library)
    return found
