from __future__ import annotations

import pytest
from bench.engine import clock
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.rng import stream


def test_the_side_that_begins_changes_and_each_answers_under_its_own_name():
    order: list[str] = []

    def side(name: str) -> str:
        order.append(name)
        return name

    for repeat in range(3):
        assert clock.alternate(repeat, lambda: side("ours"), lambda: side("peer")) == ("ours", "peer")
    assert order == ["ours", "peer", "peer", "ours", "ours", "peer"]


def test_a_peer_that_takes_a_minute_is_repeated_three_times():
    assert (clock.repeats(59.9), clock.repeats(60.0)) == (5, 3)


@settings(max_examples=60)
@given(st.permutations(range(4)).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, 3))))
def test_the_search_finds_the_best_of_a_curve_with_one_peak(given_):
    # from any permutation a curve with one peak: rising up to the size that is drawn first, falling after it
    (peak, *_), start = given_
    sizes = (1, 4, 8, 16)
    speeds = {size: -abs(i - peak) for i, size in enumerate(sizes)}
    best, measured = clock.climb(sizes, speeds.__getitem__, start)
    assert best == sizes[peak]
    assert measured.items() <= speeds.items()


def test_the_search_stops_where_a_larger_size_is_slower():
    tried: list[int] = []

    def speed(size: int) -> float:
        tried.append(size)
        return {1: 279.0, 4: 243.0}[size]

    assert clock.climb((1, 4, 8, 16), speed)[0] == 1
    assert tried == [1, 4]


@settings(max_examples=60)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.integers(1, 30), st.integers(0, 3))
def test_a_sample_takes_whole_problems_and_no_more_than_it_needs(sizes, least, seed):
    problems = [tuple((i, j) for j in range(size)) for i, size in enumerate(sizes)]
    chosen = clock.sampled(problems, stream(seed, "t"), least)
    held = sum(map(len, chosen))
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(problems)
    assert held >= min(least, sum(sizes))
    assert held - len(chosen[-1]) < least


@settings(max_examples=60)
@given(st.lists(st.integers(), max_size=30), st.integers(1, 5))
def test_dealing_loses_and_doubles_nothing(things, hands):
    dealt = clock.dealt(things, hands)
    assert sorted(x for hand in dealt for x in hand) == sorted(things)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@settings(max_examples=60)
@given(st.integers(1, 300), st.sampled_from([8, 16, 32, 64]), st.integers(1, 5))
def test_a_sample_of_draws_is_whole_batches_and_every_repeat_has_one(total, size, hands):
    counts = clock.batches(total, size, hands)
    assert len(counts) == hands
    assert all(n >= size and n % size == 0 for n in counts)
    assert sum(counts) >= total


def test_a_spread_is_the_median_between_the_smallest_and_the_largest():
    assert clock.Spread.of([3.0, 1.0, 2.0]) == clock.Spread(2.0, 1.0, 3.0)


def test_a_call_is_timed_and_its_result_kept():
    result, seconds = clock.timed(lambda: "x")
    assert result == "x"
    assert seconds == pytest.approx(0, abs=5)
    assert seconds >= 0
