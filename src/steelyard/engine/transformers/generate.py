"""Generation: a loop of our own, because every request brings its own settings.

Stop strings, token limit, temperature and seed belong to a row, a row ends by itself, and a row that has
ended leaves the batch. The library's loop shares settings among rows and runs until the last one ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from steelyard.core.types import Finish, Sampling
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.reference import Passes
from steelyard.engine.transformers.sampling import draw
from steelyard.engine.transformers.stream import TextStream
from steelyard.engine.transformers.tokenizer import LocalTokenizer

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A prompt to continue.

    Attributes:
        ids: of the prompt, at least one.
        sampling: settings; temperature 0 takes the likeliest token (the first of equals).
        seed: of the request's own stream; unused when greedy.
        limit: new tokens at most, >= 1: max_tokens, or what the context leaves.
    """

    ids: tuple[int, ...]
    sampling: Sampling
    seed: int | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """What came of it.

    Attributes:
        ids: every token the model chose, the one that ended the text included.
        text: decoded, special tokens left out, cut before the first stop string. Equal to the tokenizer's
            decoding of the tokens: a character cut in two by the limit shows as U+FFFD.
        n_tokens: tokens that `text` takes when a stop string ended it (a token that is only partly kept
            counts, one that is wholly behind the cut does not); else all tokens but the EOS.
        finish: STOP, EOS, LENGTH or ERROR.
    """

    ids: tuple[int, ...]
    text: str
    n_tokens: int
    finish: Finish


@dataclass(slots=True)
class _Row:
    """A job under way."""

    job: Job
    stream: TextStream
    eos: frozenset[int]
    stop_ids: frozenset[int]
    ids: list[int] = field(default_factory=list)
    finish: Finish | None = None
    n_tokens: int = 0

    def take(self, token: int | None) -> None:
        """Adds a token and decides whether the row ends with it; None ends it with an error."""
        if token is None:
            self.finish = Finish.ERROR
            return
        self.ids.append(token)
        if token in self.eos or token in self.stop_ids:
            self._end(Finish.EOS if token in self.eos else Finish.STOP, len(self.ids) - 1)
        elif self.stream.push(token):
            self._end(Finish.STOP, 0)
        elif len(self.ids) == self.job.limit:
            self._end(Finish.LENGTH, len(self.ids))

    def _end(self, finish: Finish, n_tokens: int) -> None:
        if not self.stream.stopped:
            self.stream.finish()
        # a stop string can also turn up in what was held back until now
        stopped = self.stream.stopped
        self.finish = Finish.STOP if stopped else finish
        self.n_tokens = self.stream.kept() if stopped else n_tokens

    def result(self) -> Generated:
        """The finished row."""
        return Generated(
            ids=tuple(self.ids),
            text=self.stream.text,
            n_tokens=self.n_tokens,
            finish=self.finish or Finish.ERROR,
        )


def generate(
    model: LanguageModel, tokenizer: LocalTokenizer, jobs: Sequence[Job]
) -> tuple[list[Generated], Passes]:
    """Continues a batch of prompts, each by its own settings.

    Prompts are padded on the left, so that a row's tokens are contiguous in the cache (sliding windows count
    cache places), with positions that count tokens only. Equal prompts (several draws of one) are read once,
    and their keys and values copied. The last token of a row is never fed: nothing is asked after it.

    Args:
        model: is loaded if it is not.
        tokenizer: the model's.
        jobs: not empty.

    Returns:
        One result per job, in order, and the count of what was computed.
    """
    import torch

    device = model.device
    rows = [_row(job, model, tokenizer) for job in jobs]
    prompts = sorted({job.ids for job in jobs}, key=lambda ids: (-len(ids), ids))
    width = len(prompts[0])
    ids = torch.zeros((len(prompts), width), dtype=torch.int64)
    mask = torch.zeros((len(prompts), width), dtype=torch.int64)
    for i, prompt in enumerate(prompts):
        ids[i, width - len(prompt) :] = torch.tensor(prompt)
        mask[i, width - len(prompt) :] = 1
    ids, mask = ids.to(device), mask.to(device)
    every = torch.arange(len(prompts), device=device)
    logits, cache = model.logits(ids, mask, every, torch.full_like(every, width - 1), use_cache=True)
    computed, scored, steps = ids.numel(), len(prompts), 1

    place = {prompt: i for i, prompt in enumerate(prompts)}
    chosen = [place[job.ids] for job in jobs]  # from prompts to jobs
    active = rows
    if chosen != list(range(len(prompts))):
        index = torch.tensor(chosen, device=device)
        cache.reorder_cache(index)  # made for beams: takes rows, in any number, from every kind of layer
        mask, logits = mask[index], logits[index]
    while True:
        for row, token in zip(active, _choose(logits, active), strict=True):
            row.take(token)
        going = [i for i, row in enumerate(active) if row.finish is None]
        if not going:
            break
        if len(going) < len(active):
            index = torch.tensor(going, device=device)
            cache.reorder_cache(index)
            mask, active = mask[index], [active[i] for i in going]
        mask = torch.cat([mask, mask.new_ones((len(active), 1))], dim=1)
        if len(active[0].job.ids) + len(active[0].ids) - 1 == model.edge:
            # all positions turn by other angles from here on, so keys of before are stale (`batching.cut` sees to
            # it that rows which come here have one prompt, hence one length and no padding)
            ids = torch.tensor([[*row.job.ids, *row.ids] for row in active], device=device)
            cache = None
        else:
            ids = torch.tensor([[row.ids[-1]] for row in active], device=device)
        every = torch.arange(len(active), device=device)
        last = torch.full_like(every, ids.shape[1] - 1)
        logits, cache = model.logits(ids, mask, every, last, cache=cache, use_cache=True)
        computed, scored, steps = computed + ids.numel(), scored + len(active), steps + 1
    done = [row.result() for row in rows]
    return done, Passes(computed=computed, scored=scored, steps=steps)


def _row(job: Job, model: LanguageModel, tokenizer: LocalTokenizer) -> _Row:
    # a stop string that is a special token ("<|im_end|>") never shows in the text, so it is known by its id
    special = frozenset(tokenizer.special_ids[s] for s in job.sampling.stop if s in tokenizer.special_ids)
    plain = [s for s in job.sampling.stop if s not in tokenizer.special_ids]
    eos = model.eos_ids | (frozenset() if tokenizer.eos_id is None else {tokenizer.eos_id})
    return _Row(job=job, stream=TextStream(tokenizer.decode, plain), eos=eos, stop_ids=special)


def _choose(logits: torch.Tensor, rows: Sequence[_Row]) -> list[int | None]:
    """The next token of each row, None where the model's numbers are no distribution."""
    peaks, greedy = logits.max(-1)  # NaN wins a maximum, so a finite one means that no logit is NaN or +inf
    sound, best = peaks.isfinite().tolist(), greedy.tolist()
    tokens: list[int | None] = []
    for i, row in enumerate(rows):
        sampling, seed = row.job.sampling, row.job.seed
        if not sound[i]:
            tokens.append(None)
        elif sampling.temperature == 0 or seed is None:
            tokens.append(best[i])
        else:
            tokens.append(draw(logits[i].double().cpu().numpy(), sampling, seed, len(row.ids)))
    return tokens
