"""A hundred wordings of one task that differ from the first token on, so that no two share a prefix."""

from __future__ import annotations

from steelyard.forms.templates import Template

_WORDS = """
Answer Calculate Find Work Read Think Consider Use Give Write Show Look Here These The Below Each Every All Some
Several Many Let We You Your Our This Following Given Now Please Try Can How What When Before After First For From
With In On At To As If By Under Next Then Math Mathematics Number Word School Grade Problem Question Questions
Practice Test Exam Quiz Class Home Study Learn Teacher Student Students Children Solutions Solution Examples Example
Step Steps Careful Be Do Don Make Keep Start Begin Take Check Explain Reason Complete Continue See Note Remember One
Two Three A An
"""
OPENINGS = tuple(_WORDS.split())
"""First words. Each is a first token of its own for the embedded model's tokenizer; the bench checks it."""

_LABELS = (
    ("Question", "Answer"),
    ("Problem", "Solution"),
    ("Q", "A"),
    ("Exercise", "Working"),
    ("Task", "Result"),
)
_TAILS = (
    "problems in grade school mathematics, solved step by step.",
    "sums with a short story, and how they are worked out.",
    "arithmetic in words. The last line holds the number.",
    "a few word problems with their solutions.",
)


def wordings(count: int) -> list[Template]:
    """The first `count` wordings, at most 100."""
    return [_wording(n) for n in range(min(count, len(OPENINGS), 100))]


def _wording(n: int) -> Template:
    question, answer = _LABELS[n % len(_LABELS)]
    return Template(
        name=f"w{n:03d}",
        source="bench",
        description=f"{OPENINGS[n]}: {_TAILS[n % len(_TAILS)]}\n\n",
        question=question + ": {{ question }}\n" + answer + ":",
        null_context="",
    )
