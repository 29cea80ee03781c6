from __future__ import annotations

import pytest
from bench.engine.plots import draw


def test_each_axis_gives_one_svg_with_its_title(tmp_path):
    pytest.importorskip("vl_convert")
    points = [
        {"n": n, "whole": 100 * n, "computed": 50 + 10 * n, "seconds": n / 2, "low": n / 3, "high": float(n)}
        for n in (1, 2, 4)
    ]
    (path,) = draw([("items", "5 fixed shots", points)], tmp_path)
    assert path.name == "growth_items.svg"
    assert "Cost over items" in path.read_text("utf-8")
