"""Intervals by resampling items, for scores that are not means: ratios of sums and corpus scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from steelyard.core.errors import InputError
from steelyard.stats.estimate import Estimate
from steelyard.stats.items import Floats, Groups, as_floats, complete, group_codes, name_items
from steelyard.stats.quantiles import check_level

_CHUNK = 2_000_000  # counts held at once: 16 MB, whatever the number of items
_FEW_UNITS = 30
_MIN_BOOT = 100


def resampled_sums(units: Floats, n_boot: int, rng: np.random.Generator) -> Floats:
    """Column sums of `n_boot` samples of the rows, each of as many rows as there are, with replacement.

    The rows are put into a fixed order first, so that the result does not depend on the order of the items.

    Args:
        units: what is resampled, shape (n_units, n_columns).
        n_boot: number of samples.
        rng: the stream; it is advanced.

    Returns:
        Sums, shape (n_boot, n_columns).
    """
    n = units.shape[0]
    units = units[np.lexsort(units.T[::-1])]
    sums = np.empty((n_boot, units.shape[1]))
    step = max(1, _CHUNK // n)
    for start in range(0, n_boot, step):
        rows = min(step, n_boot - start)
        picks = rng.integers(0, n, size=(rows, n))
        # one bincount over (sample, unit) pairs, then one product: no gather of whole rows
        flat = (picks + np.arange(rows)[:, None] * n).ravel()
        counts = np.bincount(flat, minlength=rows * n).reshape(rows, n)
        sums[start : start + rows] = counts @ units
    return sums


def bootstrap_units(rows: Floats, groups: Groups | None) -> tuple[Floats, int | None]:
    """What is resampled: the rows themselves or their sums by group, and the number of groups.

    Args:
        rows: shape (n_items, n_columns).
        groups: one label per item, None for items that stand alone.
    """
    grouping = group_codes(groups, rows.shape[0])
    if grouping is None:
        return rows, None
    codes, g = grouping
    units = np.zeros((g, rows.shape[1]))
    np.add.at(units, codes, rows)
    return units, g


def check_bootstrap(level: float, n_boot: int, rng: np.random.Generator | None) -> np.random.Generator:
    """Refuse what cannot give a percentile interval, and hand back the stream.

    Raises:
        InputError: if the level is none, there are too few resamples, or no stream is given.
    """
    check_level(level)
    if n_boot < _MIN_BOOT:
        raise InputError(
            f"A percentile interval needs n_boot >= {_MIN_BOOT} resamples, 1000 is usual. Got {n_boot}."
        )
    if rng is None:
        raise InputError(
            "A bootstrap needs its own random stream. Pass rng=steelyard.core.rng.stream(seed, 'bootstrap', ...)."
        )
    return rng


def percentile_estimate(frame: Estimate, replicates: Floats | None) -> Estimate:
    """Complete an estimate from bootstrap replicates: their standard deviation and their percentiles.

    Args:
        frame: the estimate with value, counts, method and level, still without uncertainty.
        replicates: shape (n_boot,), non-finite where a resample has no score; None for fewer than two units.

    Returns:
        The estimate; without interval where there are fewer than two units, no spread, or undefined resamples.
    """
    units, word = (frame.n_items, "item") if frame.n_groups is None else (frame.n_groups, "group")
    if replicates is None:
        return frame.noted(f"one_{word}", f"one {word} cannot be resampled: the spread of {word}s is unknown")
    undefined = int((~np.isfinite(replicates)).sum())
    if undefined:
        return frame.noted(
            "undefined_resamples", f"the score is undefined in {undefined} of {replicates.size} resamples"
        )
    largest = max(abs(frame.value), float(np.abs(replicates).max()))
    if float(np.ptp(replicates)) <= 1e-12 * largest:  # equal on paper, different by rounding
        return replace(frame, se=0.0).noted("zero_variance", f"every resample of the {word}s scores the same")
    tail = (1 - frame.level) / 2
    low, high = np.quantile(replicates, [tail, 1 - tail])
    done = replace(frame, se=float(replicates.std(ddof=1)), low=float(low), high=float(high))
    if units < _FEW_UNITS:
        return done.noted(
            f"few_{word}s", f"percentile intervals are too narrow below {_FEW_UNITS} {word}s, here {units}"
        )
    return done


def ratio_bootstrap(
    numerator: ArrayLike,
    denominator: ArrayLike,
    *,
    groups: Groups | None = None,
    level: float = 0.95,
    n_boot: int = 1000,
    rng: np.random.Generator | None,
) -> Estimate:
    """A ratio of sums over items, such as bits per byte, with a percentile bootstrap over items or groups.

    Not the mean of the items' ratios: long items weigh more, as they do in bits per byte and perplexity.

    Args:
        numerator: shape (n_items,), any unit (bits).
        denominator: shape (n_items,), >= 0, of positive sum (bytes).
        groups: one label per item; then whole groups are resampled.
        level: nominal coverage, in (0, 1).
        n_boot: number of resamples, >= 100.
        rng: the stream, see `steelyard.core.rng.stream`; it is advanced.

    Returns:
        sum(numerator) / sum(denominator) with its bootstrap standard error.

    Raises:
        InputError: on missing values, unequal lengths, a negative denominator, or one that sums to 0.

    >>> from steelyard.core.rng import stream
    >>> e = ratio_bootstrap([10.0, 20.0, 60.0], [10.0, 20.0, 20.0], rng=stream(0, "bootstrap"))
    >>> e.value, e.n_items, e.flags
    (1.8, 3, ('few_items',))
    """
    rng = check_bootstrap(level, n_boot, rng)
    top, bottom = complete(numerator, "The numerator"), complete(denominator, "The denominator")
    if top.size != bottom.size:
        raise InputError(
            f"Numerator and denominator must hold one value per item, got {top.size} and {bottom.size}."
        )
    negative = np.flatnonzero(bottom < 0)
    if negative.size:
        raise InputError(f"The denominator must not be negative; {name_items(negative)} are.")
    if bottom.sum() <= 0:
        raise InputError("The denominator sums to 0: the ratio is undefined. Leave out items of no length.")
    rows = np.column_stack([top, bottom])
    units, n_groups = bootstrap_units(rows, groups)
    replicates = None
    if units.shape[0] > 1:
        sums = resampled_sums(units, n_boot, rng)
        with np.errstate(divide="ignore", invalid="ignore"):  # counted as undefined resamples
            replicates = sums[:, 0] / sums[:, 1]
    frame = Estimate(
        value=float(top.sum() / bottom.sum()),
        level=level,
        n_items=top.size,
        n_samples=top.size,
        n_groups=n_groups,
        method="ratio_bootstrap",
    )
    return percentile_estimate(frame, replicates)


def corpus_bootstrap(
    stats: ArrayLike,
    score: Callable[[Floats], float],
    *,
    groups: Groups | None = None,
    level: float = 0.95,
    n_boot: int = 1000,
    rng: np.random.Generator | None,
) -> Estimate:
    """A corpus score such as BLEU or chrF, which is a function of summed counts, bootstrapped over items.

    Args:
        stats: the counts of each item (n-gram matches, totals, lengths), shape (n_items, n_stats).
        score: the score of summed counts of shape (n_stats,); called n_boot + 1 times.
        groups: one label per item; then whole groups are resampled.
        level: nominal coverage, in (0, 1).
        n_boot: number of resamples, >= 100.
        rng: the stream, see `steelyard.core.rng.stream`; it is advanced.

    Returns:
        The score of the whole corpus with its bootstrap standard error (Koehn 2004, EMNLP).

    Raises:
        InputError: on missing counts, another shape, or if the score of the whole corpus is not finite.

    >>> from steelyard.core.rng import stream
    >>> counts = [[1, 2], [2, 2], [0, 2], [2, 2]]
    >>> corpus_bootstrap(counts, lambda s: float(s[0] / s[1]), rng=stream(0, "bootstrap")).value
    0.625
    """
    rng = check_bootstrap(level, n_boot, rng)
    rows = as_floats(stats, "Statistics")
    if rows.ndim != 2:
        raise InputError(f"Statistics must have shape (n_items, n_stats), got {rows.shape}.")
    missing = np.flatnonzero(np.isnan(rows).any(axis=1))
    if missing.size:
        raise InputError(f"Statistics must be complete; {name_items(missing)} have gaps.")
    value = float(score(rows.sum(axis=0)))
    if not math.isfinite(value):
        raise InputError(f"The score of the whole corpus must be finite, got {value!r}.")
    units, n_groups = bootstrap_units(rows, groups)
    replicates = None
    if units.shape[0] > 1:
        sums = resampled_sums(units, n_boot, rng)
        replicates = np.fromiter((score(row) for row in sums), dtype=np.float64, count=n_boot)
    frame = Estimate(
        value=value,
        level=level,
        n_items=rows.shape[0],
        n_samples=rows.shape[0],
        n_groups=n_groups,
        method="corpus_bootstrap",
    )
    return percentile_estimate(frame, replicates)
