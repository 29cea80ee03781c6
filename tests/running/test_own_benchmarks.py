"""A benchmark of one's own from its file to the report; its description may be corrected after the run."""

from __future__ import annotations

import json

import pytest

from steelyard.core.errors import InputError
from steelyard.plan.study import load_study
from steelyard.running.session import run
from steelyard.running.summary import summarise

ROWS = [
    {"question": f"Capital of land {n}?", "answer": f"City {n}", "continent": f"c{n % 3}"} for n in range(12)
]


@pytest.fixture
def benchmark(tmp_path):
    def write(**keys):
        (tmp_path / "capitals.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS))
        fields = keys.pop("fields", {})
        lines = [f"{k} = {json.dumps(v)}" for k, v in {"file": "capitals.jsonl", **keys}.items()]
        lines += ["[fields]", *(f"{k} = {json.dumps(v)}" for k, v in fields.items())]
        (tmp_path / "capitals.toml").write_text("\n".join(lines) + "\n")
        return load_study(
            None,
            {
                "model": "simulated",
                "tasks": (str(tmp_path / "capitals.toml"),),
                "forms": "nlg,ll",
                "store": tmp_path / "store",
            },
        )

    return write


def metrics(study):
    return [row.metric for row in summarise(study.store).scores if row.form == "nlg"]


def test_a_scorer_added_later_judges_the_stored_answers(benchmark):
    study = benchmark()
    run(study)
    assert metrics(study) == ["exact_match"]
    again = run(benchmark(scorers=["f1", "chrf", "exact_match"])).models[0]
    assert (again.asked, again.found) == (0, again.planned)
    assert sorted(metrics(study)) == ["chrf", "exact_match", "f1"]
    assert metrics(study)[0] == "f1"  # the primary one is the first now


def test_groups_added_later_cluster_the_stored_answers(benchmark):
    study = benchmark()
    run(study)
    alone = {row.metric: row for row in summarise(study.store).scores}
    again = run(benchmark(fields={"group": "continent"})).models[0]
    assert again.asked == 0
    grouped = {row.metric: row for row in summarise(study.store).scores}
    assert grouped["loglik"].value == alone["loglik"].value
    assert grouped["loglik"].se != alone["loglik"].se
    assert any("3 groups" in d for d in grouped["loglik"].diagnostics)


@pytest.mark.parametrize(
    ("scorer", "says"),
    [("numeric", "references of type number"), ("per_char", "not a generated text"), ("f2", "f1")],
)
def test_a_scorer_that_cannot_judge_the_answers_is_refused_before_anything_is_asked(benchmark, scorer, says):
    study = benchmark(scorers=[scorer])
    with pytest.raises(InputError, match=says):
        run(study)
    assert not study.store.exists()
