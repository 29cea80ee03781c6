"""The same answers: shared against plain, both against a float64 forward pass, and the harness on its own requests."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.engine.cases import Other
from bench.engine.cells import Cell, cells, distinct, prompts, take
from bench.engine.harness import Peers, quiet
from bench.engine.machine import described
from bench.engine.ours import close, open_engine, run
from bench.engine.results import Goal, Result

from steelyard.core.types import Likelihood, Response, Work

REQUESTS = 2000
PER_TOKEN = 1e-4  # nats, between two float32 paths
PER_SUM = 5e-4  # nats, of a whole solution against float64
HARNESS = 1e-2  # nats, of a sum: the harness's own rounding reaches 4e-3


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sets of scores.

    Attributes:
        per_token: largest difference of a sum over its tokens. single: of a single token.
        flips: cells whose best option differs, by sum or per character. beyond_ties: of these, not explained
            by a margin within the tolerance.
    """

    per_token: float
    single: float
    flips: int
    beyond_ties: int


def run_case(case: Other, *, quick: bool) -> Result:
    """Compare all answers; with `quick`, those of a few dozen requests."""
    shared = open_engine(token_logprobs=True)  # before torch is imported
    found, too_long = cells(shared, shots=0, items=12 if quick else 60, longest=250)
    chosen = take(found, 60 if quick else REQUESTS)
    if not quick:
        few, more = cells(shared, shots=2, items=4, longest=600)
        chosen += take(few, 150)
        too_long += more
    work = distinct(chosen)
    greedy = prompts(shared, chosen, each=1 if quick else 2, max_tokens=8 if quick else 16)
    ours, texts = run(shared, work), run(shared, greedy)
    folder = shared.checkpoint.folder
    close(shared)
    plain = open_engine("plain", token_logprobs=True)
    slow, slow_texts = run(plain, work, rows=16), run(plain, greedy, rows=16)
    close(plain)
    mine, reference = _by_id(ours.responses), _by_id(slow.responses)
    between = compare(chosen, mine, reference)
    worked = _worked(chosen, 2 if quick else 16)
    exact = _float64(folder, worked)
    off = {name: _farthest(exact, scores) for name, scores in (("shared", mine), ("plain", reference))}
    peers = Peers(folder)
    own = take(chosen, 20 if quick else 200)
    harness = _harness(peers, own, mine)
    different_texts = sum(
        _by_id(texts.responses)[w.request_id].text != _by_id(slow_texts.responses)[w.request_id].text
        for w in greedy
    )
    goals = [
        Goal("likelihoods compared", float(len(work)), None if quick else REQUESTS),
        Goal(
            "largest difference per scored token", between.per_token, PER_TOKEN, at_least=False, unit=" nats"
        ),
        Goal("flipped choices beyond ties", between.beyond_ties, 0, at_least=False),
        Goal(
            "largest difference of a sum from float64",
            off["shared"],
            PER_SUM,
            at_least=False,
            unit=" nats",
            note=f"{len(exact)} worked solutions; plain path {off['plain'] or 0:.1e}",
        ),
        Goal(
            "largest difference of a sum from lm-eval",
            harness["largest"],
            HARNESS,
            at_least=False,
            unit=" nats",
            note=f"{harness['compared']} of its own requests",
        ),
        Goal(
            "choices that differ from lm-eval's beyond the margin",
            harness["beyond_margin"],
            0,
            at_least=False,
        ),
        Goal(
            "greedy texts that differ from the plain path",
            different_texts,
            0,
            at_least=False,
            note=f"of {len(greedy)}",
        ),
    ]
    machine = described()
    return Result(
        case=case.name,
        title=case.title,
        what=f"{len(work)} likelihoods in {len(chosen)} cells, over every benchmark and form of the data folder",
        against=f"our plain path, float64, lm-eval {machine['versions']['lm-eval']} hf",
        goals=goals,
        detail={
            "cells": dict(sorted(Counter(c.form for c in chosen).items())),
            "cells_left_out_as_too_long": too_long,
            "largest_difference_of_a_single_token": between.single,
            "flips_of_any_kind": between.flips,
            "shared": {"seconds": ours.seconds, **ours.counters()},
            "plain": {"seconds": slow.seconds, **slow.counters()},
            "float64": off,
            "harness": harness,
        },
        machine=machine,
        quick=quick,
        notes=["A choice is the best option by sum and by sum per character; both are compared."],
    )


