import json

import pytest

from steelyard.core.errors import InputError, UnknownNameError
from steelyard.reporting.model import to_json_text

KEYS = [
    "model", "step", "benchmark", "form", "template", "metric", "value", "se", "low", "high", "level", "n_items",
    "n_samples", "chance", "status_counts", "diagnostics", "validity", "primary", "unit", "capability", "shots",
    "variant",
]  # fmt: skip


def test_a_score_has_exactly_the_documented_keys_in_order(row):
    assert list(row().to_json()) == KEYS


def test_every_key_of_the_json_report_is_documented(sample, pytestconfig):
    text = (pytestconfig.rootpath / "docs" / "report.md").read_text(encoding="utf-8")
    data = sample.to_json()
    records = [data, *(data[name][0] for name in ("scores", "runs", "sources", "work", "examples"))]
    missing = {key for record in records for key in record if f"`{key}`" not in text}
    assert not missing


def test_json_reads_back_as_the_same_values(sample):
    text = to_json_text(sample)
    assert json.loads(text) == sample.to_json()
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")


def test_json_does_not_depend_on_the_order_in_which_counts_were_made(row, of):
    one = of(
        row(status_counts={"ok": 1, "cut": 2}, validity={"n": 3, "cut": 2}),
        work=({"asked": 1, "zz": {"b": 1, "a": 2}},),
    )
    two = of(
        row(status_counts={"cut": 2, "ok": 1}, validity={"cut": 2, "n": 3}),
        work=({"zz": {"a": 2, "b": 1}, "asked": 1},),
    )
    assert to_json_text(one) == to_json_text(two)


def test_json_of_hostile_text_is_inert_and_loses_nothing(hostile):
    text = to_json_text(hostile)
    text.encode("utf-8")  # no lone surrogate is left
    assert not any(char in text for char in "\x1b\x9b\x00\u202e\u2066")
    assert json.loads(text)["title"] == hostile.title
    assert json.loads(text)["scores"][0]["model"] == hostile.scores[0].model


@pytest.mark.parametrize("name", ["value", "se", "low", "high", "chance"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused(row, name, number):
    with pytest.raises(InputError, match=rf"{name} of smollm2 on gsm8k.*finite"):
        row(**{name: number})


def test_a_record_that_json_cannot_hold_is_refused_with_the_way_out(of, row):
    with pytest.raises(InputError, match="finite numbers"):
        to_json_text(of(row(), work=({"model": "m", "seconds": float("nan")},)))
    with pytest.raises(InputError, match="finite numbers"):
        to_json_text(of(row(), work=({"model": "m", "seconds": object()},)))


def test_an_unknown_unit_is_refused_with_near_misses(row):
    with pytest.raises(UnknownNameError, match="Did you mean nats"):
        row(unit="nat")


def test_the_headline_is_the_primary_metric_and_no_form_disappears(row, of):
    first, second = row(metric="a"), row(metric="b", primary=False)
    without = row(form="ll", metric="c", primary=False)
    assert of(first, second, without).headline() == (first, without)
