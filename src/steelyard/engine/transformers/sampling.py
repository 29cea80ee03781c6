"""Drawing a token so that the draw depends on the request and the step, and on nothing else."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steelyard.core.rng import stream
from steelyard.core.types import Sampling

_NEAR = 12.0  # scores below the best by more than this are looked at by their bits first
_FEW = 256  # so few tokens are computed at once
_LEVELS = 1024  # into which scores are rounded before a sort
_REACH = 32.0  # nats below the best, from where on all is one level


def check(sampling: Sampling, seed: int | None) -> str | None:
    """What is wrong with the settings of a generation, as a sentence; None when nothing is."""
    if sampling.max_tokens < 1:
        return f"max_tokens must be at least 1, got {sampling.max_tokens}."
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        return f"temperature must be a finite number >= 0, got {sampling.temperature}."
    if not 0 < sampling.top_p <= 1:
        return f"top_p must be in (0, 1], got {sampling.top_p}."
    if sampling.top_k is not None and sampling.top_k < 1:
        return f"top_k must be at least 1 or None, got {sampling.top_k}."
    if "" in sampling.stop:
        return "A stop string is empty; it would end every text before it begins."
    if sampling.temperature > 0 and seed is None:
        return "A sampled generation needs a seed of its own, got None."
    return None


def draw(logits: npt.NDArray[np.floating], sampling: Sampling, seed: int, step: int) -> int:
    """One draw from the softmax of ``logits / temperature``, restricted to top_k, then to top_p.

    Gumbel-max (Gumbel 1954; Maddison et al. 2014, arXiv:1411.0030): the argmax over tokens of scaled logit
    plus a Gumbel number of the token's own. It is an exact draw, and unlike the inverse of the cumulative
    distribution it hardly feels rounding: a batch of another shape moves every logit by some 1e-6, which
    moves all later sums of a cumulative distribution, but can change an argmax only when its two best
    tokens are that close. The token's number comes from a counter-based generator keyed by (seed, step),
    so batch, order and resume have no part in it, and filters do not shift it to another token.

    Nearly all of a vocabulary cannot win, and is not computed: a token far below the best needs a number so
    large that its random bits alone tell. What is returned is the argmax over all (`draw_plainly`).

    Args:
        logits: shape (vocabulary,), at least one finite and none NaN or +inf.
        sampling: temperature > 0; top_k and top_p as in the class.
        seed: the request's own.
        step: index of the new token, from 0.

    Returns:
        The token's id.
    """
    bits = token_bits(seed, step, logits.size)
    peak = logits.max()
    kept = None
    if sampling.top_k is not None or sampling.top_p < 1:
        kept = _filtered(_scores(logits, peak, sampling.temperature), sampling)
        if kept.size <= _FEW:
            return _best(logits, peak, sampling.temperature, kept, bits)
    near = logits >= peak - _NEAR * sampling.temperature
    head = np.flatnonzero(near) if kept is None else kept[near[kept]]
    won = _numbers(logits, peak, sampling.temperature, head, bits).max()
    # a token behind the head has a score of at most -_NEAR, give or take the rounding of the comparison, so its
    # Gumbel number must be at least won + _NEAR: u >= exp(-exp(-that)), whose distance from 1 is `least`
    slack = 1e-3 + 4e-7 * abs(float(peak)) / sampling.temperature
    least = -math.expm1(-math.exp(min(slack - won - _NEAR, 700.0)))
    if least >= 0.5:
        return _best(
            logits, peak, sampling.temperature, np.arange(logits.size) if kept is None else kept, bits
        )
    edge = np.uint64(math.floor((1 - least) * 2.0**52) - 2) << np.uint64(12)
    lucky = bits >= edge
    wanted = near | lucky
    tokens = np.flatnonzero(wanted) if kept is None else kept[wanted[kept]]
    return _best(logits, peak, sampling.temperature, tokens, bits)


def draw_plainly(logits: npt.NDArray[np.floating], sampling: Sampling, seed: int, step: int) -> int:
    """`draw` with every token computed: its slow twin."""
    peak = logits.max()
    kept = _filtered(_scores(logits, peak, sampling.temperature), sampling)
    return _best(logits, peak, sampling.temperature, kept, token_bits(seed, step, logits.size))


def token_bits(seed: int, step: int, size: int) -> npt.NDArray[np.uint64]:
    """Each token's own 64 random bits for one step of one draw: the raw bits of the stream, shape (size,)."""
    # integers over the full range are the raw bits, made without holding Python's lock (a test compares them)
    return stream(seed, "token", step).integers(0, 2**64, size, dtype=np.uint64)


def _scores(
    logits: npt.NDArray[np.floating], peak: np.floating, temperature: float
) -> npt.NDArray[np.float64]:
    # the maximum goes first, so that a tiny temperature gives -inf, never an overflow to inf - inf
    with np.errstate(over="ignore"):
        return (logits.astype(np.float64) - np.float64(peak)) / temperature


def _numbers(
    logits: npt.NDArray[np.floating],
    peak: np.floating,
    temperature: float,
    tokens: npt.NDArray[np.int64],
    bits: npt.NDArray[np.uint64],
) -> npt.NDArray[np.float64]:
    """Score plus Gumbel number of some tokens."""
    # 52 bits: the half of a 53-bit number is rounded away, and the largest would become 1, whose number is infinite
    uniform = ((bits[tokens] >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # in (0, 1), neither end
    return _scores(logits[tokens], peak, temperature) - np.log(-np.log(uniform))


def _best(
    logits: npt.NDArray[np.floating],
    peak: np.floating,
    temperature: float,
    tokens: npt.NDArray[np.int64],
    bits: npt.NDArray[np.uint64],
) -> int:
    return int(tokens[np.argmax(_numbers(logits, peak, temperature, tokens, bits))])


def _filtered(scores: npt.NDArray[np.float64], sampling: Sampling) -> npt.NDArray[np.int64]:
    """Tokens that top_k and then top_p keep, ascending."""
    kept = np.flatnonzero(np.isfinite(scores))
    if sampling.top_k is not None and sampling.top_k < kept.size:
        edge = np.partition(scores[kept], kept.size - sampling.top_k)[kept.size - sampling.top_k]
        kept = kept[scores[kept] >= edge]  # ties with the k-th stay: leaving one out would be arbitrary
    if sampling.top_p < 1:
        kept = kept[_nucleus(scores[kept], sampling.top_p)]
    return kept


def _nucleus(scores: npt.NDArray[np.float64], top_p: float) -> npt.NDArray[np.bool_]:
    """The smallest set that holds top_p of the mass; the token that crosses the line belongs to it.

    A sort of all would cost more than everything else in a draw. Scores are rounded to levels, whose masses say in
    which level the line is crossed; only that level is sorted.
    """
    weights = np.exp(scores)
    line = top_p * weights.sum()
    reach = min(max(float(-scores.min()), 1e-6), _REACH)
    level = (np.maximum(scores, -reach) * (-_LEVELS / reach)).astype(np.int64)
    mass = np.bincount(level, weights).cumsum()
    # sums in another order can end an ulp below the line
    edge = min(int(np.searchsorted(mass, line)), len(mass) - 1)
    crossing = np.flatnonzero(level == edge)
    order = crossing[np.argsort(-scores[crossing], kind="stable")]
    before = mass[edge - 1] if edge else 0.0
    taken = int(np.searchsorted(before + np.cumsum(weights[order]), line)) + 1
    inside = level < edge
    inside[order[:taken]] = True
    return inside
