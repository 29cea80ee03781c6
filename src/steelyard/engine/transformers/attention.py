"""Attention over a pack: tiles of one forward pass, merged by log-sum-exp, for any model of the library.

The library lets attention be replaced by name (its attention interface): a layer hands over queries, keys and
values with their positions already in them. Here they belong to a pack of a trie (`engine.packs`), so a query
sees its ancestors in the pack and the held keys of earlier packs, and nothing else. No mask of the pack's size is
made, and held keys are read where they lie.

A softmax over the union of several key sets follows from the softmax over each and its log-sum-exp l:
``out = sum_t out_t exp(l_t - l)`` with ``l = logsumexp_t l_t`` (Dao et al. 2022, arXiv:2205.14135, section 3.1).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from steelyard.engine.packs import Kind, Pack, Tile, ancestors, tiles
from steelyard.engine.trie import Trie

if TYPE_CHECKING:
    import torch

NAME = "steelyard"
_NOTHING = -1e30  # the log-sum-exp of no key at all; -inf would turn into NaN when two of them meet
_SCORES = 1 << 24  # attention scores at once at most, in the way that holds them (64 MiB)
# what layers pass on that has no part in which keys are seen, or is handled here
_HARMLESS = {
    "dropout",
    "position_ids",
    "position_embeddings",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "use_cache",
    "cache",
    "cache_position",
    "past_key_values",
    "logits_to_keep",
    "return_dict",
    "num_items_in_batch",
    "is_causal",
}


class UnshareableError(Exception):
    """A layer asks for an attention that cannot be done over a pack; the text says which."""


class Attend(Protocol):
    """What a forward pass does where its layers attend."""

    def attend(self, layer: int, call: Call) -> torch.Tensor:
        """Output of shape (1, queries, heads, value width), in the queries' dtype."""
        ...


class Call:
    """What one layer hands over.

    Attributes:
        query: shape (1, heads, new, width).
        key: shape (1, key heads, new, width); value: with its own width.
        scale: of the products.
        softcap: bound c of the scores, ``c tanh(s / c)`` (Gemma 2); None for none.
        window: a key at least this many positions back is not seen; None for no limit.
        sinks: shape (heads,): a logit that takes part in each softmax and has no value (gpt-oss); None for none.
    """

    __slots__ = ("key", "query", "scale", "sinks", "softcap", "value", "window")

    def __init__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        window: int | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        self.query, self.key, self.value = query, key, value
        self.scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        self.softcap, self.window, self.sinks = softcap, window, sinks


class Mask:
    """Which keys are seen, with what kernels make of it, so that layers share the making.

    Attributes:
        seen: boolean, broadcast to (batch, heads, queries, keys).
        bias: 0 where seen, -inf elsewhere, float32.
        nothing: queries that see no key, shape as `seen` without the keys; None where every query sees some.
    """

    __slots__ = ("bias", "nothing", "seen")

    def __init__(self, seen: torch.Tensor) -> None:
        import torch

        self.seen = seen.view(*(1,) * (4 - seen.dim()), *seen.shape)
        self.bias = torch.zeros(self.seen.shape, device=seen.device).masked_fill_(~self.seen, -math.inf)
        nothing = ~self.seen.any(dim=-1)
        self.nothing = nothing if bool(nothing.any()) else None


_current: ContextVar[Attend | None] = ContextVar("steelyard_attention", default=None)