def compare(chosen: Sequence[Cell], ours: Mapping[str, Response], other: Mapping[str, Response]) -> Compared:
    """Largest differences and flipped choices between two sets of answers to the same requests."""
    per_token = single = 0.0
    for cell in chosen:
        for one in cell.work:
            a, b = ours[one.request_id], other[one.request_id]
            per_token = max(per_token, abs(_sum(a) - _sum(b)) / max(1, a.n_tokens))
            for x, y in zip(a.token_logprobs or (), b.token_logprobs or (), strict=True):
                single = max(single, abs(x - y))
    flips = beyond = 0
    for cell in chosen:
        flipped, serious = _flipped(
            cell, {i: _sum(r) for i, r in ours.items()}, {i: _sum(r) for i, r in other.items()}
        )
        flips, beyond = flips + flipped, beyond + serious
    return Compared(per_token, single, flips, beyond)


def _flipped(
    cell: Cell, ours: Mapping[str, float], other: Mapping[str, float], tolerance: float | None = None
) -> tuple[bool, bool]:
    """Whether the best option differs, and whether its margin is more than rounding can explain.

    Args:
        cell: with options.
        ours: sums by request id.
        other: likewise; the margin is theirs.
        tolerance: nats of a sum; None takes `PER_TOKEN` times the tokens of each option.
    """
    tokens = {w.request_id: len(w.tokens.ids) - w.tokens.start for w in cell.work if w.tokens is not None}
    flipped = serious = False
    for divide in (False, True):
        lengths = [max(1, len(text)) if divide else 1 for _, text in cell.options]
        a = [ours[i] / n for (i, _), n in zip(cell.options, lengths, strict=True)]
        b = [other[i] / n for (i, _), n in zip(cell.options, lengths, strict=True)]
        mine, theirs = a.index(max(a)), b.index(max(b))
        if mine == theirs:
            continue
        allowed = sum(
            (PER_TOKEN * tokens[cell.options[k][0]] if tolerance is None else tolerance) / lengths[k]
            for k in (mine, theirs)
        )
        flipped = True
        serious = serious or b[theirs] - b[mine] > allowed
    return flipped, serious


def _harness(peers: Peers, own: Sequence[Cell], ours: Mapping[str, Response]) -> dict[str, Any]:
    """The harness on its own requests: same texts, its own tokens."""
    work = distinct(own)
    pairs = {
        w.request_id: (r.context, r.continuation) for w in work if isinstance(r := w.request, Likelihood)
    }
    made = {i: peers.own_tokens(*pair) for i, pair in pairs.items()}
    pairs = {i: pair for i, pair in pairs.items() if made[i] is not None}
    same = {w.request_id for w in work if w.tokens is not None and made.get(w.request_id) == w.tokens.ids}
    scores = dict(zip(pairs, peers.score_texts(list(pairs.values()), 4), strict=True))
    sums = {i: _sum(ours[i]) for i in scores}
    largest = max((abs(sums[i] - scores[i]) for i in same), default=None)
    whole = [c for c in own if all(i in same for i, _ in c.options)]
    verdicts = [_flipped(c, sums, scores, HARNESS) for c in whole]
    return {
        "requests": len(work),
        "compared": len(same),
        "refused": len(made) - len(pairs),
        "other_tokens": len(pairs) - len(same),
        "largest": largest,
        "choices": len(whole),
        "choices_that_differ": sum(flipped for flipped, _ in verdicts),
        "beyond_margin": sum(serious for _, serious in verdicts),
    }


def _worked(chosen: Sequence[Cell], count: int) -> list[Work]:
    """Options of GSM8K that are whole solutions: the longest sums there are."""
    found: dict[str, Work] = {}
    for cell in chosen:
        if cell.form.startswith("gsm8k mc_rnd"):
            options = {i for i, _ in cell.options}
            found |= {w.request_id: w for w in cell.work if w.request_id in options}
    return list(found.values())[:count]


def _farthest(exact: Mapping[str, float], scores: Mapping[str, Response]) -> float | None:
    """The largest difference from the exact sums; None where there is none."""
    return max((abs(_sum(scores[i]) - value) for i, value in exact.items()), default=None)


def _float64(folder: Path, work: Sequence[Work]) -> dict[str, float]:
    """Sums by the library's own forward pass in float64, one request at a time."""
    import torch
    from transformers import AutoModelForCausalLM

    quiet()
    net: Any = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=torch.float64, local_files_only=True
    ).eval()
    sums: dict[str, float] = {}
    for one in work:
        assert one.tokens is not None, "the bench runs local models, whose tokenizer is ours"
        ids, start = torch.tensor([one.tokens.ids]), one.tokens.start
        with torch.inference_mode():
            logits = net(input_ids=ids[:, :-1], use_cache=False).logits[0, start - 1 :]
        logprobs = logits.log_softmax(-1).gather(-1, ids[0, start:].unsqueeze(-1))
        sums[one.request_id] = float(logprobs.sum())
    del net
    gc.collect()
    return sums


def _by_id(responses: Sequence[Response]) -> dict[str, Response]:
    return {r.request_id: r for r in responses}


def _sum(response: Response) -> float:
    assert response.logprob is not None, "a likelihood that was answered"
    return response.logprob
