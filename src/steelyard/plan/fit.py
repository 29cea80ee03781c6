"""Prompts that are too long: whole shots go first, then the study's policy decides; nothing is cut silently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from steelyard.core.errors import InputError
from steelyard.core.types import Generate, Item, Likelihood, Request, Role, Tokens
from steelyard.engine.backend import Backend
from steelyard.forms.render import Form, Rendered

Encode = Callable[[Request], Tokens | None]


@dataclass(frozen=True, slots=True)
class Fitted:
    """The prompt as it will be asked.

    Attributes:
        prompt: after leaving out shots, and in the chat template if there is one.
        overlong: it does not fit and is not asked.
        flags: "shots_dropped:N", "overlong", "truncated:N" (tokens).
    """

    prompt: str
    overlong: bool = False
    flags: tuple[str, ...] = ()
    cut: dict[tuple[str, ...], Tokens] = field(default_factory=dict)

    def tokens(self, request: Request, encoded: Tokens | None) -> Tokens | None:
        """The request's tokens, truncated where the policy said so."""
        return self.cut.get(text_of(request), encoded)


def text_of(request: Request) -> tuple[str, ...]:
    """The texts a request is encoded from; draws of one prompt share them."""
    match request:
        case Generate():
            return (request.prompt,)
        case Likelihood():
            return (request.context, request.continuation)


def fit(form: Form, item: Item, rendered: Rendered, backend: Backend, encode: Encode) -> Fitted:
    """Make an item's prompt fit the context of the model.

    All options of an item are asked after the same prompt, so the longest decides.

    Raises:
        InputError: under the policy "fail".
    """
    room = backend.capabilities.max_length
    total = len(rendered.prompt.shots)
    for kept in range(total, -1, -1):
        text = rendered.prompt.text(kept)
        prompt = backend.chat_prompt(text, form.system) if form.chat else text
        requests = _requests(form, rendered, prompt)
        need = [_need(r, encode(r)) for r in requests]
        if room is None or any(n is None for n in need) or max(n or 0 for n in need) <= room:
            flags = (f"shots_dropped:{total - kept}",) if kept < total else ()
            return Fitted(prompt, flags=flags)
    longest = max(n or 0 for n in need)
    if form.overlong == "fail":
        raise InputError(
            f"Item {item.item_id} of {item.benchmark} ({form.formulation.name}, {form.template.name}) needs "
            f"{longest} tokens without shots, and {backend.identity.model} takes {room}. "
            "Use --overlong skip to leave such items out (they are counted) or --overlong truncate."
        )
    dropped = (f"shots_dropped:{total}",) if total else ()
    if form.overlong == "truncate" and room is not None:
        # by one measure: options that were cut by their own lengths would be compared after different contexts
        cut = {text_of(r): _truncate(t, longest - room) for r in requests if (t := encode(r)) is not None}
        if all(t is not None for t in cut.values()):
            flags = (*dropped, f"truncated:{longest - room}")
            return Fitted(prompt, flags=flags, cut={n: t for n, t in cut.items() if t is not None})
    return Fitted(prompt, overlong=True, flags=(*dropped, "overlong"))


def _requests(form: Form, rendered: Rendered, prompt: str) -> list[Request]:
    if form.sampling is not None:
        return [Generate(prompt, form.sampling)]
    asked = [p for p in rendered.parts if p.role in {Role.GOLD, Role.DISTRACTOR}]
    return [Likelihood(prompt, p.continuation) for p in asked]


def _need(request: Request, tokens: Tokens | None) -> int | None:
    if tokens is None:
        return None
    return len(tokens.ids) + (request.sampling.max_tokens if isinstance(request, Generate) else 0)


def _truncate(tokens: Tokens, excess: int) -> Tokens | None:
    """Cut tokens off the prompt behind its first one (BOS); None when not even the answer would fit."""
    context = tokens.ids[: tokens.start]
    if excess > len(context) - 2:
        return None
    ids = context[:1] + context[1 + excess :] + tokens.ids[tokens.start :]
    return Tokens(ids, tokens.start - excess, tokens.moved)
