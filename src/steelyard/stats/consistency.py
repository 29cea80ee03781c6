"""How far an item's draws agree with each other, right or wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from steelyard.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Consistency:
    """Agreement among k draws in C answer classes. Do not compare `s` or `s_mm` across different k.

    Attributes:
        s: ``sum_c p_c log p_c``, the negative entropy in nats, in [-log min(C, k), 0]; 0 when all draws agree.
        s_mm: `s` without the bias of few draws, ``s - (C - 1) / (2k)`` (Miller and Madow 1955).
        s_norm: ``1 + s / log k``, in [0, 1]; None for one draw.
        agreement: share of pairs of draws that agree, ``sum_c n_c (n_c - 1) / (k (k - 1))``: unbiased for any k;
            None for one draw.
        top_share: share of the most frequent class.
        k: draws. classes: of them that occurred.
    """

    s: float
    s_mm: float
    s_norm: float | None
    agreement: float | None
    top_share: float
    k: int
    classes: int


def consistency(counts: ArrayLike) -> Consistency:
    """Consistency of one item's draws.

    Args:
        counts: draws in each answer class, shape (n_classes,); empty classes change nothing. Draws from which no
            answer could be read belong to no class: leave them out and report their share beside.

    Raises:
        InputError: counts that are negative, broken or none at all.

    >>> consistency([7, 2, 1]).agreement
    0.4888888888888889
    """
    array = np.asarray(counts)
    if array.dtype.kind not in "iuf" or array.ndim != 1 or not np.isfinite(array).all():
        raise InputError(
            f"counts holds the draws in each class, one axis; got {array.dtype}, shape {array.shape}."
        )
    if (array < 0).any() or (array != np.round(array)).any():
        raise InputError(f"counts holds whole numbers, none below 0; got {array.tolist()[:10]}.")
    n = array[array > 0].astype(float)
    if not n.size:
        raise InputError(
            "The item has no draw with an answer, so its consistency is not defined. Leave it out."
        )
    k = float(n.sum())
    share = n / k
    s = min(0.0, float((share * np.log(share)).sum()))
    several = k > 1
    return Consistency(
        s=s,
        s_mm=s - (n.size - 1) / (2 * k),
        s_norm=max(0.0, 1 + s / float(np.log(k))) if several else None,
        agreement=float((n * (n - 1)).sum() / (k * (k - 1))) if several else None,
        top_share=float(share.max()),
        k=int(k),
        classes=int(n.size),
    )
