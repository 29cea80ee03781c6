"""Does this machine give this study the same answers whatever the engine and the batch size? Measured, not promised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from steelyard.core.errors import InputError, RefusedError
from steelyard.core.types import Finish, Generate, Likelihood, Response, Tokens, Work
from steelyard.engine.backend import Backend
from steelyard.plan.build import Source
from steelyard.plan.study import Study
from steelyard.running.flips import Flip, flips
from steelyard.running.progress import Progress
from steelyard.running.sample import Sample, draw_sample
from steelyard.running.session import load_sources, plan_model, sharing
from steelyard.store.totals import Totals
from steelyard.testing.compare import Difference, compare
from steelyard.testing.tolerance import Tolerance, tolerance_for

_PLAIN, _SHARED = (1, 8, 32), (None, 8)
_SIZES = (1, 8, 32, None)  # of a backend with one way of computing
_LOOKED_AT = 8  # greedy texts whose first different token is looked at, in a pass
_LIMIT = 50  # items of a benchmark that a sample is drawn from unless the study says how many


@dataclass(frozen=True, slots=True)
class Pass:
    """The sample computed once, and how far its answers are from those of the first pass.

    Attributes:
        engine: "plain" or "shared"; "" for a backend that knows no such thing.
        batch_size: requests at once; None is the backend's own choice.
        work: tokens and seconds.
        failed: requests that ended in an error.
        difference: to the first pass; None for the first.
        choices: compared (cells x normalisations). flipped: those that came out otherwise.
        ties: of the greedy texts that differ, those whose first different tokens are equally likely within the
            tolerance.
        beyond: what rounding does not explain, as sentences.
    """

    engine: str
    batch_size: int | None
    work: Totals
    failed: int
    difference: Difference | None = None
    choices: int = 0
    flipped: tuple[Flip, ...] = ()
    ties: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """One model.

    Attributes:
        model, dtype: of its identity. tolerance: of the dtype.
        sharing: why its prefixes cannot be shared, "" where they can or it does not say.
        sample: what was asked. passes: the first is what the others are compared with.
    """

    model: str
    dtype: str
    tolerance: Tolerance
    sharing: str
    sample: Sample
    passes: tuple[Pass, ...]

    @property
    def ok(self) -> bool:
        """Whether every difference is explained by rounding."""
        return not any(each.beyond for each in self.passes)


def selfcheck(study: Study, *, requests: int, progress: Progress) -> list[Checked]:
    """Compute a sample of a study in several ways and compare. Nothing is stored.

    Args:
        study: of one or more models; its store is not touched, its engine and batch size do not count.
        requests: distinct requests of the sample, about.
        progress: listens.

    Raises:
        RefusedError: a server, which cuts its batches itself.
        InputError: nothing fits the context.
        SteelyardError: as `session.run`.
    """
    if study.limit is None and not study.items:
        study = study.model_copy(update={"limit": _LIMIT})
    sources = load_sources(study)
    return [_check(name, study, sources, requests, progress) for name in study.model]


def _check(
    name: str, study: Study, sources: tuple[Source, ...], requests: int, progress: Progress
) -> Checked:
    if name.startswith("server:"):
        raise RefusedError(
            f"{name} cannot be checked: a server cuts its batches itself, so there is nothing to compare. Check a "
            "local model (hf:name, a folder)."
        )
    plain = study.model_copy(update={"engine": "plain", "batch_size": None})
    shared = study.model_copy(update={"engine": "shared", "batch_size": None})
    with plan_model(name, plain, sources) as (plan, backend):
        local = plan.identity.backend == "transformers"
        tolerance = tolerance_for(plan.identity.dtype)
        sample = draw_sample(plan, requests, study.seed)
        if not sample.work:
            cells = len({ask.cell_id for ask in plan.asks})
            raise InputError(
                f"There is nothing to ask {name}: none of the {cells} cells fits its context. Give fewer --shots, "
                "another --max-length or other --tasks."
            )
        desk = _Desk(sample, tolerance, progress)
        for size in _PLAIN if local else _SIZES:
            desk.do(backend, "plain" if local else "", size)
        reason = "" if local else sharing(backend)
    if local:
        # one after the other: two copies of the weights may not fit
        with plan_model(name, shared, sources) as (_, backend):
            for size in _SHARED:
                desk.do(backend, "shared", size)
            reason = sharing(backend)
    if any(each.difference and each.difference.greedy_texts for each in desk.passes):
        with plan_model(name, plain, sources) as (_, backend):
            desk.look_at_texts(backend)
    return Checked(
        plan.identity.model,
        plan.identity.dtype,
        tolerance,
        reason,
        sample,
        tuple(map(desk.judge, desk.passes)),
    )


class _Desk:
    """The passes of one model, with the answers of the first."""

    def __init__(self, sample: Sample, tolerance: Tolerance, progress: Progress) -> None:
        self._sample, self._tolerance, self._progress = sample, tolerance, progress
        self.passes: list[Pass] = []
        self._answers: list[dict[str, Response]] = []

    def do(self, backend: Backend, engine: str, size: int | None) -> None:
        """Compute the sample once more, and compare."""
        work = self._sample.work
        self._progress.start(_label(engine, size), len(work), 0)
        answers: dict[str, Response] = {}
        total = Totals()
        try:
            for batch in backend.run(work, batch_size=size):
                total = total.plus(batch)
                answers |= {r.request_id: r for r in batch.responses}
                self._progress.batch(batch)
        finally:
            self._progress.stop()
        failed = sum(r.finish in {Finish.ERROR, Finish.REFUSED} for r in answers.values())
        done = Pass(engine, size, total, failed)
        if self._answers:
            first = self._answers[0]
            flipped, choices = flips(self._sample.cells, first, answers, self._tolerance.per_token)
            difference = compare(work, first, answers)
            done = replace(done, difference=difference, choices=choices, flipped=tuple(flipped))
        self._answers.append(answers)
        self.passes.append(done)

    def look_at_texts(self, backend: Backend) -> None:
        """Find out which greedy texts differ by a near-tie between two tokens only."""
        by_id = {piece.request_id: piece for piece in self._sample.work}
        known: dict[tuple[str, str], bool] = {}
        for n, each in enumerate(self.passes):
            ids = each.difference.greedy_texts if each.difference else ()
            ties = []
            for name in ids[:_LOOKED_AT]:
                one, other = (self._answers[m][name].text or "" for m in (0, n))
                if (name, other) not in known:
                    known[name, other] = _near_tie(
                        backend, by_id[name], one, other, self._tolerance.per_token
                    )
                if known[name, other]:
                    ties.append(name)
            self.passes[n] = replace(each, ties=tuple(ties))

    def judge(self, each: Pass) -> Pass:
        """The pass with what rounding does not explain."""
        beyond = [f"{each.failed} of {len(self._sample.work)} requests failed"] if each.failed else []
        if each.difference:
            texts = tuple(t for t in each.difference.greedy_texts if t not in each.ties)
            beyond += replace(each.difference, greedy_texts=texts).beyond(self._tolerance)
        if wrong := sum(not flip.tie for flip in each.flipped):
            beyond.append(f"{wrong} of {each.choices} choices flipped that were no ties")
        return replace(each, beyond=tuple(beyond))


def _near_tie(backend: Backend, piece: Work, one: str, other: str, per_token: float) -> bool:
    """Whether two greedy texts part at two tokens that are equally likely, within the tolerance of each.

    False also where it cannot be told: a text is the beginning of the other, or is written in other tokens than
    it was read back in.
    """
    request, tokens = piece.request, piece.tokens
    if not isinstance(request, Generate) or tokens is None or not (one and other):
        return False
    both = [backend.encode(Likelihood(request.prompt, text)) for text in (one, other)]
    prompt = tokens.ids
    ids = [t.ids for t in both if t is not None and t.ids[: len(prompt)] == prompt]
    if len(ids) < 2:
        return False
    part = next((n for n, (a, b) in enumerate(zip(*ids, strict=False)) if a != b), None)
    if part is None or part < len(prompt):
        return False
    work = [
        Work(f"{n}", Likelihood(request.prompt, one), Tokens(i[: part + 1], part)) for n, i in enumerate(ids)
    ]
    found = sorted(
        (r for batch in backend.run(work, batch_size=1) for r in batch.responses), key=lambda r: r.request_id
    )
    values = [r.logprob for r in found if r.logprob is not None]
    return len(values) == len(ids) and all(abs(a - b) <= 2 * per_token for a, b in pairwise(values))


def _label(engine: str, size: int | None) -> str:
    return f"{engine or 'own way'}, {how_many(size)}"


def how_many(size: int | None) -> str:
    """A batch size in words."""
    return (
        "as many at once as it likes" if size is None else "one at a time" if size == 1 else f"{size} at once"
    )


def kinds(sample: Sample) -> dict[str, int]:
    """How many requests of each kind a sample has."""
    return _kinds(sample.work)


def _kinds(work: Sequence[Work]) -> dict[str, int]:
    texts = [piece.request for piece in work if isinstance(piece.request, Generate)]
    drawn = sum(r.sampling.temperature > 0 and r.seed is not None for r in texts)
    return {"likelihoods": len(work) - len(texts), "greedy": len(texts) - drawn, "sampled": drawn}
