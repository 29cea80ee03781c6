"""Choices that come out otherwise when the log-probabilities are computed otherwise, and whether that is a tie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from steelyard.core.types import Ask, Response, Role
from steelyard.scoring.choice import NORMALISATIONS, OptionScore, n_bytes, normalised

_OPTIONS = {Role.GOLD, Role.DISTRACTOR}
_NULLS = {Role.NULL_GOLD, Role.NULL_DISTRACTOR}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One choice of two computations that chose differently.

    Attributes:
        item_id, form_id: the cell.
        normalisation: see `scoring.choice`.
        before, after: index of the option chosen (the first of equals).
        margin: how much better `before` was than `after` before, in nats per unit of the normalisation.
        tie: whether rounding within the tolerance explains it.
    """

    item_id: str
    form_id: str
    normalisation: str
    before: int
    after: int
    margin: float
    tie: bool


def flips(
    cells: Iterable[Sequence[Ask]],
    one: Mapping[str, Response],
    other: Mapping[str, Response],
    per_token: float,
) -> tuple[list[Flip], int]:
    """Choices that differ, and how many were compared (cells x normalisations).

    Args:
        cells: asks of each cell; those that choose nothing are passed over.
        one: answers by request id.
        other: likewise.
        per_token: nats by which a scored token may be off, for ties.
    """
    found: list[Flip] = []
    count = 0
    for asks in cells:
        left, right = _options(asks, one), _options(asks, other)
        if left is None or right is None:
            continue
        for normalisation, before, after in _scores(left, right):
            count += 1
            chosen, now = _best(before), _best(after)
            if chosen == now:
                continue
            margin = before[chosen] - before[now]
            slack = sum(_slack(left[n], normalisation, per_token) for n in (chosen, now))
            found.append(
                Flip(
                    item_id=asks[0].item_id,
                    form_id=asks[0].form_id,
                    normalisation=normalisation,
                    before=chosen,
                    after=now,
                    margin=margin,
                    tie=margin <= 2 * slack,  # both computations may be off by as much
                )
            )
    return found, count


@dataclass(frozen=True, slots=True)
class _Option:
    score: OptionScore
    null_tokens: int


def _options(asks: Sequence[Ask], answers: Mapping[str, Response]) -> list[_Option] | None:
    """The options of a cell in order; None where it has none to choose among, or one was not answered."""
    texts = {a.option: a for a in asks if a.role in _OPTIONS and a.option is not None}
    nulls = {a.option: a for a in asks if a.role in _NULLS and a.option is not None}
    if len(texts) < 2:
        return None
    options = []
    for n, ask in sorted(texts.items()):
        response = answers.get(ask.request_id or "")
        if response is None or response.logprob is None:
            return None
        null = answers.get(nulls[n].request_id or "") if n in nulls else None
        score = OptionScore(
            text=ask.text,
            gold=ask.role is Role.GOLD,
            logprob=response.logprob,
            n_tokens=response.n_tokens,
            null_logprob=null.logprob if null else None,
        )
        options.append(_Option(score, null.n_tokens if null else 0))
    return options


def _scores(
    left: Sequence[_Option], right: Sequence[_Option]
) -> Iterator[tuple[str, list[float], list[float]]]:
    """The scores of both under every normalisation that all options have."""
    for normalisation in NORMALISATIONS:
        before, after = _numbers(left, normalisation), _numbers(right, normalisation)
        if len(before) == len(after) == len(left):
            yield normalisation, before, after


def _numbers(options: Sequence[_Option], normalisation: str) -> list[float]:
    """The scores of the options that have one."""
    scores = (normalised(option.score, normalisation) for option in options)
    return [score for score in scores if not isinstance(score, str)]


def _best(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=lambda n: (scores[n], -n))


def _slack(option: _Option, normalisation: str, per_token: float) -> float:
    """How far one score of an option may be off."""
    score = option.score
    match normalisation:
        case "per_char":
            return per_token * score.n_tokens / len(score.text)
        case "per_byte":
            return per_token * score.n_tokens / n_bytes(score.text)
        case "per_token":
            return per_token
        case "pmi":
            return per_token * (score.n_tokens + option.null_tokens)
        case _:
            return per_token * score.n_tokens
