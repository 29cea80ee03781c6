"""``steelyard show``: exactly what the model will see of one item."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from steelyard.cli.console import Console
from steelyard.core.errors import InputError
from steelyard.core.types import Ask, Generate, Work
from steelyard.plan.build import Plan, Source
from steelyard.plan.study import Study
from steelyard.reporting.display import visible
from steelyard.running.session import load_sources, plan_model


def show_item(study: Study, item: str, *, as_json: bool) -> None:
    """Plan one item and print every request of it."""
    sources = load_sources(study)
    if len(sources) != 1:
        names = ", ".join(s.loaded.benchmark.name for s in sources)
        raise InputError(f"show takes one benchmark; {','.join(study.tasks)} stands for {names}. Choose one.")
    study = study.model_copy(update={"items": (_item_id(sources[0], item),)})
    shown = []
    for name in study.model:
        with plan_model(name, study, sources) as (plan, _):
            shown.append(_as_plain(plan))
            if not as_json:
                _print(plan, shown[-1])
    if as_json:
        from steelyard.cli.main import print_json

        print_json({"models": shown})


def _item_id(source: Source, item: str) -> str:
    items = source.loaded.items
    if any(i.item_id == item for i in items) or not item.isdecimal():
        return item
    if int(item) >= len(items):
        name = source.loaded.benchmark.name
        raise InputError(
            f"{name} has {len(items)} items, counted from 0; got {item}. Give a position or an item id."
        )
    return items[int(item)].item_id


def _as_plain(plan: Plan) -> dict[str, Any]:
    asks = [_ask(ask, plan.work[ask.request_id] if ask.request_id else None) for ask in plan.asks]
    form, _ = plan.forms[0]
    return {
        "model": plan.identity.model,
        "benchmark": form.benchmark,
        "form": form.formulation.name,
        "template": form.template.name,
        "shots": form.shots,
        "item_id": plan.asks[0].item_id,
        "requests": asks,
        "notes": plan.notes,
    }


def _ask(ask: Ask, work: Work | None) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "role": ask.role.value,
        "option": ask.option,
        "source": ask.source,
        "flags": list(ask.flags),
        "request_id": ask.request_id,
    }
    if work is None:
        return plain
    request, tokens = work.request, work.tokens
    if isinstance(request, Generate):
        plain |= {"context": request.prompt, "continuation": None, "sampling": request.sampling.key()}
        plain |= {"draw": request.draw, "seed": request.seed}
    else:
        plain |= {"context": request.context, "continuation": request.continuation}
    if tokens is not None:
        plain |= {"token_ids": list(tokens.ids), "boundary": tokens.start, "boundary_moved": tokens.moved}
    return plain


def _print(plan: Plan, shown: dict[str, Any]) -> None:
    out = Console()
    form, _ = plan.forms[0]
    out.print(
        f"{shown['benchmark']} · {shown['form']} · template {shown['template']} · {shown['shots']} shots · "
        f"item {visible(shown['item_id'])} · {shown['model']}",
        style="bold",
    )
    out.print(f"template from: {form.template.source}", style="dim")
    previous = None
    for request in shown["requests"]:
        _print_request(out, request, previous)
        previous = request.get("context", previous)
    for note in shown["notes"]:
        out.print(f"note: {note}")


def _print_request(out: Console, request: dict[str, Any], previous: str | None) -> None:
    option = "" if request["option"] is None else f" {request['option']}"
    source = f" ({request['source']})" if request["source"] not in {"", "gold"} else ""
    flags = f" [{', '.join(request['flags'])}]" if request["flags"] else ""
    out.print()
    out.rule(Text(f"{request['role']}{option}{visible(source)}{flags}"), align="left", style="dim")
    if "context" not in request:
        out.print("not asked")
        return
    text = Text()
    same = request["context"] == previous and previous is not None
    text.append("(the same context)" if same else visible(request["context"], keep="\n\t"))
    text.append("▌", style="bold red")
    if request["continuation"] is not None:
        text.append(visible(request["continuation"], keep="\n\t"), style="bold green")
    out.print(text)
    if request["continuation"] is None:
        sampling = request["sampling"]
        out.print(
            f"at most {sampling['max_tokens']} new tokens, temperature {sampling['temperature']}, stops: "
            + (", ".join(repr(s) for s in sampling["stop"]) or "none"),
            style="dim",
        )
    if "token_ids" in request:
        ids, start = request["token_ids"], request["boundary"]
        line = Text("tokens: ", style="dim")
        if same:
            line.append(f"({start} as before) ")
        else:
            line.append(" ".join(map(str, ids[:start])) + " ")
        line.append("▌ ", style="bold red")
        line.append(" ".join(map(str, ids[start:])), style="green")
        if request["boundary_moved"]:
            line.append("  (a token spans the join: the boundary was moved back)", style="yellow")
        out.print(line)
