"""Where items come from locally, which splits are used, and what is said when something is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.benchmarks import assemble as assembling
from steelyard.benchmarks import catalog
from steelyard.benchmarks.assemble import POOL_SIZE, duplicates, shot_pool
from steelyard.benchmarks.sources import load
from steelyard.core.errors import DataError, InputError
from steelyard.core.ids import content_hash
from steelyard.core.types import ChoiceAnswer, Item, TextAnswer


def arc(n, prefix="q"):
    choices = {"text": ["w", "x"], "label": ["A", "B"]}
    return [
        {"id": f"{prefix}{i}", "question": f"{prefix} {i}?", "choices": choices, "answerKey": "A"}
        for i in range(n)
    ]


def mmlu(subjects, n):
    return [
        {"question": f"{s} {i}?", "subject": s, "choices": ["a", "b"], "answer": 0}
        for s in subjects
        for i in range(n)
    ]


# ------------------------------------------------------------------------------------------ finding the files
@pytest.mark.parametrize(
    "name",
    [
        "gsm8k/test.jsonl",
        "gsm8k/test.jsonl.gz",
        "gsm8k/test.json",
        "gsm8k/test.parquet",
        "gsm8k/main/test.jsonl",
        "gsm8k/data/test-00000-of-00001.parquet",
        "gsm8k/main/test-00000-of-00001.parquet",
        "gsm8k/main/test-00000-of-00001-0123456789abcdef.parquet",
    ],
)
def test_a_split_is_found_under_every_usual_name(write, tmp_path, problems, name):
    write(name, problems)
    loaded = load("gsm8k", data=tmp_path)
    assert len(loaded.items) == 40
    assert loaded.items[7].item_id == "test-00007"
    assert loaded.provenance.kind == "local"
    assert loaded.provenance.location == name
    assert loaded.provenance.split == "test"


@pytest.mark.parametrize("at", [".", "gsm8k", "gsm8k/main", "gsm8k/main/test.jsonl"])
def test_the_data_path_may_be_the_folder_above_the_benchmarks_own_or_its_file(write, tmp_path, problems, at):
    write("gsm8k/main/test.jsonl", problems)
    assert len(load("gsm8k", data=tmp_path / at).items) == 40


def test_parts_of_a_split_are_read_in_order_and_all_of_them(write, tmp_path, problems):
    for part in (2, 0, 1):
        write(f"gsm8k/test-0000{part}-of-00003.parquet", problems[part * 10 : part * 10 + 10])
    assert [i.question for i in load("gsm8k", data=tmp_path).items] == [p["question"] for p in problems[:30]]
    (tmp_path / "gsm8k/test-00001-of-00003.parquet").unlink()
    with pytest.raises(DataError, match="not clear"):
        load("gsm8k", data=tmp_path)


def test_two_files_that_claim_one_split_are_refused(write, tmp_path, problems):
    write("gsm8k/test.jsonl", problems)
    write("gsm8k/test.parquet", problems[:5])
    with pytest.raises(DataError, match=r"test\.jsonl, test\.parquet"):
        load("gsm8k", data=tmp_path)


def test_a_missing_benchmark_lists_what_was_looked_for_and_what_is_there(write, tmp_path, problems):
    write("gsm8k/test.jsonl", problems)
    with pytest.raises(
        DataError, match=r"folders\s+trivia_qa, triviaqa .*validation\.jsonl.*There is: gsm8k/"
    ):
        load("triviaqa", data=tmp_path)
    write("trivia_qa/train.jsonl", problems)
    with pytest.raises(DataError, match=r"There is: trivia_qa/train\.jsonl"):
        load("triviaqa", data=tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        load("triviaqa", data=tmp_path / "nowhere")


def test_one_arc_set_is_never_read_from_the_folder_of_the_other(write, tmp_path):
    write("ai2_arc/ARC-Easy/test.jsonl", arc(8))
    assert len(load("arc_easy", data=tmp_path / "ai2_arc").items) == 8
    assert len(load("arc_easy", data=tmp_path / "ai2_arc/ARC-Easy").items) == 8
    for at in ("ai2_arc/ARC-Easy", "ai2_arc/ARC-Easy/test.jsonl"):
        with pytest.raises(DataError, match="holds arc_easy, not arc_challenge"):
            load("arc_challenge", data=tmp_path / at)


def test_an_explicit_folder_wins_over_the_environment(write, tmp_path, problems, monkeypatch):
    write("one/gsm8k/test.jsonl", problems[:8])
    write("two/gsm8k/test.jsonl", problems[:12])
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path / "one"))
    assert len(load("gsm8k").items) == 8
    assert len(load("gsm8k", data=tmp_path / "two").items) == 12


def test_a_revision_of_the_hub_makes_no_sense_with_local_data(tmp_path):
    with pytest.raises(InputError, match="revision"):
        load("gsm8k", data=tmp_path, revision="main")


# ------------------------------------------------------------------------------------------------- the splits
def test_the_test_split_is_preferred_and_shots_come_from_train(write, tmp_path, problems):
    write("gsm8k/test.jsonl", problems[:10])
    write("gsm8k/train.jsonl", problems[10:])
    loaded = load("gsm8k", data=tmp_path)
    assert (loaded.provenance.split, loaded.provenance.shot_source) == ("test", "train")
    assert loaded.shots[0].item_id == "train-00000"
    assert {i.item_id for i in loaded.items}.isdisjoint(i.item_id for i in loaded.shots)


def test_validation_is_evaluated_without_test_and_gives_shots_with_it(write, tmp_path):
    write("ARC-Challenge/validation.jsonl", arc(8, "v"))
    alone = load("arc_challenge", data=tmp_path)
    assert (alone.provenance.split, alone.provenance.shot_source) == ("validation", "pool")
    write("ARC-Challenge/test.jsonl", arc(8, "t"))
    both = load("arc_challenge", data=tmp_path)
    assert (both.provenance.split, both.provenance.shot_source) == ("test", "validation")


def test_a_split_whose_answers_are_hidden_is_never_used(write, tmp_path):
    row = {"query": "q", "endings": ["a", "b"], "label": "0"}
    write("hellaswag/validation.jsonl", [row | {"query": f"q{n}"} for n in range(8)])
    write("hellaswag/test.jsonl", [row | {"label": ""}])
    assert load("hellaswag", data=tmp_path).provenance.shot_source == "pool"


def test_an_item_that_both_splits_have_is_an_error(write, tmp_path):
    write("ARC-Easy/test.jsonl", arc(8))
    write("ARC-Easy/train.jsonl", arc(9)[7:])
    with pytest.raises(DataError, match=r"test and in train.*q7"):
        load("arc_easy", data=tmp_path)


def test_shots_of_a_long_split_come_from_a_fixed_part_of_it_and_keep_their_row_numbers(
    write, tmp_path, problems, monkeypatch
):
    write("gsm8k/test.jsonl", problems[:4])
    write("gsm8k/train.jsonl", problems)
    whole = load("gsm8k", data=tmp_path).shots
    monkeypatch.setattr(assembling, "MAX_SHOT_ROWS", 9)
    part = load("gsm8k", data=tmp_path, seed=3).shots
    assert len(part) == 9
    assert part == load("gsm8k", data=tmp_path, seed=4).shots
    assert all(shot in whole for shot in part)
    assert [s.item_id for s in part] == sorted(s.item_id for s in part)


# ----------------------------------------------------------------------------------------------- the shot pool
def items(n, *, subject=None):
    return [
        Item(
            item_id=f"t-{i}",
            benchmark="gsm8k",
            question=f"{i}",
            reference=TextAnswer(("a",)),
            fields={"subject": subject(i)} if subject else {},
        )
        for i in range(n)
    ]


@given(st.integers(0, 300), st.integers(0, 5))
@settings(max_examples=40)
def test_a_pool_has_32_items_or_a_quarter_in_source_order(n, seed):
    pool = shot_pool(catalog.get("gsm8k"), items(n), seed=seed)
    assert len(pool) == min(POOL_SIZE, n // 4)
    assert [int(i.item_id[2:]) for i in pool] == sorted({int(i.item_id[2:]) for i in pool})


@given(st.integers(160, 260), st.integers(1, 40), st.integers(0, 3))
@settings(max_examples=30)
def test_new_items_push_out_of_a_pool_only_what_they_replace(n, more, seed):
    benchmark = catalog.get("gsm8k")
    before = {i.item_id for i in shot_pool(benchmark, items(n), seed=seed)}
    after = {i.item_id for i in shot_pool(benchmark, items(n + more), seed=seed)}
    old = {i.item_id for i in items(n)}
    assert after & old <= before
    assert len(before - after) == len(after - old)


@given(st.permutations(range(60)))
@settings(max_examples=20)
def test_a_pool_does_not_depend_on_the_order_of_rows(order):
    benchmark, all_items = catalog.get("gsm8k"), items(60)
    shuffled = shot_pool(benchmark, [all_items[p] for p in order], seed=0)
    assert {i.item_id for i in shuffled} == {i.item_id for i in shot_pool(benchmark, all_items, seed=0)}


def test_another_seed_sets_another_pool_aside():
    benchmark = catalog.get("gsm8k")
    assert shot_pool(benchmark, items(200), seed=0) != shot_pool(benchmark, items(200), seed=1)


def test_where_shots_share_the_subject_every_subject_has_a_pool_of_its_own():
    pool = shot_pool(catalog.get("mmlu"), items(200, subject=lambda i: "ab"[i % 2]), seed=0)
    assert [sum(i.fields["subject"] == s for i in pool) for s in "ab"] == [5, 5]


def test_pool_items_are_items_of_the_evaluated_split(write, tmp_path):
    write("mmlu/test.jsonl", mmlu(["anatomy", "world_religions"], 30))
    loaded = load("mmlu", data=tmp_path)
    assert all(s in loaded.items for s in loaded.shots)
    assert len(loaded.shots) == 10


# --------------------------------------------------------------------------------------------- faults and ids
def test_one_error_tells_up_to_twenty_bad_rows_with_line_field_and_value(write, tmp_path, problems):
    rows = [dict(p) for p in problems]
    for n in range(5, 30):
        rows[n]["answer"] = f"It is {n}."
    write("gsm8k/test.jsonl", rows)
    with pytest.raises(DataError) as caught:
        load("gsm8k", data=tmp_path)
    told = str(caught.value)
    assert "25 of 40 rows do not fit" in told
    assert (
        "gsm8k/test.jsonl, line 6 (row 5): field 'answer': expected a solution that ends in '#### N'" in told
    )
    assert "'It is 5.' (text)" in told
    assert told.count("gsm8k/test.jsonl, line") == 20
    assert "and 5 more rows" in told


def test_a_line_that_is_no_json_is_one_of_the_bad_rows(write, tmp_path):
    write("gsm8k/test.jsonl", '{"question": "a", "answer": "#### 1"}\nnot json\n')
    with pytest.raises(DataError, match=r"1 of 2 rows.*\n.*line 2 \(row 1\): expected JSON"):
        load("gsm8k", data=tmp_path)


def test_repeated_ids_are_an_error_that_names_them_and_their_rows(write, tmp_path):
    write("ARC-Easy/test.jsonl", [*arc(8), *arc(3)])
    with pytest.raises(DataError, match="'q0' in rows 0, 8; 'q1' in rows 1, 9"):
        load("arc_easy", data=tmp_path)


def test_every_item_has_its_content_hash_and_the_whole_has_one(write, tmp_path, problems):
    write("gsm8k/test.jsonl", problems)
    before = load("gsm8k", data=tmp_path)
    assert all(i.content_hash == content_hash(i) for i in (*before.items, *before.shots))
    assert load("gsm8k", data=tmp_path) == before
    problems[3]["question"] += " "
    write("gsm8k/test.jsonl", problems)
    after = load("gsm8k", data=tmp_path)
    assert after.provenance.content_hash != before.provenance.content_hash
    assert [a.content_hash == b.content_hash for a, b in zip(after.items, before.items, strict=True)].count(
        False
    ) == 1


def test_the_same_content_has_the_same_hash_in_every_format(write, tmp_path, problems):
    write("a/gsm8k/test.jsonl.gz", problems)
    write("b/gsm8k/data/test-00000-of-00001.parquet", problems)
    one, two = (load("gsm8k", data=tmp_path / at).provenance.content_hash for at in "ab")
    assert one == two


# ------------------------------------------------------------------------------------------------- duplicates
def item(name, question, reference, *, group=None, **fields):
    return Item(
        item_id=name, benchmark="x", question=question, reference=reference, group=group, fields=fields
    )


def test_duplicates_are_later_items_that_ask_the_same_with_the_same_answer():
    a, b = TextAnswer(("Paris",)), TextAnswer(("paris ", "Lutetia"))
    found = duplicates(
        [
            item("1", "Capital of  France?", a),
            item("2", "capital of france?\n", b),
            item("3", "capital of france?", TextAnswer(("Lyon",))),
            item("4", "Capital of France?", a),
        ]
    )
    assert found == ("2", "4")


def test_options_in_another_order_are_the_same_question():
    one = item("1", "q", ChoiceAnswer(0, ("a", "b")))
    assert duplicates(
        [one, item("2", "q", ChoiceAnswer(1, ("b", "a"))), item("3", "q", ChoiceAnswer(1, ("a", "b")))]
    ) == ("2",)


def test_another_passage_is_another_question_and_another_subject_is_not():
    a = TextAnswer(("x",))
    assert not duplicates([item("1", "q", a, passage="one"), item("2", "q", a, passage="two")])
    one, two = (
        item(n, "q", a, group=n, subject=n, subject_text=n.replace("_", " ")) for n in ("us_law", "law")
    )
    assert duplicates([one, two]) == ("law",)


def test_paths_in_messages_and_provenance_are_relative_to_the_data_folder(write, tmp_path, problems):
    write("gsm8k/test.jsonl", problems)
    assert str(tmp_path) not in load("gsm8k", data=tmp_path).provenance.location
    write("gsm8k/test.jsonl", [{"question": "q"}])
    with pytest.raises(DataError) as caught:
        load("gsm8k", data=Path(tmp_path))
    assert str(tmp_path) not in str(caught.value)
