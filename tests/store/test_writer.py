from __future__ import annotations

import errno
import io
import json
import os
import threading
import time
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from steelyard.core.errors import StoreError
from steelyard.core.types import ChoiceAnswer, NumberAnswer, Option, ProgramAnswer, Role, Status, TextAnswer
from steelyard.store import open_read, open_store, parts


def files(path):
    return sorted(p.relative_to(path).as_posix() for p in Path(path).rglob("*") if p.is_file())


def temporaries(path):
    return [name for name in files(path) if ".tmp-" in name]


# ------------------------------------------------------------------------------------------------- opening
def test_a_new_store_says_its_schema_and_reopens(tmp_path):
    with open_store(tmp_path / "new" / "store") as writer:
        marker = json.loads((writer.path / "steelyard.json").read_text())
    assert marker["schema"] == 1
    assert files(writer.path) == ["steelyard.json"]
    open_store(writer.path, create=False)


def test_a_missing_store_is_not_made_unless_wanted(tmp_path):
    with pytest.raises(StoreError, match=r"There is no store at .*steelyard run"):
        open_store(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


def test_a_folder_with_other_files_is_no_store_and_stays_as_it_is(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"is no store.*thesis\.tex"):
        open_store(tmp_path)
    assert files(tmp_path) == ["thesis.tex"]


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file"):
        open_store(tmp_path / "file")


@pytest.mark.parametrize("open_it", [open_store, open_read])
def test_a_newer_schema_is_refused_with_both_versions_and_nothing_is_changed(tmp_path, open_it):
    (tmp_path / "steelyard.json").write_text('{"schema": 7}')
    (tmp_path / "responses").mkdir()
    (tmp_path / "responses" / ".tmp-old").write_text("x")
    with pytest.raises(StoreError, match=r"schema 7.*up to 1.*pip install -U"):
        open_it(tmp_path)
    assert files(tmp_path) == ["responses/.tmp-old", "steelyard.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "1"}', '{"schema": true}', '{"schema": 0}', "\udcff"]
)
@pytest.mark.parametrize("open_it", [open_store, open_read])
def test_a_broken_marker_is_explained(tmp_path, open_it, text):
    (tmp_path / "steelyard.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StoreError, match=r"steelyard\.json.*cannot be understood"):
        open_it(tmp_path)


def test_temporary_files_are_removed_only_when_their_writer_is_gone(tmp_path):
    folder = tmp_path / "responses"
    open_store(tmp_path)
    folder.mkdir()
    host, gone = parts._HOST, 2**22 + 1  # above the largest process number
    names = {
        "mine": f".tmp-{host}-{os.getpid()}-aa",
        "killed": f".tmp-{host}-{gone}-bb",
        "elsewhere": f".tmp-00000000-{gone}-cc",
        "old": ".tmp-00000000-1-dd",
        "foreign": "notes.txt",
    }
    for name in names.values():
        (folder / name).write_text("x")
    os.utime(folder / names["old"], (time.time() - 7200,) * 2)
    open_store(tmp_path)
    assert {k for k, name in names.items() if (folder / name).exists()} == {"mine", "elsewhere", "foreign"}


# ----------------------------------------------------------------------------------------------- appending
def test_items_of_every_type_come_back_equal(tmp_path, make):
    items = [
        make.item(
            "text", reference=TextAnswer(("a\ud800", "b\0")), fields={"p": "\udfff\ud800", "é": "\ufffd"}
        ),
        make.item("number", reference=NumberAnswer(Decimal("1E+3"), "1,000", "so\n#### 1,000"), group="g"),
        make.item("choice", reference=ChoiceAnswer(1, ("x", "y")), distractors=(Option("x", "", "data"),)),
        make.item("program", reference=ProgramAnswer("pass", "f", "assert f() is None"), question=""),
    ]
    with open_store(tmp_path) as writer, open_read(tmp_path) as store:
        assert writer.add_items(items) == 4
        store.refresh()
        assert store.items() == items


def test_runs_forms_sources_asks_and_scores_come_back_equal(tmp_path, make):
    form = make.form(settings={"sampling": {"stop": ["\n", "\ud83d"]}, "k": 4}, scorers=("acc", "f1"))
    source = make.source(duplicates=("i1", "i\udfff"))
    asks = [make.ask("r1", flags=("moved", "short:2")), make.ask(None, option=None, role=Role.GENERATE)]
    scores = [
        make.score(0.1 + 0.2, extracted="\ud800", detail={"chance": 1 / 3}),
        make.score(None, "d", Status.REFUSED),
    ]
    with open_store(tmp_path) as writer:
        writer.add_run(make.run)
        writer.add_forms([form])
        writer.add_source(source)
        writer.add_asks(asks)
        writer.add_scores(scores)
    with open_read(tmp_path) as store:
        assert store.runs() == [make.run]
        assert store.forms() == [form]
        assert store.sources() == [source]
        assert store.asks() == store.asks(make.run.run_id) == asks
        assert store.scores() == store.scores(make.run.run_id) == scores
        assert store.asks("other") == store.scores("other") == []


def test_a_megabyte_of_any_text_comes_back(tmp_path, make):
    text = "\ud800\0\ufffd\\ud800é漢😀\r\n" * 100_000
    with open_store(tmp_path) as writer:
        writer.append_batch("R", make.batch(make.answer("r", text)))
    with open_read(tmp_path) as store:
        assert store.responses()["r"].text == text


def test_what_is_there_is_not_written_again(tmp_path, make):
    with open_store(tmp_path) as writer:

        def all_of_it():
            return (
                writer.add_items([make.item(), make.item(), make.item("j")]),
                writer.add_forms([make.form()]),
                writer.add_run(make.run),
                writer.add_source(make.source()),
                writer.add_asks([make.ask("r", option=None), make.ask("s", option=1)]),
                writer.add_scores([make.score(), make.score(None, "d", Status.ERROR)]),
            )

        assert all_of_it() == (2, 1, 1, 1, 2, 2)
        before = files(tmp_path)
        assert all_of_it() == (0, 0, 0, 0, 0, 0)
    assert files(tmp_path) == before


def test_nothing_to_write_makes_no_part(tmp_path):
    with open_store(tmp_path) as writer:
        assert writer.append("scores", []) is None
        assert writer.add_items([]) == 0
    assert files(tmp_path) == ["steelyard.json"]


def test_threads_that_add_the_same_rows_write_them_once(tmp_path, make):
    with open_store(tmp_path) as writer:
        threads = [
            threading.Thread(target=writer.add_items, args=([make.item(str(i)) for i in range(9)],))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(list((tmp_path / "items").iterdir())) == 1


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (0.0, Status.ERROR),
        (0.0, Status.OVERLONG),
        (1.0, Status.REFUSED),
        (0.0, Status.UNSCORED),
        (float("nan"), Status.OK),
    ],
)
def test_a_missing_score_is_null_and_never_a_number(tmp_path, make, value, status):
    with open_store(tmp_path) as writer, pytest.raises(StoreError, match="null with a status"):
        writer.add_scores([make.score(value, status=status)])
    assert files(tmp_path) == ["steelyard.json"]


def test_a_cell_that_asks_something_else_than_before_is_refused(tmp_path, make):
    with open_store(tmp_path) as writer:
        writer.add_asks([make.ask("old"), make.ask("same", "d")])
        before = files(tmp_path)
        with pytest.raises(StoreError, match=r"1 cells ask something else.*'i'"):
            writer.add_asks([make.ask("new"), make.ask("same", "d"), make.ask("more", "e")])
        with pytest.raises(StoreError, match="ask something else"):
            writer.add_asks([make.ask("a", "g"), make.ask("b", "g")])
        assert files(tmp_path) == before


def test_an_ask_without_a_request_gives_way_to_one_with(tmp_path, make):
    with open_store(tmp_path) as writer, open_read(tmp_path) as store:
        assert writer.add_asks([make.ask(None, flags=("overlong",))]) == 1
        assert writer.add_asks([make.ask(None, flags=("overlong",))]) == 0
        assert writer.add_asks([make.ask("r")]) == 1
        assert writer.add_asks([make.ask(None, flags=("overlong",)), make.ask("r")]) == 0
        store.refresh()
        assert store.asks() == [make.ask("r")]


def test_names_of_parts_follow_the_order_of_writing_even_when_the_clock_stands_still(
    tmp_path, make, monkeypatch
):
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    names = [parts.new_name([]) for _ in range(50)]
    assert names == sorted(names)
    with open_store(tmp_path) as writer:
        folder = tmp_path / "scores"
        folder.mkdir()
        late = folder / "part-02000000000000000000-ab.parquet"
        for value in (1.0, 2.0):
            written = writer.append("scores", [_score_row(make, value)])
            if value == 1.0:
                written.rename(late)  # as if written by a machine whose clock is ahead
        assert written.name > late.name


def _score_row(make, value):
    from steelyard.store.rows import plain_row

    return plain_row(make.score(value))


# --------------------------------------------------------------------------------------------- bad weather
class FullDisk(io.FileIO):
    def write(self, data):
        if self.tell() + len(data) > 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


@pytest.fixture
def full_disk(monkeypatch):
    real = Path.open

    def fail(self, mode="r", *rest, **named):
        return FullDisk(self, mode.replace("b", "")) if "x" in mode else real(self, mode, *rest, **named)

    return lambda: monkeypatch.setattr(Path, "open", fail)


def test_a_full_disk_says_what_is_safe_and_leaves_no_half_part(tmp_path, make, full_disk):
    writer = open_store(tmp_path)
    writer.append_batch("R", make.batch(make.answer("a"), make.answer("b")))
    before = files(tmp_path)
    full_disk()
    with pytest.raises(
        StoreError, match=r"is full.*2 answers are on disk and safe.*Free some space and run the same"
    ):
        writer.append_batch("R", make.batch(make.answer("c")))
    assert files(tmp_path) == before
    with open_read(tmp_path) as store:
        assert store.answered() == {"a", "b"}


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_fails_late_leaves_no_half_part_either(tmp_path, make, monkeypatch, step, code):
    says = "error" if code == errno.EIO else "is full"

    def fail(*_):
        raise OSError(code, os.strerror(code))

    writer = open_store(tmp_path)
    writer.append_batch("R", make.batch(make.answer("a")))
    before = files(tmp_path)
    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
    with pytest.raises(StoreError, match=rf"{says}.*1 answer is on disk"):
        writer.append_batch("R", make.batch(make.answer("b")))
    assert files(tmp_path) == before


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_a_place_that_may_not_be_written_to_is_said_at_once(tmp_path, monkeypatch, code):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError, match=r"may not be written to.*Make it writable"):
        open_store(tmp_path / "store")


def test_an_interrupt_while_writing_leaves_no_temporary_file(tmp_path, make, monkeypatch):
    writer = open_store(tmp_path)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pq, "write_table", interrupt)
    with pytest.raises(KeyboardInterrupt):
        writer.append_batch("R", make.batch(make.answer("a")))
    assert temporaries(tmp_path) == []


def test_a_value_that_does_not_fit_writes_nothing_of_its_batch(tmp_path, make):
    writer = open_store(tmp_path)
    with pytest.raises(StoreError, match="asked"):
        writer.append_batch("R", make.batch(make.answer("a"), asked=0.5))
    assert files(tmp_path) == ["steelyard.json"]
