"""The selfcheck: what it samples, what it calls a tie, and that it finds an engine that computes something else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.errors import InputError, RefusedError
from steelyard.core.types import Ask, Finish, Generate, Response, Role
from steelyard.engine.simulated import SimulatedBackend, open_simulated
from steelyard.plan.build import build
from steelyard.plan.study import Study
from steelyard.running import models, session
from steelyard.running.flips import flips
from steelyard.running.progress import Silent
from steelyard.running.sample import draw_sample
from steelyard.running.selfcheck import kinds, selfcheck

STUDY = Study(model=("simulated",), tasks=("simulated",), forms=("nlg", "mc", "ll"), limit=30)


def plan_of(study):
    return build(study, open_simulated(), session.load_sources(study))


# ---------------------------------------------------------------------------------------------------- sample
def test_a_sample_has_whole_cells_of_every_form_and_texts_of_both_kinds():
    plan = plan_of(STUDY)
    sample = draw_sample(plan, 60, 0)
    assert 60 <= len(sample.work) < 75
    forms = Counter(asks[0].form_id for asks in sample.cells)
    assert len(forms) == 3
    assert max(forms.values()) - min(forms.values()) <= 1
    asked = {piece.request_id for piece in sample.work}
    whole = Counter(a.cell_id for a in plan.asks)
    for asks in sample.cells:
        assert len(asks) == whole[asks[0].cell_id]
        assert {a.request_id for a in asks} <= asked
    counts = kinds(sample)
    assert counts["sampled"] == sample.added == (counts["greedy"] + 1) // 2
    assert len(asked) == len(sample.work)


def test_a_sample_is_the_same_for_every_model_and_another_for_another_seed():
    def items(name, seed):
        study = STUDY.model_copy(update={"model": (name,)})
        plan = build(study, open_simulated(name), session.load_sources(study))
        return [(c[0].form_id, c[0].item_id) for c in draw_sample(plan, 40, seed).cells]

    assert items("simulated", 0) == items("simulated:ability=2", 0)
    assert items("simulated", 0) != items("simulated", 1)


def test_a_small_plan_is_taken_whole_and_sampled_texts_get_greedy_twins():
    study = STUDY.model_copy(update={"repeats": 3, "limit": 2, "forms": ("nlg",)})
    sample = draw_sample(plan_of(study), 1000, 0)
    assert len(sample.work) - sample.added == sample.planned == 6
    twins = [p.request for p in sample.work if isinstance(p.request, Generate) and p.request.seed is None]
    assert len(twins) == sample.added == 2  # one a prompt: greedy draws are all the same
    assert all(t.sampling.temperature == 0 for t in twins)


# ----------------------------------------------------------------------------------------------------- flips
def cell(*texts):
    return [
        Ask("c", "R", "i", "f", 0, Role.GOLD if n == 0 else Role.DISTRACTOR, n, text, "", f"r{n}")
        for n, text in enumerate(texts)
    ]


def answers(*values, tokens=2):
    return {f"r{n}": Response(request_id=f"r{n}", logprob=v, n_tokens=tokens) for n, v in enumerate(values)}


def test_a_choice_that_flips_within_the_tolerance_is_a_tie_and_beyond_it_is_none():
    close = flips([cell("ab", "cd")], answers(-1.0, -1.0001), answers(-1.0001, -1.0), 1e-4)
    assert {f.normalisation for f in close[0]} == {"none", "per_char", "per_byte", "per_token"}
    assert all(f.tie and (f.before, f.after) == (0, 1) for f in close[0])
    assert close[1] == 4
    far, _ = flips([cell("ab", "cd")], answers(-1.0, -1.1), answers(-1.1, -1.0), 1e-4)
    assert [f.tie for f in far] == [False] * 4
    assert far[0].margin > 0


def test_without_a_choice_there_is_nothing_to_flip():
    assert flips([cell("ab")], answers(-1.0), answers(-2.0), 1e-4) == ([], 0)
    assert flips([cell("ab", "cd")], answers(-1.0, -2.0), answers(-1.0), 1e-4) == ([], 0)


@given(
    st.lists(st.floats(-50, -1), min_size=2, max_size=5),
    st.lists(st.floats(-1, 1), min_size=5, max_size=5),
    st.sampled_from([1e-4, 1e-2]),
)
def test_errors_within_the_tolerance_flip_ties_only(values, errors, per_token):
    texts = ["a", "bcd", "\u00e9f", "ghijkl", "m n"][: len(values)]
    moved = [v + e * per_token * 3 for v, e in zip(values, errors, strict=False)]
    found, _ = flips([cell(*texts)], answers(*values, tokens=3), answers(*moved, tokens=3), per_token * 1.001)
    assert all(flip.tie for flip in found)


# ---------------------------------------------------------------------------------------------------- passes
class Broken(SimulatedBackend):
    """Calls itself a local model; the engine "shared" gives other answers, by a fault."""

    def __init__(self, fault, shared):
        self._inner = open_simulated()
        self.fault, self.shared = fault, shared
        self.identity_now = replace(self._inner.identity, backend="transformers", dtype="float32")

    identity = property(lambda self: self.identity_now)
    capabilities = property(lambda self: self._inner.capabilities)
    sharing = property(lambda self: "its layers keep a state." if self.shared else "")

    def encode(self, request):
        return self._inner.encode(request)

    def run(self, work, done=frozenset(), *, batch_size, cancelled=lambda: False):
        for batch in self._inner.run(work, done, batch_size=batch_size, cancelled=cancelled):
            yield replace(batch, responses=tuple(map(self.spoil, batch.responses))) if self.shared else batch

    def spoil(self, r):
        match self.fault:
            case "a little off" if r.logprob is not None:
                return replace(r, logprob=r.logprob - 1e-3 * r.n_tokens)
            case "rounding" if r.logprob is not None:
                return replace(r, logprob=r.logprob - 1e-5)
            case "texts" if r.text:
                return replace(r, text=f"{r.text}!")
            case "fails":
                return Response(request_id=r.request_id, finish=Finish.ERROR, error="no")
            case _:
                return r


@pytest.fixture
def check(monkeypatch):
    def run(fault):
        opened = []

        def open_model(name, study):
            opened.append(study.engine)
            return Broken(fault, study.engine == "shared")

        monkeypatch.setattr(session, "open_model", open_model)
        (found,) = selfcheck(STUDY, requests=40, progress=Silent())
        return found, opened

    return run


def test_the_plain_path_at_three_sizes_is_compared_with_the_shared_one_at_two(check):
    found, opened = check("none")
    assert found.ok
    assert opened == ["plain", "shared"]
    assert [(p.engine, p.batch_size) for p in found.passes] == [
        ("plain", 1),
        ("plain", 8),
        ("plain", 32),
        ("shared", None),
        ("shared", 8),
    ]
    assert found.passes[0].difference is None
    assert all(p.difference.per_token == 0 for p in found.passes[1:])
    assert all(p.choices > 0 for p in found.passes[1:])
    assert found.sharing == "its layers keep a state."
    assert found.tolerance.per_token == 1e-4


@pytest.mark.parametrize(
    ("fault", "says"),
    [("a little off", "nats per token"), ("texts", "greedy texts differ"), ("fails", "requests failed")],
)
def test_a_faulty_engine_is_found_where_it_is_faulty(check, fault, says):
    found, _ = check(fault)
    assert not found.ok
    by_engine = {p.engine: " ".join(p.beyond) for p in found.passes}
    assert says in by_engine["shared"]
    assert not by_engine["plain"]


def test_rounding_is_measured_and_not_held_against_the_engine(check):
    found, _ = check("rounding")
    assert found.ok
    assert 0 < found.passes[-1].difference.per_token <= 1e-5
    assert found.passes[-1].difference.total == pytest.approx(1e-5)


def test_nothing_is_stored_and_a_server_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    selfcheck(STUDY, requests=10, progress=Silent())
    assert not list(tmp_path.iterdir())
    served = STUDY.model_copy(update={"model": ("server:http://127.0.0.1:9/v1#m",)})
    monkeypatch.setattr(models, "open_model", lambda *_: pytest.fail("a server was asked"))
    with pytest.raises(RefusedError, match="cuts its batches itself"):
        selfcheck(served, requests=10, progress=Silent())


def test_a_study_of_which_nothing_fits_is_an_error_and_not_a_pass():
    study = STUDY.model_copy(update={"model": ("simulated:max_length=4",)})
    with pytest.raises(InputError, match="none of the 90 cells fits"):
        selfcheck(study, requests=10, progress=Silent())


def test_a_local_model_passes_its_own_check(tiny):
    study = Study(
        model=(str(tiny),), tasks=("mini_facts",), forms=("nlg", "mc_rnd"), limit=6, shots=0, max_tokens=8
    )
    (found,) = selfcheck(study, requests=20, progress=Silent())
    assert found.ok, [p.beyond for p in found.passes]
    assert kinds(found.sample)["greedy"] > 0
    assert kinds(found.sample)["sampled"] > 0
    assert found.passes[3].difference.likelihoods > 0
