from __future__ import annotations

import pytest
from bench.engine import count
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.types import Finish, Response, Tokens

ROWS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=2, max_size=7), st.integers(1, 6)).map(
        lambda pair: Tokens(tuple(pair[0]), min(pair[1], len(pair[0]) - 1))
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60)
@given(ROWS)
def test_the_counts_are_those_of_sets_of_prefixes(rows):
    fed = {row.ids[:n] for row in rows for n in range(1, len(row.ids))}
    read = {row.ids[:i] for row in rows for i in range(row.start, len(row.ids))}
    assert count.least(rows) == len(fed)
    assert count.positions(rows) == len(read)
    assert read <= fed


@settings(max_examples=60)
@given(ROWS)
def test_sharing_never_costs_more_than_the_harness_and_that_never_more_than_one_by_one(rows):
    assert count.least(rows) <= count.fed_by_harness(rows) <= count.whole(rows)


def test_the_harness_runs_requests_that_differ_in_their_last_token_once():
    rows = [Tokens((1, 2, 3), 2), Tokens((1, 2, 4), 2), Tokens((1, 5, 6), 1)]
    assert count.fed_by_harness(rows) == 4
    assert count.whole(rows) == 6


def test_a_token_that_a_text_ends_with_is_new_and_is_never_fed():
    ended = Response(request_id="a", text="x", n_tokens=3, finish=Finish.EOS)
    full = Response(request_id="b", text="y", n_tokens=5, finish=Finish.LENGTH)
    new = count.new_tokens([ended, full])
    assert new == [4, 5]
    prompts = [(1, 2, 3), (1, 2, 3)]
    assert count.least_sampling(prompts, new) == 3 + 3 + 4
    assert count.positions_sampling(prompts, new) == 1 + 3 + 4


@pytest.mark.parametrize("finish", [Finish.STOP, Finish.ERROR])
def test_texts_whose_tokens_are_unknown_are_not_counted(finish):
    with pytest.raises(ValueError, match="Expected texts that end"):
        count.new_tokens([Response(request_id="a", text="", finish=finish, error="why")])
