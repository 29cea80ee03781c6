"""pass@k and its kin, maj@k, consistency: published values, exact enumeration, and what is refused."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.errors import InputError
from steelyard.stats import (
    consistency,
    g_pass_at_k,
    majority_at_k,
    mg_pass_at_k,
    pass_at_k,
    pass_hat_k,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (pass_at_k(10, 3, 5), 0.916667),
        (pass_at_k(200, 1, 1), 0.005),
        (pass_hat_k(10, 3, 2), 0.066667),
        (pass_hat_k(10, 9, 10), 0.0),
        (g_pass_at_k(16, 10, 8, 0.5), 0.940559),
        (g_pass_at_k(16, 10, 8, 0.75), 0.304196),
        (g_pass_at_k(16, 10, 8, 1.0), 0.003497),
        (mg_pass_at_k(16, 10, 8), 0.265734),
    ],
)
def test_known_values(value, expected):
    assert value == pytest.approx(expected, abs=5e-7)


@st.composite
def drawn(draw):
    n = draw(st.integers(1, 8))
    return n, draw(st.integers(0, n)), draw(st.integers(1, n))


@given(drawn(), st.floats(0, 1))
def test_each_is_the_mean_over_all_subsets(case, tau):
    n, c, k = case
    hits = [sum(s) for s in itertools.combinations([1] * c + [0] * (n - c), k)]
    need = max(1, next(j for j in range(k + 1) if j >= tau * k - 1e-9))
    assert pass_at_k(n, c, k) == pytest.approx(np.mean([h > 0 for h in hits]), abs=1e-12)
    assert pass_hat_k(n, c, k) == pytest.approx(np.mean([h == k for h in hits]), abs=1e-12)
    assert g_pass_at_k(n, c, k, tau) == pytest.approx(np.mean([h >= need for h in hits]), abs=1e-12)


def test_the_ends_of_g_pass_are_the_other_two_and_one_draw_is_the_mean():
    n, c, k = np.array([30, 30, 30, 4]), np.array([0, 1, 29, 2]), np.array([7, 7, 7, 3])
    np.testing.assert_allclose(g_pass_at_k(n, c, k, 0.0), pass_at_k(n, c, k), atol=1e-12)
    np.testing.assert_allclose(g_pass_at_k(n, c, k, 1.0), pass_hat_k(n, c, k), atol=1e-12)
    np.testing.assert_allclose(pass_at_k(n, c, 1), c / n, atol=1e-12)
    np.testing.assert_allclose(pass_hat_k(n, c, 1), c / n, atol=1e-12)


def test_shares_of_k_that_floating_point_overshoots_ask_for_no_draw_more():
    assert 0.07 * 100 > 7
    assert g_pass_at_k(100, 7, 100, 0.07) == pytest.approx(1.0)


def test_large_counts_stay_exact():
    n, c, k = 10_000, 37, 500
    none = Fraction(1)
    for i in range(k):
        none *= Fraction(n - c - i, n - i)
    exact = 1 - none
    assert pass_at_k(n, c, k) == pytest.approx(float(exact), abs=1e-9)
    assert pass_at_k(5, 0, 5) == 0.0
    assert pass_at_k(5, 5, 5) == 1.0


def test_shapes_broadcast_and_scalars_stay_scalars():
    assert isinstance(pass_at_k(4, 2, 2), float)
    grid = pass_at_k(np.array([[10], [20]]), 3, [1, 5, 10])
    assert grid.shape == (2, 3)
    assert grid[0, 1] == pytest.approx(0.916667, abs=5e-7)


@pytest.mark.parametrize(
    "of", [pass_at_k, pass_hat_k, mg_pass_at_k, lambda n, c, k: g_pass_at_k(n, c, k, 0.5)]
)
def test_items_with_fewer_draws_than_k_are_named_and_never_scored_one(of):
    with pytest.raises(InputError, match=r"1, 3.*n=3, c=0, k=5"):
        of([5, 3, 9, 4], [0, 0, 1, 4], 5)


@pytest.mark.parametrize(
    ("n", "c", "k", "said"),
    [
        (4, 5, 2, "from 0 to n"),
        (4, -1, 2, "from 0 to n"),
        (4, 1, 0, "at least 1"),
        (4.5, 1, 1, "whole"),
        ([4, 4], [1, 1, 1], 1, "broadcast"),
        (float("nan"), 1, 1, "whole"),
    ],
)
def test_counts_that_are_none_are_refused(n, c, k, said):
    with pytest.raises(InputError, match=said):
        pass_at_k(n, c, k)


def test_tau_is_a_share():
    with pytest.raises(InputError, match=r"1\.5"):
        g_pass_at_k(4, 2, 2, 1.5)


# ------------------------------------------------------------------------------------------------------- maj@k
def enumerated(counts, right, k, void):
    pool = [i for i, n in enumerate(counts) for _ in range(n)] + [None] * void
    score = Fraction(0)
    subsets = list(itertools.combinations(pool, k))
    for subset in subsets:
        seen = Counter(x for x in subset if x is not None)
        first = [x for x, n in seen.items() if n == max(seen.values())]
        if right in first:
            score += Fraction(1, len(first))
    return float(score / len(subsets))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 3), st.data())
def test_the_majority_is_that_over_all_subsets(counts, void, data):
    total = sum(counts) + void
    if not total:
        return
    right = data.draw(st.one_of(st.none(), st.integers(0, len(counts) - 1)))
    k = data.draw(st.integers(1, min(total, 6)))
    assert majority_at_k(counts, right, k, void) == pytest.approx(
        0.0 if right is None else enumerated(counts, right, k, void), abs=1e-12
    )


def test_void_draws_use_up_a_draw_and_never_win():
    assert majority_at_k([1], 0, 3, void=2) == 1.0
    assert majority_at_k([1], 0, 1, void=9) == pytest.approx(0.1)
    assert majority_at_k([], None, 2, void=3) == 0.0
    assert majority_at_k([50, 49, 1], 0, 100) == 1.0
    assert majority_at_k([400, 399, 300], 0, 700, void=500) > majority_at_k([399, 400, 300], 0, 700, void=500)


@pytest.mark.parametrize(
    ("counts", "right", "k", "void", "said"),
    [
        ([2, 1], 0, 4, 0, r"maj@4 needs 4 draws.*it has 3 \(0"),
        ([2, 1], 2, 2, 0, "0 to 1"),
        ([2, 1], 0, 0, 0, "k is a whole number"),
        ([2, 1], 0, 2, -1, "void is a whole number"),
        ([2, -1], 0, 1, 0, "below 0"),
        ([[2, 1]], 0, 1, 0, "one axis"),
    ],
)
def test_majorities_of_nothing_are_refused(counts, right, k, void, said):
    with pytest.raises(InputError, match=said):
        majority_at_k(counts, right, k, void)


# --------------------------------------------------------------------------------------------------- consistency
def test_known_consistencies():
    some = consistency([7, 2, 1])
    assert (some.s, some.s_mm, some.s_norm, some.agreement, some.top_share) == pytest.approx(
        (-0.801819, -0.901819, 0.651775, 0.488889, 0.7), abs=5e-7
    )
    two = consistency([46, 4])
    assert (two.s, two.agreement) == pytest.approx((-0.278769, 0.849796), abs=5e-7)
    one = consistency([50])
    assert (one.s, one.s_mm, one.s_norm, one.agreement) == (0.0, 0.0, 1.0, 1.0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), st.randoms())
def test_consistency_depends_on_no_order_and_no_empty_class(counts, rng):
    mixed = [*counts, 0, 0]
    rng.shuffle(mixed)
    a, b = consistency(counts), consistency(mixed)
    assert (a.k, a.classes, a.top_share, a.agreement) == (b.k, b.classes, b.top_share, b.agreement)
    assert (a.s, a.s_mm) == pytest.approx((b.s, b.s_mm), abs=1e-12)
    assert -np.log(min(a.classes, a.k)) - 1e-12 <= a.s <= 0
    if a.k > 1:
        assert 0 <= a.s_norm <= 1
        pairs = list(itertools.combinations([i for i, n in enumerate(counts) for _ in range(n)], 2))
        assert a.agreement == pytest.approx(np.mean([x == y for x, y in pairs]))
    else:
        assert a.s_norm is a.agreement is None


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([], "no draw"),
        ([0, 0], "no draw"),
        ([1.5], "whole"),
        ([-1, 2], "below 0"),
        ([[1]], "one axis"),
        (["a"], "axis"),
    ],
)
def test_no_draws_have_no_consistency(counts, said):
    with pytest.raises(InputError, match=said):
        consistency(counts)


# ------------------------------------------------------------------------------------------------- real data
def rows(folder, name):
    with gzip.open(folder / "real_generations" / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def counted(table):
    n, c = Counter(), Counter()
    for row in table:
        n[row["item"]] += 1
        c[row["item"]] += row["correct"]
    return np.array([n[i] for i in n]), np.array([c[i] for i in n])


def test_published_and_recomputed_values_of_real_generations(shared_data):
    n, c = counted(rows(shared_data, "game24_gpt4_io_k100"))
    assert [round(float(np.mean(pass_at_k(n, c, k))), 4) for k in (1, 10, 100)] == [0.0734, 0.1789, 0.33]
    n, c = counted(rows(shared_data, "tau_bench_airline_gpt4o_k4"))
    assert [round(float(np.mean(pass_hat_k(n, c, k))), 3) for k in (1, 2, 3, 4)] == [0.42, 0.273, 0.22, 0.2]


def test_majorities_of_real_generations_with_void_draws(shared_data):
    classes, void, keys = defaultdict(Counter), Counter(), {}
    for row in rows(shared_data, "aqua_codex_pot_k30"):
        keys[row["item"]] = row["gold"]
        if row["choice"] is None:
            void[row["item"]] += 1
        else:
            classes[row["item"]][row["choice"]] += 1
    scores = []
    for k in (1, 3, 10, 30):
        each = []
        for item, key in keys.items():
            names = list(classes[item])
            right = names.index(key) if key in names else None
            each.append(majority_at_k([classes[item][x] for x in names], right, k, void[item]))
        scores.append(round(float(np.mean(each)), 4))
    assert scores == [0.2825, 0.3815, 0.4662, 0.5336]
