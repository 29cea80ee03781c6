"""A world in which the truth is known: simulated items, and a simulated model that answers them by a law.

Benchmark and model share nothing but the text of the question, as with real ones; this module is the text
format and the law, so that the two agree and the true score can be computed.

The law. For item i and template t, the probability of the right answer is the Rasch model's with an effect
of the template,

    p[i, t] = 1 / (1 + exp(-(ability - difficulty[i] + effect[t]))),
    difficulty[i] ~ N(0, 1), of which `GROUP_SHARE` of the variance is common to an item's group,
    effect[t] ~ N(0, template_sd^2), and 0 for a prompt without a template mark.

With `consistency` c > 0, a cell's own probability q[i, t] is drawn from a Beta distribution with mean p and
variance c p (1 - p), so that two draws in one cell correlate by exactly c over cells (beta-binomial law,
Skellam 1948); with c = 0, q = p. The readouts:

* a sampled draw is right with probability q, and independent of other draws given q;
* greedy text is right if q > 0.5;
* the right option is the likeliest of K options with probability q / (q + (K - 1) (1 - q) / 3), which is q
  for 4 options: an option's log-probability is log(weight) + Gumbel noise that is fixed for a cell and a text,
  with weights q for the true answer and (1 - q) / 3 for any other (Gumbel-max, Yellott 1977).

A wrong answer is one of the item's three, each as likely. An item's label may be wrong: then it is one of
these three, and a model that is right is judged wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from steelyard.core.rng import stream

LAW = 1
"""Version of the law; it is part of a simulated model's identity."""

GROUP_SHARE = 0.3
"""Share of the variance of difficulty that is common to a group."""

N_WRONG = 3
"""Wrong answers of an item."""

_NAME = "simulated"
_CONSONANTS, _VOWELS, _SYLLABLES = "bdfgklmnprstvz", "aeiou", 3
_WORD = re.compile(rf"(?:[{_CONSONANTS}][{_VOWELS}]){{{_SYLLABLES}}}")
_QUESTION = re.compile(r"Simulated item (\d{1,9}) of seed (-?\d{1,18})(?:, group (\d{1,9}))?:")
_TEMPLATE = re.compile(r"\[template ([^\[\]\n]{1,64})\]")

# q stays inside (0, 1), so that log-probabilities stay finite
_EDGE = 1e-6


@dataclass(frozen=True, slots=True)
class Question:
    """Which item is asked.

    Attributes:
        number: of the item, from 0.
        seed: of the benchmark that it belongs to.
        group: None stands alone.
    """

    number: int
    seed: int = 0
    group: int | None = None

    def text(self) -> str:
        """The question as it stands in a prompt.

        >>> Question(17, group=3).text()
        'Simulated item 17 of seed 0, group 3: which word is written on card 17?'
        """
        group = "" if self.group is None else f", group {self.group}"
        return (
            f"Simulated item {self.number} of seed {self.seed}{group}: "
            f"which word is written on card {self.number}?"
        )

    @property
    def answers(self) -> tuple[str, ...]:
        """The true answer, then the three wrong ones: different words of equal length."""
        return _answers(self.seed, self.number)


@dataclass(frozen=True, slots=True)
class Cell:
    """An item asked with a template; `template` is None for a prompt without a mark."""

    question: Question
    template: str | None = None


@dataclass(frozen=True, slots=True)
class Simulee:
    """The parameters of a simulated model.

    Attributes:
        ability: in logits; an item of difficulty equal to it is answered right half of the time.
        template_sd: standard deviation of the effects of templates, logits.
        consistency: correlation of draws within a cell beyond what p explains, in [0, 1].
        seed: of its random streams: two models with different seeds fail on different cells.
    """

    ability: float = 0.5
    template_sd: float = 0.3
    consistency: float = 0.0
    seed: int = 0


def mark(template: str) -> str:
    """The mark that tells a simulated model which template a prompt was made with; put it anywhere.

    >>> mark("3")
    '[template 3]'
    """
    return f"[template {template}]"


def parse(prompt: str) -> Cell | None:
    """What a prompt asks: its last question (those before are shots) and its last mark, None without any."""
    questions = list(_QUESTION.finditer(prompt))
    if not questions:
        return None
    number, seed, group = questions[-1].groups()
    marks = _TEMPLATE.findall(prompt)
    question = Question(int(number), int(seed), None if group is None else int(group))
    return Cell(question, marks[-1] if marks else None)


def is_word(text: str) -> bool:
    """Whether a text has the form of a simulated answer."""
    return _WORD.fullmatch(text) is not None


