"""Packs and tiles: every node once, every pair of a node and an ancestor once, wherever the cuts fall."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.errors import InputError
from steelyard.engine import packs as module
from steelyard.engine.packs import Kind, Pack, ancestors, cut, needed, split, tiles
from steelyard.engine.trie import Trie, build

TRIES = (
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), min_size=1, max_size=12)
    # a stem makes the long segments that packs cut through
    .flatmap(lambda tails: st.integers(0, 25).map(lambda n: build([(1,) * n + tail for tail in tails])))
)
BUDGETS = st.integers(1, 14)
CALLS = st.sampled_from([0, 1, 20, 1000])


def chain(trie: Trie, node: int) -> list[int]:
    """All nodes from the root down to a node, by position."""
    return [n for first, last in trie.path(node) for n in range(first, last)]


class Held:
    """What a run holds, by position: the model of `attention.Held` with nodes for keys."""

    def __init__(self) -> None:
        self.nodes: dict[int, int] = {}

    def after(self, pack: Pack) -> None:
        for first, last, position in pack.hold:
            assert pack.first <= first < last <= pack.last
            for i in range(last - first):
                self.nodes[position + i] = first + i

    def above(self, pack: Pack) -> list[int | None]:
        return [self.nodes.get(position) for position in range(pack.above)]


def relation(trie: Trie) -> np.ndarray:
    """Who is an ancestor of whom, or itself, from the paths: shape (nodes, nodes)."""
    seen = np.zeros((len(trie), len(trie)), dtype=int)
    for node in range(len(trie)):
        seen[node, chain(trie, node)] = 1
    return seen


def covered(trie: Trie, pack: Pack, held: Held) -> np.ndarray:
    """How often each pair is covered by the tiles of a pack: shape (nodes of the pack, nodes of the trie)."""
    counts = np.zeros((len(pack), len(trie)), dtype=int)
    whole = relation(trie)
    for tile in tiles(trie, pack):
        (a, b), (c, d) = tile.queries, tile.keys
        assert 0 <= a < b <= len(pack)
        assert c < d
        for query in range(a, b):
            for key in range(c, d):
                if tile.kind is Kind.HELD:
                    counts[query, held.nodes[key]] += 1
                elif tile.kind is Kind.CAUSAL:
                    counts[query, pack.first + key] += key - c <= query - a
                else:
                    counts[query, pack.first + key] += whole[pack.first + query, pack.first + key]
    return counts


@given(TRIES, BUDGETS)
def test_packs_hold_every_node_once_in_order_within_the_budget(trie, budget):
    packs = cut(trie, budget)
    nodes = [n for pack in packs for n in range(pack.first, pack.last)]
    assert nodes == list(range(len(trie)))
    assert all(1 <= len(pack) <= budget for pack in packs)
    # a cut may give up a quarter of the budget, and no more
    assert all(len(pack) >= budget - budget // 4 for pack in packs[:-1])


@given(TRIES, BUDGETS)
def test_what_a_pack_needs_from_before_is_held_at_its_position(trie, budget):
    held = Held()
    for pack in cut(trie, budget):
        assert held.above(pack) == chain(trie, pack.first)[:-1]
        held.after(pack)


@given(TRIES, BUDGETS, CALLS)
def test_tiles_cover_each_node_and_ancestor_exactly_once(trie, budget, call):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CALL", call)  # what a call costs decides how work is cut, never what comes out
        held = Held()
        whole = relation(trie)
        for pack in cut(trie, budget):
            assert (covered(trie, pack, held) == whole[pack.first : pack.last]).all()
            held.after(pack)


@given(TRIES, BUDGETS, CALLS)
def test_held_tiles_come_first_and_every_query_has_a_tile(trie, budget, call):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CALL", call)
        for pack in cut(trie, budget):
            found = tiles(trie, pack)
            kinds = [tile.kind is Kind.HELD for tile in found]
            assert kinds == sorted(kinds, reverse=True)
            own = sorted(q for t in found if t.kind is not Kind.HELD for q in range(*t.queries))
            assert set(own) == set(range(len(pack)))


@given(TRIES, st.data())
def test_ancestors_are_a_function_of_two_indices(trie, data):
    whole = relation(trie)
    edge = st.integers(0, len(trie))
    a, b = sorted((data.draw(edge), data.draw(edge)))
    c, d = sorted((data.draw(edge), data.draw(edge)))
    assert (ancestors(trie, (a, b), (c, d)) == whole[a:b, c:d]).all()


@given(TRIES, BUDGETS, st.data())
def test_the_packs_that_some_need_are_enough_to_run_those_and_no_more_than_hold_ancestors(trie, budget, data):
    packs = cut(trie, budget)
    wanted = data.draw(st.sets(st.integers(0, len(packs) - 1)))
    order = needed(trie, packs, wanted)
    assert wanted <= set(order)
    assert order == sorted(set(order))
    held = Held()
    for i in order:
        # what stands there from a pack that was left out would be another node, or none
        assert held.above(packs[i]) == chain(trie, packs[i].first)[:-1]
        held.after(packs[i])
    parents = {n for i in order for n in chain(trie, packs[i].first)[:-1]}
    for i in set(order) - wanted:
        assert parents.intersection(range(packs[i].first, packs[i].last))


@given(TRIES, BUDGETS, st.randoms(use_true_random=False))
def test_packs_that_are_halved_anywhere_any_number_of_times_do_the_same_work(trie, budget, dice):
    queue = cut(trie, budget)
    held, whole, nodes = Held(), relation(trie), 0
    while queue:
        pack = queue.pop(0)
        if len(pack) > 1 and dice.random() < 0.4:
            queue[:0] = split(trie, pack)
            continue
        assert held.above(pack) == chain(trie, pack.first)[:-1]
        assert (covered(trie, pack, held) == whole[pack.first : pack.last]).all()
        held.after(pack)
        nodes += len(pack)
    assert nodes == len(trie)


def test_a_pack_ends_at_the_shallowest_branch_near_its_end():
    # three options of 6, 10 and 6 tokens behind a stem of 4
    trie = build([(9,) * 4 + (n,) + (5,) * length for n, length in ((1, 5), (2, 9), (3, 5))])
    assert [(p.first, p.last) for p in cut(trie, 12)] == [(0, 10), (10, 20), (20, 26)]
    # the stem alone is held, and once
    assert cut(trie, 12)[0].hold == ((0, 4, 0),)
    assert cut(trie, 12)[1].hold == ()


def test_options_behind_a_stem_are_one_call_for_the_stem_and_few_for_the_options():
    """What the tiles are for: 400 options of 3 tokens cost neither 400 calls nor a square of 1,200 x 1,200."""
    trie = build([(1,) * 100 + (2 + n, 2, 2) for n in range(400)])
    (pack,) = cut(trie, 4096)
    found = tiles(trie, pack)
    assert sum(t.kind is Kind.CAUSAL and t.keys == (0, 100) for t in found) == 1
    assert len(found) < 60
    area = sum((t.queries[1] - t.queries[0]) * (t.keys[1] - t.keys[0]) for t in found)
    assert area < 2 * 100 * len(trie)


@pytest.mark.parametrize("budget", [0, -3])
def test_a_budget_without_a_token_is_refused(budget):
    with pytest.raises(InputError, match=f"at least 1 token, got {budget}"):
        cut(build([(1, 2)]), budget)


def test_a_trie_without_nodes_has_no_packs():
    assert cut(build([()]), 5) == []
