"""The result type, means of any range, chance levels, and what importing the package costs."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steelyard.stats
from steelyard.core.errors import InputError
from steelyard.stats import Estimate, chance_level, mean_t, score_interval, total_t

nats = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=20)


# ------------------------------------------------------------------------------------------------- Estimate
def test_an_estimate_goes_to_json_without_nan():
    e = score_interval([1, 0, 1, 1])
    data = json.loads(json.dumps(e.to_json(), allow_nan=False))
    assert data["value"] == 0.75
    assert data["within"] is None
    assert data["diagnostics"] == list(e.diagnostics)
    assert set(data) >= {"se", "low", "high", "level", "n_items", "n_samples", "method", "flags", "n_eff"}


@pytest.mark.parametrize(
    "fields",
    [
        {"value": float("nan")},
        {"value": 0.5, "se": float("inf")},
        {"value": 0.5, "low": 0.1},
        {"value": 0.5, "low": 0.9, "high": 0.1},
        {"value": 0.5, "flags": ("x",)},
    ],
)
def test_an_estimate_refuses_nan_half_an_interval_and_flags_without_a_sentence(fields):
    with pytest.raises(ValueError, match=r"must|together|sentence"):
        Estimate(**{"n_items": 1, "n_samples": 1, "method": "t", **fields})


def test_an_estimate_prints_its_interval_or_the_reason_for_none():
    assert f"{score_interval([1] * 50):.1%}" == "100.0% [92.9%, 100.0%]"
    assert "no interval: one item has no spread" in str(score_interval([1]))
    assert str(Estimate(value=2.0, n_items=1, n_samples=1, method="t")) == "2.0000 [no interval]"


def test_an_estimate_cannot_be_changed():
    with pytest.raises(AttributeError):
        score_interval([1, 0]).value = 1.0


# ---------------------------------------------------------------------------------------------------- means
def test_mean_t_is_the_textbook_interval():
    e = mean_t([-3.0, -1.0, -2.0, -2.0, -4.0])
    assert e.value == pytest.approx(-2.4)
    assert e.se == pytest.approx(np.std([-3, -1, -2, -2, -4], ddof=1) / np.sqrt(5))
    assert e.high - e.value == pytest.approx(2.776445105 * e.se, rel=1e-8)


@given(nats, st.floats(0.01, 100), st.floats(-100, 100))
@settings(max_examples=60)
def test_mean_t_moves_with_scale_and_shift(values, scale, shift):
    x = np.round(np.array(values), 3)
    e, f = mean_t(x), mean_t(scale * x + shift)
    close = {"rel": 1e-6, "abs": 1e-6}
    assert f.value == pytest.approx(scale * e.value + shift, **close)
    assert f.se == pytest.approx(scale * e.se, **close)
    if e.low is not None and f.low is not None:
        assert (f.low, f.high) == pytest.approx((scale * e.low + shift, scale * e.high + shift), **close)


@given(nats)
@settings(max_examples=40)
def test_total_is_n_times_the_mean(values):
    e, f = mean_t(values), total_t(values)
    n = len(values)
    assert f.value == pytest.approx(sum(values), abs=1e-8)
    assert f.se == pytest.approx(n * e.se)
    if e.low is not None:
        assert (f.low, f.high) == pytest.approx((n * e.low, n * e.high))


def test_total_scales_the_parts_of_the_variance_with_the_square():
    y = np.random.default_rng(0).normal(size=(10, 3))
    e, f = mean_t(y), total_t(y)
    assert (f.within, f.between) == pytest.approx((100 * e.within, 100 * e.between))
    assert f.se**2 == pytest.approx(f.within + f.between)


def test_mean_t_clusters_and_refuses_like_the_scores():
    x = np.arange(12.0)
    groups = np.repeat(np.arange(4), 3)
    sums = np.array([x[groups == g].sum() - 3 * x.mean() for g in range(4)])
    e = mean_t(x, groups=groups)
    assert e.se**2 == pytest.approx(4 / 3 * (sums**2).sum() / 144)
    assert e.high - e.value == pytest.approx(3.182446305 * e.se, rel=1e-8)
    for refused in (mean_t([-1.0]), total_t([-1.0]), mean_t(x, groups=["a"] * 12)):
        assert (refused.se, refused.low, refused.high) == (None, None, None)
        assert refused.diagnostics
    flat = mean_t([0.1] * 7)
    assert (flat.se, flat.low) == (0.0, None)
    with pytest.raises(InputError, match="finite"):
        mean_t([-1.0, float("-inf")])
    with pytest.raises(InputError, match="item 0 of 2 have none"):
        mean_t([float("nan"), 1.0])


def test_deterministic_likelihoods_do_not_complain_of_single_draws():
    assert mean_t([-1.0, -2.0, -4.0], deterministic=True).flags == ()
    assert mean_t([-1.0, -2.0, -4.0]).flags == ("single_draw",)
    with pytest.raises(InputError, match="deterministic"):
        total_t([[-1.0, -2.0], [-1.0, -1.0]], deterministic=True)


def test_chance_is_the_mean_of_the_items_own_chances():
    assert chance_level([0.25] * 3 + [0.2]) == pytest.approx(0.2375)
    assert chance_level([0.0]) == 0.0
    for bad, message in (([0.5, 1.5], "item 1 lie"), ([None, 0.5], "item 0 have no"), ([], "at least one")):
        with pytest.raises(InputError, match=message):
            chance_level(bad)


# -------------------------------------------------------------------------------------------------- package
@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(steelyard.stats.__path__)])
def test_examples_in_docstrings_run(name):
    failed, _ = doctest.testmod(importlib.import_module(f"steelyard.stats.{name}"))
    assert failed == 0


def test_neither_import_nor_use_loads_scipy_stats():
    code = (
        "import sys, steelyard.stats as s; assert 'scipy' not in sys.modules; "
        "s.score_interval([1, 0, 1]); assert 'scipy.stats' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
