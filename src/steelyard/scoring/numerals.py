r"""Numbers as people and models write them: where they stand in a text, and their exact value.

Read: ``18``, ``-18`` (also with Unicode minus signs), ``18.00``, ``.5``, ``18,000``, ``1,00,000``, ``18'000``,
``1.234.567``, ``1.000,50``, ``$18``, ``18%`` (the sign is a unit: 18), ``3/4``, ``\frac{3}{4}``, ``2 1/2``, ``6½``,
``1.5e6``, ``1.5 x 10^6``, ``1.5 million``, ``18kg``, and the decimal digits of every script.

Skipped, because they cannot be an answer: digits after a letter (``x2``, ``H2O``), exponents and indices (``m^2``),
times, dates and version numbers (``10:30``, ``12/05/2020``, ``1.2.3``).

Unreadable (value None), because any value would be a guess: ``18,50`` and ``1,2`` (decimal comma or list?),
``3/0``, ``2^10``, ``18k``, numbers of more than 500 digits. Words (``eighteen``) are not numerals.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

MINUS = "-\u2212\u2013\u2010\u2011\ufe63\uff0d"  # hyphens, minus signs and the en dash
DASH = re.escape(MINUS)  # for character classes, where a bare hyphen makes a range
_VULGAR = "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_SUPER = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻"
_GROUP = r"(?:,|\{,\}|\\[,!;]|['’\u00a0\u2009\u202f])"  # what may stand between groups of three digits
_SCALE = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_MAX_DIGITS = 500  # exact arithmetic on hostile digit strings must stay cheap
_MAX_EXPONENT = 400
_CURRENCY_CODES = ("US", "USD", "EUR", "GBP", "CAD", "AUD", "INR", "Rs")  # "USD18" is no variable name

_PATTERN = rf"""
    (?P<sign>(?<![\w)\]}}%{DASH}])[{DASH}+])?
    (?P<currency>\\?[$£€¥₹]\s?)?
    (?P<sign2>(?<=[$£€¥₹\s])[{DASH}+])?
    (?:
        (?P<run>(?:(?<![\w.])\.)?\d(?:\d|SPACED(?:{_GROUP}|[.:/])(?=\d))*)
        (?P<tail>
            \s?(?P<mixed>\d+/\d+(?![\d/]))
          | \s?(?P<vulgar>[{_VULGAR}])
          | \s?\\[dt]?frac\s?\{{(?P<mnum>\d+)\}}\s?\{{(?P<mden>\d+)\}}
          | [eE](?P<exp>[-+]?\d{{1,6}})(?!\w)
          | \s?(?:[x×*·]|\\times|\\cdot)\s?10\s?\^\s?\{{?(?P<ten>[{DASH}+]?\d{{1,6}})\}}?
          | \s?\^\s?\{{?(?P<power>[{DASH}+]?\d+)\}}?
          | (?P<super>[{_SUPER}]+)
        )?
      | (?P<lone>[{_VULGAR}])
      | \\[dt]?frac\s?\{{(?P<num>[^{{}}]{{1,60}})\}}\s?\{{(?P<den>[^{{}}]{{1,60}})\}}
    )
    (?P<after>(?:st|nd|rd|th)\b|[kK]\b|\s(?:{"|".join(_SCALE)})\b)?
"""
_PLAIN = re.compile(_PATTERN.replace("SPACED", ""), re.VERBOSE)
# an ASCII space groups digits only where the caller knows that one number stands there: "18 000"
_SPACED = re.compile(_PATTERN.replace("SPACED", r"[ ](?=\d{3}(?!\d))|"), re.VERBOSE)

_DECIMAL = re.compile(r"\d*(?:\.\d+)?")
_GROUPED = re.compile(r"\d+(?:,\d{3})+(?:\.\d+)?|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?")
_CONTINENTAL = re.compile(r"\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}(?:\.\d{3})+,\d+")


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number in a text.

    Attributes:
        start, end: its place, sign and currency included: ``text[start:end]``.
        value: exact; None when it is unreadable.
        ordinal: "3rd", which is an answer only where nothing better stands.
    """

    start: int
    end: int
    value: Fraction | None
    ordinal: bool = False


def numerals(text: str, *, spaced: bool = False) -> list[Numeral]:
    """Every number in `text`, in order.

    Args:
        text: any text.
        spaced: read "18 000" as one number; wrong in running text ("in 2 100 metre races").
    """
    found: list[Numeral] = []
    for match in (_SPACED if spaced else _PLAIN).finditer(text):
        if not _skip(text, match):
            ordinal = match["after"] in ("st", "nd", "rd", "th")
            found.append(Numeral(match.start(), match.end(), _value(match), ordinal))
    return found


