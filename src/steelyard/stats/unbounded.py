"""Means and sums of scores that have no fixed range, such as log-likelihoods."""

from __future__ import annotations

from dataclasses import replace

from numpy.typing import ArrayLike

from steelyard.stats import intervals
from steelyard.stats.estimate import Estimate
from steelyard.stats.items import Groups, check_deterministic, group_codes, item_means, variance_of_mean
from steelyard.stats.quantiles import check_level


def mean_t(
    values: ArrayLike, *, groups: Groups | None = None, level: float = 0.95, deterministic: bool = False
) -> Estimate:
    """The mean of scores of any range, such as log-likelihoods in nats, with Student's t over items or groups.

    Args:
        values: shape (n_items,) or (n_items, k_max) with missing draws as NaN.
        groups: one label per item; items that share one are not independent.
        level: nominal coverage, in (0, 1).
        deterministic: the same request always brings the same score, so nothing varies within items.

    Returns:
        The estimate; without se and interval for one item or one group.

    Raises:
        InputError: if an item has no value, or a value is infinite.

    >>> f"{mean_t([-3.0, -1.0, -2.0, -2.0]):.3f}"
    '-2.000 [-3.299, -0.701]'
    """
    check_level(level)
    items = item_means(values)
    if deterministic:
        check_deterministic(items)
    grouping = group_codes(groups, items.n)
    frame = intervals.frame_of(items, level, "t", "population")
    frame = replace(frame, n_groups=None if grouping is None else grouping[1])
    variance = None
    if items.n > 1 and frame.n_groups != 1:
        variance = variance_of_mean(items.means, grouping)
    frame = intervals.split_variance(frame, items, variance, deterministic=deterministic)
    if variance is None:
        return intervals.refuse_one(frame)
    return intervals.t_interval(intervals.flag_few_groups(frame), variance)


def total_t(
    values: ArrayLike, *, groups: Groups | None = None, level: float = 0.95, deterministic: bool = False
) -> Estimate:
    """The sum over the items instead of the mean: value, se and ends times n, variances times n^2.

    The interval speaks about the sum over n items drawn like these, n being fixed.

    Args:
        values: see `mean_t`.
        groups: see `mean_t`.
        level: nominal coverage, in (0, 1).
        deterministic: see `mean_t`.

    >>> f"{total_t([-3.0, -1.0, -2.0, -2.0]):.2f}"
    '-8.00 [-13.20, -2.80]'
    """
    e = mean_t(values, groups=groups, level=level, deterministic=deterministic)
    n = e.n_items

    def times(number: float | None, factor: int) -> float | None:
        return None if number is None else number * factor

    return replace(
        e,
        value=e.value * n,
        se=times(e.se, n),
        low=times(e.low, n),
        high=times(e.high, n),
        within=times(e.within, n * n),
        between=times(e.between, n * n),
    )
