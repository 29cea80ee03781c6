"""A study as a file: what it may say, where its paths lead, and how it is told what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from steelyard.core.errors import StudyError
from steelyard.plan.study import Study, load_study

EVERY_KEY = {
    "model": ["simulated", "simulated:ability=1,seed=2"],
    "tasks": ["simulated", "own.toml"],
    "forms": ["nlg", "mc_rnd"],
    "templates": ["t00"],
    "shots": 2,
    "shot_mode": "per_item",
    "options": 4,
    "repeats": 3,
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 7,
    "max_tokens": 9,
    "limit": 5,
    "items": [],
    "seed": 4,
    "chat": True,
    "system": "be brief",
    "overlong": "truncate",
    "skip_refused": True,
    "data": "d",
    "revision": "main",
    "store": "s",
    "engine": "plain",
    "batch_size": 3,
    "device": "cpu",
    "dtype": "bfloat16",
    "max_length": 64,
    "threads": 1,
    "api": "chat",
    "concurrency": 2,
    "rate_limit": 1.5,
    "use_n": True,
}


def test_every_key_can_stand_in_a_file_and_means_the_same_as_a_flag(tmp_path, monkeypatch):
    assert set(EVERY_KEY) == set(Study.model_fields)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(EVERY_KEY))
    monkeypatch.chdir(tmp_path)
    flags = {k: ",".join(v) if isinstance(v, list) else v for k, v in EVERY_KEY.items()}
    assert load_study(Path("study.yaml"), {}) == load_study(None, flags)


def test_flags_are_laid_over_a_file(tmp_path):
    (tmp_path / "study.yaml").write_text("model: simulated\ntasks: simulated\nlimit: 5\n")
    study = load_study(tmp_path / "study.yaml", {"limit": 7, "seed": None})
    assert (study.limit, study.seed, study.tasks) == (7, 0, ("simulated",))


def test_paths_in_a_file_are_relative_to_it(tmp_path, monkeypatch):
    folder = tmp_path / "studies"
    (folder / "m").mkdir(parents=True)
    (folder / "m" / "config.json").write_text("{}")
    (folder / "study.yaml").write_text(
        "model: [m, smollm2, 'simulated:ability=1,seed=2']\ntasks: own.toml,mini\ndata: d\nstore: ~/s\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    study = load_study(Path("studies/study.yaml"), {})
    assert study.model == ("studies/m", "smollm2", "simulated:ability=1,seed=2")
    assert study.tasks == ("studies/own.toml", "mini")
    assert (study.data, study.store) == (Path("studies/d"), tmp_path / "home" / "s")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model: simulated\ntasks: mini\nlimit: 5\nlimit: 6\n", "limit more than once"),
        ("modle: simulated\ntasks: mini\n", "Did you mean model?"),
        ("model:\ntasks: mini\n", "should be a text or a list of texts; got None"),
        ("model: {a: b}\ntasks: mini\n", "should be a text or a list of texts"),
        ("model: [1.5]\ntasks: mini\n", "in quotes"),
        ("model: ','\ntasks: mini\n", "names nothing"),
        ("model: simulated\ntasks: mini\n1: 5\n", "1, which is no text"),
        ("model: simulated\ntasks: mini\nseed: true\nlimit: yes\n", "limit cannot be a truth value"),
        ("- model\n", "got list"),
        ("", "got NoneType"),
        ("model: [simulated\n", "cannot be read as YAML"),
        ("model: !!python/object/apply:os.getcwd []\ntasks: mini\n", "cannot be read as YAML"),
    ],
)
def test_a_file_that_does_not_fit_says_why(tmp_path, text, says):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(StudyError) as caught:
        load_study(path, {})
    assert says in str(caught.value)
    assert "tuple" not in str(caught.value).lower()


def test_json_is_yaml(tmp_path):
    (tmp_path / "study.json").write_text(json.dumps({"model": "simulated", "tasks": "mini"}))
    assert load_study(tmp_path / "study.json", {}).model == ("simulated",)
