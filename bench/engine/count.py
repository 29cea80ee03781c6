"""What a set of requests must cost at least, counted from its tokens alone and not by the engine that is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.types import Finish, Response, Tokens


def least(rows: Iterable[Tokens]) -> int:
    """Nodes of the trie of all likelihood requests without each one's last token, which is never fed."""
    return distinct_prefixes(row.ids[:-1] for row in rows)


def positions(rows: Iterable[Tokens]) -> int:
    """Distinct positions that are read: two requests with the same tokens up to a position share it.

    The token at ``i`` is predicted after ``ids[:i]``, so these are the distinct prefixes ``ids[:i]`` for i from
    `Tokens.start` to the last index.
    """
    found: set[bytes] = set()
    for row in rows:
        running = hashlib.blake2b(digest_size=16)
        for i, token in enumerate(row.ids):
            if i >= row.start:
                found.add(running.digest())
            running.update(token.to_bytes(4, "big"))
    return len(found)


def whole(rows: Iterable[Tokens]) -> int:
    """Tokens of all requests, each taken whole, without the last one: what asking one by one costs."""
    return sum(len(row.ids) - 1 for row in rows)


def fed_by_harness(rows: Iterable[Tokens]) -> int:
    """Tokens that lm-evaluation-harness feeds, padding apart.

    It runs requests that differ in their last token only as one (its logits cache), so that counting every
    request would overstate its work and understate its speed.
    """
    return sum(map(len, {row.ids[:-1] for row in rows}))


def new_tokens(responses: Iterable[Response]) -> list[int]:
    """Tokens chosen for each sampled response, the one that ended it included.

    Only for settings without stop strings: with them a response does not say how many tokens were cut.

    Raises:
        ValueError: a response is an error or was ended by a stop string.
    """
    counts: list[int] = []
    for one in responses:
        if one.finish not in {Finish.EOS, Finish.LENGTH}:
            raise ValueError(
                f"Expected texts that end by themselves or by length, got {one.finish} ({one.error})."
            )
        counts.append(one.n_tokens + (one.finish is Finish.EOS))
    return counts


def least_sampling(prompts: Iterable[Sequence[int]], new: Sequence[int]) -> int:
    """Least token positions of sampling: each distinct prefix of the prompts once, each draw's own tokens but the last.

    Draws that happen to begin alike are not merged: they are told apart only after they were drawn.
    """
    return distinct_prefixes(prompts) + sum(n - 1 for n in new)


def positions_sampling(prompts: Iterable[Sequence[int]], new: Sequence[int]) -> int:
    """Positions read by sampling: the end of each distinct prompt once, then one for each further token."""
    return len({tuple(p) for p in prompts}) + sum(n - 1 for n in new)
