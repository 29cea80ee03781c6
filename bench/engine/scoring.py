"""A scoring case: our engine against lm-evaluation-harness on the same token ids, in alternating order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.engine import clock, count
from bench.engine.cases import Scoring
from bench.engine.clock import Spread
from bench.engine.harness import PeerRun, Peers
from bench.engine.machine import Prefill, described
from bench.engine.ours import Run, close, open_engine, run
from bench.engine.results import Goal, Result, say
from bench.engine.texts import SEED, Gsm8k, Problem, flat, tokens_of

from steelyard.core.rng import stream
from steelyard.core.types import Work
from steelyard.engine.transformers.backend import TransformersBackend

SIZES = (1, 4, 8, 16)  # of the harness, tried upwards while they help
_SLICE = 8  # items at most that the search may use
_SHARE_FROM = 2000  # tokens computed, below which the share of prefill says nothing


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeat: both sides, and plain prefill before and after ours."""

    ours: Run
    peer: PeerRun
    tokens: int  # that the harness would feed for all that ours answered
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """Seconds of the harness, scaled to what ours answered, over ours: its cost is linear in tokens."""
        return self.peer.seconds * self.tokens / self.peer.tokens / self.ours.seconds

    @property
    def share(self) -> float:
        """Tokens computed per second over plain prefill."""
        return self.ours.computed / self.ours.seconds / ((self.before + self.after) / 2)

    def to_json(self) -> dict[str, Any]:
        """For the result's file."""
        return {
            "ratio": self.ratio,
            "share": self.share,
            "ours": {
                "seconds": self.ours.seconds,
                "requests": len(self.ours.responses),
                **self.ours.counters(),
            },
            "peer": {"seconds": self.peer.seconds, **self.peer.counters(), "tokens_whole": self.tokens},
            "prefill": [self.before, self.after],
        }


def run_case(case: Scoring, *, quick: bool) -> Result:
    """Measure a case.

    Args:
        case: what to run.
        quick: two items with two options and one repeat, to see that it runs.
    """
    backend = open_engine()  # before torch is imported
    parts = _parts(case, Gsm8k(backend), quick=quick)
    everything = [problem for part in parts for problem in part]
    peers = Peers(backend.checkpoint.folder)
    prefill = Prefill(peers.net)
    list(backend.run(flat(everything[:1]), batch_size=1))  # loads the weights, and packs them
    size, search = _best_size(peers, everything, (1, 4) if quick else SIZES, tokens=1 if quick else 3000)
    tokens = count.fed_by_harness(tokens_of(flat(everything)))
    repeats = 1 if quick else clock.repeats(tokens / search[size])
    samples, sampled = _samples(case, everything, repeats, whole=repeats == 5 or quick)
    ours = _ours(case, parts, repeats)
    sides = _Sides(backend, peers, prefill, size)
    done = [_repeat(sides, i, flat(ours[i]), flat(samples[i])) for i in range(repeats)]
    machine = described()
    close(backend)
    return _result(
        case,
        everything,
        done,
        size=size,
        search=search,
        plain=_plain(flat(samples[0])[:4]),
        machine=machine,
        sampled=sampled,
        quick=quick,
    )


# ------------------------------------------------------------------------------------------------- requests
def _parts(case: Scoring, gsm8k: Gsm8k, *, quick: bool) -> list[list[Problem]]:
    """The problems of each wording; one list where there is one wording."""
    items, options = gsm8k.items(2 if quick else case.items), 2 if quick else 4
    if case.wordings:
        return gsm8k.worded(items, 2 if quick else case.wordings, shots=case.shots, options=options)
    return [gsm8k.choices(items, shots=case.shots, target=case.target, options=options)]


def _ours(case: Scoring, parts: list[list[Problem]], repeats: int) -> list[list[Problem]]:
    """What our side answers in each repeat: everything, or its share of a case that can be split."""
    match case.split:
        case "wordings":
            return [[problem for part in hand for problem in part] for hand in clock.dealt(parts, repeats)]
        case "items":
            return clock.dealt(parts[0], repeats)
    return [[problem for part in parts for problem in part]] * repeats


def _samples(
    case: Scoring, everything: Sequence[Problem], repeats: int, *, whole: bool
) -> tuple[list[list[Problem]], int]:
    """What the harness answers in each repeat, and how many requests that is together (0: everything, each time)."""
    if whole and not case.split:
        return [list(everything)] * repeats, 0
    chosen = clock.sampled(everything, stream(SEED, "bench", "sample", case.name))
    return clock.dealt(chosen, repeats), len(flat(chosen))


# ---------------------------------------------------------------------------------------------------- runs
def _best_size(
    peers: Peers, problems: Sequence[Problem], sizes: Sequence[int], tokens: int
) -> tuple[int, dict[int, float]]:
    """The harness's best batch size on a few items, and the tokens per second of those tried.

    Each size runs as many items as fill a batch and hold so many tokens.
    """
    order = stream(SEED, "bench", "search").permutation(len(problems)).tolist()
    chosen = [problems[i] for i in order[:_SLICE]]
    peers.score(list(chosen[0]), 1, 1)  # warms it up

    def speed(size: int) -> float:
        work: list[Work] = []
        for problem in chosen:
            rows = {one.ids[:-1] for one in tokens_of(work)}
            if len(rows) >= size and sum(map(len, rows)) >= tokens:
                break
            work += problem
        return peers.score(work, size, count.fed_by_harness(tokens_of(work))).rate

    return clock.climb(sizes, speed)


