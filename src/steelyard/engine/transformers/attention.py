"""Where a network's layers attend, handed to us by the library.

The library lets attention be replaced by name (its attention interface): a layer hands over queries, keys and
values with their positions already in them, and knows nothing of who may see whom. That is decided here, by
whoever runs the forward pass: a pack of a trie (`pack_pass`), or a step of many rows (`decode`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

NAME = "steelyard"
# what layers pass on that has no part in which keys are seen, or is handled here
_HARMLESS = {
    "dropout",
    "position_ids",
    "position_embeddings",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "use_cache",
    "cache",
    "cache_position",
    "past_key_values",
    "logits_to_keep",
    "return_dict",
    "num_items_in_batch",
    "is_causal",
}


class UnshareableError(Exception):
    """A layer asks for an attention that cannot be done over a pack; the text says which."""


class Attend(Protocol):
    """What a forward pass does where its layers attend."""

    def attend(self, layer: int, call: Call) -> torch.Tensor:
        """Output of shape (1, queries, heads, value width), in the queries' dtype."""
        ...


class Call:
    """What one layer hands over.

    Attributes:
        query: shape (1, heads, new, width).
        key: shape (1, key heads, new, width); value: with its own width.
        scale: of the products.
        softcap: bound c of the scores, ``c tanh(s / c)`` (Gemma 2); None for none.
        window: a key at least this many positions back is not seen; None for no limit.
        sinks: shape (heads,): a logit that takes part in each softmax and has no value (gpt-oss); None for none.
    """

    __slots__ = ("key", "query", "scale", "sinks", "softcap", "value", "window")

    def __init__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        window: int | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        self.query, self.key, self.value = query, key, value
        self.scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        self.softcap, self.window, self.sinks = softcap, window, sinks


_current: ContextVar[Attend | None] = ContextVar("steelyard_attention", default=None)


def register() -> None:
    """Makes the name known to the library; twice does no harm."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _interface)


@contextlib.contextmanager
def attending(net: Any, how: Attend) -> Iterator[None]:  # noqa: ANN401  a network of an untyped library
    """Within the ``with``, the layers of a network attend as `how` does; afterwards as before."""
    config = net.config
    before = config._attn_implementation  # noqa: SLF001  the library's switch has no public setter that is cheap
    token = _current.set(how)
    config._attn_implementation = NAME  # noqa: SLF001
    try:
        yield
    finally:
        config._attn_implementation = before  # noqa: SLF001
        _current.reset(token)


def _interface(  # noqa: PLR0917  the library calls it so
    module: Any,  # noqa: ANN401
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: torch.Tensor | None = None,
    **others: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, None]:
    how = _current.get()
    layer = getattr(module, "layer_idx", None)
    if how is None or layer is None:
        raise UnshareableError("its attention layers are not numbered")
    if attention_mask is not None:
        raise UnshareableError("it makes an attention mask of its own")
    strange = sorted(name for name, v in others.items() if v is not None and name not in _HARMLESS)
    if strange or others.get("is_causal") is False:
        raise UnshareableError(f"its attention takes {', '.join(strange) or 'keys from both sides'}")
    call = Call(query, key, value, scale=scaling, softcap=softcap, window=sliding_window or None, sinks=s_aux)
    return how.attend(layer, call), None
