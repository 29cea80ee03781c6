"""The requests of the checks: short (a context of 96 tokens holds each), and awkward on purpose."""

from __future__ import annotations

from steelyard.core.rng import key
from steelyard.core.types import Generate, Likelihood, Request, Sampling

CONTEXTS = (
    "Question: How many legs have two cats?\nAnswer:",
    "Question: How many legs have two",  # a prefix of the one before, and not at a sensible place
    "The capital of France is",
    "Q:",
)
CONTINUATIONS = (" eight", " 8", " Paris.", "\n\n", " a", " the the the the")

# one text cut at three places: what is scored differs, what is read does not
CUTS = (
    Likelihood("The capital of France", " is Paris."),
    Likelihood("The capital of", " France is Paris."),
    Likelihood("The", " capital of France is Paris."),
)

UNICODE = (
    " na\u00efve caf\u00e9",  # composed
    " nai\u0308ve cafe\u0301",  # the same to the eye, with combining marks
    " \u4f60\u597d\uff0c\u4e16\u754c",  # CJK with a full-width comma
    " \U0001f600\U0001f44d\U0001f3fd",  # outside the basic plane, with a skin tone
    " \U0001f469\u200d\U0001f467",  # joined by a zero-width joiner
    " \u05e9\u05dc\u05d5\u05dd",  # right to left
    " \u00a0\u2028\t",  # spaces that are not the space
    " \ufffd",  # the replacement character as a text of its own
)

PROMPTS = (
    "Question: How many apples are left?\nAnswer:",
    "The capital of Italy is",
    "def add(a, b):\n",
    "\u4f60\u597d \U0001f600",
    "Q:",
)

NEW = 12  # tokens that most texts of the checks may have
ROOM = 96  # tokens of a context in which every request of the checks has room


def scoring() -> list[Request]:
    """Likelihoods that share prefixes, cross each other's boundaries and hold every kind of character."""
    plain = [Likelihood(context, text) for context in CONTEXTS for text in CONTINUATIONS]
    return [*plain, *CUTS, *(Likelihood(CONTEXTS[2], text) for text in UNICODE)]


def writing(*, max_tokens: int = NEW) -> list[Request]:
    """Greedy texts."""
    return [Generate(prompt, Sampling(max_tokens=max_tokens)) for prompt in PROMPTS]


def drawing(draws: int = 4, *, max_tokens: int = NEW, prompts: tuple[str, ...] = PROMPTS) -> list[Request]:
    """Sampled texts: several draws of each prompt, each with a seed of its own."""
    sampling = Sampling(max_tokens=max_tokens, temperature=1.0)
    return [
        Generate(prompt, sampling, draw, key(0, "conformance", prompt, draw))
        for prompt in prompts
        for draw in range(draws)
    ]


def everything() -> list[Request]:
    """All of the above."""
    return [*scoring(), *writing(), *drawing()]