def _skip(text: str, match: re.Match[str]) -> bool:
    before = text[max(0, match.start() - 4) : match.start()]
    if match["run"] is not None:
        if before.endswith(("^", "^{", "_", "_{")):
            return True
        # \Z, since "$" also matches before a newline: "total\n18" is no variable name
        word = re.search(r"[A-Za-z]+\Z", before)
        if word and not match["currency"] and word[0] not in _CURRENCY_CODES:
            return True
        run = match["run"]
        return ":" in run or run.count("/") > 1 or (run.count(".") > 1 and not _CONTINENTAL.fullmatch(run))
    # a unit written as a fraction, \frac{mol}{L}, holds no digit
    return match["num"] is not None and not any(c.isdecimal() for c in match["num"] + match["den"])


def _value(match: re.Match[str]) -> Fraction | None:
    if match["after"] in ("k", "K") or sum(c.isdigit() for c in match[0]) > _MAX_DIGITS:
        return None
    value: Fraction | None
    if match["lone"]:
        value = _vulgar(match["lone"])
    elif match["num"] is not None:
        top = match["num"].strip()
        value = _ratio(_simple(top.lstrip(MINUS)), _simple(match["den"]))
        value = -value if value is not None and top.startswith(tuple(MINUS)) else value
    else:
        numerator, slash, denominator = match["run"].partition("/")
        value = _simple(numerator)
        if slash:
            value = _ratio(value, _simple(denominator))
        if match["tail"] and value is not None:
            value = _with_tail(value, match)
    if value is None:
        return None
    if match["after"] and match["after"].strip() in _SCALE:
        value *= _SCALE[match["after"].strip()]
    negative = [s for s in (match["sign"], match["sign2"]) if s and s in MINUS]
    return -value if len(negative) == 1 else value


def _with_tail(value: Fraction, match: re.Match[str]) -> Fraction | None:
    part: Fraction | None
    if match["mixed"] or match["vulgar"] or match["mnum"]:
        if match["vulgar"]:
            part = _vulgar(match["vulgar"])
        elif match["mnum"]:
            part = _ratio(_simple(match["mnum"]), _simple(match["mden"]))
        else:
            numerator, _, denominator = match["mixed"].partition("/")
            part = _ratio(_simple(numerator), _simple(denominator))
        # "2 1/2" is two and a half; "2 5/3" or "0.5 1/2" is two numbers side by side
        return value + part if part is not None and part < 1 and value.denominator == 1 else None
    if match["exp"] or match["ten"]:
        return _scaled(value, match["exp"] or match["ten"])
    power = match["power"] or "".join(_plain_superscript(c) for c in match["super"])
    return _scaled(Fraction(1), power) if value == 10 else None


def _plain_superscript(char: str) -> str:
    return "-" if char == "⁻" else unicodedata.normalize("NFKC", char)


def _scaled(value: Fraction, exponent: str) -> Fraction | None:
    digits = exponent.lstrip("+" + MINUS)
    if not digits.isdecimal() or len(digits) > 6 or int(digits) > _MAX_EXPONENT:
        return None
    size = Fraction(10) ** int(digits)
    return value / size if exponent[0] in MINUS else value * size


def _simple(text: str) -> Fraction | None:
    """A number without sign, exponent or fraction, or None."""
    # digits of every script have the same value: int() knows them, Fraction() does not
    plain = "".join(str(unicodedata.digit(c)) if c.isdecimal() else c for c in text.strip())
    plain = re.sub(_GROUP, ",", plain.replace(" ", ","))
    if len(plain) > _MAX_DIGITS * 2:
        return None
    if _CONTINENTAL.fullmatch(plain):
        plain = plain.replace(".", "").replace(",", ".")
    elif _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    elif not plain or not _DECIMAL.fullmatch(plain):
        return None
    return Fraction(plain)


def _ratio(numerator: Fraction | None, denominator: Fraction | None) -> Fraction | None:
    return None if numerator is None or not denominator else numerator / denominator


def _vulgar(char: str) -> Fraction:
    numerator, _, denominator = unicodedata.normalize("NFKC", char).partition("\u2044")
    return Fraction(int(numerator), int(denominator))


def canonical(value: Fraction) -> str:
    """One spelling for each value: "18", "-0.5", "1/3".

    >>> canonical(Fraction("18.00")), canonical(Fraction(1, 3))
    ('18', '1/3')
    """
    if value.denominator == 1:
        return str(value.numerator)
    rest, places = value.denominator, 0
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest //= prime
            power += 1
        places = max(places, power)
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
