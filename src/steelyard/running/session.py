"""A study, from its description to judged cells. Start reading here.

    for each model:  open it -> plan every cell -> ask what the store does not have -> judge

The store is the only state. Resuming, adding a form, raising a limit and running a second model are all the
same act: the difference between what is planned and what is answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steelyard.benchmarks import catalog
from steelyard.benchmarks.base import Benchmark
from steelyard.benchmarks.sources import load
from steelyard.core.errors import InputError
from steelyard.core.types import Finish
from steelyard.engine.backend import Backend
from steelyard.forms.render import Form
from steelyard.forms.templates import parse_templates, templates
from steelyard.plan.build import Plan, Source, build
from steelyard.plan.study import Study
from steelyard.running.environment import hardware, versions
from steelyard.running.models import open_model
from steelyard.running.progress import Progress, Silent
from steelyard.scoring import registry
from steelyard.scoring.judge import Judged, judge_store
from steelyard.store.reader import Store, open_read
from steelyard.store.rows import FormRow, RunRow, SourceRow
from steelyard.store.totals import Totals
from steelyard.store.writer import Writer, open_store


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """What happened to one model.

    Attributes:
        planned: distinct requests of the plan. found: of them answered before. asked: answered now.
        failed: answered with an error now; they are asked again by the next run.
        left: not asked, because the run was stopped.
        overlong: cells that did not fit and were not asked.
        computed: token positions computed now. seconds: spent answering, loading included.
        work: what was done now, counted.
        notes: what the reader should know.
    """

    model: str
    run_id: str
    planned: int
    found: int
    asked: int
    failed: int
    left: int
    overlong: int
    computed: int
    seconds: float
    work: Totals
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to.

    Attributes:
        models: those that were reached, in order.
        interrupted: whether it was stopped before everything was asked.
    """

    store: Path
    models: tuple[ModelOutcome, ...]
    judged: Judged
    interrupted: bool


@dataclass(frozen=True, slots=True)
class _Desk:
    """What stays the same from model to model."""

    study: Study
    writer: Writer
    listener: Progress
    cancelled: Callable[[], bool]


def run(
    study: Study, *, progress: Progress | None = None, cancelled: Callable[[], bool] | None = None
) -> Outcome:
    """Do a study.

    Args:
        study: what to measure.
        progress: listens; None is silent.
        cancelled: asked between batches; when it says True, the run ends early and can be resumed.

    Raises:
        SteelyardError: see `core.errors`; whatever was answered until then is on disk.
    """
    sources = load_sources(study)
    outcomes: list[ModelOutcome] = []
    with open_store(study.store) as writer:
        desk = _Desk(study, writer, progress or Silent(), cancelled or (lambda: False))
        for name in study.model:
            with plan_model(name, study, sources) as (plan, backend):
                outcomes.append(_ask(plan, backend, desk))
            if desk.cancelled():
                break
        writer.compact()
    interrupted = len(outcomes) < len(study.model) or any(m.left for m in outcomes)
    return Outcome(study.store, tuple(outcomes), judge(study.store), interrupted)


def judge(path: Path) -> Judged:
    """Judge every answer of a store, again where it was judged before. No model is needed."""
    with open_store(path, create=False) as writer, open_read(path) as store:
        return judge_store(writer, store)


@contextmanager
def plan_model(name: str, study: Study, sources: tuple[Source, ...]) -> Iterator[tuple[Plan, Backend]]:
    """Open a model and plan for it; it is closed at the end of the ``with`` statement."""
    backend = open_model(name, study)
    try:
        yield build(study, backend, sources), backend
    finally:
        backend.close()


def answered(path: Path) -> set[str]:
    """Request ids that a store has an answer for; empty where there is no store yet."""
    if not path.exists():
        return set()
    with open_read(path) as store:
        return store.answered()


def load_sources(study: Study) -> tuple[Source, ...]:
    """The benchmarks of a study with their templates; a benchmark of one's own brings its own."""
    return tuple(_source(name, study) for name in catalog.expand(study.tasks))


def _source(name: str, study: Study) -> Source:
    loaded = load(name, data=study.data, seed=study.seed, revision=study.revision)
    own = templates(loaded.benchmark.name)
    if catalog.is_own(name):
        from steelyard.benchmarks.custom import read_custom

        own = parse_templates(read_custom(Path(name)).templates, where=name)
    if not own:
        raise InputError(f"{name} has no template. Add one: [templates.plain] with question = '...'.")
    registry.check_scorers(loaded.benchmark.scorers, loaded.benchmark.answer_type)
    return Source(loaded, own)


