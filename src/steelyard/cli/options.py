"""The flags of a study, declared once and given to every command that takes one.

The names are those of `plan.study.Study`; a test keeps the two equal. They are declared here by hand, since
reading them off the model would import it for `steelyard --help`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

STUDY_FILE = Annotated[
    Path | None,
    typer.Argument(metavar="STUDY.yaml", help="A study file; flags are laid over it.", show_default=False),
]

_WHAT, _HOW, _ENGINE, _SERVER = "What to measure", "How to ask", "Engine", "Servers"

# name, type, panel, help
FLAGS: tuple[tuple[str, Any, str, str], ...] = (
    (
        "model",
        str,
        _WHAT,
        "smollm2, hf:org/name[@revision], a folder, server:URL#model; several with commas.",
    ),
    ("tasks", str, _WHAT, "Benchmarks, groups (arc, mini) or your own .toml files, with commas."),
    (
        "forms",
        str,
        _WHAT,
        "nlg, mc, mc_rnd, mc_rnd_all, ll, mc_ao, ll_ao, letters, with commas. Default: nlg,mc_rnd,ll.",
    ),
    ("templates", str, _WHAT, "Template names with commas, or 'all'. Default: each task's first."),
    ("repeats", int, _WHAT, "Draws per item of generative forms. Default: 1."),
    ("limit", int, _WHAT, "A seeded random subset of the items; a larger limit contains the smaller."),
    ("items", str, _WHAT, "Item ids with commas, in any order, instead of a limit."),
    ("data", Path, _WHAT, "Folder or file with benchmark data (or STEELYARD_DATA); else the hub."),
    ("revision", str, _WHAT, "Branch, tag or commit of the data on the hub. Default: the pinned commit."),
    ("store", Path, _WHAT, "Folder of the tables. Default: runs/study."),
    ("seed", int, _WHAT, "Names every random stream of the study. Default: 0."),
    ("skip_refused", bool, _WHAT, "Leave out forms that make no sense for a task instead of stopping."),
    ("shots", int, _HOW, "Examples before each question. Default: the task's own number."),
    ("shot_mode", str, _HOW, "fixed (one set for all items, shareable) or per_item."),
    ("options", int, _HOW, "Random wrong options per item (mc_rnd). Default: 3."),
    ("temperature", float, _HOW, "Of draws. Default: 0 for one draw, 0.7 for several."),
    ("top_p", float, _HOW, "Nucleus mass. Default: 1."),
    ("top_k", int, _HOW, "Keep the k likeliest tokens."),
    ("max_tokens", int, _HOW, "New tokens per answer. Default: the template's own."),
    ("chat", bool, _HOW, "Ask through the model's chat template."),
    ("system", str, _HOW, "System message of the chat."),
    (
        "overlong",
        str,
        _HOW,
        "fail, skip or truncate prompts that do not fit even without shots. Default: skip.",
    ),
    (
        "engine",
        str,
        _ENGINE,
        "shared (default: what requests have in common is computed once) or plain (one at a time).",
    ),
    ("batch_size", int, _ENGINE, "Requests at once, at most. Default: the backend's own choice."),
    ("device", str, _ENGINE, "auto, cpu, cuda, ...; spread: over all GPUs."),
    ("dtype", str, _ENGINE, "float32 (default), bfloat16, float16."),
    ("max_length", int, _ENGINE, "Context length. Default: the model's own."),
    ("threads", int, _ENGINE, "CPU threads."),
    ("api", str, _SERVER, "completions (default) or chat."),
    ("concurrency", int, _SERVER, "Requests in flight. Default: 8."),
    ("rate_limit", float, _SERVER, "Requests per second, at most."),
    ("use_n", bool, _SERVER, "Several draws per request; not reproducible draw by draw."),
)


def takes_study(
    *, leave_out: frozenset[str] = frozenset()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a study argument and the flags of a study.

    The command is called with ``study_file`` and ``flags`` (only those given) and its own parameters.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)  # typer needs types, not their text
        own = [
            p.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, p in inspect.signature(function).parameters.items()
            if name not in {"study_file", "flags"}
        ]
        flags = [_parameter(*flag) for flag in FLAGS if flag[0] not in leave_out]

        def command(study_file: Path | None = None, **values: Any) -> None:  # noqa: ANN401  typer's values
            given = {
                name: values.pop(name)
                for name, *_ in FLAGS
                if values.get(name) is not None and name not in leave_out
            }
            rest = {p.name: values[p.name] for p in own}
            function(study_file=study_file, flags=given, **rest)

        first = inspect.Parameter(
            "study_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=STUDY_FILE
        )
        parameters = [first, *flags, *own]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _parameter(name: str, kind: Any, panel: str, text: str) -> inspect.Parameter:  # noqa: ANN401  a type
    flag = "--" + name.replace("_", "-")
    option = typer.Option(flag, help=text, rich_help_panel=panel, show_default=False)
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
