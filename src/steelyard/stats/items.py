"""From draws to item means and to the variance of their mean: the part that every interval shares."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard.core.errors import InputError

Floats = NDArray[np.float64]
Groups = Sequence[Hashable] | NDArray[Any]

# Item means that are equal on paper differ by rounding when they were summed in another order. Below this,
# relative to the largest mean, a spread is rounding and not information.
_ROUNDING = 1e-13


@dataclass(frozen=True, slots=True)
class ItemMeans:
    """Item means with the within-item variance of each, where it can be estimated.

    Attributes:
        means: mean over the item's draws, shape (n,).
        draws: number of draws k_i >= 1 of each item, shape (n,).
        draw_variance: s_i^2 / k_i, unbiased for the variance of `means[i]` given the item, shape (n,); for
            right-or-wrong answers it equals c(k-c) / (k^2 (k-1)). None if any item has one draw only.
        varied: positions of items whose draws differ.
        low: smallest single score.
        high: largest single score.
    """

    means: Floats
    draws: NDArray[np.int64]
    draw_variance: Floats | None
    varied: NDArray[np.int64]
    low: float
    high: float

    @property
    def n(self) -> int:
        """Number of items."""
        return int(self.means.size)

    @property
    def n_samples(self) -> int:
        """Number of draws over all items."""
        return int(self.draws.sum())

    @property
    def n_fixed(self) -> float:
        """Answers that the mean of item means is worth when items are fixed: n^2 / sum(1/k_i), n*k if equal."""
        return float(self.n**2 / (1 / self.draws).sum())


def name_items(where: NDArray[Any]) -> str:
    """Positions as text, the first ten of them.

    >>> name_items(np.array([3, 17]))
    'items 3, 17'
    """
    shown = ", ".join(str(int(i)) for i in where[:10])
    more = f" and {where.size - 10} more" if where.size > 10 else ""
    return f"{'item' if where.size == 1 else 'items'} {shown}{more}"


def as_floats(values: ArrayLike, what: str) -> Floats:
    """Numbers as float64, None and masked entries as NaN.

    Raises:
        InputError: if they are no numbers, ragged, empty, or infinite.
    """
    try:
        # a masked entry would silently become its fill value in np.asarray
        array = np.ma.filled(np.ma.asarray(values).astype(np.float64), np.nan)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be an array of numbers, of one length per item: {error}.") from error
    if array.size == 0:
        raise InputError(f"{what} must hold at least one item, got an array of shape {array.shape}.")
    if np.isinf(array).any():
        rows = np.unique(np.nonzero(np.isinf(array))[0])
        raise InputError(f"{what} must be finite; {name_items(rows)} hold an infinite value.")
    return array


def complete(values: ArrayLike, what: str) -> Floats:
    """Numbers of shape (n,) without gaps.

    Raises:
        InputError: if the shape is another one, or a value is missing or infinite.
    """
    array = as_floats(values, what)
    if array.ndim != 1:
        raise InputError(f"{what} must have shape (n_items,), got {array.shape}.")
    missing = np.flatnonzero(np.isnan(array))
    if missing.size:
        raise InputError(
            f"{what} must be complete; {name_items(missing)} have no value. Leave such items out and report "
            "how many were left out."
        )
    return array


def item_means(scores: ArrayLike) -> ItemMeans:
    """Reduce draws to item means.

    Args:
        scores: shape (n_items,) for one draw, or (n_items, k_max) with missing draws as NaN. A missing draw
            is neither wrong nor does it make its item count less: items weigh the same.

    Raises:
        InputError: if an item has no draw at all, or the array is no such table.
    """
    table = as_floats(scores, "Scores")
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2:
        raise InputError(f"Scores must have shape (n_items,) or (n_items, draws), got {table.shape}.")
    there = ~np.isnan(table)
    draws = there.sum(axis=1)
    empty = np.flatnonzero(draws == 0)
    if empty.size:
        raise InputError(
            f"Every item needs at least one draw, but {name_items(empty)} of {table.shape[0]} have none. "
            "Ask them again, or leave them out and report how many were left out."
        )
    # zeros for the missing keep the sums plain; they are masked again in the squares below
    means = np.where(there, table, 0.0).sum(axis=1) / draws
    highest, lowest = np.fmax.reduce(table, axis=1), np.fmin.reduce(table, axis=1)  # both pass over NaN
    differ = highest != lowest
    variance = None
    if draws.min() >= 2:
        squares = np.where(there, (table - means[:, None]) ** 2, 0.0).sum(axis=1)
        # the mean of three 0.1 is not 0.1: equal draws must not leave a variance of rounding errors
        variance = np.where(differ, squares / ((draws - 1) * draws), 0.0)
    return ItemMeans(
        means, draws, variance, np.flatnonzero(differ), float(lowest.min()), float(highest.max())
    )


def check_deterministic(items: ItemMeans) -> None:
    """Refuse scores that were declared deterministic although draws of one item differ.

    Raises:
        InputError: naming the items.
    """
    if items.varied.size:
        raise InputError(
            f"Scores were declared deterministic, but the draws of {name_items(items.varied)} differ. "
            "Leave deterministic=False for sampled answers."
        )


def group_codes(groups: Groups | None, n: int) -> tuple[NDArray[np.int64], int] | None:
    """Group labels as codes 0..G-1 and G; None stays None.

    Args:
        groups: one hashable label per item, shape (n,); an item labelled None is a group of its own.
        n: number of items.

    Raises:
        InputError: if there is not one label per item, or a label is NaN.
    """
    if groups is None:
        return None
    labels = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(labels) != n:
        raise InputError(f"Groups must hold one label for each of the {n} items, got {len(labels)}.")
    codes = np.empty(n, dtype=np.int64)
    seen: dict[Hashable, int] = {}
    total = 0
    for i, label in enumerate(labels):
        if isinstance(label, float) and label != label:  # noqa: PLR0124 - NaN is the only such label
            raise InputError(f"Item {i} has the group label NaN. Use None for an item that stands alone.")
        if label is None or label not in seen:
            codes[i] = total
            total += 1
            if label is not None:
                seen[label] = int(codes[i])
        else:
            codes[i] = seen[label]
    return codes, total


def variance_of_mean(means: Floats, grouping: tuple[NDArray[np.int64], int] | None = None) -> float:
    """Variance of the mean of item means, exactly 0.0 if and only if there is no spread beyond rounding.

    Items alone: S^2/n with S^2 = sum (p_i - mean)^2 / (n - 1), which is unbiased for within and between part
    together. With groups: G/(G-1) * sum over groups of (sum in the group of (p_i - mean))^2 / n^2 (Miller
    2024, arXiv 2411.00640, appendix A, with the factor for few groups).

    Args:
        means: shape (n,), n >= 2.
        grouping: codes of shape (n,) and their number G >= 2, from `group_codes`.

    Returns:
        The variance, in squared units of the scores.

    >>> float(variance_of_mean(np.array([0.0, 1.0, 1.0, 0.0])))
    0.08333333333333333
    >>> float(variance_of_mean(np.array([0.0, 1.0, 1.0, 0.0]), (np.array([0, 1, 1, 0]), 2)))
    0.25
    """
    n = means.size
    deviation = means - means.mean()
    factor = n / (n - 1)
    if grouping is not None:
        codes, g = grouping
        deviation = np.bincount(codes, weights=deviation, minlength=g)
        factor = g / (g - 1)
    scale = float(np.abs(means).max()) * (1 if grouping is None else n / deviation.size)
    if float(np.abs(deviation).max()) <= _ROUNDING * scale:
        return 0.0
    return float(factor * (deviation**2).sum() / n**2)
