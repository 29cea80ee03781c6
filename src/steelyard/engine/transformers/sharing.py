"""Whether a network can compute shared prefixes once, and if not, why.

What its configuration says comes first; then it is tried, on a few short texts that branch, against the plain
way. An architecture that attends in a way of its own (positions in a bias, states instead of keys, chunks) is so
found out whether or not anybody has heard of it. A sliding window is narrowed meanwhile: at thousands of tokens it
would show in long texts only, and there are layers (Phi-3.5-MoE) that rely on the library's mask for it and do not
hand it over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from steelyard.core.errors import SteelyardError
from steelyard.core.rng import stream
from steelyard.core.types import Tokens
from steelyard.engine.transformers.attention import UnshareableError
from steelyard.engine.transformers.memory import out_of_memory
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.reference import score
from steelyard.engine.transformers.shared import SharedScorer

_PLAIN = "Shared prefixes are computed again for each request"
_KINDS = {"full_attention", "sliding_attention", "attention"}  # of layers, as the library names them
_WINDOW = 16  # of the trial: shorter than its texts; through two layers they still see their first token
_ALLOWED = {"float32": 0.02, "bfloat16": 0.5, "float16": 0.25}  # of what one early token changes


def why_not(model: LanguageModel) -> str:
    """A sentence that says why prefixes cannot be shared, "" where they can. Loads the network.

    Raises:
        SteelyardError: the network cannot be loaded.
    """
    net = model.load()
    reason = _by_configuration(net) or _by_trial(model)
    return f"{_PLAIN}: {type(net).__name__} {reason}." if reason else ""


def _by_configuration(net: Any) -> str:  # noqa: ANN401  a network of an untyped library
    config = net.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ()) - _KINDS
    if kinds:
        return f"has layers that are no attention over all earlier tokens ({', '.join(sorted(kinds))})"
    import inspect

    if "position_ids" not in inspect.signature(net.forward).parameters:
        return "takes no positions, so texts that branch cannot stand in one row"
    return ""


def _by_trial(model: LanguageModel) -> str:
    # a common stem, branches of several lengths, one of them inside another, and packs that cut through them
    words = stream(0, "sharing").integers(0, model.vocabulary, 64).tolist()
    room = min(64, model.max_length or 64, model.edge or 64)
    stem = words[: room // 3]
    tails = (words[24:33], words[24:28] + words[33:36], words[36:38], words[24:26])
    texts = [Tokens(tuple(stem + tail)[:room], max(1, min(len(stem), room - 1) - 2)) for tail in tails]
    texts = [t for t in texts if len(t.ids) > t.start]
    other = [Tokens((*_other(t.ids[:1], model.vocabulary), *t.ids[1:]), t.start) for t in texts]
    found: dict[int, Any] = {}
    try:
        with _narrow(model.load()):
            plain = _values(score(model, texts)[0])
            for step in SharedScorer(texts, 12).run(model):
                found.update(step.results)
            moved = _values(score(model, other)[0])
    except UnshareableError as error:
        return f"cannot: {error}"
    except SteelyardError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise
        if not getattr(model.load(), "_supports_attention_backend", True):
            return "attends in a way of its own, which cannot be replaced"
        return f"fails when texts that branch stand in one row ({type(error).__name__}: {error})"
    shared = _values([found[i] for i in range(len(texts))])
    effect = float(np.abs(moved - plain).max())
    worst = float(np.abs(shared - plain).max())
    if not worst <= max(1e-5, _ALLOWED[model.dtype] * effect):
        return (
            f"gives other log-probabilities when texts that branch stand in one row (by up to {worst:.2g} nats, "
            f"where another first token changes them by {effect:.2g})"
        )
    return ""


@contextlib.contextmanager
def _narrow(net: Any) -> Iterator[None]:  # noqa: ANN401
    """Within the ``with``, wide sliding windows are narrow, in the library's masks and in the layers."""
    places = [p for p in (net.config.get_text_config(), *net.modules()) if _window(p) > _WINDOW]
    before = [_window(p) for p in places]
    try:
        for place in places:
            place.sliding_window = _WINDOW
        yield
    finally:
        for place, window in zip(places, before, strict=True):
            place.sliding_window = window


def _window(place: object) -> int:
    window = getattr(place, "sliding_window", None)
    return window if isinstance(window, int) else 0


def _values(scores: list[Any]) -> np.ndarray:
    return np.array([v for s in scores for v in s.token_logprobs])


def _other(ids: tuple[int, ...], vocabulary: int) -> tuple[int, ...]:
    return tuple((i + 1 + vocabulary // 2) % vocabulary for i in ids)
