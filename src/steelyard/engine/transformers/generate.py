"""Generation, the plain way: a batch of prompts, padded, with the library's own cache.

The loop is ours, because every request brings its own settings (`rows`) and a row that has ended leaves the batch;
the library's loop shares settings among rows and runs until the last one ends. This is the twin that the shared
engine (`decode`) must agree with.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.reference import Passes
from steelyard.engine.transformers.rows import Generated, Job, begin, choose
from steelyard.engine.transformers.tokenizer import LocalTokenizer


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
    rows = [begin(job, model, tokenizer) for job in jobs]
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
        for row, token in zip(active, choose(logits, active), strict=True):
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
