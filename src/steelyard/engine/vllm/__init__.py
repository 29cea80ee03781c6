"""vLLM in this process: its scheduler and kernels, our token boundary, and a check of every answer."""

from __future__ import annotations

from steelyard.engine.vllm.backend import VllmBackend, open_vllm

__all__ = ["VllmBackend", "open_vllm"]
