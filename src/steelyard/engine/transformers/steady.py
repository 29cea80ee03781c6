"""Whether a row's numbers depend on how many rows are computed with it.

Matrix kernels choose their blocks by the shape, and another order of additions changes the last bits: enough to
turn a draw around once in a while. Many CPU kernels add up each row in the same order whatever the number of rows,
and then a batch may shrink as its texts end. That is measured, on the model's own layers, and not assumed: where it
does not hold, the number of rows stays what the plan made it, and the places of rows that have ended are filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import torch


_KNOWN: WeakKeyDictionary[Any, dict[tuple[int, ...], bool]] = WeakKeyDictionary()
_HEADS: WeakKeyDictionary[Any, dict[tuple[int, ...], bool]] = WeakKeyDictionary()


def steady(net: Any, sizes: list[int]) -> bool:  # noqa: ANN401  a network of an untyped library
    """Whether every kind of matrix layer gives each row the same bits at all these row counts, in any place.

    Tried once for a network and the same row counts; it takes about a second.

    Args:
        net: loaded. One layer of each shape is tried, with its own weights.
        sizes: row counts, ascending.
    """
    known = _KNOWN.setdefault(net, {})
    if tuple(sizes) not in known:
        known[tuple(sizes)] = _tried(net, sizes)
    return known[tuple(sizes)]


def steady_head(net: Any, sizes: list[int]) -> bool:  # noqa: ANN401
    """As `steady`, for the vocabulary layer alone: whether logits may be made for the rows that are read only.

    Args:
        net: loaded.
        sizes: row counts, ascending; every one up to the largest that is used.
    """
    import torch

    head = net.get_output_embeddings()
    if not isinstance(head, torch.nn.Linear):
        return False
    known = _HEADS.setdefault(net, {})
    if tuple(sizes) not in known:
        with torch.inference_mode():
            known[tuple(sizes)] = _steady(head, head.in_features, sizes, torch.Generator().manual_seed(0))
    return known[tuple(sizes)]


def _tried(net: Any, sizes: list[int]) -> bool:  # noqa: ANN401
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        return all(_steady(layer, width, sizes, generator) for layer, width in _layers(net))


def _layers(net: Any) -> list[tuple[Any, int]]:  # noqa: ANN401
    """One layer of each shape, with its input width."""
    import torch
    from transformers.pytorch_utils import Conv1D

    found: dict[tuple[str, tuple[int, ...]], tuple[Any, int]] = {}
    for layer in net.modules():
        if isinstance(layer, torch.nn.Linear):
            width = layer.in_features
        elif isinstance(layer, Conv1D):
            width = layer.weight.shape[0]
        else:
            continue
        found.setdefault((type(layer).__name__, tuple(layer.weight.shape)), (layer, width))
    return list(found.values())


def _steady(layer: Any, width: int, sizes: list[int], generator: torch.Generator) -> bool:  # noqa: ANN401
    import torch

    most = sizes[-1]
    rows = torch.randn((most, width), generator=generator).to(layer.weight)
    # in the model the rows are one text: a batch of one
    whole = layer(rows[None])[0]
    turned = torch.arange(most - 1, -1, -1, device=rows.device)
    if not torch.equal(layer(rows[turned][None])[0][turned], whole):
        return False
    return all(torch.equal(layer(rows[:n][None])[0], whole[:n]) for n in sizes)
