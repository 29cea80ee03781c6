"""How each method turns item means and a variance into an interval; `mean.score_interval` chooses among them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from steelyard.stats.estimate import Estimate
from steelyard.stats.items import ItemMeans
from steelyard.stats.quantiles import normal_quantile, t_quantile, wilson

# With fewer items than this on the rarer side (not all right, or not all wrong), the spread of the item means
# says too little about rare items. Chosen on the grid of bench/simulate_intervals.py.
_FEW_EVENTS = 10
_FEW_GROUPS = 10
_MUCH = 1.5  # beyond the clip by more than chance brings: graded scores of small spread


def _units(frame: Estimate) -> int:
    """Number of independent pieces behind the variance: groups where there are any, else items."""
    return frame.n_items if frame.n_groups is None else frame.n_groups


def frame_of(items: ItemMeans, level: float, method: str, target: str) -> Estimate:
    """The estimate that every method completes: value and counts, without uncertainty."""
    frame = Estimate(
        value=float(items.means.mean()),
        level=level,
        n_items=items.n,
        n_samples=items.n_samples,
        method=method,
        target=target,
    )
    fewest, most = int(items.draws.min()), int(items.draws.max())
    if fewest != most:
        return frame.noted("unequal_draws", f"items have {fewest} to {most} draws; each item weighs the same")
    return frame


def refuse_one(frame: Estimate) -> Estimate:
    """No standard error and no interval for one item or one group: there is nothing to compare with."""
    word = "item" if frame.n_items == 1 else "group"
    return frame.noted(f"one_{word}", f"one {word} has no spread: neither standard error nor interval")


def flag_few_events(
    frame: Estimate, items: ItemMeans, grouping: tuple[NDArray[np.int64], int] | None = None
) -> Estimate:
    """Note when fewer than ten items hold any failure, or fewer than ten any success, and the same of groups.

    Only the note about items changes an interval (`wilson_neff`, `fixed_items`). Capping n_eff at the number of
    groups as well would make it several times too wide wherever groups matter little, which is the usual case;
    the note says what the interval then rests on.
    """
    failed, succeeded = items.means < 1, items.means > 0
    rarer, where = ("failure", failed) if failed.sum() <= succeeded.sum() else ("success", succeeded)
    count = int(where.sum())
    if count < _FEW_EVENTS:
        return frame.noted(
            "few_events",
            f"only {count} of {items.n} items hold a {rarer}: the spread of items is hardly known",
        )
    if grouping is not None:
        held = int(np.unique(grouping[0][where]).size)
        if held < _FEW_EVENTS <= grouping[1]:
            return frame.noted(
                "few_event_groups",
                f"only {held} of {grouping[1]} groups hold a {rarer}: the spread of groups is hardly known",
            )
    return frame


def flag_few_groups(frame: Estimate) -> Estimate:
    """Note when a standard error rests on fewer than ten groups."""
    if frame.n_groups is None or frame.n_groups >= _FEW_GROUPS:
        return frame
    return frame.noted(
        "few_groups", f"the standard error rests on {frame.n_groups} groups and is itself rough"
    )


def t_interval(frame: Estimate, variance: float) -> Estimate:
    """The mean +- q * se with Student's t over items or groups; not cut at the ends of the scale.

    Args:
        frame: the estimate without uncertainty.
        variance: of the mean, >= 0.

    Returns:
        The estimate; without interval where the variance is 0, since no spread was seen to build one from.
    """
    se = math.sqrt(variance)
    if se == 0.0:
        return replace(frame, se=0.0).noted(
            "zero_variance", "no spread was seen: a t interval would have no width"
        )
    reach = t_quantile(frame.level, _units(frame) - 1) * se
    return replace(frame, se=se, low=frame.value - reach, high=frame.value + reach)


def wilson_neff(
    frame: Estimate, items: ItemMeans, variance: float, *, fraction: float = 0.0, deterministic: bool = False
) -> Estimate:
    """Wilson's interval with the effective sample size of the item means, t-corrected and guarded.

    For a finite benchmark, 1/n_eff is the mixture of the two parts of the variance: (1 - f) times that of
    sampled items and f times that of fixed ones. At f = 0 this is the plain default.

    Args:
        frame: the estimate without uncertainty, flagged for few events.
        items: scores in [0, 1].
        variance: of the mean over items or groups, from `variance_of_mean`.
        fraction: f, the sampled part of a finite benchmark, in [0, 1).
        deterministic: there is no variance within items.
    """
    m, few = frame.value, "few_events" in frame.flags
    z, q = normal_quantile(frame.level), t_quantile(frame.level, _units(frame) - 1)
    if variance == 0.0:
        # the formula would divide by zero and promise certainty; each item or group counts once
        n_eff = float(_units(frame))
        frame = frame.noted("zero_variance", "no spread was seen: each item (or group) counts as one answer")
    else:
        raw = m * (1 - m) / variance * (z / q) ** 2
        n_eff = min(max(raw, 1.0), float(items.n_samples))
        if raw > _MUCH * items.n_samples:
            frame = frame.noted(
                "clipped",
                f"scores vary much less than {items.n_samples} right-or-wrong answers would: the interval is wider "
                "than needed, method 't' would do",
            )
    if few:
        n_eff = min(n_eff, float(items.n))
    if fraction > 0.0:
        share = _fixed_share(frame, items, few=few, deterministic=deterministic)
        n_eff = 1 / ((1 - fraction) / n_eff + fraction * share)
        variance = (1 - fraction) * variance + fraction * (frame.within or 0.0)
    low, high = wilson(m, n_eff, frame.level)
    return replace(frame, se=math.sqrt(variance), low=low, high=high, n_eff=n_eff)


def _fixed_share(frame: Estimate, items: ItemMeans, *, few: bool, deterministic: bool) -> float:
    """1/n_eff of the part that is due to drawing answers to fixed items."""
    if deterministic:
        return 0.0
    if few:
        # the within part rests on a handful of items then; one answer each is its upper bound
        return 1 / items.n_fixed
    return (frame.within or 0.0) / (frame.value * (1 - frame.value))


def fixed_items(frame: Estimate, items: ItemMeans, *, deterministic: bool = False) -> Estimate:
    """How far the score of these very items would move under new draws: the variance within items alone.

    Normal interval with the within part; with few events, or where all draws of each item agree, Wilson's
    interval on all answers, which is wider than needed but has no zero width. Not the average of posteriors
    per item: each would be pulled to 1/2, which covers 0-4 % at a mean of .8.

    Args:
        frame: the estimate without uncertainty, target "benchmark".
        items: scores in [0, 1].
        deterministic: there is no variance within items, hence no interval to give.
    """
    if deterministic:
        return frame.noted(
            "exact", "every item was answered and answers do not vary: no sampling error is left"
        )
    if frame.within is None:
        return frame.noted(
            "not_identified",
            "fixed items vary by their draws alone, which takes at least two draws of each item",
        )
    se = math.sqrt(frame.within)
    frame = flag_few_events(replace(frame, se=se), items)
    if "few_events" in frame.flags or se == 0.0:
        if se == 0.0:
            frame = frame.noted(
                "identical_draws", "all draws of each item agree: Wilson on all answers is given"
            )
        low, high = wilson(frame.value, items.n_fixed, frame.level)
        return replace(frame, low=low, high=high, n_eff=items.n_fixed)
    reach = normal_quantile(frame.level) * se
    if items.varied.size < _FEW_EVENTS:
        frame = frame.noted("few_varied", f"only {items.varied.size} items have draws that differ")
    return replace(frame, low=frame.value - reach, high=frame.value + reach)


def split_variance(
    frame: Estimate, items: ItemMeans, variance: float | None, *, deterministic: bool
) -> Estimate:
    """Add the two parts of the variance of the mean: drawing answers (within) and drawing items (between).

    within = mean(s_i^2 / k_i) / n is unbiased; between = variance - within, so that the parts sum to the
    variance exactly, and between may be negative by chance: the sign is kept.

    Args:
        frame: the estimate without uncertainty.
        items: the item means. With a single draw of any item the split is not identified: guessing that
            item's part from the others would assume that draws fail at random.
        variance: of the mean over items or groups; None where it is not known (one item or group).
        deterministic: within is known to be 0.
    """
    if deterministic:
        within = 0.0
    elif items.draw_variance is None:
        single = int((items.draws == 1).sum())
        whose = "every item has" if single == items.n else f"{single} of {items.n} items have"
        return frame.noted("single_draw", f"{whose} one draw: within and between items cannot be told apart")
    else:
        within = float(np.mean(items.draw_variance)) / items.n
    if variance is None:
        return replace(frame, within=within)
    between = variance - within
    frame = replace(frame, within=within, between=between)
    if between < 0:
        return frame.noted("negative_between", "the variance between items is estimated below 0: it is small")
    return frame
