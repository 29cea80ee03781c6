"""Two-sided quantiles and the Wilson interval: all that intervals need of a distribution."""

from __future__ import annotations

import math

from steelyard.core.errors import InputError


def check_level(level: float) -> None:
    """Refuse a level that is not a probability strictly between 0 and 1.

    Raises:
        InputError: if it is not; 95 instead of 0.95 is the usual case.
    """
    if not 0.0 < level < 1.0:
        hint = f" Did you mean {level / 100:g}?" if 1.0 < level < 100.0 else ""
        raise InputError(f"The level of an interval must lie in (0, 1), such as 0.95. Got {level!r}.{hint}")


def normal_quantile(level: float) -> float:
    """The z with P(-z < Z < z) = level for a standard normal Z.

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    from scipy.special import ndtri

    return float(ndtri(0.5 + level / 2))


def t_quantile(level: float, df: int) -> float:
    """The q with P(-q < T < q) = level for Student's T with `df` >= 1 degrees of freedom.

    >>> round(t_quantile(0.95, 9), 4)
    2.2622
    """
    # scipy.special, not scipy.stats: the same number, and the import is ten times as fast
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.5 + level / 2))


def wilson(value: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a proportion.

    Args:
        value: observed proportion, in [0, 1].
        n: number of independent answers, > 0; an effective number need not be whole.
        level: nominal coverage, in (0, 1).

    Returns:
        The lower and the upper end, inside [0, 1] and never equal (Wilson 1927, eq. 4 of Brown, Cai and
        DasGupta 2001).

    Raises:
        InputError: if an argument lies outside its range.

    >>> tuple(round(end, 4) for end in wilson(1.0, 10))
    (0.7225, 1.0)
    """
    check_level(level)
    if not 0.0 <= value <= 1.0:
        raise InputError(
            f"A proportion lies in [0, 1], got {value!r}. For other scores use steelyard.stats.mean_t."
        )
    if not 0.0 < n < math.inf:
        raise InputError(f"The number of answers must be positive and finite, got {n!r}.")
    a = normal_quantile(level) ** 2 / n
    center = (value + a / 2) / (1 + a)
    half = math.sqrt(a * (value * (1 - value) + a / 4)) / (1 + a)
    # The two ends are the roots of one quadratic. Centre minus half loses digits near 0 and can leave
    # [0, 1] by a rounding error; the product of the roots gives that end exactly, and 0 or 1 at the edges.
    if value <= 0.5:
        high = center + half
        return value**2 / ((1 + a) * high), high
    miss = (1 - center) + half  # 1 - low
    return 1 - miss, 1 - (1 - value) ** 2 / ((1 + a) * miss)
