"""The attention of a decode step: many rows, each one token further, over shared prompts and texts of their own.

A row's keys lie in two places. Its prompt's stand where the prompt was read, once for all rows that share them:
a range of nodes of the trie is one attention call for all rows under it. What the row has written since stands in
pages of its own.

A row's numbers must not depend on who its neighbours are: a draw is then the same text in any batch and after any
resume. Linear layers are given row counts for which every row comes out alike (`steady`). Here, calls see
multiples of eight rows, pages have one size, and a row's keys are merged from the root down, in pieces that the
plan fixes and the company does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from steelyard.engine.packs import Pack
from steelyard.engine.transformers.attention import Call
from steelyard.engine.transformers.pack_pass import Held, PackPass
from steelyard.engine.transformers.softmax import Mask, Merged, attention, kernel
from steelyard.engine.trie import Trie

if TYPE_CHECKING:
    import torch

PAGE = 64  # positions in a page
ROWS = 8  # rows come in multiples of this: the CPU kernel computes remainders of 1 to 3 queries otherwise
_GROUPS = 4  # and so do the heads that share a key head


# ---------------------------------------------------------------------------------------------------- prompts
@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a prompt: places ``first .. last - 1`` of a pack that was read, and the first one's position."""

    pack: int
    first: int
    last: int
    position: int


class PromptPass(PackPass):
    """A pack of prompts, whose keys and values are all kept."""

    def __init__(self, trie: Trie, pack: Pack, held: Held) -> None:
        super().__init__(trie, pack, held)
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def attend(self, layer: int, call: Call) -> torch.Tensor:
        """As `PackPass.attend`; keys and values are kept as they are, without a copy."""
        self.kept[layer] = (call.key, call.value)
        return super().attend(layer, call)


def pieces(trie: Trie, packs: Sequence[Pack], node: int) -> tuple[Piece, ...]:
    """The path to a node, cut where segments and packs end, from the root down."""
    edges = np.array([p.last for p in packs])
    found: list[Piece] = []
    position = 0
    for first, last in trie.path(node):
        a = first
        while a < last:
            pack = int(np.searchsorted(edges, a, side="right"))
            b = min(last, packs[pack].last)
            found.append(Piece(pack, a - packs[pack].first, b - packs[pack].first, position))
            position += b - a
            a = b
    return tuple(found)