@dataclass(frozen=True, slots=True)
class _Sides:
    backend: TransformersBackend
    peers: Peers
    prefill: Prefill
    size: int


def _repeat(sides: _Sides, index: int, ours: Sequence[Work], sample: Sequence[Work]) -> Repeat:
    def engine() -> tuple[float, Run, float]:
        return sides.prefill.rate(), run(sides.backend, ours), sides.prefill.rate()

    def peer() -> PeerRun:
        return sides.peers.score(sample, sides.size, count.fed_by_harness(tokens_of(sample)))

    (before, answered, after), asked = clock.alternate(index, engine, peer)
    _agree(answered, asked, sample)
    done = Repeat(answered, asked, count.fed_by_harness(tokens_of(ours)), before, after)
    say(
        f"repeat {index + 1}: ours {answered.seconds:.1f} s, lm-eval {asked.seconds:.1f} s, {done.ratio:.2f}x"
    )
    return done


def _agree(ours: Run, peer: PeerRun, sample: Sequence[Work]) -> None:
    """A ratio between different answers would mean nothing.

    Raises:
        RuntimeError: both sides answered a request, and their sums differ by more than the harness's rounding.
    """
    scores = {r.request_id: r.logprob for r in ours.responses}
    both = [
        (scores[w.request_id], other)
        for w, other in zip(sample, peer.scores, strict=True)
        if w.request_id in scores
    ]
    worst = max((abs(mine - other) for mine, other in both if mine is not None), default=0.0)
    if not worst < 0.05:
        raise RuntimeError(f"Our scores and the harness's differ by up to {worst:g} nats on the same tokens.")


def _plain(work: Sequence[Work]) -> dict[str, Any]:
    """Our reference path on a few requests, once; it is not part of any ratio that is asked for."""
    backend = open_engine("plain")
    list(backend.run(work[:1], batch_size=1))
    once = run(backend, work, rows=4)
    close(backend)
    return {
        "seconds": once.seconds,
        "requests": len(work),
        "tokens": count.whole(tokens_of(work)),
        "batch_size": 4,
    }


# -------------------------------------------------------------------------------------------------- result
def _result(
    case: Scoring,
    everything: Sequence[Problem],
    done: Sequence[Repeat],
    *,
    size: int,
    search: dict[int, float],
    plain: dict[str, Any],
    machine: dict[str, Any],
    sampled: int,
    quick: bool,
) -> Result:
    rows = tokens_of(flat(everything))
    # a split case is answered once, over all repeats; any other one is answered whole in each of them
    total = sum((d.ours for d in done[1:]), done[0].ours) if case.split else done[0].ours
    least, read, whole, fed = (
        count.least(rows),
        count.positions(rows),
        count.whole(rows),
        count.fed_by_harness(rows),
    )
    ratio, share = Spread.of(d.ratio for d in done), Spread.of(d.share for d in done)
    measurable = total.computed >= _SHARE_FROM
    seconds = math.fsum(d.ours.seconds for d in done) / (1 if case.split else len(done))
    plain_ratio = plain["seconds"] / plain["tokens"] * whole / seconds
    goals = [
        Goal.spread("speed over lm-eval", ratio, case.ratio, unit="x"),
        Goal.spread("share of plain prefill", share, case.share if measurable else None),
        Goal("tokens computed over the least", total.computed / least, 1.02, at_least=False, unit="x"),
        Goal("positions scored against those read, difference", abs(total.scored - read), 0, at_least=False),
        Goal(
            "speed over our reference path", plain_ratio, unit="x", note=f"{plain['requests']} requests, once"
        ),
    ]
    notes = [
        f"Sharing alone would give {fed / least:.2f}x over the harness ({whole / least:.2f}x over one by one)."
    ]
    if sampled:
        notes.append(
            f"The harness answered a seeded random sample of {sampled} of {len(rows)} requests (whole items), "
            f"divided over the {len(done)} repeats; its seconds are scaled by the tokens it feeds, in which its "
            "cost is linear."
        )
    if case.split:
        notes.append(
            f"Nothing is shared between {case.split}: each repeat takes its own part of them, and all repeats together "
            "answer the whole case."
        )
    return Result(
        case=case.name,
        title=case.title,
        what=f"{len(everything)} problems, {len(rows)} likelihoods, {whole} tokens asked",
        against=f"lm-eval {machine['versions']['lm-eval']} hf, batch size {size}",
        goals=goals,
        detail={
            "repeats": [d.to_json() for d in done],
            "counters": total.counters(),
            "least": least,
            "positions_read": read,
            "tokens_whole": whole,
            "tokens_fed_by_harness": fed,
            "tokens_per_second": total.computed
            / math.fsum(d.ours.seconds for d in (done if case.split else done[:1])),
            "search": {str(k): v for k, v in search.items()},
            "reference_path": plain,
        },
        machine=machine,
        quick=quick,
        notes=notes,
    )
