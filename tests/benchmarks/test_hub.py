"""The hub's side, with stand-ins for `datasets` and `huggingface_hub`: pins, offline use, and no remote code."""

from __future__ import annotations

import json
import sys
import types

import pytest

from steelyard.benchmarks.sources import load
from steelyard.core.cache import cache_root
from steelyard.core.errors import DataError, InputError, MissingError

OLD, NEW = "a" * 40, "b" * 40


class Table(list):
    """As much of a `datasets.Dataset` as is used."""

    def __init__(self, rows, places=()):
        super().__init__(rows)
        self.info = types.SimpleNamespace(download_checksums=dict.fromkeys(places))
        self.cache_files = []


class Hub:
    """A hub that counts what is asked of it."""

    def __init__(self, splits):
        self.splits, self.commit, self.online, self.cached = splits, OLD, True, set()
        self.resolved, self.loads, self.served = [], [], None

    def dataset_info(self, repo, revision=None):
        self.resolved.append((repo, revision))
        if not self.online:
            raise ConnectionError("no route to the hub")
        return types.SimpleNamespace(sha=self.commit)

    def load_dataset(self, path, name=None, *, revision=None):
        self.loads.append((path, name, revision))
        if not self.online and revision not in self.cached:
            raise ConnectionError("not in the cache")
        self.cached.add(revision)
        places = [f"hf://datasets/{path}@{self.served or revision}/main/test-00000-of-00001.parquet"]
        return {split: Table(rows, places) for split, rows in self.splits.items()}


@pytest.fixture
def hub(monkeypatch, tmp_path, problems):
    fake = Hub({"train": problems[:30], "test": problems[30:]})
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=fake.load_dataset))
    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(dataset_info=fake.dataset_info))
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    return fake


def test_the_commit_is_resolved_once_recorded_and_used_from_then_on(hub, tmp_path):
    first = load("gsm8k")
    assert (first.provenance.kind, first.provenance.revision) == ("hub", OLD)
    assert (first.provenance.location, first.provenance.split) == ("openai/gsm8k (main)", "test")
    assert first.provenance.shot_source == "train"
    assert json.loads((tmp_path / "cache/pins.json").read_text()) == {"openai/gsm8k": {"main": OLD}}
    hub.commit = NEW  # the data set moves on
    assert load("gsm8k") == first
    assert hub.resolved == [("openai/gsm8k", None)]
    assert hub.loads == [("openai/gsm8k", "main", OLD)] * 2


def test_hub_and_local_copy_are_the_same_items(hub, write, tmp_path, problems):
    write("data/gsm8k/test.jsonl", problems[30:])
    local, remote = load("gsm8k", data=tmp_path / "data"), load("gsm8k")
    assert local.items == remote.items
    assert local.provenance.content_hash == remote.provenance.content_hash


def test_with_a_pin_it_works_offline_from_the_local_cache(hub):
    before = load("gsm8k")
    hub.online = False
    assert load("gsm8k") == before
    assert len(hub.resolved) == 1


def test_offline_and_unpinned_says_how_to_do_without_the_hub(hub):
    hub.online = False
    with pytest.raises(MissingError, match=r"no route.*\n.*--data DIR.*folder gsm8k .*test\.jsonl"):
        load("gsm8k")


def test_offline_and_pinned_but_not_cached_says_so_too(hub):
    load("gsm8k")
    hub.online, hub.cached = False, set()
    with pytest.raises(MissingError, match=r"aaaaaaaaaaaa\).*not in the local.*\n.*--data DIR"):
        load("gsm8k")


def test_another_commit_out_of_the_local_cache_is_not_taken_for_the_pinned_one(hub):
    load("gsm8k")
    hub.served = NEW  # `datasets` falls back to the newest copy that it has, whatever the commit asked for
    with pytest.raises(MissingError, match=r"pinned to openai/gsm8k at aaaaaaaaaaaa.*bbbbbbbbbbbb"):
        load("gsm8k")


def test_a_branch_is_pinned_for_itself_and_a_full_commit_needs_no_pin(hub, tmp_path):
    load("gsm8k")
    hub.commit = NEW
    assert load("gsm8k", revision="v2").provenance.revision == NEW
    assert load("gsm8k").provenance.revision == OLD
    hub.online, hub.cached = False, {"c" * 40}
    assert load("gsm8k", revision="c" * 40).provenance.revision == "c" * 40
    assert json.loads((tmp_path / "cache/pins.json").read_text()) == {
        "openai/gsm8k": {"main": OLD, "v2": NEW}
    }


def test_pins_of_other_data_sets_stay(hub, tmp_path):
    load("gsm8k", cache=tmp_path / "mine")
    hub.splits = {"validation": [{"question": "is it", "passage": "It is.", "answer": True}]}
    assert load("boolq", cache=tmp_path / "mine").provenance.location == "google/boolq"
    assert hub.loads[-1][:2] == ("google/boolq", None)
    assert json.loads((tmp_path / "mine/pins.json").read_text()).keys() == {"openai/gsm8k", "google/boolq"}
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["pins.json"]


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"openai/gsm8k": "main"}', '{"openai/gsm8k": {"main": "newest"}}']
)
def test_a_damaged_pin_file_is_an_error_and_not_resolved_anew(hub, tmp_path, content):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/pins.json").write_text(content)
    with pytest.raises(InputError, match=r"pins\.json"):
        load("gsm8k")
    assert not hub.resolved


def test_a_cache_that_cannot_be_written_is_an_error(hub, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="STEELYARD_CACHE"):
        load("gsm8k", cache=tmp_path / "file" / "in")


def test_remote_code_is_declined_where_a_version_still_could_run_it(hub, monkeypatch, problems):
    asked = []

    def old_load_dataset(path, name=None, *, revision=None, trust_remote_code=None):
        asked.append(trust_remote_code)
        return {"test": problems}

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=old_load_dataset))
    load("gsm8k")
    assert asked == [False]


def test_a_data_set_without_the_split_is_an_error_that_names_its_splits(hub, problems):
    hub.splits = {"training": problems}
    with pytest.raises(DataError, match="has the splits training; expected one of test"):
        load("gsm8k")


def test_bad_rows_of_the_hub_are_named_by_split_and_row(hub):
    hub.splits["test"][2] = {"question": "q", "answer": "none"}
    with pytest.raises(DataError, match=r"openai/gsm8k/test, row 2: field 'answer'"):
        load("gsm8k")


def test_without_the_packages_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingError, match=r"pip install 'steelyard\[hub\]'\n.*--data DIR"):
        load("gsm8k")


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("STEELYARD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "steelyard"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "steelyard"
