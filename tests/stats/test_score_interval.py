"""Closed forms, guards and refusals of the default interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import InputError, UnknownNameError
from steelyard.core.rng import stream
from steelyard.stats import score_interval, wilson
from steelyard.stats.items import group_codes, variance_of_mean

Z = 1.959963984540054
NAN = float("nan")


def right(n_right: int, n: int) -> np.ndarray:
    return (np.arange(n) < n_right).astype(float)


def textbook_wilson(p: float, n: float, z: float = Z) -> tuple[float, float]:
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return center - half, center + half


tables = st.integers(2, 14).flatmap(
    lambda n: st.integers(2, 4).flatmap(
        lambda k: st.lists(
            st.lists(st.sampled_from([0.0, 1.0, 0.25]), min_size=k, max_size=k), min_size=n, max_size=n
        )
    )
)


# ------------------------------------------------------------------------------------------ closed forms
def test_one_draw_gives_wilson_with_the_t_factor():
    n, c, q = 100, 70, 1.984216951508  # t quantile, 99 degrees of freedom
    e = score_interval(right(c, n))
    s2_over_n = 0.7 * 0.3 * n / (n - 1) / n
    assert e.se == pytest.approx(math.sqrt(s2_over_n), rel=1e-12)
    n_eff = 0.21 / s2_over_n * (Z / q) ** 2
    assert e.n_eff == pytest.approx(n_eff, rel=1e-9)
    assert (e.low, e.high) == pytest.approx(textbook_wilson(0.7, n_eff), rel=1e-9)
    assert e.method == "wilson_neff"
    assert e.flags == ("single_draw",)
    assert e.within is None
    assert e.between is None


@pytest.mark.parametrize("n", [2, 10, 50, 1319])
@pytest.mark.parametrize("k", [1, 5])
def test_all_right_and_all_wrong_have_the_closed_form_and_never_zero_width(n, k):
    e, f = score_interval(np.ones((n, k))), score_interval(np.zeros((n, k)))
    assert e.low == pytest.approx(n / (n + Z * Z), rel=1e-12)
    assert e.high == 1.0
    assert f.low == 0.0
    assert f.high == pytest.approx(Z * Z / (n + Z * Z), rel=1e-12)
    assert {"few_events", "zero_variance"} <= set(e.flags) & set(f.flags)
    assert e.n_eff == n


def test_the_guard_caps_the_effective_size_at_the_number_of_items():
    y = np.ones((50, 50))
    y[0, :5] = 0  # a single soft failure: the spread of item means alone would promise 2500 answers
    e = score_interval(y)
    assert e.n_eff == 50
    assert "few_events" in e.flags
    assert "only 1 of 50 items hold a failure" in " ".join(e.diagnostics)


def test_ten_items_on_either_side_lift_the_guard():
    nine, ten = np.ones((100, 10)), np.ones((100, 10))
    nine[:9, 0] = 0
    ten[:10, 0] = 0
    assert score_interval(nine).n_eff == 100
    assert score_interval(ten).n_eff > 100
    assert "few_events" not in score_interval(ten).flags


def test_effective_size_stays_between_one_and_the_number_of_answers():
    assert score_interval([0.0, 1.0]).n_eff == 1.0
    assert score_interval(np.tile([0.0, 1.0], (20, 1))[:, :2] * 0.5 + 0.25).n_eff == 20  # equal item means
    y = np.full((30, 2), 0.5)
    y[:15] = [0.5, 0.51]
    e = score_interval(y)  # hardly any spread: clipped at all answers, and said
    assert e.n_eff == 60
    assert "clipped" in e.flags


def test_the_level_moves_both_quantiles():
    n, c, z90, q90 = 100, 70, 1.6448536269514722, 1.660391156017
    e = score_interval(right(c, n), level=0.9)
    n_eff = (n - 1) * (z90 / q90) ** 2
    assert (e.low, e.high) == pytest.approx(textbook_wilson(0.7, n_eff, z90), rel=1e-9)
    assert e.level == 0.9
    widths = [score_interval(right(c, n), level=v) for v in (0.5, 0.8, 0.95, 0.99)]
    assert [e.high - e.low for e in widths] == sorted(e.high - e.low for e in widths)


@given(st.floats(0, 1), st.floats(0.5, 1e6), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
@settings(max_examples=150)
def test_wilson_lies_in_the_unit_interval_around_its_value_and_mirrors(p, n, level):
    low, high = wilson(p, n, level)
    assert 0 <= low <= p <= high <= 1
    assert low < high
    mirrored = wilson(1 - p, n, level)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high), abs=1e-12)


def test_wilson_equals_the_textbook_formula():
    assert wilson(0.3, 17.5) == pytest.approx(textbook_wilson(0.3, 17.5), rel=1e-12)


# ------------------------------------------------------------------------------------- parts of the variance
@given(tables)
@settings(max_examples=80)
def test_within_and_between_sum_to_the_item_level_variance(table):
    y = np.array(table)
    e = score_interval(y)
    p = y.mean(axis=1)
    assert e.within + e.between == pytest.approx(p.var(ddof=1) / len(p), rel=1e-12, abs=1e-18)
    assert e.within >= 0


def test_parts_of_unequal_draws_follow_the_formula_by_hand():
    e = score_interval([[1, 0, NAN, NAN], [1, 1, 0, NAN], [0, 0, 0, 1], [1, 1, NAN, NAN]])
    p = np.array([1 / 2, 2 / 3, 1 / 4, 1.0])
    w = np.array([1 * 1 / 2 / 1, 2 * 1 / 3 / 2, 1 * 3 / 4 / 3, 0.0])  # c (k - c) / (k (k - 1))
    within = np.mean(w / np.array([2, 3, 4, 2])) / 4
    assert e.value == pytest.approx(p.mean())  # not the pooled 6/11
    assert e.within == pytest.approx(within, rel=1e-12)
    assert e.se**2 == pytest.approx(p.var(ddof=1) / 4, rel=1e-12)
    assert e.between == pytest.approx(e.se**2 - within, rel=1e-12)
    assert e.n_samples == 11
    assert "2 to 4 draws" in " ".join(e.diagnostics)


def test_a_negative_between_part_keeps_its_sign_and_is_said():
    e = score_interval(np.tile([1.0, 0.0], (20, 1)))
    assert e.between == pytest.approx(-0.25 / 20)
    assert "negative_between" in e.flags
    assert e.se == 0.0
    assert e.low < 0.5 < e.high


def test_a_single_draw_of_one_item_leaves_the_split_unidentified_but_not_the_total():
    e = score_interval([[1, 0], [1, NAN], [0, 0], [1, 1]])
    assert e.within is None
    assert e.se is not None
    assert "1 of 4 items have one draw" in " ".join(e.diagnostics)


def test_declared_determinism_makes_the_within_part_zero_and_is_checked():
    e = score_interval(right(30, 60), deterministic=True)
    assert e.within == 0.0
    assert e.between == pytest.approx(e.se**2)
    assert "single_draw" not in e.flags
    with pytest.raises(InputError, match="item 1 differ"):
        score_interval([[1, 1], [0, 1], [NAN, 1]], deterministic=True)


def test_equal_graded_draws_leave_no_variance_of_rounding_errors():
    e = score_interval(np.full((12, 3), 0.1))
    assert e.within == 0.0
    assert e.se == 0.0
    assert e.n_eff == 12


# ---------------------------------------------------------------------------------------------- invariance
@given(tables, st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=60)
def test_order_of_items_and_draws_does_not_matter(table, random, grouped):
    y = np.array(table)
    order = list(range(len(y)))
    groups = [random.choice("abc") for _ in order] if grouped else None
    random.shuffle(order)
    shuffled = [random.sample(list(y[i]), y.shape[1]) for i in order]
    one = score_interval(y, groups=groups)
    two = score_interval(shuffled, groups=[groups[i] for i in order] if groups else None)
    assert one.flags == two.flags
    for name in ("value", "se", "low", "high", "within", "between", "n_eff"):
        assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-9, abs=1e-12), name


@given(tables)
@settings(max_examples=60)
def test_interval_holds_its_value_and_mirrors_when_right_and_wrong_are_swapped(table):
    y = np.array(table)
    e, f = score_interval(y), score_interval(1 - y)
    assert 0 <= e.low <= e.value <= e.high <= 1
    assert e.low < e.high
    assert (1 - f.high, 1 - f.low) == pytest.approx((e.low, e.high), abs=1e-12)


def test_missing_draws_may_stand_anywhere_and_may_be_none_or_masked():
    a = score_interval([[1, NAN, 0], [NAN, 1, 1]])
    assert a == score_interval([[1, 0], [1, 1]])
    assert a == score_interval([[1, None, 0], [None, 1, 1]])
    masked = np.ma.masked_array([[1, 7, 0], [7, 1, 1]], mask=[[0, 1, 0], [1, 0, 0]])
    assert a == score_interval(masked)


def test_padding_with_empty_draws_changes_nothing():
    y = np.random.default_rng(0).integers(0, 2, (40, 3)).astype(float)
    assert score_interval(y) == score_interval(np.hstack([y, np.full((40, 5), NAN)]))


def test_inputs_are_never_written_to():
    y = np.array([[1.0, NAN], [0.0, 1.0]])
    before = y.copy()
    score_interval(y, method="bootstrap_items", rng=stream(0, "t"))
    np.testing.assert_array_equal(y, before)


# --------------------------------------------------------------------------------------------------- groups
def test_grouped_variance_by_hand():
    y, groups = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0], ["a", "a", "a", "b", "b", "c"]
    # deviations from 1/2 summed by group: .5, 0, -.5
    e = score_interval(y, groups=groups)
    assert e.se**2 == pytest.approx(3 / 2 * (0.25 + 0.25) / 36, rel=1e-12)
    assert e.n_groups == 3
    assert "few_groups" in e.flags


def test_groups_use_t_with_one_degree_less_than_groups():
    y = np.tile([1.0, 0.0, 1.0, 1.0, 0.0], 12)
    groups = np.repeat(np.arange(20), 3)
    e = score_interval(y, groups=groups, method="t")
    assert (e.high - e.value) / e.se == pytest.approx(2.093024054408, rel=1e-9)
    w = score_interval(y, groups=groups)
    n_eff = min(0.24 / e.se**2 * (Z / 2.093024054408) ** 2, 60)
    assert w.n_eff == pytest.approx(n_eff, rel=1e-9)


def test_groups_of_one_item_change_nothing_but_their_count():
    y = np.random.default_rng(1).random((30, 3))
    alone, grouped = score_interval(y), score_interval(y, groups=range(30))
    assert grouped.n_groups == 30
    assert (grouped.low, grouped.high) == pytest.approx((alone.low, alone.high), rel=1e-12)
    assert score_interval(y, groups=[None] * 30).se == pytest.approx(alone.se, rel=1e-12)


def test_an_item_without_a_label_stands_alone():
    codes, total = group_codes(["p", None, "p", None, "q"], 5)
    assert codes.tolist() == [0, 1, 0, 2, 3]
    assert total == 4


def test_repeated_items_in_groups_count_once():
    y = right(60, 100)
    once = score_interval(y, method="t")
    tripled = score_interval(np.repeat(y, 3), groups=np.repeat(np.arange(100), 3), method="t")
    assert tripled.se == pytest.approx(once.se, rel=1e-12)
    assert score_interval(np.repeat(y, 3), method="t").se < 0.6 * once.se


def test_groups_whose_sums_cancel_do_not_promise_certainty():
    y, groups = np.tile([1.0, 0.0], 20), np.repeat(np.arange(20), 2)
    e = score_interval(y, groups=groups)
    assert e.se == 0.0
    assert e.n_eff == 20  # G, not the clip at 40 answers
    assert "zero_variance" in e.flags


def test_all_right_in_groups_counts_groups():
    e = score_interval(np.ones(100), groups=np.repeat(np.arange(20), 5))
    assert e.low == pytest.approx(20 / (20 + Z * Z))


def test_failures_confined_to_few_groups_are_said():
    y = np.ones(400)
    y[:15] = 0
    e = score_interval(y, groups=np.repeat(np.arange(20), 20))
    assert "few_event_groups" in e.flags
    assert "only 1 of 20 groups hold a failure" in " ".join(e.diagnostics)


def test_grouped_formula_agrees_with_a_bootstrap_over_groups():
    rng = np.random.default_rng(5)
    sizes = rng.integers(3, 9, 80)
    groups = np.repeat(np.arange(80), sizes)
    y = (rng.random((groups.size, 2)) < np.repeat(rng.beta(1, 1, 80), sizes)[:, None]).astype(float)
    formula = score_interval(y, groups=groups)
    boot = score_interval(y, groups=groups, method="bootstrap_items", n_boot=3000, rng=stream(0, "b"))
    assert boot.se == pytest.approx(formula.se, rel=0.06)
    assert formula.se > 1.5 * score_interval(y).se
    assert boot.low == pytest.approx(formula.low, abs=0.012)
    assert boot.high == pytest.approx(formula.high, abs=0.012)
    assert boot.method == "bootstrap_items"


# --------------------------------------------------------------------------------------------- other targets
def test_fixed_items_use_the_within_part_alone():
    y = np.zeros((40, 4))
    y[:20, :2] = 1
    y[20:30] = 1
    e = score_interval(y, target="benchmark")
    within = 20 * (2 * 2 / 4 / 3) / 4 / 40**2
    assert e.se == pytest.approx(math.sqrt(within), rel=1e-12)
    assert (e.low, e.high) == pytest.approx((0.5 - Z * e.se, 0.5 + Z * e.se), rel=1e-12)
    assert e.method == "fixed_items"
    assert e.target == "benchmark"
    assert e.se < score_interval(y).se
    assert score_interval(y, method="fixed_items") == e


def test_fixed_items_with_few_events_use_wilson_on_all_answers():
    y = np.ones((50, 10))
    y[0, 0] = 0
    e = score_interval(y, method="fixed_items")
    assert (e.low, e.high) == pytest.approx(textbook_wilson(0.998, 500), rel=1e-9)
    assert "few_events" in e.flags


def test_fixed_items_whose_draws_all_agree_have_no_zero_width():
    e = score_interval(np.repeat(right(20, 40)[:, None], 3, axis=1), method="fixed_items")
    assert e.se == 0.0
    assert (e.low, e.high) == pytest.approx(textbook_wilson(0.5, 120), rel=1e-9)
    assert "identical_draws" in e.flags


def test_fixed_items_refuse_single_draws_and_deterministic_answers():
    one = score_interval(right(20, 40), target="benchmark")
    assert (one.se, one.low, one.high) == (None, None, None)
    assert "not_identified" in one.flags
    exact = score_interval(right(20, 40), target="benchmark", deterministic=True)
    assert (exact.value, exact.se, exact.low) == (0.5, None, None)
    assert "exact" in exact.flags


def test_finite_benchmark_mixes_the_parts_of_the_variance():
    y = np.random.default_rng(3).integers(0, 2, (60, 4)).astype(float)
    s2n = y.mean(axis=1).var(ddof=1) / 60
    plain = score_interval(y)
    e = score_interval(y, target="benchmark", population_size=240)
    assert e.se**2 == pytest.approx(0.75 * s2n + 0.25 * plain.within, rel=1e-12)
    fixed = score_interval(y, target="benchmark", population_size=60)
    assert fixed.method == "fixed_items"
    assert fixed.low <= e.value <= fixed.high
    huge = score_interval(y, target="benchmark", population_size=10**9)
    assert (huge.low, huge.high) == pytest.approx((plain.low, plain.high), abs=1e-6)
    t = score_interval(y, target="benchmark", population_size=240, method="t")
    assert t.se == pytest.approx(e.se)


def test_finite_benchmark_of_deterministic_scores_has_the_classical_correction():
    y = right(40, 80)
    e = score_interval(y, target="benchmark", population_size=100, deterministic=True)
    plain = score_interval(y, deterministic=True)
    assert e.se == pytest.approx(plain.se * math.sqrt(0.2), rel=1e-12)
    assert e.n_eff == pytest.approx(plain.n_eff / 0.2, rel=1e-12)
    assert score_interval(y, target="benchmark", population_size=100).se is None


def test_finite_benchmark_covers_the_mean_of_its_own_items():
    rng = np.random.default_rng(11)
    p = rng.beta(0.8, 0.2, 200)
    hits, wider = 0, 0
    for _ in range(400):
        y = (rng.random((120, 3)) < rng.choice(p, 120, replace=False)[:, None]).astype(float)
        e = score_interval(y, target="benchmark", population_size=200)
        hits += e.low <= p.mean() <= e.high
        wider += score_interval(y).se > e.se
    assert 0.92 <= hits / 400 <= 0.99
    assert wider == 400


# ----------------------------------------------------------------------------------------- refusals, errors
@pytest.mark.parametrize("method", ["wilson_neff", "t", "bootstrap_items"])
def test_one_item_or_one_group_has_no_error_bar_and_says_why(method):
    one = score_interval([[1, 0, 1]], method=method, rng=stream(0, "x"))
    group = score_interval([1, 0, 1], groups=["g"] * 3, method=method, rng=stream(0, "x"))
    for e, flag in ((one, "one_item"), (group, "one_group")):
        assert (e.se, e.low, e.high) == (None, None, None)
        assert e.value == pytest.approx(2 / 3)
        assert flag in e.flags
        assert e.diagnostics


def test_t_and_bootstrap_refuse_a_zero_width_interval():
    for method in ("t", "bootstrap_items"):
        e = score_interval(np.ones(30), method=method, rng=stream(0, "x"))
        assert (e.se, e.low, e.high) == (0.0, None, None)
        assert "zero_variance" in e.flags


def test_items_without_any_draw_are_named():
    with pytest.raises(InputError, match=r"items 1, 3 of 4 have none"):
        score_interval([[1, 0], [NAN, NAN], [0, 1], [NAN, NAN]])
    with pytest.raises(InputError, match="and 5 more"):
        score_interval([1.0, *[NAN] * 15])


@pytest.mark.parametrize("method", ["wilson_neff", "fixed_items"])
@pytest.mark.parametrize("bad", [1.5, -0.1, 100.0])
def test_scores_outside_the_unit_interval_point_to_mean_t(method, bad):
    with pytest.raises(InputError, match="mean_t"):
        score_interval([0.0, 1.0, bad], method=method)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": []}, "at least one item"),
        ({"y": ["right", "wrong"]}, "array of numbers"),
        ({"y": [[1, 0], [1]]}, "array of numbers"),
        ({"y": np.ones((2, 2, 2))}, "shape"),
        ({"y": [1.0, float("inf")]}, "item 1 hold"),
        ({"y": [1, 0], "level": 95}, "Did you mean 0.95"),
        ({"y": [1, 0], "level": NAN}, "level"),
        ({"y": [1, 0], "groups": ["a"]}, "one label for each of the 2 items, got 1"),
        ({"y": [1, 0], "groups": [1.0, NAN]}, "NaN"),
        ({"y": [1, 0], "population_size": 10}, "target='benchmark'"),
        ({"y": [1, 0], "population_size": 1, "target": "benchmark"}, "at least the number of items"),
        ({"y": [1, 0], "population_size": 9, "method": "fixed_items"}, "not about 9"),
        ({"y": [1, 0], "target": "benchmark", "method": "bootstrap_items"}, "population of items"),
        ({"y": [1, 0], "method": "bootstrap_items"}, "random stream"),
        ({"y": [1, 0], "method": "bootstrap_items", "n_boot": 10, "rng": stream(0, "x")}, "n_boot >= 100"),
    ],
)
def test_contradictions_and_bad_input_are_errors_that_say_what_to_do(arguments, message):
    with pytest.raises(InputError, match=message):
        score_interval(**arguments)


def test_unknown_names_list_near_misses():
    with pytest.raises(UnknownNameError, match="Did you mean wilson_neff"):
        score_interval([1, 0], method="wilson_nef")
    with pytest.raises(UnknownNameError, match="population"):
        score_interval([1, 0], target="populations")


def test_variance_of_the_mean_is_zero_only_without_spread():
    assert variance_of_mean(np.full(7, 0.1)) == 0.0
    assert variance_of_mean(np.array([0.1, 0.1 + 1e-9])) > 0.0
    assert variance_of_mean(np.array([1e-30, 2e-30])) > 0.0
