"""One batch of one kind: handed to the engine, read, and counted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from steelyard.core.errors import InputError
from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.types import Batch, Likelihood, Response, Tokens, Work
from steelyard.engine.vllm import generation, likelihood
from steelyard.engine.vllm.outputs import Output


@dataclass(frozen=True, slots=True)
class Scored:
    """A likelihood that can be run."""

    work: Work
    request: Likelihood
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Written:
    """A generation that can be run; `params` are keywords of vLLM's settings."""

    work: Work
    tokens: Tokens
    ends: generation.Ending
    params: dict[str, Any]


class Asked(Protocol):
    """What is needed of the engine."""

    def params(self, **settings: Any) -> Any:  # noqa: ANN401 - vLLM's settings, its class
        """The settings of a request; an InputError where they are not taken."""
        ...

    def ask(self, prompts: Sequence[Sequence[int]], params: Sequence[Any]) -> list[Output]:
        """The answers, in order."""
        ...


class _Count:
    """What a batch cost, as vLLM reports it."""

    def __init__(self) -> None:
        self.computed = self.scored = self.new_tokens = 0

    def add(self, output: Output, *, generated: bool) -> None:
        """Counts one answer: tokens from the cache are not computed, and the last new token is never fed."""
        prompt = len(output.prompt_token_ids or ()) - (output.num_cached_tokens or 0)
        new = sum(len(made.token_ids) for made in output.outputs) if generated else 0
        self.computed += prompt + max(new - 1, 0)
        # prompt log-probabilities run the vocabulary layer at every computed position, also unscored ones
        self.scored += new if generated else prompt
        self.new_tokens += new


def cut(
    scored: Sequence[Scored], written: Sequence[Written], size: int
) -> list[list[Scored] | list[Written]]:
    """Batches of one kind each, likelihoods first; neighbours in a batch begin alike, so that they can share.

    The cut depends on the whole work and on nothing else, so that a resumed run meets the very same batches.
    """
    first = sorted(scored, key=lambda r: (r.tokens.ids, r.tokens.start, r.work.request_id))
    then = sorted(written, key=lambda r: (r.tokens.ids, r.work.request_id))
    return [
        *(first[at : at + size] for at in range(0, len(first), size)),
        *(then[at : at + size] for at in range(0, len(then), size)),
    ]


def score(engine: Asked, rows: Sequence[Scored], *, token_logprobs: bool) -> Batch:
    """Likelihoods: asked with the prefix cache, and what it hid asked again without.

    Args:
        engine: running.
        rows: not empty.
        token_logprobs: whether they come with one number per token.
    """
    started, count = time.perf_counter(), _Count()
    responses: dict[str, Response] = {}
    known, left = likelihood.Known(), list(rows)
    for reads_cache in (True, False):
        found = _places(engine, left, count, known, responses, reads_cache=reads_cache)
        again: list[Scored] = []
        for row, places in found:
            filled = known.fill(row.tokens, places)
            if reads_cache and likelihood.missing(row.tokens, filled):
                again.append(row)
            else:
                responses[row.work.request_id] = likelihood.response(
                    row.work, row.request, row.tokens, filled, token_logprobs=token_logprobs
                )
        left = again
        if not left:
            break
    return _batch(
        [responses[row.work.request_id] for row in rows], [r.tokens.ids for r in rows], count, started
    )


def _places(
    engine: Asked,
    rows: Sequence[Scored],
    count: _Count,
    known: likelihood.Known,
    responses: dict[str, Response],
    *,
    reads_cache: bool,
) -> list[tuple[Scored, list[likelihood.Place | None]]]:
    """The believed places of each row; answers that are no answers become errors in `responses`."""
    params = engine.params(
        max_tokens=1,  # the least there is; the token is thrown away
        temperature=0.0,
        prompt_logprobs=1,
        detokenize=False,  # where the cache hid positions, there are ids that no tokenizer has
        skip_reading_prefix_cache=not reads_cache,
    )
    outputs = engine.ask([row.tokens.ids for row in rows], [params] * len(rows))
    found = []
    for row, output in zip(rows, outputs, strict=True):
        count.add(output, generated=False)
        try:
            places = likelihood.places(row.tokens.ids, output, reads_cache=reads_cache)
        except likelihood.MisfitError as misfit:
            responses[row.work.request_id] = likelihood.error(row.work, f"vLLM {misfit}.")
            continue
        known.learn(row.tokens, places)
        found.append((row, places))
    return found


def write(engine: Asked, rows: Sequence[Written], decoder: generation.Decoder) -> Batch:
    """Generations.

    Args:
        engine: running.
        rows: not empty.
        decoder: the model's tokenizer.
    """
    started, count = time.perf_counter(), _Count()
    responses: list[Response] = []
    taken: list[tuple[Written, Any]] = []
    for row in rows:
        try:
            taken.append((row, engine.params(**row.params)))
        except InputError as error:
            responses.append(likelihood.error(row.work, str(error)))
    outputs = (
        engine.ask([row.tokens.ids for row, _ in taken], [params for _, params in taken]) if taken else []
    )
    whole: list[tuple[int, ...]] = []
    for (row, _), output in zip(taken, outputs, strict=True):
        count.add(output, generated=True)
        responses.append(generation.response(row.work, output, decoder, row.ends))
        whole += [row.tokens.ids + tuple(made.token_ids) for made in output.outputs]
    return _batch(responses, whole, count, started)


def _batch(
    responses: Sequence[Response], whole: Sequence[tuple[int, ...]], count: _Count, started: float
) -> Batch:
    return Batch(
        responses=tuple(responses),
        asked=sum(map(len, whole)),
        computed=count.computed,
        trie=distinct_prefixes(whole),
        scored=count.scored,
        new_tokens=count.new_tokens,
        seconds=time.perf_counter() - started,
    )
