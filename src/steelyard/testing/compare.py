"""Two sets of answers to the same work, compared: likelihoods by their distance, texts by equality."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from steelyard.core.types import Finish, Generate, Response, Work
from steelyard.testing.tolerance import Tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far two sets of answers are apart.

    Attributes:
        likelihoods, greedy, sampled: requests of each kind that both answered.
        per_token: largest difference of a sum of log-probabilities by the tokens scored, nats per token; 0 without any.
        total: largest difference of a sum, nats.
        furthest: request id with the largest `per_token`, "" without any.
        greedy_texts, sampled_texts: ids of texts that differ, how they ended included.
        outcomes: ids that only one side answered, or that the two scored with another number of tokens.
    """

    likelihoods: int
    greedy: int
    sampled: int
    per_token: float
    total: float
    furthest: str
    greedy_texts: tuple[str, ...]
    sampled_texts: tuple[str, ...]
    outcomes: tuple[str, ...]

    def beyond(self, tolerance: Tolerance) -> list[str]:
        """What is more than a tolerance allows, as sentences; empty when all is within it."""
        found = []
        if self.outcomes:
            found.append(
                f"{len(self.outcomes)} requests were answered by one side only, or with other tokens"
            )
        # written so that NaN, were it to come, is beyond
        if not self.per_token <= tolerance.per_token:
            found.append(
                f"a likelihood differs by {self.per_token:.2g} nats per token, {tolerance.per_token:g} are allowed"
            )
        for name, ids, count, share in (
            ("greedy", self.greedy_texts, self.greedy, tolerance.greedy),
            ("sampled", self.sampled_texts, self.sampled, tolerance.sampled),
        ):
            if len(ids) > share * count:
                found.append(f"{len(ids)} of {count} {name} texts differ, {share:.0%} are allowed")
        return found


def is_greedy(request: Generate) -> bool:
    """Whether a text is the likeliest one, token by token, instead of a draw."""
    return request.sampling.temperature == 0 or request.seed is None


def compare(work: Iterable[Work], one: Mapping[str, Response], other: Mapping[str, Response]) -> Difference:
    """The difference of two sets of answers.

    Args:
        work: the requests to compare.
        one: answers by request id; a missing one counts as an error.
        other: likewise.
    """
    kinds = {"likelihood": 0, "greedy": 0, "sampled": 0}
    per_token = total = 0.0
    furthest = ""
    texts: dict[str, list[str]] = {"greedy": [], "sampled": []}
    outcomes: list[str] = []
    for piece in work:
        left, right = one.get(piece.request_id), other.get(piece.request_id)
        if not (_answered(left) and _answered(right)):
            if _answered(left) or _answered(right):
                outcomes.append(piece.request_id)
            continue
        assert left is not None and right is not None  # noqa: S101, PT018  both were answered
        if isinstance(piece.request, Generate):
            kind = "greedy" if is_greedy(piece.request) else "sampled"
            kinds[kind] += 1
            if (left.text, left.finish) != (right.text, right.finish):
                texts[kind].append(piece.request_id)
            continue
        kinds["likelihood"] += 1
        if left.n_tokens != right.n_tokens or left.logprob is None or right.logprob is None:
            outcomes.append(piece.request_id)
            continue
        apart = abs(left.logprob - right.logprob)
        if math.isnan(apart):
            apart = math.inf
        total = max(total, apart)
        each = apart / max(left.n_tokens, 1)
        if each > per_token or not furthest:
            per_token, furthest = each, piece.request_id
    return Difference(
        likelihoods=kinds["likelihood"],
        greedy=kinds["greedy"],
        sampled=kinds["sampled"],
        per_token=per_token,
        total=total,
        furthest=furthest,
        greedy_texts=tuple(texts["greedy"]),
        sampled_texts=tuple(texts["sampled"]),
        outcomes=tuple(outcomes),
    )


def _answered(response: Response | None) -> bool:
    return response is not None and response.finish not in {Finish.ERROR, Finish.REFUSED}
