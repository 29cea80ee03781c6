"""Drawing a token so that the draw depends on the request and the step, and on nothing else."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steelyard.core.rng import stream
from steelyard.core.types import Sampling

BLOCK = 64  # tokens that share a number in the first stage of a draw
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

    Gumbel-max (Gumbel 1954; Maddison et al. 2014, arXiv:1411.0030), in two stages: the argmax over blocks of 64
    tokens of the block's log-mass plus a Gumbel number of the block's own, then the same over the tokens of that
    block. Both are exact, hence so is the draw. Unlike the inverse of the cumulative distribution it hardly feels
    rounding: a batch of another shape moves every logit by some 1e-6, which moves all later sums of a cumulative
    distribution, but can change an argmax only when its two best are that close. And a vocabulary of 49,152 takes
    832 random numbers, not 49,152.

    The numbers come from a counter-based generator keyed by (seed, step), so batch, order and resume have no part
    in them, and filters shift none to another token.

    Args:
        logits: shape (vocabulary,), at least one finite and none NaN or +inf.
        sampling: temperature > 0; top_k and top_p as in the class.
        seed: the request's own.
        step: index of the new token, from 0.

    Returns:
        The token's id.
    """
    blocks = -(-logits.size // BLOCK)
    weights = np.zeros(blocks * BLOCK, dtype=np.float32)
    with np.errstate(over="ignore", divide="ignore"):
        # the maximum goes first, so that a tiny temperature gives -inf, never an overflow to inf - inf
        scores = (logits - logits.max()).astype(np.float32) / np.float32(max(sampling.temperature, 1e-30))
        if sampling.top_k is not None or sampling.top_p < 1:
            kept = _filtered(_scores(logits, sampling.temperature), sampling)
            weights[kept] = np.exp(scores[kept])
        else:
            np.exp(scores, out=weights[: logits.size])
        masses = np.log(weights.reshape(blocks, BLOCK).sum(axis=1))
    bits = draw_bits(seed, step, blocks + BLOCK)
    block = int(np.argmax(masses + _gumbel(bits[:blocks])))
    first = block * BLOCK
    tokens = first + np.flatnonzero(weights[first : first + BLOCK])
    inside = _scores(logits[tokens], sampling.temperature) + _gumbel(bits[blocks + tokens - first])
    return int(tokens[np.argmax(inside)])


def draw_plainly(logits: npt.NDArray[np.floating], sampling: Sampling, seed: int, step: int) -> int:
    """`draw` in float64 throughout, block by block: its slow twin."""
    scores = _scores(logits, sampling.temperature)
    kept = _filtered(scores, sampling)
    allowed = np.full(scores.size, -math.inf)
    allowed[kept] = scores[kept]
    blocks = -(-logits.size // BLOCK)
    numbers = _gumbel(draw_bits(seed, step, blocks + BLOCK))
    best, chosen = -math.inf, -1
    for block in range(blocks):
        mass = sum(math.exp(score) for score in allowed[block * BLOCK : (block + 1) * BLOCK])
        if mass > 0 and math.log(mass) + numbers[block] > best:
            best, chosen = math.log(mass) + numbers[block], block
    tokens = range(chosen * BLOCK, min((chosen + 1) * BLOCK, logits.size))
    return max(tokens, key=lambda token: allowed[token] + numbers[blocks + token - chosen * BLOCK])


def draw_bits(seed: int, step: int, count: int) -> npt.NDArray[np.uint64]:
    """The random numbers of one step of one draw: raw bits of its stream, shape (count,)."""
    # raw bits rather than Generator methods: NumPy promises that these never change between versions
    bits: npt.NDArray[np.uint64] = stream(seed, "token", step).bit_generator.random_raw(count)
    return bits


def _gumbel(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Gumbel numbers of random bits, all finite."""
    # 52 bits: the half of a 53-bit number is rounded away, and the largest would become 1, whose number is infinite
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # in (0, 1), neither end
    return -np.log(-np.log(uniform))


def _scores(logits: npt.NDArray[np.floating], temperature: float) -> npt.NDArray[np.float64]:
    """Logits below the largest, by the temperature; -inf where that overflows."""
    with np.errstate(over="ignore"):
        return (logits.astype(np.float64) - np.float64(logits.max())) / temperature


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
