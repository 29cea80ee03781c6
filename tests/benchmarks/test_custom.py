"""A benchmark of one's own: what its TOML file may say and how its rows are read."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.benchmarks import catalog
from steelyard.benchmarks.base import Capability
from steelyard.benchmarks.custom import load_custom, read_custom
from steelyard.benchmarks.custom_rows import choice
from steelyard.benchmarks.fields import FieldError
from steelyard.benchmarks.sources import load
from steelyard.core.errors import DataError
from steelyard.core.types import ChoiceAnswer, NumberAnswer, Option, ProgramAnswer, TextAnswer


def own(write, toml, rows, file="own.jsonl"):
    write(file, rows)
    return write("own.toml", f'file = "{file}"\n{toml}')


def references(write, toml, *values, **row):
    rows = [{"question": f"q{n}?", "answer": v, **row} for n, v in enumerate(values)]
    return [i.reference for i in load_custom(own(write, toml, rows), seed=0).items]


def test_the_least_that_works_is_one_line_and_two_fields(write):
    loaded = load_custom(own(write, "", [{"question": "Capital of Peru?", "answer": "Lima"}] * 1), seed=0)
    assert (loaded.benchmark.name, loaded.benchmark.title) == ("own", "own")
    assert loaded.benchmark.capability is Capability.LANGUAGE
    assert loaded.items[0].item_id == "own-00000"
    assert loaded.items[0].reference == TextAnswer(("Lima",))
    assert loaded.provenance.kind == "local"
    assert loaded.provenance.location == "own.toml, own.jsonl"


def test_everything_that_can_be_said_is_heard(write):
    toml = """
    name = "reading-2"
    title = "Reading, second part"
    capability = "reading comprehension"
    answer_type = "text"
    shots = 2
    shot_file = "shots.jsonl"
    scorers = ["f1", "exact_match"]
    pool = ["passage"]
    shot_match = "passage"
    card = "Mine."
    [fields]
    question = "q"
    reference = "a.texts"
    distractors = "wrong"
    group = "page"
    id = "key"
    extra = ["passage"]
    [templates.plain]
    question = "{{ passage }} {{ question }}"
    """
    row = {
        "q": "Who?",
        "a": {"texts": ["Ann", "Anna", "Ann"]},
        "wrong": ["Bob"],
        "page": 3,
        "passage": "Ann ran.",
    }
    write("shots.jsonl", [row | {"key": "s1"}])
    path = own(write, toml, [row | {"key": n} for n in (7, 8)])
    loaded, custom = load(str(path)), read_custom(path)
    benchmark, item = loaded.benchmark, loaded.items[0]
    assert (benchmark.name, benchmark.capability, benchmark.shots) == ("reading-2", Capability.READING, 2)
    assert (benchmark.scorers, benchmark.pool, benchmark.shot_match) == (
        ("f1", "exact_match"),
        ("passage",),
        "passage",
    )
    assert (item.item_id, item.group, item.benchmark) == ("7", "3", "reading-2")
    assert item.reference == TextAnswer(("Ann", "Anna"))
    assert item.distractors == (Option("Bob", "Bob", "data"),)
    assert item.fields == {"passage": "Ann ran."}
    assert [s.item_id for s in loaded.shots] == ["s1"]
    assert loaded.provenance.shot_source == "shots"
    assert custom.templates == {"plain": {"question": "{{ passage }} {{ question }}"}}
    assert catalog.get(str(path)).name == "reading-2"


def test_a_plain_template_stands_in_unless_fields_would_go_unshown(write):
    assert "{{ question }}" in read_custom(own(write, "", [])).templates["plain"]["question"]
    assert read_custom(own(write, '[fields]\nextra = ["passage"]', [])).templates == {}


def test_forms_that_make_no_sense_are_refused_by_name(write):
    def refused(toml):
        return set(read_custom(own(write, toml, [])).benchmark().refuse)

    assert refused("") == {"mc", "mc_ao", "ll_ao", "letters"}
    assert refused('[fields]\ndistractors = "wrong"') == {"mc_ao", "ll_ao"}
    assert refused('answer_type = "choice"') == {"mc_ao", "ll_ao"}
    assert refused('answer_type = "number"\n[fields]\nworked = "w"') == {"mc", "mc_ao", "letters"}
    assert refused('answer_type = "number"\n[fields]\nworked = "w"\ndistractors = "d"') == set()
    assert refused('answer_type = "program"\n[fields]\ndistractors = "d"') == {"mc_ao", "ll_ao", "letters"}


# -------------------------------------------------------------------------------------------------- the choice
OPTIONS = ("0", "4", "2", "6")


def choices(write, toml, *values, options=OPTIONS):
    found = references(write, f'answer_type = "choice"\n{toml}', *values, choices=list(options))
    return [r.index for r in found]


def test_a_choice_may_be_named_by_index_by_text_or_by_letter(write):
    assert choices(write, 'reference_is = "index"', 0, 3, "1") == [0, 3, 1]
    assert choices(write, 'reference_is = "text"', "0", "6", "2") == [0, 3, 2]
    assert choices(write, 'reference_is = "letter"', "A", "d") == [0, 3]


def test_undeclared_an_integer_is_an_index_and_a_text_is_an_options_text(write):
    assert choices(write, "", 0, 3) == [0, 3]
    # "4" and "6" are no index of four options, and "2" would be the same one either way
    assert choices(write, "", "4", "6", "2", "0") == [1, 3, 2, 0]


def test_digits_with_two_readings_have_to_be_declared(write):
    # row 24: "1" is the text of option 0, and an index of option 1
    with pytest.raises(DataError, match=r"in one way only.*option 0.*option 1.*reference_is"):
        choices(write, "", "1", options=("1", "0"))
    assert choices(write, 'reference_is = "text"', "1", options=("1", "0")) == [0]
    assert choices(write, 'reference_is = "index"', "1", options=("1", "0")) == [1]


def test_letters_with_two_readings_have_to_be_declared(write):
    with pytest.raises(DataError, match="in one way only"):
        choices(write, "", "A", options=("B", "A"))
    assert choices(write, "", "A", options=("A", "B")) == [0]


@pytest.mark.parametrize(
    ("toml", "value", "said"),
    [
        ("", 4, "an index from 0 to 3.*count from 1"),
        ("", True, "exactly the text of an option"),
        ("", None, "exactly the text"),
        ("", 1.0, "exactly the text"),
        ("", "B", 'say reference_is = "letter"'),
        ("", "3", 'say reference_is = "index"'),
        ("", "18", "exactly the text"),
        ("", "4 ", "white space only"),
        ('reference_is = "letter"', "E", "a letter from A to D"),
        ('reference_is = "letter"', "AB", "a letter"),
        ('reference_is = "index"', "4", "an index from 0 to 3"),
        ('reference_is = "index"', -1, "an index"),
        ('reference_is = "text"', 1, "exactly the text"),
    ],
)
def test_a_reference_that_names_no_option_says_what_would(write, toml, value, said):
    with pytest.raises(DataError, match=said):
        choices(write, toml, value)


def test_a_text_that_two_options_have_is_refused(write):
    with pytest.raises(DataError, match=r"the text of options \[0, 2\]"):
        choices(write, 'reference_is = "text"', "x", options=("x", "y", "x"))


@given(st.lists(st.text("AB012 ", min_size=1, max_size=2), min_size=2, max_size=5, unique=True), st.data())
def test_an_undeclared_text_is_never_read_as_another_option(options, data):
    value = data.draw(st.sampled_from(options))
    try:
        found = choice(value, tuple(options), "a", None)
    except FieldError as error:
        assert "one way" in error.expected  # noqa: PT017 - some draws are ambiguous and must say so
    else:
        assert options[found] == value


def test_options_may_stand_in_fields_of_their_own_and_have_labels(write):
    rows = [{"question": "q", "answer": "2", "o1": "x", "o2": "y"}]
    toml = 'answer_type = "choice"\n[fields]\noptions = ["o1", "o2"]\nlabels = ["1", "2"]'
    assert load_custom(own(write, toml, rows), seed=0).items[0].reference == ChoiceAnswer(1, ("x", "y"))
    rows = [{"question": "q", "answer": "E", "choices": {"text": ["x", "y"], "label": ["B", "E"]}}]
    toml = '[fields]\noptions = "choices.text"\nlabels = "choices.label"'
    loaded = load_custom(own(write, toml, rows), seed=0)
    assert loaded.benchmark.answer_type == "choice"
    assert loaded.items[0].reference == ChoiceAnswer(1, ("x", "y"))
    with pytest.raises(DataError, match="one of the labels 'B'"):
        load_custom(own(write, toml, [rows[0] | {"answer": "A"}]), seed=0)


# ------------------------------------------------------------------------------------------ numbers and programs
def test_numbers_come_as_integers_as_decimals_and_as_text(write):
    found = references(write, 'answer_type = "number"', 18, 0.5, "$1,000", "-3", 145.0)
    assert [r.value for r in found] == [18, Decimal("0.5"), 1000, -3, 145]
    assert [r.text for r in found] == ["18", "0.5", "$1,000", "-3", "145.0"]


@pytest.mark.parametrize("value", ["1,5", "about 5", True, None, "", "1e5", [5]])
def test_what_is_no_number_is_refused(write, value):
    with pytest.raises(DataError, match="field 'answer'"):
        references(write, 'answer_type = "number"', value)


def test_worked_solutions_and_worked_distractors_go_together(write):
    toml = 'answer_type = "number"\n[fields]\nworked = "w"\ndistractors = "d"'
    row = {"question": "q", "answer": 3, "w": "1+2=3", "d": [{"full": "1+2=4", "answer": 4}]}
    item = load_custom(own(write, toml, [row]), seed=0).items[0]
    assert item.reference == NumberAnswer(Decimal(3), "3", "1+2=3")
    assert item.distractors == (Option("1+2=4", "4", "data"),)
    with pytest.raises(DataError, match=r"an object.*worked solution"):
        load_custom(own(write, toml, [row | {"d": ["1+2=4"]}]), seed=0)


def test_programs_are_data(write):
    toml = 'answer_type = "program"\n[fields]\nquestion = "prompt"\nreference = "canonical_solution"'
    row = {
        "prompt": "def f():\n",
        "canonical_solution": "    return 1\n",
        "entry_point": "f",
        "test": "assert f()",
    }
    item = load_custom(own(write, toml, [row]), seed=0).items[0]
    assert item.reference == ProgramAnswer("    return 1\n", "f", "assert f()")
    assert item.question == "def f():\n"


def test_a_number_where_a_text_is_meant_says_so(write):
    with pytest.raises(DataError, match='answer_type = "number"'):
        references(write, "", 18)


# ------------------------------------------------------------------------------------------------------- the ids
def test_ids_are_the_rows_own_where_all_have_one(write):
    rows = [{"id": f"x{n}", "question": "q", "answer": "a"} for n in range(3)]
    assert [i.item_id for i in load_custom(own(write, "", rows), seed=0).items] == ["x0", "x1", "x2"]
    del rows[1]["id"]
    assert load_custom(own(write, "", rows), seed=0).items[0].item_id == "own-00000"
    with pytest.raises(DataError, match="field 'id': expected a value"):
        load_custom(own(write, '[fields]\nid = "id"', rows), seed=0)


def test_a_pool_is_set_aside_where_there_is_no_shot_file(write):
    rows = [{"question": f"q{n}", "answer": "a"} for n in range(20)]
    loaded = load_custom(own(write, "shots = 2", rows), seed=0)
    assert (len(loaded.shots), loaded.provenance.shot_source) == (5, "pool")


# ------------------------------------------------------------------------------------------- faults of the TOML
@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('answr_type = "text"', "answr_type: unknown key. Did you mean answer_type"),
        ('[fields]\nquestoin = "q"', "fields.questoin: unknown key. Did you mean question"),
        ('answer_type = "letters"', "answer_type: Input should be"),
        ("shots = -1", "shots:"),
        ('shots = "2"', "shots:"),
        ('capability = "maths"', "capability: expected one of mathematical reasoning,"),
        ('name = "My Benchmark"', "name: expected lower-case"),
        ('name = "gsm8k"', "is a benchmark of the catalog"),
        ('name = "mini"', "is a benchmark of the catalog"),
        ('shot_file = "own.jsonl"', "another file"),
        ('shot_file = "own.csv"', "shot_file: expected a name that ends in"),
        ('pool = ["passage"]', "'passage' is not among fields.extra"),
        ('reference_is = "index"', "reference_is: belongs to answer_type"),
        ('answer_type = "text"\n[fields]\noptions = "o"', "fields.options: belongs to"),
        ('answer_type = "choice"\n[fields]\ndistractors = "d"', "leave it out"),
        ('answer_type = "choice"\n[fields]\noptions = ["o"]', "two or more"),
        ('answer_type = "text"\n[fields]\nworked = "w"', "fields.worked: belongs to"),
        ("answer_type =", "cannot be read as TOML"),
    ],
)
def test_what_a_toml_file_says_wrongly_is_named(write, toml, said):
    with pytest.raises(DataError, match=said):
        read_custom(own(write, toml, []))


def test_all_faults_of_a_toml_file_are_told_at_once(write):
    with pytest.raises(DataError) as caught:
        read_custom(own(write, 'titel = "x"\nshots = -1\nanswer_type = "essay"', []))
    assert all(word in str(caught.value) for word in ("titel", "shots", "answer_type"))


def test_files_that_are_not_there_are_named(write, tmp_path):
    with pytest.raises(DataError, match=r"no\.toml"):
        read_custom(tmp_path / "no.toml")
    with pytest.raises(DataError, match=r"There is no file gone\.jsonl"):
        load_custom(write("own.toml", 'file = "gone.jsonl"'), seed=0)
    with pytest.raises(DataError, match="file: Field required"):
        read_custom(write("own.toml", 'answer_type = "text"'))
