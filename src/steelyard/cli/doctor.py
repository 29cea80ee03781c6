"""``steelyard doctor``: what is there, what is missing, how to get it."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from rich.table import Table

from steelyard.cli.console import Console
from steelyard.core.cache import cache_root
from steelyard.running.environment import hardware, versions

EXTRAS = {
    "hf": (("torch", "transformers", "tokenizers", "safetensors", "gguf"), "local models"),
    "hub": (("datasets", "huggingface_hub"), "benchmarks and models of the hub"),
    "server": (("httpx",), "models behind a server"),
    "vllm": (("vllm",), "local models run by vLLM"),
    "spread": (("accelerate",), "models larger than one GPU"),
    "report": (("altair", "vl_convert"), "plots in reports"),
}


def examine(*, prepare: bool, as_json: bool) -> None:
    """Print what was found; with `prepare`, fetch and convert the embedded model first."""
    out = Console()
    if prepare:
        _prepare(out if not as_json else Console(stderr=True))
    found = _found()
    if as_json:
        from steelyard.cli.main import print_json

        print_json(found)
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in found["versions"].items():
        table.add_row(name, value)
    out.print(table)
    machine = found["hardware"]
    out.print(f"\n{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB")
    out.print(f"devices: {', '.join(found['devices']) or 'none (torch is not installed)'}")
    out.print(f"cache: {found['cache']}")
    out.print(f"benchmark data: {found['data']}")
    for name, state in found["models"].items():
        out.print(f"embedded model {name}: {state}")
    for extra in found["missing"]:
        out.print(f"missing: {extra['for']}. Get it with: {extra['command']}", style="yellow")
    if not found["missing"]:
        out.print("Nothing is missing. Next: steelyard demo")


def _found() -> dict[str, Any]:
    missing = []
    for extra, (modules, purpose) in EXTRAS.items():
        absent = [m for m in modules if importlib.util.find_spec(m) is None]
        if absent:
            command = f"pip install 'steelyard[{extra}]'"
            missing.append({"extra": extra, "packages": absent, "for": purpose, "command": command})
    return {
        "versions": versions(),
        "hardware": hardware(),
        "devices": _devices(),
        "cache": str(cache_root()),
        "data": os.environ.get("STEELYARD_DATA", "the hub (STEELYARD_DATA is not set)"),
        "models": _embedded(),
        "missing": missing,
    }


def _devices() -> list[str]:
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    devices = ["cpu"]
    if torch.cuda.is_available():
        devices += [f"cuda:{n} {torch.cuda.get_device_name(n)}" for n in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return devices


def _embedded() -> dict[str, str]:
    from steelyard.engine.transformers.embedded import catalog, embedded_folder

    states = {}
    for name, model in catalog().items():
        folder = embedded_folder(name)
        states[name] = (
            f"ready in {folder}" if folder else f"not prepared; steelyard doctor --prepare ({model.command})"
        )
    return states


def _prepare(out: Console) -> None:
    from steelyard.engine.transformers.embedded import catalog, resolve_embedded

    for name in catalog():
        folder = resolve_embedded(name, progress=out.print)
        out.print(f"{name} is ready in {folder}")