# ------------------------------------------------------------------------------------------------------ pages
class Pages:
    """Keys and values that rows have written, by slot.

    Args:
        slots: rows at most, a multiple of `ROWS`.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def write(self, layer: int, slots: torch.Tensor, lengths: torch.Tensor, pages: int, call: Call) -> None:
        """Adds one token's keys and values to each row, at its length; room is made where it is missing."""
        have = self._layers.get(layer)
        if have is None or have[0].shape[1] < pages:
            have = (
                self._grown(have and have[0], call.key, pages),
                self._grown(have and have[1], call.value, pages),
            )
            self._layers[layer] = have
        page, place = lengths // PAGE, lengths % PAGE
        have[0][slots, page, :, place] = call.key[0].transpose(0, 1)
        have[1][slots, page, :, place] = call.value[0].transpose(0, 1)

    def read(self, layer: int, slots: int, pages: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the first slots and pages: shape (slots, pages, key heads, PAGE, width)."""
        keys, values = self._layers[layer]
        return keys[:slots, :pages], values[:slots, :pages]

    def move(self, source: int, target: int) -> None:
        """A row changes its slot."""
        import torch

        with torch.inference_mode():  # as all of these tensors were made
            for keys, values in self._layers.values():
                keys[target] = keys[source]
                values[target] = values[source]

    def clear(self, slot: int) -> None:
        """Zeros in a slot: what is masked is multiplied by zero, which leaves a NaN a NaN."""
        import torch

        with torch.inference_mode():
            for keys, values in self._layers.values():
                keys[slot] = 0
                values[slot] = 0

    def shrink(self, slots: int) -> None:
        """Keeps the first slots only, and frees the others."""
        import torch

        self._slots = slots
        with torch.inference_mode():
            for layer, (keys, values) in self._layers.items():
                self._layers[layer] = (keys[:slots].clone(), values[:slots].clone())

    def _grown(self, old: torch.Tensor | None, like: torch.Tensor, pages: int) -> torch.Tensor:
        # zeros, since a masked place is multiplied by zero and must not hold a NaN
        new = like.new_zeros((self._slots, pages, like.shape[1], PAGE, like.shape[3]))
        if old is not None:
            new[:, : old.shape[1]] = old
        return new


# ------------------------------------------------------------------------------------------------------- step
@dataclass(frozen=True, slots=True)
class Standing:
    """A row of a step.

    Attributes:
        slot: of its pages. prompt: its pieces. read: tokens of the prompt. written: tokens in its pages before
            this step.
    """

    slot: int
    prompt: tuple[Piece, ...]
    read: int
    written: int


def _wide(lse: torch.Tensor) -> torch.Tensor:
    """Log-sum-exps in a precision in which a row's place does not matter.

    On a CPU the last few of a range are computed by other code than the rest (scalar, not vectorised), which gives
    other last bits: a row at the end of a batch would differ from the same row in its middle. In float64 these bits
    are far behind what float32 keeps.
    """
    return lse.double() if lse.device.type == "cpu" else lse


class _Merged(Merged):
    """`Merged` for rows that may stand anywhere."""

    def __init__(self, call: Call) -> None:
        super().__init__(call, filled=False)
        self._lse = _wide(self._lse)

    def merge(self, rows: tuple[int, int], out: torch.Tensor, lse: torch.Tensor) -> None:
        """As `Merged.add` of queries that are not fresh."""
        import torch

        before, more = self._lse[:, :, slice(*rows)], _wide(lse)
        weight = torch.sigmoid(more - before).float()
        self._out[:, :, slice(*rows)].lerp_(out.float(), weight.unsqueeze(-1))
        torch.logaddexp(before, more, out=before)


class DecodePass:
    """The attention of one step.

    Args:
        rows: in the order of their prompts in the trie. Their slots are 0 .. len(rows) - 1 in any order.
        width: rows that the network sees, a multiple of `ROWS` and at least len(rows); the rest is filling.
        prompts: keys and values of read packs, by pack and layer.
        pages: where rows write.
        device: of the network.
    """

    def __init__(
        self,
        rows: Sequence[Standing],
        width: int,
        prompts: dict[int, dict[int, tuple[torch.Tensor, torch.Tensor]]],
        pages: Pages,
        device: str,
    ) -> None:
        import torch

        self._width, self._prompts, self._pages = width, prompts, pages
        filling = range(len(rows), width)
        slots = torch.tensor([*(r.slot for r in rows), *filling], device=device)
        self._slots = slots
        self._lengths = torch.tensor([*(r.written for r in rows), *(0 for _ in filling)], device=device)
        self._read = torch.tensor([*(r.read for r in rows), *(0 for _ in filling)], device=device)
        self.positions = self._read + self._lengths
        self._many = int(self._lengths.max()) // PAGE + 1
        self._inverse = torch.argsort(slots)
        self._in_place = bool((slots == torch.arange(width, device=device)).all())
        self._shared = list(_shared(rows))
        # by device, since a model may be spread over several
        self._there: dict[torch.device, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        self._own: dict[tuple[int | None, torch.device], Mask] = {}
        self._near: dict[tuple[int, int, torch.device], Mask | bool] = {}

    def attend(self, layer: int, call: Call) -> torch.Tensor:
        """See `attention.Attend`."""
        merged = _Merged(call)
        for number, (first, last, piece) in enumerate(self._shared):
            # a window of a multiple of rows; what it computes for rows outside of the range is left
            size = -(-(last - first) // ROWS) * ROWS
            begin = min(first, self._width - size)
            seen = self._seen(number, piece, (begin, begin + size), call)
            if seen is False:
                continue
            keys, values = self._prompts[piece.pack][layer]
            out, lse = attention(
                call,
                call.query[:, :, begin : begin + size],
                keys[:, :, piece.first : piece.last],
                values[:, :, piece.first : piece.last],
                None if seen is True else seen,
            )
            inside = slice(first - begin, last - begin)
            merged.merge((first, last), out[:, :, inside], lse[:, :, inside])
        slots, lengths, _ = self._places(call.key.device)
        self._pages.write(layer, slots, lengths, self._many, call)
        merged.merge((0, self._width), *self._written(layer, call))
        return merged.result()

    def _written(self, layer: int, call: Call) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention to what the rows have written, this step's token included, in the order of the rows."""
        import torch

        _, heads, width, size = call.query.shape
        key_heads = call.key.shape[1]
        groups = heads // key_heads
        padded = -(-groups // _GROUPS) * _GROUPS
        query = call.query.new_zeros((width, key_heads, padded, size))
        slots, _, inverse = self._places(call.query.device)
        ordered = call.query if self._in_place else call.query[:, :, inverse]
        query[:, :, :groups] = ordered.view(key_heads, groups, width, size).permute(2, 0, 1, 3)
        keys, values = (t.flatten(0, 1) for t in self._pages.read(layer, width, self._many))
        many = self._many
        if many > 1:
            query = query.unsqueeze(1).expand(-1, many, -1, -1, -1).flatten(0, 1)
        out, lse = kernel(call, query, keys, values, self._mask(call.window, call.query.device), causal=False)
        out, lse = out[:, :, :groups], lse[:, :, :groups]
        if many > 1:
            out, lse = out.unflatten(0, (width, many)).float(), _wide(lse).unflatten(0, (width, many))
            # page by page, so that a page that a row does not have changes nothing
            whole, total = out[:, 0], lse[:, 0]
            for page in range(1, many):
                whole = torch.lerp(
                    whole, out[:, page], torch.sigmoid(lse[:, page] - total).float().unsqueeze(-1)
                )
                total = torch.logaddexp(total, lse[:, page])
            out, lse = whole, total
        if not self._in_place:
            out, lse = out[slots], lse[slots]
        return out.permute(2, 1, 0, 3), lse.permute(2, 1, 0)

    def _mask(self, window: int | None, device: torch.device) -> Mask:
        """Which places of each page are written (and near enough): shape (slots * pages, 1, 1, PAGE), by slot."""
        import torch

        key = (window, device)
        if key not in self._own:
            _, lengths, inverse = self._places(device)
            lengths = lengths[inverse][:, None]
            places = torch.arange(self._many * PAGE, device=lengths.device)
            seen = places <= lengths
            if window is not None:
                seen &= lengths - places < window
            self._own[key] = Mask(seen.view(-1, 1, 1, PAGE))
        return self._own[key]

    def _places(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Slots and lengths by row, and the row of each slot, on a layer's own device."""
        if device not in self._there:
            slots, lengths, inverse = self._slots, self._lengths, self._inverse
            self._there[device] = (slots.to(device), lengths.to(device), inverse.to(device))
        return self._there[device]

    def _seen(self, number: int, piece: Piece, rows: tuple[int, int], call: Call) -> Mask | bool:
        """Which keys of a piece are in the window of which row; True for all, False for none."""
        import torch

        window = call.window
        if window is None:
            return True
        key = (number, window, call.query.device)
        if key not in self._near:
            positions = self.positions[rows[0] : rows[1], None].to(call.query.device)
            keys = torch.arange(
                piece.position, piece.position + piece.last - piece.first, device=positions.device
            )
            near = positions - keys < window
            self._near[key] = True if near.all() else Mask(near) if near.any() else False
        return self._near[key]


def _shared(rows: Sequence[Standing]) -> Iterator[tuple[int, int, Piece]]:
    """Each piece with the range of rows under it; pieces of one row come from the root down."""
    depth = max((len(r.prompt) for r in rows), default=0)
    for level in range(depth):
        first = 0
        while first < len(rows):
            piece = rows[first].prompt[level] if level < len(rows[first].prompt) else None
            last = first + 1
            while last < len(rows) and level < len(rows[last].prompt) and rows[last].prompt[level] == piece:
                last += 1
            if piece is not None:
                yield first, last, piece
            first = last
