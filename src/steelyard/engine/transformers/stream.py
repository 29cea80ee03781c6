"""Text from tokens as they come: what is complete, and whether a stop string is in it.

Tokens are not characters. One emoji may take three tokens, SentencePiece drops the space of the first
token it decodes, and a stop string may begin in one token and end in another. Decoding everything after
every token would be right and quadratic; decoding single tokens would be fast and wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_REPLACEMENT = "\ufffd"
_PATIENCE = 64  # tokens held back at most; a model that writes U+FFFD itself must not make this quadratic


class TextStream:
    """The text of one response while it grows.

    A token's text is found by decoding it together with the piece before it, which settles the spaces; a
    piece that ends in U+FFFD may be an incomplete character and is held back until it is complete.

    Args:
        decode: text of some tokens, special tokens left out.
        stop: stop strings, none empty.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stop = tuple(stop)
        self._overlap = max((len(s) for s in stop), default=1) - 1
        self._ids: list[int] = []
        self._before = 0  # first token of the piece before the current one
        self._read = 0  # tokens whose text is in `text`
        self._lengths: list[tuple[int, int]] = []  # after so many tokens, so many characters
        self.text = ""
        self.stopped = False

    def push(self, token: int) -> bool:
        """Adds a token; True when a stop string is complete, and `text` is then cut before it."""
        self._ids.append(token)
        return self._advance(final=False)

    def finish(self) -> bool:
        """No token follows: what was held back counts as it is, U+FFFD included; True when it holds a stop.

        So `text` always equals the decoding of the tokens, and a character cut in two by the token limit
        shows as U+FFFD instead of vanishing.
        """
        return self._advance(final=True)

    def kept(self) -> int:
        """How many of the tokens it takes to write `text`."""
        if not self.text:
            return 0
        return next(n for n, length in self._lengths if length >= len(self.text))

    def _advance(self, *, final: bool) -> bool:
        known = self._decode(self._ids[self._before : self._read])
        window = self._decode(self._ids[self._before :])
        held = len(self._ids) - self._read
        if window.endswith(_REPLACEMENT) and not final and held < _PATIENCE:
            return False
        piece = window[len(known) :]
        if not piece:
            return False
        seen = len(self.text)
        self.text += piece
        self._before, self._read = self._read, len(self._ids)
        self._lengths.append((self._read, len(self.text)))
        # a stop string that ends in the new piece begins at most `overlap` characters before it
        at = [i for s in self._stop if (i := self.text.find(s, max(0, seen - self._overlap))) >= 0]
        if at:
            self.text = self.text[: min(at)]
            self.stopped = True
        return self.stopped
