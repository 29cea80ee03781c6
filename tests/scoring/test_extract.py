from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.types import Finish, NumberAnswer, Status
from steelyard.scoring.extract import (
    harness_form,
    judge_flexible,
    judge_numeric,
    judge_strict,
    read_number,
)

REFERENCE = NumberAnswer(Decimal(18), "18", "16 - 3 = <<16-3=13>>13, and so on $18.\n#### 18")
MODELS = {
    "6b_finetuning": 0.2168,
    "6b_verification": 0.3904,
    "175b_finetuning": 0.3472,
    "175b_verification": 0.5625,
}


@pytest.mark.parametrize(
    ("text", "value", "how"),
    [
        ("#### 18", 18, "hashes"),
        ("####18", 18, "hashes"),
        ("#### $18", 18, "hashes"),
        ("#### 18 eggs. Then 5 more", 18, "hashes"),
        ("#### 5\nno, wait\n#### 18", 18, "hashes"),
        ("#### 18. Then 5 more", 18, "hashes"),
        ("#### 3. Add up\n9 * 2 = 18", 18, "last"),
        ("#### Step 3\n9 * 2 = 18", 18, "last"),
        ("The answer is 18...", 18, "phrase"),
        ("The answer is 18.00. I used 3 steps.", 18, "phrase"),
        ("The correct answer would be **18** of 20", 18, "phrase"),
        ("the answer is 16 - 3 + 5 = 18 eggs", 18, "phrase"),
        ("The answer is that after 3 days she has 18 eggs. Then 7.", 18, "phrase"),
        ("The answer is that she has 18 on the 3rd day", 18, "phrase"),
        ("The final answer is: \\[ 18 \\] (1)", 18, "phrase"),
        ("The answer is:\n\n$$18$$\n\n1", 18, "phrase"),
        ("The answer is 18 000 dollars", 18000, "phrase"),
        ("The answer is 3/4 cup", Fraction(3, 4), "phrase"),
        ("The answer is 18m for each of 5", 18, "phrase"),
        ("The answer is 18/day, not 5", 18, "phrase"),
        ("A: 18", 18, "colon"),
        ("9 * 2 = 18\nA: 18\n\nQ: Tom has 5", 18, "colon"),
        ("**Answer:** $18 per day\n7", 18, "colon"),
        ("Answer: 16 eggs are laid and 3 eaten. 9 * 2 = 18", 18, "last"),
        ("so \\boxed{18} because of 5", 18, "boxed"),
        ("so \\boxed{18\\text{ eggs}}, 5", 18, "boxed"),
        ("so \\boxed{x = 18}, 5", 18, "boxed"),
        ("so \\boxed{\\frac{3}{4}}, 5", Fraction(3, 4), "boxed"),
        ("16 - 3 = <<16-3=13>>13 and $<<9*2=18>>18 every day", 18, "last"),
        ("18 ,, ", 18, "last"),
        ("18 000", 18000, "last"),
        ("It is \u22125 degrees", -5, "last"),
        ("On the 3rd day 18, as on the 4th", 18, "last"),
        ("she finishes with 18 at 10:30", 18, "last"),
    ],
)
def test_the_final_number_is_found(text, value, how):
    reading = read_number(text)
    assert reading is not None
    assert (reading.value, reading.how) == (value, how)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ,",
        "eighteen",
        "The answer is 9 * 2",
        "The answer is 9-2",
        "The answer is 3x4",
        "Out of 5, the answer is 18,50",
        "\\boxed{(1, 2)}",
        "first 5, then 3/0",
    ],
)
def test_nothing_is_read_where_it_would_be_a_guess(text):
    assert read_number(text) is None


@pytest.mark.parametrize("text", ["18", "18.0", "$18", "18%", "18.00 dollars", "36/2"])
def test_spellings_of_one_value_are_equal(text):
    verdict = judge_numeric(text, Finish.EOS, REFERENCE)
    assert (verdict.status, verdict.value, verdict.extracted) == (Status.OK, 1.0, "18")


def test_a_percentage_is_not_taken_for_a_fraction():
    half = NumberAnswer(Decimal("0.5"), "0.5")
    assert judge_numeric("50%", Finish.EOS, half).value == 0
    assert judge_numeric("1/2", Finish.EOS, half).value == 1


def test_a_cut_text_is_told_apart_whether_or_not_an_answer_was_read():
    none = judge_numeric("Let me think", Finish.LENGTH, REFERENCE)
    assert (none.status, none.value) == (Status.CUT, 0.0)
    some = judge_numeric("so 18", Finish.LENGTH, REFERENCE)
    assert (some.status, some.value, some.detail["cut"]) == (Status.OK, 1.0, True)
    assert "cut" not in judge_numeric("so 18", Finish.STOP, REFERENCE).detail
    assert judge_numeric("Let me think", Finish.STOP, REFERENCE).status is Status.UNPARSED


