"""Short texts against their references: exact match, SQuAD F1, containment.

The official names keep the official rules, ASCII-only punctuation and English articles included. Two repairs
only: a model that writes nothing is never right, and an answer that the rules erase whole ("The The", "!!!") is
compared by what is left under milder rules, so that "" never equals "".
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from steelyard.core.text import answer_class
from steelyard.core.types import ChoiceAnswer, Finish, NumberAnswer, Reference, TextAnswer
from steelyard.scoring.verdict import Verdict, failed, read, unread

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def references(reference: Reference) -> tuple[str, ...]:
    """The texts that count as right: aliases, the number as written, the right option; () for programs."""
    match reference:
        case TextAnswer(aliases):
            return aliases
        case NumberAnswer(text=text):
            return (text,)
        case ChoiceAnswer(index, options):
            return (options[index],) if 0 <= index < len(options) else ()
        case _:
            return ()


def legacy_form(text: str) -> str:
    """Lower case without ASCII punctuation, nothing else: the harness's triviaqa metric.

    White space and articles stay, so "the St.  Louis" is not "St. Louis".
    """
    return text.lower().translate(_PUNCTUATION)


def exact(text: str, golds: Sequence[str]) -> bool:
    """Whether the text equals any of `golds` in SQuAD's normal form (`core.text.answer_class`)."""
    mine = answer_class(text)
    return bool(mine) and any(answer_class(gold) == mine for gold in golds)


def exact_legacy(text: str, golds: Sequence[str]) -> bool:
    """Whether the text, stripped, equals any of `golds` in `legacy_form`; golds are not stripped."""
    mine = legacy_form(text.strip())
    return any(legacy_form(gold) == mine for gold in golds)


def f1(text: str, gold: str) -> float:
    """Token F1 of SQuAD v1.1, in [0, 1].

    Tokens are the white-space parts of the normal form, counted with multiplicity; without a common token the
    score is 0. By version 1.1 that holds for two empty forms as well (version 2 makes them agree): "a" against
    "the" scores 0 here too. Only an answer that the rules erase whole, against itself, scores 1 and not 0.
    """
    mine, theirs = answer_class(text).split(), answer_class(gold).split()
    common = (Counter(mine) & Counter(theirs)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(mine), common / len(theirs)
    return 2 * precision * recall / (precision + recall)


def contained(text: str, golds: Sequence[str]) -> str | None:
    """The first of `golds` that occurs in the text, whatever its case (squad_completion's rule), or None.

    An empty gold, which occurs in everything, never counts. "18" occurs in "118": this is a lenient rule.
    """
    for gold in golds:
        wanted = gold.strip()
        if wanted and re.search(re.escape(wanted), text, re.IGNORECASE):
            return gold
    return None


def judge_match(scorer: str, text: str, finish: Finish, reference: Reference) -> Verdict:
    """Judge by ``exact_match``, ``exact_match_legacy``, ``f1`` or ``contains``; f1 is the best over references."""
    golds = references(reference)
    if not any(gold.strip() for gold in golds):
        return failed("the reference holds no text to compare with")
    answer = text.strip()
    if not answer:
        return unread(finish)
    match scorer:
        case "exact_match":
            value = float(exact(answer, golds))
        case "exact_match_legacy":
            value = float(exact_legacy(answer, golds))
        case "f1":
            value = max(f1(answer, gold) for gold in golds)
        case "contains":
            value = float(contained(answer, golds) is not None)
        case other:
            raise AssertionError(other)
    return read(value, answer, finish)
