"""Rows in the schemas of the hub and of local copies, and rows that do not fit."""

from __future__ import annotations

from decimal import Decimal

import pytest

from steelyard.benchmarks import catalog
from steelyard.benchmarks.fields import FieldError
from steelyard.benchmarks.hellaswag import preprocess
from steelyard.core.types import ChoiceAnswer, NumberAnswer, ProgramAnswer, TextAnswer

GSM8K = {"question": "How many?", "answer": "2*9=<<2*9=18>>18\n#### 18"}
TRIVIAQA = {
    "question": "Who?",
    "question_id": "tc_1",
    "question_source": "http://www.triviacountry.com/",
    "entity_pages": {"title": [], "filename": [], "wiki_context": []},
    "search_results": {"title": [], "search_context": []},
    "answer": {
        "value": "Onion",
        "aliases": ["Onions", "Onion", "Bulb onion", "Onions"],
        "normalized_aliases": ["onions", "onion"],
        "normalized_value": "onion",
        "matched_wiki_entity_name": "",
        "type": "WikipediaEntity",
    },
}
SQUAD = {
    "id": "56be",
    "title": "Super_Bowl_50",
    "context": "The Broncos won.",
    "question": " Who won?",
    "answers": {"text": ["The Broncos", "Broncos", "Broncos"], "answer_start": [0, 4, 4]},
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": "def f(x):\n    ''' Doc '''\n",
    "entry_point": "f",
    "canonical_solution": "    return x\n",
    "test": "\n\ndef check(candidate):\n    assert candidate(1) == 1\n",
}
MMLU = {"question": "Degree?", "subject": "abstract_algebra", "choices": ["0", "4", "2", "6"], "answer": 1}
BOOLQ = {"question": "is it", "passage": "It is.", "answer": True}
ARC = {
    "id": "Mercury_1",
    "question": "Which?",
    "choices": {"text": ["w", "x", "y"], "label": ["1", "2", "3"]},
    "answerKey": "3",
}
HELLASWAG = {
    "ind": 4,
    "activity_label": "Removing ice from car",
    "ctx_a": "Then, the man writes over the snow [header] on the window.",
    "ctx_b": "then  He continues",
    "ctx": "unused",
    "endings": ["goes. [step]", "[title] stops", "a [substeps] b", " sits "],
    "source_id": "activitynet~v_1",
    "split": "val",
    "split_type": "indomain",
    "label": "3",
}
ROWS = {
    "gsm8k": GSM8K,
    "triviaqa": TRIVIAQA,
    "squad": SQUAD,
    "humaneval": HUMANEVAL,
    "mmlu": MMLU,
    "boolq": BOOLQ,
    "arc_easy": ARC,
    "arc_challenge": ARC,
    "hellaswag": HELLASWAG,
}


def parse(name, **changed):
    return catalog.get(name).parse(ROWS[name] | changed, 7, "test")


def test_gsm8k_keeps_the_worked_solution_and_reads_the_number_after_the_mark():
    assert parse("gsm8k").reference == NumberAnswer(Decimal(18), "18", GSM8K["answer"])
    assert parse("gsm8k").item_id == "test-00007"
    assert parse("gsm8k", answer="####   -1,450,000.50 ").reference == NumberAnswer(
        Decimal("-1450000.50"), "-1,450,000.50", "####   -1,450,000.50 "
    )


def test_triviaqa_puts_the_value_first_and_names_every_alias_once():
    item = parse("triviaqa")
    assert item.reference == TextAnswer(("Onion", "Onions", "Bulb onion"))
    # the hub's validation rows repeat questions: the id is the row, the question is the group
    assert (item.item_id, item.group) == ("test-00007", "tc_1")


def test_triviaqa_needs_neither_ids_nor_normalised_aliases():
    item = catalog.get("triviaqa").parse(
        {"question": "Who?", "answer": {"value": "X", "aliases": []}}, 0, "validation"
    )
    assert (item.reference, item.group) == (TextAnswer(("X",)), None)


def test_squad_takes_one_reference_or_several_and_groups_by_article():
    item = parse("squad")
    assert item.reference == TextAnswer(("The Broncos", "Broncos"))
    assert item.fields == {"passage": "The Broncos won.", "title": "Super_Bowl_50"}
    assert (item.item_id, item.group, item.question) == ("56be", "Super_Bowl_50", " Who won?")
    assert parse("squad", answers={"text": ["A"], "answer_start": [0]}).reference == TextAnswer(("A",))


def test_humaneval_keeps_the_prompt_to_the_last_newline():
    item = parse("humaneval")
    assert item.question == HUMANEVAL["prompt"]
    assert item.reference == ProgramAnswer("    return x\n", "f", HUMANEVAL["test"])
    assert item.item_id == "HumanEval/0"


def test_mmlu_names_its_subject_as_group_and_in_readable_form():
    item = parse("mmlu")
    assert item.reference == ChoiceAnswer(1, ("0", "4", "2", "6"))
    assert item.group == "abstract_algebra"
    assert item.fields == {"subject": "abstract_algebra", "subject_text": "abstract algebra"}


def test_boolq_has_no_before_yes_and_groups_questions_of_one_passage():
    assert parse("boolq").reference == ChoiceAnswer(1, ("no", "yes"))
    assert parse("boolq", answer=False).reference == ChoiceAnswer(0, ("no", "yes"))
    assert parse("boolq", question="another").group == parse("boolq").group
    assert parse("boolq", passage="Other.").group != parse("boolq").group


