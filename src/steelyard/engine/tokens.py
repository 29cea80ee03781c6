"""The token boundary: the one place that decides which tokens are read and which are scored.

A model reads tokens, a benchmark is written in text, and the two disagree at the join: encoded apart,
"Ans" + "wer" are two tokens, encoded together they are one, and the model was trained on the latter. So
context and continuation are always encoded *together*, and the split is put where the joint encoding has
a token boundary:

* White space at the end of the context goes to the continuation, because byte-level and SentencePiece
  vocabularies write a space at the front of the word that follows it.
* Where a token still spans the join, the split backs off to the start of that token (`Tokens.moved`).
  What is scored is then a little more than the continuation, and always at least one token.
* Exactly one BOS, and only where the tokenizer was trained with one. A chat template often writes the BOS
  as text; what counts is therefore the first *id*, never a flag.
* With nothing before the first scored token a causal model has no prediction for it: BOS, or else EOS
  (which separates documents in pretraining), is put in front, unscored.

This module is pure: it knows a small protocol and no model library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from steelyard.core.errors import InputError
from steelyard.core.types import Tokens


class Encoded(NamedTuple):
    """A text as token ids.

    Attributes:
        ids: without any special token that is not in the text itself.
        spans: per token the half-open range of characters that it covers, untrimmed; tokens that share one
            character (the bytes of an emoji) share its range. None where the tokenizer cannot tell.
    """

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...] | None = None


class Tokenizer(Protocol):
    """What the boundary needs of a tokenizer."""

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text, if there is one."""
        ...

    @property
    def eos_id(self) -> int | None:
        """The token that ends a text, if there is one."""
        ...

    @property
    def adds_bos(self) -> bool:
        """Whether the model expects every text to begin with BOS."""
        ...

    def encode(self, text: str) -> Encoded:
        """The text alone, without BOS or EOS added."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some tokens; asked only of tokenizers that give no spans."""
        ...


def encode_pair(tokenizer: Tokenizer, context: str, continuation: str) -> Tokens:
    """Context and continuation as one token sequence, split where scoring begins.

    Args:
        tokenizer: the model's.
        context: may be empty.
        continuation: must not be.

    Returns:
        Tokens with ``1 <= start < len(ids)``.

    Raises:
        InputError: the continuation is empty or has no tokens, a text holds a lone surrogate, or nothing
            precedes the first token and the tokenizer has neither BOS nor EOS.
    """
    if not continuation:
        raise InputError(
            f"The continuation is empty (context ends in {context[-40:]!r}): there is nothing to score. "
            "Give a continuation of at least one character."
        )
    _check_text(context)
    _check_text(continuation)
    joint = tokenizer.encode(context + continuation)
    if not joint.ids:
        raise InputError(
            f"The tokenizer makes no tokens of the continuation {continuation[:40]!r}: there is nothing to score."
        )
    head = context.rstrip()
    if joint.spans is not None:
        start, moved = _split_by_spans(joint.spans, len(head))
        begin = joint.spans[start][0] if start < len(joint.spans) else None
        if (context + continuation)[len(head) : begin].strip():
            # letters behind the join that no token claims: a normalizer dropped them, or joined them with what
            # stands before ("e" and an accent became one letter, whose tokens claim the "e" alone)
            start, moved = _split_by_prefix(tokenizer, joint.ids, head)
    else:
        start, moved = _split_by_prefix(tokenizer, joint.ids, head)
    if start == len(joint.ids):
        # the continuation left no token of its own (a normalizer removed it): score the last one there is
        start, moved = start - 1, True
    return _with_front(tokenizer, joint.ids, start, moved)


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> Tokens:
    """A prompt to be continued; ``start`` equals ``len(ids)``, which is at least 1.

    White space at its end stays: it is the prompt's author who decides what the model sees.

    Raises:
        InputError: a lone surrogate, or an empty prompt with a tokenizer that has neither BOS nor EOS.
    """
    _check_text(prompt)
    ids = tokenizer.encode(prompt).ids
    if _lacks_bos(tokenizer, ids):
        ids = (_front(tokenizer), *ids)
    elif not ids:
        ids = (_front(tokenizer),)
    return Tokens(ids, len(ids))


def _split_by_spans(spans: Sequence[tuple[int, int]], boundary: int) -> tuple[int, bool]:
    """Count of leading tokens inside ``[0, boundary)``, and whether the next token begins inside it too."""
    start = 0
    while start < len(spans) and spans[start][1] <= boundary:
        start += 1
    return start, start < len(spans) and spans[start][0] < boundary


def _split_by_prefix(tokenizer: Tokenizer, joint: Sequence[int], head: str) -> tuple[int, bool]:
    """The same from ids alone: as far as the context's own encoding agrees with the joint one.

    Tokens that both encodings begin with cover the same text, so all of it lies in the context. The two can
    differ inside the context and still meet at its end (unigram vocabularies do that); then the decoded text
    says so. Several prefixes may decode to the same text, when the last character is not complete yet or a
    token is invisible; the first one is taken, so that nothing of the continuation escapes the score.
    """
    own = tokenizer.encode(head).ids
    start = 0
    while start < min(len(own), len(joint)) and own[start] == joint[start]:
        start += 1
    if start == len(own):
        return start, False
    text = tokenizer.decode(own)
    for end in range(start + 1, len(joint) + 1):
        prefix = tokenizer.decode(joint[:end])
        if prefix == text:
            return end, False
        if len(prefix) > len(text):
            break
    return start, True


def _with_front(tokenizer: Tokenizer, ids: tuple[int, ...], start: int, moved: bool) -> Tokens:
    """Puts BOS in front where it belongs, and something unscored in front of a score that begins at 0."""
    if _lacks_bos(tokenizer, ids):
        return Tokens((_front(tokenizer), *ids), start + 1, moved)
    if start > 0:
        return Tokens(ids, start, moved)
    if len(ids) > 1 and ids[0] == _front(tokenizer):
        # the text brings its own first token (a continuation that begins with the BOS text)
        return Tokens(ids, 1, moved)
    if ids == (tokenizer.bos_id,) and tokenizer.eos_id is not None:
        # the text is the BOS itself: a second one in front would be a pair that no model has seen
        return Tokens((tokenizer.eos_id, *ids), 1, moved)
    return Tokens((_front(tokenizer), *ids), 1, moved)


def _lacks_bos(tokenizer: Tokenizer, ids: Sequence[int]) -> bool:
    wanted = tokenizer.adds_bos and tokenizer.bos_id is not None
    return wanted and (not ids or ids[0] != tokenizer.bos_id)


def _front(tokenizer: Tokenizer) -> int:
    """BOS, or else EOS."""
    front = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    if front is None:
        raise InputError(
            "A text without context needs a token in front of it, and this tokenizer has neither BOS nor EOS. "
            "Give a context that is not empty, or a tokenizer with a BOS token."
        )
    return front


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"Character {error.start} of the text is the lone surrogate {text[error.start]!r}, which no tokenizer "
            f"can read (near {text[max(0, error.start - 20) : error.start]!r}). Mend the text at its source."
        ) from None
