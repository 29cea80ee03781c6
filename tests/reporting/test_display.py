import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.reporting import cells, display
from steelyard.reporting.group import WORDINGS, Spread, collapse, faults


@given(st.text(st.characters(), max_size=60))
def test_visible_text_has_no_character_that_acts_and_spelling_twice_changes_nothing(text):
    shown = display.visible(text)
    assert not any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in shown)
    assert not any(
        unicodedata.bidirectional(char) in {"RLO", "LRO", "RLI", "LRI", "FSI", "RLE", "LRE"} for char in shown
    )
    assert display.visible(shown) == shown
    shown.encode("utf-8")


def test_ordinary_text_of_any_script_stays_as_it_is():
    for text in ("naïve", "数学", "می‌خواهم", "👩‍🔬", "שלום", "a\u0301"):
        assert display.visible(text) == text


def test_a_long_text_is_cut_with_a_mark_that_says_its_length():
    shown, mark = display.shorten("x" * 1_000_000, 100)
    assert shown == "x" * 100
    assert mark == "… 100 of 1,000,000 characters shown"
    assert display.shorten("x" * 100, 100) == ("x" * 100, "")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.4149, "fraction", "41.5"), (1.0, "fraction", "100.0"), (0.0, "fraction", "0.0"),
        (-0.00001, "fraction", "0.0"),
        (-2312.4, "nats", "−2,312"),
        (-31.25, "nats", "−31.25"), (1.0834, "bits/byte", "1.083"), (None, "fraction", "–"),
    ],
)  # fmt: skip
def test_numbers_are_percent_only_for_fractions(value, unit, text):
    assert display.number(value, unit) == text


@given(st.floats(0, 1))
def test_a_fraction_is_written_within_half_a_tenth_of_a_percent(value):
    assert abs(float(display.number(value, "fraction")) - 100 * value) <= 0.05 + 1e-9


def test_limits_take_the_decimals_of_their_score(row):
    assert cells.interval(row(value=12.345, low=9.87654, high=101.5, unit="nats")) == "[9.88, 101.50]"


def test_a_missing_value_says_why(row):
    def why(**counts):
        return cells.interval(row(value=None, status_counts=counts))

    assert why(unscored=40) == "40 unscored"
    assert why(overlong=3, error=1, ok=2) == "1 failed, 3 too long for the context"
    assert why(ok=40) == "no estimate"
    assert why() == "no answers"
    assert cells.interval(row(low=None, high=None)) == "no interval"


def test_draws_tell_uneven_counts(row):
    assert cells.draws(row(n_items=20, n_samples=80)) == "4"
    assert cells.draws(row(n_items=20, n_samples=78)) == "3.9"
    assert cells.draws(row(n_items=0, n_samples=0)) == "–"


def test_many_wordings_become_one_entry_and_few_do_not(row):
    def rows(count):
        return [row(template=f"t{i}", value=i / 100) for i in range(count)]

    assert collapse(rows(WORDINGS)) == rows(WORDINGS)
    (entry,) = collapse(rows(WORDINGS + 1))
    assert isinstance(entry, Spread)
    assert entry.median == pytest.approx(WORDINGS / 200)
    assert cells.interval(entry) == "0.0 … 12.0"
    assert cells.template(entry) == "median of 13 templates"


def test_a_wording_without_a_score_is_counted_and_not_taken_as_zero(row):
    rows = [row(template=f"t{i}", value=0.5 if i else None) for i in range(20)]
    (entry,) = collapse(rows)
    assert entry.values == [0.5] * 19
    assert cells.template(entry) == "median of 19 of 20 templates"


def test_many_different_notes_on_many_wordings_are_counted(row):
    (few,) = collapse([row(template=f"t{i}", diagnostics=(f"note {i % 3}",)) for i in range(20)])
    (many,) = collapse([row(template=f"t{i}", diagnostics=(f"note {i}",)) for i in range(20)])
    assert cells.diagnostics(few) == ("note 0", "note 1", "note 2")
    (text,) = cells.diagnostics(many)
    assert text.startswith("20 different notes stand on single templates")


def test_faults_add_up_over_templates_but_not_over_metrics_and_duplicates_stay_items(row):
    counts = {"n": 80, "cut": 3, "duplicates": 2, "ties": 0}
    rows = [row(template=t, metric=m, validity=counts) for t in ("a", "b", "c") for m in ("x", "y")]
    (record,) = faults(rows)
    assert record.templates == 3
    assert record.counts == {"n": 240, "cut": 9, "ties": 0, "duplicates": 2}


def test_items_are_counted_once_per_benchmark(row, of):
    rows = [row(model=m, form=f, n_items=n) for m in "ab" for f, n in (("nlg", 79), ("mc", 80))]
    assert cells.items_measured(of(*rows, sources=())) == {"gsm8k": 80}
    assert cells.items_measured(of(*rows, sources=({"benchmark": "gsm8k", "n_selected": 81},))) == {
        "gsm8k": 81
    }
