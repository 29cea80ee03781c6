"""One batch of rows of one kind: run it, and put what came into responses, with the work counted."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.types import Batch, Finish, Generate, Likelihood, Response, Work
from steelyard.engine.transformers.batching import Row
from steelyard.engine.transformers.generate import generate
from steelyard.engine.transformers.memory import peak
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.reference import Passes, Scored, score
from steelyard.engine.transformers.rows import Generated, Job
from steelyard.engine.transformers.tokenizer import LocalTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What answers: the network, its tokenizer, and whether single tokens' log-probabilities are reported."""

    model: LanguageModel
    tokenizer: LocalTokenizer
    token_logprobs: bool


def answer(engine: Engine, batch: Sequence[Row]) -> Batch:
    """Runs a batch that `batching.cut` made (not empty, all of one kind).

    `Batch.asked` and `Batch.trie` take every request whole, with the token that ended it; a generation's last
    token is never fed, so `Batch.computed` can be one less per row.

    Raises:
        Exception: whatever the network raises; the caller knows about memory.
    """
    started = time.perf_counter()
    results, passes, whole = _run(engine, batch)
    return Batch(
        responses=tuple(
            response(row.work, result, engine.token_logprobs)
            for row, result in zip(batch, results, strict=True)
        ),
        asked=sum(map(len, whole)),
        computed=passes.computed,
        trie=distinct_prefixes(whole),
        scored=passes.scored,
        steps=passes.steps,
        seconds=time.perf_counter() - started,
        new_tokens=sum(len(r.ids) for r in results if isinstance(r, Generated)),
        peak_memory=peak(engine.model.device),
    )


def failed(work: Work, message: str) -> Response:
    """The response of a request that could not be answered."""
    return Response(request_id=work.request_id, finish=Finish.ERROR, error=message)


def _run(
    engine: Engine, batch: Sequence[Row]
) -> tuple[Sequence[Scored | Generated], Passes, list[tuple[int, ...]]]:
    """Results in order, the count of what was computed, and every request's tokens as a whole."""
    jobs = [job for row in batch if (job := job_of(row)) is not None]
    if jobs:
        texts, passes = generate(engine.model, engine.tokenizer, jobs)
        return texts, passes, [job.ids + text.ids for job, text in zip(jobs, texts, strict=True)]
    scores, passes = score(engine.model, [row.tokens for row in batch])
    return scores, passes, [row.tokens.ids for row in batch]


def job_of(row: Row) -> Job | None:
    """A generation as a job; None for a likelihood."""
    match row.work.request:
        case Generate(sampling=sampling, seed=seed):
            ids = row.tokens.ids
            return Job(ids=ids, sampling=sampling, seed=seed, limit=row.length - len(ids))
        case Likelihood():
            return None


def response(work: Work, result: Scored | Generated, token_logprobs: bool) -> Response:
    """What a request is answered with; an error where the model's numbers are not finite."""
    match work.request, result:
        case Likelihood(continuation=text), Scored():
            if not math.isfinite(result.logprob):
                return failed(
                    work, f"The model gave a log-probability of {result.logprob}, which is not finite."
                )
            return Response(
                request_id=work.request_id,
                logprob=result.logprob,
                greedy=result.greedy,
                token_logprobs=result.token_logprobs if token_logprobs else None,
                n_tokens=len(result.token_logprobs),
                n_bytes=_bytes(text),
                finish=Finish.SCORED,
            )
        case Generate(), Generated():
            if result.finish is Finish.ERROR:
                return failed(work, f"The model's logits were not finite after {len(result.ids)} new tokens.")
            return Response(
                request_id=work.request_id,
                text=result.text,
                n_tokens=result.n_tokens,
                n_bytes=_bytes(result.text),
                finish=result.finish,
            )
        case _:
            raise AssertionError(f"{type(work.request).__name__} was answered by {type(result).__name__}")


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
