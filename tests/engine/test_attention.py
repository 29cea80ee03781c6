"""Attention over a pack: each kernel against a softmax in float64, and tiles against one softmax over all keys."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.engine import packs
from steelyard.engine.packs import cut
from steelyard.engine.transformers import attention as module
from steelyard.engine.transformers import softmax
from steelyard.engine.transformers.attention import Call, UnshareableError, attending, register
from steelyard.engine.transformers.pack_pass import Held, PackPass
from steelyard.engine.transformers.softmax import Mask, Merged, _plain, attention, kernel
from steelyard.engine.trie import build


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a call; `value` is the values' width."""

    key_heads: int = 2
    groups: int = 3
    queries: int = 5
    keys: int = 7
    width: int = 8
    value: int = 8


SHAPES = st.builds(
    Shape,
    key_heads=st.integers(1, 3),
    groups=st.integers(1, 3),
    queries=st.integers(1, 40),
    keys=st.integers(1, 70),
    width=st.sampled_from([4, 8, 24]),
    value=st.sampled_from([4, 8, 24]),
)
SEEDS = st.integers(0, 2**31)


def tensors(shape: Shape, seed: int, spread: float = 1.0, dtype=torch.float32):
    """Queries (1, heads, m, width), keys and values (1, key heads, n, width)."""
    dice = torch.Generator().manual_seed(seed)

    def new(heads, length, width):
        return (torch.randn((1, heads, length, width), generator=dice) * spread).to(dtype)

    heads = shape.key_heads * shape.groups
    return (
        new(heads, shape.queries, shape.width),
        new(shape.key_heads, shape.keys, shape.width),
        new(shape.key_heads, shape.keys, shape.value),
    )


