from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import InputError, UnknownNameError
from steelyard.core.types import ChoiceAnswer, Finish, NumberAnswer, ProgramAnswer, Status, TextAnswer
from steelyard.scoring.choice import NORMALISATIONS, OptionScore, judge_choice
from steelyard.scoring.likelihood import judge_likelihood
from steelyard.scoring.registry import SCORERS, answer_key, for_form, get, judge_generation

NUMBER = NumberAnswer(Decimal(18), "18", "9 * 2 = 18\n#### 18")
PROGRAM = ProgramAnswer("return 1", "f", "assert f() == 1")
REFERENCES = {
    "text": TextAnswer(("Norway",)),
    "number": NUMBER,
    "choice": ChoiceAnswer(1, ("no", "yes")),
    "program": PROGRAM,
}
GENERATION = [s for s in SCORERS.values() if s.kind == "generation"]


def test_every_scorer_is_described_and_versioned():
    for name, scorer in SCORERS.items():
        assert scorer.name == name
        assert scorer.version >= 1
        assert scorer.description.endswith(".")
        assert scorer.citation
        assert scorer.accepts


def test_names_that_do_not_exist_get_near_misses():
    with pytest.raises(UnknownNameError, match="Did you mean exact_match"):
        get("exact_mtch")
    with pytest.raises(UnknownNameError):
        judge_generation("nope", "x", Finish.EOS, NUMBER)


def test_a_form_gets_the_scorers_of_its_readout():
    assert for_form("choose", ("numeric",), null=True) == NORMALISATIONS
    assert set(for_form("choose", ())) == {"none", "per_char", "per_byte", "per_token"}
    assert for_form("score", ("numeric",)) == ("loglik", "bits_per_byte")
    assert for_form("generate", ("numeric", "strict-match")) == ("numeric", "strict-match")
    with pytest.raises(InputError, match="judges a choice"):
        for_form("generate", ("per_char",))
    with pytest.raises(UnknownNameError, match="readout"):
        for_form("guess", ())
    assert {get(n).kind for n in NORMALISATIONS} == {"choice"}


def test_a_scorer_refuses_a_reference_of_another_type_and_names_what_fits():
    with pytest.raises(InputError, match=r"type number.*Choose among: exact_match"):
        judge_generation("numeric", "18", Finish.EOS, REFERENCES["text"])


@pytest.mark.parametrize("scorer", GENERATION, ids=lambda s: s.name)
def test_failures_and_refusals_of_the_backend_are_missing_and_not_wrong(scorer):
    reference = REFERENCES[scorer.accepts[0]]
    for finish, status in ((Finish.ERROR, Status.ERROR), (Finish.REFUSED, Status.REFUSED)):
        verdict = judge_generation(scorer.name, "", finish, reference)
        assert (verdict.status, verdict.value) == (status, None)
    with pytest.raises(InputError, match="likelihood"):
        judge_generation(scorer.name, "", Finish.SCORED, reference)


def test_a_program_is_not_run_and_says_why():
    verdict = judge_generation("program", "raise SystemExit", Finish.EOS, PROGRAM)
    assert (verdict.status, verdict.value) == (Status.UNSCORED, None)
    assert "sandbox" in verdict.detail["why"]


@pytest.mark.parametrize(
    ("scorer", "reference", "one", "same", "other"),
    [
        ("numeric", NUMBER, "$18,000.00", "18000", "18"),
        ("strict-match", NUMBER, "#### 1,000", "#### 1000.", "#### 100"),
        ("flexible-extract", NUMBER, "so $1,000", "1000.", "100"),
        ("exact_match", REFERENCES["text"], "The Norway!", "norway", "Sweden"),
        ("exact_match_legacy", REFERENCES["text"], "NORWAY.", "norway", "the Norway"),
        ("f1", REFERENCES["text"], "a Norway", "norway", "Sweden"),
    ],
)
def test_equal_answers_have_equal_keys_whether_right_or_wrong(scorer, reference, one, same, other):
    keys = [
        answer_key(scorer, judge_generation(scorer, t, Finish.EOS, reference)) for t in (one, same, other)
    ]
    assert keys[0] == keys[1] is not None
    assert keys[2] not in (None, keys[0])


