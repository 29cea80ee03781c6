from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from steelyard.core.errors import InputError, UnknownNameError
from steelyard.core.types import Finish, Status
from steelyard.scoring.corpus import N_STATS, corpus_score, judge_corpus, scores_of_sums

HYPOTHESES = [
    "The cat sat on the mat.",
    "there is a dog in the garden, and it barks",
    "Öl und Wasser mischen sich nicht",
    "no",
    "",
    "completely unrelated words here today",
]
REFERENCES = [
    ["The cat is sitting on the mat.", "A cat sat on the mat."],
    ["There is a dog in the garden and it barks.", "a dog barks in the garden"],
    ["Öl und Wasser vermischen sich nicht.", "Wasser und Öl mischen sich nie."],
    ["no", "not at all"],
    ["An empty answer.", "Nothing"],
    ["The weather was fine.", "It was a fine day."],
]
SCORERS = ("bleu", "chrf", "rouge1", "rouge2", "rougeL")
METRICS = {"bleu": BLEU, "chrf": CHRF}


def stats_of(name, hypotheses, references):
    return np.array(
        [
            judge_corpus(name, h, Finish.EOS, r).detail["stats"]
            for h, r in zip(hypotheses, references, strict=True)
        ]
    )


def theirs(name, hypotheses, references):
    return (
        METRICS[name]().corpus_score(hypotheses, [list(r) for r in zip(*references, strict=True)]).score / 100
    )


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_a_corpus_score_is_that_of_sacrebleu(name):
    stats = stats_of(name, HYPOTHESES, REFERENCES)
    assert stats.shape == (len(HYPOTHESES), N_STATS[name])
    want = theirs(name, HYPOTHESES, REFERENCES)
    assert corpus_score(name, stats) == pytest.approx(want, abs=1e-9)
    assert corpus_score(name, stats.sum(axis=0)) == pytest.approx(want, abs=1e-9)
    assert want > 0.1


sentences = st.lists(
    st.sampled_from(["the", "cat", "Sat.", "on", "mat", "日本", "a,b", "x"]), max_size=7
).map(" ".join)


@given(st.lists(st.tuples(sentences, sentences.filter(bool), sentences.filter(bool)), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_corpus_has_the_score_of_sacrebleu(rows):
    hypotheses, references = [r[0] for r in rows], [list(r[1:]) for r in rows]
    for name in METRICS:
        got = corpus_score(name, stats_of(name, hypotheses, references))
        assert got == pytest.approx(theirs(name, hypotheses, references), abs=1e-9)


@given(sentences.filter(bool), sentences.filter(bool), sentences.filter(bool))
@settings(max_examples=60, deadline=None)
def test_an_item_has_the_sentence_score_of_its_library(text, gold, other):
    golds = [gold, other]
    value = {n: judge_corpus(n, text, Finish.EOS, golds).value for n in ("bleu", "chrf")}
    assert value["bleu"] == pytest.approx(BLEU(effective_order=True).sentence_score(text, golds).score / 100)
    assert value["chrf"] == pytest.approx(CHRF().sentence_score(text, golds).score / 100)


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_resampled_corpora_are_scored_at_once(name):
    stats = stats_of(name, HYPOTHESES, REFERENCES)
    weights = np.random.default_rng(0).multinomial(len(stats), [1 / len(stats)] * len(stats), size=50)
    scores = scores_of_sums(name, weights @ stats)
    assert scores.shape == (50,)
    for row, score in zip(weights, scores, strict=True):
        assert score == pytest.approx(corpus_score(name, np.repeat(stats, row, axis=0)), abs=1e-12)


@pytest.mark.parametrize("name", ["rouge1", "rouge2", "rougeL"])
def test_rouge_is_the_best_f1_over_references(name):
    scorer = RougeScorer([name])
    for text, golds in zip(HYPOTHESES, REFERENCES, strict=True):
        want = max(scorer.score(gold, text)[name].fmeasure for gold in golds)
        assert judge_corpus(name, text, Finish.EOS, golds).value == pytest.approx(want)


def test_a_hand_computed_rouge():
    # "the cat ran": unigrams 2 of 3 and 2 of 3; bigrams 1 of 2 and 1 of 2; longest common subsequence "the cat"
    got = [
        judge_corpus(n, "the cat ran", Finish.EOS, ["the cat sat"]).value
        for n in ("rouge1", "rouge2", "rougeL")
    ]
    assert got == pytest.approx([2 / 3, 1 / 2, 2 / 3])


def test_rouge_refuses_what_its_tokenizer_cannot_read():
    verdict = judge_corpus("rougeL", "日本", Finish.EOS, ["日本"])
    assert (verdict.status, verdict.value) == (Status.UNSCORED, None)
    assert judge_corpus("chrf", "日本", Finish.EOS, ["日本"]).value == 1.0


@pytest.mark.parametrize("name", SCORERS)
def test_an_empty_text_counts_as_wrong_and_stays_in_the_corpus(name):
    verdict = judge_corpus(name, "", Finish.EOS, ["some reference text"])
    assert (verdict.status, verdict.value) == (Status.UNPARSED, 0.0)
    assert judge_corpus(name, "", Finish.LENGTH, ["some reference text"]).status is Status.CUT
    if name in N_STATS:
        stats = judge_corpus(name, "", Finish.EOS, ["some reference text"]).detail["stats"]
        assert sum(stats) > 0
        assert corpus_score(name, [stats]) == 0.0


@pytest.mark.parametrize("name", SCORERS)
def test_no_reference_is_an_error_and_not_a_zero(name):
    for golds in ([], [""], [" \n"]):
        verdict = judge_corpus(name, "text", Finish.EOS, golds)
        assert (verdict.status, verdict.value) == (Status.ERROR, None)


def test_corpus_scores_refuse_what_they_cannot_use():
    with pytest.raises(InputError, match="at least one item"):
        corpus_score("bleu", np.empty((0, 10)))
    with pytest.raises(InputError, match="needs 18 counts"):
        corpus_score("chrf", np.zeros((3, 10)))
    with pytest.raises(UnknownNameError, match="chrf"):
        corpus_score("chrF", np.zeros((3, 18)))


@given(st.text(max_size=40), st.lists(st.text(max_size=20), max_size=3))
@settings(max_examples=60, deadline=None)
def test_arbitrary_text_never_raises(text, golds):
    for name in SCORERS:
        verdict = judge_corpus(name, text, Finish.EOS, golds)
        assert verdict.value is None or 0 <= verdict.value <= 1 + 1e-12
