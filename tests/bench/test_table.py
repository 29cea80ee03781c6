from __future__ import annotations

import json

import pytest
from bench.engine import results, table
from bench.engine.cases import CASES
from bench.engine.clock import Spread
from bench.engine.results import Goal, Result

MACHINE = {
    "cpu": "a CPU",
    "cores": 2,
    "threads": 2,
    "memory_gib": 8.0,
    "versions": {"torch": "2", "transformers": "5", "lm-eval": "0.4.13"},
    "date": "2026-01-01",
}


def result(case: str = "gsm8k_fixed5", *, quick: bool = False, goals: list[Goal] | None = None) -> Result:
    kept = (
        [Goal.spread("speed over lm-eval", Spread(5.5, 5.0, 6.5), 6.0, unit="x")] if goals is None else goals
    )
    return Result(
        case=case,
        title=f"title of {case}",
        what="192 likelihoods",
        against="lm-eval 0.4.13 hf, batch size 1",
        goals=kept,
        detail={"points": {"items": []}} if case == "growth" else {},
        machine=MACHINE,
        seconds=61.5,
        quick=quick,
        notes=["A note."],
    )


def shown(*found: Result) -> str:
    return table.table([json.loads(json.dumps(one.to_json())) for one in found])


def test_a_miss_is_shown_with_what_was_asked_and_measured():
    assert "| title of gsm8k_fixed5 | speed over lm-eval | ≥ 6x | 5.5x | 5 to 6.5 | **no** |" in shown(
        result()
    )


@pytest.mark.parametrize(
    ("goal", "reached"),
    [
        (Goal("a", 6.0, 6.0), True),
        (Goal("a", 5.999, 6.0), False),
        (Goal("a", 1.02, 1.02, at_least=False), True),
        (Goal("a", 1.021, 1.02, at_least=False), False),
        (Goal("a", None, 6.0), False),
        (Goal("a", 3.0), None),
        (Goal("a", float("nan"), 1.0, at_least=False), False),
    ],
)
def test_a_goal_is_reached_at_its_bound_and_never_without_a_figure(goal, reached):
    assert goal.reached is reached


def test_cases_stand_in_the_order_in_which_they_run_and_missing_ones_are_named():
    text = shown(result("growth"), result("gsm8k_fixed5"))
    assert text.index("title of gsm8k_fixed5") < text.index("title of growth")
    assert "`wordings100`" in next(line for line in text.splitlines() if line.startswith("Not measured yet"))
    assert "images/growth_items.svg" in text


def test_a_case_that_is_not_in_the_list_is_shown_last():
    text = shown(result("planning"), result("growth"))
    assert text.index("title of growth") < text.index("title of planning")


def test_a_quick_run_is_never_shown_as_a_measurement():
    with pytest.raises(ValueError, match="no measurement: gsm8k_fixed5"):
        shown(result(quick=True))


def test_results_of_two_machines_say_which_is_which():
    found = [json.loads(json.dumps(one.to_json())) for one in (result(), result("growth"))]
    found[1]["machine"]["cpu"] = "another CPU"
    text = table.table(found)
    assert "Machine of gsm8k_fixed5: a CPU" in text
    assert "Machine of growth: another CPU" in text


def test_the_page_keeps_what_stands_outside_the_markers():
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    once = table.renew(page, "new")
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "old" not in once
    assert table.renew(once, "new") == once


@pytest.mark.parametrize(
    "page", ["", table.BEGIN, f"{table.END}{table.BEGIN}", f"{table.BEGIN}{table.END}{table.BEGIN}"]
)
def test_a_page_without_its_markers_is_left_alone(page):
    with pytest.raises(ValueError, match="each once"):
        table.renew(page, "new")


def test_the_page_has_its_markers_and_shows_the_results_that_are_kept():
    page = table.PAGE.read_text("utf-8")
    assert table.renew(page, table.table(results.read(results.KEPT))) == page


def test_a_result_is_kept_as_json_and_read_again(tmp_path):
    path = results.write(result(goals=[Goal("a", 1.23456789, 1.0)]), tmp_path)
    assert path.name == "gsm8k_fixed5.json"
    (again,) = results.read(tmp_path)
    assert again["goals"][0]["value"] == 1.23457
    assert again["goals"][0]["reached"] is True


def test_every_case_has_a_title_and_is_filed_under_its_own_name():
    assert all(name == case.name and case.title for name, case in CASES.items())
