"""Choosing among options: which one has the highest (normalised) log-probability, and is it the right one.

All normalisations are computed from the same facts, one at a time, so asking for one more changes no other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from steelyard.core.errors import UnknownNameError
from steelyard.core.types import Status
from steelyard.scoring.verdict import Verdict, failed, unscored

NORMALISATIONS = ("per_char", "none", "per_byte", "per_token", "pmi")
_NOISE = 1e-3  # nats; a log-probability may exceed 0 by rounding, not by more


@dataclass(frozen=True, slots=True)
class OptionScore:
    """One option with what the model said of it.

    Attributes:
        text: without the joining delimiter, which counts as no character and no byte.
        gold: whether it is right.
        logprob: nats, summed over its tokens; None when the model gave none.
        n_tokens: tokens scored.
        null_logprob: nats after the null context; None when it was not asked (only pmi needs it).
    """

    text: str
    gold: bool
    logprob: float | None
    n_tokens: int
    null_logprob: float | None = None


def n_bytes(text: str) -> int:
    """UTF-8 bytes; a lone surrogate, which hostile data do hold, counts as three."""
    return len(text.encode("utf-8", "surrogatepass"))


def is_logprob(value: float | None) -> TypeGuard[float]:
    """Whether it is there, finite, and at most 0 (but for rounding)."""
    return value is not None and math.isfinite(value) and value <= _NOISE


def normalised(option: OptionScore, normalisation: str) -> float | str:
    """The score that is compared, or a sentence on why there is none.

    none: log p. per_char: by code points (the evaluation harness's acc_norm, its documentation says bytes).
    per_byte: by UTF-8 bytes. per_token: by tokens. pmi: log p(option | context) - log p(option | null context).
    """
    if not is_logprob(option.logprob):
        return f"log-probability {option.logprob} is not a finite number of at most 0"
    match normalisation:
        case "none":
            return option.logprob
        case "per_char" | "per_byte" | "per_token":
            unit = normalisation.removeprefix("per_")
            size = {"char": len(option.text), "byte": n_bytes(option.text), "token": option.n_tokens}[unit]
            return option.logprob / size if size > 0 else f"the option has no {unit} to divide by"
        case "pmi":
            null = option.null_logprob
            if null is None:
                return "the null context was not asked"
            if not is_logprob(null):
                return f"null log-probability {null} is not a finite number of at most 0"
            return option.logprob - null
        case _:
            raise UnknownNameError("normalisation", normalisation, NORMALISATIONS)


def judge_choice(options: Sequence[OptionScore], normalisation: str) -> Verdict:
    """1 when the right option has the highest score, 1/t when it shares the top with t - 1 others, else 0.

    A tie is exact equality of the normalised scores. Equal requests have one answer, so identical options are
    bitwise equal; and dividing or subtracting rounds only once, so options whose exact scores are equal come
    out equal too. A tolerance would add nothing but ties between options that the model does tell apart, and
    would not be transitive.

    Detail: ``chance`` (share of right options), ``n_options``, ``tie`` (the top is shared), ``tied`` (indices at
    the top), ``chosen`` (index; None when the top is shared, for then nothing was chosen), ``margin`` (best right
    minus best wrong score, in nats per unit of the normalisation).

    Args:
        options: in the order shown or scored; exactly what was compared.
        normalisation: one of `NORMALISATIONS`.

    Returns:
        Status ok; error when a score is missing, not finite or cannot be normalised, or no option is right;
        unscored when there is nothing to choose between.

    Raises:
        UnknownNameError: for another normalisation.
    """
    if normalisation not in NORMALISATIONS:
        raise UnknownNameError("normalisation", normalisation, NORMALISATIONS)
    n_gold = sum(option.gold for option in options)
    if n_gold == 0 and options:
        return failed("no option is marked as right", n_options=len(options))
    if n_gold == len(options):
        why = "no wrong option to choose against" if options else "no options"
        return unscored(why, n_options=len(options))

    scores: list[float] = []
    for index, option in enumerate(options):
        score = normalised(option, normalisation)
        if isinstance(score, str):
            return failed(f"option {index}: {score}", n_options=len(options))
        scores.append(score)

    top = max(scores)
    tied = [index for index, score in enumerate(scores) if score == top]
    chosen = tied[0] if len(tied) == 1 else None
    return Verdict(
        Status.OK,
        sum(options[index].gold for index in tied) / len(tied),
        None if chosen is None else options[chosen].text,
        {
            "chance": n_gold / len(options),
            "n_options": len(options),
            "tie": len(tied) > 1,
            "tied": tied,
            "chosen": chosen,
            "margin": max(s for s, o in zip(scores, options, strict=True) if o.gold)
            - max(s for s, o in zip(scores, options, strict=True) if not o.gold),
        },
    )
