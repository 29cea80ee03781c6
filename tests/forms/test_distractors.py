"""Options: the rules for random distractors, and where smart ones come from."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.errors import RefusedError
from steelyard.core.text import answer_class
from steelyard.core.types import ChoiceAnswer, Item, NumberAnswer, Option, ProgramAnswer, TextAnswer
from steelyard.forms.distractors import CONTEXT_MOST, Pool, equals_own_options, options_for
from steelyard.forms.formulation import get

RANDOM, SMART = get("mc_rnd"), get("mc")


def text_item(n: int, *aliases: str, **fields: str) -> Item:
    return Item(
        item_id=f"t{n}",
        benchmark="b",
        question=f"q{n}",
        reference=TextAnswer(aliases or (f"w{n}",)),
        fields=fields,
    )


def number_item(n: int, value: str) -> Item:
    reference = NumberAnswer(Decimal(value.replace(",", "")), value, f"work {n}\n#### {value}")
    return Item(item_id=f"n{n}", benchmark="b", question=f"q{n}", reference=reference)


words = st.lists(st.text(st.sampled_from("abC .!"), min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=1, max_size=30), st.integers(1, 5), st.integers(0, 3))
def test_random_options_are_never_right_never_repeated_and_say_where_they_come_from(answers, k, seed):
    items = [text_item(n, *a) for n, a in enumerate(answers)]
    pool = Pool(items)
    for item in items:
        found = options_for(item, RANDOM, pool, k=k, seed=seed)
        classes = [answer_class(o.answer) for o in found.options]
        assert found.options[found.gold].source == "gold"
        assert len(set(classes)) == len(classes)
        right = {answer_class(a) for a in item.reference.aliases}
        wrong = [o for n, o in enumerate(found.options) if n != found.gold]
        assert not right & {answer_class(o.answer) for o in wrong}
        assert len(wrong) + found.short == k
        for option in wrong:
            source = next(i for i in items if f"item:{i.item_id}" == option.source)
            assert source.gold.full == option.full


def test_adding_items_or_other_order_changes_no_draw_but_for_the_added():
    items = [text_item(n) for n in range(200)]
    before = {i.item_id: options_for(i, RANDOM, Pool(items), k=3, seed=0) for i in items}
    shuffled = options_for(items[5], RANDOM, Pool(items[::-1]), k=3, seed=0)
    assert shuffled == before["t5"]
    more = [*items, text_item(200)]
    after = {i.item_id: options_for(i, RANDOM, Pool(more), k=3, seed=0) for i in items}
    changed = [i for i in before if before[i] != after[i]]
    assert len(changed) <= 12  # 3 of 200 are expected
    for item_id in changed:
        assert "item:t200" in {o.source for o in after[item_id].options}


def test_numbers_are_compared_by_value():
    items = [number_item(0, "1,000"), number_item(1, "1000.0"), number_item(2, "7"), number_item(3, "7.00")]
    found = options_for(items[0], RANDOM, Pool(items), k=3, seed=0)
    assert [o.answer for n, o in enumerate(found.options) if n != found.gold] in (["7"], ["7.00"])
    assert found.short == 2
    assert found.options[found.gold].full.startswith("work 0")


def test_passage_tasks_draw_from_the_passage_then_the_article_and_no_overlapping_spans():
    same = {"passage": "p1", "title": "a1"}
    items = [
        text_item(0, "14 June 1900", **same),
        text_item(1, "June 1900", **same),  # lies in the gold
        text_item(2, "on 14 June 1900 at noon", **same),  # contains it
        text_item(3, "Paris", **same),
        text_item(4, "Rome", passage="p2", title="a1"),
        text_item(5, "Oslo", passage="p3", title="a2"),
    ]
    found = options_for(items[0], RANDOM, Pool(items, ("passage", "title")), k=3, seed=0)
    wrong = {o.answer for n, o in enumerate(found.options) if n != found.gold}
    assert wrong == {"Paris", "Rome"}
    assert found.short == 1
    art = [text_item(0, "art", **same), text_item(1, "party", **same)]
    assert options_for(art[0], RANDOM, Pool(art, ("passage",)), k=1, seed=0).short == 0


def test_context_options_are_all_other_answers_of_the_passage_and_fill_up_from_the_article():
    items = [text_item(n, f"word{n}", passage="p1", title="a1") for n in range(6)]
    items += [text_item(n, f"word{n}", passage="p2", title="a1") for n in range(6, 9)]
    items += [
        text_item(9, "word1", passage="p2", title="a1"),
        text_item(10, "word10", passage="p3", title="a2"),
    ]
    pool = Pool(items, ("passage", "title"))
    found = options_for(items[0], get("mc_rnd_all"), pool, k=3, seed=0)
    assert {o.answer for o in found.options} == {f"word{n}" for n in range(6)}
    assert (found.short, found.left) == (0, 0)
    few = options_for(items[6], get("mc_rnd*"), pool, k=4, seed=0)
    wrong = {o.answer for o in few.options if o.source != "gold"}
    assert len(wrong) == 4
    assert {"word7", "word8", "word1"} <= wrong  # of its passage, then of its article
    alone = options_for(items[10], get("mc_rnd*"), pool, k=3, seed=0)
    assert alone.short == 3


def test_no_more_than_sixteen_context_options_are_taken_and_the_others_are_counted():
    items = [text_item(n, f"word{n}", passage="p", title="a") for n in range(30)]
    found = options_for(items[0], get("mc_rnd*"), Pool(items, ("passage", "title")), k=3, seed=0)
    assert len(found.options) == 1 + CONTEXT_MOST == 17
    assert found.left == 29 - 16


def test_yes_no_benchmarks_have_one_other_answer_and_equal_their_own_options():
    items = [
        Item(item_id=str(n), benchmark="b", question=f"q{n}", reference=ChoiceAnswer(n % 2, ("no", "yes")))
        for n in range(10)
    ]
    found = options_for(items[0], RANDOM, Pool(items), k=3, seed=0)
    assert {o.full for o in found.options} == {"no", "yes"}
    assert found.short == 2
    assert equals_own_options(items[0], found)
    own = options_for(items[1], SMART, Pool(items), k=3, seed=0)
    assert [o.full for o in own.options] == ["no", "yes"]
    assert own.gold == 1


def test_smart_options_are_the_datas_in_a_drawn_order():
    wrong = tuple(Option(f"x{n}", f"x{n}", "data") for n in range(3))
    items = [
        Item(item_id=str(n), benchmark="b", question="q", reference=TextAnswer(("g",)), distractors=wrong)
        for n in range(80)
    ]
    places = [options_for(i, SMART, Pool(items), k=9, seed=0).gold for i in items]
    assert set(places) == {0, 1, 2, 3}
    assert all(5 <= places.count(p) <= 40 for p in range(4))


def test_smart_options_that_are_not_there_are_refused_with_the_way_out():
    item = text_item(0)
    with pytest.raises(RefusedError, match="mc_rnd"):
        options_for(item, SMART, Pool([item]), k=3, seed=0)


def test_an_answer_that_is_right_by_its_own_items_aliases_is_no_wrong_option():
    items = [
        text_item(0, "United States"),
        text_item(1, "USA", "United States", "America"),
        text_item(2, "Peru", "Republic of Peru"),
        text_item(3, "The Republic of Peru"),
        text_item(4, "Chile"),
    ]
    for seed in range(5):
        found = options_for(items[0], RANDOM, Pool(items), k=4, seed=seed)
        wrong = {o.answer for n, o in enumerate(found.options) if n != found.gold}
        assert "USA" not in wrong
        assert len(wrong & {"Peru", "The Republic of Peru"}) == 1  # one answer under two names is one option
        assert (found.short, "Chile" in wrong) == (2, True)


def test_numbers_that_differ_only_in_sign_or_point_are_different_answers():
    items = [number_item(n, v) for n, v in enumerate(("1", "-1", "0", "10", "1.0", "-0"))]
    found = options_for(items[0], RANDOM, Pool(items), k=5, seed=0)
    wrong = {float(o.answer) for n, o in enumerate(found.options) if n != found.gold}
    assert wrong == {-1, 0, 10}
    assert found.short == 2
    long = [number_item(n, "1" * 30 + str(n)) for n in range(4)]  # beyond the 28 digits of decimal's context
    assert options_for(long[0], RANDOM, Pool(long), k=3, seed=0).short == 0


def test_programs_that_differ_in_one_operator_are_different_answers():
    items = [
        Item(
            item_id=op,
            benchmark="b",
            question=op,
            reference=ProgramAnswer(f"    return a {op} b\n", "f", "t"),
        )
        for op in "+-*"
    ]
    assert options_for(items[0], RANDOM, Pool(items), k=2, seed=0).short == 0
