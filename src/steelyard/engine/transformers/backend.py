"""The local model as a backend: what it is, and the one call that does work."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from steelyard.core.cache import cache_root
from steelyard.core.errors import BackendError, InputError, SteelyardError, UnknownNameError
from steelyard.core.types import (
    Batch,
    Generate,
    Identity,
    Likelihood,
    Request,
    Response,
    Tokens,
    Work,
)
from steelyard.engine.backend import Capabilities, check_run
from steelyard.engine.tokens import encode_pair, encode_prompt
from steelyard.engine.transformers.answer import Engine, answer, failed
from steelyard.engine.transformers.batching import Row, cut
from steelyard.engine.transformers.files import digest_files
from steelyard.engine.transformers.lean import lighten
from steelyard.engine.transformers.memory import free_memory, out_of_memory
from steelyard.engine.transformers.model import LanguageModel
from steelyard.engine.transformers.resolve import Checkpoint, resolve
from steelyard.engine.transformers.sampling import check
from steelyard.engine.transformers.sharing import why_not
from steelyard.engine.transformers.together import answer_together
from steelyard.engine.transformers.tokenizer import LocalTokenizer, digest_paths

ENGINES = ("shared", "plain")
_ROWS = 16  # requests of a plain batch
_THREADS = frozenset({"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"})


def open_transformers(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "float32",
    max_length: int | None = None,
    threads: int | None = None,
    token_logprobs: bool = False,
    engine: str = "shared",
    cache_dir: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> TransformersBackend:
    """A backend for a local model; its tokenizer and digests are read now, its weights by the first work.

    Args:
        name: ``smollm2``, ``hf:org/name[@revision]`` or a folder.
        device: "auto" (CUDA where there is one, else CPU), "cpu", "cuda", "cuda:N", "mps".
        dtype: "float32", "bfloat16" or "float16". It can change answers, so it is part of the identity, and
            float32 on every device: an answer should not depend on which machine was free.
        max_length: tokens of prompt and continuation together; None takes the model's own.
        threads: CPU threads of the process; None leaves them alone.
        token_logprobs: whether likelihoods come with one number per token.
        engine: "shared" computes each distinct prefix once; "plain" is the reference, one request at a time.
        cache_dir: of converted models and digests, else $STEELYARD_CACHE and so on (`core.cache`).
        progress: receives a phrase per stage of the first set-up.

    Raises:
        SteelyardError: as `resolve.resolve`, `model.LanguageModel` and `tokenizer.LocalTokenizer` say.
    """
    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, ENGINES)
    _let_threads_sleep()
    checkpoint = resolve(name, cache_dir=cache_dir, progress=progress)
    cache = cache_root(cache_dir)
    model = LanguageModel(checkpoint, device=device, dtype=dtype, threads=threads, cache=cache)
    return TransformersBackend(
        checkpoint,
        model,
        LocalTokenizer(checkpoint.folder, cache),
        max_length=max_length,
        token_logprobs=token_logprobs,
        shared=engine == "shared",
        cache=cache,
    )


class TransformersBackend:
    """Implements `engine.backend.Backend`. Use `open_transformers` to make one.

    Requests that share a prefix are computed together (`together`), unless the plain way is asked for or the
    network cannot (`sharing`); texts beyond a model's LongRoPE edge take the plain way too.

    A likelihood's `n_bytes` are the bytes of the continuation as it was asked for, also when the boundary was
    moved: bits per byte of two models then have one denominator, whatever their tokenizers.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        model: LanguageModel,
        tokenizer: LocalTokenizer,
        *,
        max_length: int | None,
        token_logprobs: bool,
        shared: bool,
        cache: Path,
    ) -> None:
        if max_length is not None and max_length < 2:
            raise InputError(
                f"max_length must be at least 2 (one token read, one answered), got {max_length}."
            )
        self.checkpoint = checkpoint
        self.model = model
        self.tokenizer = tokenizer
        self._max_length = model.max_length if max_length is None else max_length
        self._engine = Engine(model=model, tokenizer=tokenizer, token_logprobs=token_logprobs)
        self._shared = shared
        self._sharing: str | None = None  # not known before the weights are there
        self._rows = 0  # most rows that memory held after it ran out once; 0: no limit known
        self._identity = Identity(
            model=checkpoint.name,
            backend="transformers",
            weights_digest=digest_files(checkpoint.weights, cache),
            tokenizer_digest=digest_files(digest_paths(checkpoint.folder), cache),
            dtype=model.dtype,
            settings={
                "config": model.config_digest,
                "eos": sorted(model.eos_ids),
                "max_length": self._max_length,
            },
            step=checkpoint.step,
            tokens_seen=checkpoint.tokens_seen,
        )

    @property
    def identity(self) -> Identity:
        """Who answers: weights, tokenizer, dtype, configuration, end tokens and context length."""
        return self._identity

    @property
    def capabilities(self) -> Capabilities:
        """Everything; chat where the tokenizer has a template."""
        return Capabilities(chat=self.tokenizer.has_chat, max_length=self._max_length)

    @property
    def sharing(self) -> str:
        """Why prefixes that requests share are computed again, as a sentence; "" if they are not, or it is open.

        Known after the first `run` that had work.
        """
        return self._sharing or ""

    def encode(self, request: Request) -> Tokens:
        """The request as token ids; see `steelyard.engine.tokens`."""
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
        batch_size: int | None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Batch]:
        """Answers all of `work` that is not in `done`; see `engine.backend.Backend.run`.

        Requests that cannot be run (too long, bad settings) are answered first, as errors that say why. What
        does not fit the memory is halved: a plain batch down to one request, which then is an error, a pack of
        the shared engine down to one token.

        `batch_size` is the number of texts under way at most (None: 64, or what memory holds), and the number of
        requests in a batch of the plain way (None: 16). It changes no answer.

        Raises:
            InputError: batch_size below 1, or a request id that comes twice.
            BackendError: the model failed for another reason than memory.
        """
        check_run(work, batch_size, _ROWS)
        rows: list[Row] = []
        refused: list[Response] = []
        for one in work:
            row = self._admit(one)
            if isinstance(row, Row):
                rows.append(row)
            elif one.request_id not in done:
                refused.append(row)
        if refused and not cancelled():
            yield Batch(responses=tuple(refused))
        if cancelled() or all(row.work.request_id in done for row in rows):
            return
        together = self._together(rows)
        if together:
            yield from self._guarded(
                answer_together(self._engine, together, done, batch_size=batch_size, cancelled=cancelled)
            )
        apart = rows if not together else [row for row in rows if self._beyond(row)]
        yield from self._plainly(apart, done, batch_size or _ROWS, cancelled)

    def close(self) -> None:
        """Frees the weights."""
        self.model.close()

    # ------------------------------------------------------------------------------------------- inside
    def _together(self, rows: Sequence[Row]) -> list[Row]:
        """Rows whose prefixes are shared: none where the network cannot do it."""
        if not self._shared:
            return []
        if self._sharing is None:
            self._sharing = why_not(self.model)
            if not self._sharing:
                lighten(self.model.load())
        return [] if self._sharing else [row for row in rows if not self._beyond(row)]

    def _beyond(self, row: Row) -> bool:
        """Whether a row's length makes the model turn its positions otherwise; those are computed apart."""
        return self.model.edge is not None and row.length > self.model.edge

    def _plainly(
        self, rows: Sequence[Row], done: AbstractSet[str], batch_size: int, cancelled: Callable[[], bool]
    ) -> Iterator[Batch]:
        for planned in cut(rows, batch_size, self.model.vocabulary, self.model.edge):
            # a batch is stored whole or not at all, so after a kill none is half done; where one is (a larger
            # study, an error asked again) only the rest of it is run
            waiting = [planned_row for planned_row in planned if planned_row.work.request_id not in done]
            queue = [waiting] if waiting else []
            while queue:
                if cancelled():
                    return
                batch = queue.pop(0)
                if self._rows and len(batch) > self._rows:
                    queue[:0] = [batch[: self._rows], batch[self._rows :]]
                    continue
                answered = self._attempt(batch)
                if answered is None:
                    self._rows = len(batch) // 2
                    queue.insert(0, batch)
                else:
                    yield answered

    def _guarded(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches, with what the network raises as an error of ours."""
        try:
            yield from batches
        except SteelyardError:
            raise
        except Exception as error:
            said = "ran out of memory with one token" if out_of_memory(error) else "failed"
            raise BackendError(
                f"The model {self.checkpoint.name!r} {said}: {type(error).__name__}: {error}"
            ) from error

    def _admit(self, work: Work) -> Row | Response:
        """The request as a row, or the error that says why it cannot be one."""
        try:
            tokens = work.tokens if work.tokens is not None else self.encode(work.request)
        except SteelyardError as error:
            return failed(work, str(error))
        count, limit, vocabulary = len(tokens.ids), self._max_length, self.model.vocabulary
        if not tokens.ids or min(tokens.ids) < 0 or max(tokens.ids) >= vocabulary:
            return failed(
                work, f"The token ids are not all in 0 .. {vocabulary - 1}, the model's vocabulary."
            )
        match work.request:
            case Likelihood():
                if not 1 <= tokens.start < count:
                    return failed(work, f"No token to score: start is {tokens.start} of {count} tokens.")
                if limit is not None and count > limit:
                    return failed(work, f"Too long: {count} tokens, and the model takes {limit}.")
                return Row(work, tokens, count)
            case Generate(sampling=sampling, seed=seed):
                if (wrong := check(sampling, seed)) is not None:
                    return failed(work, wrong)
                if limit is not None and count + 1 > limit:
                    return failed(
                        work,
                        f"Too long: a prompt of {count} tokens leaves no room to answer; the model takes {limit}.",
                    )
                room = sampling.max_tokens if limit is None else min(sampling.max_tokens, limit - count)
                return Row(work, tokens, count + room)

    def _attempt(self, batch: Sequence[Row]) -> Batch | None:
        """One batch answered; None when memory ran out and there is something to halve."""
        try:
            return answer(self._engine, batch)
        except SteelyardError:
            raise
        except Exception as error:
            if not out_of_memory(error):
                raise BackendError(
                    f"The model {self.checkpoint.name!r} failed on a batch of {len(batch)} requests of up to "
                    f"{batch[0].length} tokens: {type(error).__name__}: {error}"
                ) from error
        # out of the handler: its traceback held the tensors that did not fit
        free_memory()
        if len(batch) > 1:
            return None
        row = batch[0]
        return Batch(responses=(failed(row.work, f"Out of memory with one request of {row.length} tokens."),))


def _let_threads_sleep() -> None:
    """Makes OpenMP's threads sleep soon while they wait, unless torch is loaded or the user has a word on it.

    By default they spin for long. On a machine whose cores are shared they then take the very core that the thread
    they wait for needs, and a model runs several times slower with two threads than with one. To sleep at once
    costs more than many a small operation takes. So they spin for some tens of microseconds (bench/threads.py).
    """
    if "torch" not in sys.modules and not _THREADS.intersection(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "10000"  # read once, when torch loads the OpenMP library
