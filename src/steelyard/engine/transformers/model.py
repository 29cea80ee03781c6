"""The network itself: configuration at once, weights on first use, and one call that gives logits."""

from __future__ import annotations

import contextlib
import gc
import inspect
import json
import re
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.core.errors import BackendError, InputError, UnknownNameError, missing_package
from steelyard.core.ids import digest
from steelyard.core.rng import stream
from steelyard.engine.transformers.attention import Attend, attending, register
from steelyard.engine.transformers.facts import remembered
from steelyard.engine.transformers.resolve import Checkpoint

if TYPE_CHECKING:
    import torch
    from transformers import Cache, PreTrainedModel

DTYPES = ("float32", "bfloat16", "float16")
# written by tools and without effect on an answer
_NOISE = {"_name_or_path", "_model_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"}


class LanguageModel:
    """A causal language model from safetensors, without any code of its author.

    Args:
        checkpoint: where its files are.
        device: "auto" (CUDA where there is one, else CPU), "cpu", "cuda", "cuda:1", ..., or "spread": over all
            GPUs and then the CPU, layer by layer, by the package accelerate, for a model larger than one GPU.
        dtype: of the weights and of the computation; log-probabilities are made in float32 or wider anyway.
        threads: CPU threads of the whole process; None leaves them alone.
        cache: where what the library makes of the configuration is remembered; None asks it each time.

    Raises:
        MissingError: transformers is not installed.
        InputError: the configuration is not that of a causal language model.
        UnknownNameError: dtype or device.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "auto",
        dtype: str = "float32",
        threads: int | None = None,
        cache: Path | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise UnknownNameError("dtype", dtype, DTYPES)
        if not re.fullmatch(r"auto|cpu|mps|spread|cuda(:\d+)?", device):
            raise UnknownNameError("device", device, ["auto", "cpu", "cuda", "cuda:N", "mps", "spread"])
        if threads is not None and threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}.")
        self.checkpoint, self.dtype = checkpoint, dtype
        self._device, self._threads = device, threads
        facts = remembered("config", checkpoint.folder, cache, self._read)
        self.max_length: int | None = facts["max_length"]
        self.vocabulary: int = facts["vocabulary"]
        self.eos_ids: frozenset[int] = frozenset(facts["eos_ids"])
        # LongRoPE (Phi-3, 128k) turns the positions of a whole batch by other angles once its longest row is
        # longer than this, so that a short row's score would depend on its neighbours
        self.edge: int | None = facts["edge"]
        self._net: Any = None
        self._cache_name = "past_key_values"
        self._takes_positions = True

    def _read(self) -> dict[str, Any]:
        """What the configuration says, defaults of its architecture included."""
        try:
            from transformers import AutoConfig, GenerationConfig
        except ImportError as error:
            raise missing_package("transformers", "hf", "A local model") from error
        folder, name = str(self.checkpoint.folder), self.checkpoint.name
        try:
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            raise InputError(f"The configuration of {name!r} cannot be read: {error}") from error
        if getattr(config, "is_encoder_decoder", False):
            raise InputError(f"{name!r} is an encoder-decoder model; only causal ones are run here.")
        text = config.get_text_config()
        length = getattr(text, "max_position_embeddings", None)
        try:
            ends = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
        except (OSError, ValueError):
            ends = None  # the file is optional
        ends = text.eos_token_id if ends is None else ends
        return {
            "max_length": int(length) if isinstance(length, int) and length > 0 else None,
            "vocabulary": int(text.vocab_size),
            "edge": _longrope_edge(config),
            "eos_ids": [] if ends is None else [ends] if isinstance(ends, int) else list(ends),
        }

    @property
    def config_digest(self) -> str:
        """Hash of config.json: the same weights with another rotary base are another model."""
        body = json.loads((self.checkpoint.folder / "config.json").read_text("utf-8"))
        return digest({k: repr(v) for k, v in body.items() if k not in _NOISE})[:16]

    @property
    def device(self) -> str:
        """The device that "auto" stands for, and where a spread model takes its input."""
        import torch

        if self._device not in {"auto", "spread"}:
            return self._device
        return "cuda" if torch.cuda.is_available() else "cpu"

    def load(self) -> PreTrainedModel:
        """The network, read from disk the first time.

        Raises:
            BackendError: the weights do not fit the configuration, or cannot be read.
        """
        if self._net is not None:
            return self._net
        import torch
        from transformers import AutoModelForCausalLM

        if self._threads is not None:
            torch.set_num_threads(self._threads)
        name = self.checkpoint.name
        if self._device == "spread" and find_spec("accelerate") is None:
            raise missing_package("accelerate", "spread", "A model spread over devices")
        _ = self.checkpoint.weights  # refuses pickles with a message of ours
        try:
            with _no_bars():
                net, said = AutoModelForCausalLM.from_pretrained(
                    str(self.checkpoint.folder),
                    dtype=getattr(torch, self.dtype),
                    use_safetensors=True,
                    trust_remote_code=False,
                    local_files_only=True,
                    output_loading_info=True,
                    **({"device_map": "auto"} if self._device == "spread" else {}),
                )
            net = (net if self._device == "spread" else net.to(self.device)).eval()
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError) as error:
            raise BackendError(f"The weights of {name!r} cannot be loaded: {error}") from error
        wrong = [*said["missing_keys"], *said["mismatched_keys"]]
        if wrong:
            # the library fills these with random numbers and goes on
            raise BackendError(
                f"{len(wrong)} weights of {name!r} are missing or have another shape than its config says, such as "
                f"{wrong[0]!r}. The checkpoint is incomplete; its answers would be noise."
            )
        accepted = inspect.signature(net.forward).parameters
        # transformers 5.24 renamed the argument and the output field; older releases know the old name only
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._takes_positions = "position_ids" in accepted  # ALiBi and recurrent models need none
        self._net = net
        return net

    def logits(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        rows: torch.Tensor,
        columns: torch.Tensor,
        *,
        cache: Cache | None = None,
        use_cache: bool = False,
    ) -> tuple[torch.Tensor, Any]:
        """Next-token logits at chosen positions of one forward pass.

        The vocabulary layer sees the chosen positions only: full logits of a 1,118-token row with 50,304 tokens
        are 225 MB, of which scoring reads a tenth. The choice is made in front of that layer (a hook) and not by
        applying it ourselves, so that what an architecture does to its logits afterwards (soft caps, scales)
        is done by its own code.

        Args:
            ids: shape (rows, new positions), any id where the mask is 0.
            mask: shape (rows, past + new positions), 1 for tokens and 0 for padding on either side.
            rows: shape (n,), int64.
            columns: shape (n,), int64, counted in the new positions.
            cache: keys and values of the past positions.
            use_cache: whether to make or extend one.

        Returns:
            float32 logits of shape (n, vocabulary), and the cache or None.

        Raises:
            BackendError: a cache was asked for and the architecture has none that can be batched.
        """
        import torch

        net = self.load()
        extra: dict[str, Any] = {"use_cache": use_cache}
        if cache is not None:
            extra[self._cache_name] = cache
        if self._takes_positions:
            # padding does not count: a token's position is the number of tokens before it
            extra["position_ids"] = (mask.cumsum(-1) - 1).clamp_min(0)[:, -ids.shape[1] :]
        if cache is not None and _remembers_no_places(cache):
            # a state-space model multiplies its input by the mask, which must then be as long as the input
            mask = mask[:, -ids.shape[1] :]
        with torch.inference_mode():
            out, chosen = _forward(net, rows, columns, input_ids=ids, attention_mask=mask, **extra)
            after = getattr(out, self._cache_name, None) if use_cache else None
        if use_cache and not hasattr(after, "reorder_cache"):
            raise BackendError(
                f"The architecture {type(net).__name__} keeps no cache that rows can be taken from, so it cannot "
                "generate here. Its likelihoods can be had."
            )
        return chosen.float(), after

    def pack_logits(
        self, ids: torch.Tensor, positions: torch.Tensor, columns: torch.Tensor, how: Attend
    ) -> torch.Tensor:
        """Next-token logits at chosen places of a pack: tokens of several texts in one row.

        Args:
            ids: shape (new,), int64.
            positions: shape (new,), each token's own.
            columns: shape (n,), int64: places in the pack; none gives no logits, and runs the layers all the same.
            how: what the layers do where they attend; see `attention`.

        Returns:
            float32 logits of shape (n, vocabulary).

        Raises:
            UnshareableError: the architecture attends in a way that a pack cannot.
        """
        import torch

        net = self.load()
        register()
        with torch.inference_mode(), attending(net, how):
            _, chosen = _forward(
                net,
                torch.zeros_like(columns),
                columns,
                input_ids=ids.unsqueeze(0),
                position_ids=positions.unsqueeze(0),
                use_cache=False,
            )
        return chosen.float()

    def prefill_rate(self) -> float:
        """Tokens/s of the library's own forward pass: 2 rows of 512 tokens, logits at the last place only.

        The measure that an engine's own rate is held against; one pass, after which the machine is warm.
        """
        import torch

        self.load()
        length = min(512, self.max_length or 512)
        words = stream(0, "prefill").integers(0, self.vocabulary, (2, length))
        ids = torch.from_numpy(words).to(self.device)
        last = torch.full((2,), length - 1, device=self.device)
        began = time.perf_counter()
        self.logits(ids, torch.ones_like(ids), torch.arange(2, device=self.device), last)
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()
        return float(ids.numel() / (time.perf_counter() - began))

    @property
    def bytes_per_token(self) -> int:
        """Memory that one token of a forward pass takes at most: activations, its logits, its keys and values."""
        net = self.load()
        config = net.config.get_text_config()
        hidden = int(config.hidden_size)
        inner = getattr(config, "intermediate_size", None)
        inner = max(inner) if isinstance(inner, list) else inner
        wide = 12 * hidden + 3 * int(inner or 4 * hidden)
        layers = int(config.num_hidden_layers)
        return 4 * (2 * self.vocabulary + wide + 2 * layers * hidden)

    def close(self) -> None:
        """Frees the weights; the next use reads them again."""
        if self._net is None:
            return
        self._net = None
        gc.collect()  # modules refer to each other in circles
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _forward(
    net: Any,  # noqa: ANN401
    rows: torch.Tensor,
    columns: torch.Tensor,
    **inputs: Any,  # noqa: ANN401
) -> tuple[Any, torch.Tensor]:
    """The network's output, and its logits of shape (n, vocabulary) at the chosen places only."""
    head = net.get_output_embeddings()

    def choose(_module: object, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (args[0][rows, columns].unsqueeze(0), *args[1:])

    if head is None:
        out = net(**inputs)
        return out, out.logits[rows, columns]
    hook = head.register_forward_pre_hook(choose)
    try:
        out = net(**inputs)
    finally:
        hook.remove()
    return out, out.logits[0]


def _longrope_edge(config: Any) -> int | None:  # noqa: ANN401 - a class of an untyped library
    """The length up to which LongRoPE takes its factors for short texts; None where there is no LongRoPE."""
    text = config.get_text_config()
    # the newer name first; one set of parameters, or one per kind of layer
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    for one in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if "longrope" in (one.get("rope_type"), one.get("type")):
            edge = one.get("original_max_position_embeddings") or getattr(
                text, "original_max_position_embeddings", None
            )
            return edge if isinstance(edge, int) else None
    return None


def _remembers_no_places(cache: Cache) -> bool:
    """Whether a cache holds states only, and no keys that a mask of all past positions would be for."""
    layers = getattr(cache, "layers", None)  # absent before transformers 4.54, where every cache had keys
    return False if not layers else not any(hasattr(layer, "keys") for layer in layers)


@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    """Keeps the library's progress bars off the terminal, which belongs to the command line."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
