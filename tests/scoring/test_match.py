from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.text import answer_class, normalise_answer
from steelyard.core.types import ChoiceAnswer, Finish, Status, TextAnswer
from steelyard.scoring.match import contained, exact, exact_legacy, f1, judge_match, legacy_form


@pytest.mark.parametrize(
    ("text", "gold", "same"),
    [
        ("The  Beatles!", "beatles", True),
        ("St. Louis", "st louis", True),
        ("a cat and the dog", "cat and dog", True),
        ("theatre", "atre", False),  # articles are whole words
        ("U.S.A.", "usa", True),
        ("10,000", "10000", True),
        ("t-he end", "end", True),  # punctuation goes before articles
        ("“Norway”", "Norway", False),  # only ASCII punctuation goes
        ("Norway", "Norway Sweden", False),
        ("The The", "the the", True),
        ("The The", "a", False),  # both normalise to nothing, and are not the same
        ("???", "!!!", False),
        ("!!!", "!!!", True),
        ("", "the", False),
    ],
)
def test_exact_match_follows_squad_and_never_equates_two_empty_forms(text, gold, same):
    assert exact(text, [gold]) is same


@pytest.mark.parametrize(
    ("text", "gold", "value"),
    [
        ("the cat", "cat", 1.0),
        ("black cat", "cat", 2 / 3),  # precision 1/2, recall 1
        ("big black cat", "black dog", 0.4),  # 1/3 and 1/2
        ("cat cat", "cat", 2 / 3),  # tokens count as often as both have them
        ("cat cat dog", "cat cat cat", 2 / 3),
        ("dog", "cat", 0.0),
        ("the", "a", 0.0),
        ("the", "cat", 0.0),
        ("cat, dog.", "dog cat", 1.0),  # order does not count
    ],
)
def test_f1_is_that_of_squad_computed_by_hand(text, gold, value):
    assert f1(text, gold) == pytest.approx(value)


def test_f1_is_the_best_over_references():
    reference = TextAnswer(("a red house", "black cat", "dog"))
    assert judge_match("f1", "the cat", Finish.EOS, reference).value == pytest.approx(2 / 3)


def test_legacy_match_keeps_articles_and_inner_white_space():
    assert exact_legacy(" ST. louis\n", ["Paris", "St Louis"])
    assert not exact_legacy("the St. Louis", ["St. Louis"])
    assert not exact_legacy("St.  Louis", ["St. Louis"])


def test_containment_ignores_case_and_takes_the_text_literally():
    assert contained("It was DENVER (broncos).", ["Carolina", "denver (Broncos)"]) == "denver (Broncos)"
    assert contained("abc", ["a.c"]) is None
    assert contained("anything", ["", " "]) is None


@pytest.mark.parametrize("scorer", ["exact_match", "exact_match_legacy", "f1", "contains"])
def test_writing_nothing_is_unparsed_and_an_unusable_reference_is_an_error(scorer):
    empty = judge_match(scorer, " \n", Finish.EOS, TextAnswer(("!!!", "x")))
    assert (empty.status, empty.value) == (Status.UNPARSED, 0.0)
    assert judge_match(scorer, "", Finish.LENGTH, TextAnswer(("x",))).status is Status.CUT
    for reference in (TextAnswer(()), TextAnswer(("",)), ChoiceAnswer(5, ("x",)), ChoiceAnswer(-1, ("x",))):
        verdict = judge_match(scorer, "x", Finish.EOS, reference)
        assert (verdict.status, verdict.value) == (Status.ERROR, None)


def test_a_choice_is_matched_by_the_text_of_the_right_option():
    reference = ChoiceAnswer(1, ("no", "yes"))
    verdict = judge_match("exact_match", " Yes. ", Finish.EOS, reference)
    assert (verdict.value, verdict.extracted) == (1.0, "Yes.")
    assert judge_match("exact_match", "no", Finish.EOS, reference).value == 0.0


def test_a_digit_string_is_never_taken_for_an_index():
    assert judge_match("exact_match", "1", Finish.EOS, ChoiceAnswer(0, ("1", "18"))).value == 1.0
    assert judge_match("exact_match", "0", Finish.EOS, ChoiceAnswer(0, ("1", "18"))).value == 0.0


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_normal_forms_are_idempotent(text):
    for form in (normalise_answer, answer_class, legacy_form):
        assert form(form(text)) == form(text)


@given(st.text(max_size=40), st.lists(st.text(max_size=20), max_size=3))
@settings(max_examples=200, deadline=None)
def test_arbitrary_texts_never_raise_and_a_text_always_matches_itself(text, golds):
    for scorer in ("exact_match", "exact_match_legacy", "f1", "contains"):
        verdict = judge_match(scorer, text, Finish.EOS, TextAnswer(tuple(golds)))
        assert verdict.value is None or 0 <= verdict.value <= 1
        if text.strip():
            itself = judge_match(scorer, text, Finish.EOS, TextAnswer((*golds, text.strip())))
            assert itself.value == 1.0


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=200, deadline=None)
def test_f1_is_symmetric_and_bounded_by_exact_match(text, gold):
    assert f1(text, gold) == pytest.approx(f1(gold, text))
    assert not exact(text, [gold]) or f1(text, gold) == 1.0
