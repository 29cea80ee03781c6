"""Reports: the numbers of a study as values, on a terminal, as one HTML page, as a figure and as JSON."""

from steelyard.reporting.figures import save, score_plot, to_svg
from steelyard.reporting.model import ReportData, ScoreRow, to_json_text
from steelyard.reporting.page import html
from steelyard.reporting.terminal import render, to_text

__all__ = [
    "ReportData",
    "ScoreRow",
    "html",
    "render",
    "save",
    "score_plot",
    "to_json_text",
    "to_svg",
    "to_text",
]
