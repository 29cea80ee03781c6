"""Seeded simulations: the estimators against known truth (bench/simulate_intervals.py is the full study)."""

from __future__ import annotations

import numpy as np
import pytest

from steelyard.core.rng import stream
from steelyard.stats import score_interval


def answers(p: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    return (rng.random((p.size, k)) < p[:, None]).astype(float)


@pytest.mark.parametrize(
    ("a", "b", "n", "k", "expected"),
    [
        (0.8, 0.2, 164, 1, 94.6),
        (0.8, 0.2, 164, 5, 94.4),
        (2.0, 2.0, 50, 5, 95.4),
        (0.495, 0.005, 50, 50, 96.3),  # 80 % without the guard for few events
        (0.495, 0.005, 164, 10, 98.0),  # 88 % without it
        (49.5, 0.5, 1319, 5, 95.2),
    ],
)
def test_coverage_of_the_default_interval_equals_the_published_cell(a, b, n, k, expected):
    rng, mu, reps, hits = stream(0, "coverage", str(a), n, k), a / (a + b), 700, 0
    for _ in range(reps):
        e = score_interval(answers(rng.beta(a, b, n), k, rng))
        hits += e.low <= mu <= e.high
    # three standard errors of this run; the guarded cells were published without their own error
    assert 100 * hits / reps == pytest.approx(expected, abs=3 * 100 * np.sqrt(0.95 * 0.05 / reps))


@pytest.mark.parametrize(
    ("a", "plain", "two_level"),
    [(2.0, 9.00e-4, 1.218e-3), (0.3, 1.750e-3, 1.897e-3)],
)
def test_variance_is_unbiased_and_below_the_plug_in(a, plain, two_level):
    rng, n, k, reps = stream(1, "variance", str(a)), 100, 5, 1500
    total, between, raw, means = [], [], [], []
    for _ in range(reps):
        e = score_interval(answers(rng.beta(a, a, n), k, rng))
        total.append(e.se**2)
        between.append(e.between * n)
        raw.append(e.se**2 + (e.value * (1 - e.value) - e.se**2 * (n - 1)) / (n * k))
        means.append(e.value)
    assert np.mean(total) == pytest.approx(plain, rel=0.01)
    assert np.var(means, ddof=1) == pytest.approx(plain, rel=4 * np.sqrt(2 / reps))
    sigma2 = a * a / ((2 * a) ** 2 * (2 * a + 1))
    assert np.mean(between) == pytest.approx(sigma2, rel=0.02)
    # the paper's plug-in (raw S^2 for sigma^2) is what the unbiased split avoids
    assert np.mean(raw) == pytest.approx(two_level, rel=0.01)


def test_unequal_draws_keep_the_parts_unbiased():
    rng, n, reps = stream(2, "unequal"), 60, 1200
    draws = np.resize([2, 3, 8], n)
    within, between = [], []
    for _ in range(reps):
        y = answers(rng.beta(2, 2, n), 8, rng)
        y[np.arange(8) >= draws[:, None]] = np.nan
        e = score_interval(y)
        within.append(e.within)
        between.append(e.between)
    assert np.mean(within) == pytest.approx(0.2 * np.mean(1 / draws) / n, rel=0.02)
    assert np.mean(between) == pytest.approx(0.05 / n, rel=0.06)


def test_clustered_interval_covers_where_the_plain_one_fails():
    rng, mu, reps, plain, grouped = stream(3, "groups"), 0.5, 400, 0, 0
    groups = np.repeat(np.arange(60), 6)
    for _ in range(reps):
        y = answers(np.repeat(rng.beta(1, 1, 60), 6), 2, rng)
        e, f = score_interval(y), score_interval(y, groups=groups)
        plain += e.low <= mu <= e.high
        grouped += f.low <= mu <= f.high
    assert plain / reps < 0.8
    assert grouped / reps == pytest.approx(0.95, abs=0.035)
