"""Real questions, a real model: a hundred requests over all benchmarks and forms, shared against plain."""

from __future__ import annotations

import math

import pytest

from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.types import Likelihood
from steelyard.engine.transformers.backend import open_transformers
from steelyard.plan.study import Study
from steelyard.running.flips import flips
from steelyard.running.session import load_sources, plan_model

TASKS = "gsm8k,triviaqa,squad,humaneval,mmlu,boolq,arc_easy,arc_challenge,hellaswag"
FORMS = "mc,mc_rnd,mc_ao,ll,ll_ao,letters"
REQUESTS = 100
LONGEST = 150  # tokens of a request
PER_TOKEN = 1e-4  # nats


def chosen(plan):
    """Whole cells in turns over benchmarks and forms, of short requests, until there are enough."""
    cells: dict[str, list] = {}
    for ask in plan.asks:
        cells.setdefault(ask.cell_id, []).append(ask)
    queues: dict[str, list] = {}
    for asks in cells.values():
        ids = [a.request_id for a in asks]
        if None in ids or any(len(plan.work[i].tokens.ids) > LONGEST for i in ids):
            continue
        if all(isinstance(plan.work[i].request, Likelihood) for i in ids):
            queues.setdefault(asks[0].form_id, []).append(asks)
    taken: list = []
    work: dict = {}
    while len(work) < REQUESTS and any(queues.values()):
        for form in sorted(queues):
            if queues[form] and len(work) < REQUESTS:
                taken.append(queues[form].pop(0))
                work |= {a.request_id: plan.work[a.request_id] for a in taken[-1]}
    return taken, list(work.values())


def answers(folder, engine, work):
    """Responses by id, and the batches' counts."""
    backend = open_transformers(str(folder), engine=engine, token_logprobs=True)
    batches = list(backend.run(work, batch_size=None))
    said = backend.sharing
    backend.close()
    return {r.request_id: r for b in batches for r in b.responses}, batches, said


@pytest.mark.model
def test_a_hundred_requests_over_all_benchmarks_and_forms_agree_to_1e_4_and_no_choice_flips(
    smollm2, shared_data
):
    study = Study(
        model=(str(smollm2),),
        tasks=TASKS,
        forms=FORMS,
        limit=6,
        shots=0,
        skip_refused=True,
        data=shared_data,
    )
    with plan_model(str(smollm2), study, load_sources(study)) as (plan, _):
        cells, work = chosen(plan)
        benchmarks = {form.form_id: form.benchmark for form, _ in plan.forms}
        kinds = {form.form_id: form.formulation.name for form, _ in plan.forms}
    assert len(work) >= REQUESTS
    assert len({benchmarks[asks[0].form_id] for asks in cells}) >= 7
    assert len({kinds[asks[0].form_id] for asks in cells}) >= 5

    got, batches, said = answers(smollm2, "shared", work)
    want, plain_batches, _ = answers(smollm2, "plain", work)
    assert said == ""
    assert got.keys() == want.keys() == {w.request_id for w in work}
    worst = 0.0
    for one in work:
        a, b = got[one.request_id], want[one.request_id]
        assert len(a.token_logprobs) == len(b.token_logprobs) == len(one.tokens.ids) - one.tokens.start
        assert math.isfinite(a.logprob)
        worst = max(worst, *(abs(x - y) for x, y in zip(a.token_logprobs, b.token_logprobs, strict=True)))
    assert worst < PER_TOKEN

    found, compared = flips(cells, want, got, PER_TOKEN)
    assert compared > 50
    assert [flip for flip in found if not flip.tie] == []

    trie = distinct_prefixes([w.tokens.ids[:-1] for w in work])
    assert sum(b.computed for b in batches) == trie
    assert trie < 0.8 * sum(b.computed for b in plain_batches)
    assert sum(b.scored for b in batches) == len(
        {w.tokens.ids[:n] for w in work for n in range(w.tokens.start, len(w.tokens.ids))}
    )
