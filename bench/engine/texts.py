"""GSM8K as requests: the texts of the cases, made by the package's own forms from the items of a data folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bench.engine.data import data_folder
from bench.engine.wordings import wordings

from steelyard.benchmarks.base import Loaded
from steelyard.benchmarks.sources import load
from steelyard.core.rng import key
from steelyard.core.types import Generate, Item, Likelihood, Request, Role, Sampling, Tokens, Work
from steelyard.engine.backend import Backend
from steelyard.forms.distractors import Pool, options_for
from steelyard.forms.fewshot import ShotSource
from steelyard.forms.formulation import Candidates, Formulation, Readout, Target
from steelyard.forms.render import Form, render
from steelyard.forms.templates import Template, templates

Problem = tuple[Work, ...]
"""The requests of one item in one wording: its options, or its draws."""

SEED = 0
_TARGETS = {
    "worked": Formulation("mc_rnd", Readout.CHOOSE, Candidates.RANDOM, Target.FULL),
    "answer": Formulation("mc_rnd_ao", Readout.CHOOSE, Candidates.RANDOM, Target.ANSWER),
}


@dataclass(frozen=True)
class Gsm8k:
    """Items, shots and wordings of GSM8K for one model's tokenizer."""

    backend: Backend

    @cached_property
    def loaded(self) -> Loaded:
        """The test and training items."""
        return load("gsm8k", data=data_folder(), seed=SEED)

    @property
    def plain(self) -> Template:
        """The default wording."""
        return templates("gsm8k")["plain"]

    def items(self, count: int) -> list[Item]:
        """The first test items."""
        return list(self.loaded.items[:count])

    def first_shots(self, count: int = 5) -> tuple[Item, ...]:
        """The first training items, in their order."""
        return self.loaded.shots[:count]

    def mean_shots(self, count: int = 5) -> tuple[Item, ...]:
        """The training items whose length as a shot is nearest to the mean over all of them, in their order."""
        lengths = [self._length(item) for item in self.loaded.shots]
        mean = sum(lengths) / len(lengths)
        near = sorted(range(len(lengths)), key=lambda i: (abs(lengths[i] - mean), i))[:count]
        return tuple(self.loaded.shots[i] for i in sorted(near))

    def drawn_shots(self, item: Item, count: int = 5) -> tuple[Item, ...]:
        """Training items drawn for one item by the package's own rule."""
        return ShotSource(self.loaded.shots, seed=SEED).draw(item, count, "per_item")

    def shots(self, how: str, item: Item) -> tuple[Item, ...]:
        """By name: "none", "first", "mean" or "drawn"."""
        match how:
            case "none":
                return ()
            case "first":
                return self.first_shots()
            case "mean":
                return self.mean_shots()
            case "drawn":
                return self.drawn_shots(item)
        raise AssertionError(f"no such shots: {how}")

    def choices(
        self,
        items: Sequence[Item],
        *,
        shots: str,
        target: str,
        options: int = 4,
        wording: Template | None = None,
    ) -> list[Problem]:
        """Options of items as likelihood requests; without those after a null context, which no peer asks.

        Args:
            items: to ask.
            shots: see `shots`.
            target: "worked" (whole solutions) or "answer" (the final number).
            options: the right one and random other items' answers, together.
            wording: the template; None takes the default.
        """
        template = wording or self.plain
        fixed = self.shots(shots, items[0]) if shots != "drawn" else ()
        form = Form(
            benchmark="gsm8k",
            formulation=_TARGETS[target],
            template=template,
            shots=5,
            options=options - 1,
            seed=SEED,
        )
        pool = Pool(self.loaded.items)
        problems: list[Problem] = []
        for item in items:
            chosen = options_for(item, form.formulation, pool, k=form.options, seed=SEED)
            rendered = render(item, form, fixed or self.shots(shots, item), chosen)
            prompt = rendered.prompt.text()
            problems.append(
                tuple(
                    self._work(
                        f"{template.name}/{item.item_id}/{part.option}", Likelihood(prompt, part.continuation)
                    )
                    for part in rendered.parts
                    if part.role in {Role.GOLD, Role.DISTRACTOR}
                )
            )
        return problems

    def worded(
        self, items: Sequence[Item], count: int, *, shots: str = "first", options: int = 4
    ) -> list[list[Problem]]:
        """The items in several wordings, answers only: one list of problems a wording.

        Raises:
            AssertionError: two wordings begin with the same token.
        """
        asked = [
            self.choices(items, shots=shots, target="answer", options=options, wording=template)
            for template in wordings(count)
        ]
        openings = {problems[0][0].tokens.ids[0] for problems in asked if problems[0][0].tokens is not None}
        assert len(openings) == count, f"{count} wordings begin with only {len(openings)} different tokens"
        return asked

    def draws(
        self, items: Sequence[Item], *, shots: str, chat: bool, repeats: int, max_tokens: int
    ) -> list[Problem]:
        """Sampled answers at temperature 0.7, without stop strings, so that every side makes the same tokens."""
        sampling = Sampling(max_tokens=max_tokens, temperature=0.7)
        form = Form(
            benchmark="gsm8k", formulation=Formulation("nlg", Readout.GENERATE), template=self.plain, shots=5
        )
        problems: list[Problem] = []
        for item in items:
            shown = self.shots(shots, item)
            prompt = (
                self.backend.chat_prompt(item.question)
                if chat
                else render(item, form, shown, None).prompt.text()
            )
            problems.append(
                tuple(
                    self._work(
                        f"{item.item_id}/{draw}",
                        Generate(prompt, sampling, draw, key(SEED, "draw", "gsm8k", item.item_id, draw)),
                    )
                    for draw in range(repeats)
                )
            )
        return problems

    def _length(self, item: Item) -> int:
        shown = f"Question: {item.question}\nAnswer: {item.gold.full}\n\n"
        return len(self._tokens(Generate(shown, Sampling(1))).ids)

    def _work(self, name: str, request: Request) -> Work:
        return Work(name, request, self._tokens(request))

    def _tokens(self, request: Request) -> Tokens:
        tokens = self.backend.encode(request)
        assert tokens is not None, "the bench runs local models, whose tokenizer is ours"
        return tokens


def flat(problems: Sequence[Problem]) -> list[Work]:
    """All requests of some problems."""
    return [work for problem in problems for work in problem]


def tokens_of(work: Sequence[Work]) -> list[Tokens]:
    """Their tokens."""
    return [one.tokens for one in work if one.tokens is not None]