def exact(query, key, value, seen, *, scale, softcap=None, sinks=None):
    """Attention in float64, one query and head at a time; `seen` is (queries, keys).

    Returns (heads, queries, value width) and the log-sum-exp of the scores (heads, queries).
    """
    q, k, v = (t[0].double().numpy() for t in (query, key, value))
    groups = len(q) // len(k)
    out = np.zeros((len(q), q.shape[1], v.shape[2]))
    lse = np.full(out.shape[:2], -np.inf)
    for head in range(len(q)):
        for i in range(q.shape[1]):
            scores = k[head // groups] @ q[head, i] * scale
            scores = scores if softcap is None else np.tanh(scores / softcap) * softcap
            scores = np.where(seen[i], scores, -np.inf)
            if not seen[i].any():
                continue
            lse[head, i] = np.logaddexp.reduce(scores)
            bottom = lse[head, i] if sinks is None else np.logaddexp(lse[head, i], float(sinks[head]))
            out[head, i] = np.exp(scores - bottom) @ v[head // groups]
    return out, lse


def by_head(out, lse):
    """What `attention` returns, (groups, key heads, ...), as (heads, ...)."""
    return out.transpose(0, 1).flatten(0, 1), lse.transpose(0, 1).flatten(0, 1)


def close(got, want, tolerance=1e-5) -> None:
    assert got.shape == want.shape
    assert np.abs(got.double().numpy() - want).max() < tolerance


def mask_of(shape: Shape, seed: int, share: float) -> torch.Tensor:
    return torch.rand((shape.queries, shape.keys), generator=torch.Generator().manual_seed(seed)) < share


def same_lse(got, want) -> None:
    """Equal where a key is seen; where none is, so small that it weighs nothing beside any other."""
    found = got.double().numpy()
    some = np.isfinite(want)
    assert np.abs(found[some] - want[some]).max(initial=0) < 1e-5
    assert np.isfinite(found).all()
    assert (found[~some] < -1e20).all()


# ------------------------------------------------------------------------------------------------- one call
@settings(max_examples=40)
@given(SHAPES, SEEDS, st.sampled_from([None, 0.0, 0.1, 0.5, 1.0]))
def test_both_kernels_are_the_softmax_of_float64_under_any_mask(shape, seed, share):
    query, key, value = tensors(shape, seed)
    call = Call(query, key, value)
    seen = torch.ones((shape.queries, shape.keys), dtype=torch.bool)
    mask = None
    if share is not None:
        seen = mask_of(shape, seed, share)
        mask = Mask(seen)
    want, lse = exact(query, key, value, seen.numpy(), scale=shape.width**-0.5)
    out, found = by_head(*attention(call, query, key, value, mask))
    close(out, want)
    same_lse(found, lse)
    # rows that see nothing have the output 0 exactly, and are no NaN
    assert (out[:, ~seen.any(-1)] == 0).all()


@settings(max_examples=30)
@given(SHAPES, SEEDS)
def test_a_causal_tile_counts_from_the_upper_left_with_fewer_or_more_queries_than_keys(shape, seed):
    query, key, value = tensors(shape, seed)
    seen = np.tri(shape.queries, shape.keys, dtype=bool)
    want, lse = exact(query, key, value, seen, scale=shape.width**-0.5)
    out, found = by_head(*attention(Call(query, key, value), query, key, value, causal=True))
    close(out, want)
    same_lse(found, lse)


@settings(max_examples=25)
@given(SHAPES, SEEDS, st.booleans(), st.sampled_from([None, 0.0, 0.3]))
def test_the_written_out_kernel_agrees_with_the_fast_one(shape, seed, causal, share):
    shape = dataclasses.replace(shape, value=shape.width)
    query, key, value = tensors(shape, seed)
    q = query.view(1, shape.key_heads, -1, *query.shape[2:]).transpose(1, 2).flatten(0, 1)
    k, v = (t.expand(shape.groups, -1, -1, -1) for t in (key, value))
    call = Call(query, key, value, scale=0.4)
    mask = None if share is None or causal else Mask(mask_of(shape, seed, share))
    for got, want in zip(
        kernel(call, q, k, v, mask, causal=causal), _plain(call, q, k, v, mask, causal=causal), strict=True
    ):
        assert got.shape == want.shape
        assert torch.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("share", [None, 0.4])
def test_the_written_out_kernel_may_hold_any_number_of_rows_at_once(monkeypatch, causal, share):
    shape = Shape(queries=23, keys=31, groups=1)
    q, k, v = tensors(shape, 1)
    mask = None if share is None or causal else Mask(mask_of(shape, 1, share))
    call = Call(q, k, v)
    whole = _plain(call, q, k, v, mask, causal=causal)
    for most in (1, 7 * 2 * 31, 22 * 2 * 31):
        monkeypatch.setattr(softmax, "_SCORES", most)
        for got, want in zip(_plain(call, q, k, v, mask, causal=causal), whole, strict=True):
            assert torch.allclose(got, want, atol=1e-6)


def test_a_mask_of_single_rows_may_be_one_for_every_query(monkeypatch):
    """As pages have it: what is written is seen by all heads of a row."""
    monkeypatch.setattr(softmax, "_SCORES", 3 * 2 * 11)
    q, k, v = tensors(Shape(queries=8, keys=11, groups=1), 3)
    seen = torch.arange(11) < 4
    mask = Mask(seen.view(1, 1, 1, 11))
    want, lse = exact(q, k, v, np.broadcast_to(seen.numpy(), (8, 11)), scale=8**-0.5)
    for way in (kernel, _plain):
        out, found = way(Call(q, k, v), q, k, v, mask, causal=False)
        close(out[0], want)
        same_lse(found[0], lse)


@settings(max_examples=20)
@given(SHAPES, SEEDS, st.sampled_from([0.5, 2.0, 30.0]), st.sampled_from([0.05, 1.0]))
def test_a_soft_cap_bounds_the_scores_before_the_softmax(shape, seed, cap, scale):
    query, key, value = tensors(shape, seed, spread=3.0)
    seen = mask_of(shape, seed, 0.6)
    want, lse = exact(query, key, value, seen.numpy(), scale=scale, softcap=cap)
    call = Call(query, key, value, scale=scale, softcap=cap)
    out, found = by_head(*attention(call, query, key, value, Mask(seen)))
    close(out, want, 3e-5)
    same_lse(found, lse)


@pytest.mark.parametrize("spread", [40.0, 1e4])
@pytest.mark.parametrize("value", [8, 5])
def test_huge_scores_neither_overflow_nor_hide_what_is_seen(spread, value):
    """Scores near 1e9: the log-sum-exp of "no key" must still be far below them."""
    shape = Shape(value=value)
    query, key, values = tensors(shape, 5, spread=spread)
    seen = mask_of(shape, 5, 0.5)
    out, lse = by_head(*attention(Call(query, key, values), query, key, values, Mask(seen)))
    assert out.isfinite().all()
    assert (lse[:, seen.any(-1)] > -1e15).all()
    merged = Merged(Call(query, key, values), filled=False)
    merged.add(
        (0, shape.queries), *attention(Call(query, key, values), query, key, values, Mask(seen)), fresh=False
    )
    # the output as (1, queries, heads, width)
    assert torch.allclose(merged.result()[0].transpose(0, 1), out)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_merged_in_float32_and_come_back_in_their_own(dtype):
    shape = Shape(queries=6, keys=6)
    query, key, value = tensors(shape, 2, dtype=dtype)
    call = Call(query, key, value)
    want, _ = exact(query, key, value, np.ones((6, 6), dtype=bool), scale=8**-0.5)
    merged = Merged(call, filled=False)
    for a, b in ((0, 2), (2, 6)):
        out, lse = attention(call, query, key[:, :, a:b], value[:, :, a:b])
        assert lse.dtype == torch.float32
        merged.add((0, 6), out, lse, fresh=False)
    result = merged.result()
    assert result.dtype == dtype
    close(result[0].transpose(0, 1), want, 0.03)


# ------------------------------------------------------------------------------------------------- merging
@settings(max_examples=30)
@given(SHAPES, SEEDS, st.data())
def test_key_sets_in_any_number_of_pieces_merge_to_one_softmax(shape, seed, data):
    query, key, value = tensors(shape, seed)
    heads = query.shape[1]
    sinks = torch.randn(heads, generator=torch.Generator().manual_seed(seed)) if seed % 2 else None
    call = Call(query, key, value, sinks=sinks)
    seen = mask_of(shape, seed, 0.7)
    edges = sorted({0, shape.keys, *data.draw(st.lists(st.integers(0, shape.keys), max_size=4))})
    merged = Merged(call, filled=False)
    for a, b in itertools.pairwise(edges):
        out, lse = attention(call, query, key[:, :, a:b], value[:, :, a:b], Mask(seen[:, a:b]))
        merged.add((0, shape.queries), out, lse, fresh=False)
    want, _ = exact(query, key, value, seen.numpy(), scale=shape.width**-0.5, sinks=sinks)
    result = merged.result()
    assert result.shape == (1, shape.queries, heads, shape.value)
    close(result[0].transpose(0, 1), want)


# ---------------------------------------------------------------------------------------------- whole packs
TRIES = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), min_size=1, max_size=8
).flatmap(lambda tails: st.integers(0, 25).map(lambda n: build([(1,) * n + tail for tail in tails])))


