from __future__ import annotations

import math

import pytest

from steelyard.core.errors import UnknownNameError
from steelyard.core.types import Status
from steelyard.scoring.likelihood import judge_likelihood


def test_the_log_likelihood_is_the_sum_in_nats():
    verdict = judge_likelihood("Norway", -3.5, 2, "loglik")
    assert (verdict.status, verdict.value) == (Status.OK, -3.5)
    assert verdict.detail == {"nats": -3.5, "bytes": 6, "tokens": 2}


def test_bits_per_byte_counts_bytes_and_not_characters():
    verdict = judge_likelihood("日本", -6 * math.log(2), 2, "bits_per_byte")
    assert verdict.value == pytest.approx(1.0)
    assert verdict.detail["bytes"] == 6


@pytest.mark.parametrize(
    ("text", "logprob", "n_tokens"),
    [("", -1.0, 1), ("a", math.nan, 1), ("a", -math.inf, 1), ("a", None, 1), ("a", 1.0, 1), ("a", 0.0, 0)],
)
def test_what_was_not_measured_is_an_error_and_never_a_zero(text, logprob, n_tokens):
    for scorer in ("loglik", "bits_per_byte"):
        verdict = judge_likelihood(text, logprob, n_tokens, scorer)
        assert (verdict.status, verdict.value) == (Status.ERROR, None)
        assert verdict.detail["why"]


def test_an_unknown_scorer_is_named():
    with pytest.raises(UnknownNameError, match="bits_per_byte"):
        judge_likelihood("a", -1.0, 1, "bits_per_bytes")
