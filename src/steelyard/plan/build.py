"""A plan: every cell of a study for one model, with the requests that fill it, before anything is asked.

The plan is a pure function of the study, the items and the backend's tokenizer. Running it is set difference
against the store; showing it, costing it and sharding it need no model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from steelyard.benchmarks.base import Benchmark, Loaded
from steelyard.core.errors import DataError, InputError, RefusedError, UnknownNameError
from steelyard.core.ids import cell_id, request_id, run_id
from steelyard.core.rng import key
from steelyard.core.types import (
    Ask,
    Generate,
    Identity,
    Item,
    Likelihood,
    Request,
    Role,
    Sampling,
    Tokens,
    Work,
)
from steelyard.engine.backend import Backend
from steelyard.forms import formulation as formulations
from steelyard.forms.distractors import Options, Pool, equals_own_options, options_for
from steelyard.forms.fewshot import ShotSource
from steelyard.forms.formulation import Candidates, Formulation, Readout
from steelyard.forms.render import Form, Rendered, render
from steelyard.forms.templates import Template
from steelyard.plan.fit import Fitted, fit, text_of
from steelyard.plan.select import check_named, select
from steelyard.plan.study import Study


@dataclass(frozen=True, slots=True)
class Source:
    """A benchmark as one study uses it: its items, its templates, and how the items were chosen."""

    loaded: Loaded
    templates: Mapping[str, Template]
    items: tuple[Item, ...] = ()
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that one model is asked.

    Attributes:
        identity: the model. run_id: of the run.
        sources: benchmarks with the items that are evaluated.
        forms: every form, with the scorers of its benchmark's generated answers.
        asks: one row per cell x request, the cells of one item together.
        work: request id -> work; several cells may use one.
        notes: what the reader should know, such as a form that equals another.
    """

    identity: Identity
    run_id: str
    sources: tuple[Source, ...]
    forms: tuple[tuple[Form, Benchmark], ...]
    asks: list[Ask] = field(default_factory=list)
    work: dict[str, Work] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def build(study: Study, backend: Backend, sources: Sequence[Source]) -> Plan:
    """Plan a study for one model.

    Raises:
        RefusedError: a form makes no sense for a benchmark, or the backend cannot answer it; every such pair
            is named at once.
        UnknownNameError, InputError: as `select` and the templates say.
    """
    _refuse_one_name_twice(sources)
    if study.items:
        check_named((s.loaded for s in sources), study.items)
    notes: list[str] = []
    # a chat server makes a message of every prompt, asked for or not, so the form says so
    chat = study.chat or backend.identity.settings.get("api") == "chat"
    selected = [_selected(study, source) for source in sources]
    pairs = _allowed(study, backend, selected, notes)
    chosen: list[Source] = []
    forms: list[tuple[Form, Benchmark]] = []
    for source in selected:
        wanted = pairs[source.loaded.benchmark.name]
        shots = _shots(study, source.loaded.benchmark)
        if not wanted or not source.items:
            continue
        chosen.append(source)
        forms += [
            (_form(study, source.loaded, formulation, template, shots, chat=chat), source.loaded.benchmark)
            for formulation in wanted
            for template in _templates(study, source, formulation, notes)
        ]
    identity = backend.identity
    plan = Plan(identity, run_id(identity, study.seed), tuple(chosen), tuple(forms), notes=notes)
    for source in chosen:
        _fill(plan, study, backend, source)
    return plan


def _refuse_one_name_twice(sources: Sequence[Source]) -> None:
    # forms, items and answers are filed by the benchmark's name: two of one name would be mixed
    counts = Counter(s.loaded.benchmark.name for s in sources)
    if twice := [name for name, n in counts.items() if n > 1]:
        raise InputError(
            f"Two benchmarks of this study are called {twice[0]!r}. Give one of the .toml files another name = '...'."
        )


def _selected(study: Study, source: Source) -> Source:
    """The source with the items that this study evaluates."""
    shots = _shots(study, source.loaded.benchmark)
    picked = select(source.loaded, shots=shots, limit=study.limit, ids=study.items, seed=study.seed)
    return replace(source, items=picked.items, sentence=picked.sentence)


