"""Templates: wordings as data. Each benchmark's are in ``wordings/<benchmark>.toml``; none holds code.

A wording is Jinja2 text over the item's fields. It is rendered in Jinja's sandbox with strict undefined
names; an item's own text is a value, never a template, so braces in a question stay braces.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from steelyard.core.errors import DataError, InputError, UnknownNameError
from steelyard.core.types import ChoiceAnswer, Item

if TYPE_CHECKING:  # Jinja is imported when the first template is rendered
    from jinja2 import Template as JinjaTemplate
    from jinja2.sandbox import ImmutableSandboxedEnvironment


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A wording of one benchmark.

    Attributes:
        name: unique in the benchmark; "harness" is the field's standard prompt.
        source: where the wording comes from.
        question: the question as asked in cloze and generative forms.
        letters: the question with lettered options ("" when this wording has none); `options` is a list of
            {letter, text}.
        description: text before everything else; letters_description: the same in lettered forms.
        delimiter: between a question and its answer. Explicit, so that it is seen in `steelyard show`.
        separator: between shots.
        stop: generation is cut before the first of these.
        max_tokens: new tokens of a generation.
        null_context: what stands in for the context in pmi.
    """

    name: str
    source: str
    question: str
    letters: str = ""
    description: str = ""
    letters_description: str = ""
    delimiter: str = " "
    separator: str = "\n\n"
    stop: tuple[str, ...] = ()
    max_tokens: int = 64
    null_context: str = "Answer:"

    def to_json(self) -> dict[str, Any]:
        """All that can change a rendered text, for form ids and the forms table."""
        return {
            f.name: list(v) if isinstance(v := getattr(self, f.name), tuple) else v
            for f in fields(self)
            if f.name != "source"
        }


def templates(benchmark: str) -> dict[str, Template]:
    """The templates that the package brings for a benchmark, the default one first."""
    path = files("steelyard.forms") / "wordings" / f"{benchmark}.toml"
    if not path.is_file():
        return {}
    return parse_templates(tomllib.loads(path.read_text("utf-8")), where=f"{benchmark}.toml")


def parse_templates(tables: Mapping[str, Any], *, where: str) -> dict[str, Template]:
    """Templates from TOML tables, one a name. Unknown keys, wrong types and bad Jinja are errors."""
    return {name: _parse(name, table, where) for name, table in tables.items()}


def _parse(name: str, table: object, where: str) -> Template:
    if not isinstance(table, Mapping):
        raise InputError(
            f"{where}: template {name!r} must be a table with at least 'question'; got {table!r}."
        )
    known = {f.name: f.type for f in fields(Template) if f.name != "name"}
    values: dict[str, Any] = {"name": name, "source": f"own ({where})"}
    for key, value in table.items():
        if key not in known:
            raise UnknownNameError(f"key of template {name!r} in {where}", key, known)
        expected = {"stop": list, "max_tokens": int}.get(key, str)
        if not isinstance(value, expected) or isinstance(value, bool):
            raise InputError(f"{where}: template {name!r}: {key} must be {expected.__name__}; got {value!r}.")
        values[key] = value
    stop = values.get("stop", [])
    if not all(isinstance(s, str) and s for s in stop):
        raise InputError(
            f"{where}: template {name!r}: stop must be a list of non-empty strings; got {stop!r}."
        )
    values["stop"] = tuple(stop)
    if "question" not in values:
        raise InputError(f"{where}: template {name!r} has no 'question', the text that is asked.")
    if values.get("max_tokens", 1) < 1:
        raise InputError(f"{where}: template {name!r}: max_tokens must be >= 1; got {values['max_tokens']}.")
    template = Template(**values)
    for text in (template.question, template.letters, template.description, template.letters_description):
        _compiled(text, where, name)
    return template


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # keep_trailing_newline: a prompt's last newline is part of the prompt (HumanEval)
    return ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False
    )


@cache
def _compiled(text: str, where: str, name: str) -> JinjaTemplate:
    from jinja2 import TemplateSyntaxError

    try:
        return _environment().from_string(text)
    except TemplateSyntaxError as error:
        why = (error.message or "").rstrip(".")
        raise InputError(
            f"{where}: template {name!r} is not valid Jinja2, line {error.lineno}: {why}. Text: {text!r}"
        ) from None


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def render_text(text: str, template: Template, item: Item, options: tuple[str, ...] = ()) -> str:
    """One text of a template for one item.

    Raises:
        DataError: the template wants a field that the item does not have, or there are more options than letters.
    """
    from jinja2 import TemplateError
    from jinja2.exceptions import SecurityError

    if len(options) > len(LETTERS):
        raise DataError(
            f"Item {item.item_id} of {item.benchmark} has {len(options)} options; letters go to {len(LETTERS)}."
        )
    values: dict[str, Any] = dict(item.fields)
    values["question"] = item.question
    if options:
        values["options"] = [{"letter": LETTERS[n], "text": o} for n, o in enumerate(options)]
    elif isinstance(item.reference, ChoiceAnswer):
        values["options"] = [{"letter": LETTERS[n], "text": o} for n, o in enumerate(item.reference.options)]
    try:
        rendered: str = _compiled(text, item.benchmark, template.name).render(values)
    except SecurityError as error:
        raise InputError(
            f"Template {template.name!r} of {item.benchmark} does what a template may not: {error}"
        ) from None
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        # what a wording computes may fail in any of Python's ways: {{ 1 // 0 }}, {{ question[9:][0] }}
        raise DataError(
            f"Template {template.name!r} of {item.benchmark} does not fit item {item.item_id}: {error}. "
            f"The item has the fields: {', '.join(sorted(values))}."
        ) from None
    return rendered
