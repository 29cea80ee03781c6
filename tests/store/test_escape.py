from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from steelyard.store import escape, restore

# characters at which an escape could go wrong, often beside each other
TRICKY = st.lists(
    st.sampled_from(
        [
            "\ufffd",
            "\ud800",
            "\udfff",
            "\udbff",
            "\\",
            "u",
            "d",
            "f",
            "E",
            "0",
            "8",
            "\0",
            "\\ufffd",
            "\\ud800",
        ]
    )
).map("".join)
ANY = st.lists(st.sampled_from("\ud800\udfff\ufffd") | st.characters()).map("".join)


@example("\ufffd\\ud800")
@example("\ufffd\\ufffd\\ud800")
@given(TRICKY | ANY)
def test_any_text_comes_back_unchanged_and_is_valid_utf_8_in_between(text):
    stored = escape(text)
    stored.encode("utf-8")
    assert restore(stored) == text


@given(TRICKY, TRICKY)
def test_different_texts_are_stored_differently(one, other):
    assert (escape(one) == escape(other)) == (one == other)


@given(st.text())
def test_text_without_surrogates_and_marked_escapes_is_stored_as_it_is(text):
    if "\ufffd\\u" not in text:
        assert escape(text) == text


def test_the_replacement_character_alone_is_stored_as_it_is():
    assert escape("a\ufffdb\ufffd") == "a\ufffdb\ufffd"


def test_the_stored_form_is_the_documented_one():
    assert escape("a\udc9fb") == "a\ufffd\\udc9fb"


def test_a_surrogate_pair_in_two_characters_is_not_merged_into_one():
    pair = json.loads('"\\ud83d"') + json.loads('"\\ude00"')
    assert restore(escape(pair)) == pair
    assert len(pair) == 2
