"""Named random streams: randomness is an argument, never a global.

A stream is named by what it is for, ``stream(seed, "shots", benchmark, item_id)``, so a draw depends on
nothing but its name: not on the batch, the worker, the order, the limit or a resume. Adding an item
shuffles no other item.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

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


def ranked(seed: int, *name: str | int, ids: np.ndarray) -> Iterator[int]:
    """Candidates in the order of one named draw, by rendezvous hashing; yields positions in `ids`, best first.

    Every candidate gets its own score from (name, candidate), and the order is that of the scores. So adding
    or removing one candidate moves no other: a larger draw contains the smaller one, and a benchmark that
    gains an item keeps nearly all its draws. The first few are found without sorting the rest.

    Args:
        seed: of the study.
        name: what the draw is for.
        ids: candidate keys, shape (n,), uint64, from `keys`.
    """
    with np.errstate(over="ignore"):
        # the finaliser of splitmix64: full avalanche on 64 bits, vectorised over the candidates
        z = ids ^ np.uint64(key(seed, *name))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    few = 64
    if len(ids) > 4 * few:
        head = np.argpartition(z, few)[:few]
        head = head[np.lexsort((ids[head], z[head]))]
        yield from head.tolist()
        taken = np.zeros(len(ids), dtype=bool)
        taken[head] = True
        rest = np.flatnonzero(~taken)
    else:
        rest = np.arange(len(ids))
    yield from rest[np.lexsort((ids[rest], z[rest]))].tolist()


def keys(ids: Iterable[str]) -> np.ndarray:
    """64-bit keys of candidates for `ranked`, shape (n,), uint64."""
    return np.array([key(0, "candidate", i) for i in ids], dtype=np.uint64)
