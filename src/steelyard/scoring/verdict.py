"""What a scorer says about one cell, and the few ways to say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steelyard.core.types import EMPTY, Finish, Status


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement of one cell by one scorer.

    Attributes:
        status: ok, unparsed or cut have a value; the others have none.
        value: a fraction in [0, 1], or nats or bits for likelihoods; None where the status has no value.
        extracted: the answer that was read, or the chosen option's text.
        detail: what an estimate may need beside the value; JSON values only.
    """

    status: Status
    value: float | None
    extracted: str | None = None
    detail: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


def read(value: float, extracted: str | None, finish: Finish, **detail: object) -> Verdict:
    """An answer was read and judged; ``detail["cut"]`` is True when the text had hit the token limit."""
    if finish is Finish.LENGTH:
        detail["cut"] = True
    return Verdict(Status.OK, float(value), extracted, detail or EMPTY)


def unread(finish: Finish, **detail: object) -> Verdict:
    """The model answered and no answer could be read: counts as wrong, and is counted beside the score."""
    status = Status.CUT if finish is Finish.LENGTH else Status.UNPARSED
    return Verdict(status, 0.0, None, detail or EMPTY)


def failed(why: str, **detail: object) -> Verdict:
    """The facts do not allow a judgement (a NaN, an unusable reference): missing, never 0."""
    return Verdict(Status.ERROR, None, None, {"why": why, **detail})


def unscored(why: str, **detail: object) -> Verdict:
    """This scorer has nothing to say about the cell."""
    return Verdict(Status.UNSCORED, None, None, {"why": why, **detail})
