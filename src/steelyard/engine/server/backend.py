"""The server backend: requests go out side by side, answers come back as they are ready."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from steelyard.core.errors import BackendError, InputError, RefusedError
from steelyard.core.types import Batch, Generate, Identity, Likelihood, Request, Response, Tokens, Work
from steelyard.engine.backend import Capabilities, check_run
from steelyard.engine.server import generation
from steelyard.engine.server.address import PREFIX, Address
from steelyard.engine.server.asker import Answered, Asker, Group
from steelyard.engine.server.client import Client
from steelyard.engine.server.loop import Loop
from steelyard.engine.server.models import Served

_POLL_S = 0.1  # how often `cancelled` is asked while nothing comes
_MOST_DRAWS = 128  # OpenAI's limit for n


class ServerBackend:
    """A model behind an OpenAI-compatible HTTP server. Made by `open_server`."""

    def __init__(
        self,
        loop: Loop,
        client: Client,
        address: Address,
        served: Served,
        *,
        api: generation.Api,
        concurrency: int,
        use_n: bool,
        max_length: int | None,
        system: str | None,
        extra: Mapping[str, Any],
    ) -> None:
        self._loop, self._client = loop, client
        self._asker = Asker(client, served.model, api=api, system=system, extra=extra)
        self._api, self._concurrency, self._use_n, self._system = api, concurrency, use_n, system
        self._max_length = max_length if max_length is not None else served.max_length
        settings: dict[str, Any] = {"api": api, "n": use_n}
        if system is not None:
            settings["system"] = system
        if extra:
            settings["extra"] = dict(extra)
        self._identity = Identity(
            model=f"{PREFIX}{address.base}#{served.model}",
            backend="server",
            weights_digest=served.digest(address.base),
            settings=settings,
        )

    def __repr__(self) -> str:
        return f"ServerBackend({self._identity.model!r}, api={self._api!r})"

    @property
    def identity(self) -> Identity:
        """Who answers. With ``settings["n"]`` true, draws are not reproducible one by one."""
        return self._identity

    @property
    def capabilities(self) -> Capabilities:
        """What it can do. The first look asks a completions server for the log-probabilities of a known text.

        Raises:
            BackendError: the server cannot be reached, or does not offer this API.
        """
        why_not = self._loop.call(self._asker.why_not())
        return Capabilities(
            likelihood=not why_not,
            chat=self._api == "chat",
            max_length=self._max_length,
            why_not=why_not,
        )

    def encode(self, request: Request) -> Tokens | None:
        """None: the server has the tokenizer.

        Raises:
            InputError: there is nothing to score.
        """
        if isinstance(request, Likelihood) and not request.continuation:
            raise InputError("The continuation to score is empty; an option needs a text.")
        return None

    def chat_prompt(self, text: str, system: str | None = None) -> str:
        """The text unchanged: a chat server applies the template itself.

        Raises:
            RefusedError: a completions server, whose template is not known here; or another system message
                than the one this backend was opened with, which is the one that is sent.
        """
        if self._api != "chat":
            raise RefusedError(
                "A completions server continues text as it is, and its chat template is not known here. "
                "Open it with the chat API (--api chat), or ask without a chat template."
            )
        if system not in (None, self._system):
            raise RefusedError(
                f"The system message {system!r} would not be sent. Open the server with system=..., which is "
                "recorded with the run."
            )
        return text

    def run(
        self,
        work: Sequence[Work],
        done: AbstractSet[str] = frozenset(),
        *,
        batch_size: int | None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Batch]:
        """Answer every request that is not in `done`; a batch is the next `batch_size` answers that came back.

        How many requests are in flight is the backend's `concurrency`, which is also the batch size unless one
        is given.

        Requests start in the order of `work` and end in any. When the run ends early (cancelled, an error for
        the whole run, the iterator closed), requests in flight are dropped, and what had been answered comes
        before the error.

        Raises:
            BackendError: no request can succeed.
            InputError: a batch size below 1, or a request id that comes twice.
        """
        batch_size = check_run(work, batch_size, self._concurrency)
        groups = self._groups(work, done, batch_size)
        if not groups:
            return
        ready: queue.SimpleQueue[Answered | None] = queue.SimpleQueue()
        future = self._loop.start(self._asker.ask_all(groups, ready, concurrency=self._concurrency))
        # None marks the end, whatever the end is
        future.add_done_callback(lambda _: ready.put(None))
        waiting: list[Response] = []
        asked, since, ended = 0, time.perf_counter(), False
        try:
            while not ended:
                if cancelled():
                    future.cancel()
                try:
                    got = ready.get(timeout=_POLL_S)
                except queue.Empty:
                    continue
                if got is None:
                    ended = True
                else:
                    waiting.extend(got[0])
                    asked += got[1]
                while len(waiting) >= batch_size or (ended and waiting):
                    batch, waiting = waiting[:batch_size], waiting[batch_size:]
                    now = time.perf_counter()
                    new = sum(r.n_tokens for r in batch if r.text is not None)
                    yield Batch(responses=tuple(batch), asked=asked, seconds=now - since, new_tokens=new)
                    asked, since = 0, time.perf_counter()
            if not future.cancelled() and (error := future.exception()) is not None:
                raise error
        finally:
            future.cancel()

    def close(self) -> None:
        """Close the connections and end the thread. Closing twice does no harm."""
        try:
            self._loop.call(self._client.aclose())
        except BackendError:
            return  # closed before
        self._loop.close()

    def _groups(self, work: Sequence[Work], done: AbstractSet[str], batch_size: int) -> list[Group]:
        """The requests to make, in the order of the first draw of each."""
        most = min(batch_size, _MOST_DRAWS) if self._use_n else 1
        together: dict[object, list[Work]] = {}
        for piece in work:
            if piece.request_id in done:
                continue
            request = piece.request
            # greedy text is the same for every draw, so it is never asked n times at once
            shared = most > 1 and isinstance(request, Generate) and request.sampling.temperature > 0
            key = (
                (request.prompt, request.sampling)
                if shared and isinstance(request, Generate)
                else piece.request_id
            )
            together.setdefault(key, []).append(piece)
        return [
            tuple(draws[at : at + most]) for draws in together.values() for at in range(0, len(draws), most)
        ]