# ------------------------------------------------------------------------------------- what may be asked
def _allowed(
    study: Study, backend: Backend, sources: Sequence[Source], notes: list[str]
) -> dict[str, list[Formulation]]:
    allowed: dict[str, list[Formulation]] = {}
    problems: list[str] = []
    for source in sources:
        name = source.loaded.benchmark.name
        allowed[name] = []
        for formulation in dict.fromkeys(map(formulations.get, study.forms)):
            why = _why_not(formulation, backend, source, study) or _no_letters(
                formulation, _named(study, source)
            )
            if why is None:
                allowed[name].append(formulation)
            else:
                problems.append(f"{name} {formulation.name}: {why}")
    if problems and not study.skip_refused:
        raise RefusedError(
            "These forms cannot be asked:\n  "
            + "\n  ".join(problems)
            + "\nChoose other --forms for them, or leave them out with --skip-refused."
        )
    notes += [f"left out: {problem}" for problem in problems]
    if problems and not any(allowed.values()):
        raise RefusedError("Nothing is left to ask:\n  " + "\n  ".join(problems))
    return allowed


def _why_not(formulation: Formulation, backend: Backend, source: Source, study: Study) -> str | None:
    """Why a formulation cannot be asked of this benchmark and backend; None when it can."""
    if reason := source.loaded.benchmark.refuse.get(formulation.name):
        return reason
    if formulation.candidates is Candidates.SMART and (
        reason := _no_options(
            source, with_shots=formulation.shown and _shots(study, source.loaded.benchmark) > 0
        )
    ):
        return reason
    if formulation.candidates is Candidates.CONTEXT and not source.loaded.benchmark.pool:
        return "its items share no passage that other answers could come from; use mc_rnd"
    capabilities = backend.capabilities
    if study.chat and not capabilities.chat:
        way = "use --api chat" if backend.identity.backend == "server" else "ask without --chat"
        return f"{backend.identity.model} has no chat template; {way}"
    if formulation.readout is Readout.GENERATE:
        return None if capabilities.generate else f"{backend.identity.model} cannot generate"
    return None if capabilities.likelihood else capabilities.why_not


def _no_options(source: Source, *, with_shots: bool) -> str | None:
    """Why items of a benchmark cannot be asked with the data's own options; None when every one has some."""
    if source.loaded.benchmark.answer_type == "choice":
        return None
    asked = (*source.items, *(source.loaded.shots if with_shots else ()))
    without = [i.item_id for i in asked if not i.distractors]
    if not without:
        return None
    if len(without) == len(asked):
        return "the data bring no smart options; use mc_rnd, which takes other items' answers"
    return (
        f"{len(without)} of {len(asked)} items bring no smart options, the first is {without[0]}; "
        "give them some, or use mc_rnd, which takes other items' answers"
    )


def _shots(study: Study, benchmark: Benchmark) -> int:
    return benchmark.shots if study.shots is None else study.shots


def _named(study: Study, source: Source) -> list[Template]:
    """The templates that a study asks for: all, those named, or the benchmark's first."""
    known = source.templates
    if study.templates == ("all",):
        return list(known.values())
    if not study.templates:
        return [next(iter(known.values()))]
    for name in study.templates:
        if name not in known:
            raise UnknownNameError(f"template of {source.loaded.benchmark.name}", name, known)
    return [known[name] for name in dict.fromkeys(study.templates)]


def _no_letters(formulation: Formulation, named: list[Template]) -> str | None:
    if not formulation.shown or any(t.letters for t in named):
        return None
    return f"the template {' and '.join(t.name for t in named)} has no lettered wording; name another (--templates)"


def _templates(study: Study, source: Source, formulation: Formulation, notes: list[str]) -> list[Template]:
    named = _named(study, source)
    if not formulation.shown:
        return named
    if without := [t.name for t in named if not t.letters]:
        name = source.loaded.benchmark.name
        notes.append(f"left out: {name} {formulation.name}: no lettered wording in {', '.join(without)}")
    return [t for t in named if t.letters]


def _form(
    study: Study, loaded: Loaded, formulation: Formulation, template: Template, shots: int, *, chat: bool
) -> Form:
    sampling = None
    if formulation.readout is Readout.GENERATE:
        sampling = Sampling(
            max_tokens=study.max_tokens or template.max_tokens,
            stop=template.stop,
            temperature=study.sampling_temperature,
            top_p=study.top_p,
            top_k=study.top_k,
        )
    return Form(
        benchmark=loaded.benchmark.name,
        formulation=formulation,
        template=template,
        shots=shots,
        shot_mode=study.shot_mode,
        chat=chat,
        system=study.system,
        overlong=study.overlong,
        options=study.options,
        sampling=sampling,
        seed=study.seed,
        # shots and random options come from the whole content, so another content is another form
        extra={"content": loaded.provenance.content_hash, "capability": loaded.benchmark.capability.value},
    )


