"""Log-likelihoods from prompt log-probabilities, when the prompt's beginning may come from a cache.

vLLM keeps keys and values of prompts that it has seen, not their log-probabilities. A request that reads this
cache therefore computes none for the tokens it found there, and what stands in their place differs:

* the V1 model runner (CPU) returns a list of full length whose first places are *uninitialised memory*: often
  nonsense, often numbers of an earlier request, now and then the right token with a log-probability of 0.0;
* the V2 model runner (CUDA) returns a list that is shorter by as many places, aligned at its end;
* by default such requests do not read the cache at all, and share nothing (vllm-project/vllm#28194).

So a position is believed only behind the cached part that the scheduler reports, the list must have one of the
two lengths, and each place must hold the very token that was asked about. A scored position that the cache hid
can be taken from a request of the same batch that computed it, the tokens up to it being equal; what is then
still missing is asked again without the cache, by the caller, and is an error if that does not bring it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from steelyard.core.types import Finish, Likelihood, Response, Tokens, Work
from steelyard.engine.vllm.outputs import Entry, Output

_HIGHEST = 1e-3  # nats; rounding can lift a certain token a little above 0


class MisfitError(Exception):
    """An answer is not what was asked for; the message is the end of a sentence that begins with "vLLM"."""


@dataclass(frozen=True, slots=True)
class Place:
    """One token's log-probability in nats, and whether no token was likelier."""

    logprob: float
    top: bool


def places(ids: Sequence[int], output: Output, *, reads_cache: bool) -> list[Place | None]:
    """The believed log-probability of every token of a prompt; None where there is none.

    Args:
        ids: the prompt that was sent.
        output: what came.
        reads_cache: whether the request was allowed to read the prefix cache.

    Returns:
        As long as `ids`; the first is always None (nothing comes before it).

    Raises:
        MisfitError: another prompt, no list, a list of a length that cannot be aligned, or another token.
    """
    if output.prompt_token_ids is None or list(output.prompt_token_ids) != list(ids):
        raise MisfitError("answered another prompt than was sent")
    found = output.prompt_logprobs
    if found is None:
        raise MisfitError("returned no prompt log-probabilities")
    count, cached = len(ids), output.num_cached_tokens
    if cached is None:
        # not told: then everything may have come from the cache, or nothing if it was not to be read
        cached = count if reads_cache else 0
    if not 0 <= cached <= count:
        raise MisfitError(f"reports {cached} cached tokens of a prompt of {count}")
    if len(found) == count:
        shift = 0
    elif len(found) == count - cached:
        shift = cached
    else:
        raise MisfitError(
            f"returned {len(found)} prompt log-probabilities for {count} tokens, {cached} of them cached"
        )
    behind = [_place(ids[i], i, found[i - shift]) for i in range(cached + 1, count)]
    return [None] * (count - len(behind)) + behind


def _place(token: int, index: int, entries: Mapping[int, Entry] | None) -> Place | None:
    if entries is None:
        return None
    own = entries.get(token)
    if own is None:
        raise MisfitError(f"gave no log-probability of the prompt's own token at position {index}")
    value = own.logprob
    if not (isinstance(value, float | int) and value <= _HIGHEST):  # False for NaN as well
        raise MisfitError(
            f"gave the log-probability {value} at position {index}, expected a number of at most 0"
        )
    # the likeliest token is listed beside the own one, unless that is it; the greater-or-equal keeps ties
    return Place(float(value), value >= max(entry.logprob for entry in entries.values()))


@dataclass(slots=True)
class Known:
    """Scored places of one batch, under the tokens up to them: equal tokens have equal log-probabilities."""

    _by_prefix: dict[bytes, Place] = field(default_factory=dict)

    def learn(self, tokens: Tokens, found: Sequence[Place | None]) -> None:
        """Keeps the scored places of a request."""
        for key, place in zip(_prefixes(tokens), found[tokens.start :], strict=True):
            if place is not None:
                self._by_prefix[key] = place

    def fill(self, tokens: Tokens, found: Sequence[Place | None]) -> list[Place | None]:
        """The same places, with scored ones that are missing filled in from other requests of the batch."""
        scored = found[tokens.start :]
        if None not in scored:
            return list(found)
        filled = [
            self._by_prefix.get(key) if place is None else place
            for key, place in zip(_prefixes(tokens), scored, strict=True)
        ]
        return [*found[: tokens.start], *filled]


def _prefixes(tokens: Tokens) -> list[bytes]:
    """Hashes of the tokens up to and including each scored one."""
    running = hashlib.blake2b(digest_size=16)
    keys = []
    for index, token in enumerate(tokens.ids):
        running.update(token.to_bytes(8, "big"))
        if index >= tokens.start:
            keys.append(running.digest())
    return keys


def missing(tokens: Tokens, found: Sequence[Place | None]) -> int:
    """How many scored tokens have no log-probability."""
    return sum(place is None for place in found[tokens.start :])


def response(
    work: Work, request: Likelihood, tokens: Tokens, found: Sequence[Place | None], *, token_logprobs: bool
) -> Response:
    """The likelihood, or the error that says why there is none."""
    scored = [place for place in found[tokens.start :] if place is not None]
    absent = missing(tokens, found)
    if absent:
        return error(
            work, f"vLLM gave no log-probability for {absent} of {absent + len(scored)} scored tokens."
        )
    total = math.fsum(place.logprob for place in scored)
    if not math.isfinite(total):
        return error(work, f"vLLM gave a log-probability of {total}, which is not finite.")
    return Response(
        request_id=work.request_id,
        logprob=total,
        greedy=all(place.top for place in scored),
        token_logprobs=tuple(place.logprob for place in scored) if token_logprobs else None,
        n_tokens=len(scored),
        n_bytes=len(request.continuation.encode("utf-8", "surrogatepass")),
        finish=Finish.SCORED,
    )


def error(work: Work, message: str) -> Response:
    """The response of a request that could not be answered."""
    return Response(request_id=work.request_id, finish=Finish.ERROR, error=message)
