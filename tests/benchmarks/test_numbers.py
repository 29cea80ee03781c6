from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.benchmarks.fields import FieldError, number, parse_number, show

DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12)


@given(DECIMALS)
def test_a_number_is_read_back_from_its_plain_and_its_grouped_form(value):
    assert parse_number(f"{value:f}") == value
    assert parse_number(f"{value:,f}") == value


@given(DECIMALS, st.sampled_from("$€£¥"))
def test_a_currency_sign_may_stand_after_or_before_the_minus(value, sign):
    magnitude = f"{abs(value):,f}"
    minus = "-" if value < 0 else ""
    assert parse_number(f"{minus}{sign}{magnitude}") == value
    assert parse_number(f"{sign}{minus}{magnitude}") == value


@given(st.integers(-(10**30), 10**30), st.text("0123456789,", max_size=3))
def test_only_groups_of_three_are_taken_for_thousands(value, tail):
    written = f"{value:,},{tail}"
    if len(tail) == 3 and tail.isdigit():
        assert parse_number(written) == value * 1000 + (int(tail) if value >= 0 else -int(tail))
    else:
        with pytest.raises(ValueError, match=r"comma|number"):
            parse_number(written)


@given(st.text(max_size=12))
def test_any_text_is_a_finite_number_or_a_value_error(written):
    try:
        value = parse_number(written)
    except ValueError:
        return
    assert value.is_finite()
    assert any(c.isdigit() for c in written)


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        ".",
        "-",
        "$",
        "1e5",
        "5 apples",
        "1,5",
        "1 000",
        "--1",
        "-$-1",
        "٣",
        "1/2",
        "50%",
        "nan",
        "inf",
    ],
)
def test_what_is_not_exactly_one_number_is_refused(written):
    with pytest.raises(ValueError, match="number"):
        parse_number(written)


def test_where_the_source_deletes_commas_they_may_stand_anywhere():
    assert parse_number("10,0000", any_grouping=True) == 100000
    assert parse_number("18.", any_grouping=True) == 18


def test_a_float_keeps_the_digits_that_were_written():
    assert number(0.1, "a") == (Decimal("0.1"), "0.1")
    assert number(145.0, "a") == (Decimal(145), "145.0")
    assert number(1e16, "a")[1] == "10000000000000000"
    assert number(10**400, "a")[0] == Decimal(10) ** 400


@pytest.mark.parametrize("value", [True, None, float("nan"), float("inf"), [1], {"n": 1}, "eighteen"])
def test_a_value_that_is_no_number_names_the_field_and_what_came(value):
    with pytest.raises(FieldError, match=r"'total'.*expected.*number.*got"):
        number(value, "total")


@given(
    st.one_of(st.text(max_size=300), st.dictionaries(st.text(max_size=5), st.none()), st.lists(st.integers()))
)
def test_values_in_messages_are_short_and_can_be_printed_anywhere(value):
    shown = show(value)
    shown.encode("utf-8")
    assert len(shown) < 1200
    assert not any(ord(c) < 32 or c in "\u202e\u2066" for c in shown)
