"""The machine, the versions, and how fast the library's own forward pass is on it right now."""

from __future__ import annotations

import datetime as dt
import time
from importlib import metadata
from typing import Any

import numpy as np

from steelyard.core.rng import stream
from steelyard.running.environment import hardware, versions

ROWS, LENGTH = 2, 512


def described() -> dict[str, Any]:
    """CPU, cores, threads, versions and the date; the model library must be loaded already."""
    import torch

    found = hardware()
    return {
        "cpu": found["cpu"],
        "cores": found["cores"],
        "threads": torch.get_num_threads(),
        "memory_gib": found["memory_gib"],
        "versions": versions() | {"lm-eval": metadata.version("lm_eval")},
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }


class Prefill:
    """Plain prefill: the library's forward pass over 2 rows of 512 random tokens, one position of logits.

    Args:
        net: the peer's network, which nothing of ours has touched.
    """

    def __init__(self, net: Any) -> None:
        import torch

        random = stream(0, "bench", "prefill")
        self._net = net
        self._ids = torch.from_numpy(
            random.integers(0, net.config.vocab_size, (ROWS, LENGTH), dtype=np.int64)
        )
        self.rate()  # the first pass also sets up the thread pool and the kernels

    def rate(self) -> float:
        """Tokens per second of one pass."""
        import torch

        began = time.perf_counter()
        with torch.inference_mode():
            self._net(input_ids=self._ids, logits_to_keep=1, use_cache=False)
        return ROWS * LENGTH / (time.perf_counter() - began)
