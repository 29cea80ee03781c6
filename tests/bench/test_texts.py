from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from bench.engine import texts
from bench.engine.wordings import OPENINGS, wordings

from steelyard.core.types import Generate, Likelihood, Tokens


@dataclass
class Letters:
    """Every character is a token; enough of a backend to make requests."""

    seen: list[object] = field(default_factory=list)

    def encode(self, request):
        if isinstance(request, Likelihood):
            ids = tuple(map(ord, request.context + request.continuation))
            return Tokens(ids, len(request.context))
        return Tokens(tuple(map(ord, request.prompt)), len(request.prompt))

    def chat_prompt(self, text, system=None):
        return f"<{text}>"


@pytest.fixture
def gsm8k(data, monkeypatch):
    monkeypatch.setenv("STEELYARD_DATA", str(data))
    return texts.Gsm8k(Letters())


def test_the_first_words_are_a_hundred_different_ones():
    assert len(OPENINGS) >= 100
    assert len(set(OPENINGS)) == len(OPENINGS)
    assert len({w.description.split()[0] for w in wordings(100)}) == 100


@pytest.mark.model
def test_a_hundred_wordings_begin_with_a_hundred_different_tokens():
    from steelyard.engine.transformers.backend import open_transformers

    backend = open_transformers("smollm2")
    firsts = {backend.encode(Likelihood(w.description, " x")).ids[0] for w in wordings(100)}
    assert len(firsts) == 100


def test_options_of_an_item_share_their_context_and_one_of_them_is_right(gsm8k):
    items = gsm8k.items(3)
    for item, problem in zip(items, gsm8k.choices(items, shots="first", target="worked"), strict=True):
        assert len({one.request.context for one in problem}) == 1
        assert len({one.request.continuation for one in problem}) == 4
        assert f" {item.gold.full}" in {one.request.continuation for one in problem}
        assert all(shot.question in problem[0].request.context for shot in gsm8k.first_shots())


def test_answers_alone_are_scored_after_shots_with_whole_solutions(gsm8k):
    items = gsm8k.items(2)
    worked = gsm8k.choices(items, shots="first", target="worked")
    answer = gsm8k.choices(items, shots="first", target="answer")
    assert [p[0].request.context for p in worked] == [p[0].request.context for p in answer]
    assert {f" {items[0].gold.answer}"} < {one.request.continuation for one in answer[0]}


def test_mean_shots_are_nearest_to_the_mean_and_in_source_order(gsm8k):
    chosen = gsm8k.mean_shots()
    shots = gsm8k.loaded.shots
    lengths = [gsm8k._length(item) for item in shots]
    mean = sum(lengths) / len(lengths)
    distance = {item.item_id: abs(n - mean) for item, n in zip(shots, lengths, strict=True)}
    taken = {item.item_id for item in chosen}
    assert max(distance[i] for i in taken) <= min(d for i, d in distance.items() if i not in taken)
    assert [item.item_id for item in chosen] == sorted(taken)


def test_drawn_shots_differ_between_items(gsm8k):
    items = gsm8k.items(4)
    assert len({tuple(s.item_id for s in gsm8k.drawn_shots(item)) for item in items}) == 4


def test_wordings_share_no_prefix(gsm8k):
    parts = gsm8k.worded(gsm8k.items(2), 3)  # of these letters three begin alike or not: A, C, F
    assert len(parts) == 3
    assert len({part[0][0].tokens.ids[0] for part in parts}) == 3


def test_draws_of_an_item_differ_in_their_seed_alone(gsm8k):
    (problem,) = gsm8k.draws(gsm8k.items(1), shots="none", chat=True, repeats=3, max_tokens=8)
    assert all(isinstance(one.request, Generate) for one in problem)
    assert len({one.request.prompt for one in problem}) == 1
    assert len({one.request.seed for one in problem}) == 3
    assert problem[0].request.sampling.stop == ()


def test_without_data_the_bench_says_so(monkeypatch, tmp_path):
    from bench.engine.data import data_folder

    from steelyard.core.errors import MissingError

    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path / "none"))
    with pytest.raises(MissingError, match="STEELYARD_DATA"):
        data_folder()
