"""How runs are ordered, repeated and summed up."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
U = TypeVar("U")
P = TypeVar("P", bound=Sequence[Any])

MINUTE = 60.0  # a peer that takes longer for the whole case is timed on a sample
SAMPLE = 100  # requests in that sample at least, all repeats together


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of a figure over the repeats."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of at least one value."""
        listed = list(values)
        return cls(statistics.median(listed), min(listed), max(listed))


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """The result of a call and its seconds, with the garbage of what ran before collected first."""
    gc.collect()
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def alternate(repeat: int, ours: Callable[[], T], peer: Callable[[], U]) -> tuple[T, U]:
    """Both sides once; ours goes first in even repeats, the peer in odd ones."""
    if repeat % 2 == 0:
        first = ours()
        return first, peer()
    second = peer()
    return ours(), second


def repeats(peer_seconds: float) -> int:
    """Five where the peer is expected to take less than a minute for the whole case, else three."""
    return 5 if peer_seconds < MINUTE else 3


def climb(
    sizes: Sequence[int], speed: Callable[[int], float], start: int = 0
) -> tuple[int, dict[int, float]]:
    """The best of ascending batch sizes, without trying all: upwards while it helps, else downwards.

    Speed over batch size has one peak on a CPU (wider products, then larger caches), so that neighbours of a
    worse size are left out; the search itself would otherwise cost more than the measurement.

    Args:
        sizes: ascending.
        speed: of a size, larger is better. It is called once for a size.
        start: index of the size to begin with.

    Returns:
        The best size, and the speeds that were measured.
    """
    measured = {sizes[start]: speed(sizes[start])}
    best = start
    for step in (1, -1):
        while 0 <= best + step < len(sizes) and sizes[best + step] not in measured:
            size = sizes[best + step]
            measured[size] = speed(size)
            if measured[size] <= measured[sizes[best]]:
                break
            best += step
        if best != start:
            break
    return sizes[best], measured


def sampled(problems: Sequence[P], rng: np.random.Generator, least: int = SAMPLE) -> list[P]:
    """Problems drawn at random, whole, until they hold at least so many requests."""
    chosen: list[P] = []
    count = 0
    for index in rng.permutation(len(problems)).tolist():
        if count >= least:
            break
        chosen.append(problems[index])
        count += len(problems[index])
    return chosen


def dealt(things: Sequence[T], hands: int) -> list[list[T]]:
    """Things dealt out one by one, so that the hands differ by one thing at most."""
    return [list(things[i::hands]) for i in range(hands)]


def batches(total: int, size: int, hands: int) -> list[int]:
    """How many requests each repeat takes, in whole batches: a rest of a few rows would slow a peer down.

    >>> batches(100, 32, 3)
    [64, 32, 32]
    """
    count = max(hands, math.ceil(total / size))
    return [size * len(range(i, count, hands)) for i in range(hands)]
