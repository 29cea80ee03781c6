"""`check` tells everything that is wrong with a benchmark of one's own, item by item."""

from __future__ import annotations

import tomllib

import pytest

from steelyard.benchmarks.check import check_file
from steelyard.benchmarks.custom import load_custom


def facts(n=120, **changed):
    return [{"question": f"What comes after {k}?", "answer": f"number {k + 1}", **changed} for k in range(n)]


def checked(write, rows, toml=""):
    write("own.jsonl", rows)
    return check_file(write("own.toml", f'file = "own.jsonl"\n{toml}'))


def said(report, severity=None):
    return [str(p) for p in report.problems if severity in {None, p.severity}]


def test_a_good_file_has_nothing_to_say_and_shows_how_it_was_understood(write):
    report = checked(write, facts())
    assert report.ok
    assert not report.problems
    assert (report.name, report.n_rows, report.n_items) == ("own", 120, 120)
    assert report.example == {"id": "own-00000", "question": "What comes after 0?", "right": "number 1"}


def test_every_fault_is_told_with_its_place_and_what_to_do(write):
    rows = facts()
    rows[3]["answer"] = ""
    del rows[5]["question"]
    rows[8]["question"] = "half a pair \udc00 here"
    rows[9]["answer"] = 7
    report = checked(write, rows)
    errors = said(report, "error")
    assert not report.ok
    assert (len(errors), report.n_items) == (4, 116)
    assert (
        errors[0]
        == "error: own.jsonl, line 4 (row 3): field 'answer': expected text that is not blank; got '' (text)"
    )
    assert "line 6 (row 5): field 'question'" in errors[1]
    assert [p.row for p in report.errors] == [3, 5, 8, 9]
    assert "answer_type" in errors[3]


def test_bad_lines_are_told_beside_bad_fields(write):
    lines = ['{"question": "a", "answer": "b"}', "{", '{"question": "a"}', "[]"]
    report = checked(write, "\n".join(lines))
    assert [p.row for p in report.errors] == [1, 2, 3]


@pytest.mark.parametrize("toml", ["", '[fields]\nid = "key"'])
def test_repeated_ids_are_errors_that_name_both_rows(write, toml):
    rows = [row | {"key": "same" if n in {2, 4} else f"k{n}"} for n, row in enumerate(facts())]
    report = checked(write, rows, toml)
    if toml:
        assert [p.row for p in report.errors] == [4]
        assert "the id of own.jsonl, line 3 (row 2)" in said(report, "error")[0]
    else:
        assert report.ok


def test_what_check_accepts_loads_and_what_it_refuses_does_not(write):
    good = checked(write, facts())
    assert good.ok
    assert len(load_custom(write("own.toml", 'file = "own.jsonl"'), seed=0).items) == good.n_items


@pytest.mark.parametrize(
    ("toml", "changed", "words"),
    [
        ("", {"question": "Is number 43 after 42?", "answer": "number 43"}, "stands in the question"),
        ("", {"answer": "number 43 "}, "white space"),
        ("", {"answer": "long " * 50}, "too long to be generated"),
        (
            "",
            {"question": " What comes after  0?", "answer": "Number 1"},
            "the same question and answer as own.jsonl",
        ),
        (
            "",
            {"question": "What comes after 0?"},
            "the same question as own.jsonl, line 1 (row 0) with another answer",
        ),
        ('[fields]\ndistractors = "w"', {"w": ["The Number 43!", "x"]}, "is a right answer"),
        ('[fields]\ndistractors = "w"', {"w": ["x", "X"]}, "the options repeat 'x'"),
        (
            'answer_type = "choice"\nreference_is = "index"',
            {"answer": 0, "choices": ["a", "b", "b"]},
            "the options repeat 'b'",
        ),
        (
            'answer_type = "number"\n[fields]\nworked = "w"',
            {"answer": 43, "w": "42+1=34"},
            "does not contain the answer",
        ),
    ],
)
def test_an_item_that_may_measure_something_else_gets_a_warning(write, toml, changed, words):
    defaults = {"w": ["wrong one", "wrong two"], "choices": ["first", "second", "third"]}
    rows = [row | defaults for row in facts()]
    if "choice" in toml:
        rows = [row | {"answer": n % 3} for n, row in enumerate(rows)]
    if "number" in toml:
        rows = [row | {"answer": n + 1, "w": f"{n}+1={n + 1}"} for n, row in enumerate(rows)]
    clean = checked(write, rows, toml)
    rows[42] |= changed
    report = checked(write, rows, toml)
    assert report.ok
    assert not any(words in s for s in said(clean))
    found = [p for p in report.warnings if words in str(p)]
    assert [p.row for p in found] == [42]


def test_answers_that_are_classes_may_stand_in_the_question(write):
    rows = [{"question": f"True or false: {n}?", "answer": ["true", "false"][n % 2]} for n in range(120)]
    assert not said(checked(write, rows))


