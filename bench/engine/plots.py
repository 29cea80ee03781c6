"""The four plots of growth, as SVG in docs/images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.engine.data import ROOT

from steelyard.reporting.figures import FONT, INK, LINE, MUTED, PALETTE, to_svg

FOLDER = ROOT / "docs" / "images"


def draw(axes: Sequence[tuple[str, str, Sequence[dict[str, Any]]]], folder: Path = FOLDER) -> list[Path]:
    """One file an axis: tokens on the left, seconds on the right, both over what grows.

    Args:
        axes: name, what stays the same, and the points of `growth`.
        folder: where ``growth_<name>.svg`` goes.
    """
    paths: list[Path] = []
    for name, rest, points in axes:
        path = folder / f"growth_{name}.svg"
        path.write_text(to_svg(chart(name, rest, points)), "utf-8")
        paths.append(path)
    return paths


def chart(name: str, rest: str, points: Sequence[dict[str, Any]]) -> Any:
    """The plot of one axis as a chart of altair."""
    import altair as alt

    x = alt.X("n:Q", title=name, scale=alt.Scale(zero=True), axis=alt.Axis(values=[p["n"] for p in points]))
    kinds = ("each request whole", "computed")
    tokens = [
        {"n": p["n"], "tokens": p[key], "what": kind}
        for p in points
        for key, kind in (("whole", kinds[0]), ("computed", kinds[1]))
    ]
    colour = alt.Color(
        "what:N",
        scale=alt.Scale(domain=list(kinds), range=[MUTED, PALETTE[0]]),
        legend=alt.Legend(title=None, orient="top"),
    )
    left = (
        alt.Chart(_table(tokens))
        .mark_line(point=True)
        .encode(x=x, y=alt.Y("tokens:Q", title="tokens"), color=colour)
        .properties(width=260, height=180)
    )
    base = alt.Chart(_table([{k: p[k] for k in ("n", "seconds", "low", "high")} for p in points]))
    right = (
        base.mark_rule(color=PALETTE[0]).encode(x=x, y=alt.Y("low:Q", title="seconds"), y2="high:Q")
        + base.mark_line(point=True, color=PALETTE[0]).encode(x=x, y=alt.Y("seconds:Q", title="seconds"))
    ).properties(width=260, height=180)
    return (
        alt.hconcat(left, right)
        .properties(title=alt.TitleParams(f"Cost over {name}", subtitle=rest))
        .configure(font=FONT, background="white")
        .configure_view(stroke=None)
        .configure_axis(labelColor=MUTED, titleColor=MUTED, gridColor=LINE, domain=False, ticks=False)
        .configure_title(anchor="start", color=INK, subtitleColor=MUTED)
    )


def _table(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    return alt.Data(values=rows)  # type: ignore[no-untyped-call]
