"""The score plot: a point and its interval per form, with the level of chance, a panel per benchmark.

One Vega-Lite specification (through altair) gives SVG, PNG, PDF and an interactive page; vl-convert draws it
without a browser and without a network. Both are optional: `pip install 'steelyard[report]'`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from steelyard.core.errors import InputError, RefusedError, UnknownNameError, missing_package
from steelyard.reporting import cells, display
from steelyard.reporting.group import Spread, collapse, first_of
from steelyard.reporting.model import ReportData, ScoreRow

if TYPE_CHECKING:
    import altair as alt

INK, MUTED, LINE = "#1d1c1a", "#6f6b64", "#e3dfd7"
# Hues that stay apart for colour-blind readers; beyond them the shape of the point tells models apart.
PALETTE = ("#1f6f9f", "#c8561b", "#2f8259", "#8c4f9f", "#96750a", "#b23a63")
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross")
FORMATS = ("svg", "png", "pdf", "html")

WIDTH = 300  # of a panel, pixels
STEP = 13  # height of a model in a row, pixels
# The converter measures text with these metrics, so a label that fits there fits in a browser.
FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"


def score_plot(data: ReportData) -> alt.ConcatChart:
    """Scores in [0, 1] as an interval plot: rows are forms (and templates), colours are models.

    A form shows its primary metric. One with more than `group.WORDINGS` templates shows all of them as strokes,
    with the quartiles as a band and the median as the point. A score that is missing says why in its row.

    Raises:
        MissingError: altair is not installed.
        RefusedError: no score lies in [0, 1], so that there is nothing to put on the axis.
    """
    entries = plotted(data)
    if not entries:
        raise RefusedError(
            "There is nothing to plot: no form of this report has a score between 0 and 1. "
            "Likelihoods in nats have no common scale; see the tables."
        )
    vega = _altair()
    models = display.distinct(cells.model_name(first_of(entry)) for entry in entries)
    benchmarks = display.distinct(first_of(entry).benchmark for entry in entries)
    panels = [
        _panel(vega, [entry for entry in entries if first_of(entry).benchmark == benchmark], models)
        for benchmark in benchmarks
    ]
    chart: alt.ConcatChart = (
        vega.concat(*panels, columns=min(2, len(panels)), spacing={"row": 30, "column": 36})
        .resolve_scale(color="shared", shape="shared")
        .configure(font=FONT, background="white", padding={"left": 24, "top": 4, "right": 16, "bottom": 4})
        .configure_view(stroke=None)
        .configure_axis(labelColor=MUTED, gridColor=LINE, domain=False, ticks=False, labelFontSize=11)
        .configure_title(
            anchor="start", color=INK, subtitleColor=MUTED, fontSize=13, subtitleFontSize=11, offset=8
        )
        .configure_legend(labelColor=INK, labelFontSize=12, symbolOpacity=1, symbolStrokeWidth=0)
    )
    return chart


def plotted(data: ReportData) -> list[ScoreRow | Spread]:
    """What the plot shows: of each form its (first) primary row, if that is a fraction with or without a value."""
    taken: dict[tuple[object, ...], ScoreRow] = {}
    for row in data.headline():
        inside = row.value is None or 0 <= row.value <= 1
        if row.unit == "fraction" and inside:
            taken.setdefault(row.form_key, row)
    entries = collapse(taken.values())
    has_value = any(row.value is not None for row in taken.values())
    return entries if has_value else []


def to_svg(chart: alt.ConcatChart) -> str:
    """The chart as SVG text, the same for the same chart.

    Raises:
        MissingError: vl-convert is not installed.
    """
    # No base URL is allowed: a specification cannot make the converter fetch anything.
    svg: str = _vl_convert().vegalite_to_svg(chart.to_dict(), allowed_base_urls=[])
    return svg


def save(chart: alt.ConcatChart, path: str | Path) -> None:
    """Write the chart as .svg, .png (twice the pixels), .pdf or .html (one file, interactive, no network).

    Raises:
        UnknownNameError: the suffix is none of these.
        InputError: the file cannot be written.
        MissingError: vl-convert is not installed.
    """
    path = Path(path)
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise UnknownNameError("figure format", kind or path.name, FORMATS)
    convert = _vl_convert()
    spec = chart.to_dict()
    content: bytes
    if kind == "svg":
        content = to_svg(chart).encode()
    elif kind == "png":
        content = convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])
    elif kind == "pdf":
        content = convert.vegalite_to_pdf(spec, allowed_base_urls=[])
    else:
        content = convert.vegalite_to_html(spec, bundle=True).encode()
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(
            f"The figure cannot be written to {str(path)!r}: {error.strerror}. Give a path in a folder that "
            "exists and can be written to."
        ) from error


# -------------------------------------------------------------------------------------------------- panels
def _panel(vega: ModuleType, entries: Sequence[ScoreRow | Spread], models: Sequence[str]) -> alt.LayerChart:
    row = first_of(entries[0])
    several = len({template for entry in entries if (template := cells.template(entry))}) > 1
    labels = _labels(entries, several=several)
    points: list[dict[str, Any]] = []
    strokes: list[dict[str, Any]] = []
    for entry, label in zip(entries, labels, strict=True):
        points.append(_point(entry, label))
        if isinstance(entry, Spread):
            strokes += [{**_place(entry, label), "value": value} for value in entry.values]
    count = len(display.distinct(labels))
    title = vega.TitleParams(
        display.name(row.benchmark), subtitle=display.name(row.capability), frame="group"
    )

    scale = vega.Scale(domain=[0, 1])
    axis = vega.Axis(
        values=[0, 0.25, 0.5, 0.75, 1], labelExpr="datum.value * 100 + ' %'", labelFlush=False, title=None
    )
    domain, legend = list(models), None
    if len(models) > 1:  # every model is named, however many and long the names are
        columns = max(1, min(4, 100 // max(len(model) for model in models)))
        legend = vega.Legend(orient="top", title=None, columns=columns, labelLimit=0, symbolLimit=0)
    hues = [PALETTE[i % len(PALETTE)] for i in range(len(models))]
    shapes = [SHAPES[(i + i // len(PALETTE)) % len(SHAPES)] for i in range(len(models))]
    colour = vega.Color("model:N", scale=vega.Scale(domain=domain, range=hues), legend=legend)
    shape = vega.Shape("model:N", scale=vega.Scale(domain=domain, range=shapes), legend=legend)

    def layer(values: Sequence[dict[str, Any]]) -> alt.Chart:
        chart: alt.Chart = vega.Chart(vega.InlineData(values=list(values))).encode(
            y=vega.Y("row:N", sort=None, title=None, scale=vega.Scale(domain=display.distinct(labels)),
                    axis=vega.Axis(labelColor=INK, labelLimit=240, labelPadding=10, grid=False)),
            yOffset=vega.YOffset("model:N", scale=vega.Scale(domain=domain)),
        )  # fmt: skip
        return chart

    def at(field: str) -> alt.X:
        place: alt.X = vega.X(f"{field}:Q", scale=scale, axis=axis)
        return place

    with_value = [point for point in points if point["value"] is not None]
    layers = [
        layer([point for point in points if point["chance"] is not None])
        .mark_tick(color=MUTED, thickness=1.5, size=STEP - 2, opacity=0.8)
        .encode(x=at("chance")),
        layer(strokes)
        .mark_tick(thickness=1, size=STEP - 3, opacity=0.45)
        .encode(x=at("value"), color=colour),
        layer([point for point in with_value if point["low"] is not None])
        .mark_rule()
        .encode(
            x=at("low"),
            x2="high:Q",
            color=colour,
            strokeWidth=vega.StrokeWidth("weight:Q", scale=None),
            opacity=vega.Opacity("opacity:Q", scale=None),
        ),
        layer(with_value)
        .mark_point(filled=True, size=46, opacity=1)
        .encode(x=at("value"), color=colour, shape=shape),
        layer([{**point, "zero": 0} for point in points if point["value"] is None])
        .mark_text(align="left", dx=5, color=MUTED, fontSize=10.5, fontStyle="italic")
        .encode(x=at("zero"), text="reason:N"),
    ]
    height = max(count * (STEP * len(models) + 9), 26)
    panel: alt.LayerChart = vega.layer(*layers).properties(width=WIDTH, height=height, title=title)
    return panel


def _place(entry: ScoreRow | Spread, label: str) -> dict[str, Any]:
    return {"row": label, "model": cells.model_name(first_of(entry))}


def _point(entry: ScoreRow | Spread, label: str) -> dict[str, Any]:
    """What is drawn for an entry; of many wordings the median and, as a broad pale band, the quartiles."""
    row = first_of(entry)
    place = {**_place(entry, label), "chance": row.chance, "reason": cells.reason(row)}
    if isinstance(entry, ScoreRow):
        limits = {"low": entry.low, "high": entry.high} if None not in (entry.low, entry.high) else {}
        return {**place, "value": entry.value, "low": None, **limits, "weight": 2, "opacity": 0.9}
    if len(entry.values) < 2:
        return {**place, "value": entry.median, "low": None, "weight": 2, "opacity": 0.9}
    low, _, high = statistics.quantiles(entry.values, n=4, method="inclusive")
    return {**place, "value": entry.median, "low": low, "high": high, "weight": 7, "opacity": 0.4}


def _labels(entries: Iterable[ScoreRow | Spread], *, several: bool) -> list[str]:
    """Row labels, one per form; two forms never share a label, however their names are shortened."""
    known: dict[str, tuple[object, ...]] = {}
    labels = []
    for entry in entries:
        row = first_of(entry)
        if isinstance(entry, Spread):
            template, text = "", f"{cells.form_name(row)} · {display.plural(len(entry.rows), 'template')}"
        else:
            template = row.template
            text = cells.form_name(row) + (f" · {display.name(template, 24)}" if several else "")
        form = (row.form, row.shots, row.variant, template)
        label, copy = text, 1
        while known.setdefault(label, form) != form:
            copy += 1
            label = f"{text} ({copy})"
        labels.append(label)
    return labels


def _altair() -> ModuleType:
    try:
        import altair as alt
    except ImportError as error:
        raise missing_package("altair", "report", "The score plot") from error
    return alt


def _vl_convert() -> ModuleType:
    try:
        import vl_convert
    except ImportError as error:
        raise missing_package("vl-convert-python", "report", "Drawing a chart") from error
    return vl_convert
