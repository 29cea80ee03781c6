"""A trie cut into packs, and the attention of a pack cut into tiles.

A *pack* is a run of nodes in depth-first order: one forward pass. What its nodes need from earlier packs are the
ancestors of its first node, whose keys and values are held by position, so a cut costs nothing: every node is
computed once, wherever the cuts fall.

Who attends to whom is a function of two indices, "is an ancestor or itself" (`ancestors`). A *tile* is a rectangle
of that relation: a range of queries and a range of keys that one attention call handles. Three kinds cover all of
it, each pair exactly once:

* held keys, seen by all queries of the range (they stand on the path to every one of them);
* a segment and its whole subtree, causal from the upper left: in depth-first order the queries behind a segment
  and inside its subtree are exactly those that see all of it;
* a group of small neighbouring subtrees in one square under a mask, where calls would cost more than the
  pairs that the mask throws away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from steelyard.core.errors import InputError
from steelyard.engine.trie import Ints, Trie

# One attention call costs about as much as this many query-key pairs (2 CPU cores, 9 heads of 64: a call of 24
# queries and keys takes 60 us, of 512 6 ms). It decides how work is cut, never what comes out.
CALL = 96 * 96


class Kind(Enum):
    """How a tile's keys are seen by its queries."""

    HELD = "held"  # keys by position, from earlier packs; all are seen
    CAUSAL = "causal"  # query i of the tile sees keys 0 .. i
    MASKED = "masked"  # as `ancestors` says


@dataclass(frozen=True, slots=True)
class Tile:
    """Half-open ranges: queries and keys count nodes from the pack's first; held keys count positions."""

    kind: Kind
    queries: tuple[int, int]
    keys: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Pack:
    """The nodes ``first .. last - 1`` of a trie.

    Attributes:
        above: positions 0 .. above - 1 are held from earlier packs: the ancestors of `first`.
        hold: ``(first, last, position)`` of the nodes of this pack that the next pack needs, at their positions.
    """

    first: int
    last: int
    above: int
    hold: tuple[tuple[int, int, int], ...] = ()

    def __len__(self) -> int:
        """Nodes."""
        return self.last - self.first


