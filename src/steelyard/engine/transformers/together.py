"""All requests of a plan together, with shared prefixes: from rows to batches of responses, the work counted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from steelyard.core.types import Batch, Finish, Likelihood
from steelyard.engine.transformers import memory
from steelyard.engine.transformers.answer import Engine, job_of, response
from steelyard.engine.transformers.batching import Row
from steelyard.engine.transformers.generate import generate
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.reference import Passes, score
from steelyard.engine.transformers.rows import Generated, Job
from steelyard.engine.transformers.sampler import SharedSampler
from steelyard.engine.transformers.shared import SharedScorer
from steelyard.engine.trie import Trie

ROWS = 64  # texts under way: two CPU cores are saturated with so many (measured), and more only take memory
_PACK = 2048  # tokens in a pack at most: with more, a forward pass gains nothing
_LOGITS = 1 << 28  # logits of a pack at most: 1 GiB in float32
_TIMED = 40_000  # tokens from which on the plain forward's rate is measured beside: it costs some 2 % then


def budget(model: LanguageModel) -> int:
    """Tokens in a pack: as many as memory holds with all that a forward pass makes, and no more than help.

    A power of two, so that what is free at the moment does not change where packs are cut, unless it is very little.
    """
    room = memory.available(model.device)
    most = min(_PACK, max(1, _LOGITS // model.vocabulary))
    if room is not None:
        most = min(most, max(16, room // 4 // model.bytes_per_token))
    return 1 << (most.bit_length() - 1)


def answer_together(
    engine: Engine,
    rows: Sequence[Row],
    done: AbstractSet[str],
    *,
    batch_size: int | None,
    cancelled: Callable[[], bool],
) -> Iterator[Batch]:
    """Answers rows that are not in `done`: likelihoods pack by pack, then texts as they end.

    Args:
        engine: whose network can share (`sharing.why_not`).
        rows: of the whole plan, done or not, in any order.
        done: request ids.
        batch_size: texts under way at once at most; None takes 64, or what memory holds.
        cancelled: asked between packs and between steps.
    """
    ordered = sorted(rows, key=lambda r: r.work.request_id)
    scored = [r for r in ordered if isinstance(r.work.request, Likelihood)]
    written = [(r, job) for r in ordered if (job := job_of(r)) is not None]
    if any(r.work.request_id not in done for r in scored):
        yield from _score(engine, scored, done, cancelled)
    if any(r.work.request_id not in done for r, _ in written):
        yield from _write(engine, written, done, batch_size or ROWS, cancelled)


def _score(
    engine: Engine, rows: Sequence[Row], done: AbstractSet[str], cancelled: Callable[[], bool]
) -> Iterator[Batch]:
    began = time.perf_counter()
    model = engine.model
    scorer = SharedScorer([r.tokens for r in rows], budget(model))
    finished = {i for i, r in enumerate(rows) if r.work.request_id in done}
    steps = scorer.run(model, finished)
    rate = model.prefill_rate() if len(scorer.trie) >= _TIMED else None
    count, prefixes = Passes(), _Prefixes(scorer.trie)
    began = time.perf_counter() if rate is not None else began
    while not cancelled() and (step := next(steps, None)) is not None:
        count += step.passes
        if not step.results:
            continue
        results = dict(step.results)
        for i in [i for i, one in results.items() if not math.isfinite(one.logprob)]:
            # a text whose numbers overflow spoils those that stand in its row: zero times NaN is NaN, mask or not
            (results[i],), passes = score(model, [rows[i].tokens])
            count += passes
        yield Batch(
            responses=tuple(response(rows[i].work, one, engine.token_logprobs) for i, one in results.items()),
            asked=sum(len(rows[i].tokens.ids) for i in results),
            computed=count.computed,
            trie=prefixes.new(results),
            scored=count.scored,
            steps=count.steps,
            seconds=time.perf_counter() - began,
            peak_memory=memory.peak(model.device),
            prefill_rate=rate,
        )
        count, began = Passes(), time.perf_counter()


def _write(
    engine: Engine,
    rows: Sequence[tuple[Row, Job]],
    done: AbstractSet[str],
    most: int,
    cancelled: Callable[[], bool],
) -> Iterator[Batch]:
    began = time.perf_counter()
    model = engine.model
    sampler = SharedSampler([job for _, job in rows], budget(model), most)
    finished = {i for i, (r, _) in enumerate(rows) if r.work.request_id in done}
    prefixes = _Prefixes(sampler.trie)
    for harvest in sampler.run(model, engine.tokenizer, finished, cancelled):
        results, count = dict(harvest.results), harvest.passes
        for i in [i for i, text in results.items() if text.finish is Finish.ERROR]:
            (results[i],), passes = generate(model, engine.tokenizer, [rows[i][1]])  # as in `_score`
            count += passes
        texts: list[Generated] = list(results.values())
        new = sum(len(t.ids) for t in texts)
        yield Batch(
            responses=tuple(
                response(rows[i][0].work, text, engine.token_logprobs) for i, text in results.items()
            ),
            asked=sum(len(rows[i][1].ids) for i in results) + new,
            computed=count.computed,
            # a text's last token is chosen and never fed
            trie=prefixes.new(results) + new - sum(bool(t.ids) for t in texts),
            scored=count.scored,
            steps=count.steps,
            seconds=time.perf_counter() - began,
            new_tokens=new,
            peak_memory=memory.peak(model.device),
        )
        began = time.perf_counter()


class _Prefixes:
    """Counts the nodes of a trie that the requests of one batch need and none before it did.

    What a batch computed is no measure of it: a prompt may be read many batches before its text has ended.
    """

    def __init__(self, trie: Trie) -> None:
        self._trie = trie
        self._counted = np.zeros(len(trie), dtype=bool)

    def new(self, requests: Iterable[int]) -> int:
        """Of these requests' paths."""
        found = 0
        for request in requests:
            for first, last in self._trie.path(int(self._trie.last[request])):
                found += last - first - int(self._counted[first:last].sum())
                self._counted[first:last] = True
        return found
