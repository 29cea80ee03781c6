"""The score of a guesser, computed from the items."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from steelyard.core.errors import InputError
from steelyard.stats.items import complete, name_items


def chance_level(chances: ArrayLike) -> float:
    """Expected score of guessing: the mean of the items' own chances.

    Items differ in their number of options, so 1/4 is not the chance level of a benchmark with four options
    "mostly".

    Args:
        chances: probability, in [0, 1], that a guess at the item is right, shape (n_items,).

    Returns:
        The mean, in [0, 1].

    Raises:
        InputError: if a chance is missing or lies outside [0, 1].

    >>> chance_level([0.25, 0.25, 0.5])
    0.3333333333333333
    """
    array = complete(chances, "Chances")
    wrong = np.flatnonzero((array < 0) | (array > 1))
    if wrong.size:
        raise InputError(
            f"Chances are probabilities in [0, 1]; {name_items(wrong)} lie outside, the first is {array[wrong[0]]!r}."
        )
    return float(array.mean())