def _ask(plan: Plan, backend: Backend, desk: _Desk) -> ModelOutcome:
    """Write the plan's rows, ask what has no answer yet, batch by batch, each on disk before the next."""
    study, writer, listener = desk.study, desk.writer, desk.listener
    notes = list(plan.notes)
    with open_read(study.store) as store:
        notes += _changed_content(plan, store)
        done = store.answered() & plan.work.keys()
    _record(plan, study, writer)
    for note in notes:
        listener.note(note)
    answered = failed = 0
    total = Totals()
    began = time.monotonic()
    if len(done) < len(plan.work):
        listener.start(plan.identity.model, len(plan.work), len(done))
        try:
            work = list(plan.work.values())
            for batch in backend.run(work, done, batch_size=study.batch_size, cancelled=desk.cancelled):
                writer.append_batch(plan.run_id, batch)
                bad = sum(r.finish is Finish.ERROR for r in batch.responses)
                answered, failed = answered + len(batch.responses) - bad, failed + bad
                total = total.plus(batch)
                listener.batch(batch)
        finally:
            listener.stop()
        # only now: some families are known by their network, which is loaded by the first work
        if study.engine == "shared" and (reason := sharing(backend)):
            notes.append(f"{plan.identity.model}: {reason}")
            listener.note(notes[-1])
    return ModelOutcome(
        model=plan.identity.model,
        run_id=plan.run_id,
        planned=len(plan.work),
        found=len(done),
        asked=answered,
        failed=failed,
        left=len(plan.work) - len(done) - answered - failed,
        overlong=len({a.cell_id for a in plan.asks if "overlong" in a.flags}),
        computed=total.computed,
        seconds=time.monotonic() - began,
        work=total,
        notes=tuple(notes),
    )


def sharing(backend: Backend) -> str:
    """Why a backend computes a prefix that requests share more than once, "" if it does not (or does not say).

    Not part of the protocol: only backends that run a network of their own can know.
    """
    return str(getattr(backend, "sharing", ""))


def _record(plan: Plan, study: Study, writer: Writer) -> None:
    """What a reader needs to understand the answers is written before the first of them."""
    writer.add_run(RunRow.of(plan.identity, study.seed, versions=versions(), hardware=hardware()))
    for source in plan.sources:
        writer.add_items(source.items)
        writer.add_source(_source_row(plan, source))
    writer.add_forms([_form_row(form, benchmark) for form, benchmark in plan.forms])
    writer.add_asks(plan.asks)


def _source_row(plan: Plan, source: Source) -> SourceRow:
    where, benchmark = source.loaded.provenance, source.loaded.benchmark
    return SourceRow(
        run_id=plan.run_id,
        benchmark=benchmark.name,
        kind=where.kind,
        location=where.location,
        revision=where.revision,
        split=where.split,
        content_hash=where.content_hash,
        shot_source=where.shot_source,
        n_items=len(source.loaded.items),
        n_selected=len(source.items),
        selection=source.sentence,
        duplicates=source.loaded.duplicates,
    )


def _form_row(form: Form, benchmark: Benchmark) -> FormRow:
    if form.formulation.shown:
        # every letter has the same length, so all normalisations would be one
        scorers: tuple[str, ...] = ("none",)
    else:
        null = bool(form.template.null_context)
        scorers = registry.for_form(form.formulation.readout.value, benchmark.scorers, null=null)
    return FormRow(
        form_id=form.form_id,
        benchmark=form.benchmark,
        formulation=form.formulation.name,
        template_id=form.template.name,
        shots=form.shots,
        text_hash=form.text_hash,
        settings=form.settings(),
        scorers=scorers,
    )


def _changed_content(plan: Plan, store: Store) -> list[str]:
    """What an earlier run of this store saw under the same names.

    Raises:
        InputError: an item has another content now. Its old and its new answers must not be mixed.
    """
    notes: list[str] = []
    before = {(row.benchmark, row.content_hash) for row in store.sources()}
    for source in plan.sources:
        name, now = source.loaded.benchmark.name, source.loaded.provenance.content_hash
        old = sorted(h for benchmark, h in before if benchmark == name and h != now)
        if not old:
            continue
        known = {i.item_id: i.content_hash for i in store.items(name)}
        changed = [i.item_id for i in source.items if known.get(i.item_id, i.content_hash) != i.content_hash]
        if changed:
            raise InputError(
                f"{len(changed)} items of {name} have changed since an earlier run of the store {store.path}; the "
                f"first is {changed[0]}. Old and new answers must not be mixed: give another --store."
            )
        notes.append(
            f"{name}: the benchmark's content is {now}, an earlier run of this store saw {', '.join(old)}; items "
            "were added or removed, so its forms are asked anew and stand beside the old ones"
        )
    return notes
