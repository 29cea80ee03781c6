"""Ids are hashes of content: the same thing has the same id in every process, order and machine.

Resume, cache, deduplication and sharding are one mechanism, set difference on request ids, so an id must
hold everything that can change the answer (docs/adr/0002).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from steelyard.core.types import Generate, Identity, Item, Likelihood, Request, Tokens

_SIZE = 16  # bytes; 128 bits: no collision to be expected in 10^15 rows


def digest(value: object) -> str:
    """Hash of a JSON value as 32 hexadecimal digits; the order of mapping keys does not matter.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    # surrogatepass: hostile text may hold lone surrogates, which plain UTF-8 refuses
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_SIZE).hexdigest()


def request_id(identity: Identity, request: Request, tokens: Tokens | None) -> str:
    """The id of a request to one model with one engine configuration.

    Token ids stand for the text where the tokenizer is ours; a server's requests are known by their text.
    """
    body: dict[str, Any] = {"engine": identity.key()}
    match request:
        case Generate():
            body |= {
                "kind": "generate",
                "prompt": list(tokens.ids) if tokens else request.prompt,
                "draw": request.draw,
                "seed": request.seed,
                "sampling": request.sampling.key(),
            }
        case Likelihood():
            body |= {"kind": "likelihood"}
            if tokens:
                # the split is part of the id: the same tokens scored from another position are another question
                body |= {"tokens": list(tokens.ids), "start": tokens.start}
            else:
                body |= {"context": request.context, "continuation": request.continuation}
    return digest(body)


def run_id(identity: Identity, seed: int) -> str:
    """The id of a run: one model and checkpoint, one engine configuration, one study seed."""
    return digest({"engine": identity.key(), "seed": seed, "model": identity.model, "step": identity.step})[
        :16
    ]


def cell_id(run: str, item_id: str, form_id: str, sample: int) -> str:
    """The id of one cell of the table."""
    return digest([run, item_id, form_id, sample])


def form_id(parts: Mapping[str, Any]) -> str:
    """The id of a form: formulation x template x shots, with all that changes its text or its sampling."""
    return digest(dict(parts))[:16]


def content_hash(item: Item) -> str:
    """Hash of what an item asks and what counts as right; its id and benchmark name do not enter."""
    return digest(
        [item.question, dict(item.fields), item.reference.to_json(), [o.full for o in item.distractors]]
    )[:16]
