"""Any OpenAI-compatible completions or chat server as a backend."""

from __future__ import annotations

from steelyard.engine.server.backend import ServerBackend
from steelyard.engine.server.opening import open_server

__all__ = ["ServerBackend", "open_server"]
