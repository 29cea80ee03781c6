import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from steelyard.reporting.model import ReportData
from steelyard.reporting.terminal import to_text
from steelyard.reporting.terminal_table import bar


def lines_with(text, *words):
    return [line for line in text.splitlines() if all(word in line for word in words)]


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(sample, width):
    assert max(map(cell_len, to_text(sample, width).splitlines())) <= width


@pytest.mark.parametrize("width", [80, 100, 140])
def test_every_number_stands_whole_on_the_line_of_its_form(row, of, width):
    data = of(
        row(value=0.415, low=0.33, high=0.506, chance=0.25, n_items=1319, n_samples=1319, form="mc_rnd")
    )
    (line,) = lines_with(to_text(data, width), "mc_rnd", "41.5 %")
    for part in ("[33.0, 50.6]", "25.0", "1,319"):
        assert part in line


def test_wide_terminals_draw_the_interval_and_narrow_ones_leave_it_out(sample):
    assert "●" in to_text(sample, 120)
    assert "●" in to_text(sample, 100)
    assert "●" not in to_text(sample, 80)


def test_likelihoods_are_nats_and_never_percent(sample):
    lines = lines_with(to_text(sample, 140), "likelihood")
    assert lines
    assert all("nats" in line and "%" not in line for line in lines)


def test_a_missing_value_is_a_dash_with_its_reason(sample):
    (line, _) = lines_with(to_text(sample, 140), "nlg", "pass")
    assert re.search(r"–\s+80 unscored", line)
    assert "0.0" not in line


def test_diagnostics_are_footnotes_with_one_number_per_text(row, of):
    rows = [row(form="nlg", diagnostics=("few events",)), row(form="mc", diagnostics=("ties", "few events"))]
    text = to_text(of(*rows), 100)
    assert re.search(r"nlg .*  1$", text, re.MULTILINE)
    assert re.search(r"mc .*  2 1$", text, re.MULTILINE)
    assert re.search(r"^  1  few events$", text, re.MULTILINE)
    assert re.search(r"^  2  ties$", text, re.MULTILINE)


def test_validity_shows_only_what_occurred(row, of):
    rows = [row(validity={"n": 80, "unparsed": 7, "cut": 0, "ties": 0}), row(form="mc", validity={"n": 80})]
    text = to_text(of(*rows), 100).split("Validity")[1].split("Conditions")[0]
    assert "unparsed" in text
    assert "tied" not in text
    assert re.search(r"gsm8k · nlg\s+80\s+7$", text, re.MULTILINE)
    assert "mc" not in text


def test_a_clean_report_says_so(row, of):
    assert "Nothing to report" in to_text(of(row()), 100)


def test_secondary_metrics_are_counted_and_shown_on_request(sample):
    assert "pmi" not in to_text(sample, 120)
    assert "32 further metrics" in to_text(sample, 120)
    assert "pmi" in to_text(sample, 120, all_metrics=True)


def test_many_wordings_are_one_line_and_all_of_them_on_request(sample):
    assert "wording-07" not in to_text(sample, 120)
    assert "median of 24 templates" in to_text(sample, 140)
    assert "wording-07" in to_text(sample, 120, all_metrics=True)


def test_a_template_that_is_left_out_of_the_label_is_named_below(sample):
    text = to_text(sample, 80)
    assert "Template harness unless another is named." in text
    assert lines_with(text, "nlg · plain")


def test_work_is_told_in_tokens_and_an_unknown_count_is_not_zero(of, row):
    works = (
        {
            "model": "a",
            "requests": 3120,
            "asked": 812345,
            "computed": 301220,
            "trie": 300000,
            "scored": 9,
            "steps": 7,
            "new_tokens": 0,
            "seconds": 214.72,
            "tokens_per_second": 1402.8,
            "prefill_rate": 1500.0,
            "prefill_share": 0.9352,
            "saved": 2.697,
            "peak_memory": 5 * 2**28,
        },
        {"model": "server", "requests": 10, "asked": 500, "computed": None, "seconds": 3.0},
    )
    text = " ".join(to_text(of(row(), work=works), 120).split())
    assert "a: 3,120 requests in 214.7 s; tokens: 812,345 asked, 301,220 computed (saved 2.7x;" in text
    assert "least possible 300,000), 9 scored, 0 new, in 7 steps; 1,402.8 tokens/s, 94 % of the plain" in text
    assert "rate of 1,500.0; – new tokens/s; peak memory 1.2 GiB" in text
    assert "server: 10 requests in 3.0 s; tokens: 500 asked, – computed (saved –; least possible –)" in text
    assert "unknown" not in text


def test_the_next_commands_quote_the_path_and_offer_scoring_only_where_it_helps(sample):
    text = to_text(sample, 120, store="my runs/a")
    assert "steelyard report 'my runs/a' --html report.html" in text
    assert "steelyard score" not in text  # it would change nothing


def test_rows_of_different_levels_each_tell_theirs(row, of):
    text = to_text(of(row(level=0.95), row(form="mc", level=0.9)), 120)
    assert "at 95 %" in text
    assert "at 90 %" in text


def test_a_checkpoint_is_named_by_its_step(row, of):
    assert "smollm2 @ step 5,000" in to_text(
        of(row(step=5000), runs=({"model": "smollm2", "step": None, "backend": "x"},))
    )


def test_an_empty_report_is_a_report(of):
    text = to_text(ReportData(title="t", created="c", scores=()), 80)
    assert "No scores yet." in text
    assert "Validity" not in text


@pytest.mark.parametrize("width", [80, 160])
def test_hostile_text_is_shown_and_does_nothing(hostile, width):
    text = to_text(hostile, width)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ud800-\udfff]", text)
    assert max(map(cell_len, text.splitlines())) <= width
    joined = re.sub(r"\s+", "", text)
    for part in ("[red]markup[/red]", r"\x1b[2J", r"\u202e", "<script>alert(1)</script>", r"\udc80"):
        assert part in joined


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=7, max_size=7), st.integers(60, 140))
def test_any_names_fit_any_terminal(row, texts, width):
    model, benchmark, form, template, metric, note, capability = texts
    entry = row(
        model=model, benchmark=benchmark, form=form, template=template, metric=metric,
        capability=capability, diagnostics=(note,), validity={"n": 80, "cut": 1},
    )  # fmt: skip
    text = to_text(ReportData(title=note, created="", scores=(entry,), notes=(note,)), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "41.5 %" in text


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_bar_always_shows_the_point_inside_its_limits(row, a, b, c):
    low, value, high = sorted((a, b, c))
    line = bar(row(value=value, low=low, high=high, chance=0.25), 25)
    assert len(line) == 25
    assert line.count("●") == 1
    assert line.index("●") == round(value * 24)
    drawn = [i for i, char in enumerate(line) if char in "├─┤┼●"]
    assert drawn == list(range(round(low * 24), round(high * 24) + 1))


def test_importing_the_report_loads_nothing_heavy():
    heavy = "{'rich', 'altair', 'vl_convert', 'jinja2', 'numpy'}"
    code = f"import sys, steelyard.reporting; print(*(set(sys.modules) & {heavy}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""


def test_a_report_without_scores_names_the_command_that_makes_some():
    empty = ReportData(title="t", created="now", scores=())
    assert "steelyard run --model MODEL --tasks TASKS --store s" in to_text(empty, store="s")
    asked = ReportData(title="t", created="now", scores=(), runs=({"model": "m"},))
    assert "steelyard score s" in to_text(asked, store="s")
    assert "--html" not in to_text(asked, store="s")