def register() -> None:
    """Makes the name known to the library; twice does no harm."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _interface)


@contextlib.contextmanager
def attending(net: Any, how: Attend) -> Iterator[None]:  # noqa: ANN401  a network of an untyped library
    """Within the ``with``, the layers of a network attend as `how` does; afterwards as before."""
    config = net.config
    before = config._attn_implementation  # noqa: SLF001  the library's switch has no public setter that is cheap
    token = _current.set(how)
    config._attn_implementation = NAME  # noqa: SLF001
    try:
        yield
    finally:
        config._attn_implementation = before  # noqa: SLF001
        _current.reset(token)


def _interface(  # noqa: PLR0917  the library calls it so
    module: Any,  # noqa: ANN401
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: torch.Tensor | None = None,
    **others: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, None]:
    how = _current.get()
    layer = getattr(module, "layer_idx", None)
    if how is None or layer is None:
        raise UnshareableError("its attention layers are not numbered")
    if attention_mask is not None:
        raise UnshareableError("it makes an attention mask of its own")
    strange = sorted(name for name, v in others.items() if v is not None and name not in _HARMLESS)
    if strange or others.get("is_causal") is False:
        raise UnshareableError(f"its attention takes {', '.join(strange) or 'keys from both sides'}")
    call = Call(query, key, value, scale=scaling, softcap=softcap, window=sliding_window or None, sinks=s_aux)
    return how.attend(layer, call), None


# ------------------------------------------------------------------------------------------------- held keys
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


# ----------------------------------------------------------------------------------------------- pack passes
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


class Merged:
    """Outputs over several key sets, merged as they come, in float32.

    Args:
        call: for shapes.
        filled: every query's first output comes with ``fresh=True``, so nothing must be filled in.
    """

    def __init__(self, call: Call, *, filled: bool) -> None:
        import torch

        _, heads, size, _ = call.query.shape
        key_heads, width = call.key.shape[1], call.value.shape[-1]
        shape = (heads // key_heads, key_heads, size)
        device = call.query.device
        # in memory: group, query, key head, width, as the CPU kernel writes it
        out = torch.empty((shape[0], size, key_heads, width), dtype=torch.float32, device=device)
        self._out = out.transpose(1, 2)
        self._lse = torch.empty(shape, dtype=torch.float32, device=device)
        self._call = call
        if not filled:
            self.nothing((0, size))

    def nothing(self, queries: tuple[int, int]) -> None:
        """These queries have seen no key yet."""
        self._out[:, :, slice(*queries)] = 0
        self._lse[:, :, slice(*queries)] = _NOTHING

    def add(self, queries: tuple[int, int], out: torch.Tensor, lse: torch.Tensor, *, fresh: bool) -> None:
        """Outputs (group, key head, query, width) and log-sum-exps (group, key head, query) of more keys."""
        import torch

        where = slice(*queries)
        if fresh:
            self._out[:, :, where] = out
            self._lse[:, :, where] = lse
            return
        before = self._lse[:, :, where]
        self._out[:, :, where].lerp_(out.float(), torch.sigmoid(lse - before).unsqueeze(-1))
        torch.logaddexp(before, lse, out=before)

    def result(self) -> torch.Tensor:
        """Shape (1, queries, heads, value width), in the dtype of the queries."""
        out = self._out
        if self._call.sinks is not None:
            sinks = self._call.sinks.float().view(out.shape[1], out.shape[0]).T
            out = out * (self._lse - sinks[:, :, None]).sigmoid().unsqueeze(-1)
        groups, key_heads, size, width = out.shape
        # heads count key heads first: head = key head * groups + group
        joined = out.permute(2, 1, 0, 3).reshape(1, size, key_heads * groups, width)
        return joined.to(self._call.query.dtype)


def attention(
    call: Call,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: Mask | None = None,
    *,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention with its log-sum-exp.

    Args:
        call: scale and soft cap.
        query: shape (1, heads, m, width).
        key: shape (1, key heads, n, width).
        value: shape (1, key heads, n, value width).
        mask: of (m, n); None where all keys are seen.
        causal: query i sees keys 0 .. i; not together with a mask.

    Returns:
        Output (groups, key heads, m, value width) and log-sum-exp (groups, key heads, m) in float32, natural
        logarithm. A query that sees nothing has the output 0.
    """
    _, heads, m, width = query.shape
    key_heads, n = key.shape[1], key.shape[2]
    groups = heads // key_heads
    # grouped heads: the groups become a batch that shares its keys, without a copy of them
    q = query.reshape(key_heads, groups, m, width).transpose(0, 1)
    k = key.expand(groups, key_heads, n, key.shape[3])
    v = value.expand(groups, key_heads, n, value.shape[3])
    return kernel(call, q, k, v, mask, causal=causal)


def kernel(
    call: Call,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask | None,
    *,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`attention` of a batch whose queries and keys have the same heads.

    Args:
        call: scale and soft cap.
        q: shape (batch, heads, m, width).
        k: shape (batch, heads, n, width).
        v: shape (batch, heads, n, value width).
        mask: None where all keys are seen.
        causal: query i sees keys 0 .. i; not together with a mask.
    """
    import torch

    if q.device.type != "cpu" or call.softcap is not None or k.shape[3] != v.shape[3]:
        return _plain(call, q, k, v, mask, causal=causal)
    bias = None
    if mask is not None:
        bias = mask.bias.to(q.dtype).expand(-1, -1, q.shape[2], -1)
    # the operator behind the public call, which keeps the log-sum-exp to itself
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(  # noqa: SLF001
        q, k, v, 0.0, causal, attn_mask=bias, scale=call.scale
    )
    if mask is not None and mask.nothing is not None:
        # the kernel's numbers for a query without keys are not relied on
        out = out.masked_fill(mask.nothing.unsqueeze(-1), 0)
        lse = lse.masked_fill(mask.nothing, _NOTHING)
    return out, lse


def _plain(
    call: Call,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask | None,
    *,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`kernel` written out, for devices and score functions that the CPU's kernel does not have."""
    import torch

    batch, heads, m, _ = q.shape
    n = k.shape[2]
    outs, lses = [], []
    rows = max(1, _SCORES // (batch * heads * n))
    for first in range(0, m, rows):
        part = q[:, :, first : first + rows]
        scores = (part @ k.transpose(-1, -2)).float() * call.scale
        if call.softcap is not None:
            scores = torch.tanh(scores / call.softcap) * call.softcap
        seen = None
        if mask is not None:
            seen = mask.seen if mask.seen.shape[2] == 1 else mask.seen[:, :, first : first + rows]
        if causal:
            at = torch.arange(first, first + part.shape[2], device=q.device)[:, None]
            seen = torch.arange(n, device=q.device) <= at
        if seen is not None:
            scores = scores.masked_fill(~seen, -math.inf)
        peak = scores.amax(-1, keepdim=True).clamp_min(_NOTHING)
        weights = (scores - peak).exp()
        total = weights.sum(-1, keepdim=True)
        outs.append(((weights / total.clamp_min(1e-38)).to(v.dtype) @ v).float())
        lses.append((peak + total.log()).squeeze(-1).clamp_min(_NOTHING))
    return torch.cat(outs, dim=2), torch.cat(lses, dim=2)
