"""What k draws of an item would bring, from n draws of it: pass@k, pass^k, G-Pass@k, maj@k.

All are exact expectations over the subsets of k of the n draws, without replacement; none takes the first k, whose
order may mean something. An item with fewer than k draws has no such subset: that is an error which names it, and
never a 1.0 or a silent gap.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard.core.errors import InputError
from steelyard.stats.items import Floats, name_items

Ints = NDArray[np.int64]


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Floats | float:
    """Probability that at least one of k draws is right: ``1 - C(n-c, k) / C(n, k)``.

    Args:
        n: draws of each item, >= k. It broadcasts with c and k.
        c: right ones among them, 0 .. n.
        k: draws to look at, >= 1.

    Returns:
        In [0, 1]: a float for scalars, else an array of the common shape.

    Raises:
        InputError: numbers that are no such counts, or items with n < k; their indices are named.

    Source: Chen et al. 2021, arXiv:2107.03374, equation 1.

    >>> round(pass_at_k(10, 3, 5), 6)
    0.916667
    """
    shape, n_, c_, k_ = _checked(n, c, k)
    return _shaped(1 - _all_of(n_, n_ - c_, k_), shape)


def pass_hat_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Floats | float:
    """Probability that all of k draws are right: ``C(c, k) / C(n, k)`` (pass^k).

    The plug-in (c/n)^k is too large. Arguments, result and errors as `pass_at_k`.

    Source: Yao et al. 2024, arXiv:2406.12045, section 3.

    >>> round(pass_hat_k(10, 3, 2), 6)
    0.066667
    """
    shape, n_, c_, k_ = _checked(n, c, k)
    return _shaped(_all_of(n_, c_, k_), shape)


def g_pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike, tau: float) -> Floats | float:
    """Probability that at least ``ceil(tau k)`` of k draws are right, and at least one.

    Args:
        n: as `pass_at_k`.
        c: as `pass_at_k`.
        k: as `pass_at_k`.
        tau: in [0, 1]; towards 0 it is pass@k, at 1 it is pass^k.

    Raises:
        InputError: as `pass_at_k`, or tau outside of [0, 1].

    Source: Liu et al. 2024, arXiv:2412.13147, equation 4.

    >>> round(g_pass_at_k(16, 10, 8, 0.75), 6)
    0.304196
    """
    if not 0 <= tau <= 1:
        raise InputError(f"tau is a share of the draws, in [0, 1]; got {tau!r}.")
    shape, n_, c_, k_ = _checked(n, c, k)
    # 0.07 * 100 is 7.000000000000001 in floating point, and seven are enough
    need = np.maximum(1, np.ceil(tau * k_ - 1e-9)).astype(np.int64)
    return _shaped(_at_least(n_, c_, k_, need), shape)


def mg_pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> Floats | float:
    """Mean of G-Pass@k over tau in (0.5, 1]: ``(2/k) sum_{i = ceil(k/2)+1 .. k} G-Pass@k_{i/k}``.

    Arguments, result and errors as `pass_at_k`. With k = 1 the sum is empty, and the value 0 by that definition.

    Source: Liu et al. 2024, arXiv:2412.13147, equation 6.

    >>> round(mg_pass_at_k(16, 10, 8), 6)
    0.265734
    """
    shape, n_, c_, k_ = _checked(n, c, k)
    total = np.zeros(n_.shape)
    for i in range(1, int(k_.max(initial=0)) + 1):
        counted = (i > np.ceil(k_ / 2)) & (i <= k_)
        if counted.any():
            total[counted] += _at_least(n_[counted], c_[counted], k_[counted], np.full(counted.sum(), i))
    return _shaped(2 * total / k_, shape)


def majority_at_k(counts: ArrayLike, right: int | None, k: int, void: int = 0) -> float:
    """Expected score of the most frequent answer among k draws of one item (maj@k).

    Ties are split evenly among the answers that share the first place. A void draw (nothing could be read) uses up a
    draw and never wins; k void draws score 0.

    Args:
        counts: draws in each answer class, void ones left out, shape (n_classes,).
        right: index of the key's class; None where no draw gave it.
        k: draws to look at, >= 1.
        void: void draws, >= 0.

    Returns:
        In [0, 1].

    Raises:
        InputError: counts that are none, an index that is none, or fewer than k draws.

    >>> majority_at_k([2, 1], 0, 2)  # both right, or one of each and a tie
    0.6666666666666666
    """
    classes = _counts(counts)
    for name, value, least in (("k", k, 1), ("void", void, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InputError(f"{name} is a whole number of draws, at least {least}; got {value!r}.")
    total = int(classes.sum()) + int(void)
    if total < k:
        raise InputError(f"maj@{k} needs {k} draws of the item; it has {total} ({int(void)} of them void).")
    if right is None:
        return 0.0
    if isinstance(right, bool) or not isinstance(right, int | np.integer) or not 0 <= right < len(classes):
        raise InputError(f"right is the index of a class, 0 to {len(classes) - 1}, or None; got {right!r}.")
    mine = int(classes[right])
    others = [int(x) for i, x in enumerate(classes) if i != right and x > 0]
    every = math.comb(total, k)
    score = 0.0
    for drawn in range(1, min(k, mine) + 1):
        rest = k - drawn
        for ties, ways in enumerate(_ways(others, int(void), drawn, rest)):
            # whole numbers up to here, so nothing is lost where binomials are beyond float64
            score += (math.comb(mine, drawn) * ways) / every / (ties + 1)
    return score


def _ways(others: list[int], void: int, most: int, rest: int) -> list[int]:
    """Ways to draw `rest` from other classes with at most `most` of each, and void ones, by how many reach `most`."""
    tied = rest // most
    # ways[t][x]: x draws so far, t classes that reached the first place
    ways = [[0] * (rest + 1) for _ in range(tied + 1)]
    ways[0][0] = 1
    for size in others:
        below = [math.comb(size, i) for i in range(min(most - 1, size, rest) + 1)]
        full = math.comb(size, most) if size >= most else 0
        new = [_times(row, below) for row in ways]
        if full:
            for t in range(tied):
                for x in range(rest - most + 1):
                    if ways[t][x]:
                        new[t + 1][x + most] += full * ways[t][x]
        ways = new
    return [
        sum(row[x] * math.comb(void, rest - x) for x in range(rest + 1) if rest - x <= void) for row in ways
    ]


def _times(row: list[int], factors: list[int]) -> list[int]:
    """Product of two polynomials, cut to the length of the first."""
    out = [0] * len(row)
    for x, ways in enumerate(row):
        if ways:
            for i, factor in enumerate(factors[: len(row) - x]):
                out[x + i] += ways * factor
    return out


# ------------------------------------------------------------------------------------------------ arithmetic
def _all_of(n: Ints, some: Ints, k: Ints) -> Floats:
    """C(some, k) / C(n, k): all of k draws are among `some` of n."""
    from scipy.special import gammaln

    out = np.zeros(n.shape)
    fit = some >= k
    a, b, size = some[fit], n[fit], k[fit]
    out[fit] = np.exp(gammaln(a + 1) - gammaln(a - size + 1) - gammaln(b + 1) + gammaln(b - size + 1))
    out[some == n] = 1.0  # exactly, and not by rounding
    return out


def _at_least(n: Ints, c: Ints, k: Ints, need: Ints) -> Floats:
    from scipy.stats import hypergeom

    return np.asarray(hypergeom.sf(need - 1, n, c, k), dtype=float).clip(0, 1)


# --------------------------------------------------------------------------------------------------- input
def _checked(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> tuple[tuple[int, ...], Ints, Ints, Ints]:
    """The common shape, and flat arrays."""
    whole = [_whole(x, name) for x, name in ((n, "n"), (c, "c"), (k, "k"))]
    try:
        arrays = np.broadcast_arrays(*whole)
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in whole)
        raise InputError(f"n, c and k must have shapes that broadcast; got {shapes}.") from None
    shape = arrays[0].shape
    flat = [np.ravel(x) for x in arrays]
    n_, c_, k_ = flat
    for wrong, rule in (
        (k_ < 1, "k must be at least 1"),
        ((c_ < 0) | (c_ > n_), "c counts right draws, from 0 to n"),
        (n_ < k_, "k draws cannot be taken from fewer than k; draw more, or take a smaller k"),
    ):
        if wrong.any():
            at = np.flatnonzero(wrong)
            first = at[0]
            raise InputError(
                f"{rule}: {name_items(at)}, the first with n={n_[first]}, c={c_[first]}, k={k_[first]}."
            )
    return shape, n_, c_, k_


def _whole(values: ArrayLike, name: str) -> Ints:
    array = np.asarray(values)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.round(array)).all():
        return array.astype(np.int64)
    raise InputError(f"{name} holds whole numbers of draws; got {array.dtype} {array.ravel()[:3].tolist()}.")


def _counts(values: ArrayLike) -> Ints:
    array = _whole(np.asarray(values, dtype=float) if np.size(values) == 0 else values, "counts")
    if array.ndim != 1 or (array < 0).any():
        raise InputError(
            f"counts holds the draws in each class, one axis, none below 0; got shape {array.shape}"
            f"{', the least is ' + str(array.min()) if array.size else ''}."
        )
    return array


def _shaped(values: Floats, shape: tuple[int, ...]) -> Floats | float:
    return values.reshape(shape) if shape else float(values[0])
