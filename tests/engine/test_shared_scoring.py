"""Scoring with shared prefixes: the numbers of the plain way, for the work of a trie, whatever goes wrong meanwhile."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.core.errors import BackendError
from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.types import Finish, Generate, Likelihood, Sampling, Tokens, Work
from steelyard.engine.transformers import shared, together
from steelyard.engine.transformers.backend import open_transformers
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.reference import score
from steelyard.engine.transformers.shared import SharedScorer
from steelyard.plan.study import load_study
from steelyard.running.session import run
from steelyard.store.reader import open_read

LENGTH = 96  # of the tiny model's context


@pytest.fixture(scope="module")
def backend(tiny):
    opened = open_transformers(str(tiny), token_logprobs=True)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def plain(tiny):
    opened = open_transformers(str(tiny), token_logprobs=True, engine="plain")
    yield opened
    opened.close()


@st.composite
def texts(draw) -> list[Tokens]:
    """Requests that branch early and late, are parts of each other, or are the same with another start."""
    few = st.integers(5, 7)  # token ids: a small alphabet makes a bushy trie
    stem = draw(st.lists(st.integers(0, 400), max_size=40))
    tails = draw(st.lists(st.lists(few, min_size=2, max_size=8), min_size=1, max_size=10))
    made = []
    for tail in tails:
        ids = tuple(stem + tail)[-LENGTH:]
        made.append(Tokens(ids, draw(st.integers(1, len(ids) - 1))))
    return made


def values(results) -> np.ndarray:
    return np.array([v for one in results for v in one.token_logprobs])


def finished(batch, budget, model, done=frozenset()) -> tuple[dict, list]:
    """What a run gives, and its steps."""
    steps = list(SharedScorer(batch, budget).run(model, done))
    found: dict = {}
    for step in steps:
        assert not found.keys() & step.results.keys()
        found |= step.results
    return found, steps


def reads(batch) -> int:
    """Distinct places that are read."""
    return len({t.ids[:n] for t in batch for n in range(t.start, len(t.ids))})


# ------------------------------------------------------------------------------------------------ same answers
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts(), st.integers(1, 60))
def test_every_token_has_the_log_probability_of_the_plain_way_whatever_the_budget(backend, batch, budget):
    want, _ = score(backend.model, batch)
    found, steps = finished(batch, budget, backend.model)
    assert sorted(found) == list(range(len(batch)))
    got = [found[i] for i in range(len(batch))]
    for one, other, tokens in zip(got, want, batch, strict=True):
        assert len(one.token_logprobs) == len(tokens.ids) - tokens.start
        assert one.greedy == other.greedy
    assert np.abs(values(got) - values(want)).max() < 1e-5
    # and the work is that of the trie, to the token
    trie = distinct_prefixes([t.ids[:-1] for t in batch])
    assert sum(s.passes.computed for s in steps) == sum(s.nodes for s in steps) == trie
    assert sum(s.passes.scored for s in steps) == reads(batch)
    assert sum(s.passes.steps for s in steps) == len(steps)


def test_float64_agrees(backend):
    dice = np.random.default_rng(0)
    stem = dice.integers(0, backend.model.vocabulary, 60).tolist()
    batch = [Tokens((*stem[:cut], *dice.integers(0, 400, 30).tolist()), cut) for cut in (20, 40, 60, 60, 60)]
    found, _ = finished(batch, 32, backend.model)
    exact = copy.deepcopy(backend.model.load()).double()
    for i, tokens in enumerate(batch):
        with torch.inference_mode():
            logprobs = exact(torch.tensor([tokens.ids])).logits[0].log_softmax(-1)
        want = [logprobs[n - 1, tokens.ids[n]].item() for n in range(tokens.start, len(tokens.ids))]
        assert np.abs(np.array(found[i].token_logprobs) - want).max() < 1e-5


def test_texts_that_are_greedy_all_along_are_known_beside_others_that_begin_like_them(backend):
    net = backend.model.load()
    ids = [5, 6, 7]
    with torch.inference_mode():
        for _ in range(4):
            ids.append(int(net(torch.tensor([ids])).logits[0, -1].argmax()))
    other = (ids[-1] + 1) % backend.model.vocabulary
    batch = [
        Tokens(tuple(ids), 3),
        Tokens((*ids[:-1], other), 3),
        Tokens((*ids, other), 3),
        Tokens(tuple(ids[:4]), 3),
    ]
    found, _ = finished(batch, 4, backend.model)
    assert [found[i].greedy for i in range(4)] == [True, False, False, True]


def likelihoods(batch) -> list[Work]:
    return [Work(f"{n:03d}", Likelihood("context", "text"), tokens) for n, tokens in enumerate(batch)]


def many(seed: int, count: int = 40) -> list[Tokens]:
    """Requests with two common stems, of all lengths up to the context."""
    dice = random.Random(seed)
    stems = [[dice.randrange(400) for _ in range(45)] for _ in range(2)]
    made = []
    for _ in range(count):
        stem = dice.choice(stems)[: dice.choice([10, 30, 45])]
        ids = (stem + [dice.randrange(8) for _ in range(dice.choice([2, 3, 9, LENGTH]))])[:LENGTH]
        made.append(Tokens(tuple(ids), dice.randrange(1, len(ids))))
    return made


def answered(backend, work, **keywords) -> dict:
    """Responses by id, each once."""
    found: dict = {}
    for batch in backend.run(work, batch_size=None, **keywords):
        for response in batch.responses:
            assert response.request_id not in found
            found[response.request_id] = response
    return found


def test_through_the_backend_answers_are_complete_and_those_of_the_plain_engine(backend, plain, monkeypatch):
    monkeypatch.setattr(together, "budget", lambda _: 64)
    batch = many(1)
    work = likelihoods(batch)
    got, want = answered(backend, work), answered(plain, work)
    assert got.keys() == want.keys() == {w.request_id for w in work}
    for one in work:
        a, b = got[one.request_id], want[one.request_id]
        assert (a.finish, a.greedy, a.n_tokens, a.n_bytes) == (b.finish, b.greedy, b.n_tokens, b.n_bytes)
        assert len(a.token_logprobs) == len(one.tokens.ids) - one.tokens.start
        assert np.abs(np.subtract(a.token_logprobs, b.token_logprobs)).max() < 1e-5
        assert a.logprob == pytest.approx(sum(a.token_logprobs), abs=1e-9)
    batches = list(backend.run(work, batch_size=None))
    assert sum(b.computed for b in batches) == distinct_prefixes([t.ids[:-1] for t in batch])
    assert sum(b.trie for b in batches) == sum(b.computed for b in batches)
    assert sum(b.scored for b in batches) == reads(batch)
    assert sum(b.asked for b in batches) == sum(len(t.ids) for t in batch)
    assert len(batches) > 5


def test_the_same_tokens_scored_from_another_place_are_another_question(backend):
    ids = tuple(range(20, 40))
    batch = [Tokens(ids, start) for start in (1, 7, 19)]
    got = answered(backend, likelihoods(batch))
    whole = got["000"].token_logprobs
    assert [got[w.request_id].n_tokens for w in likelihoods(batch)] == [19, 13, 1]
    assert got["001"].token_logprobs == whole[6:]
    assert got["002"].token_logprobs == whole[18:]


# ------------------------------------------------------------------------------- order, resume, kills: same bits
def bits(responses) -> dict:
    return {r.request_id: (r.token_logprobs, r.greedy, r.logprob) for r in responses.values()}


def test_the_order_of_the_work_and_the_batch_size_change_no_bit(backend, monkeypatch):
    monkeypatch.setattr(together, "budget", lambda _: 64)
    work = likelihoods(many(2))
    first = bits(answered(backend, work))
    shuffled = work[:]
    random.Random(3).shuffle(shuffled)
    assert bits(answered(backend, shuffled)) == first
    assert {r.request_id for b in backend.run(work, batch_size=1) for r in b.responses} == first.keys()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts(), st.integers(1, 40), st.data())
def test_a_resumed_run_gives_the_very_bits_of_an_uninterrupted_one(backend, batch, budget, data):
    done = data.draw(st.sets(st.integers(0, len(batch) - 1)))
    whole, all_steps = finished(batch, budget, backend.model)
    rest, steps = finished(batch, budget, backend.model, done)
    assert rest == {i: r for i, r in whole.items() if i not in done}
    # packs that nobody waits for, and that hold nothing for those, are not computed again
    assert len(steps) <= len(all_steps)
    if len(done) == len(batch):
        assert steps == []


def test_what_is_left_is_not_dearer_than_it_must_be(backend):
    """Two texts with nothing in common: the one that is done is not computed again."""
    a, b = Tokens(tuple(range(40)), 30), Tokens(tuple(range(100, 140)), 30)
    _, steps = finished([a, b], 39, backend.model, {1})
    assert sum(s.passes.computed for s in steps) == 39


class Killed(BaseException):
    """Nothing in the program may catch it."""


def table(store) -> list:
    with open_read(store) as opened:
        cells = [tuple(sorted(c.items())) for c in opened.cells().to_pylist()]
        responses = opened.responses()
    facts = [(i, r.logprob, r.greedy, r.n_tokens, r.n_bytes, r.finish) for i, r in sorted(responses.items())]
    return [*cells, *facts]


def test_killing_a_study_in_the_middle_of_packs_gives_the_table_of_an_uninterrupted_run(
    new_model, tmp_path, monkeypatch
):
    monkeypatch.setattr(together, "budget", lambda _: 64)
    keys = {
        "model": str(new_model(tmp_path / "model", max_position_embeddings=1024)),
        "tasks": "mini_facts,mini_math",
        "forms": "mc,ll",
        "limit": 6,
        "shots": 0,
    }
    forward, left = LanguageModel.pack_logits, [0]

    def dying(*args):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return forward(*args)

    monkeypatch.setattr(LanguageModel, "pack_logits", dying)
    run(load_study(None, {**keys, "store": tmp_path / "whole"}))
    passes, stored = -left[0], [0]
    for share in (4, 2):
        left[0] = passes // share
        with pytest.raises(Killed):
            run(load_study(None, {**keys, "store": tmp_path / "killed"}))
        with open_read(tmp_path / "killed") as store:
            stored.append(len(store.answered()))
    left[0] = 0
    assert stored == sorted(set(stored))  # each got on by some
    last = run(load_study(None, {**keys, "store": tmp_path / "killed"}))
    assert last.models[0].found == stored[-1] < last.models[0].planned
    assert table(tmp_path / "killed") == table(tmp_path / "whole")


def test_a_run_that_is_cancelled_ends_between_packs(backend, monkeypatch):
    monkeypatch.setattr(together, "budget", lambda _: 32)
    work = likelihoods(many(4))
    passes = []
    forward = LanguageModel.pack_logits
    monkeypatch.setattr(LanguageModel, "pack_logits", lambda *args: passes.append(1) or forward(*args))
    batches = list(backend.run(work, batch_size=None, cancelled=lambda: len(passes) >= 5))
    assert len(passes) == 5
    some = {r.request_id: r for b in batches for r in b.responses}
    assert 0 < len(some) < len(work)
    rest = answered(backend, work, done=some.keys())
    assert rest.keys() == {w.request_id for w in work} - some.keys()
    assert bits(some) | bits(rest) == bits(answered(backend, work))


# --------------------------------------------------------------------------------------------------- failures
class Memory:
    """A machine on which a forward pass of more than so many tokens fails, before or after its layers."""

    def __init__(self, tokens: int, *, late: bool, error: Exception) -> None:
        self.tokens, self.late, self.error = tokens, late, error
        self.failures = 0
        self._forward = LanguageModel.pack_logits

    def __call__(self, model, ids, positions, columns, how):
        small = len(ids) <= self.tokens
        if small or self.late:
            logits = self._forward(model, ids, positions, columns, how)
        if not small:
            self.failures += 1
            raise self.error
        return logits

    def install(self, patch) -> None:
        patch.setattr(LanguageModel, "pack_logits", lambda *args: self(*args))  # noqa: PLW0108  a method


SAYS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("tokens", [1, 7, 50])
@pytest.mark.parametrize("error", SAYS, ids=lambda e: type(e).__name__)
def test_packs_that_do_not_fit_are_halved_and_nothing_is_lost_or_done_twice(
    backend, monkeypatch, error, tokens, late
):
    freed = []
    monkeypatch.setattr(shared, "free_memory", lambda: freed.append(1))  # dear: it collects garbage
    batch = many(5, 6)
    want, whole = finished(batch, 64, backend.model)
    memory = Memory(tokens, late=late, error=error)
    memory.install(monkeypatch)
    got, steps = finished(batch, 64, backend.model)
    assert memory.failures == len(freed) > 0
    assert got.keys() == want.keys()
    order = sorted(want)
    assert np.abs(values(got[i] for i in order) - values(want[i] for i in order)).max() < 1e-5
    assert [got[i].greedy for i in order] == [want[i].greedy for i in order]
    # every finished half counts once, and failed passes do not count
    assert sum(s.passes.computed for s in steps) == sum(s.passes.computed for s in whole)
    assert sum(s.passes.scored for s in steps) == sum(s.passes.scored for s in whole)
    assert max(s.passes.computed for s in steps) <= tokens


def test_a_pack_that_fails_after_its_layers_ran_leaves_held_keys_alone(backend, monkeypatch):
    """Its second half may stand in a branch whose keys the whole pack was about to replace."""
    monkeypatch.setattr(shared, "free_memory", lambda: None)
    stem = (5, 6, 7, 8, 9, 10)
    batch = [Tokens((*stem, *(b,) * 7, c, *stem[:3]), 12) for b in range(20, 24) for c in range(30, 36)]
    want, _ = score(backend.model, batch)
    for budget in range(9, 40):
        with monkeypatch.context() as patch:
            Memory(budget // 2 + 1, late=True, error=torch.OutOfMemoryError("no room")).install(patch)
            got, _ = finished(batch, budget, backend.model)
        assert np.abs(values(got[i] for i in range(len(batch))) - values(want)).max() < 1e-5


def test_memory_that_fails_once_costs_only_that_pack(backend, monkeypatch):
    batch = many(6, 16)
    _, whole = finished(batch, 64, backend.model)
    forward, calls = LanguageModel.pack_logits, []

    def once(*args):
        calls.append(1)
        if len(calls) == 3:
            raise torch.OutOfMemoryError
        return forward(*args)

    monkeypatch.setattr(LanguageModel, "pack_logits", once)
    _, steps = finished(batch, 64, backend.model)
    assert len(steps) == len(whole) + 1


def test_one_token_that_does_not_fit_is_an_error_that_says_so_and_keeps_what_is_done(backend, monkeypatch):
    Memory(0, late=False, error=torch.OutOfMemoryError("no room")).install(monkeypatch)
    with pytest.raises(BackendError, match="ran out of memory with one token: OutOfMemoryError: no room"):
        answered(backend, likelihoods(many(7, 3)))


def test_any_other_failure_is_one_of_the_model_with_its_own_words(backend, monkeypatch):
    Memory(0, late=False, error=RuntimeError("mat1 and mat2 shapes differ")).install(monkeypatch)
    with pytest.raises(BackendError, match="failed: RuntimeError: mat1 and mat2 shapes differ"):
        answered(backend, likelihoods(many(7, 3)))


@pytest.fixture(scope="module")
def poisoned(new_model, tmp_path_factory):
    """A model that overflows where it reads token 300, and has been tried before it did."""
    opened = open_transformers(str(new_model(tmp_path_factory.mktemp("poisoned") / "model")))
    answered(opened, likelihoods([Tokens((5, 6), 1)]))
    with torch.no_grad():
        opened.model.load().model.embed_tokens.weight[300] = float("nan")
    yield opened
    opened.close()


def test_a_text_whose_numbers_overflow_is_an_error_and_spoils_no_other_of_its_pack(poisoned, plain):
    batch = [Tokens((5, 6, 7, n), 2) for n in range(8, 14)]
    batch += [Tokens((5, 6, 300, 8), 3), Tokens((5, 6, 300, 8, 9), 2), Tokens((9, 10, 11), 1)]
    work = likelihoods(batch)
    got, want = answered(poisoned, work), answered(plain, work)
    spoilt = [w.request_id for w in work if 300 in w.tokens.ids]
    assert len(spoilt) == 2
    for name in got:
        if name in spoilt:
            assert got[name].finish is Finish.ERROR
            assert "not finite" in got[name].error
        else:
            assert got[name].logprob == pytest.approx(want[name].logprob, abs=1e-5)


def test_a_prompt_whose_numbers_overflow_is_an_error_and_spoils_no_other_text(poisoned, plain):
    """Neither in its pack nor in its place among the rows under way, which another text takes afterwards."""
    prompts = [(5, 6, 7), (5, 6, 300), (5, 6, 7, 8), (9, 10), (9, 300), (9, 11)]
    sampling = Sampling(10)
    work = [
        Work(f"{n}", Generate("prompt", sampling), Tokens(ids, len(ids))) for n, ids in enumerate(prompts * 3)
    ]
    work = [replace(w, request_id=f"{n:02d}") for n, w in enumerate(work)]
    got, want = answered(poisoned, work), answered(plain, work)
    for one in work:
        response = got[one.request_id]
        # the model itself may write the token
        if 300 in one.tokens.ids or response.finish is Finish.ERROR:
            assert "not finite" in response.error
        else:
            assert response.text == want[one.request_id].text
    assert sum(r.finish is not Finish.ERROR for r in got.values()) >= 9


def test_requests_that_cannot_be_run_are_answered_beside_those_that_can(backend):
    good = Tokens((5, 6, 7), 1)
    work = likelihoods([good, Tokens(tuple(range(LENGTH + 1)), 1), Tokens((5, 10**6), 1), Tokens((5,), 1)])
    got = answered(backend, work)
    assert [got[w.request_id].finish for w in work] == [Finish.SCORED, *[Finish.ERROR] * 3]
    assert "Too long: 97 tokens" in got["001"].error
