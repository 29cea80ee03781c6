r"""Any Python text as valid UTF-8 and back, without loss.

Models and data sets write lone surrogates, which UTF-8 (and so Parquet, DuckDB and Arrow) refuses. A surrogate
U+DXXX is stored as seven characters: the mark U+FFFD, then ``\udxxx`` in lower case. Text that already holds
such a sequence would be ambiguous, so its mark is itself stored as U+FFFD followed by ``\ufffd``. All other
text, also a U+FFFD on its own (frequent in web text), is stored unchanged.

Replacing or dropping the surrogate would be shorter, but two different answers could become equal.
"""

from __future__ import annotations

import re

_MARK = "\ufffd"
_CODE = r"\\u(d[89a-f][0-9a-f]{2}|fffd)"
_UNSAFE = re.compile(rf"[\ud800-\udfff]|{_MARK}(?={_CODE})")
_ESCAPED = re.compile(_MARK + _CODE)


def escape(text: str) -> str:
    r"""The text as it is stored: always valid UTF-8, different for different texts.

    >>> escape("plain, also \ufffd") == "plain, also \ufffd"
    True
    >>> ascii(escape("\ud83d!"))
    "'\\ufffd\\\\ud83d!'"
    """
    if text.isascii():
        return text
    return _UNSAFE.sub(lambda match: f"{_MARK}\\u{ord(match[0]):04x}", text)


def restore(text: str) -> str:
    r"""The inverse of `escape`; text that `escape` cannot have written is returned unchanged.

    >>> restore(escape("\ud83d!")) == "\ud83d!"
    True
    """
    if _MARK not in text:
        return text
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
