"""Formulations: points on three axes, plus whether the options are shown.

The same items can be asked in several ways. Instead of a class per way there are three independent choices,
and the names of the paper (Hangya, Kuech and Gold 2025) are points in their product:

    readout      generate (write the answer), choose (compare options), score (the gold text's likelihood)
    candidates   none, smart (wrong options that the data bring), random (other items' right answers),
                 context (every other right answer of the item's own passage)
    target       full (the worked solution, the whole text), answer (the final answer alone)
    shown        False: cloze, options are scored as text and never seen; True: lettered options in the prompt
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from steelyard.core.errors import UnknownNameError


class Readout(StrEnum):
    """How the model's answer is read."""

    GENERATE = "generate"
    CHOOSE = "choose"
    SCORE = "score"


class Candidates(StrEnum):
    """Where wrong options come from."""

    NONE = "none"
    SMART = "smart"
    RANDOM = "random"
    CONTEXT = "context"


class Target(StrEnum):
    """Which text stands for an answer."""

    FULL = "full"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Formulation:
    """One way to ask. See the module's docstring for the axes."""

    name: str
    readout: Readout
    candidates: Candidates = Candidates.NONE
    target: Target = Target.FULL
    shown: bool = False
    summary: str = ""


_R, _C, _T = Readout, Candidates, Target
FORMULATIONS: dict[str, Formulation] = {
    f.name: f
    for f in (
        Formulation("nlg", _R.GENERATE, summary="generate the answer"),
        Formulation("mc", _R.CHOOSE, _C.SMART, summary="choose among the data's own or smart options, cloze"),
        Formulation("mc_rnd", _R.CHOOSE, _C.RANDOM, summary="choose among random other answers, cloze"),
        Formulation(
            "mc_rnd*", _R.CHOOSE, _C.CONTEXT, summary="choose among all other answers of the passage, cloze"
        ),
        Formulation("mc_ao", _R.CHOOSE, _C.SMART, _T.ANSWER, summary="mc, final answers alone"),
        Formulation("ll", _R.SCORE, summary="likelihood of the gold answer"),
        Formulation("ll_ao", _R.SCORE, _C.NONE, _T.ANSWER, summary="ll, the final answer alone"),
        Formulation(
            "letters", _R.CHOOSE, _C.SMART, _T.ANSWER, shown=True, summary="choose a letter, options shown"
        ),
    )
}


ALIASES = {"mc_rnd_all": "mc_rnd*"}
"""Other spellings: a shell would take the star for itself."""


def get(name: str) -> Formulation:
    """The formulation of that name or alias. Raises UnknownNameError with near misses."""
    try:
        return FORMULATIONS[ALIASES.get(name, name)]
    except KeyError:
        raise UnknownNameError("form", name, [*FORMULATIONS, *ALIASES]) from None
