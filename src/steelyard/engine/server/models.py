"""Which model a server serves, and what it says of it that is stable enough to be its identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.core.errors import BackendError, InputError, UnknownNameError
from steelyard.core.ids import digest
from steelyard.engine.server.address import PREFIX, Address
from steelyard.engine.server.client import Client
from steelyard.engine.server.faults import Failure, MisfitError

# Not "created": vLLM and llama.cpp put the time of the question there. Not the context length either: it
# changes with the server's memory and changes no answer.
_STABLE = ("id", "owned_by", "root", "parent")
_STABLE_META = ("ftype", "n_ctx_train", "n_embd", "n_params", "n_vocab", "size", "vocab_type")
_LENGTHS = ("max_model_len", "context_length", "context_window", "max_context_length")


@dataclass(frozen=True, slots=True)
class Served:
    """One model of a server.

    Attributes:
        model: its id there.
        facts: what the server says of it and says again tomorrow.
        max_length: tokens of prompt and continuation together, None where the server does not say.
    """

    model: str
    facts: Mapping[str, Any]
    max_length: int | None

    def digest(self, base: str) -> str:
        """The digest that stands for the weights. A server may change them behind our back; no one can tell."""
        return digest({"base": base, "model": self.model, "facts": dict(self.facts)})


def read_list(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The entries of a /models answer.

    Raises:
        MisfitError: it is none.
    """
    entries = data.get("data")
    if not isinstance(entries, list):
        raise MisfitError("expected a list of models")
    return tuple(entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str))


async def look_up(client: Client, address: Address, *, unlisted: bool) -> Served:
    """Ask the server what it serves, and find the model that was meant.

    Args:
        client: the connection.
        address: where, and the model's id or "".
        unlisted: take the model's id as it is, also where the server does not list it.

    Raises:
        InputError: several models and none named.
        UnknownNameError: the server lists models, and not this one. (llama.cpp answers under any name: a
            misspelt one would be measured under the wrong label.)
        BackendError: the server cannot be reached, or does not list models and none was named.
    """
    try:
        # a person waits for this one: a wrong address should not take minutes to show
        entries = await client.ask("GET", "/models", None, read_list, label="models", max_retries=2)
    except BackendError as error:
        # servers without the list answer 404 or 405, which is no reason not to ask them anything else
        if not (address.model and any(f"({status})" in str(error) for status in (404, 405, 501))):
            raise
        return Served(address.model, {}, None)
    if isinstance(entries, Failure):
        raise BackendError(
            f"The server {address.base} does not say which models it serves: {entries.reason}. See that it runs "
            "and that the address is right (with /v1 where the server has it)."
        )
    ids = [str(entry["id"]) for entry in entries]
    if not address.model:
        if len(ids) == 1:
            return _served(entries[0])
        example = f"{PREFIX}{address.base}#{ids[0] if ids else 'model'}"
        raise InputError(
            f"The server {address.base} lists {len(ids)} models, so one must be named, such as {example}. "
            f"Listed: {', '.join(sorted(ids)[:20]) or 'none'}{', …' if len(ids) > 20 else ''}."
        )
    for entry in entries:
        aliases = entry.get("aliases")
        others = aliases if isinstance(aliases, list) else []
        names = {entry["id"], *(name for name in others if isinstance(name, str))}
        # Ollama lists "name:latest" and takes "name"
        if address.model in names or f"{address.model}:latest" in names:
            return _served(entry)
    if unlisted or not ids:
        return Served(address.model, {}, None)
    raise UnknownNameError(f"model of the server {address.base}", address.model, ids)


def _served(entry: Mapping[str, Any]) -> Served:
    facts = {name: entry[name] for name in _STABLE if isinstance(entry.get(name), str)}
    meta = entry.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    known = {name: meta[name] for name in _STABLE_META if isinstance(meta.get(name), str | int)}
    # n_ctx is llama.cpp's context of one slot
    lengths = [entry.get(name) for name in _LENGTHS] + [meta.get("n_ctx")]
    length = next((value for value in lengths if type(value) is int and value > 0), None)
    return Served(str(entry["id"]), facts | ({"meta": known} if known else {}), length)
