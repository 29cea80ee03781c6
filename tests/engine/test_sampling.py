"""One token drawn: an exact draw from the softmax, which depends on the seed and the step and on nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.rng import stream
from steelyard.core.types import Sampling
from steelyard.engine.transformers import sampling as drawing
from steelyard.engine.transformers.sampling import BLOCK, draw, draw_bits, draw_plainly

TEMPERATURES = st.one_of(
    st.sampled_from([1e-9, 1e-6, 1e-3, 0.3, 1.0, 50.0]),
    st.floats(-9, math.log10(50)).map(lambda x: 10.0**x),
)


@st.composite
def some_logits(draw_one) -> np.ndarray:
    """float32 or float64, of any spread: flat, rounded to ties, some tokens ruled out, one far ahead."""
    rng = np.random.default_rng(draw_one(st.integers(0, 2**32)))
    size = draw_one(st.sampled_from([1, 2, 7, 60, 700, 5000]))
    logits = rng.normal(draw_one(st.sampled_from([0.0, -40.0, 300.0])), 1.0, size)
    logits = logits * draw_one(st.sampled_from([0.0, 1e-7, 0.1, 3.0, 12.0]))
    if draw_one(st.booleans()):
        logits = np.round(logits)
    if draw_one(st.booleans()):
        logits[rng.random(size) < 0.5] = -np.inf
    if draw_one(st.booleans()):
        logits[rng.integers(size)] = 25.0
    if not np.isfinite(logits).any():
        logits[0] = 0.0
    return logits.astype(draw_one(st.sampled_from([np.float32, np.float64])))


# always the same examples: the quick one rounds to float32, and one draw in a million may be as close as that
@settings(max_examples=400, derandomize=True)
@given(
    logits=some_logits(),
    temperature=TEMPERATURES,
    top_k=st.one_of(st.none(), st.integers(1, 400)),
    top_p=st.one_of(st.just(1.0), st.floats(1e-9, 1.0, exclude_min=True)),
    seed=st.integers(0, 2**62),
)
def test_the_quick_draw_is_the_plain_one(logits, temperature, top_k, top_p, seed):
    sampling = Sampling(1, temperature=temperature, top_k=top_k, top_p=top_p)
    for step in range(4):
        token = draw(logits, sampling, seed, step)
        assert token == draw_plainly(logits, sampling, seed, step)
        assert np.isfinite(logits[token])


def test_the_quick_draw_is_the_plain_one_where_tokens_far_behind_do_win():
    # 20,000 tokens 13 nats behind the best have 4 % of the mass
    logits = np.full(20_000, -13.0, dtype=np.float32)
    logits[7] = 0.0
    tokens = [draw(logits, Sampling(1, temperature=1.0), 5, step) for step in range(400)]
    assert tokens == [draw_plainly(logits, Sampling(1, temperature=1.0), 5, step) for step in range(400)]
    expected = 400 * 19_999 * math.exp(-13) / (1 + 19_999 * math.exp(-13))
    assert abs(sum(t != 7 for t in tokens) - expected) < 4 * math.sqrt(expected)


def test_the_numbers_of_a_draw_are_the_raw_bits_of_its_stream():
    bits = draw_bits(11, 3, 1000)
    assert bits.dtype == np.uint64
    assert bits.tolist() == stream(11, "token", 3).bit_generator.random_raw(1000).tolist()
    assert bits.tolist() != draw_bits(11, 4, 1000).tolist()
    assert bits.tolist() != draw_bits(12, 3, 1000).tolist()


def test_draws_over_many_blocks_are_those_of_the_softmax():
    from scipy.stats import chisquare

    rng = np.random.default_rng(5)
    logits = rng.normal(0, 1.5, 3 * BLOCK + 17)
    weights = np.exp(logits / 0.8)
    counts = np.bincount(
        [draw(logits, Sampling(1, temperature=0.8), 3, step) for step in range(20_000)], minlength=logits.size
    )
    often = weights / weights.sum() * 20_000 > 5
    expected = np.append(weights[often], weights[~often].sum()) / weights.sum() * 20_000
    assert chisquare(np.append(counts[often], counts[~often].sum()), expected).pvalue > 1e-3


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(
    ("filters", "kept"), [({}, 5), ({"top_k": 3}, 3), ({"top_p": 0.55}, None)], ids=["all", "top_k", "top_p"]
)
def test_draws_are_those_of_the_softmax(temperature, filters, kept):
    from scipy.stats import chisquare

    logits = np.array([0.4, 2.0, -1.0, 1.2, 0.0, -np.inf])
    sampling = Sampling(1, temperature=temperature, **filters)
    weights = np.exp(logits / temperature)
    if kept is None:
        order = np.argsort(-weights)
        kept = int(np.searchsorted(np.cumsum(weights[order]), 0.55 * weights.sum())) + 1
    weights[np.argsort(-weights)[kept:]] = 0
    # half of the draws over steps of one seed, half over seeds at one step
    tokens = [draw(logits, sampling, 3, t) for t in range(3000)]
    tokens += [draw(logits, sampling, seed, 0) for seed in range(100, 3100)]
    counts = np.bincount(tokens, minlength=6)
    assert counts[weights == 0].sum() == 0
    inside = weights > 0
    if kept > 1:
        expected = weights[inside] / weights.sum() * len(tokens)
        assert chisquare(counts[inside], expected).pvalue > 1e-3


@settings(max_examples=300)
@given(logits=some_logits(), temperature=TEMPERATURES, top_p=st.floats(1e-9, 1.0, exclude_max=True))
def test_top_p_keeps_the_smallest_set_that_holds_its_share(logits, temperature, top_p):
    scores = drawing._scores(logits, temperature)
    kept = drawing._filtered(scores, Sampling(1, temperature=temperature, top_p=top_p))
    assert (np.diff(kept) > 0).all()
    weights = np.exp(scores)
    left = np.delete(scores, kept)
    assert not left.size or left.max() <= scores[kept].min()  # the likeliest ones
    total = weights.sum()
    assert weights[kept].sum() >= top_p * total * (1 - 1e-12)  # enough
    least = weights[kept].min()
    assert weights[kept].sum() - least <= top_p * total * (1 + 1e-12)  # and no token too many


@settings(max_examples=200)
@given(logits=some_logits(), temperature=TEMPERATURES, top_k=st.integers(1, 6000))
def test_top_k_keeps_the_likeliest_and_what_ties_with_the_last(logits, temperature, top_k):
    scores = drawing._scores(logits, temperature)
    kept = drawing._filtered(scores, Sampling(1, temperature=temperature, top_k=top_k))
    possible = np.sort(scores[np.isfinite(scores)])[::-1]
    edge = possible[min(top_k, possible.size) - 1]
    assert kept.tolist() == np.flatnonzero(scores >= edge).tolist()


def test_no_bits_give_an_infinite_number():
    numbers = drawing._gumbel(np.array([0, 1, 2**64 - 1, 2**63], dtype=np.uint64))
    assert np.isfinite(numbers).all()
    assert numbers.argmax() == 2
    assert numbers.argmin() == 0


@pytest.mark.parametrize("temperature", [1e-12, 1e-300, 5e-324])
def test_a_temperature_of_almost_nothing_is_greedy(temperature):
    logits = np.array([-3.0, 11.0, 10.999, -np.inf, 5.0], dtype=np.float32)
    for filters in ({}, {"top_k": 3}, {"top_p": 0.9}):
        sampling = Sampling(1, temperature=temperature, **filters)
        assert {draw(logits, sampling, seed, 0) for seed in range(30)} == {1}


@pytest.mark.parametrize("size", [900, 9000])  # in one thread, and in several
def test_rows_chosen_together_get_what_each_gets_alone(size):
    torch = pytest.importorskip("torch")
    from steelyard.engine.transformers.rows import Job, Running, choose
    from steelyard.engine.transformers.stream import TextStream

    def row(n, temperature):
        job = Job(ids=(1,), sampling=Sampling(9, temperature=temperature), seed=n, limit=9)
        return Running(
            job, TextStream(lambda _: ""), frozenset(), frozenset(), [0] * (n % 3)
        )  # at other steps, too

    rows = [row(n, 0.0 if n % 4 == 0 else 1.0) for n in range(13)]
    logits = torch.randn((13, size), generator=torch.Generator().manual_seed(0))
    logits[5, 3] = math.nan
    logits[6] = -math.inf
    logits[8, 4] = math.inf
    together = choose(logits, rows)
    assert together == [choose(logits[n : n + 1], rows[n : n + 1])[0] for n in range(13)]
    assert [n for n, token in enumerate(together) if token is None] == [5, 6, 8]
    assert together[0] == int(logits[0].argmax())
    assert together[1] == draw(logits[1].numpy(), rows[1].job.sampling, 1, 1)
