from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import InputError, StoreError
from steelyard.core.types import Batch, Finish, Response, Status
from steelyard.store import CELLS, TABLES, Totals, escape, open_read, open_store
from steelyard.store.rows import plain_row, response_row

KINDS = {
    "VARCHAR": "string",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "DOUBLE": "double",
    "BOOLEAN": "bool",
    "VARCHAR[]": "list<string>",
    "DOUBLE[]": "list<double>",
}


# a union inside st.text would draw surrogates in proportion to their number, that is hardly ever
ANY_TEXT = st.lists(st.sampled_from("\ud800\udbff\udc00\udfff\0\ufffd\\") | st.characters(), max_size=6).map(
    "".join
)


@pytest.fixture
def writer(tmp_path):
    return open_store(tmp_path)


def test_a_missing_store_says_how_to_make_one(tmp_path):
    with pytest.raises(StoreError, match=r"There is no store at .*steelyard run"):
        open_read(tmp_path / "none")


def test_an_empty_store_reads_as_empty(tmp_path, writer):
    with open_read(tmp_path) as store:
        for name, spec in TABLES.items():
            assert store.query(f'SELECT * FROM "{name}"').schema.names == list(spec.names)  # noqa: S608 - ours
        assert store.cells().schema.names == list(CELLS)
        assert store.cells().num_rows == 0
        assert (store.answered(), store.responses(), store.work(), store.items()) == (set(), {}, {}, [])


@pytest.mark.parametrize("filled", [False, True])
def test_the_types_of_a_view_do_not_depend_on_whether_it_has_parts(tmp_path, writer, make, filled):
    if filled:
        writer.append_batch("R", make.batch(make.answer("r")))
        writer.add_scores([make.score()])
        writer.add_items([make.item()])
    with open_read(tmp_path) as store:
        for name, spec in TABLES.items():
            found = store._con.execute(f'DESCRIBE "{name}"').fetchall()
            wanted = {c.name: c.kind.replace("json", "string") for c in spec.columns}
            assert {column: KINDS[kind] for column, kind, *_ in found} == wanted


def test_the_first_answer_stands_and_an_error_gives_way_to_a_later_answer(tmp_path, writer, make):
    writer.append_batch("R", make.batch(make.error("a", "first"), make.answer("b", "first")))
    writer.append_batch("R", make.batch(make.error("a", "second"), make.error("b", "later")))
    with open_read(tmp_path) as store:
        assert store.answered() == {"b"}
        assert store.responses()["a"].error == "second"
        writer.append_batch("R", make.batch(make.answer("a", "third"), make.answer("b", "third")))
        store.refresh()
        assert store.answered() == {"a", "b"}
        assert {i: r.text for i, r in store.responses().items()} == {"a": "third", "b": "first"}


def test_a_refusal_is_an_answer(tmp_path, writer, make):
    writer.append_batch("R", make.batch(Response(request_id="r", finish=Finish.REFUSED)))
    with open_read(tmp_path) as store:
        assert store.answered() == {"r"}


def test_the_last_score_counts(tmp_path, writer, make):
    for value in (1.0, 2.0, -1.0, -2.0):  # -1.0 and -2.0 have one hash in CPython
        assert writer.add_scores([make.score(value)]) == 1
    assert writer.add_scores([make.score(5.0), make.score(-2.0)]) == 0
    with open_read(tmp_path) as store:
        assert [s.value for s in store.scores()] == [-2.0]


def test_a_later_selection_of_the_same_source_replaces_the_earlier(tmp_path, writer, make):
    assert [writer.add_source(make.source(n_selected=n)) for n in (20, 20, 40)] == [1, 0, 1]
    with open_read(tmp_path) as store:
        assert [s.n_selected for s in store.sources()] == [40]


# Each list is one part; a row is (key, whether weak); its payload is its place, so every row is different.
PARTS = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=4), max_size=5)


