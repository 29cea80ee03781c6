"""The cases from end to end with sides that answer at once: what is asked of whom, and what is made of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from bench.engine import count, sampling, scoring
from bench.engine.cases import CASES
from bench.engine.harness import PeerRun

from steelyard.core.types import Batch, Finish, Generate, Likelihood, Response, Tokens

RATE = 280.0  # tokens per second of the harness that is played
MACHINE = {"versions": {"lm-eval": "0.4.13"}}


class Side:
    """An engine that shares everything, or (`wasteful`) nothing. Every word is a token."""

    def __init__(self, *, wasteful: bool = False, score: float = -1.0) -> None:
        self.wasteful, self.score, self.words, self.asked = wasteful, score, {}, []
        self.checkpoint = type("Checkpoint", (), {"folder": None})

    def encode(self, request):
        if isinstance(request, Likelihood):
            before = self._ids(request.context)
            return Tokens((*before, *self._ids(request.continuation)), len(before))
        ids = self._ids(request.prompt)
        return Tokens(ids, len(ids))

    def chat_prompt(self, text, system=None):
        return text

    def run(self, work, done=frozenset(), *, batch_size):
        self.asked.append([one.request_id for one in work])
        rows = [one.tokens for one in work]
        if isinstance(work[0].request, Generate):
            new = [work[0].request.sampling.max_tokens] * len(work)
            prompts = [row.ids for row in rows]
            computed, read = count.least_sampling(prompts, new), count.positions_sampling(prompts, new)
            answers = [self._drawn(one) for one in work]
        else:
            computed = count.whole(rows) if self.wasteful else count.least(rows)
            read = count.positions(rows)
            answers = [Response(request_id=one.request_id, logprob=self.score, n_tokens=1) for one in work]
        yield Batch(responses=tuple(answers), computed=computed, scored=read, steps=1)

    def close(self):
        pass

    def _ids(self, text):
        return tuple(self.words.setdefault(word, len(self.words)) for word in text.split())

    def _drawn(self, one):
        n = one.request.sampling.max_tokens
        return Response(request_id=one.request_id, text="x", n_tokens=n, finish=Finish.LENGTH)


class Harness:
    """Plays lm-eval, at `RATE` for one row and slower for more."""

    def __init__(self, _folder) -> None:
        self.net, self.asked = None, []

    def score(self, work, batch_size, tokens):
        self.asked.append(list(work))
        slower = 1 + batch_size / 100
        return PeerRun(len(work), tokens / RATE * slower, tokens, (-1.0,) * len(work))

    def prompt_seconds(self, prompts):
        return 1.0

    def step_seconds(self, prompt, rows):
        return 0.1

    def harness_draws(self, work, batch_size):
        self.asked.append(list(work))
        return PeerRun(len(work), float(len(work)), 64 * len(work))

    def library_draws(self, work, repeats, rows, calls=None):
        return PeerRun(8, 8.0, 512)


class Prefill:
    def __init__(self, _net) -> None:
        pass

    def rate(self):
        return 300.0


@pytest.fixture
def played(data, monkeypatch):
    """Runs a case with played sides; gives its result as read from its file, our side and the harness."""

    def play(case, *, quick=False, **kind):
        module = scoring if case.name.startswith(("gsm8k", "wordings")) else sampling
        side, harness = Side(**kind), Harness(None)
        monkeypatch.setenv("STEELYARD_DATA", str(data))
        monkeypatch.setattr(
            module, "open_engine", lambda engine="shared": side if engine == "shared" else Side()
        )
        monkeypatch.setattr(module, "Peers", lambda _folder: harness)
        monkeypatch.setattr(module, "Prefill", Prefill)
        monkeypatch.setattr(module, "described", lambda: MACHINE)
        result = module.run_case(case, quick=quick)
        return json.loads(json.dumps(result.to_json())), side, harness

    return play


def goal(result, name):
    return next(g for g in result["goals"] if g["name"].startswith(name))


def test_a_long_case_is_run_whole_three_times_beside_a_hundred_sampled_requests(played):
    result, side, harness = played(CASES["gsm8k_fixed5"])
    whole = side.asked[-3:]
    assert all(len(asked) == 192 for asked in whole)
    sampled = [one.request_id for asked in harness.asked[-3:] for one in asked]
    assert 100 <= len(sampled) == len(set(sampled)) < 104
    assert set(sampled) <= set(whole[0])
    assert "a seeded random sample of 100 of 192 requests" in result["notes"][1]
    assert result["against"].endswith("batch size 1")
    assert goal(result, "tokens computed")["value"] == 1.0
    assert goal(result, "positions")["reached"] is True


def test_the_harness_is_scaled_by_tokens_to_what_we_answered(played):
    result, _, _ = played(CASES["gsm8k_fixed5"])
    for repeat in result["detail"]["repeats"]:
        alone = repeat["peer"]["tokens_whole"] / RATE * 1.01
        assert repeat["ratio"] == pytest.approx(alone / repeat["ours"]["seconds"])


@pytest.mark.parametrize("case", ["gsm8k_per_item5", "wordings100"])
def test_a_split_case_is_answered_once_over_its_repeats(played, case):
    small = replace(
        CASES[case], items=30 if case.startswith("gsm8k") else 6, wordings=5 * (case == "wordings100")
    )
    result, side, harness = played(small)
    repeats = len(result["detail"]["repeats"])
    parts = side.asked[-repeats:]
    answered = [i for part in parts for i in part]
    assert len(answered) == len(set(answered)) == (120 if case.startswith("gsm8k") else 5 * 6 * 4)
    assert {one.request_id for asked in harness.asked[-repeats:] for one in asked} <= set(answered)
    assert "answer the whole case" in result["notes"][-1]
    assert goal(result, "tokens computed")["value"] == pytest.approx(1.0, abs=0.01)


def test_a_short_case_is_repeated_five_times_and_nothing_is_sampled(played):
    result, side, harness = played(replace(CASES["gsm8k_answer_0shot"], items=6))
    assert len(result["detail"]["repeats"]) == 5
    assert all(len(asked) == 24 for asked in (*side.asked[-5:], *harness.asked[-5:]))
    # fewer than 2,000 tokens: the share of prefill is shown and not judged
    assert goal(result, "share")["reached"] is None


def test_work_that_is_not_shared_is_a_miss(played):
    result, _, _ = played(replace(CASES["gsm8k_fixed5"], items=4), wasteful=True)
    assert goal(result, "tokens computed")["reached"] is False


def test_sides_that_answer_differently_are_not_compared(played):
    with pytest.raises(RuntimeError, match="differ by up to 1 nats"):
        played(replace(CASES["gsm8k_fixed5"], items=4), score=-2.0)


def test_a_sampling_case_counts_every_draw_and_samples_whole_batches(played):
    result, side, harness = played(CASES["sample50_5shot"])
    size = int(result["against"].split()[-1])
    assert len(side.asked[-1]) == 200
    asked = [len(one) for one in harness.asked[-3:]]
    assert all(n % size == 0 for n in asked)
    assert len({one.request_id for part in harness.asked[-3:] for one in part}) == sum(asked) >= 100
    assert goal(result, "tokens computed")["value"] == 1.0
    assert goal(result, "positions")["reached"] is True


def test_few_draws_are_made_whole_by_both_sides(played):
    result, side, harness = played(CASES["sample8_chat"])
    assert len(result["detail"]["repeats"]) == 3
    assert all(len(one) == 64 for one in (*side.asked[-3:], *harness.asked[-3:]))


@pytest.mark.parametrize("case", ["gsm8k_per_item5", "wordings100", "sample50_5shot"])
def test_the_tiny_version_says_what_it_is(played, case):
    result, _, _ = played(CASES[case], quick=True)
    assert result["quick"] is True
    assert len(result["detail"]["repeats"]) == 1
