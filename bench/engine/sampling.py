"""A sampling case: our engine against lm-evaluation-harness's repeats and the library's ``generate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.engine import clock, count
from bench.engine.cases import Sampling
from bench.engine.clock import Spread
from bench.engine.harness import PeerRun, Peers
from bench.engine.machine import Prefill, described
from bench.engine.ours import ROWS, Run, close, open_engine, run
from bench.engine.results import Goal, Result, say
from bench.engine.texts import SEED, Gsm8k, Problem, flat, tokens_of

from steelyard.core.rng import stream
from steelyard.core.types import Work
from steelyard.engine.transformers.backend import TransformersBackend

SIZES = (8, 16, 32, 64)  # of the harness; the search begins at 16
NEW = 64


@dataclass(frozen=True, slots=True)
class Repeat:
    """One repeat: both sides, with the tokens that each made."""

    ours: Run
    new: int
    peer: PeerRun

    @property
    def ratio(self) -> float:
        """New tokens per second, ours over the harness's."""
        return self.new / self.ours.seconds / self.peer.rate

    def to_json(self) -> dict[str, Any]:
        """For the result's file."""
        draws = len(self.ours.responses)
        return {
            "ratio": self.ratio,
            "ratio_by_draws": self.peer.seconds / self.peer.requests / (self.ours.seconds / draws),
            "ours": {
                "seconds": self.ours.seconds,
                "draws": draws,
                "new_tokens": self.new,
                **self.ours.counters(),
            },
            "peer": {
                "seconds": self.peer.seconds,
                "draws": self.peer.requests,
                "new_tokens": self.peer.tokens,
            },
        }


def run_case(case: Sampling, *, quick: bool) -> Result:
    """Measure a case.

    Args:
        case: what to run.
        quick: two prompts, four draws of eight tokens and one repeat, to see that it runs.
    """
    backend = open_engine()  # before torch is imported
    gsm8k = Gsm8k(backend)
    problems = gsm8k.draws(
        gsm8k.items(2 if quick else case.prompts),
        shots=case.shots,
        chat=case.chat,
        repeats=4 if quick else case.repeats,
        max_tokens=8 if quick else NEW,
    )
    work = flat(problems)
    peers = Peers(backend.checkpoint.folder)
    prefill = Prefill(peers.net)
    rates = [prefill.rate()]
    list(backend.run(work[:1], batch_size=ROWS))  # loads the weights, and packs them
    size, search = _best_size(peers, problems, sizes=(4, 8) if quick else SIZES)
    repeats = 1 if quick else clock.repeats(len(work) / search[size])
    samples, sampled = _samples(case, work, size, repeats)
    done = [_repeat(i, (backend, work), (peers, sample), size) for i, sample in enumerate(samples)]
    # one call of a few rows where reading the prompts of all would take minutes
    library = peers.library_draws(
        work, len(problems[0]), min(size, 16) if sampled else size, 1 if sampled else None
    )
    rates.append(prefill.rate())
    machine = described()
    close(backend)
    plain = _plain(problems[0][:8])
    return _result(
        case,
        work,
        done,
        library=library,
        size=size,
        search=search,
        plain=plain,
        rates=rates,
        machine=machine,
        sampled=sampled,
        quick=quick,
    )


def _samples(case: Sampling, work: Sequence[Work], size: int, repeats: int) -> tuple[list[list[Work]], int]:
    """What the harness answers in each repeat, and how many draws that is together (0: everything, each time)."""
    counts = clock.batches(clock.SAMPLE, size, repeats)
    if repeats != 3 or sum(counts) >= len(work):
        return [list(work)] * repeats, 0
    order = stream(SEED, "bench", "sample", case.name).permutation(len(work)).tolist()
    ends = [sum(counts[: i + 1]) for i in range(repeats)]
    hands = [[work[j] for j in order[end - n : end]] for end, n in zip(ends, counts, strict=True)]
    return hands, sum(counts)


