"""The trie of requests: its paths are the requests, its nodes are their distinct prefixes, wherever parts join."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import InputError
from steelyard.core.prefixes import distinct_prefixes
from steelyard.engine.trie import Trie, build, build_parts

# two or three letters: prefixes, repeats and parts inside parts are then the rule
TOKENS = st.integers(0, 2)
SEQUENCES = st.lists(st.lists(TOKENS, max_size=8).map(tuple), max_size=12)
PARTS = st.lists(st.lists(TOKENS, max_size=5).map(tuple), min_size=1, max_size=6)


@st.composite
def tables(draw) -> tuple[list[tuple[int, ...]], list[list[int]]]:
    """Parts and requests made of them, some with holes."""
    parts = draw(PARTS)
    width = draw(st.integers(0, 4))
    row = st.lists(st.integers(-1, len(parts) - 1), min_size=width, max_size=width)
    return parts, draw(st.lists(row, min_size=1, max_size=8))


def joined(parts, row) -> tuple[int, ...]:
    return tuple(token for i in row if i >= 0 for token in parts[i])


def spelled(trie: Trie, node: int) -> tuple[int, ...]:
    return tuple(int(t) for first, last in trie.path(node) for t in trie.tokens[first:last])


def above(trie: Trie, node: int) -> int:
    """The parent of a node, -1 at the root."""
    segment = trie.segment(node)
    return node - 1 if node > trie.start[segment] else int(trie.parent[segment])


def same(a: Trie, b: Trie) -> None:
    for name in ("tokens", "start", "depth", "parent", "end", "last"):
        assert getattr(a, name).tolist() == getattr(b, name).tolist(), name


@given(SEQUENCES)
def test_paths_to_the_last_nodes_are_the_requests(sequences):
    trie = build(sequences)
    assert len(trie.last) == len(sequences)
    for sequence, last in zip(sequences, trie.last.tolist(), strict=True):
        assert spelled(trie, last) == sequence
        assert (last == -1) == (not sequence)
        if sequence:
            assert trie.depth_of(last) == len(sequence) - 1


@given(SEQUENCES)
def test_every_distinct_prefix_is_one_node(sequences):
    trie = build(sequences)
    assert len(trie) == distinct_prefixes(sequences)
    assert trie.deepest == max(map(len, sequences), default=0)
    prefixes = [spelled(trie, node) for node in range(len(trie))]
    assert set(prefixes) == {s[:n] for s in sequences for n in range(1, len(s) + 1)}
    assert len(set(prefixes)) == len(prefixes)


@given(tables())
def test_where_parts_join_makes_no_difference(table):
    parts, rows = table
    same(build_parts(parts, rows), build([joined(parts, row) for row in rows]))


@given(SEQUENCES, st.randoms(use_true_random=False))
def test_the_order_of_requests_changes_only_which_is_which(sequences, dice):
    order = list(range(len(sequences)))
    dice.shuffle(order)
    one, other = build(sequences), build([sequences[i] for i in order])
    assert one.tokens.tolist() == other.tokens.tolist()
    assert one.start.tolist() == other.start.tolist()
    assert one.last[order].tolist() == other.last.tolist()


@given(SEQUENCES)
def test_segments_are_runs_without_a_branch_and_none_could_be_longer(sequences):
    trie = build(sequences)
    children = np.bincount([above(trie, n) + 1 for n in range(len(trie))], minlength=len(trie) + 1)[1:]
    starts = set(trie.start.tolist())
    for node in range(len(trie)):
        parent = above(trie, node)
        alone = parent >= 0 and children[parent] == 1
        # a node continues its parent's segment exactly if it is the only child
        assert (node not in starts) == alone
        if alone:
            assert parent == node - 1


@given(SEQUENCES)
def test_a_subtree_is_a_range(sequences):
    trie = build(sequences)
    chains = [{n for a, b in trie.path(node) for n in range(a, b)} for node in range(len(trie))]
    for segment, (first, end) in enumerate(zip(trie.start.tolist(), trie.end.tolist(), strict=True)):
        under = [node for node in range(len(trie)) if first in chains[node]]
        assert under == list(range(first, end))
        assert trie.segment(first) == segment
        assert trie.parent[segment] < first


@given(SEQUENCES.filter(any), st.data())
def test_positions_are_the_depths_of_any_range_of_nodes(sequences, data):
    trie = build(sequences)
    first = data.draw(st.integers(0, len(trie) - 1))
    last = data.draw(st.integers(first + 1, len(trie)))
    assert trie.positions(first, last).tolist() == [trie.depth_of(n) for n in range(first, last)]
    assert [len(spelled(trie, n)) - 1 for n in range(first, last)] == trie.positions(first, last).tolist()


@given(st.lists(st.lists(st.sampled_from([0, 1, 255, 256, 65_536, 2**31 - 1]), max_size=4), max_size=8))
def test_ids_of_any_size_are_compared_as_numbers_and_not_as_bytes(sequences):
    trie = build(sequences)
    assert len(trie) == distinct_prefixes(sequences)
    assert [spelled(trie, n) for n in trie.last.tolist()] == [tuple(s) for s in sequences]
    roots = [int(trie.tokens[s]) for s, p in zip(trie.start, trie.parent, strict=True) if p < 0]
    assert roots == sorted(set(roots))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_stems_questions_and_options_of_lengths_that_occur_make_the_trie_of_the_whole_texts(seed):
    dice = np.random.default_rng(seed)
    parts = [dice.integers(0, 3, dice.integers(1, 30)) for _ in range(3 + 5 + 7)]
    rows = [[s, 3 + q, 8 + o] for s in range(3) for q in range(5) for o in range(7)]
    trie = build_parts(parts, rows)
    whole = [joined(parts, row) for row in rows]
    assert len(trie) == distinct_prefixes(whole)
    assert [spelled(trie, n) for n in trie.last.tolist()] == whole


def test_parts_inside_parts_inside_parts_are_cut_as_often_as_needed():
    """What is left of a part may again begin with a part: here five times over."""
    parts = [(1,) * n for n in (1, 2, 3, 5, 8, 13)] + [(1, 1, 2), (1, 2), (2,)]
    rows = [[i, j, k] for i in range(-1, 9) for j in range(-1, 9) for k in range(9)]
    trie = build_parts(parts, rows)
    whole = [joined(parts, row) for row in rows]
    assert len(trie) == distinct_prefixes(whole)
    assert [spelled(trie, n) for n in trie.last.tolist()] == whole


@pytest.mark.parametrize("sequences", [[], [()], [(), (), ()]])
def test_requests_without_tokens_make_a_trie_without_nodes(sequences):
    trie = build(sequences)
    assert len(trie) == trie.deepest == 0
    assert trie.last.tolist() == [-1] * len(sequences)
    assert trie.path(-1) == []


def test_parts_that_no_request_uses_do_not_count():
    assert build_parts([(1, 2), (9, 9, 9)], [[0], [0]]).tokens.tolist() == [1, 2]
    assert len(build_parts([(1, 2)], np.empty((3, 0), dtype=int))) == 0


@pytest.mark.parametrize(
    ("parts", "rows", "said"),
    [
        ([(1,)], [0, 0], r"shape.*\(2,\)"),
        ([(1,)], [[1]], "indices from 1 to 1; there are 1 parts"),
        ([(1,)], [[-2]], "indices from -2"),
        ([(1,), (-1, 4)], [[0, 1]], "Part 1 holds token ids from -1 to 4; they go from 0"),
        ([(2**31,)], [[0]], "Part 0 holds token ids"),
        ([(0.5, 1.0)], [[0]], "Part 0 must be a list of token ids; got float64"),
        ([[(1, 2), (3, 4)]], [[0]], r"Part 0.*shape \(2, 2\)"),
        ([(1,)], [[0.5]], "rows must hold whole numbers"),
    ],
)
def test_parts_or_rows_that_are_none_are_refused_with_what_came(parts, rows, said):
    with pytest.raises(InputError, match=said):
        build_parts(parts, rows)


@pytest.mark.parametrize("sequences", [[(1, -1)], [(2**31,)], [(1,), (0.5,)], [((1, 2), (3, 4))]])
def test_sequences_that_are_no_token_ids_are_refused_and_not_rounded(sequences):
    with pytest.raises(InputError, match=r"Sequence [01]"):
        build(sequences)
