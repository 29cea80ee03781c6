from __future__ import annotations

import subprocess
import sys

import pytest

from steelyard.benchmarks import catalog
from steelyard.benchmarks.sources import load
from steelyard.core.errors import UnknownNameError


def test_every_name_gives_a_benchmark_of_that_name():
    assert len(catalog.names()) == 14
    for name in catalog.names():
        assert catalog.get(name).name == name


def test_an_unknown_name_says_what_it_may_have_meant():
    with pytest.raises(UnknownNameError, match="Did you mean gsm8k"):
        catalog.get("gsm8")
    with pytest.raises(UnknownNameError, match="Unknown benchmark 'arcs'"):
        catalog.expand(["arcs"])


def test_groups_stand_for_their_members_and_nothing_comes_twice():
    assert catalog.expand(["arc_easy", "mmlu", "arc", "own/x.toml", "mmlu"]) == (
        "arc_easy",
        "mmlu",
        "arc_challenge",
        "own/x.toml",
    )
    assert catalog.expand(["mini"]) == ("mini_math", "mini_facts", "mini_reading", "mini_code")


@pytest.mark.parametrize("name", ["mini_math", "mini_facts", "mini_reading", "mini_code", "simulated"])
def test_packaged_benchmarks_need_no_data_and_no_network(name, monkeypatch, tmp_path):
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path / "nowhere"))
    loaded = load(name, seed=5)
    assert loaded.provenance.kind == "package"
    assert loaded.benchmark is catalog.get(name)
    assert len(loaded.items) >= 40
    assert {i.item_id for i in loaded.items}.isdisjoint(i.item_id for i in loaded.shots)
    assert loaded == load(name, seed=6)


def test_importing_the_sources_loads_nothing_heavy():
    heavy = ["pyarrow", "datasets", "huggingface_hub", "pydantic", "torch", "scipy", "duckdb"]
    code = f"import sys, steelyard.benchmarks.sources; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
