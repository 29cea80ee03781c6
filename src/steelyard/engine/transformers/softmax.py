"""Softmax attention over several sets of keys, merged by their log-sum-exps.

A softmax over the union of several key sets follows from the softmax over each and its log-sum-exp l:
``out = sum_t out_t exp(l_t - l)`` with ``l = logsumexp_t l_t`` (Dao et al. 2022, arXiv:2205.14135, section 3.1).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from steelyard.engine.transformers.attention import Call

if TYPE_CHECKING:
    import torch

_NOTHING = -1e30  # the log-sum-exp of no key at all; -inf would turn into NaN when two of them meet
_SCORES = 1 << 24  # attention scores at once at most, in the way that holds them (64 MiB)


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
