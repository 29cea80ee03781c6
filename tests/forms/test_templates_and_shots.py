"""Templates are data: strict, sandboxed, and inert towards what items say. Shots never leak."""

from __future__ import annotations

import pytest

from steelyard.core.errors import DataError, InputError, RefusedError, UnknownNameError
from steelyard.core.types import ChoiceAnswer, Item, TextAnswer
from steelyard.forms.fewshot import ShotSource
from steelyard.forms.templates import parse_templates, render_text, templates


def item(n: int = 0, question: str | None = None, **fields: str) -> Item:
    return Item(
        item_id=f"i{n}",
        benchmark="b",
        question=question if question is not None else f"q{n}",
        reference=TextAnswer((f"a{n}",)),
        fields=fields,
    )


def one(**keys):
    return parse_templates({"t": {"question": "{{ question }}", **keys}}, where="x.toml")["t"]


def test_an_items_braces_are_text_not_a_template():
    hostile = item(question="{{ 7 * 7 }} {% for x in y %} {{ cycler.__init__ }}")
    assert render_text("Q: {{ question }}", one(), hostile) == f"Q: {hostile.question}"


@pytest.mark.parametrize(
    "text", ["{{ question.__class__.__mro__ }}", "{{ ''.__class__ }}", "{{ question.format.__globals__ }}"]
)
def test_templates_are_sandboxed(text):
    with pytest.raises((InputError, DataError)):
        render_text(text, one(), item())


@pytest.mark.parametrize(
    "text", ["{{ 1 // 0 }}", "{{ [][0] }}", "{{ question + 1 }}", "{% for i in range(10 ** 9) %}{% endfor %}"]
)
def test_a_wording_that_fails_in_its_own_way_is_an_error_that_names_it(text):
    with pytest.raises((InputError, DataError), match="'t'"):
        render_text(text, one(), item())


def test_a_missing_field_is_an_error_that_lists_those_there_are():
    with pytest.raises(DataError, match=r"passage.*question"):
        render_text("{{ passage }}", one(), item())


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"stops": ["x"]}, UnknownNameError),
        ({"stop": "x"}, InputError),
        ({"stop": [""]}, InputError),
        ({"max_tokens": "8"}, InputError),
        ({"max_tokens": 0}, InputError),
        ({"max_tokens": True}, InputError),
        ({"letters": "{% for %}"}, InputError),
        ({"question": 3}, InputError),
    ],
)
def test_a_template_that_does_not_fit_is_an_error(keys, error):
    with pytest.raises(error, match=r"x\.toml"):
        one(**keys)


def test_a_template_without_a_question_is_an_error():
    with pytest.raises(InputError, match="no 'question'"):
        parse_templates({"t": {"stop": ["x"]}}, where="x.toml")


def test_more_options_than_letters_is_an_error():
    with pytest.raises(DataError, match="27 options"):
        render_text("{{ options }}", one(), item(), tuple(map(str, range(27))))


def test_the_default_template_stops_gsm8k_only_where_a_new_question_begins():
    default = next(iter(templates("gsm8k").values()))
    assert default.stop == ("\nQuestion:",)
    assert default.max_tokens > 256


def test_the_default_template_of_triviaqa_neither_doubles_the_question_mark_nor_cuts_at_a_full_stop():
    default = next(iter(templates("triviaqa").values()))
    assert render_text(default.question, default, item(question="Who?")).count("?") == 1
    assert default.stop == ("\n",)


# ------------------------------------------------------------------------------------------------- shots
POOL = [item(n) for n in range(40)]


def test_fixed_shots_are_one_set_and_do_not_depend_on_order_or_size_of_the_study():
    source = ShotSource(POOL, seed=0)
    sets = {tuple(s.item_id for s in source.draw(item(100 + n), 5, "fixed")) for n in range(20)}
    assert len(sets) == 1
    assert sets == {tuple(s.item_id for s in ShotSource(POOL, seed=0).draw(item(999), 5, "fixed"))}


def test_shots_per_item_are_named_by_the_item_alone():
    source = ShotSource(POOL, seed=0)
    first = {n: source.draw(item(100 + n), 5, "per_item") for n in range(20)}
    again = {n: ShotSource(POOL, seed=0).draw(item(100 + n), 5, "per_item") for n in reversed(range(20))}
    assert first == again
    assert len({tuple(s.item_id for s in shots) for shots in first.values()}) > 15


def test_a_larger_number_of_shots_contains_the_smaller():
    source = ShotSource(POOL, seed=3)
    small = {s.item_id for s in source.draw(item(100), 3, "fixed")}
    assert small < {s.item_id for s in source.draw(item(100), 6, "fixed")}


@pytest.mark.parametrize("mode", ["fixed", "per_item"])
def test_neither_the_item_nor_its_duplicate_is_shown(mode):
    asked = [item(n) for n in range(3)]
    copies = [item(500 + n, question=f"  Q{n} ") for n in range(3)]
    source = ShotSource([*asked, *copies, *POOL[10:13]], seed=0)
    for one_item in asked:
        shown = {s.item_id for s in source.draw(one_item, 7, mode)}
        assert one_item.item_id not in shown
        assert f"i{500 + int(one_item.item_id[1:])}" not in shown


def test_too_few_candidates_are_refused_with_the_number_there_is():
    with pytest.raises(RefusedError, match="at most 3"):
        ShotSource(POOL[:3], seed=0).draw(item(100), 5, "fixed")


def test_shots_come_from_the_items_own_subject_in_source_order():
    pool = [item(n, subject="ab"[n % 2]) for n in range(10)]
    shots = ShotSource(pool, match="subject", seed=0).draw(item(100, subject="b"), 5, "fixed")
    assert [s.item_id for s in shots] == ["i1", "i3", "i5", "i7", "i9"]


def test_choice_items_show_their_own_options_to_a_template():
    choice = Item(item_id="c", benchmark="b", question="q", reference=ChoiceAnswer(0, ("x", "y")))
    assert (
        render_text("{% for o in options %}{{ o.letter }}{{ o.text }}{% endfor %}", one(), choice) == "AxBy"
    )