@lru_cache(maxsize=65536)
def _answers(seed: int, number: int) -> tuple[str, ...]:
    generator = stream(seed, _NAME, "answers", number)
    words: dict[str, None] = {}
    while len(words) < N_WRONG + 1:
        letters = (
            _CONSONANTS[generator.integers(len(_CONSONANTS))] + _VOWELS[generator.integers(len(_VOWELS))]
            for _ in range(_SYLLABLES)
        )
        words["".join(letters)] = None
    return tuple(words)


@lru_cache(maxsize=65536)
def difficulty(question: Question) -> float:
    """The difficulty of an item, logits; a standard normal variate."""
    own = float(stream(question.seed, _NAME, "difficulty", question.number).standard_normal())
    if question.group is None:
        return own
    common = float(stream(question.seed, _NAME, "group", question.group).standard_normal())
    return math.sqrt(1 - GROUP_SHARE) * own + math.sqrt(GROUP_SHARE) * common


def template_effect(model: Simulee, template: str | None) -> float:
    """The effect of a template on a model, logits; 0 without a template."""
    if template is None:
        return 0.0
    return model.template_sd * float(stream(model.seed, _NAME, "template", template).standard_normal())


@lru_cache(maxsize=65536)
def probability(model: Simulee, cell: Cell) -> float:
    """q: the probability that a sampled draw in a cell is right (see the law above)."""
    logit = model.ability - difficulty(cell.question) + template_effect(model, cell.template)
    p = 1 / (1 + math.exp(-logit)) if logit > 0 else math.exp(logit) / (1 + math.exp(logit))
    p = min(max(p, _EDGE), 1 - _EDGE)
    c = model.consistency
    if c >= 1:
        # the limit of the Beta distribution: a cell is always right or always wrong
        q = float(_cell_stream(model, cell, "consistency").random() < p)
    elif c > 0:
        size = (1 - c) / c
        q = float(_cell_stream(model, cell, "consistency").beta(p * size, (1 - p) * size))
    else:
        q = p
    return min(max(q, _EDGE), 1 - _EDGE)


def greedy_answer(model: Simulee, cell: Cell) -> str:
    """What a model answers when it does not sample."""
    answers = cell.question.answers
    if probability(model, cell) > 0.5:
        return answers[0]
    return answers[1 + int(_cell_stream(model, cell, "greedy").integers(N_WRONG))]


def sampled_answer(model: Simulee, cell: Cell, seed: int, draw: int) -> str:
    """What a model answers in one draw; equal seeds and draws give equal answers."""
    generator = _cell_stream(model, cell, "draw", seed, draw)
    answers = cell.question.answers
    if generator.random() < probability(model, cell):
        return answers[0]
    return answers[1 + int(generator.integers(N_WRONG))]


def option_score(model: Simulee, cell: Cell, text: str) -> float:
    """log(weight) + Gumbel noise of an option in a cell, at most 17 (the noise is cut at 1 - 1e-7)."""
    q = probability(model, cell)
    weight = q if text == cell.question.answers[0] else (1 - q) / N_WRONG
    uniform = float(_cell_stream(model, cell, "option", text).random())
    return math.log(weight) - math.log(-math.log(min(max(uniform, 1e-300), 1 - 1e-7)))


Readout = Literal["sampled", "greedy", "choice"]


def true_score(
    model: Simulee,
    questions: Sequence[Question],
    *,
    templates: Iterable[str | None] = (None,),
    readout: Readout = "sampled",
    labels: Sequence[str] | None = None,
) -> float:
    """The score that an evaluation without error would find: the mean over the given items and templates.

    Args:
        model: its parameters.
        questions: the items, at least one.
        templates: the templates, None for prompts without a mark.
        readout: "sampled" is the expectation over draws; "greedy" is exact; "choice" is exact too, for the
            item's own four options without length normalisation.
        labels: what counts as right for each item; None takes the true answers.

    Returns:
        A fraction in [0, 1].
    """
    golds = [question.answers[0] for question in questions] if labels is None else list(labels)
    values = [
        _true_cell(model, Cell(question, template), gold, readout)
        for template in templates
        for question, gold in zip(questions, golds, strict=True)
    ]
    return math.fsum(values) / len(values)


def _true_cell(model: Simulee, cell: Cell, gold: str, readout: Readout) -> float:
    answers = cell.question.answers
    if readout == "greedy":
        return float(greedy_answer(model, cell) == gold)
    if readout == "choice":
        return float(max(answers, key=lambda text: option_score(model, cell, text)) == gold)
    q = probability(model, cell)
    if gold == answers[0]:
        return q
    return (1 - q) / N_WRONG if gold in answers else 0.0


def _cell_stream(model: Simulee, cell: Cell, *name: str | int) -> np.random.Generator:
    question = cell.question
    # a mark is told from its absence, also the mark "" (which no prompt can hold, but a caller can ask for)
    template = ("none",) if cell.template is None else ("template", cell.template)
    return stream(model.seed, _NAME, question.seed, question.number, *template, *name)
