"""How far two computations of the same answers may be apart.

Floating-point sums depend on the order of adding, and that order on shapes: another batch size is another
rounding. What is allowed below is that and no more; it is stated in nats per scored token, because errors of
tokens add up in a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """What may differ between two configurations of one model (batch sizes, engines), at most.

    Attributes:
        per_token: nats per scored token, of a likelihood's sum.
        greedy: share of greedy texts, in [0, 1], that may differ. A text differs where two tokens are almost
            equally likely, and then all of it behind that place.
        sampled: likewise of sampled texts: a draw that falls almost on the border between two tokens.
        resumed: nats per scored token between a run in one go and one that was interrupted. 0: the same bits.
            A resumed run computes the very batches of an uninterrupted one, so only a backend that does not
            compute in this process (a server) has a reason to ask for more.
    """

    per_token: float
    greedy: float = 0.0
    sampled: float = 0.05
    resumed: float = 0.0


FULL = Tolerance(per_token=1e-4)
"""float32 and float64. Measured differences are around 1e-6; a wrong mask or position gives 1e-2 or more."""

BY_DTYPE: Mapping[str, Tolerance] = MappingProxyType(
    {
        "float64": FULL,
        "float32": FULL,
        # 11 and 8 bits of mantissa: logits between 16 and 32 are 1/64 and 1/8 apart, and two such steps are
        # allowed; so near-ties are common, and no text is promised
        "float16": Tolerance(per_token=1 / 32, greedy=1.0, sampled=1.0),
        "bfloat16": Tolerance(per_token=1 / 4, greedy=1.0, sampled=1.0),
    }
)
"""By the dtype of weights and activations."""


def tolerance_for(dtype: str) -> Tolerance:
    """The tolerance of a dtype as `core.types.Identity` names it; the strictest where it is not known.

    >>> tolerance_for("bfloat16").per_token, tolerance_for("").per_token
    (0.25, 0.0001)
    """
    return BY_DTYPE.get(dtype, FULL)
