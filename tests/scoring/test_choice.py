from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import UnknownNameError
from steelyard.core.types import Status
from steelyard.scoring.choice import NORMALISATIONS, OptionScore, judge_choice

logprobs = st.floats(-200, 0, allow_subnormal=False)
option = st.builds(
    OptionScore,
    text=st.text(min_size=1, max_size=12),
    gold=st.just(False),
    logprob=logprobs,
    n_tokens=st.integers(1, 9),
    null_logprob=logprobs,
)
questions = st.builds(
    lambda options, right: [
        OptionScore(o.text, i == right % len(options), o.logprob, o.n_tokens, o.null_logprob)
        for i, o in enumerate(options)
    ],
    st.lists(option, min_size=2, max_size=6),
    st.integers(0, 5),
)


def test_each_normalisation_divides_by_what_it_says():
    # chars 2 and 4, bytes 6 and 4, tokens 1 and 3: every normalisation has another winner or margin
    options = [OptionScore("日本", True, -6.0, 1, -3.0), OptionScore("wxyz", False, -7.0, 3, -7.5)]
    margins = {n: judge_choice(options, n).detail["margin"] for n in NORMALISATIONS}
    assert margins == pytest.approx(
        {
            "none": 1.0,
            "per_char": -3.0 + 1.75,
            "per_byte": -1.0 + 1.75,
            "per_token": -6.0 + 7 / 3,
            "pmi": -3.0 - 0.5,
        }
    )
    assert [judge_choice(options, n).value for n in ("none", "per_char", "per_byte", "per_token", "pmi")] == [
        1.0,
        0.0,
        1.0,
        0.0,
        0.0,
    ]


def test_a_verdict_tells_what_was_chosen_and_what_chance_gives():
    options = [
        OptionScore("a", False, -2.0, 1),
        OptionScore("b", True, -1.0, 1),
        OptionScore("c", False, -3.0, 1),
    ]
    verdict = judge_choice(options, "none")
    assert (verdict.status, verdict.value, verdict.extracted) == (Status.OK, 1.0, "b")
    assert verdict.detail == {
        "chance": 1 / 3,
        "n_options": 3,
        "tie": False,
        "tied": [1],
        "chosen": 1,
        "margin": 1.0,
    }


@pytest.mark.parametrize(("golds", "value"), [((0,), 1 / 2), ((1,), 1 / 2), ((2,), 0.0), ((0, 1), 1.0)])
def test_a_shared_top_earns_its_share_wherever_the_right_option_stands(golds, value):
    options = [
        OptionScore(t, i in golds, lp, 1) for i, (t, lp) in enumerate([("a", -1.0), ("b", -1.0), ("c", -2.0)])
    ]
    verdict = judge_choice(options, "none")
    assert verdict.value == value
    assert (verdict.detail["tie"], verdict.detail["tied"], verdict.detail["chosen"]) == (True, [0, 1], None)


def test_equal_quotients_of_different_lengths_tie():
    options = [OptionScore("abc", True, -27.75, 1), OptionScore("wxyz", False, -37.0, 1)]
    assert judge_choice(options, "per_char").value == 0.5


def test_options_that_differ_in_the_last_bit_do_not_tie():
    options = [OptionScore("a", True, -1.0, 1), OptionScore("b", False, math.nextafter(-1.0, -2), 1)]
    assert judge_choice(options, "none").value == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None, 0.5])
def test_an_impossible_log_probability_is_an_error_and_never_a_score(bad):
    for normalisation in NORMALISATIONS:
        for options in (
            [OptionScore("a", True, bad, 1, -1.0), OptionScore("b", False, -1.0, 1, -1.0)],
            [OptionScore("a", True, -1.0, 1, -1.0), OptionScore("b", False, bad, 1, -1.0)],
        ):
            verdict = judge_choice(options, normalisation)
            assert (verdict.status, verdict.value) == (Status.ERROR, None)
            assert "log-probability" in verdict.detail["why"]


def test_pmi_without_its_null_context_is_an_error_and_leaves_the_others_alone():
    options = [OptionScore("a", True, -1.0, 1), OptionScore("b", False, -2.0, 1)]
    assert judge_choice(options, "pmi").status is Status.ERROR
    assert judge_choice(options, "none").value == 1.0