def cut(trie: Trie, budget: int) -> list[Pack]:
    """Packs of at most `budget` nodes, together every node once, in order.

    A pack ends where a segment begins, at the shallowest place in the last quarter of the budget, so that little
    has to be held; in a longer segment it ends anywhere.

    Raises:
        InputError: budget below 1.
    """
    if budget < 1:
        raise InputError(f"A pack holds at least 1 token, got {budget}.")
    edges = [0]
    nodes = len(trie)
    while nodes - edges[-1] > budget:
        edges.append(_edge(trie, edges[-1] + budget - budget // 4, edges[-1] + budget))
    edges.append(nodes)
    return [_pack(trie, a, b) for a, b in pairwise(edges) if b > a]


def _edge(trie: Trie, low: int, high: int) -> int:
    a, b = np.searchsorted(trie.start, [low + 1, high + 1])
    if a == b:
        return high
    depths = trie.depth[a:b]
    # of equally shallow places the last one, so that packs are full
    return int(trie.start[b - 1 - int(depths[::-1].argmin())])


def _pack(trie: Trie, first: int, last: int) -> Pack:
    hold: list[tuple[int, int, int]] = []
    if last < len(trie):
        position = 0
        segment = trie.segment(last)
        above = int(trie.parent[segment]) if int(trie.start[segment]) == last else last - 1
        for a, b in trie.path(above):
            if b > first:
                skipped = max(first - a, 0)
                hold.append((a + skipped, b, position + skipped))
            position += b - a
    return Pack(first, last, trie.depth_of(first), tuple(hold))


def needed(trie: Trie, packs: Sequence[Pack], wanted: Collection[int]) -> list[int]:
    """The packs to compute for the sake of some: those, and all that hold an ancestor of theirs, ascending.

    Running them in order is enough: what a pack needs held was written by packs that are in the list.
    """
    edges = np.array([p.last for p in packs])
    found = set(wanted)
    for i in range(len(packs) - 1, -1, -1):
        if i in found:
            for first, last in trie.path(packs[i].first):
                a, b = np.searchsorted(edges, [first, last - 1], side="right")
                found.update(range(int(a), int(b) + 1))
    return sorted(found)


def split(trie: Trie, pack: Pack) -> list[Pack]:
    """Two halves of a pack of at least two nodes, for a memory that the whole is too much for."""
    middle = pack.first + len(pack) // 2
    return [_pack(trie, pack.first, middle), _pack(trie, middle, pack.last)]


def ancestors(trie: Trie, queries: tuple[int, int], keys: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Whether each key is an ancestor of each query, or itself: shape (queries, keys), nodes of the trie.

    Node k is an ancestor of node q exactly if ``k <= q < end(k)``, where ``end(k)`` is one past its subtree.
    """
    q = np.arange(*queries)[:, None]
    k = np.arange(*keys)
    end = trie.end[np.searchsorted(trie.start, k, side="right") - 1]
    return (k <= q) & (q < end)


def tiles(trie: Trie, pack: Pack) -> list[Tile]:
    """The attention of a pack: rectangles that cover every pair of a node and an ancestor once.

    Held keys come first; every query is covered by at least one tile.
    """
    local = _Local.of(trie, pack)
    return [*_held(local, pack.above), *_own(local)]


@dataclass(frozen=True, slots=True)
class _Local:
    """The segments of a pack, cut off at its edges; all but `depth` count nodes from the pack's first."""

    start: list[int]
    stop: list[int]
    end: list[int]
    depth: list[int]
    next: list[int]  # the segment that begins where the subtree ends
    size: int

    @classmethod
    def of(cls, trie: Trie, pack: Pack) -> _Local:
        a, b = trie.segment(pack.first), trie.segment(pack.last - 1) + 1
        start = np.maximum(trie.start[a:b], pack.first)
        depth: Ints = trie.depth[a:b] + start - trie.start[a:b]
        start = start - pack.first
        size = len(pack)
        stop = np.append(start[1:], size)
        end = np.minimum(trie.end[a:b] - pack.first, size)
        after = np.searchsorted(start, end)
        return cls(start.tolist(), stop.tolist(), end.tolist(), depth.tolist(), after.tolist(), size)


def _held(local: _Local, above: int) -> Iterator[Tile]:
    """Held keys: the deeper a position, the fewer queries still stand under it."""
    drops: list[tuple[int, int]] = []  # (position, first query that no longer sees it and what is deeper)
    low = above
    for start, depth in zip(local.start, local.depth, strict=True):
        if depth < low:
            drops.append((low, start))
            low = depth
    drops.append((low, local.size))
    # from the deepest: positions [next, this) are seen by the queries before `until`
    for (high, until), (below, _) in zip(drops, [*drops[1:], (0, 0)], strict=True):
        if high > below:
            yield Tile(Kind.HELD, (0, until), (below, high))


def _own(local: _Local) -> list[Tile]:
    """Causal and masked tiles, chosen from the leaves up by what each costs."""
    count = len(local.start)
    cost = [0] * count
    square = [False] * count
    below: list[list[tuple[int, int, bool]]] = [[]] * count
    for s in range(count - 1, -1, -1):
        length, size = local.stop[s] - local.start[s], local.end[s] - local.start[s]
        groups, price = _group(local, cost, s + 1, local.next[s])
        below[s] = groups
        apart = CALL + length * size - length * (length - 1) // 2 + price
        whole = CALL + size * size
        square[s] = bool(groups) and whole < apart
        cost[s] = min(apart, whole) if groups else apart
    found: list[Tile] = []
    waiting = _group(local, cost, 0, count)[0][::-1]
    while waiting:
        first, last, together = waiting.pop()
        a, b = local.start[first], local.end[last]
        if together or square[first]:
            found.append(Tile(Kind.MASKED, (a, b), (a, b)))
            continue
        found.append(Tile(Kind.CAUSAL, (a, b), (a, local.stop[first])))
        waiting += below[first][::-1]
    return found


def _group(local: _Local, cost: list[int], first: int, last: int) -> tuple[list[tuple[int, int, bool]], int]:
    """The siblings from segment `first` on, alone or several in one square: (first, last, whether a square)."""
    groups: list[tuple[int, int, bool]] = []
    prices: list[int] = []
    s = first
    while s < last:
        size = local.end[s] - local.start[s]
        if groups:
            head = groups[-1][0]
            joint = local.end[s] - local.start[head]
            square = CALL + joint * joint
            # the first condition keeps a row of tiny subtrees from growing one huge, nearly empty square
            if (joint - size) ** 2 < CALL and square < prices[-1] + cost[s]:
                groups[-1], prices[-1] = (head, s, True), square
                s = local.next[s]
                continue
        groups.append((s, s, False))
        prices.append(cost[s])
        s = local.next[s]
    return groups, sum(prices)