# ------------------------------------------------------------------------------------------ filling cells
def _fill(plan: Plan, study: Study, backend: Backend, source: Source) -> None:
    benchmark = source.loaded.benchmark
    forms = [form for form, owner in plan.forms if owner.name == benchmark.name]
    pool = Pool(source.loaded.items, benchmark.pool)
    shot_source = ShotSource(source.loaded.shots, match=benchmark.shot_match, seed=study.seed)
    own: dict[str, set[str]] = defaultdict(set)
    encoder = _Encoder(backend, study.repeats)
    for item in source.items:
        for form in forms:
            options = _options(item, form, pool)
            if (
                options
                and form.formulation.candidates is Candidates.RANDOM
                and equals_own_options(item, options)
            ):
                own[form.formulation.name].add(item.item_id)
            shots = shot_source.draw(item, form.shots, form.shot_mode)
            rendered = render(item, form, shots, options)
            _ask(plan, form, item, rendered, encoder)
    for name, items in own.items():
        plan.notes.append(
            f"{benchmark.name} {name}: for {len(items)} of {len(source.items)} items the random options are the "
            "item's own options, so it equals mc there"
        )


def _options(item: Item, form: Form, pool: Pool) -> Options | None:
    if form.formulation.readout is not Readout.CHOOSE:
        return None
    return options_for(item, form.formulation, pool, k=form.options, seed=form.seed)


class _Encoder:
    """Remembers encodings: the gold option of ll, mc and mc_rnd is one request, and so are all draws."""

    def __init__(self, backend: Backend, repeats: int) -> None:
        self.backend, self.repeats = backend, repeats
        self._seen: dict[tuple[str, ...], Tokens | None] = {}

    def __call__(self, request: Request) -> Tokens | None:
        name = text_of(request)
        if name not in self._seen:
            self._seen[name] = self.backend.encode(request)
        return self._seen[name]


def _ask(plan: Plan, form: Form, item: Item, rendered: Rendered, encoder: _Encoder) -> None:
    fitted = fit(form, item, rendered, encoder.backend, encoder)
    samples = encoder.repeats if form.formulation.readout is Readout.GENERATE else 1
    for sample in range(samples):
        cell = cell_id(plan.run_id, item.item_id, form.form_id, sample)
        for role, option, text, source, request in _requests(form, item, rendered, fitted, sample):
            work = None
            flags = rendered.flags + fitted.flags
            if request is not None:
                tokens = fitted.tokens(request, encoder(request))
                if tokens is not None and tokens.moved:
                    flags += ("moved",)
                work = Work(request_id(plan.identity, request, tokens), request, tokens)
                plan.work.setdefault(work.request_id, work)
            plan.asks.append(
                Ask(
                    cell_id=cell,
                    run_id=plan.run_id,
                    item_id=item.item_id,
                    form_id=form.form_id,
                    sample=sample,
                    role=role,
                    option=option,
                    text=text,
                    source=source,
                    request_id=work.request_id if work else None,
                    flags=flags,
                )
            )


def _requests(
    form: Form, item: Item, rendered: Rendered, fitted: Fitted, sample: int
) -> Iterable[tuple[Role, int | None, str, str, Request | None]]:
    if form.sampling is not None:
        greedy = form.sampling.temperature == 0
        # the stream is named by item and draw alone: not by the template, so that wordings are compared on
        # the same noise, and not by anything that a batch or a resume could change
        seed = None if greedy else key(form.seed, "draw", item.benchmark, item.item_id, sample)
        generate = Generate(fitted.prompt, form.sampling, sample, seed)
        yield Role.GENERATE, None, "", "", None if fitted.overlong else generate
        return
    for part in rendered.parts:
        if not part.text:
            raise DataError(
                f"Item {item.item_id} of {item.benchmark}: option {part.option} is empty in the form "
                f"{form.formulation.name}, and nothing can be scored. Mend the item (steelyard check)."
            )
        null = part.role in {Role.NULL_GOLD, Role.NULL_DISTRACTOR}
        context = rendered.null_context or "" if null else fitted.prompt
        request = Likelihood(context, part.continuation)
        yield part.role, part.option, part.text, part.source, None if fitted.overlong else request
