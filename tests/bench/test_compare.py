from __future__ import annotations

import pytest
from bench.engine.cells import Cell, distinct, take
from bench.engine.equivalence import compare

from steelyard.core.types import Likelihood, Response, Tokens, Work


def cell(name: str, texts: tuple[str, ...] = ("aa", "bb")) -> Cell:
    work = tuple(
        Work(f"{name}{i}", Likelihood("x", text), Tokens((1, 2, 3), 1)) for i, text in enumerate(texts)
    )
    return Cell("form", tuple((w.request_id, t) for w, t in zip(work, texts, strict=True)), work)


def answers(*sums: float, name: str = "c") -> dict[str, Response]:
    return {
        f"{name}{i}": Response(
            request_id=f"{name}{i}", logprob=value, n_tokens=2, token_logprobs=(value - 1.0, 1.0)
        )
        for i, value in enumerate(sums)
    }


def test_the_difference_is_per_scored_token_and_that_of_single_tokens_beside_it():
    found = compare([cell("c")], answers(-1.0, -2.0), answers(-1.0, -2.5))
    assert found.per_token == pytest.approx(0.25)
    assert found.single == pytest.approx(0.5)
    assert (found.flips, found.beyond_ties) == (0, 0)


def test_a_choice_that_flips_within_rounding_is_a_tie_and_a_wider_one_is_not():
    close = compare([cell("c")], answers(-1.0, -1.00001), answers(-1.00001, -1.0))
    assert (close.flips, close.beyond_ties) == (1, 0)
    wide = compare([cell("c")], answers(-1.0, -2.0), answers(-2.0, -1.0))
    assert (wide.flips, wide.beyond_ties) == (1, 1)


def test_a_choice_that_flips_only_per_character_is_seen():
    one = cell("c", ("a", "bbbbbbbbbb"))
    found = compare([one], answers(-1.0, -9.0), answers(-1.0, -11.0))
    assert (found.flips, found.beyond_ties) == (1, 1)


def test_cells_are_taken_whole_until_they_hold_enough_distinct_requests():
    a, b, c = cell("a"), cell("b"), cell("c")
    assert take([a, a, b, c], 3) == [a, a, b]
    assert [w.request_id for w in distinct([a, a, b])] == ["a0", "a1", "b0", "b1"]