def test_groups_of_one_item_and_few_items_are_told_once(write):
    rows = [row | {"topic": ["sea", "sea", "land", "land", "lnad"][n]} for n, row in enumerate(facts(5))]
    report = checked(write, rows, '[fields]\ngroup = "topic"')
    assert [p.row for p in report.warnings] == [None, None]
    assert "1 of 3 groups have one item ('lnad')" in "\n".join(said(report))
    assert "5 items: the 95 % interval" in "\n".join(said(report))


def choice_rows(n, right, wrong, at):
    rows = []
    for k in range(n):
        options = [f"{wrong} {k + 2000}", f"{wrong} {k + 3000}"]
        options.insert(at(k), f"{right} {k + 1000}")
        rows.append({"question": f"Which of {k}?", "choices": options, "answer": at(k)})
    return rows


def test_options_that_length_or_place_give_away_are_told_for_the_whole_file(write):
    toml = 'answer_type = "choice"'
    fair = checked(write, choice_rows(120, "word", "word", lambda k: k % 3), toml)
    assert not said(fair)
    long = checked(write, choice_rows(120, "a much longer right", "word", lambda k: k % 3), toml)
    assert "the longest option is the right one in 100% of 120 items (by chance 33%)" in said(long)[0]
    first = checked(write, choice_rows(120, "word", "word", lambda _: 0), toml)
    assert ["option 0 is the right one in 120 of 120 items with 3 options" in s for s in said(first)] == [
        True
    ]
    assert any("longest" in note for note in fair.notes)


def test_fields_that_no_template_shows_are_an_error(write):
    rows = facts(passage="Once.")
    assert not checked(write, rows, '[fields]\nextra = ["passage"]').ok
    assert checked(write, rows, '[fields]\nextra = ["passage"]\n[templates.plain]\nquestion = "x"').ok


def test_ids_that_only_some_rows_have_are_told(write):
    rows = facts()
    rows[0]["id"] = "x"
    assert "1 of 120 rows have a field 'id'" in said(checked(write, rows))[0]


def test_shots_are_checked_too(write):
    write("shots.jsonl", [{"question": "q", "answer": ""}, {"question": "q", "answer": "a"}])
    report = checked(write, facts(), 'shot_file = "shots.jsonl"')
    assert [p.place for p in report.errors] == ["shots.jsonl, line 1 (row 0)"]


@pytest.mark.parametrize("content", ["", "file =", 'file = "gone.jsonl"', 'fil = "own.jsonl"'])
def test_a_file_that_cannot_be_read_is_a_report_and_no_crash(write, content):
    report = check_file(write("own.toml", content))
    assert not report.ok
    assert report.n_items == 0


# ------------------------------------------------------------------------------------------------- rows alone
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"question": "q", "answer": "a"}, {"answer_type": "text"}),
        ({"Question": "q", "Answer": 18.0, "Body": "b"}, {"answer_type": "number"}),
        ({"problem": "q", "target": "$1,000"}, {"answer_type": "number"}),
        (
            {"query": "q", "choices": ["a", "b"], "gold": 1},
            {"answer_type": "choice", "reference_is": "index"},
        ),
        (
            {"query": "q", "endings": ["a", "b"], "label": "1"},
            {"answer_type": "choice", "reference_is": "index"},
        ),
        (
            {"question": "q", "options": ["a", "b"], "answer": "b"},
            {"answer_type": "choice", "reference_is": "text"},
        ),
        (
            {"question": "q", "options": ["a", "b"], "answer": "B"},
            {"answer_type": "choice", "reference_is": "letter"},
        ),
        (
            {"question": "q", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"},
            {"answer_type": "choice"},
        ),
        ({"question": "q", "answerA": "a", "answerB": "b", "label": "2"}, {"answer_type": "choice"}),
        (
            {"question": "q", "correct_answer": "a", "distractor1": "b", "distractor2": "c"},
            {"answer_type": "text"},
        ),
        (
            {"question": "q", "answers": {"text": ["a"], "answer_start": [0]}, "context": "a"},
            {"answer_type": "text"},
        ),
        ({"question": "q", "answer": {"value": "a", "aliases": ["b"]}}, {"answer_type": "text"}),
        (
            {
                "task_id": "t/0",
                "prompt": "def f():\n",
                "canonical_solution": " 1",
                "test": "t",
                "entry_point": "f",
            },
            {"answer_type": "program"},
        ),
    ],
)
def test_rows_alone_are_understood_and_the_guess_is_told_as_toml(write, tmp_path, row, expected):
    path = write("rows.jsonl", [row])
    report = check_file(path)
    assert report.ok, said(report)
    table = tomllib.loads(report.guessed)
    assert expected.items() <= table.items()
    # the guess is a benchmark as it stands, but for a template where fields need one
    shown = "" if "extra" not in table["fields"] else '\n[templates.plain]\nquestion = "{{ question }}"\n'
    again = load_custom(write("guess.toml", report.guessed + shown), seed=0)
    assert len(again.items) == report.n_items == 1


def test_rows_that_cannot_be_understood_say_which_fields_there_are(write):
    report = check_file(write("rows.jsonl", [{"text": "no question here"}]))
    assert "Most rows have the fields text" in said(report)[0]
    assert "[fields]" in said(report)[0]
