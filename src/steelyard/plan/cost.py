"""What a set of requests costs, counted exactly in tokens before anything is run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.types import Generate, Work


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of a plan. Tokens are None where the tokenizer is the server's.

    Attributes:
        requests: to ask. generations, likelihoods: of them.
        tokens: prompt and continuation tokens, every request taken whole.
        distinct: nodes of the trie of all distinct prefixes, the least that sharing could compute.
        new_tokens: at most, over all generations.
    """

    requests: int
    generations: int
    likelihoods: int
    tokens: int | None
    distinct: int | None
    new_tokens: int

    @property
    def sharing(self) -> float | None:
        """How many times fewer prompt tokens a prefix-sharing engine computes."""
        return self.tokens / self.distinct if self.tokens and self.distinct else None


def cost(work: Iterable[Work]) -> Cost:
    """Count the work."""
    listed = list(work)
    tokens = [w.tokens.ids for w in listed if w.tokens is not None]
    known = len(tokens) == len(listed)
    generations = [w.request for w in listed if isinstance(w.request, Generate)]
    return Cost(
        requests=len(listed),
        generations=len(generations),
        likelihoods=len(listed) - len(generations),
        tokens=sum(map(len, tokens)) if known else None,
        distinct=distinct_prefixes(tokens) if known else None,
        new_tokens=sum(g.sampling.max_tokens for g in generations),
    )
