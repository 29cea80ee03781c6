"""What can be asked at all: the length that is promised, and each request checked before vLLM sees it.

vLLM refuses a whole call for one request that it does not take, so a bad request must not get as far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from steelyard.core.errors import InputError, SteelyardError
from steelyard.core.types import Generate, Likelihood, Request, Response, Tokens, Work
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.vllm import generation, likelihood
from steelyard.engine.vllm.rows import Scored, Written


@dataclass(frozen=True, slots=True)
class Gate:
    """What a request must fit.

    Attributes:
        encode: the request as token ids. decoder: the model's tokenizer. vocabulary: ids are below it.
        limit: tokens of prompt and continuation together. eos: end tokens.
    """

    encode: Callable[[Request], Tokens]
    decoder: generation.Decoder
    vocabulary: int
    limit: int
    eos: frozenset[int]

    def admit(self, work: Work) -> Scored | Written | Response:
        """The request as a row, or the error that says why it cannot be one."""
        try:
            tokens = work.tokens if work.tokens is not None else self.encode(work.request)
        except SteelyardError as error:
            return likelihood.error(work, str(error))
        count, limit, vocabulary = len(tokens.ids), self.limit, self.vocabulary
        if not tokens.ids or min(tokens.ids) < 0 or max(tokens.ids) >= vocabulary:
            return likelihood.error(
                work, f"The token ids are not all in 0 .. {vocabulary - 1}, the model's vocabulary."
            )
        match work.request:
            case Likelihood() as request:
                if not 1 <= tokens.start < count:
                    return likelihood.error(
                        work, f"No token to score: start is {tokens.start} of {count} tokens."
                    )
                if count > limit:
                    return likelihood.error(work, f"Too long: {count} tokens, and vLLM takes {limit} here.")
                return Scored(work, request, tokens)
            case Generate(sampling=sampling, seed=seed):
                if (wrong := generation.check(sampling, seed)) is not None:
                    return likelihood.error(work, wrong)
                if count + 1 > limit:
                    return likelihood.error(
                        work,
                        f"Too long: a prompt of {count} tokens leaves no room to answer; vLLM takes {limit} here.",
                    )
                room = min(sampling.max_tokens, limit - count)
                ends = generation.ending(sampling, self.decoder, self.eos, room)
                return Written(work, tokens, ends, generation.params(sampling, seed, ends))


def room(model: LanguageModel, max_length: int | None) -> int:
    """Places of one sequence (vLLM's max_model_len): one more than is promised, where the model has one more.

    LongRoPE is the exception: vLLM takes its factors for long texts as soon as this number is beyond the edge.
    """
    if max_length is not None and max_length < 2:
        raise InputError(f"max_length must be at least 2 (one token read, one answered), got {max_length}.")
    most = model.max_length
    if max_length is None:
        if most is None:
            raise InputError(
                f"The configuration of {model.checkpoint.name!r} gives no context length. Give one (max_length)."
            )
        return most
    if most is not None and max_length > most:
        raise InputError(f"max_length is {max_length}, and the model's own context is {most} tokens.")
    return max_length if max_length in {most, model.edge} else max_length + 1
