r"""The final number of a generated text: ours (``numeric``), and the evaluation harness's pair under its names.

`read_number` looks, in this order, for

1. ``#### 18`` (GSM8K's mark; numbered Markdown headings are not it),
2. "the answer is 18" (or "would be", "equals", ...), 3. "Answer: 18", "A: 18", 4. ``\boxed{18}``,
5. the last number of the text.

The last of several marks wins. Where an expression follows a mark, what stands after its last "=" is the answer.
When the number that stands there is unreadable (see `numerals`), nothing is read: an earlier one would be a guess.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from steelyard.core.types import Finish, NumberAnswer
from steelyard.scoring.numerals import DASH, Numeral, canonical, numerals
from steelyard.scoring.verdict import Verdict, failed, read, unread

_HASHES = re.compile(r"#{4,}")
_PHRASE = re.compile(
    r"\banswers?\b[^.\n:=]{0,60}?\b(?:is|are|was|equals|becomes|be|comes (?:out )?to)\b"
    r"(?:\s+(?:that|thus|then|therefore)\b)?:?",
    re.IGNORECASE,
)
_COLON = re.compile(
    r"(?:\b(?:answer|ans)\b|^(?:[^\S\n]|[>*_#])*(?-i:A)\b)[\s*_.]{0,4}:", re.IGNORECASE | re.MULTILINE
)
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
# what may stand between a mark and its number
_TRIM = re.compile(
    r"(?:[\s*_`\"'“”‘’(\[{~≈:=>$]|\\[(\[]|\\(?:boxed|text|mathbf|textbf)\s*\{"
    r"|\b(?:approximately|about|exactly|only|just|USD?|EUR|GBP|Rs\.?)(?![A-Za-z]))*",
    re.IGNORECASE,
)
# "18/day" and bold marks ("**18** of 20") are no operators: an operand has to follow
_OPERATOR = re.compile(
    rf"[^\S\n]*(?:=|(?:[+/×÷·^x{DASH}]|\*(?!\*)|\\(?:times|cdot|div))(?=[^\S\n]*[\d.($£€\\]))"
)
_EQUALS = re.compile(r"[=≈][\s*_$\\(£€]*$")
_SENTENCE = re.compile(r"[.!?](?:\s|$)|\n")
_LISTED = re.compile(r"\s*[,;]\s*\S*\d")
_HEADING = re.compile(r"[.)]\s+[A-Za-z*]")
_ANNOTATION = re.compile(r"<<[^<>\n]*>>")  # the calculator notes of GSM8K: 16-3=<<16-3=13>>13


@dataclass(frozen=True, slots=True)
class Reading:
    """The number read. `how`: hashes, phrase, colon, boxed, last."""

    value: Fraction
    how: str


def read_number(text: str) -> Reading | None:
    r"""The final number of a text, or None when there is none or it cannot be read without guessing.

    >>> read_number("So 9 * 2 = 18. The answer is $18.00...").value
    Fraction(18, 1)
    >>> read_number("eighteen") is None
    True
    """
    # between two numbers an annotation parts them; elsewhere it goes without a trace ("$<<9*2=18>>18")
    text = re.sub(rf"(?<=\d){_ANNOTATION.pattern}(?=\d)", " ", text)
    text = _ANNOTATION.sub("", text)
    marked = numerals(text, spaced=True)
    for how, candidates in (
        ("hashes", _after_hashes(text, marked)),
        ("phrase", _after_phrase(text, marked)),
        ("colon", _after_colon(text, marked)),
        ("boxed", _in_box(text)),
        ("last", _last(text, marked)),
    ):
        hit = next(candidates, None)
        if hit is not None:
            return None if hit.value is None else Reading(hit.value, how)
    return None


def _first(found: Sequence[Numeral], start: int) -> Numeral | None:
    index = bisect_left(found, start, key=lambda n: n.start)
    return found[index] if index < len(found) else None


def _between(found: Sequence[Numeral], start: int, end: int) -> Sequence[Numeral]:
    low, high = (bisect_left(found, at, key=lambda n: n.start) for at in (start, end))
    return found[low:high]


def _final(found: Sequence[Numeral]) -> Numeral | None:
    """The last number; an ordinal ("on the 3rd day") only where there is no other."""
    return next((n for n in reversed(found) if not n.ordinal), found[-1] if found else None)


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _is_operand(text: str, number: Numeral) -> bool:
    return _OPERATOR.match(text, number.end) is not None


def _result(text: str, found: Sequence[Numeral], start: int, end: int) -> Numeral | None:
    """The number after the last "=" of an expression between start and end."""
    for number in reversed(_between(found, start, end)):
        if _EQUALS.search(text, max(0, number.start - 12), number.start) and not _is_operand(text, number):
            return number
    return None


def _direct(text: str, found: Sequence[Numeral], start: int) -> Numeral | None:
    """The number that stands right after `start`, or the result of the expression that does."""
    number = _first(found, start)
    if number is None or not _TRIM.fullmatch(text, start, number.start):
        return None
    stop = _SENTENCE.search(text, number.end)
    result = _result(text, found, number.start, stop.start() if stop else len(text))
    if result is not None:
        return result
    # "the answer is 9 * 2" names no number
    return Numeral(number.start, number.end, None) if _is_operand(text, number) else number


def _after_hashes(text: str, found: Sequence[Numeral]) -> Iterator[Numeral]:
    for mark in reversed(list(_HASHES.finditer(text))):
        number = _direct(text, found, mark.end())
        if number is None or "\n" in text[mark.end() : number.start]:
            continue
        line = _line_end(text, number.end)
        # "#### 3. Add them up" above further lines is a heading
        if _HEADING.match(text, number.end) and text[line:].strip():
            continue
        yield number


def _after_phrase(text: str, found: Sequence[Numeral]) -> Iterator[Numeral]:
    for mark in reversed(list(_PHRASE.finditer(text))):
        number = _direct(text, found, mark.end())
        if number is None:  # "the answer is that she has 18 eggs": within the sentence
            stop = _SENTENCE.search(text, mark.end())
            end = stop.start() if stop else len(text)
            number = _result(text, found, mark.end(), end) or _final(_between(found, mark.end(), end))
        if number is not None:
            yield number


def _after_colon(text: str, found: Sequence[Numeral]) -> Iterator[Numeral]:
    for mark in reversed(list(_COLON.finditer(text))):
        number = _direct(text, found, mark.end())
        if number is None:
            continue
        rest = text[number.end : _line_end(text, number.end)]
        # "Answer: 16 eggs are laid and 3 are eaten" begins a solution; a unit may follow an answer
        if len(rest.split()) <= 4 and not any(c.isdecimal() for c in rest):
            yield number


def _in_box(text: str) -> Iterator[Numeral]:
    for mark in reversed(list(_BOXED.finditer(text))):
        depth = 1
        for end in range(mark.end(), min(len(text), mark.end() + 2000)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                break
        else:
            continue  # cut before the box was closed
        content = text[mark.end() : end]
        found = numerals(content, spaced=True)
        if not found:
            continue
        number = _direct(content, found, 0) or _result(content, found, 0, len(content))
        if number is None and len(found) == 1:
            number = found[0]
        if number is None or _LISTED.match(content, number.end):  # "(1, 2)" is no number
            number = Numeral(0, len(content), None)
        yield number


def _last(text: str, marked: Sequence[Numeral]) -> Iterator[Numeral]:
    last = _final(numerals(text))
    if last is None:
        return
    for wide in reversed(marked):  # "= 18 000", or a text that is nothing but "18 000"
        if wide.end < last.end:
            break
        alone = not text[: wide.start].strip() or _EQUALS.search(text, max(0, wide.start - 12), wide.start)
        if wide.end == last.end and wide.start < last.start and alone:
            last = wide
    yield last


def judge_numeric(text: str, finish: Finish, reference: NumberAnswer) -> Verdict:
    """1 when the number read equals the reference exactly (18 = 18.0 = $18 = 18%; 50% and 0.5 differ)."""
    if not reference.value.is_finite():
        return failed(f"the reference {reference.value} is not a finite number")
    reading = read_number(text)
    if reading is None:
        return unread(finish)
    right = reading.value == Fraction(reference.value)
    return read(right, canonical(reading.value), finish, how=reading.how)


# ------------------------------------------------------------------------------------- harness-compatible pair
_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_FULL_STOP = re.compile(r"\.$")


def harness_form(text: str) -> str:
    """What the harness compares for gsm8k (task version 3): after its four deletions, in lower case.

    Only one full stop goes, and only at the end: "18..." and "18.00" stay what they are.

    >>> harness_form("so $1,000 #### 1,000.")
    '1000'
    """
    # rpartition is the harness's (?s).*#### without its search from every character, which is quadratic
    text = text.replace(",", "").replace("$", "").rpartition("#### ")[2]
    return _FULL_STOP.sub("", text).lower()


def judge_strict(text: str, finish: Finish, reference: NumberAnswer) -> Verdict:
    """The harness's ``strict-match``: the first "#### n" of the text, compared as text."""
    hit = _STRICT.search(text)
    return _judge_harness(hit[1] if hit else None, finish, reference)


def judge_flexible(text: str, finish: Finish, reference: NumberAnswer) -> Verdict:
    """The harness's ``flexible-extract``: the last thing that looks like a number, compared as text."""
    hits = _FLEXIBLE.findall(text)
    return _judge_harness((hits[-1][0] or hits[-1][1]) if hits else None, finish, reference)


def _judge_harness(hit: str | None, finish: Finish, reference: NumberAnswer) -> Verdict:
    # a hit without a digit (", ,") is wrong for the harness as well, since every reference holds a digit;
    # only its status tells it from a wrong number
    if hit is None or not any(c.isdigit() for c in hit):
        return unread(finish)
    target = reference.worked if reference.worked is not None else reference.text
    return read(harness_form(hit.strip()) == harness_form(target), hit.strip(), finish)
