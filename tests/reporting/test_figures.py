import sys
import xml.etree.ElementTree as ET

import pytest

from steelyard.core.errors import InputError, MissingError, RefusedError, UnknownNameError
from steelyard.reporting import figures
from steelyard.reporting.group import WORDINGS, Spread

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

DRAWN = {"svg", "g", "path", "rect", "line", "text", "tspan", "title", "defs", "clipPath", "circle"}


def panels(data):
    spec = figures.score_plot(data).to_dict()
    for panel in spec["concat"]:
        for layer in panel["layer"]:
            layer["data"] = spec["datasets"].get(layer["data"].get("name"), layer["data"].get("values"))
    return spec["concat"]


def marks(panel, kind):
    """The data behind the marks of a kind in a panel."""
    found = []
    for layer in panel["layer"]:
        mark = layer["mark"] if isinstance(layer["mark"], str) else layer["mark"]["type"]
        if mark == kind:
            found += layer["data"]
    return found


def test_there_is_a_panel_per_benchmark_with_its_capability_on_the_same_axis(sample):
    titles = []
    for panel in panels(sample):
        titles.append((panel["title"]["text"], panel["title"]["subtitle"]))
        assert all(layer["encoding"]["x"]["scale"]["domain"] == [0, 1] for layer in panel["layer"])
    assert titles[0] == ("gsm8k", "mathematical reasoning")
    assert [name for name, _ in titles] == ["gsm8k", "squad", "boolq", "humaneval"]


def test_a_point_is_a_primary_score_with_its_interval_and_chance(row, of):
    rows = (row(value=0.4, low=0.3, high=0.5, chance=0.25), row(metric="other", value=0.9, primary=False))
    (panel,) = panels(of(*rows))
    (point,) = marks(panel, "point")
    assert (point["value"], point["low"], point["high"]) == (0.4, 0.3, 0.5)
    assert [tick["chance"] for tick in marks(panel, "tick")] == [0.25]


def test_likelihoods_and_scores_outside_the_axis_are_not_drawn(row, of):
    data = of(
        row(), row(form="ll", unit="nats", value=-30.0), row(form="odd", value=1.2, low=None, high=None)
    )
    assert [entry.form for entry in figures.plotted(data)] == ["nlg"]


def test_a_plot_without_any_fraction_is_refused(row, of):
    with pytest.raises(RefusedError, match="nats"):
        figures.score_plot(of(row(unit="nats", value=-3.0)))
    with pytest.raises(RefusedError):
        figures.score_plot(of())
    with pytest.raises(RefusedError):
        figures.score_plot(of(row(value=None, status_counts={"unscored": 80})))


def test_a_missing_score_stands_as_its_reason_and_not_as_a_point(row, of):
    (panel,) = panels(of(row(), row(form="mc", value=None, status_counts={"unscored": 80})))
    assert [point["row"] for point in marks(panel, "point")] == ["nlg"]
    assert [text["reason"] for text in marks(panel, "text")] == ["80 unscored"]


def test_many_templates_become_strokes_with_quartiles_and_few_stay_rows(row, of):
    many = [row(template=f"t{i}", value=i / 20) for i in range(WORDINGS + 1)]
    assert isinstance(figures.plotted(of(*many))[0], Spread)
    (panel,) = panels(of(*many))
    assert len(marks(panel, "tick")) == WORDINGS + 1
    (point,) = marks(panel, "point")
    assert point["value"] == pytest.approx(0.3)
    assert (point["low"], point["high"]) == (pytest.approx(0.15), pytest.approx(0.45))
    (panel,) = panels(of(*many[:WORDINGS]))
    assert len({point["row"] for point in marks(panel, "point")}) == WORDINGS


def test_forms_whose_shortened_names_agree_keep_rows_of_their_own(row, of):
    (panel,) = panels(of(row(template="x" * 70 + "a"), row(template="x" * 70 + "b"), row(template="y")))
    assert len({point["row"] for point in marks(panel, "point")}) == 3


def test_models_beyond_the_palette_differ_by_shape(row, of):
    (panel,) = panels(of(*(row(model=f"m{i}") for i in range(20))))
    layer = panel["layer"][-2]["encoding"]
    looks = list(zip(layer["color"]["scale"]["range"], layer["shape"]["scale"]["range"], strict=True))
    assert len(set(looks)) == 20


def test_the_svg_is_the_same_each_time_and_fetches_nothing(row, of):
    data = of(row(), row(model="other"), row(benchmark="squad"))
    svg = figures.to_svg(figures.score_plot(data))
    assert svg == figures.to_svg(figures.score_plot(data))
    assert "href" not in svg
    assert "url(" not in svg.replace("url(#", "")


def test_hostile_names_are_text_in_the_svg(row, of):
    evil = '</text></svg><script>alert(1)</script>\x1b\ud800"'
    names = ("model", "benchmark", "form", "template", "capability")
    rows = (
        row(**{name: evil + name for name in names}),
        row(model=evil, benchmark=evil + "benchmark", value=None),
    )
    root = ET.fromstring(figures.to_svg(figures.score_plot(of(*rows))))  # noqa: S314 - from our own converter
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= DRAWN
    assert not [
        key for element in root.iter() for key in element.attrib if key.startswith("on") or "href" in key
    ]
    assert "</text></svg><script>alert(1)</script>" in "".join(root.itertext())


def test_a_chart_is_saved_by_its_suffix(row, of, tmp_path):
    chart = figures.score_plot(of(row()))
    begins = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF", "html": b"<!DOCTYPE html>"}
    for kind, start in begins.items():
        figures.save(chart, tmp_path / f"plot.{kind}")
        content = (tmp_path / f"plot.{kind}").read_bytes()
        assert content.lstrip().startswith(start)
    assert b"<script src" not in (tmp_path / "plot.html").read_bytes()


def test_an_unknown_suffix_or_folder_is_an_error_that_says_what_works(row, of, tmp_path):
    chart = figures.score_plot(of(row()))
    with pytest.raises(UnknownNameError, match=r"figure format 'pgn'\. Did you mean png"):
        figures.save(chart, tmp_path / "plot.pgn")
    with pytest.raises(InputError, match="cannot be written"):
        figures.save(chart, tmp_path / "nowhere" / "plot.svg")


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_a_missing_package_is_named_with_the_command(row, of, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingError, match=r"pip install 'steelyard\[report\]'"):
        figures.to_svg(figures.score_plot(of(row())))
