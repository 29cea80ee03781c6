"""Named random streams: randomness is an argument, never a global.

A stream is named by what it is for, ``stream(seed, "shots", benchmark, item_id)``, so a draw depends on
nothing but its name: not on the batch, the worker, the order, the limit or a resume. Adding an item
shuffles no other item.
"""

from __future__ import annotations

import hashlib

import numpy as np


def key(seed: int, *name: str | int) -> int:
    """A 63-bit key for a named stream, equal in every process and on every machine.

    >>> key(0, "shots", "gsm8k", "test-7") == key(0, "shots", "gsm8k", "test-7")
    True
    >>> key(0, "a", "bc") == key(0, "ab", "c")
    False
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in (seed, *name):
        data = f"{type(part).__name__}:{part}".encode("utf-8", "surrogatepass")
        # the length keeps ("a", "bc") apart from ("ab", "c")
        digest.update(len(data).to_bytes(8, "big") + data)
    return int.from_bytes(digest.digest(), "big") >> 1


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """A generator for the named stream."""
    return np.random.Generator(np.random.Philox(key(seed, *name)))
