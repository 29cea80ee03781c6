"""The mean score of a benchmark and its interval: the default is Wilson with an effective sample size.

Which interval answers which question:

- "wilson_neff": scores in [0, 1]; holds its level also near 0 and 1, and with several draws per item;
- "t": the textbook interval over item means; for scores of any range, too narrow near the ends of one;
- "bootstrap_items": percentiles over resampled items (whole rows of draws: resampling the draws as well would
  count the variance within items twice);
- "fixed_items": how far the score would move if the same items were answered again.

`bench/results/intervals.md` shows how often the default covers the truth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from steelyard.core.errors import InputError, UnknownNameError
from steelyard.stats import intervals
from steelyard.stats.bootstrap import bootstrap_units, check_bootstrap, percentile_estimate, resampled_sums
from steelyard.stats.estimate import Estimate
from steelyard.stats.items import (
    Groups,
    ItemMeans,
    check_deterministic,
    group_codes,
    item_means,
    variance_of_mean,
)
from steelyard.stats.quantiles import check_level

Method = Literal["wilson_neff", "t", "bootstrap_items", "fixed_items"]
Target = Literal["population", "benchmark"]


def score_interval(
    y: ArrayLike,
    *,
    groups: Groups | None = None,
    level: float = 0.95,
    target: Target = "population",
    population_size: int | None = None,
    method: Method = "wilson_neff",
    deterministic: bool = False,
    n_boot: int = 1000,
    rng: np.random.Generator | None = None,
) -> Estimate:
    """The mean of the item means, with an interval.

    Default method, with z and q the normal and the t quantile (n - 1 or G - 1 degrees of freedom) and V the
    variance of the mean over items or groups: n_eff = m (1 - m) / V * (z / q)^2, clipped to [1, all answers];
    n (or G) where V = 0; at most n where fewer than ten items hold a failure, or fewer than ten a success.
    Then Wilson's interval for the mean m with n_eff answers.

    Args:
        y: scores, shape (n_items,) or (n_items, k_max) with missing draws as NaN.
        groups: one label per item, shape (n_items,); items that share one are not independent. An item
            labelled None stands alone.
        level: nominal coverage, in (0, 1).
        target: "population" (the items are a sample of what could be asked) or "benchmark" (these very
            items, or the `population_size` items that they were drawn from).
        population_size: number N of items in the benchmark, with target "benchmark" only. The n items must
            be a random sample of them, which the first n rows are not. The variance is then
            (1 - f) S^2/n + f * within with f = n/N.
        method: see the module; "fixed_items" implies target "benchmark", and that target without
            `population_size` is answered by "fixed_items".
        deterministic: the same request always brings the same score (greedy text, likelihoods), so nothing
            varies within items, and one draw per item is all there is to know.
        n_boot: number of resamples, for "bootstrap_items".
        rng: the stream for "bootstrap_items"; it is advanced.

    Returns:
        The estimate; se or interval None, with the reason in `diagnostics`, where they are not identified
        (one item, one group, single draws of fixed items).

    Raises:
        InputError: if an item has no draw, scores leave [0, 1] where the method needs them inside, or the
            options contradict each other.
        UnknownNameError: on an unknown method or target.

    Examples:
        >>> e = score_interval([[1, 1, 0], [1, 1, 1], [0, 0, 1], [1, 0, float("nan")]])
        >>> round(e.value, 4), e.n_items, e.n_samples
        (0.625, 4, 11)
        >>> e.flags
        ('unequal_draws', 'negative_between', 'few_events')
        >>> print(score_interval([1] * 50))  # all right, and still not certain
        1.0000 [0.9287, 1.0000]
    """
    check_level(level)
    for kind, name, known in (("method", method, get_args(Method)), ("target", target, get_args(Target))):
        if name not in known:
            raise UnknownNameError(kind, name, known)
    items = item_means(y)
    target = "benchmark" if method == "fixed_items" else target
    fraction = _sampled_fraction(items.n, target, population_size, method)
    in_unit = 0 <= items.low <= items.high <= 1
    if not in_unit and (fraction == 1.0 or method in {"wilson_neff", "fixed_items"}):
        raise InputError(
            f"Method {method!r} needs scores in [0, 1], got values from {items.low:g} to {items.high:g}. "
            "For scores of another range (log-likelihoods) use steelyard.stats.mean_t."
        )
    if deterministic:
        check_deterministic(items)
    frame = intervals.frame_of(items, level, method, target)
    if target == "benchmark":
        return _benchmark(frame, items, groups, fraction, population_size, deterministic=deterministic)
    grouping = group_codes(groups, items.n)
    frame = replace(frame, n_groups=None if grouping is None else grouping[1])
    variance = None
    if items.n > 1 and frame.n_groups != 1:
        variance = variance_of_mean(items.means, grouping)
    frame = intervals.split_variance(frame, items, variance, deterministic=deterministic)
    if in_unit:
        frame = intervals.flag_few_events(frame, items, grouping)
    if method == "bootstrap_items":
        return _bootstrap_items(frame, items, groups, n_boot, rng)
    if variance is None:
        return intervals.refuse_one(frame)
    frame = intervals.flag_few_groups(frame)
    if method == "t":
        return intervals.t_interval(frame, variance)
    return intervals.wilson_neff(frame, items, variance, deterministic=deterministic)


def _sampled_fraction(n: int, target: Target, population_size: int | None, method: Method) -> float:
    """The f = n/N that was sampled: 0 for the population and 1 for the benchmark itself."""
    if target == "population":
        if population_size is not None:
            raise InputError(
                "population_size counts the items of a benchmark: pass target='benchmark' with it."
            )
        return 0.0
    if method == "bootstrap_items":
        raise InputError(
            "Resampling items speaks about a population of items. For target='benchmark' use method "
            "'wilson_neff', 't' or 'fixed_items'."
        )
    if population_size is None:
        return 1.0
    if population_size < n:
        raise InputError(f"population_size must be at least the number of items, {n}. Got {population_size}.")
    if method == "fixed_items" and population_size > n:
        raise InputError(
            f"Method 'fixed_items' speaks about the {n} items given, not about {population_size}. "
            "Leave population_size out, or use method='wilson_neff'."
        )
    return n / population_size


def _benchmark(
    frame: Estimate,
    items: ItemMeans,
    groups: Groups | None,
    fraction: float,
    population_size: int | None,
    *,
    deterministic: bool,
) -> Estimate:
    """Intervals about these very items (fraction 1) or the finite benchmark they are a random sample of."""
    if group_codes(groups, items.n) is not None:
        frame = frame.noted("groups_unused", "groups do not matter for the benchmark's own items")
    variance = variance_of_mean(items.means) if items.n > 1 else None
    frame = intervals.split_variance(frame, items, variance, deterministic=deterministic)
    if fraction == 1.0:
        return intervals.fixed_items(replace(frame, method="fixed_items"), items, deterministic=deterministic)
    frame = frame.noted("finite_population", f"{items.n} items stand for the benchmark's {population_size}")
    if variance is None:
        return intervals.refuse_one(frame)
    within = frame.within
    if within is None:
        # f * within is part of this variance; taking it for 0 would understate, for V overstate
        return frame.noted(
            "not_identified",
            "a sample of a finite benchmark needs two draws per item, or scores that are deterministic",
        )
    if 0 <= items.low <= items.high <= 1:
        frame = intervals.flag_few_events(frame, items)
    if frame.method == "t":
        return intervals.t_interval(frame, (1 - fraction) * variance + fraction * within)
    return intervals.wilson_neff(frame, items, variance, fraction=fraction, deterministic=deterministic)


def _bootstrap_items(
    frame: Estimate, items: ItemMeans, groups: Groups | None, n_boot: int, rng: np.random.Generator | None
) -> Estimate:
    """Percentiles of the mean over resampled items, or over resampled groups with all their items."""
    rng = check_bootstrap(frame.level, n_boot, rng)
    # the count is a second column, because resampled groups differ in size
    units, _ = bootstrap_units(np.column_stack([items.means, np.ones(items.n)]), groups)
    replicates = None
    if units.shape[0] > 1:
        sums = resampled_sums(units, n_boot, rng)
        replicates = sums[:, 0] / sums[:, 1]
    return percentile_estimate(frame, replicates)