@settings(max_examples=60)
@given(
    TRIES,
    SEEDS,
    st.tuples(st.integers(1, 30), st.sampled_from([0, 20, 1000])),
    st.sampled_from([None, 1, 3, 12]),
    st.sampled_from([{}, {"softcap": 2.0}, {"sinks": True}, {"value": 5}]),
)
def test_packs_give_each_node_the_softmax_over_its_ancestors_near_enough(trie, seed, cuts, window, extra):
    budget, call_cost = cuts
    shape = Shape(groups=2, queries=len(trie), keys=len(trie), value=extra.get("value", 8))
    query, key, value = tensors(shape, seed)
    heads = query.shape[1]
    sinks = torch.linspace(-1, 2, heads) if "sinks" in extra else None
    keywords = {"softcap": extra.get("softcap"), "window": window, "sinks": sinks}
    depth = trie.positions(0, len(trie))
    seen = np.zeros((len(trie), len(trie)), dtype=bool)
    for node in range(len(trie)):
        for a, b in trie.path(node):
            seen[node, a:b] = True
    if window is not None:
        seen &= depth[:, None] - depth < window
    want, _ = exact(
        query, key, value, seen, scale=shape.width**-0.5, softcap=extra.get("softcap"), sinks=sinks
    )
    held = Held(trie.deepest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "CALL", call_cost)
        for pack in cut(trie, budget):
            how = PackPass(trie, pack, held)
            assert how.positions.tolist() == depth[pack.first : pack.last].tolist()
            part = slice(pack.first, pack.last)
            for layer in (0, 1):  # a second layer must find its own keys
                sign = 1 if layer == 0 else -1
                call = Call(query[:, :, part], key[:, :, part] * sign, value[:, :, part] * sign, **keywords)
                out = how.attend(layer, call)
                if layer == 0:
                    close(out[0].transpose(0, 1), want[:, part])
            held.commit()


