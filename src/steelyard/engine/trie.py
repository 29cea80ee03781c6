"""Requests as a trie: every distinct token prefix is one node, and is computed once.

A request is a concatenation of *parts* (a few-shot block, a question, an option), and a part that many requests
use is stored once: a million requests are a table of three small integers each, and never 700 tokens each.
The trie does not depend on where the parts join: ("ab", "c") and ("a", "bc") are one path.

How it is built. Parts are first cut until none is a proper prefix of another. They then form a prefix code, so
that sorting requests by the ranks of their parts sorts them by their tokens, and neighbours share exactly their
equal leading parts and what the first two different ones have in common. Sorted sequences and the length that
each shares with its predecessor are the trie (as a suffix tree follows from a suffix array and its LCP array;
Kasai et al., 2001).

This module is pure: numpy, no torch, no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steelyard.core.errors import InputError

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Trie:
    """Nodes in depth-first order, so that a subtree is a range and a parent stands before its children.

    Runs of nodes without a branch are *segments*. All of the structure is in the segments; a node's parent is the
    node before it, except at the first node of a segment.

    Attributes:
        tokens: shape (nodes,): the token of each node.
        start: shape (segments,): first node of each segment, ascending; the first is 0.
        depth: shape (segments,): tokens before the segment's first node on its path, which is its position.
        parent: shape (segments,): node that the segment hangs on, -1 at the root.
        end: shape (segments,): one past the last node of the subtree under the segment's first node.
        last: shape (requests,): node of each request's last token, -1 for a request without tokens.
    """

    tokens: Ids
    start: Ints
    depth: Ints
    parent: Ints
    end: Ints
    last: Ints

    def __len__(self) -> int:
        """Nodes: the tokens that must be computed."""
        return len(self.tokens)

    @property
    def deepest(self) -> int:
        """Tokens on the longest path."""
        lengths = np.diff(np.append(self.start, len(self.tokens)))
        return int((self.depth + lengths).max()) if len(lengths) else 0

    def segment(self, node: int) -> int:
        """The segment that a node is in."""
        return int(np.searchsorted(self.start, node, side="right")) - 1

    def depth_of(self, node: int) -> int:
        """Tokens before a node on its path."""
        segment = self.segment(node)
        return int(self.depth[segment] + node - self.start[segment])

    def path(self, node: int) -> list[tuple[int, int]]:
        """Ranges of nodes from the root down to a node, the node included; empty for -1.

        Their lengths add up to ``depth_of(node) + 1``.
        """
        ranges: list[tuple[int, int]] = []
        while node >= 0:
            segment = self.segment(node)
            first = int(self.start[segment])
            ranges.append((first, node + 1))
            node = int(self.parent[segment])
        return ranges[::-1]

    def positions(self, first: int, last: int) -> Ints:
        """Depths of the nodes ``first .. last - 1``, as shape (last - first,)."""
        a, b = self.segment(first), self.segment(last - 1) + 1
        starts = np.maximum(self.start[a:b], first)
        lengths = np.diff(np.append(starts, last))
        offset = self.depth[a:b] + starts - self.start[a:b]
        return np.repeat(offset - (starts - first), lengths) + np.arange(last - first)


def build(sequences: Sequence[Sequence[int]]) -> Trie:
    """The trie of some token sequences, each taken whole.

    Raises:
        InputError: a sequence is no list of token ids in 0 .. 2^31 - 1.

    >>> trie = build([(1, 2, 3), (1, 2, 4), (1, 2)])
    >>> trie.tokens.tolist(), trie.last.tolist(), trie.depth.tolist()
    ([1, 2, 3, 4], [2, 3, 1], [0, 2, 2])
    """
    place: dict[bytes, int] = {}
    parts: list[Ids] = []
    rows = np.full((len(sequences), 1), -1, dtype=np.int64)
    for row, sequence in enumerate(sequences):
        tokens = _tokens(sequence, f"Sequence {row}")
        key = tokens.tobytes()
        if key not in place:
            place[key] = len(parts)
            parts.append(tokens)
        rows[row, 0] = place[key]
    return build_parts(parts, rows)


def build_parts(parts: Sequence[npt.ArrayLike], rows: npt.ArrayLike) -> Trie:
    """The trie of requests that are concatenations of shared parts.

    A million requests of 100 stems, 2,500 questions and 10,000 options take some seconds.

    Args:
        parts: token ids of each part, each of shape (n,), n >= 0, ids in 0 .. 2^31 - 1.
        rows: shape (requests, parts per request) of indices into `parts`; -1 is no part.

    Raises:
        InputError: `rows` is no such table, or an index or a token id is out of range.

    >>> trie = build_parts([(1, 2), (3,), (2, 3)], [[0, 1], [0, -1]])
    >>> trie.tokens.tolist(), trie.last.tolist()
    ([1, 2, 3], [2, 1])
    """
    arrays = [_tokens(part, f"Part {i}") for i, part in enumerate(parts)]
    given = np.asarray(rows)
    if given.ndim != 2:
        raise InputError(f"rows must have the shape (requests, parts per request), got {given.shape}.")
    if given.size and given.dtype.kind not in "iu":
        raise InputError(f"rows must hold whole numbers, indices of parts or -1; got {given.dtype}.")
    table = given.astype(np.int64)
    if table.size and (table.min() < -1 or table.max() >= len(arrays)):
        raise InputError(
            f"rows holds indices from {table.min()} to {table.max()}; there are {len(arrays)} parts, and -1 is none."
        )
    arrays, pointer, flat = _prefix_free(arrays, table)
    ranked, order, distinct = _sorted(pointer, flat)
    if not len(ranked):
        return _no_nodes(len(table))
    lengths = np.array([len(a) for a in arrays], dtype=np.int64)
    shared = _shared(ranked, arrays, lengths)
    total = np.where(ranked >= 0, lengths[ranked], 0).sum(axis=1)
    trie = _from_shared(arrays, lengths, ranked, shared, total)
    last = np.full(len(table), -1, dtype=np.int64)
    last[order] = trie.last[distinct]
    return Trie(trie.tokens, trie.start, trie.depth, trie.parent, trie.end, last)


# ------------------------------------------------------------------------------------------- a prefix code
def _tokens(part: npt.ArrayLike, name: str) -> Ids:
    array = np.asarray(part)
    if array.size == 0:
        return np.empty(0, dtype=np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{name} must be a list of token ids; got {array.dtype} of shape {array.shape}.")
    if array.min() < 0 or array.max() > np.iinfo(np.int32).max:
        raise InputError(
            f"{name} holds token ids from {array.min()} to {array.max()}; they go from 0 to 2^31 - 1."
        )
    return array.astype(np.int32, copy=False)


def _prefix_free(arrays: list[Ids], table: Ints) -> tuple[list[Ids], Ints, Ints]:
    """Distinct parts of which none is a proper prefix of another, sorted, and the requests made of them.

    Returns:
        The parts in the order of their tokens, and the requests as ``flat[pointer[i]:pointer[i + 1]]``.
    """
    flat = table.ravel()
    pointer = np.arange(len(table) + 1, dtype=np.int64) * table.shape[1]
    used = np.unique(flat[flat >= 0])
    keys = {int(i): arrays[i].astype(">i4").tobytes() for i in used}  # big-endian bytes sort as numbers do
    pieces: dict[bytes, tuple[bytes, ...]] = {}  # of a part that has others as proper prefixes
    known = {key for key in keys.values() if key}
    waiting = known
    while waiting:
        # a rest that is cut off may begin with a part, or a part with it, so all are looked through again
        waiting = set()
        stack: list[bytes] = []
        for key in sorted(known):
            while stack and not key.startswith(stack[-1]):
                stack.pop()
            if stack:
                rest = key[len(stack[-1]) :]
                pieces[key] = (stack[-1], rest)
                known.discard(key)
                if rest not in known and rest not in pieces:
                    waiting.add(rest)
            else:
                stack.append(key)
        known |= waiting
    ordered = sorted(known)
    rank = {key: i for i, key in enumerate(ordered)}
    expanded: list[list[int]] = [[] for _ in range(len(arrays))]
    for i, key in keys.items():
        expanded[i] = [rank[atom] for atom in _atoms(key, pieces, rank)]
    counts = np.array([len(e) for e in expanded] + [0], dtype=np.int64)  # the last stands for -1
    atoms = np.array([a for e in expanded for a in e], dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(counts)])[:-1]
    each = counts[flat]
    ends = np.cumsum(each)
    spread = np.repeat(first[flat] - (ends - each), each) + np.arange(int(each.sum()))
    edges = np.concatenate([[0], ends])
    return [np.frombuffer(k, dtype=">i4").astype(np.int32) for k in ordered], edges[pointer], atoms[spread]


def _atoms(key: bytes, pieces: dict[bytes, tuple[bytes, ...]], rank: dict[bytes, int]) -> Iterable[bytes]:
    waiting = [key] if key else []
    while waiting:
        now = waiting.pop()
        if now in rank:
            yield now
        else:
            waiting += reversed(pieces[now])


# ------------------------------------------------------------------------------- sorted, and what is shared
def _sorted(pointer: Ints, flat: Ints) -> tuple[Ints, Ints, Ints]:
    """Distinct non-empty requests in token order.

    Returns:
        Their parts, padded with -1 on the right; the rows of the original table that are not empty; and for each
        of those the number of its distinct request.
    """
    counts = np.diff(pointer)
    filled = np.flatnonzero(counts)
    if not len(filled):
        return np.empty((0, 0), dtype=np.int64), filled, filled
    width = int(counts.max())
    table = np.full((len(filled), width), -1, dtype=np.int64)
    columns = np.arange(len(flat)) - np.repeat(pointer[:-1], counts)
    table[np.repeat(np.cumsum(counts > 0) - 1, counts), columns] = flat
    order = np.lexsort(table.T[::-1])
    table = table[order]
    new = np.ones(len(table), dtype=bool)
    new[1:] = (table[1:] != table[:-1]).any(axis=1)
    return table[new], filled[order], np.cumsum(new) - 1


def _shared(ranked: Ints, arrays: list[Ids], lengths: Ints) -> Ints:
    """Tokens that each request shares with the one before it; 0 for the first."""
    shared = np.zeros(len(ranked), dtype=np.int64)
    if len(ranked) < 2:
        return shared
    column = (ranked[1:] != ranked[:-1]).argmax(axis=1)
    before = np.concatenate(
        [
            np.zeros((len(ranked), 1), dtype=np.int64),
            np.cumsum(np.where(ranked >= 0, lengths[ranked], 0), axis=1),
        ],
        axis=1,
    )
    place = np.arange(1, len(ranked))
    shared[1:] = before[place, column]
    pairs = np.stack([ranked[place - 1, column], ranked[place, column]], axis=1)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    common = np.array([_common(arrays[a], arrays[b]) if a >= 0 else 0 for a, b in distinct], dtype=np.int64)
    shared[1:] += common[inverse.ravel()]
    return shared


def _common(a: Ids, b: Ids) -> int:
    size = min(len(a), len(b))
    if a[0] != b[0]:
        return 0
    different = np.flatnonzero(a[:size] != b[:size])
    return int(different[0]) if len(different) else size


# ------------------------------------------------------------------------------------------------ the trie
def _from_shared(arrays: list[Ids], lengths: Ints, ranked: Ints, shared: Ints, total: Ints) -> Trie:
    """Segments from sorted requests; `last` is that of each distinct request."""
    fresh = total - shared  # nodes that each request adds to those before it
    begin = np.cumsum(fresh) - fresh
    tokens = np.concatenate(list(_fresh_tokens(arrays, lengths, ranked, shared)))
    parent = np.full(len(ranked), -1, dtype=np.int64)
    path: list[tuple[int, int]] = []  # (depth, node) where each run on the current path begins
    for i, (depth, node) in enumerate(zip(shared.tolist(), begin.tolist(), strict=True)):
        while path and path[-1][0] >= depth:
            path.pop()
        if path:
            parent[i] = path[-1][1] + depth - 1 - path[-1][0]
        path.append((depth, node))
    # a run is cut where another one hangs on it, unless it ends there
    ends = begin + fresh
    owner = np.searchsorted(begin, parent, side="right") - 1
    inside = (parent >= 0) & (parent + 1 < ends[owner])
    cuts = np.setdiff1d(np.unique(parent[inside] + 1), begin)
    start = np.union1d(begin, cuts)
    run = np.searchsorted(begin, start, side="right") - 1
    depth = shared[run] + start - begin[run]
    above = np.where(start == begin[run], parent[run], start - 1)
    # a run that goes on where another one ends, alone, is no branch
    _, which, children = np.unique(above, return_inverse=True, return_counts=True)
    branch = (above < 0) | (children[which] > 1)
    start, depth, above = start[branch], depth[branch], above[branch]
    return Trie(tokens, start, depth, above, _ends(start, depth, int(ends[-1])), ends - 1)


def _fresh_tokens(arrays: list[Ids], lengths: Ints, ranked: Ints, shared: Ints) -> Iterable[Ids]:
    for row, known in zip(ranked.tolist(), shared.tolist(), strict=True):
        skip = known
        for atom in row:
            if atom < 0:
                break
            size = int(lengths[atom])
            if skip < size:
                yield arrays[atom][skip:]
            skip = max(skip - size, 0)


def _ends(start: Ints, depth: Ints, nodes: int) -> Ints:
    """One past each subtree: the next segment that begins no deeper."""
    end = np.full(len(start), nodes, dtype=np.int64)
    open_: list[tuple[int, int]] = []  # (depth, segment)
    for segment, (d, first) in enumerate(zip(depth.tolist(), start.tolist(), strict=True)):
        while open_ and open_[-1][0] >= d:
            end[open_.pop()[1]] = first
        open_.append((d, segment))
    return end


def _no_nodes(requests: int) -> Trie:
    none = np.empty(0, dtype=np.int64)
    return Trie(np.empty(0, dtype=np.int32), none, none, none, none, np.full(requests, -1, dtype=np.int64))
