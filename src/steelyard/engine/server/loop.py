"""An asyncio loop in a thread, for a synchronous interface above it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from steelyard.core.errors import BackendError

T = TypeVar("T")


class Loop:
    """An asyncio loop in a thread of its own, so that it works below any caller (a notebook has a loop too).

    One thread for all requests: their shared state (pace, counters) needs no locks, and a request in flight
    can be dropped at once, which a thread that waits for a socket cannot.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="steelyard-server", daemon=True)
        self._thread.start()

    def start(self, task: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a task.

        Raises:
            BackendError: the loop is closed.
        """
        if self._loop.is_closed():
            task.close()
            raise BackendError("This server backend is closed; open it again to ask more.")
        return asyncio.run_coroutine_threadsafe(task, self._loop)

    def call(self, task: Coroutine[Any, Any, T]) -> T:
        """Run a task and wait for its result."""
        future = self.start(task)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: do not leave the question running
            raise

    def close(self) -> None:
        """Drop what runs and end the thread. Closing twice does no harm."""
        if self._loop.is_closed():
            return
        self.call(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
