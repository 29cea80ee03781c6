"""The report as one HTML page that needs nothing else: no network, no script, no font, no picture file.

The page is a Jinja2 template that escapes all it is given and fails on a name it is not given. What a model or
a data set wrote reaches it as text that was shortened, with a mark, and spelled out (`display.visible`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from steelyard.core.errors import MissingError, RefusedError
from steelyard.reporting import cells, display, figures, view
from steelyard.reporting.group import Faults, Spread, collapse, fault_keys, faults, first_of
from steelyard.reporting.model import RUN_KEYS, SOURCE_KEYS, SPEED_KEYS, TOKEN_KEYS, ReportData, ScoreRow

PROSE = 2000  # characters shown of a note or diagnostic
EXAMPLES = 24  # shown at most

TOKENS = (
    "Work, in tokens: asked for (each request taken whole), computed, least possible, scored, newly written; saved is "
    "asked by computed"
)
SPEED = "Time and memory; plain rate: the library's own forward pass in the same run; share: what scoring reached of it"

FORMS = {
    "nlg": "the model writes, an answer is read from its text and compared with the reference",
    "mc": "each option is scored as a continuation; right when the gold is likeliest; wrong options made to mislead",
    "mc_rnd": "as mc, with right answers of other items as wrong options",
    "mc_rnd*": "as mc_rnd, with every other answer of the same context",
    "mc_rnd_all": "as mc_rnd, with every other answer of the same context",
    "ll": "the log-likelihood of the reference; no item is right or wrong",
    "mc_ao": "as mc, with the answer alone scored, without its worked solution",
    "ll_ao": "as ll, with the answer alone scored, without its worked solution",
    "letters": "the options are shown with letters, and the model chooses a letter",
}


def html(data: ReportData) -> str:
    """The report as the text of one HTML file; the same text for the same data.

    Without altair or vl-convert the plot is left out, the page says so, and the bars in its table, which need
    neither, show the same intervals.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    folder = files("steelyard.reporting")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(folder.joinpath("page.html.jinja").read_text(encoding="utf-8"))
    plot, no_plot = _plot(data)
    return template.render(
        css=Markup(folder.joinpath("page.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        plot=Markup(plot),  # noqa: S704 - drawn by vl-convert, which escapes names; tested with hostile ones
        no_plot=no_plot,
        **_view(data),
    )


def _plot(data: ReportData) -> tuple[str, str]:
    """The plot as SVG, or why there is none."""
    try:
        return figures.to_svg(figures.score_plot(data)), ""
    except RefusedError:
        return "", ""  # nothing lies in [0, 1]: the tables say it all
    except MissingError as error:
        return "", f"The score plot is left out. {error} The bars in the table show the same intervals."


def _view(data: ReportData) -> dict[str, Any]:
    """All that the template shows, as text."""
    headline = data.headline()
    entries = collapse(headline)
    notes = cells.footnotes([*entries, *data.scores])
    records = faults(data.scores)
    more = len(data.scores) > len(entries)
    shown = data.examples[:EXAMPLES]
    lead = f"{display.plural(len(shown), 'item')}"
    lead += f" of {len(data.examples):,}" if len(data.examples) > len(shown) else ""
    used = display.distinct(row.form for row in data.scores)
    return {
        "title": display.name(data.title, 200),
        "dek": _dek(data),
        "created": display.name(data.created),
        "conditions": [_prose(text) for text in data.notes],
        "alt": f"Scores and intervals of {cells.scope(data)}; the numbers are in the table below.",
        "caption": _caption(data, entries),
        "table": view.scores(data, entries, notes),
        "notes": [_prose(text) for text in notes],
        "every": view.scores(data, data.scores, notes) if more else None,
        "every_count": f"{len(data.scores):,}",
        "validity": view.validity(records) if any(record.any for record in records) else None,
        "validity_lead": _validity_lead(records),
        "fault_words": [cells.FAULTS[key] for key in fault_keys(records) if key in cells.FAULTS],
        "examples": [view.example(data, example) for example in shown],
        "examples_lead": f"{lead}, as asked and answered; long texts are shortened and say so.",
        "provenance": [
            (view.records(rows, keys, every=every), caption)
            for rows, keys, caption, every in (
                (data.sources, SOURCE_KEYS, "Items", False),
                (data.runs, RUN_KEYS, "Models and settings", False),
                (data.work, TOKEN_KEYS, TOKENS, True),
                (data.work, SPEED_KEYS, SPEED, True),
            )
            if rows
        ],
        "reading": _reading(data),
        "forms": [(form, FORMS[form]) for form in used if form in FORMS],
    }


# ----------------------------------------------------------------------------------------------- sentences
def _validity_lead(records: Sequence[Faults]) -> str:
    faulty = sum(record.any for record in records)
    clean = len(records) - faulty
    if not faulty:
        return "Nothing to report: no cell failed, was cut, tied, unparsed or repeated."
    rest = f" Nothing did in {display.plural(clean, 'other form')}." if clean else ""
    return f"What went wrong while these numbers were made; a dot is a zero.{rest}"


def _prose(text: str) -> str:
    return " ".join(filter(None, display.shorten(text, PROSE)))


def _dek(data: ReportData) -> str:
    if not data.scores:
        return "Nothing has been measured yet."
    models = display.listing(display.distinct(cells.model_name(row) for row in data.scores))
    items = cells.items_measured(data)
    benchmarks = display.listing([display.name(benchmark) for benchmark in items])
    forms = display.distinct(display.name(row.form) for row in data.scores)
    asked = f"asked as {display.listing(forms)}" if len(forms) > 1 else f"asked as {forms[0]}"
    return f"{models} on {display.plural(sum(items.values()), 'item')} of {benchmarks}, {asked}."


def _caption(data: ReportData, entries: Sequence[ScoreRow | Spread]) -> str:
    level = cells.shared_level(data.headline())
    text = f"Point: score. Line: its {level} interval. " if level else "Point: score. Line: its interval. "
    if any(first_of(entry).chance is not None for entry in entries):
        text += "Grey stroke: what blind guessing scores on the same items. "
    if any(isinstance(entry, Spread) for entry in entries):
        text += (
            "Fine strokes: the templates of a form; the band is their middle half, the point their median. "
        )
    return text + "Likelihoods have no scale in common with scores and stand in the table only."


def _reading(data: ReportData) -> list[tuple[str, str]]:
    if not data.scores:
        return []
    level = cells.shared_level(data.scores) or "its level"
    out = {
        "The interval.": f"Other items of the same kind would have given another score. The interval ({level}) says "
        "how far off this one may be: of many intervals made in this way, that share holds the score on all items of "
        "the kind. Two intervals that overlap do not make two models equal, because both answered the same items: "
        "compare them item by item.",
        "Chance.": "What blind guessing would score, computed from the options of these very items. A score whose "
        "interval holds the level of chance does not show more than guessing. Written answers have no such level.",
        "Counts.": "n is the number of items that a score rests on, k the number of answers to each. What is missing "
        "has a dash and its reason; it is never counted as zero.",
        "Forms.": "One benchmark can be asked in several ways, which measure different things: compare scores of the "
        "same form only.",
    }
    return list(out.items())
