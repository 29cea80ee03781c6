"""The toy tokenizer of the simulated model: a byte is a token, after one BOS."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.core.types import Generate, Likelihood, Work

BOS = 256  # behind the 256 bytes


def to_bytes(text: str) -> bytes:
    """UTF-8, where a lone surrogate is kept."""
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    """The text of bytes; what is no text becomes U+FFFD."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")  # a truncated prompt may begin within a character


def read(piece: Work) -> bytes:
    """What the model reads, without BOS: the tokens where there are any (they may be truncated)."""
    if piece.tokens is not None:
        return bytes(token for token in piece.tokens.ids if token != BOS)
    match piece.request:
        case Generate(prompt=prompt):
            return to_bytes(prompt)
        case Likelihood(context=context, continuation=continuation):
            return to_bytes(context) + to_bytes(continuation)


def trie(texts: Sequence[bytes]) -> int:
    """Nodes of the trie of the texts, each with a BOS before it."""
    nodes, last = 1, b""
    for text in sorted(texts):
        nodes += len(text) - _common(last, text)
        last = text
    return nodes


def _common(left: bytes, right: bytes) -> int:
    """Length of the common prefix, by bisection: slices compare at memory speed."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
