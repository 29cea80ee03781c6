import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.reporting.model import ReportData
from steelyard.reporting.page import html

VOID = {"meta", "img", "br", "hr", "input", "link"}


class Outline(HTMLParser):
    """Elements with their attribute names, their text, and whether every element was closed."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.values, self.text, self.open, self.ids = [], [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.values += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def bare(monkeypatch):
    """Without altair: quick, and the page must do without."""
    monkeypatch.setitem(sys.modules, "altair", None)


@pytest.fixture(scope="module")
def whole(make):
    """The page of the sample with its plot, which takes a second to draw."""
    return html(make["sample"]())


def words(page):
    return re.sub(r"\s+", " ", " ".join(Outline(page).text))


def test_the_page_is_one_file_that_fetches_and_runs_nothing(whole):
    page = whole
    outline = Outline(page)
    names = {tag for tag, _ in outline.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "img", "form", "base"}
    for _, name, value in outline.values:
        assert not name.startswith("on")
        assert name not in {"src", "srcset", "action", "style"}
        assert name != "href" or value.startswith("#note-")
    assert "@import" not in page
    assert "url(" not in page.replace("url(#", "")
    (policy,) = [value for _, _, value in outline.values if value and value.startswith("default-src")]
    assert "default-src 'none'" in policy
    assert "script-src 'none'" in policy
    assert not outline.open


def test_the_page_holds_the_plot_and_every_headline_number(whole):
    text = words(whole)
    assert 'class="marks"' in whole
    for part in ("45.5 %", "[35.0, 56.4]", "−2,276 nats", "80 unscored", "median of 24 templates"):
        assert part in text
    assert "smollm2 and tiny-random on 320 items of gsm8k, squad, boolq and humaneval" in text


def test_the_same_data_give_the_same_page(sample, bare):
    assert html(sample) == html(sample)


def test_without_altair_the_page_says_so_and_keeps_its_bars(sample, bare):
    page = html(sample)
    assert "The score plot is left out." in words(page)
    assert "steelyard[report]" in words(page)
    assert page.count('<svg class="bar"') > 10


def test_without_any_fraction_there_is_no_plot_and_no_excuse(row, of):
    page = html(of(row(unit="nats", value=-30.0)))
    assert "<svg" not in page
    assert "left out" not in words(page)


def test_hostile_text_adds_no_element_and_no_attribute(whole, hostile):
    benign, evil = Outline(whole), Outline(html(hostile))

    assert {tag for tag, _ in evil.tags} <= {tag for tag, _ in benign.tags}
    assert {names for _, names in evil.tags} <= {names for _, names in benign.tags} | {("class", "title")}
    for _, name, value in evil.values:
        assert not name.startswith("on")
        assert name != "href" or re.fullmatch(r"#note-\d+", value)


def test_hostile_text_is_visible_as_what_it_is(hostile, bare):
    page = html(hostile)
    text = words(page)
    for part in (
        "<script>alert(1)</script>",
        "</style><img src=x onerror=alert(1)>",
        "{{ 7 * 7 }}",
        r"\u202egnp.exe",
    ):
        assert part in text
    assert "&amp;&#60;b&#62;" in text  # an entity in the data stays an entity to read
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    page.encode("utf-8")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(max_size=11), min_size=9, max_size=9))
def test_no_text_changes_the_structure_of_the_page(row, texts):
    def page(parts):
        model, benchmark, form, template, metric, note, title, answer, key = parts
        scored = row(model=model, benchmark=benchmark, form=form, template=template, metric=metric, capability=key,
                     unit="nats", value=-3.0, diagnostics=(note,), validity={"n": 8, "cut": 1})  # fmt: skip
        example = {"benchmark": benchmark, "form": form, "item_id": key, "question": answer, "gold": note,
                   "answer": answer, "value": 1.0, "status": "ok"}  # fmt: skip
        run = {"model": model, "backend": answer, "versions": {key: answer}, "weights_digest": title}
        return html(
            ReportData(
                title=title, created=key, scores=(scored,), runs=(run,), notes=(note,), examples=(example,)
            )
        )

    marked = [f"{text}{i}" for i, text in enumerate(texts)]
    plain = [f"p{i}" for i in range(9)]
    assert Outline(page(marked)).tags == Outline(page(plain)).tags


def test_a_megabyte_is_shortened_with_a_mark_and_its_length(sample, bare):
    example = {**sample.examples[0], "answer": "x" * 1_000_000, "item_id": "y" * 1_000_000}
    page = html(replace(sample, examples=(example,), notes=("z" * 1_000_000,), title="t" * 1_000_000))
    assert len(page) < 400_000
    text = words(page)
    assert "of 1,000,000 characters shown" in text
    assert "… (1,000,000 characters)" in text


def test_more_examples_than_shown_are_counted(sample, bare):
    page = html(replace(sample, examples=sample.examples * 50))
    assert page.count("<article>") == 24
    assert "24 items of 200" in words(page)


def test_notes_lead_to_the_diagnostics(sample, bare):
    page = html(sample)
    targets = set(re.findall(r'href="#(note-\d+)"', page))
    assert targets == set(re.findall(r'id="(note-\d+)"', page)) == {"note-1", "note-2"}


def test_tables_name_their_headers_and_captions(sample, bare):
    page = html(sample)
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    assert len(tables) >= 6
    for table in tables:
        assert "<caption" in table
        assert 'scope="col"' in table
        assert 'scope="row"' in table
        head = table.split("<thead>")[1].split("</thead>")[0].count("<th ")
        for line in re.findall(r"<tr.*?</tr>", table.split("</thead>")[1], re.DOTALL):
            span = re.search(r'colspan="(\d+)"', line)
            assert (int(span[1]) if span else len(re.findall("<t[hd][ >]", line))) == head


def test_validity_lists_what_went_wrong_with_its_meaning(row, of):
    page = html(of(row(unit="nats", value=-3.0, validity={"n": 80, "cut": 3, "ties": 0}), examples=()))
    text = words(page)
    assert "hit the token limit" in text
    assert "scored exactly as well" not in text


def test_one_source_of_two_models_is_one_line(sample, bare):
    page = html(replace(sample, sources=sample.sources * 2))
    assert page.count("org/gsm8k main") == 1


def test_an_empty_report_is_a_page():
    text = words(html(ReportData(title="t", created="c", scores=())))
    assert "Nothing has been measured yet." in text


def test_examples_say_what_they_earned(sample, row, of, bare):
    page = html(sample)
    verdicts = re.findall(r'<p class="verdict">(.*?)</p>', page)
    assert verdicts == ["right", "18.0 %", "wrong: cut", "unscored"]


def test_every_counter_of_work_has_a_column_and_an_unknown_one_a_dash(of, row):
    works = (
        {"model": "m", "requests": 10, "asked": 500, "seconds": 3.0, "saved": 4.04, "peak_memory": 2**30},
    )
    page = html(of(row(), work=works))
    for heading in ("saved", "new", "steps", "plain rate", "share of it", "new tokens/s", "peak memory"):
        assert f">{heading}</th>" in page
    assert ">4.0x</td>" in page
    assert ">1.0 GiB</td>" in page
    assert page.count(">–</td>") >= 6
