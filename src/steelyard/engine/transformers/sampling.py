"""Drawing a token so that the draw depends on the request and the step, and on nothing else."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from steelyard.core.rng import stream
from steelyard.core.types import Sampling


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


def draw(logits: npt.NDArray[np.float64], sampling: Sampling, seed: int, step: int) -> int:
    """One draw from the softmax of ``logits / temperature``, restricted to top_k, then to top_p.

    Gumbel-max (Gumbel 1954; Maddison et al. 2014, arXiv:1411.0030): the argmax over tokens of scaled logit
    plus a Gumbel number of the token's own. It is an exact draw, and unlike the inverse of the cumulative
    distribution it hardly feels rounding: a batch of another shape moves every logit by some 1e-6, which
    moves all later sums of a cumulative distribution, but can change an argmax only when its two best
    tokens are that close. The token's number comes from a counter-based generator keyed by (seed, step),
    so batch, order and resume have no part in it, and filters do not shift it to another token.

    Args:
        logits: shape (vocabulary,), at least one finite and none NaN or +inf.
        sampling: temperature > 0; top_k and top_p as in the class.
        seed: the request's own.
        step: index of the new token, from 0.

    Returns:
        The token's id.
    """
    # the maximum goes first, so that a tiny temperature gives -inf, never an overflow to inf - inf
    scores = (logits - logits.max()) / sampling.temperature
    kept = np.flatnonzero(np.isfinite(scores))
    if sampling.top_k is not None and sampling.top_k < kept.size:
        edge = np.partition(scores[kept], kept.size - sampling.top_k)[kept.size - sampling.top_k]
        kept = kept[scores[kept] >= edge]  # ties with the k-th stay: leaving one out would be arbitrary
    if sampling.top_p < 1:
        order = kept[np.argsort(-scores[kept], kind="stable")]
        mass = np.cumsum(np.exp(scores[order]))
        # the smallest set that holds top_p of the mass: the token that crosses the line belongs to it
        count = int(np.searchsorted(mass, sampling.top_p * mass[-1])) + 1
        kept = np.sort(order[:count])
    # raw bits rather than Generator methods: NumPy promises that these never change between versions
    bits = stream(seed, "token", step).bit_generator.random_raw(logits.size)[kept]
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53  # in (0, 1), neither end
    gumbel = -np.log(-np.log(uniform))
    return int(kept[np.argmax(scores[kept] + gumbel)])
