"""Items become texts: what the model reads, and what it is scored on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steelyard.core.errors import RefusedError
from steelyard.core.ids import digest, form_id
from steelyard.core.types import EMPTY, Item, Option, Role, Sampling
from steelyard.forms.distractors import Options, Pool, options_for
from steelyard.forms.fewshot import ShotMode
from steelyard.forms.formulation import Formulation, Readout, Target
from steelyard.forms.templates import LETTERS, Template, render_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Formulation x template x shots, with every setting that changes a text or a sample.

    Attributes:
        shots: examples asked for. shot_mode: fixed or per item.
        chat: the prompt is one user message of a chat. system: its system message, None for none.
        overlong: fail, skip or truncate.
        options: random distractors per item.
        sampling: of generative forms.
        seed: of shots, options and draws.
        fixed_shots: ids of the shots when they are the same for all items; part of the text's hash.
    """

    benchmark: str
    formulation: Formulation
    template: Template
    shots: int
    shot_mode: ShotMode = "fixed"
    chat: bool = False
    system: str | None = None
    overlong: str = "skip"
    options: int = 3
    sampling: Sampling | None = None
    seed: int = 0
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    def settings(self) -> dict[str, Any]:
        """The settings column of the forms table; with the other columns it identifies the form."""
        return {
            "shot_mode": self.shot_mode,
            "shot_seed": self.seed,
            "chat": self.chat,
            "system": self.system,
            "overlong": self.overlong,
            "options": self.options,
            "sampling": self.sampling.key() if self.sampling else None,
            "template": self.template.to_json(),
            **self.extra,
        }

    @property
    def delimiter(self) -> str:
        """Between prompt and answer; a chat template ends with its own."""
        return "" if self.chat else self.template.delimiter

    @property
    def text_hash(self) -> str:
        """Hash of all that the form's texts are made from, items apart."""
        return digest(self.settings())[:16]

    @property
    def form_id(self) -> str:
        """See `ids.form_id`."""
        return form_id(
            {
                "benchmark": self.benchmark,
                "formulation": self.formulation.name,
                "template": self.template.name,
                "shots": self.shots,
                "settings": self.settings(),
            }
        )


@dataclass(frozen=True, slots=True)
class Prompt:
    """What stands before the answer, in pieces, so that whole shots can be left out when it is too long."""

    description: str
    shots: tuple[str, ...]
    question: str
    separator: str

    def text(self, shots: int | None = None) -> str:
        """The prompt with its first `shots` shots (all of them by default).

        Shots are left out from the end: what remains is a prefix that all items go on sharing.
        """
        kept = self.shots if shots is None else self.shots[:shots]
        return self.description + self.separator.join([*kept, self.question])


@dataclass(frozen=True, slots=True)
class Part:
    """One text that is scored after the prompt (or after the null context, see the role).

    Attributes:
        text: without the joining delimiter: the length normalisations count this.
        continuation: with it: the model is asked for this.
    """

    role: Role
    option: int | None
    text: str
    source: str
    continuation: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """All that one item is asked in one form. `parts` is empty for a generation."""

    prompt: Prompt
    parts: tuple[Part, ...]
    null_context: str | None
    flags: tuple[str, ...] = ()


def render(item: Item, form: Form, shots: Sequence[Item], options: Options | None) -> Rendered:
    """Render one item.

    Args:
        item: the item.
        form: how it is asked.
        shots: the items shown before it.
        options: for forms that choose; `shots` that show options carry their own.

    Raises:
        RefusedError: the template has no lettered wording, or the target has no answer of its own.
    """
    formulation, template = form.formulation, form.template
    if formulation.shown and not template.letters:
        raise RefusedError(
            f"Template {template.name!r} of {item.benchmark} has no lettered wording ('letters'). "
            "Choose another template for the form letters."
        )
    before = template.letters_description if formulation.shown else template.description
    prompt = Prompt(
        render_text(before, template, item),
        tuple(_shot(s, form) for s in shots),
        _question(item, form, options),
        template.separator,
    )
    counts = (("short", options.short), ("left", options.left)) if options else ()
    flags = tuple(f"{name}:{count}" for name, count in counts if count)
    return Rendered(prompt, _parts(item, form, options), _null_context(form), flags)


def _question(item: Item, form: Form, options: Options | None) -> str:
    if not form.formulation.shown:
        return render_text(form.template.question, form.template, item)
    texts = tuple(o.answer for o in options.options) if options else ()
    return render_text(form.template.letters, form.template, item, texts)


def _shot(item: Item, form: Form) -> str:
    # A shot shows the whole right answer, also when only final answers are scored (mc_ao, ll_ao): dropping
    # the reasoning from the scored text is the form, dropping it from the examples would be another prompt.
    if not form.formulation.shown:
        return (
            render_text(form.template.question, form.template, item)
            + form.template.delimiter
            + item.gold.full
        )
    options = options_for(item, form.formulation, Pool(()), k=form.options, seed=form.seed)
    return _question(item, form, options) + form.template.delimiter + LETTERS[options.gold]


def _parts(item: Item, form: Form, options: Options | None) -> tuple[Part, ...]:
    match form.formulation.readout:
        case Readout.GENERATE:
            return ()
        case Readout.SCORE:
            return (_part(Role.GOLD, None, _target(item.gold, form), "gold", form.delimiter),)
        case Readout.CHOOSE:
            if options is None:
                raise AssertionError("a form that chooses is rendered with options")
    parts: list[Part] = []
    for n, option in enumerate(options.options):
        text = LETTERS[n] if form.formulation.shown else _target(option, form)
        gold = n == options.gold
        parts.append(_part(Role.GOLD if gold else Role.DISTRACTOR, n, text, option.source, form.delimiter))
        if _null_context(form) is not None:
            role = Role.NULL_GOLD if gold else Role.NULL_DISTRACTOR
            parts.append(_part(role, n, text, option.source, _null_delimiter(form.template)))
    return tuple(parts)


def _null_delimiter(template: Template) -> str:
    # The null context is plain text in every form, so that it is asked once for each option text. One that ends
    # in white space brings its own delimiter: another blank would shift the indentation of code.
    if template.null_context[-1:].isspace():
        return ""
    return template.delimiter or " "


def _part(role: Role, option: int | None, text: str, source: str, delimiter: str) -> Part:
    return Part(role, option, text, source, delimiter + text)


def _target(option: Option, form: Form) -> str:
    return option.answer if form.formulation.target is Target.ANSWER else option.full


def _null_context(form: Form) -> str | None:
    # letters have no prior worth correcting with "Answer: A"; pmi is for cloze options
    if form.formulation.readout is not Readout.CHOOSE or form.formulation.shown:
        return None
    return form.template.null_context or None
