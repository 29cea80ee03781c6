"""The attention of a pack: tiles of one forward pass, for any model of the library.

A query sees its ancestors in the pack and the held keys of earlier packs, and nothing else (`engine.packs`). No mask
of the pack's size is made, and held keys are read where they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from steelyard.engine.packs import Kind, Pack, Tile, ancestors, tiles
from steelyard.engine.transformers.attention import Call
from steelyard.engine.transformers.softmax import Mask, Merged, attention
from steelyard.engine.trie import Trie

if TYPE_CHECKING:
    import torch


class Held:
    """Keys and values of the current root path, by position: what packs to come need of those before.

    Args:
        capacity: positions at most.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._waiting: list[tuple[int, int, torch.Tensor, torch.Tensor]] = []

    def read(self, layer: int, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of shape (1, key heads, last - first, width)."""
        keys, values = self._layers[layer]
        return keys[:, :, first:last], values[:, :, first:last]

    def note(self, layer: int, position: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keeps copies for `commit`. The pack that writes still reads what it overwrites, in every layer."""
        self._waiting.append((layer, position, keys.clone(), values.clone()))

    def commit(self) -> None:
        """The forward pass is over: what was noted is held from now on."""
        for layer, position, keys, values in self._waiting:
            if layer not in self._layers:
                self._layers[layer] = (self._empty(keys), self._empty(values))
            held_keys, held_values = self._layers[layer]
            held_keys[:, :, position : position + keys.shape[2]] = keys
            held_values[:, :, position : position + keys.shape[2]] = values
        self._waiting.clear()

    def forget(self) -> None:
        """The forward pass failed: nothing was noted."""
        self._waiting.clear()

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        return like.new_empty((1, like.shape[1], self._capacity, like.shape[3]))


class PackPass:
    """The attention of one pack's forward pass.

    Args:
        trie, pack: what is computed.
        held: keys of earlier packs; receives what later ones need.
    """

    def __init__(self, trie: Trie, pack: Pack, held: Held) -> None:
        self._trie, self._pack, self._held = trie, pack, held
        self.positions = trie.positions(pack.first, pack.last)
        self._steps = list(ordered(tiles(trie, pack), len(pack)))
        self._mixed = any(mixed for _, _, mixed in self._steps)
        self._masks: dict[tuple[int, int | None, torch.device], Mask | bool] = {}

    def attend(self, layer: int, call: Call) -> torch.Tensor:
        """See `Attend`."""
        merged = Merged(call, filled=not self._mixed)
        for number, (tile, fresh, _) in enumerate(self._steps):
            if tile.kind is Kind.HELD:
                keys, values = self._held.read(layer, *tile.keys)
            else:
                keys, values = (t[:, :, tile.keys[0] : tile.keys[1]] for t in (call.key, call.value))
            queries = call.query[:, :, tile.queries[0] : tile.queries[1]]
            mask = self._mask(number, tile, call)
            if mask is False:
                # wholly out of the window
                if fresh:
                    merged.nothing(tile.queries)
                continue
            causal = tile.kind is Kind.CAUSAL and mask is True
            out, lse = attention(call, queries, keys, values, None if mask is True else mask, causal=causal)
            merged.add(tile.queries, out, lse, fresh=fresh)
        for first, last, position in self._pack.hold:
            a, b = first - self._pack.first, last - self._pack.first
            self._held.note(layer, position, call.key[:, :, a:b], call.value[:, :, a:b])
        return merged.result()

    def _mask(self, number: int, tile: Tile, call: Call) -> Mask | bool:
        """What the tile's queries see: True all of it (as its kind says), False nothing, or a mask."""
        key = (number, call.window, call.query.device)
        if key not in self._masks:
            self._masks[key] = self._make_mask(tile, call)
        return self._masks[key]

    def _make_mask(self, tile: Tile, call: Call) -> Mask | bool:
        import torch

        first = self._pack.first
        queries = self.positions[slice(*tile.queries)]
        keys = np.arange(*tile.keys) if tile.kind is Kind.HELD else self.positions[slice(*tile.keys)]
        near = None
        if call.window is not None and queries.max() - keys.min() >= call.window:
            near = queries[:, None] - keys < call.window
            if not near.any():
                return False
        if tile.kind is Kind.HELD:
            seen = near
        elif tile.kind is Kind.CAUSAL and near is not None:
            seen = near & (np.arange(len(queries))[:, None] >= np.arange(len(keys)))
        elif tile.kind is Kind.CAUSAL:
            seen = None
        else:
            (a, b), (c, d) = tile.queries, tile.keys
            seen = ancestors(self._trie, (first + a, first + b), (first + c, first + d))
            seen = seen if near is None else seen & near
        return True if seen is None else Mask(torch.from_numpy(seen).to(call.query.device))


def ordered(found: Sequence[Tile], size: int) -> Iterator[tuple[Tile, bool, bool]]:
    """Each tile, whether its queries are new to all of them, and whether they are new to some only."""
    covered = np.zeros(size, dtype=bool)
    for tile in found:
        before = covered[slice(*tile.queries)]
        yield tile, not before.any(), bool(before.any() and not before.all())
        covered[slice(*tile.queries)] = True
