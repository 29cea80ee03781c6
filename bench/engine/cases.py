"""What is run and what is asked of it (docs/speed.md shows the same table with what was reached)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Likelihoods of options, against lm-evaluation-harness.

    Attributes:
        items: how many of the first test items.
        shots: "none", "first" (five training items), "mean" (five of mean length) or "drawn" (five an item).
        target: "worked" or "answer".
        wordings: 0 for the default one.
        ratio: speed over the harness that is asked for. share: of plain prefill, None where nothing is asked.
        split: nothing is shared between "items" or "wordings", so each repeat takes its own part of them on
            either side, and all repeats together are the whole case. "" runs the whole case in every repeat.
    """

    name: str
    title: str
    items: int
    shots: str
    target: str
    ratio: float
    share: float | None = None
    wordings: int = 0
    split: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Draws of 64 new tokens at temperature 0.7, against lm-evaluation-harness and the library's ``generate``.

    Attributes:
        prompts: how many of the first test items. repeats: draws of each.
        ratio: speed over the harness that is asked for. aim: hoped for.
    """

    name: str
    title: str
    prompts: int
    repeats: int
    shots: str
    chat: bool
    ratio: float
    aim: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A case with a module of its own, which has a function ``run(case, quick) -> Result``."""

    name: str
    title: str
    module: str


Case = Scoring | Sampling | Other

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Scoring(
            name="gsm8k_fixed5",
            title="GSM8K, 4 worked options, 5 fixed shots (684 tokens)",
            items=48,
            shots="first",
            target="worked",
            ratio=6.0,
            share=0.90,
        ),
        Scoring(
            name="gsm8k_fixed5_long",
            title="GSM8K, 4 worked options, 5 fixed shots of mean length (980 tokens)",
            items=48,
            shots="mean",
            target="worked",
            ratio=7.5,
            share=0.90,
        ),
        Scoring(
            name="gsm8k_per_item5",
            title="GSM8K, 4 worked options, 5 shots drawn per item",
            items=26,
            shots="drawn",
            target="worked",
            ratio=3.5,
            share=0.85,
            split="items",
        ),
        Scoring(
            name="gsm8k_answer_0shot",
            title="GSM8K, 4 final answers, no shots",
            items=32,
            shots="none",
            target="answer",
            ratio=5.5,
        ),
        Scoring(
            name="gsm8k_worked_0shot",
            title="GSM8K, 4 worked options, no shots",
            items=26,
            shots="none",
            target="worked",
            ratio=1.3,
        ),
        Scoring(
            name="wordings100",
            title="100 wordings x 20 GSM8K items, 4 final answers, 5 fixed shots",
            items=20,
            shots="first",
            target="answer",
            ratio=20.0,
            share=0.90,
            wordings=100,
            split="wordings",
        ),
        Sampling(
            name="sample8_chat",
            title="8 draws of 8 chat prompts, no shots",
            prompts=8,
            repeats=8,
            shots="none",
            chat=True,
            ratio=2.5,
        ),
        Sampling(
            name="sample50_5shot",
            title="50 draws of 4 prompts with 5 fixed shots",
            prompts=4,
            repeats=50,
            shots="first",
            chat=False,
            ratio=6.0,
            aim=8.0,
        ),
        Other(name="equivalence", title="Same answers as the slow path", module="bench.engine.equivalence"),
        Other(
            name="growth",
            title="Cost against items, options, wordings and draws",
            module="bench.engine.growth",
        ),
        Other(name="planning", title="Planning a million requests", module="bench.engine.planning"),
    )
}
"""Every case by name, in the order in which they are run and shown."""
