"""Where a server is and how we identify ourselves to it: names, URLs and the API key."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from steelyard.core.errors import InputError, RefusedError

PREFIX = "server:"
_EXAMPLE = "server:http://127.0.0.1:8000/v1#model"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_KEY_TO_HIDE = 4  # a shorter key is no secret ("x", "no"), and replacing it would garble messages
_KEY_TO_SEARCH = 16  # placeholders such as "EMPTY" or "token-abc" may well occur in an answer


@dataclass(frozen=True, slots=True)
class Address:
    """A server's base URL in one normal form, without credentials, and the model asked for there.

    Attributes:
        base: such as "http://127.0.0.1:8000/v1": lower-case host, no default port, no trailing slash.
        model: the model's id at that server, "" for the only one.
        loopback: the server is on this machine, so that a proxy cannot be meant.
    """

    base: str
    model: str
    loopback: bool


def parse_address(name: str) -> Address:
    """The address in a model name ``server:URL#model``.

    Args:
        name: the URL is what clients call the base URL, up to and with "/v1" where the server has it.

    Raises:
        InputError: it is no such name, or the URL holds a query.
        RefusedError: the URL holds a user name or a password.
    """
    if not name.startswith(PREFIX):
        raise InputError(f"A server is named like {_EXAMPLE}, got {name!r}.")
    url, _, model = name.removeprefix(PREFIX).partition("#")
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        # "from None": urlsplit's own message quotes parts of the URL, which may be a password
        raise InputError(f"The URL of a server cannot be read. Expected {_EXAMPLE}.") from None
    if parts.username is not None or parts.password is not None:
        raise RefusedError(
            "The server's URL holds a user name or a password, which would end up in tables and reports. "
            "Remove it and put the key into the environment (OPENAI_API_KEY, or the variable you name)."
        )
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise InputError(
            f"The server's URL must begin with http:// or https:// and name a host, got {url!r}."
        )
    if parts.query:
        # not quoted: a query is where some services take keys
        raise InputError(
            f"The server's URL has a query (?...), which is not supported. Expected {_EXAMPLE}; "
            "keys go to the environment."
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    where = host if port in (None, _DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
    base = f"{parts.scheme}://{where}{parts.path.rstrip('/')}"
    for end in ("/chat/completions", "/completions", "/models"):
        if base.endswith(end):
            raise InputError(
                f"The server's URL ends in {end!r}; give the base URL instead: "
                f"{PREFIX}{base.removesuffix(end)}{'#' + model if model else ''}"
            )
    return Address(base=base, model=model.strip(), loopback=_is_loopback(parts.hostname))


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Secret:
    """An API key that shows itself only to the one line that sends it.

    It has no equality, no hash and no text of its own, so that it cannot slip into an id or a message.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Secret('***')" if self._value else "Secret('')"

    def headers(self) -> dict[str, str]:
        """The headers that carry the key; empty without one."""
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def scrub(self, text: str) -> str:
        """The text without the key: some servers repeat it in their complaint about it."""
        return text.replace(self._value, "***") if len(self._value) >= _KEY_TO_HIDE else text

    def is_in(self, data: object) -> bool:
        """Whether JSON data repeat the key; False for keys so short that they may occur by chance."""
        return len(self._value) >= _KEY_TO_SEARCH and json.dumps(self._value)[1:-1] in json.dumps(data)


def read_key(variable: str) -> Secret:
    """The API key in an environment variable, or none where it is unset (local servers want none).

    Raises:
        InputError: the value cannot be a header. The message names the variable, never the value.
    """
    value = os.environ.get(variable, "").strip()
    if any(not "!" <= letter <= "~" for letter in value):
        # checked here, because the HTTP library's own complaint would quote the header with the key
        raise InputError(
            f"The environment variable {variable} holds a character that no API key has "
            "(white space inside, a quotation from a web page, ...). Set it again."
        )
    return Secret(value)
