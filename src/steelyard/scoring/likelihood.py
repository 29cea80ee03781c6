"""The likelihood of the gold text, as a score without right and wrong."""

from __future__ import annotations

import math

from steelyard.core.errors import UnknownNameError
from steelyard.core.types import Status
from steelyard.scoring.choice import is_logprob, n_bytes
from steelyard.scoring.verdict import Verdict, failed

SCORERS = ("loglik", "bits_per_byte")


def judge_likelihood(text: str, logprob: float | None, n_tokens: int, scorer: str) -> Verdict:
    """Score one gold text.

    ``loglik``: log p in nats, summed over the text's tokens (S_LL of Hangya, Kuech and Gold 2025 is its sum over
    items). ``bits_per_byte``: -log p / (ln 2 * bytes), lower is better and comparable across tokenizers; the
    benchmark's value is the ratio of the sums of ``detail["nats"]`` and ``detail["bytes"]``, not the mean.

    Args:
        text: the gold text without the joining delimiter.
        logprob: nats, at most 0.
        n_tokens: tokens scored.
        scorer: "loglik" or "bits_per_byte".

    Returns:
        Status ok, or error with the reason when nothing was scored or log p is not a finite number.

    Raises:
        UnknownNameError: for another scorer.
    """
    if scorer not in SCORERS:
        raise UnknownNameError("likelihood scorer", scorer, SCORERS)
    size = n_bytes(text)
    if size == 0:
        return failed("the gold text is empty")
    if n_tokens <= 0:
        return failed("no token was scored")
    if not is_logprob(logprob):
        return failed(f"log-probability {logprob} is not a finite number of at most 0")
    detail = {"nats": logprob, "bytes": size, "tokens": n_tokens}
    value = logprob if scorer == "loglik" else -logprob / (math.log(2) * size)
    return Verdict(Status.OK, value, None, detail)
