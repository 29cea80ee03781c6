from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.scoring.numerals import canonical, numerals


def values(text, **kw):
    return [n.value for n in numerals(text, **kw)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        ("18.", 18),
        ("18...", 18),
        ("...18", 18),
        ("18.00", 18),
        (".5", Fraction(1, 2)),
        ("-18", -18),
        ("\u221218", -18),
        ("+18", 18),
        ("(-18)", -18),
        ("x=-18", -18),
        (":-18", -18),
        ("$18", 18),
        ("-$18", -18),
        ("$-18", -18),
        (r"\$18", 18),
        ("£1,000.50", Fraction(2001, 2)),
        ("€18", 18),
        ("USD18", 18),
        ("Rs.18", 18),
        ("50%", 50),
        ("18,000", 18000),
        ("1,00,000", 100000),
        ("18'000", 18000),
        ("18\u202f000", 18000),
        ("1{,}000", 1000),
        ("1.234.567", 1234567),
        ("1.000,50", Fraction(2001, 2)),
        ("3/4", Fraction(3, 4)),
        ("-3/4", Fraction(-3, 4)),
        (r"\frac{3}{4}", Fraction(3, 4)),
        (r"-\dfrac{3}{4}", Fraction(-3, 4)),
        (r"\frac{-3}{4}", Fraction(-3, 4)),
        ("2 1/2", Fraction(5, 2)),
        (r"2\frac{1}{2}", Fraction(5, 2)),
        ("6½", Fraction(13, 2)),
        ("⅓", Fraction(1, 3)),
        ("1.5e6", 1500000),
        ("2E-3", Fraction(1, 500)),
        ("1.5 x 10^6", 1500000),
        (r"1.5 \times 10^{-2}", Fraction(3, 200)),
        ("10^3", 1000),
        ("10⁶", 10**6),
        ("1.5 million", 1500000),
        ("18kg", 18),
        ("18個", 18),
        ("total\n18", 18),
        ("The answer in dollars is\n18\n", 18),
        ("١٨", 18),
        ("1８", 18),
        ("3rd", 3),
        ("(18)", 18),
        ("18m^2", 18),
        (r"18 \frac{mol}{L}", 18),
    ],
)
def test_one_number_is_read_by_its_value(text, value):
    assert values(text) == [value]


@pytest.mark.parametrize(
    "text",
    ["", " , ,", "x2", "H2O", "10:30", "12/05/2020", "1.2.3", "eighteen", ".", "$", "-", "x_{2}", "^2"],
)
def test_what_cannot_be_an_answer_is_no_number(text):
    assert values(text) == []


@pytest.mark.parametrize(
    "text",
    ["18,50", "1,2,3", "3/0", "2^10", "2²", "10¹⁻²", "18k", "9" * 501, "1e9999", "1 x 10^999999", "0.5 1/2"],
)
def test_a_number_whose_value_would_be_a_guess_is_unreadable(text):
    assert values(text) == [None]


def test_a_minus_between_numbers_is_no_sign():
    assert values("16-3") == [16, 3]
    assert values("10\u201315") == [10, 15]
    assert values("= 10 - 5") == [10, 5]
    assert values("$5-$3") == [5, 3]


def test_a_space_groups_digits_only_when_asked_to():
    assert values("in 2 100 metre races") == [2, 100]
    assert values("18 000", spaced=True) == [18000]
    assert values("18 0000", spaced=True) == [18, 0]


def test_places_and_ordinals_are_told():
    first, second = numerals("pay $18 on the 3rd")
    assert ("pay $18 on the 3rd"[first.start : first.end], first.ordinal) == ("$18", False)
    assert second.ordinal


@given(st.text(alphabet="0123456789.,/-$%^eE {}\\frac½x×kth¹⁻⁺:'٣\n=", max_size=60))
@settings(max_examples=300, deadline=None)
def test_arbitrary_text_never_raises(text):
    for spaced in (False, True):
        for n in numerals(text, spaced=spaced):
            assert 0 <= n.start < n.end <= len(text)


@given(st.fractions(max_denominator=10**6))
@settings(max_examples=200, deadline=None)
def test_the_canonical_spelling_reads_back_as_the_same_value(value):
    assert values(canonical(value)) == [value]


@given(st.integers(-(10**12), 10**12), st.integers(0, 4))
@settings(max_examples=200, deadline=None)
def test_thousands_separators_and_trailing_zeros_do_not_change_a_value(n, places):
    zeros = "." + "0" * places if places else ""
    assert values(f"{n:,}{zeros}") == values(f"{n}{zeros}") == [n]
