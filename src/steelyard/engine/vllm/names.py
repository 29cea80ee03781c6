"""Model names of this backend: ``vllm:NAME[,option=value...]``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from steelyard.core.errors import InputError, UnknownNameError

PREFIX = "vllm:"

OPTIONS: Mapping[str, type] = {
    "enforce_eager": bool,
    "gpu_memory_utilization": float,
    "max_num_batched_tokens": int,
    "prefix_caching": bool,
    "quantization": str,
    "tensor_parallel_size": int,
}
"""Options of vLLM that a name may bring; `prefix_caching` is its enable_prefix_caching."""

ANSWERS = frozenset({"enforce_eager", "prefix_caching", "quantization"})
"""Those that can change an answer: they are part of the identity. The others say where it is computed."""

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def parse(name: str) -> tuple[str, dict[str, Any]]:
    """The model's own name, and the options behind it.

    >>> parse("vllm:hf:org/name@main,tensor_parallel_size=2,enforce_eager=true")
    ('hf:org/name@main', {'tensor_parallel_size': 2, 'enforce_eager': True})

    Raises:
        InputError: there is no name, or an option has no value of its type, or comes twice.
        UnknownNameError: an option that is not known.
    """
    model, *given = name.removeprefix(PREFIX).split(",")
    if not model.strip():
        raise InputError(f"{name!r} names no model. Expected vllm:smollm2, vllm:hf:org/name or vllm:FOLDER.")
    options: dict[str, Any] = {}
    for part in given:
        key, sign, text = (piece.strip() for piece in part.partition("="))
        if key not in OPTIONS:
            raise UnknownNameError("option of vllm", key, OPTIONS)
        if key in options:
            raise InputError(f"{name!r} gives the option {key} twice. Keep one of them.")
        options[key] = _value(key, text if sign else "")
    return model.strip(), options


def _value(key: str, text: str) -> Any:  # noqa: ANN401 - of the type that OPTIONS names
    kind = OPTIONS[key]
    value: Any = None
    with contextlib.suppress(KeyError, ValueError):
        value = _TRUTH[text.lower()] if kind is bool else kind(text)
    right = {
        bool: value is not None,
        int: kind is int and value is not None and value >= 1,
        float: kind is float and value is not None and 0 < value <= 1,
        str: bool(value),
    }
    if not right[kind]:
        expected = {
            bool: "true or false",
            int: "a whole number of at least 1",
            float: "a share in (0, 1]",
            str: "a name",
        }
        raise InputError(f"The option {key} of vllm must be {expected[kind]}, got {text!r}.")
    return value