def test_an_option_without_length_is_explained():
    options = [OptionScore("", True, -1.0, 0), OptionScore("b", False, -2.0, 1)]
    for normalisation in ("per_char", "per_byte", "per_token"):
        verdict = judge_choice(options, normalisation)
        assert verdict.status is Status.ERROR
        assert "divide" in verdict.detail["why"]
    assert judge_choice(options, "none").value == 1.0


def test_nothing_to_choose_between_is_unscored_and_no_right_option_is_an_error():
    only = [OptionScore("a", True, -1.0, 1)]
    assert judge_choice(only, "none").status is Status.UNSCORED
    assert judge_choice([], "none").status is Status.UNSCORED
    wrong = [OptionScore("a", False, -1.0, 1), OptionScore("b", False, -2.0, 1)]
    assert judge_choice(wrong, "none").status is Status.ERROR


def test_an_unknown_normalisation_names_the_known_ones():
    with pytest.raises(UnknownNameError, match="per_char"):
        judge_choice([], "per_chars")


def test_lone_surrogates_have_bytes():
    options = [OptionScore("\ud800", True, -1.0, 1), OptionScore("b", False, -2.0, 1)]
    assert judge_choice(options, "per_byte").detail["margin"] == pytest.approx(-1 / 3 + 2)


@given(questions, st.permutations(NORMALISATIONS))
@settings(max_examples=100, deadline=None)
def test_asking_for_more_normalisations_changes_no_other(options, order):
    alone = {n: judge_choice(options, n) for n in NORMALISATIONS}
    assert {n: judge_choice(options, n) for n in order} == alone
    bare = [OptionScore(o.text, o.gold, o.logprob, o.n_tokens) for o in options]
    for n in ("none", "per_char", "per_byte", "per_token"):
        assert judge_choice(bare, n) == alone[n]


@given(questions, st.randoms(use_true_random=False), st.sampled_from(NORMALISATIONS))
@settings(max_examples=200, deadline=None)
def test_permuting_the_options_permutes_the_choice_and_keeps_the_value(options, random, normalisation):
    order = list(range(len(options)))
    random.shuffle(order)
    before = judge_choice(options, normalisation)
    after = judge_choice([options[i] for i in order], normalisation)
    assert after.value == before.value
    assert sorted(order[i] for i in after.detail["tied"]) == before.detail["tied"]
    assert {k: v for k, v in after.detail.items() if k not in ("tied", "chosen")} == {
        k: v for k, v in before.detail.items() if k not in ("tied", "chosen")
    }


@given(st.lists(logprobs, min_size=2, max_size=6))
@settings(max_examples=100, deadline=None)
def test_credit_over_all_placements_of_the_right_option_sums_to_one(values):
    total = sum(
        judge_choice([OptionScore("x", i == right, v, 1) for i, v in enumerate(values)], "none").value
        for right in range(len(values))
    )
    assert total == pytest.approx(1.0)


def test_a_published_log_is_reproduced(rows):
    data = rows("results/lm_eval_arc/arc_easy_loglikelihoods.jsonl")
    accuracy = {"none": 0.0, "per_char": 0.0}
    for row in data:
        options = [
            OptionScore("x" * n, i == row["target"], lp, 1)
            for i, (lp, n) in enumerate(zip(row["loglikelihoods"], row["choice_len_chars"], strict=True))
        ]
        for normalisation, logged in (("none", "acc"), ("per_char", "acc_norm")):
            verdict = judge_choice(options, normalisation)
            # the log gives a tie to its first option; everything else is equal
            if not verdict.detail["tie"]:
                assert verdict.value == row[logged]
            first = verdict.detail["tied"][0] == row["target"]
            accuracy[normalisation] += float(first)
    assert accuracy["none"] / len(data) == pytest.approx(0.8160774410774411, abs=1e-12)
    assert accuracy["per_char"] / len(data) == pytest.approx(0.7971380471380471, abs=1e-12)


def test_raw_samples_of_a_published_log_are_reproduced(rows):
    for row in rows("results/lm_eval_arc/arc_easy_raw_samples_head300.jsonl.gz"):
        options = [
            OptionScore(text, i == row["target"], float(response[0][0]), 1)
            for i, (text, response) in enumerate(
                zip(row["doc"]["choices"]["text"], row["resps"], strict=True)
            )
        ]
        for normalisation, logged in (("none", "acc"), ("per_char", "acc_norm")):
            verdict = judge_choice(options, normalisation)
            assert verdict.detail["tie"] or verdict.value == row[logged]
