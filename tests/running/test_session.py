"""A study from description to judged cells: resume, sharing, errors, re-scoring."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from steelyard.core.errors import InputError
from steelyard.core.types import Batch, Finish, Response
from steelyard.engine.simulated import open_simulated
from steelyard.plan.study import load_study
from steelyard.running import progress, session
from steelyard.running.session import judge, run
from steelyard.running.summary import summarise
from steelyard.store.reader import open_read

STUDY = {"model": "simulated", "tasks": "simulated", "forms": "nlg,mc,mc_rnd,ll", "limit": 12, "repeats": 3}


def study(store, **keys):
    return load_study(None, {**STUDY, "store": store, **keys})


def table(store) -> list[tuple]:
    """Every cell and every answer behind it; timings and batch ids excepted."""
    with open_read(store) as opened:
        cells = opened.cells().to_pylist()
        answers = opened.responses()
    kept = [tuple(sorted((k, v) for k, v in c.items())) for c in cells]
    facts = [(i, r.text, r.logprob, r.greedy, r.n_tokens, r.finish) for i, r in sorted(answers.items())]
    return [*kept, *facts]


def test_a_second_identical_run_does_no_model_work(tmp_path):
    first = run(study(tmp_path / "s"))
    assert first.models[0].asked == first.models[0].planned > 0
    before = table(tmp_path / "s")
    second = run(study(tmp_path / "s"))
    assert second.models[0].found == second.models[0].planned
    assert second.models[0].asked == second.models[0].computed == 0
    assert table(tmp_path / "s") == before


def test_raising_the_limit_asks_only_what_is_new(tmp_path):
    small = run(study(tmp_path / "s", limit=5)).models[0]
    large = run(study(tmp_path / "s", limit=12)).models[0]
    assert large.found == small.planned
    run(study(tmp_path / "fresh", limit=12))
    assert table(tmp_path / "s") == table(tmp_path / "fresh")


def test_a_run_stopped_between_batches_goes_on_to_the_same_table(tmp_path):
    calls = iter(range(10**6))
    stopped = run(study(tmp_path / "s", batch_size=4), cancelled=lambda: next(calls) > 6)
    assert stopped.interrupted
    done = run(study(tmp_path / "s", batch_size=4))
    assert done.models[0].found > 0
    run(study(tmp_path / "whole", batch_size=4))
    assert table(tmp_path / "s") == table(tmp_path / "whole")


def test_batch_size_and_order_change_no_cell(tmp_path):
    run(study(tmp_path / "a", batch_size=1))
    run(study(tmp_path / "b", batch_size=64))
    assert table(tmp_path / "a") == table(tmp_path / "b")


def test_two_models_in_one_store_do_not_mix(tmp_path):
    strong, weak = "simulated:ability=3", "simulated:ability=-3"
    run(study(tmp_path / "s", model=f"{strong},{weak}", limit=60))
    scores = {(r.model, r.form): r.value for r in summarise(tmp_path / "s").scores if r.primary}
    strong, weak = (open_simulated(name).identity.model for name in (strong, weak))
    assert scores[strong, "mc"] > scores[weak, "mc"] + 0.3
    run(study(tmp_path / "alone", model="simulated:ability=-3", limit=60))
    alone = {(r.model, r.form): r.value for r in summarise(tmp_path / "alone").scores if r.primary}
    assert all(scores[key] == alone[key] for key in alone)


def test_judging_again_needs_no_model_and_changes_nothing(tmp_path, monkeypatch):
    run(study(tmp_path / "s"))
    before = table(tmp_path / "s")
    monkeypatch.setattr(session, "open_model", lambda *_: pytest.fail("a model was opened"))
    judged = judge(tmp_path / "s")
    assert judged.changed == 0
    assert judged.scores > 0
    assert table(tmp_path / "s") == before


class Failing:
    """Answers every request but those of its choice, which fail."""

    def __init__(self, bad: int):
        self._inner = open_simulated("simulated")
        self.identity, self.capabilities = self._inner.identity, self._inner.capabilities
        self.encode, self.chat_prompt, self.close = (
            self._inner.encode,
            self._inner.chat_prompt,
            self._inner.close,
        )
        self.bad = bad

    def run(self, work, done=frozenset(), *, batch_size, cancelled=lambda: False):
        for batch in self._inner.run(work, done, batch_size=batch_size, cancelled=cancelled):
            yield Batch(responses=tuple(self._broken(r) for r in batch.responses))

    def _broken(self, response):
        if self.bad <= 0:
            return response
        self.bad -= 1
        return Response(request_id=response.request_id, finish=Finish.ERROR, error="the server died")


def test_failed_requests_are_reported_as_missing_and_asked_again(tmp_path, monkeypatch):
    backend = Failing(7)
    monkeypatch.setattr(session, "open_model", lambda *_: backend)
    outcome = run(study(tmp_path / "s", forms="nlg", repeats=1))
    assert outcome.models[0].failed == 7
    row = next(r for r in summarise(tmp_path / "s").scores if r.primary)
    assert row.status_counts["error"] == 7
    assert row.n_items == 5  # missing is missing, not wrong
    assert any("the server died" in d for d in row.diagnostics)
    again = run(study(tmp_path / "s", forms="nlg", repeats=1))
    assert (again.models[0].found, again.models[0].asked, again.models[0].failed) == (5, 7, 0)
    monkeypatch.undo()
    run(study(tmp_path / "clean", forms="nlg", repeats=1))
    assert table(tmp_path / "s") == table(tmp_path / "clean")


def own_benchmark(folder, answers):
    rows = [{"q": f"Which word is number {n}?", "a": a, "id": f"x{n}"} for n, a in enumerate(answers)]
    (folder / "own.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "own.toml").write_text(
        'name = "own"\nfile = "own.jsonl"\nanswer_type = "text"\ncapability = "factual knowledge"\n'
        '[fields]\nquestion = "q"\nreference = "a"\nid = "id"\n'
        '[templates.plain]\nquestion = "Q: {{ question }}\\nA:"\nstop = ["\\n"]\nmax_tokens = 8\n'
    )
    return str(folder / "own.toml")


def test_a_benchmark_of_ones_own_runs_and_changed_content_is_reported(tmp_path):
    path = own_benchmark(tmp_path, ["ab", "cd", "ef", "gh"])
    keys = {"tasks": path, "forms": "nlg,mc_rnd,ll", "limit": None, "shots": 0}
    run(study(tmp_path / "s", **keys))
    own_benchmark(tmp_path, ["ab", "cd", "ef", "gh", "ij"])
    grown = run(study(tmp_path / "s", **keys))
    assert any("content" in note for note in grown.models[0].notes)
    assert any("content" in note for note in summarise(tmp_path / "s").notes)
    own_benchmark(tmp_path, ["ab", "changed", "ef", "gh", "ij"])
    with pytest.raises(InputError, match="x1"):
        run(study(tmp_path / "s", **keys))


KILLED = """
import sys
from steelyard.plan.study import load_study
from steelyard.running.session import run
run(load_study(None, {study!r} | {{"store": sys.argv[1]}}))
"""


def test_killing_a_run_at_random_instants_loses_nothing_but_the_batch_in_flight(tmp_path):
    """50 kills (STEELYARD_KILLS) of a real process, then the table of an uninterrupted run, row for row."""
    keys = {**STUDY, "limit": 40, "batch_size": 2}
    script = tmp_path / "study.py"
    script.write_text(KILLED.format(study=keys))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    began = time.monotonic()
    subprocess.run([sys.executable, script, whole], check=True)
    usual = time.monotonic() - began
    dice = random.Random(0)
    kills, answered = 0, 0
    for attempt in range(int(os.environ.get("STEELYARD_KILLS", "50"))):
        process = subprocess.Popen([sys.executable, script, killed], stderr=subprocess.PIPE)
        try:
            # mostly within the work, sometimes during start-up or at the very end
            process.wait(timeout=dice.uniform(0.3, 1.05) * usual)
            usual *= 0.8  # the machine is less busy than it was
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        errors = process.communicate()[1].decode()
        assert process.returncode in {0, -signal.SIGKILL}, errors
        if (killed / "steelyard.json").exists():
            with open_read(killed) as store:
                now = len(store.answered())
            assert now >= answered
            answered = now
        if process.returncode == 0:
            # finished: begin a new one, so that every kill falls into work
            assert table(killed) == table(whole)
            killed, answered = tmp_path / f"killed{attempt}", 0
    subprocess.run([sys.executable, script, killed], check=True)
    assert kills >= 10
    assert table(killed) == table(whole)


def test_a_run_stopped_between_two_models_says_that_it_was_stopped(tmp_path):
    asked = []

    class Listener(progress.Silent):
        def stop(self):
            asked.append("a model is done")

    models = "simulated:ability=1,simulated:ability=2"
    stopped = run(study(tmp_path / "s", model=models), progress=Listener(), cancelled=lambda: bool(asked))
    assert len(stopped.models) == 1
    assert stopped.models[0].left == 0
    assert stopped.interrupted
    assert not run(study(tmp_path / "s", model=models)).interrupted


def test_answers_that_nobody_judged_are_not_called_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "judge", lambda _: None)  # as if killed before
    run(study(tmp_path / "s", forms="nlg", repeats=1))
    notes = " / ".join(summarise(tmp_path / "s").notes)
    assert "12 cells are answered and not judged yet" in notes
    assert "steelyard score" in notes
    assert "have no answer" not in notes
    monkeypatch.undo()
    judge(tmp_path / "s")
    assert "not judged" not in " / ".join(summarise(tmp_path / "s").notes)


def test_half_of_the_answers_waits_and_half_is_only_not_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "judge", lambda _: None)
    calls = iter(range(10**6))
    run(study(tmp_path / "s", forms="nlg", repeats=1, batch_size=3), cancelled=lambda: next(calls) >= 2)
    notes = " / ".join(summarise(tmp_path / "s").notes)
    assert "6 cells are answered and not judged yet" in notes
    assert "6 cells have no answer yet" in notes


def test_a_smaller_limit_later_does_not_make_the_report_forget_the_larger_one(tmp_path):
    run(study(tmp_path / "s", limit=5))
    run(study(tmp_path / "s", limit=3))
    (note,) = [n for n in summarise(tmp_path / "s").notes if n.startswith("simulated:")]
    assert note.startswith("simulated: 5 of 200 items over several runs")
    run(study(tmp_path / "s", limit=6))
    (note,) = [n for n in summarise(tmp_path / "s").notes if n.startswith("simulated:")]
    assert note == "simulated: seeded random 6 of 200 (seed 0, nested)"