@settings(max_examples=15, deadline=None)
@given(PARTS)
def test_the_views_agree_with_the_rules_told_in_plain_python(tmp_path_factory, make, written):
    path = tmp_path_factory.mktemp("model")
    writer = open_store(path)
    first_of, last_of = {}, {}
    place = 0
    for part in written:
        answers, scores = [], []
        for key, weak in part:
            place += 1
            response = make.error(key, str(place)) if weak else make.answer(key, str(place))
            answers.append(response_row(response, "R", "B"))
            scores.append(plain_row(make.score(float(place), key)))
            last_of[key] = float(place)
            if key not in first_of or first_of[key].error is not None:
                first_of[key] = response
        writer.append("responses", answers)
        writer.append("scores", scores)
    with open_read(path) as store:
        assert store.responses() == first_of
        assert {s.cell_id: s.value for s in store.scores()} == last_of


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(
            ANY_TEXT,
            st.floats(),
            st.none() | ANY_TEXT,
            st.none() | st.lists(st.floats(), max_size=3).map(tuple),
        ),
        max_size=4,
        unique_by=lambda row: row[0],
    )
)
def test_any_text_and_any_float_come_back_from_disk(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("any")
    answers = [
        Response(request_id=i, logprob=x, text=text, token_logprobs=many, finish=Finish.EOS)
        for i, x, text, many in rows
    ]
    with open_store(path) as writer:
        for answer in answers:
            writer.append("responses", [response_row(answer, "R\ud800", "B")])
    with open_read(path) as store:
        assert repr(list(store.responses().values())) == repr(answers)
        wanted = [i for i, *_ in rows][:2]
        assert store.responses(wanted).keys() == set(wanted)
        assert store.answered("R\ud800") == {i for i, *_ in rows}


def test_answers_are_found_by_the_run_that_asks_also_when_another_run_asked_first(tmp_path, writer, make):
    writer.append_batch("first", make.batch(make.answer("shared"), make.answer("own")))
    writer.add_asks([make.ask("shared"), make.ask("unanswered", option=1)])
    with open_read(tmp_path) as store:
        assert store.answered("first") == {"shared", "own"}
        assert store.answered(make.run.run_id) == {"shared"}
        assert store.answered("other") == set()


def test_work_is_summed_by_run(tmp_path, writer, make):
    writer.append_batch(
        "R", make.batch(make.answer("a"), asked=5, computed=2**40, trie=3, scored=2, steps=1, seconds=0.5)
    )
    writer.append_batch("R", make.batch(make.answer("b"), make.error("c"), asked=1, computed=1, seconds=0.25))
    writer.append_batch("S", make.batch())
    with open_read(tmp_path) as store:
        assert store.work() == {
            "R": Totals(
                batches=2,
                requests=3,
                asked=6,
                computed=2**40 + 1,
                trie=3,
                scored=2,
                steps=1,
                seconds=0.75,
                reading_tokens=2**40 + 1,
                reading_seconds=0.75,
            ),
            "S": Totals(batches=1),
        }


# --------------------------------------------------------------------------------------------------- cells
def test_cells_join_scores_with_their_run_form_and_item(tmp_path, writer, make):
    writer.add_run(make.run)
    writer.add_items([make.item("i", group="g"), make.item("j")])
    writer.add_items([make.item("i", group="other", benchmark="another")])
    writer.add_forms([make.form(shots=3), make.form("nlg", formulation="nlg")])
    writer.add_scores(
        [
            make.score(0.5, detail={"chance": 0.25}),
            make.score(None, "d", Status.OVERLONG, item_id="j", form_id="nlg"),
        ]
    )
    with open_read(tmp_path) as store:
        cells = store.cells()
        assert cells.schema.names == list(CELLS)
        one, other = cells.to_pylist()
    assert one == {
        "model": "m",
        "step": None,
        "benchmark": "b",
        "group": "g",
        "item_id": "i",
        "form_id": "f",
        "formulation": "mc",
        "template_id": "t",
        "shots": 3,
        "run_id": make.run.run_id,
        "sample": 0,
        "scorer": "acc",
        "status": "ok",
        "value": 0.5,
        "extracted": None,
        "detail": '{"chance":0.25}',
    }
    assert (other["group"], other["status"], other["value"]) == (None, "overlong", None)


def test_an_item_whose_content_changed_does_not_double_its_cells(tmp_path, writer, make):
    writer.add_run(make.run)
    writer.add_forms([make.form()])
    writer.add_items([make.item(content_hash="old", group="g1")])
    writer.add_items([make.item(content_hash="new", group=None)])
    writer.add_scores([make.score()])
    with open_read(tmp_path) as store:
        assert len(store.items()) == 2
        assert store.cells().column("group").to_pylist() == [None]


@pytest.mark.parametrize("missing", ["run", "form", "item"])
def test_a_score_whose_run_form_or_item_is_gone_is_an_error_and_not_dropped(tmp_path, writer, make, missing):
    if missing != "run":
        writer.add_run(make.run)
    if missing != "form":
        writer.add_forms([make.form()])
    if missing != "item":
        writer.add_items([make.item()])
    writer.add_scores([make.score()])
    with open_read(tmp_path) as store, pytest.raises(StoreError, match=f"name an? {missing} that"):
        store.cells()


def test_the_order_of_cells_does_not_depend_on_the_order_of_writing(tmp_path, make):
    tables = []
    for name, order in (("a", 1), ("b", -1)):
        with open_store(tmp_path / name) as writer:
            writer.add_run(make.run)
            writer.add_forms([make.form()])
            writer.add_items([make.item(str(i)) for i in range(20)])
            for i in range(20)[::order]:
                writer.append("scores", [plain_row(make.score(float(i), str(i), item_id=str(i)))])
        with open_read(tmp_path / name) as store:
            tables.append(store.cells())
    assert tables[0].equals(tables[1])


# --------------------------------------------------------------------------------------------------- query
def test_values_are_bound_and_never_part_of_the_query(tmp_path, writer, make):
    hostile = "x'; DROP VIEW items; --"
    writer.add_items([make.item(benchmark=hostile), make.item()])
    with open_read(tmp_path) as store:
        assert [i.benchmark for i in store.items(hostile)] == [hostile]
        found = store.query("SELECT count(*) AS n FROM items WHERE benchmark = ?", [hostile])
        assert found.to_pylist() == [{"n": 1}]
        assert isinstance(found, pa.Table)


def test_stored_json_is_json_for_every_reader(tmp_path, writer, make):
    writer.add_items([make.item(fields={"p": '\ud83d\0\ufffd"\\'})])
    with open_read(tmp_path) as store:
        found = store.query("SELECT json_extract_string(meta, '$.p') AS p FROM items").to_pylist()
    assert found == [{"p": escape('\ud83d\0\ufffd"\\')}]


@pytest.mark.parametrize(
    "sql", ["SELEC 1", "SELECT nope FROM cells", "SELECT * FROM cell", "SELECT 1 / 'a'", ""]
)
def test_a_wrong_query_is_an_input_error(tmp_path, writer, make, sql):
    writer.add_items([make.item()])
    with open_read(tmp_path) as store, pytest.raises(InputError, match="query"):
        store.query(sql)


# --------------------------------------------------------------------------------------- paths, many parts
@pytest.mark.parametrize(
    "name", ["a b", "it's", 'q"q', "ünï漢😀", "*", "[ab]", "wh?t", "request_id=v", "%41 #x", "{a,b}", "a,b;c"]
)
def test_any_name_of_a_folder_works(tmp_path, make, name):
    # neighbours that a pattern would match
    for other in (name, "a", "whut", "v"):
        (tmp_path / other).mkdir(exist_ok=True)
    with open_store(tmp_path / name / "store") as writer:
        for i in range(3):
            writer.append_batch("R", make.batch(make.answer(str(i))))
        assert writer.add_items([make.item(), make.item()]) == 1
    with open_read(tmp_path / name / "store") as store:
        assert store.answered() == {"0", "1", "2"}
        assert store.verify() == 7


def test_a_folder_whose_name_is_no_text_is_refused_with_a_reason(tmp_path):
    for open_it in (open_store, open_read):
        with pytest.raises(StoreError, match="no UTF-8"):
            open_it(tmp_path / "\udcff")


def test_hundreds_of_parts_are_read_in_the_order_written(tmp_path, writer, make):
    for i in range(300):
        writer.append("responses", [response_row(make.answer(str(i), f"{i}"), "R", "B")])
        writer.append(
            "responses", [response_row(make.answer("same", f"{i}"), "R", "B")]
        ) if i % 100 == 0 else None
    with open_read(tmp_path) as store:
        found = store.responses()
    assert list(found) == ["0", "same", *map(str, range(1, 300))]
    assert found["same"].text == "0"


def test_files_that_no_table_knows_are_left_alone(tmp_path, writer, make):
    writer.add_items([make.item()])
    for name in ("items/notes.txt", "items/.tmp-x", "items/other.parquet", "notes.txt"):
        (tmp_path / name).write_text("x")
    with open_read(tmp_path) as store:
        assert store.items() == [make.item()]


def test_a_part_of_another_writer_with_large_strings_and_more_columns_is_read(tmp_path, writer, make):
    part = writer.append("responses", [response_row(make.answer("a"), "R", "B")])
    writer.append("responses", [response_row(make.answer("b"), "R", "B")])
    table = pq.read_table(part)
    table = table.set_column(2, "text", table["text"].cast(pa.large_string())).append_column("note", [["x"]])
    pq.write_table(table, part)
    with open_read(tmp_path) as store:
        assert store.verify() == 2
        assert {i: r.text for i, r in store.responses().items()} == {"a": "x", "b": "x"}


# -------------------------------------------------------------------------------------------- broken parts
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", ["empty", "cut", "text", "column", "type"])
def test_a_broken_part_is_named_and_never_skipped(tmp_path, writer, make, which, how):
    written = [writer.append("responses", [response_row(make.answer(str(i)), "R", "B")]) for i in range(2)]
    bad = written[which]
    match how:
        case "empty":
            bad.write_bytes(b"")
        case "cut":
            bad.write_bytes(bad.read_bytes()[:-20])
        case "text":
            bad.write_text("no parquet at all, but long enough to look at")
        case "column":
            pq.write_table(pq.read_table(bad).drop_columns(["finish"]), bad)
        case "type":
            table = pq.read_table(bad)
            pq.write_table(table.set_column(0, "request_id", [[b"\xff\xfe"]]), bad)

    def read():
        with open_read(tmp_path) as store:
            return store.responses()

    with pytest.raises(StoreError, match=rf"{bad.name}.*Move this file.*asked again"):
        read()
    with pytest.raises(StoreError, match=bad.name), open_read(tmp_path) as store:
        store.query("SELECT finish, text, request_id FROM responses")
    bad.rename(tmp_path / "moved-away")
    assert read().keys() == {str(1 - which)}


def test_a_flipped_bit_is_found_by_verify(tmp_path, writer, make):
    part = writer.append("responses", [response_row(make.answer("a", "the very text " * 50), "R", "B")])
    data = bytearray(part.read_bytes())
    place = data.index(b"the very text") + 2
    data[place] ^= 1
    part.write_bytes(data)
    with pytest.raises(StoreError, match=part.name), open_read(tmp_path) as store:
        store.verify()


def test_a_reader_is_not_disturbed_by_parts_that_are_merged_meanwhile(tmp_path, writer, make):
    writer.add_items([make.item()])
    for i in range(40):
        writer.append("responses", [response_row(make.answer(str(i)), "R", "B")])
    with open_read(tmp_path) as store:
        assert writer.compact() == 39
        assert len(store.answered()) == 40
        assert store.query("SELECT count(*) AS n FROM responses").to_pylist() == [{"n": 40}]


def test_a_closed_store_frees_its_connection(tmp_path, writer):
    with open_read(tmp_path) as store:
        con = store._con
    with pytest.raises(duckdb.Error):
        con.execute("SELECT 1")


# ------------------------------------------------------------------------------------------ work of old stores
COUNTED = {"asked": 30, "computed": 20, "trie": 18, "scored": 6, "steps": 2, "seconds": 0.5}


def without_late_columns(part):
    """The part as it was written before the columns were there."""
    with part.open("rb") as file:
        data = pq.read_table(file)
    pq.write_table(data.drop_columns([c.name for c in TABLES["batches"].columns if c.late]), part)


@pytest.mark.parametrize("old", [[], [0], [1], [0, 1]])
def test_a_store_from_before_a_column_opens_and_is_added_to_and_knows_no_value_there(
    tmp_path, writer, make, old
):
    for i in range(2):
        writer.append_batch("R", make.batch(make.answer(f"{i}"), new_tokens=4, peak_memory=7, **COUNTED))
    parts = sorted((tmp_path / "batches").glob("part-*"))
    for i in old:
        without_late_columns(parts[i])
    with open_read(tmp_path) as store:
        work = store.work()["R"]
        assert (work.batches, work.computed, work.seconds) == (2, 40, 1.0)
        assert work.new_tokens == (None if old else 8)
        assert work.peak_memory == (None if len(old) == 2 else 7)
        known = store.query("SELECT new_tokens FROM batches ").to_pylist()
        assert sum(row["new_tokens"] is None for row in known) == len(old)
        assert store.verify() == 4
    writer.append_batch("R", make.batch(make.answer("2"), new_tokens=1, prefill_rate=80.0, **COUNTED))
    with open_read(tmp_path) as store:
        assert store.work()["R"].batches == 3
        assert store.work()["R"].prefill_rate == 80.0
        assert store.answered() == {"0", "1", "2"}


BATCHES = st.builds(
    Batch,
    responses=st.just(()),
    asked=st.integers(0, 50),
    computed=st.integers(0, 50),
    trie=st.integers(0, 50),
    scored=st.integers(0, 50),
    steps=st.integers(0, 9),
    seconds=st.sampled_from([0.0, 0.25, 1.5]),
    new_tokens=st.integers(0, 3),
    peak_memory=st.sampled_from([0, 1, 2**40]),
    prefill_rate=st.sampled_from([None, 64.0, 128.0]),
)


@settings(max_examples=20)
@given(st.lists(BATCHES, max_size=4))
def test_adding_batches_up_in_a_run_and_in_the_store_comes_to_the_same(tmp_path_factory, batches):
    path, total = tmp_path_factory.mktemp("store"), Totals()
    with open_store(path) as writer:
        for batch in batches:
            writer.append_batch("R", batch)
            total = total.plus(batch)
    with open_read(path) as store:
        assert store.work() == ({"R": total} if batches else {})


def test_what_follows_from_the_sums_of_a_run():
    read = Batch(
        responses=(), asked=60, computed=10, trie=9, scored=4, steps=1, seconds=0.5, prefill_rate=25.0
    )
    write = Batch(responses=(), asked=40, computed=10, seconds=2.0, new_tokens=8, prefill_rate=35.0)
    plain = Totals().plus(read).plus(write).to_json()
    assert plain["saved"] == 5.0
    assert plain["tokens_per_second"] == 8.0
    assert plain["new_tokens_per_second"] == 4.0
    assert plain["prefill_rate"] == 30.0
    assert plain["prefill_share"] == pytest.approx(20 / 30)
    nothing = Totals().plus(Batch(responses=(), asked=12, seconds=1.0)).to_json()
    assert nothing["asked"] == 12
    for name in ("computed", "trie", "scored", "steps", "peak_memory", "saved", "prefill_share"):
        assert nothing[name] is None, name
