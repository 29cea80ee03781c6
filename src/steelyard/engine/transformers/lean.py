"""The same network with less waste on a CPU: packed matrices, and norms and gates without their temporaries.

Every exchange is tried on numbers before it is made. Norms and gates must give the very bits of the module that
they stand in for; a packed matrix adds up in another order, and must agree to rounding. Whatever fails stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from steelyard.engine.transformers.memory import available

if TYPE_CHECKING:
    import torch

_ROWS = 64  # for which the packed layout is chosen; it serves larger batches as well (measured up to 2,048)
_SHARE = 4  # packed matrices take at most this part of the memory that is free


def lighten(net: Any) -> None:  # noqa: ANN401  a network of an untyped library
    """Exchanges the forward of modules that have a leaner one, on a network in float32 on the CPU.

    Weights stay where they are (tied ones are used elsewhere); packed matrices are copies, made only as far as
    memory is plentiful, the vocabulary layer first, which gains most.
    """
    import torch

    if next(net.parameters()).dtype != torch.float32 or next(net.parameters()).device.type != "cpu":
        return
    with torch.inference_mode():
        for module in net.modules():
            for lean in (_norm, _gated):
                if (forward := lean(module)) is not None:
                    module.forward = forward
        _pack_all(net)


def _norm(module: Any) -> Callable[[torch.Tensor], torch.Tensor] | None:  # noqa: ANN401
    """A root-mean-square norm in one operation."""
    import torch

    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not type(module).__name__.endswith("RMSNorm") or weight is None or not isinstance(eps, float):
        return None
    width = weight.shape[-1]

    def forward(hidden_states: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(hidden_states, (width,), weight, eps)

    return forward if _same(module, forward, _numbers(width)) else None


def _gated(module: Any) -> Callable[[torch.Tensor], torch.Tensor] | None:  # noqa: ANN401
    """``down(silu(gate(x)) * up(x))``, the two products in place."""
    import torch

    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not all(isinstance(p, torch.nn.Linear) for p in parts) or not hasattr(module, "act_fn"):
        return None
    gate, up, down = parts

    def forward(x: torch.Tensor) -> torch.Tensor:
        return down(torch.nn.functional.silu(gate(x), inplace=True).mul_(up(x)))  # type: ignore[misc]

    return forward if _same(module, forward, _numbers(gate.in_features)) else None  # type: ignore[union-attr]


def _pack_all(net: Any) -> None:  # noqa: ANN401
    import torch

    head = net.get_output_embeddings()
    layers = [m for m in net.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    room = (available("cpu") or 0) // _SHARE
    for layer in ([head] if isinstance(head, torch.nn.Linear) else []) + layers:
        room -= layer.weight.nbytes
        if room < 0:
            return
        if (forward := _packed(layer)) is not None:
            layer.forward = forward


def _packed(layer: torch.nn.Linear) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """A linear layer whose matrix lies as the kernel reads it."""
    import torch

    if not torch.backends.mkldnn.is_available():
        return None
    bias = layer.bias
    try:
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _ROWS)  # noqa: SLF001
    except (AttributeError, NotImplementedError, RuntimeError):
        return None  # a build without the kernel

    def forward(x: torch.Tensor) -> torch.Tensor:
        # what the library's own compiler emits for a linear layer; there is no public name for it
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # noqa: SLF001
        return out

    x = _numbers(layer.in_features)
    before = torch.nn.functional.linear(x, layer.weight, bias)
    close = torch.allclose(forward(x), before, rtol=1e-4, atol=float(before.abs().max()) * 1e-5)
    return forward if close else None


def _same(module: Any, forward: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> bool:  # noqa: ANN401
    import torch

    try:
        return bool(torch.equal(module(x), forward(x)))
    except (RuntimeError, TypeError):
        return False


def _numbers(width: int) -> torch.Tensor:
    import torch

    return torch.randn((1, 16, width), generator=torch.Generator().manual_seed(0))