@pytest.mark.parametrize(
    ("labels", "key"), [(["A", "B", "C"], "C"), (["1", "2", "3"], "3"), (["A", "B", "E"], "E")]
)
def test_arc_matches_the_key_to_its_label(labels, key):
    item = parse("arc_easy", choices={"text": ["w", "x", "y"], "label": labels}, answerKey=key)
    assert item.reference == ChoiceAnswer(2, ("w", "x", "y"))
    assert item.benchmark == "arc_easy"


def test_hellaswag_of_the_hub_is_preprocessed_as_the_standard_task_does():
    item = parse("hellaswag")
    # str.capitalize lowers the rest; one pass over double spaces; marks at an end leave their blank
    assert item.question == (
        "Removing ice from car: Then, the man writes over the snow on the window. Then he continues"
    )
    assert item.reference == ChoiceAnswer(3, ("goes. ", " stops", "a b", "sits"))
    assert (item.item_id, item.group) == ("test-00007", "activitynet~v_1")


def test_hellaswag_rows_that_are_preprocessed_are_left_alone():
    row = {"ind": 1, "query": "Done already  [x]", "endings": ["goes. ", " stops", "a", "b"], "label": "0"}
    item = catalog.get("hellaswag").parse(row, 0, "validation")
    assert item.question == "Done already  [x]"
    assert item.reference == ChoiceAnswer(0, ("goes. ", " stops", "a", "b"))
    assert item.group is None
    # ... and the pass itself would change them: it is not idempotent
    assert preprocess(preprocess("goes. [step]")) != preprocess("goes. [step]")


def test_hellaswag_endings_that_still_have_marks_are_not():
    row = {"query": "q", "endings": ["Bake [title] it", "b"], "label": 1}
    assert catalog.get("hellaswag").parse(row, 0, "v").reference == ChoiceAnswer(1, ("Bake. it", "b"))


@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_needed_field_is_named_when_it_is_missing(name):
    unused = {
        "question_source",
        "question_id",
        "entity_pages",
        "search_results",
        "ind",
        "ctx",
        "split",
        "split_type",
    }
    for field in ROWS[name].keys() - unused - {"source_id"}:
        row = {k: v for k, v in ROWS[name].items() if k != field}
        with pytest.raises(FieldError, match="no such field") as caught:
            catalog.get(name).parse(row, 0, "test")
        assert caught.value.field.split(".")[0] == field


@pytest.mark.parametrize(
    ("name", "changed", "field"),
    [
        ("gsm8k", {"answer": "It is 18."}, "answer"),
        ("gsm8k", {"answer": "#### eighteen"}, "answer"),
        ("gsm8k", {"answer": "####"}, "answer"),
        ("gsm8k", {"question": "  "}, "question"),
        ("gsm8k", {"question": 5}, "question"),
        ("gsm8k", {"question": "a \ud800 b"}, "question"),
        ("gsm8k", {"question": "a \x00 b"}, "question"),
        ("triviaqa", {"answer": {"value": "X", "aliases": ["Y", " "]}}, "answer.aliases[1]"),
        ("triviaqa", {"answer": {"value": "", "aliases": ["Y"]}}, "answer.value"),
        ("triviaqa", {"answer": {"value": "X", "aliases": "Y"}}, "answer.aliases"),
        ("triviaqa", {"answer": "X"}, "answer"),
        ("squad", {"answers": {"text": [], "answer_start": []}}, "answers.text"),
        ("squad", {"answers": {"text": [3]}}, "answers.text[0]"),
        ("humaneval", {"entry_point": "f(1); import os"}, "entry_point"),
        ("mmlu", {"answer": 4}, "answer"),
        ("mmlu", {"answer": -1}, "answer"),
        ("mmlu", {"answer": "1"}, "answer"),
        ("mmlu", {"answer": True}, "answer"),
        ("mmlu", {"answer": 1.0}, "answer"),
        ("mmlu", {"choices": "['a', 'b']"}, "choices"),
        ("mmlu", {"choices": ["a", "", "b", "c"]}, "choices[1]"),
        ("mmlu", {"choices": ["a"]}, "choices"),
        ("boolq", {"answer": 1}, "answer"),
        ("boolq", {"answer": "true"}, "answer"),
        ("arc_easy", {"answerKey": "D"}, "answerKey"),
        ("arc_easy", {"answerKey": 3}, "answerKey"),
        ("arc_easy", {"choices": {"text": ["w", "x"], "label": ["1", "2", "3"]}}, "choices"),
        ("arc_easy", {"choices": {"text": ["w", "x"], "label": ["1", "1"]}}, "choices.label"),
        ("hellaswag", {"label": ""}, "label"),
        ("hellaswag", {"label": "4"}, "label"),
        ("hellaswag", {"label": "03"}, "label"),
        ("hellaswag", {"label": "²"}, "label"),
        ("hellaswag", {"label": True}, "label"),
        ("hellaswag", {"endings": ["a", "[title]", "b", "c"]}, "endings[1]"),
    ],
)
def test_a_gold_or_text_that_does_not_fit_is_an_error_that_names_its_field(name, changed, field):
    with pytest.raises(FieldError) as caught:
        parse(name, **changed)
    assert caught.value.field == field


def test_every_benchmark_says_what_it_measures_and_refuses_by_name():
    forms = {"nlg", "mc", "mc_rnd", "ll", "mc_ao", "ll_ao", "letters"}
    for name in ROWS:
        benchmark = catalog.get(name)
        assert benchmark.name == name
        assert benchmark.refuse.keys() < forms
        assert benchmark.refuse.keys().isdisjoint({"nlg", "ll", "mc_rnd"})
        assert "mc_ao" in benchmark.refuse
        assert benchmark.answer_type == parse(name).answer_type
        assert benchmark.scorers
    assert "ll_ao" not in catalog.get("gsm8k").refuse
