"""From a model's name to a backend that can answer for it."""

from __future__ import annotations

from steelyard.engine.backend import Backend
from steelyard.plan.study import Study


def open_model(name: str, study: Study) -> Backend:
    """Open a backend. Weights are not loaded yet (see `engine.backend.Backend`).

    Args:
        name: ``smollm2``, ``hf:org/name[@revision]``, a local folder, ``server:URL#model``, ``simulated[:...]``,
            or ``vllm:`` in front of one of the first three.
        study: for device, dtype, context length and server options.
    """
    if name.startswith("server:"):
        from steelyard.engine.server import open_server

        return open_server(
            name,
            api=study.api,
            concurrency=study.concurrency,
            rate_limit=study.rate_limit,
            use_n=study.use_n,
            max_length=study.max_length,
            system=study.system if study.api == "chat" else None,
        )
    if name == "simulated" or name.startswith("simulated:"):
        from steelyard.engine.simulated import open_simulated

        return open_simulated(name)
    if name.startswith("vllm:"):
        from steelyard.engine.vllm import open_vllm

        return open_vllm(
            name,
            batch_size=study.batch_size,
            device=study.device,
            dtype=study.dtype,
            max_length=study.max_length,
            threads=study.threads,
        )
    from steelyard.engine.transformers.backend import open_transformers

    return open_transformers(
        name,
        device=study.device,
        dtype=study.dtype,
        max_length=study.max_length,
        threads=study.threads,
        engine=study.engine,
    )
