"""Every scorer by name: what it reads, what it judges, how its values make one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from steelyard.core.errors import InputError, UnknownNameError
from steelyard.core.text import answer_class
from steelyard.core.types import AnswerType, Finish, NumberAnswer, Reference, Status
from steelyard.scoring.choice import NORMALISATIONS
from steelyard.scoring.corpus import judge_corpus
from steelyard.scoring.extract import harness_form, judge_flexible, judge_numeric, judge_strict
from steelyard.scoring.match import judge_match, legacy_form, references
from steelyard.scoring.verdict import Verdict, unscored

__all__ = [
    "SCORERS",
    "Scorer",
    "Verdict",
    "answer_key",
    "check_scorers",
    "for_form",
    "get",
    "judge_generation",
]

Kind = Literal["generation", "choice", "likelihood"]
Aggregate = Literal["mean", "sum", "ratio", "corpus"]
_ANY: tuple[AnswerType, ...] = ("text", "number", "choice", "program")


@dataclass(frozen=True, slots=True)
class Scorer:
    """A way to judge a cell.

    Attributes:
        name: in studies and tables.
        kind: what it judges: a generated text, a choice among options, the likelihood of a gold text.
        version: raised whenever a value can change, so that old scores are known to be old.
        description: one sentence for people.
        citation: where the rule comes from; "own" is ours.
        accepts: types of reference that it can judge.
        aggregate: how values make a benchmark's number: "mean", "sum", "ratio" (sum of nats over sum of bytes),
            "corpus" (`corpus.corpus_score` of the summed counts).
    """

    name: str
    kind: Kind
    version: int
    description: str
    citation: str
    accepts: tuple[AnswerType, ...]
    aggregate: Aggregate = "mean"


_HARNESS = "lm-evaluation-harness, task gsm8k version 3"
_SQUAD = "Rajpurkar et al. 2016, official evaluation script of SQuAD v1.1"
_SHORT: tuple[AnswerType, ...] = ("text", "number", "choice")
_TEXTS: tuple[AnswerType, ...] = ("text",)
_NUMBER: tuple[AnswerType, ...] = ("number",)

_ALL = (
    Scorer("numeric", "generation", 1, "The final number, compared by its exact value.", "own", _NUMBER),
    Scorer("strict-match", "generation", 1, 'The first "#### n", compared as text.', _HARNESS, _NUMBER),
    Scorer(
        "flexible-extract",
        "generation",
        1,
        "The last thing like a number, compared as text.",
        _HARNESS,
        _NUMBER,
    ),
    Scorer("exact_match", "generation", 1, "Equal to any reference in SQuAD's normal form.", _SQUAD, _SHORT),
    Scorer(
        "exact_match_legacy",
        "generation",
        1,
        "Equal to any reference but for case and ASCII punctuation.",
        "lm-evaluation-harness, task triviaqa version 3",
        _SHORT,
    ),
    Scorer("f1", "generation", 1, "Token F1, best over references.", _SQUAD, _SHORT),
    Scorer(
        "contains",
        "generation",
        1,
        "Any reference occurs in the text, whatever its case.",
        "lm-evaluation-harness, task squad_completion version 1",
        _TEXTS,
    ),
    Scorer(
        "bleu", "generation", 1, "BLEU, tokenizer 13a.", "Papineni et al. 2002; Post 2018", _TEXTS, "corpus"
    ),
    Scorer("chrf", "generation", 1, "chrF2, characters 1 to 6.", "Popović 2015; Post 2018", _TEXTS, "corpus"),
    Scorer("rouge1", "generation", 1, "Unigram F1, best over references.", "Lin 2004", _TEXTS),
    Scorer("rouge2", "generation", 1, "Bigram F1, best over references.", "Lin 2004", _TEXTS),
    Scorer("rougeL", "generation", 1, "F1 of the longest common subsequence.", "Lin 2004", _TEXTS),
    Scorer(
        "program", "generation", 1, "Passes the tests; needs a sandbox.", "Chen et al. 2021", ("program",)
    ),
    Scorer("per_char", "choice", 1, "Highest log p per code point.", "lm-evaluation-harness, acc_norm", _ANY),
    Scorer("none", "choice", 1, "Highest log p.", "lm-evaluation-harness, acc", _ANY),
    Scorer(
        "per_byte", "choice", 1, "Highest log p per UTF-8 byte.", "lm-evaluation-harness, acc_bytes", _ANY
    ),
    Scorer("per_token", "choice", 1, "Highest log p per token.", "own", _ANY),
    Scorer("pmi", "choice", 1, "Highest gain in log p over the null context.", "Holtzman et al. 2021", _ANY),
    Scorer("loglik", "likelihood", 1, "log p of the gold text, nats.", "Hangya et al. 2025", _ANY, "sum"),
    Scorer("bits_per_byte", "likelihood", 1, "Bits per byte of the gold text.", "own", _ANY, "ratio"),
)
SCORERS: Mapping[str, Scorer] = MappingProxyType({s.name: s for s in _ALL})


def get(name: str) -> Scorer:
    """The scorer of that name. Raises UnknownNameError with near misses."""
    try:
        return SCORERS[name]
    except KeyError:
        raise UnknownNameError("scorer", name, SCORERS) from None


def for_form(readout: str, scorers: Sequence[str], *, null: bool = False) -> tuple[str, ...]:
    """The scorers of a form's cells, the primary one first.

    Args:
        readout: "generate", "choose" or "score".
        scorers: the benchmark's scorers for generated answers, the primary one first.
        null: whether the null context is asked too, which pmi needs.

    Returns:
        choose: every normalisation, per_char first (length-normalised, as in Hangya et al. 2025).

    Raises:
        UnknownNameError: another readout, or a scorer that does not exist.
        InputError: a scorer that does not judge generated texts.
    """
    match readout:
        case "choose":
            return tuple(name for name in NORMALISATIONS if null or name != "pmi")
        case "score":
            return ("loglik", "bits_per_byte")
        case "generate":
            for name in scorers:
                _generation(name)
            return tuple(scorers)
        case _:
            raise UnknownNameError("readout", readout, ("generate", "choose", "score"))


def check_scorers(scorers: Sequence[str], answer_type: AnswerType) -> None:
    """Whether a benchmark's scorers can judge generated answers to it; asked before a model is.

    Raises:
        UnknownNameError: a scorer that does not exist.
        InputError: one that judges no generated texts, or no references of this type.
    """
    for name in scorers:
        _accepting(_generation(name), answer_type)


def _accepting(scorer: Scorer, kind: AnswerType) -> None:
    if kind not in scorer.accepts:
        others = ", ".join(s.name for s in _ALL if s.kind == "generation" and kind in s.accepts)
        raise InputError(
            f"Scorer {scorer.name!r} judges references of type {' or '.join(scorer.accepts)}, and this one is a "
            f"{kind}. Choose among: {others}."
        )


def _generation(name: str) -> Scorer:
    scorer = get(name)
    if scorer.kind != "generation":
        known = ", ".join(s.name for s in _ALL if s.kind == "generation")
        raise InputError(
            f"Scorer {name!r} judges a {scorer.kind}, not a generated text. For those use: {known}."
        )
    return scorer


_Judge = Callable[[str, Finish, NumberAnswer], Verdict]
_NUMERIC: Mapping[str, _Judge] = {
    "numeric": judge_numeric,
    "strict-match": judge_strict,
    "flexible-extract": judge_flexible,
}


def judge_generation(scorer: str, text: str, finish: Finish, reference: Reference) -> Verdict:
    """Judge a generated text.

    Args:
        scorer: a scorer of kind "generation".
        text: what was generated, cut at the stop string; only white space around it is ignored.
        finish: how it ended. An error or a refusal has no value; a text that hit the limit is "cut" when no
            answer can be read from it, and otherwise judged with ``detail["cut"]``.
        reference: what counts as right.

    Raises:
        UnknownNameError: no such scorer.
        InputError: the scorer cannot judge this type of reference, or `finish` is that of a likelihood.
    """
    known = _generation(scorer)
    _accepting(known, reference.to_json()["type"])
    if finish is Finish.SCORED:
        raise InputError("A generated text was expected, and the response is a likelihood.")
    if finish in (Finish.ERROR, Finish.REFUSED):
        return Verdict(Status.ERROR if finish is Finish.ERROR else Status.REFUSED, None)
    if scorer == "program":
        return unscored("programs are judged by running them, and there is no sandbox yet")
    if scorer in _NUMERIC and isinstance(reference, NumberAnswer):
        return _NUMERIC[scorer](text, finish, reference)
    if scorer in ("exact_match", "exact_match_legacy", "f1", "contains"):
        return judge_match(scorer, text, finish, reference)
    return judge_corpus(scorer, text, finish, references(reference))


def answer_key(scorer: str, verdict: Verdict) -> str | None:
    """The class of an answer: two draws agree when their keys are equal. None: no answer, or no classes here.

    Numbers are equal by value, the harness's by its text form, short texts by their normal form, choices by the
    chosen option's text. Free text (BLEU, chrF, ROUGE), programs and likelihoods have no classes.
    """
    known = get(scorer)
    if verdict.status is not Status.OK or verdict.extracted is None:
        return None
    if known.kind == "choice" or scorer == "numeric":
        return verdict.extracted
    if scorer in _NUMERIC:
        return harness_form(verdict.extracted)
    if scorer == "exact_match_legacy":
        return legacy_form(verdict.extracted)
    if scorer in ("exact_match", "f1", "contains"):
        return answer_class(verdict.extracted)
    return None
