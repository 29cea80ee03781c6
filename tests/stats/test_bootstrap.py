"""Ratios of sums and corpus scores: bootstrap against the linearised variance, order, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import InputError
from steelyard.core.rng import stream
from steelyard.stats import corpus_bootstrap, ratio_bootstrap
from steelyard.stats.bootstrap import resampled_sums


def lengths_and_bits(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    size = rng.integers(20, 400, n).astype(float)
    return size * rng.gamma(20, 0.05, n), size


def linearised_se(top: np.ndarray, bottom: np.ndarray) -> float:
    residual = top - top.sum() / bottom.sum() * bottom
    return float(np.sqrt(residual.var(ddof=1) / top.size) / bottom.mean())


def brevity(s: np.ndarray) -> float:
    # not linear in its counts, as BLEU is not
    return float(np.sqrt(s[0] / s[1]) * min(1.0, np.exp(1 - s[2] / s[1])))


def test_ratio_is_the_ratio_of_sums_and_its_error_the_linearised_one():
    bits, size = lengths_and_bits(400)
    e = ratio_bootstrap(bits, size, n_boot=3000, rng=stream(0, "r"))
    assert e.value == pytest.approx(bits.sum() / size.sum(), rel=1e-12)
    assert e.se == pytest.approx(linearised_se(bits, size), rel=0.06)
    assert (e.high - e.low) / 2 == pytest.approx(1.96 * e.se, rel=0.06)
    assert e.low < e.value < e.high
    assert (e.method, e.n_items, e.flags) == ("ratio_bootstrap", 400, ())


def test_a_constant_denominator_makes_it_the_mean():
    y = np.random.default_rng(1).random(200)
    e = ratio_bootstrap(y, np.ones(200), n_boot=3000, rng=stream(0, "m"))
    assert e.se == pytest.approx(y.std(ddof=1) / np.sqrt(200), rel=0.06)


def test_the_interval_covers():
    hits = 0
    rng = np.random.default_rng(2)
    for i in range(200):
        size = rng.integers(20, 400, 60).astype(float)
        bits = size * rng.gamma(20, 0.05, 60)
        e = ratio_bootstrap(bits, size, n_boot=300, rng=stream(i, "c"))
        hits += e.low <= 1.0 <= e.high
    assert 0.88 <= hits / 200 <= 0.99


def test_groups_are_resampled_whole():
    bits, size = lengths_and_bits(100)
    once = ratio_bootstrap(bits, size, n_boot=2000, rng=stream(0, "g"))
    groups = np.repeat(np.arange(100), 4)
    four = ratio_bootstrap(
        np.repeat(bits, 4), np.repeat(size, 4), groups=groups, n_boot=2000, rng=stream(0, "g")
    )
    naive = ratio_bootstrap(np.repeat(bits, 4), np.repeat(size, 4), n_boot=2000, rng=stream(0, "g"))
    assert four.se == pytest.approx(once.se, rel=1e-9)
    assert four.n_groups == 100
    assert naive.se == pytest.approx(once.se / 2, rel=0.1)


def test_the_same_stream_gives_the_same_interval_and_another_one_another():
    bits, size = lengths_and_bits(50)
    one, two, three = (ratio_bootstrap(bits, size, rng=stream(s, "d")) for s in (0, 0, 1))
    assert one == two
    assert one.low != three.low
    assert one.value == three.value


@given(st.permutations(range(12)))
@settings(max_examples=20)
def test_order_of_items_does_not_matter(order):
    bits, size = lengths_and_bits(12)
    one = ratio_bootstrap(bits, size, n_boot=100, rng=stream(0, "o"))
    two = ratio_bootstrap(bits[list(order)], size[list(order)], n_boot=100, rng=stream(0, "o"))
    assert (one.low, one.high, one.se) == pytest.approx((two.low, two.high, two.se), rel=1e-12)


def test_resampled_sums_have_the_mean_and_variance_of_sampling_with_replacement(monkeypatch):
    units = np.arange(20.0).reshape(10, 2) ** 2
    sums = resampled_sums(units, 20_000, stream(0, "s"))
    assert sums.mean(axis=0) == pytest.approx(units.sum(axis=0), rel=0.01)
    assert sums.var(axis=0) == pytest.approx(10 * units.var(axis=0), rel=0.05)
    monkeypatch.setattr("steelyard.stats.bootstrap._CHUNK", 10_007)  # chunks bound memory, not results
    np.testing.assert_array_equal(sums, resampled_sums(units, 20_000, stream(0, "s")))


def test_corpus_score_is_of_the_summed_counts():
    rng = np.random.default_rng(4)
    counts = np.column_stack(
        [rng.integers(0, 9, 300), rng.integers(9, 20, 300), rng.integers(9, 20, 300)]
    ).astype(float)
    e = corpus_bootstrap(counts, brevity, n_boot=2000, rng=stream(0, "b"))
    assert e.value == pytest.approx(brevity(counts.sum(axis=0)))
    assert e.low < e.value < e.high
    total = counts.sum(axis=0)
    gradient = np.array([(brevity(total + d) - brevity(total - d)) / 2e-3 for d in 1e-3 * np.eye(3)])
    linearised = np.sqrt(300) * (counts @ gradient).std(ddof=1)
    assert e.se == pytest.approx(linearised, rel=0.07)
    assert e.method == "corpus_bootstrap"


def test_corpus_score_of_a_ratio_equals_the_ratio():
    bits, size = lengths_and_bits(40)
    one = ratio_bootstrap(bits, size, rng=stream(0, "e"))
    two = corpus_bootstrap(np.column_stack([bits, size]), lambda s: float(s[0] / s[1]), rng=stream(0, "e"))
    assert (one.low, one.high, one.se) == pytest.approx((two.low, two.high, two.se), rel=1e-12)


def test_one_item_one_group_and_no_spread_have_no_interval():
    rng = stream(0, "x")
    one = ratio_bootstrap([3.0], [2.0], rng=rng)
    assert (one.value, one.se, one.low, one.flags) == (1.5, None, None, ("one_item",))
    group = ratio_bootstrap([3.0, 4.0], [2.0, 2.0], groups=["a", "a"], rng=rng)
    assert (group.se, group.flags) == (None, ("one_group",))
    flat = ratio_bootstrap([0.3, 0.6, 0.9], [1.0, 2.0, 3.0], rng=rng)
    assert (flat.se, flat.low, flat.flags) == (0.0, None, ("zero_variance",))
    corpus = corpus_bootstrap([[1.0, 2.0]], lambda s: float(s[0] / s[1]), rng=rng)
    assert corpus.flags == ("one_item",)


def test_resamples_without_a_score_are_counted_not_dropped():
    e = ratio_bootstrap([1.0, 0.0, 0.0], [2.0, 0.0, 0.0], rng=stream(0, "z"))
    assert (e.se, e.low, e.flags) == (None, None, ("undefined_resamples",))
    assert "of 1000 resamples" in e.diagnostics[0]


def test_few_items_are_said():
    bits, size = lengths_and_bits(12)
    e = ratio_bootstrap(bits, size, rng=stream(0, "f"))
    assert e.flags == ("few_items",)
    assert e.low is not None


@pytest.mark.parametrize(
    ("top", "bottom", "message"),
    [
        ([1.0, 2.0], [1.0], "one value per item"),
        ([1.0, float("nan")], [1.0, 1.0], "item 1 have no value"),
        ([1.0, 2.0], [1.0, -1.0], "item 1 are"),
        ([1.0, 2.0], [0.0, 0.0], "sums to 0"),
        ([], [], "at least one item"),
        ([[1.0]], [[1.0]], "shape"),
    ],
)
def test_bad_ratios_are_errors(top, bottom, message):
    with pytest.raises(InputError, match=message):
        ratio_bootstrap(top, bottom, rng=stream(0, "x"))


def test_bad_corpus_input_is_an_error():
    with pytest.raises(InputError, match="shape"):
        corpus_bootstrap([1.0, 2.0], brevity, rng=stream(0, "x"))
    with pytest.raises(InputError, match="item 1 have gaps"):
        corpus_bootstrap([[1.0, 2.0], [None, 1.0]], brevity, rng=stream(0, "x"))
    with pytest.raises(InputError, match="finite"):
        corpus_bootstrap([[1.0], [1.0]], lambda _: float("nan"), rng=stream(0, "x"))
    with pytest.raises(InputError, match="random stream"):
        corpus_bootstrap([[1.0], [1.0]], lambda _: 1.0, rng=None)