def test_a_failed_pass_leaves_what_was_held_before():
    held = Held(4)
    one = torch.ones((1, 1, 2, 3))
    held.note(0, 0, one, one)
    held.commit()
    held.note(0, 0, one * 5, one * 5)
    held.forget()
    held.commit()
    assert (held.read(0, 0, 2)[0] == 1).all()


# ------------------------------------------------------------------------------------------- the interface
class Module:
    """A layer as the library hands it over."""

    layer_idx = 0


class How:
    """Keeps the call."""

    def attend(self, layer, call):
        self.layer, self.call = layer, call
        return call.query


class Net:
    """Has a configuration and nothing else."""

    def __init__(self):
        self.config = type("Config", (), {"_attn_implementation": "sdpa"})()


def handed_over(**keywords):
    q, k, v = tensors(Shape(), 0)
    how, net = How(), Net()
    with attending(net, how):
        module._interface(Module(), q, k, v, keywords.pop("attention_mask", None), **keywords)
    assert net.config._attn_implementation == "sdpa"
    return how.call


def test_what_a_layer_hands_over_arrives_under_its_name():
    sinks = torch.zeros(6)
    call = handed_over(scaling=0.3, softcap=50.0, sliding_window=7, s_aux=sinks, dropout=0.0, is_causal=True)
    assert (call.scale, call.softcap, call.window) == (0.3, 50.0, 7)
    assert call.sinks is sinks
    plain = handed_over(sliding_window=0, position_ids=torch.zeros(1))
    assert (plain.scale, plain.softcap, plain.window, plain.sinks) == (8**-0.5, None, None, None)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"attention_mask": torch.zeros(1)}, "makes an attention mask of its own"),
        ({"position_bias": torch.zeros(1)}, "its attention takes position_bias"),
        ({"head_mask": 1, "alibi": 2}, "takes alibi, head_mask"),
        ({"is_causal": False}, "keys from both sides"),
    ],
)
def test_what_a_pack_cannot_do_is_refused_by_name_and_never_ignored(keywords, said):
    with pytest.raises(UnshareableError, match=said):
        handed_over(**keywords)


def test_the_network_attends_as_before_when_a_pass_fails():
    net = Net()

    def broken():
        with attending(net, How()):
            assert net.config._attn_implementation == module.NAME
            raise RuntimeError("broke")

    with pytest.raises(RuntimeError, match="broke"):
        broken()
    assert net.config._attn_implementation == "sdpa"
    with pytest.raises(UnshareableError, match="not numbered"):
        module._interface(Module(), *tensors(Shape(), 0), None)


def test_registering_twice_does_no_harm():
    from transformers import AttentionInterface

    register()
    register()
    assert AttentionInterface()[module.NAME] is module._interface


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_what_the_cpu_gives():
    shape = Shape(queries=33, keys=41)
    query, key, value = tensors(shape, 1)
    mask = Mask(mask_of(shape, 1, 0.4))
    want = attention(Call(query, key, value), query, key, value, mask)
    query, key, value = (t.cuda() for t in (query, key, value))
    got = attention(Call(query, key, value), query, key, value, Mask(mask_of(shape, 1, 0.4).cuda()))
    for a, b in zip(got, want, strict=True):
        assert math.isclose(float((a.cpu() - b).abs().max()), 0, abs_tol=1e-4)
