"""How much of a set of token sequences is shared: the size of the trie of their prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def distinct_prefixes(sequences: Iterable[Sequence[int]]) -> int:
    """Number of distinct non-empty prefixes of token sequences: the nodes of their trie.

    Sorted, each sequence adds the tokens behind what it shares with its predecessor.

    >>> distinct_prefixes([(1, 2, 3), (1, 2, 4), (1, 2)])
    4
    """
    # big-endian bytes sort as the numbers do, and compare much faster than tuples of Python integers
    packed = sorted({np.asarray(s, dtype=">u4").tobytes() for s in sequences})
    total, previous = 0, np.empty(0, dtype=np.uint32)
    for data in packed:
        current = np.frombuffer(data, dtype=">u4")
        shared = min(len(previous), len(current))
        different = np.flatnonzero(previous[:shared] != current[:shared])
        common = int(different[0]) if len(different) else shared
        total += len(current) - common
        previous = current
    return total
