"""Generations: what vLLM is asked for, and what the tokens that come back mean.

vLLM looks for stop strings in a text of its own making, and names the end of a text and a stop token by one word.
The tokens are the fact, so they are read again here, by the rules of every other backend: the text ends at the
first end token, special token named as a stop, or stop string; if none is there, it ended at the limit. An
answer that ended for a reason that cannot be found in it is an error, never a shorter text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from steelyard.core.types import Finish, Response, Sampling, Work
from steelyard.engine.transformers import sampling as settings
from steelyard.engine.transformers.stream import TextStream
from steelyard.engine.vllm.likelihood import MisfitError, error
from steelyard.engine.vllm.outputs import Completion, Output

_COLDEST = 0.01  # vLLM raises a lower temperature to this, with a warning in its log only


class Decoder(Protocol):
    """What is needed of a tokenizer."""

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Special tokens by their text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of tokens, special ones left out."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """What ends a text.

    Attributes:
        eos: end tokens. special: stop strings that are special tokens, known by their ids, since their text is
            left out. plain: the other stop strings. limit: new tokens at most.
    """

    eos: frozenset[int]
    special: frozenset[int]
    plain: tuple[str, ...]
    limit: int


def ending(sampling: Sampling, tokenizer: Decoder, eos: frozenset[int], limit: int) -> Ending:
    """What ends the text of a request."""
    named = tokenizer.special_ids
    return Ending(
        eos=eos,
        special=frozenset(named[stop] for stop in sampling.stop if stop in named),
        plain=tuple(stop for stop in sampling.stop if stop not in named),
        limit=limit,
    )


def check(sampling: Sampling, seed: int | None) -> str | None:
    """What is wrong with the settings of a generation, as a sentence; None when nothing is."""
    if 0 < sampling.temperature < _COLDEST:
        return f"vLLM computes a temperature of {sampling.temperature} as {_COLDEST}. Give 0, or at least {_COLDEST}."
    return settings.check(sampling, seed)


def params(sampling: Sampling, seed: int | None, ends: Ending) -> dict[str, Any]:
    """Keywords of `vllm.SamplingParams` for one draw.

    One draw is one request with a seed of its own, also where several share a prompt: ``n=k`` is k requests
    inside vLLM as well, with seeds counted up from the first, which would tie a draw to its neighbours.
    """
    greedy = sampling.temperature == 0
    return {
        "n": 1,
        "temperature": sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "top_k": 0 if greedy or sampling.top_k is None else sampling.top_k,
        "seed": None if greedy else seed,
        "max_tokens": ends.limit,
        "stop": list(ends.plain),
        # the end tokens are ours alone: vLLM's own would be those of its reading of the tokenizer
        "ignore_eos": True,
        "stop_token_ids": sorted(ends.eos | ends.special),
        "detokenize": bool(ends.plain),
        "logprobs": 0,  # of the chosen token: says whether the logits were numbers
    }


def response(work: Work, output: Output, tokenizer: Decoder, ends: Ending) -> Response:
    """The text as a response; an answer that does not hold together becomes an error that says why."""
    try:
        made = _only(output)
        text, n_tokens, finish = _read(made, tokenizer, ends)
    except MisfitError as misfit:
        return error(work, f"vLLM {misfit}.")
    return Response(
        request_id=work.request_id,
        text=text,
        n_tokens=n_tokens,
        n_bytes=len(text.encode("utf-8", "surrogatepass")),
        finish=finish,
    )


def _only(output: Output) -> Completion:
    """The one text of an answer."""
    if len(output.outputs) != 1:
        raise MisfitError(f"returned {len(output.outputs)} texts for a request of one")
    made = output.outputs[0]
    if not output.finished or made.finish_reason is None:
        raise MisfitError("returned a text that it had not finished")
    if made.finish_reason not in {"stop", "length"}:
        raise MisfitError(f"ended the text early ({made.finish_reason!r})")
    if made.cumulative_logprob is None or not math.isfinite(made.cumulative_logprob):
        raise MisfitError(
            f"gave the log-probability {made.cumulative_logprob} for the text: the logits were not finite"
        )
    return made


def _read(made: Completion, tokenizer: Decoder, ends: Ending) -> tuple[str, int, Finish]:
    """Text, count of its tokens and finish, by the rules of `transformers.generate`."""
    ids = list(made.token_ids)
    stream = TextStream(tokenizer.decode, ends.plain)
    found: Finish | None = None
    last = len(ids)
    for index, token in enumerate(ids):
        if token in ends.eos or token in ends.special:
            found, last = Finish.EOS if token in ends.eos else Finish.STOP, index
            break
        if stream.push(token):
            break
    if not stream.stopped:
        stream.finish()  # a stop string can also turn up in what was held back until now
    if stream.stopped:
        return stream.text, stream.kept(), Finish.STOP
    if found is not None:
        return stream.text, last, found
    if made.finish_reason == "stop":
        raise MisfitError(f"ended the text at {made.stop_reason!r}, which is not in it")
    if len(ids) != ends.limit:
        raise MisfitError(f"ended the text after {len(ids)} of {ends.limit} tokens, with nothing to end it")
    return stream.text, last, Finish.LENGTH