def test_void_answers_and_free_text_have_no_key():
    assert answer_key("numeric", judge_generation("numeric", "none", Finish.EOS, NUMBER)) is None
    assert answer_key("bleu", judge_generation("bleu", "a", Finish.EOS, REFERENCES["text"])) is None
    assert answer_key("loglik", judge_likelihood("a", -1.0, 1, "loglik")) is None


def test_the_key_of_a_choice_is_what_was_chosen():
    options = [OptionScore("a", False, -1.0, 1), OptionScore("b", True, -2.0, 1)]
    assert answer_key("none", judge_choice(options, "none")) == "a"


@given(st.text(max_size=40), st.sampled_from([f for f in Finish if f is not Finish.SCORED]))
@settings(max_examples=60, deadline=None)
def test_any_text_gets_a_verdict_that_the_store_can_keep(text, finish):
    for scorer in GENERATION:
        for kind in scorer.accepts:
            verdict = judge_generation(scorer.name, text, finish, REFERENCES[kind])
            assert (verdict.value is None) == (verdict.status not in (Status.OK, Status.UNPARSED, Status.CUT))
            assert verdict.value is None or 0 <= verdict.value <= 1 + 1e-12
            json.dumps(dict(verdict.detail), allow_nan=False)
            answer_key(scorer.name, verdict)


def references_of(rows):
    for row in rows("gsm8k/test.jsonl"):  # every row of every file: an odd reference hides anywhere
        text = row["answer"].split("#### ")[1]
        yield NumberAnswer(Decimal(text.replace(",", "")), text, row["answer"]), row["answer"]
    for row in rows("svamp/test.jsonl"):
        text = str(row["Answer"])
        yield NumberAnswer(Decimal(text), text), text
    for row in rows("trivia_qa/validation.jsonl"):
        yield TextAnswer((row["answer"]["value"], *row["answer"]["aliases"])), row["answer"]["value"]
    for row in rows("nq_open/validation.jsonl"):
        yield TextAnswer(tuple(row["answer"])), row["answer"][0]
    for row in rows("squad/validation.jsonl.gz"):
        yield TextAnswer(tuple(row["answers"]["text"])), row["answers"]["text"][0]
    for row in rows("ai2_arc/ARC-Challenge/test.jsonl"):
        index = row["choices"]["label"].index(row["answerKey"])
        yield ChoiceAnswer(index, tuple(row["choices"]["text"])), row["choices"]["text"][index]


def test_the_reference_itself_is_right_under_every_scorer_for_all_shared_items(rows):
    seen = 0
    for position, (reference, text) in enumerate(references_of(rows)):
        kind = reference.to_json()["type"]
        for scorer in GENERATION:
            name = scorer.name
            if kind not in scorer.accepts or name in ("bleu", "rouge2"):  # undefined for texts of one token
                continue
            if name in ("chrf", "rouge1", "rougeL") and position % 5:  # slow, and many aliases
                continue
            if name == "strict-match" and reference.worked is None:  # knows only GSM8K's mark
                continue
            whole = name in ("exact_match", "exact_match_legacy", "f1") and kind == "number"
            verdict = judge_generation(name, reference.text if whole else text, Finish.EOS, reference)
            if verdict.status is Status.UNSCORED:  # rouge: a reference without an ASCII letter or digit
                assert not any(c.isascii() and c.isalnum() for alias in reference.aliases for c in alias)
                continue
            assert verdict.value == pytest.approx(1.0), (name, reference, verdict)
            seen += 1
    assert seen > 15_000


def test_importing_the_registry_loads_no_heavy_package():
    code = (
        "import sys, steelyard.scoring.registry\n"
        "print(sorted({'sacrebleu', 'rouge_score', 'nltk', 'torch', 'scipy', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