def _best_size(
    peers: Peers, problems: Sequence[Problem], sizes: Sequence[int]
) -> tuple[int, dict[int, float]]:
    """The harness's best batch size, and the draws per second that were foretold for those tried.

    Whole batches of five-shot prompts would take longer than the measurement. So the prompts' seconds are taken
    from a few rows, and those of a further token from some steps with that many rows.
    """
    prompts = [problem[0].tokens.ids for problem in problems[:4] if problem[0].tokens is not None]
    wanted = problems[0][0].request.sampling.max_tokens  # type: ignore[union-attr]
    peers.prompt_seconds(prompts[:1])  # warms it up
    reading = peers.prompt_seconds(prompts)

    def speed(size: int) -> float:
        return size / (size * reading + (wanted - 1) * peers.step_seconds(prompts[0], size))

    return clock.climb(sizes, speed, start=min(1, len(sizes) - 1))


def _repeat(
    index: int,
    ours: tuple[TransformersBackend, Sequence[Work]],
    peer: tuple[Peers, Sequence[Work]],
    size: int,
) -> Repeat:
    """Each side with what it answers."""
    answered, drawn = clock.alternate(index, lambda: run(*ours), lambda: peer[0].harness_draws(peer[1], size))
    done = Repeat(answered, sum(count.new_tokens(answered.responses)), drawn)
    say(
        f"repeat {index + 1}: ours {answered.seconds:.1f} s, lm-eval {drawn.seconds:.1f} s, {done.ratio:.2f}x"
    )
    return done


def _plain(work: Sequence[Work]) -> dict[str, Any]:
    """Our reference path on a few draws of one prompt, once."""
    backend = open_engine("plain")
    list(backend.run(work[:1], batch_size=1))
    once = run(backend, work, rows=len(work))
    close(backend)
    return {"seconds": once.seconds, "draws": len(work), "new_tokens": sum(count.new_tokens(once.responses))}


def _result(
    case: Sampling,
    work: Sequence[Work],
    done: Sequence[Repeat],
    *,
    library: PeerRun,
    size: int,
    search: dict[int, float],
    plain: dict[str, Any],
    rates: list[float],
    machine: dict[str, Any],
    sampled: int,
    quick: bool,
) -> Result:
    prompts = [row.ids for row in tokens_of(work)]
    first = done[0].ours
    new = count.new_tokens(first.responses)
    least, read = count.least_sampling(prompts, new), count.positions_sampling(prompts, new)
    speed = Spread.of(d.new / d.ours.seconds for d in done)
    aim = f"aim {case.aim:g}x" if case.aim else ""
    goals = [
        Goal.spread("speed over lm-eval", Spread.of(d.ratio for d in done), case.ratio, unit="x", note=aim),
        Goal(
            "speed over the library's generate",
            speed.median / library.rate,
            unit="x",
            note=f"{library.requests} draws, once",
        ),
        Goal("tokens computed over the least", first.computed / least, 1.02, at_least=False, unit="x"),
        Goal("positions scored against those read, difference", abs(first.scored - read), 0, at_least=False),
        Goal(
            "speed over our reference path",
            speed.median / (plain["new_tokens"] / plain["seconds"]),
            unit="x",
            note=f"{plain['draws']} draws of one prompt, once",
        ),
        Goal.spread("new tokens per second", speed, None, unit="/s"),
    ]
    notes = [
        "The ratio is that of new tokens per second: every side draws its own texts, which end where they end.",
        "The least counts each draw's own tokens: draws that happen to begin alike are told apart only once drawn.",
    ]
    if sampled:
        notes.append(
            f"The harness made a seeded random sample of {sampled} of {len(work)} draws in whole batches, "
            f"divided over the {len(done)} repeats; its cost is linear in draws."
        )
    return Result(
        case=case.name,
        title=case.title,
        what=f"{len(set(prompts))} prompts of {sum(map(len, set(prompts)))} tokens, {len(work)} draws",
        against=f"lm-eval {machine['versions']['lm-eval']} hf, batch size {size}",
        goals=goals,
        detail={
            "repeats": [d.to_json() for d in done],
            "counters": first.counters(),
            "least": least,
            "positions_read": read,
            "rows": ROWS,
            "library": {"seconds": library.seconds, "draws": library.requests, "new_tokens": library.tokens},
            "search_draws_per_second": {str(k): v for k, v in search.items()},
            "reference_path": plain,
            "prefill": rates,
        },
        machine=machine,
        quick=quick,
        notes=notes,
    )
