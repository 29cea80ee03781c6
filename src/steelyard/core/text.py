"""Normal forms of short answers, shared by scorers and by the rules for distractors."""

from __future__ import annotations

import re
import string

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """SQuAD v1.1's normal form: lower case, no ASCII punctuation, no articles, single spaces.

    Source: the official evaluation script of SQuAD v1.1, in its order of steps.

    >>> normalise_answer("The  St. Louis!")
    'st louis'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def answer_class(text: str) -> str:
    """`normalise_answer`, unless nothing is left of the text ("The", "!!!"): then only case and white space.

    Two texts are the same answer when their classes are equal; an empty class never equals another answer.
    """
    return normalise_answer(text) or " ".join(text.lower().split())