def test_a_reference_that_is_no_finite_number_is_an_error_and_not_a_zero():
    verdict = judge_numeric("18", Finish.EOS, NumberAnswer(Decimal("NaN"), "NaN"))
    assert (verdict.status, verdict.value) == (Status.ERROR, None)


# ------------------------------------------------------------------------------------ the harness and its quirks
@pytest.mark.parametrize(
    ("text", "status", "value"),
    [
        ("#### 18", Status.OK, 1),
        ("#### 18.", Status.OK, 1),
        ("#### 18 eggs", Status.OK, 1),
        ("#### 5\n#### 18", Status.OK, 0),  # the first hit counts
        ("#### 18.00", Status.OK, 0),
        ("#### 18...", Status.OK, 0),  # one full stop goes, not three
        ("#### $18", Status.UNPARSED, 0),
        ("####18", Status.UNPARSED, 0),
        ("#### ,,", Status.UNPARSED, 0),
        ("A: 18", Status.UNPARSED, 0),
    ],
)
def test_strict_match_does_as_the_harness_does(text, status, value):
    verdict = judge_strict(text, Finish.EOS, REFERENCE)
    assert (verdict.status, verdict.value) == (status, value)


@pytest.mark.parametrize(
    ("text", "extracted", "value"),
    [
        ("#### 18", "18", 1),
        ("A: $18.", "$18.", 1),
        ("18 eggs. Then 5 more", "5", 0),
        ("The answer is 18...", "18...", 0),
        ("18.00", "18.00", 0),
        ("it is -5", "-5", 0),
        ("so 18 ,, ", None, 0),  # the last hit is ",,"
        ("eighteen", None, 0),
    ],
)
def test_flexible_extract_does_as_the_harness_does(text, extracted, value):
    verdict = judge_flexible(text, Finish.EOS, REFERENCE)
    assert (verdict.extracted, verdict.value) == (extracted, value)
    assert (verdict.status is Status.UNPARSED) == (extracted is None)


def test_the_harness_form_deletes_commas_dollars_the_reasoning_and_one_full_stop():
    assert harness_form("It costs $1,000.\n#### $1,000..") == "1000."


def test_the_harness_pair_compares_with_the_text_of_a_number_that_has_no_solution():
    bare = NumberAnswer(Decimal(1000), "1,000")
    assert judge_strict("#### 1000", Finish.EOS, bare).value == 1
    assert judge_flexible("so 1,000.", Finish.EOS, bare).value == 1


def test_every_verdict_on_four_published_models_is_reproduced(rows):
    golds = [r["answer"] for r in rows("gsm8k/test.jsonl")]
    data = rows("results/gsm8k_openai_models/per_item.jsonl.gz")
    for model, accuracy in MODELS.items():
        right = {judge_numeric: 0, judge_flexible: 0}
        for row in data:
            worked = golds[row["test_index"]]
            text = worked.split("#### ")[1]
            reference = NumberAnswer(Decimal(text.replace(",", "")), text, worked)
            solution, correct = row[model]["solution"], row[model]["is_correct"]
            for judge in right:
                verdict = judge(solution, Finish.EOS, reference)
                assert verdict.value == correct, (judge.__name__, solution, text)
                right[judge] += verdict.value
            strict = judge_strict(solution, Finish.EOS, reference)
            assert (strict.status, strict.value) == (Status.UNPARSED, 0)
        assert [round(n / len(data), 4) for n in right.values()] == [accuracy, accuracy]


@given(st.text(max_size=80) | st.text(alphabet="#A:answeris boxd\\{}=18,.$\n-/", max_size=80))
@settings(max_examples=300, deadline=None)
def test_arbitrary_text_never_raises(text):
    for judge in (judge_numeric, judge_strict, judge_flexible):
        for finish in (Finish.EOS, Finish.LENGTH):
            verdict = judge(text, finish, REFERENCE)
            assert verdict.value in (0.0, 1.0)
            assert (verdict.extracted is None) == (verdict.status is not Status.OK)


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_reading_what_was_read_gives_the_same_number(text):
    verdict = judge_numeric(text + " 7", Finish.EOS, REFERENCE)
    if verdict.extracted is not None:
        again = judge_numeric(verdict.extracted, Finish.EOS, REFERENCE)
        assert again.extracted == verdict.extracted
