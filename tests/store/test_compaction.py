from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from steelyard.core.errors import StoreError
from steelyard.store import compaction, open_read, open_store
from steelyard.store.rows import plain_row, response_row


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(compaction, "MANY_PARTS", 4)


@pytest.fixture
def writer(tmp_path, make):
    """Parts in which keys come again, with errors first and other scores last."""
    writer = open_store(tmp_path)
    for i in range(8):
        answer = make.answer if i % 3 == 2 else make.error
        answers = [answer("again", f"{i}"), answer(f"own{i}", f"{i}"), make.error("never", f"{i}")]
        writer.append("responses", [response_row(a, "R", "B") for a in answers])
        scores = [make.score(float(i), f"c{i // 2}"), make.score(float(i), "again")]
        writer.append("scores", [plain_row(s) for s in scores])
        writer.append("asks", [plain_row(make.ask(None if i < 5 else "r", "again"))])
    return writer


def seen(path):
    with open_read(path) as store:
        return store.responses(), {(s.cell_id, s.value) for s in store.scores()}, store.asks()


def parts(path, table="responses"):
    return sorted(p.name for p in (path / table).iterdir())


def test_merging_changes_the_number_of_parts_and_nothing_that_a_view_shows(tmp_path, writer, few):
    before = seen(tmp_path)
    assert writer.compact() == 3 * 7
    assert seen(tmp_path) == before
    assert len(parts(tmp_path)) == 1
    assert writer.compact() == 0
    assert pq.ParquetFile(tmp_path / "responses" / parts(tmp_path)[0]).num_row_groups == 1


def test_few_parts_are_left_as_they_are(tmp_path, writer):
    before = parts(tmp_path)
    assert writer.compact() == 0
    assert parts(tmp_path) == before


def test_later_rows_still_come_after_a_merged_part(tmp_path, writer, make, few):
    writer.compact()
    writer.add_scores([make.score(100.0, "again")])
    writer.append("responses", [response_row(make.answer("again", "later"), "R", "B")])
    responses, scores, _ = seen(tmp_path)
    assert responses["again"].text == "2"
    assert ("again", 100.0) in scores


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("table", ["asks", "responses", "scores"])
@pytest.mark.parametrize("removed", [0, 1, 4, 7])
def test_a_kill_after_some_removed_parts_changes_nothing(tmp_path, writer, monkeypatch, table, removed):
    before = seen(tmp_path)
    real, count = Path.unlink, 0

    def unlink(self, *rest, **named):
        nonlocal count
        if self.parent.name == table:
            if count == removed:
                raise Crash
            count += 1
        real(self, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        with pytest.raises(Crash):
            writer.compact()
    assert seen(tmp_path) == before
    # and the next merge clears up what was left
    again = open_store(tmp_path)
    again.compact()
    assert seen(tmp_path) == before


def test_a_kill_while_the_merged_part_is_written_changes_nothing(tmp_path, writer, few, monkeypatch):
    before, names = seen(tmp_path), parts(tmp_path)

    def crash(*_):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(Crash):
            writer.compact()
    assert parts(tmp_path) == names
    assert seen(tmp_path) == before


def test_large_parts_and_parts_with_columns_of_their_own_are_left_alone_and_order_is_kept(
    tmp_path, writer, few, monkeypatch
):
    names = parts(tmp_path)
    foreign = tmp_path / "responses" / names[3]
    pq.write_table(pq.read_table(foreign).append_column("note", [["x"] * 3]), foreign)
    before = seen(tmp_path)
    assert writer.compact() == 2 * 7 + 2 + 3
    assert foreign.name in parts(tmp_path)
    assert parts(tmp_path).index(foreign.name) == 1
    assert seen(tmp_path) == before
    monkeypatch.setattr(compaction, "MANY_PARTS", 1)
    monkeypatch.setattr(compaction, "SMALL_BYTES", 10)
    assert writer.compact() == 0


def test_a_broken_part_stops_the_merge_and_nothing_is_removed(tmp_path, writer, few):
    names = parts(tmp_path)
    bad = tmp_path / "responses" / names[5]
    bad.write_bytes(bad.read_bytes()[:-9])
    with pytest.raises(StoreError, match=rf"{bad.name}.*Move this file"):
        writer.compact()
    assert parts(tmp_path) == names


def test_a_part_that_another_process_merged_away_meanwhile_ends_the_merge_quietly(
    tmp_path, writer, few, monkeypatch
):
    real = compaction._copy

    def copy(spec, run, file):
        run[-1].rename(tmp_path / run[-1].name)
        real(spec, run, file)

    monkeypatch.setattr(compaction, "_copy", copy)
    assert writer.compact() == 0
    assert len(parts(tmp_path)) == 7


def test_parts_from_before_a_column_are_merged_with_later_ones_and_stay_null_there(tmp_path, make, few):
    writer = open_store(tmp_path)
    for i in range(6):
        writer.append_batch("R", make.batch(make.answer(f"{i}"), computed=3, new_tokens=2))
    for part in sorted((tmp_path / "batches").iterdir())[:3]:
        with part.open("rb") as file:
            data = pq.read_table(file)
        pq.write_table(data.drop_columns(["new_tokens", "peak_memory", "prefill_rate"]), part)
    writer.compact()
    assert len(parts(tmp_path, "batches")) == 1
    with open_read(tmp_path) as store:
        counts = store.query("SELECT new_tokens, computed FROM _batches ORDER BY _position").to_pylist()
    assert counts == [{"new_tokens": n, "computed": 3} for n in (None, None, None, 2, 2, 2)]
