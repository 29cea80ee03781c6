"""``steelyard demo``: the main job in a few minutes, on a model and items that need no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from steelyard.cli.reporting import show, write_page
from steelyard.cli.running import Interrupt, sentence
from steelyard.plan.study import Study
from steelyard.running.progress import Bar
from steelyard.running.session import run
from steelyard.running.summary import summarise

# Small enough for two CPU cores in a few minutes, large enough for every kind of number. Each is a study of
# its own, all in one store: what they share is asked once.
STUDIES: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "the same items generated, chosen among options, and scored by likelihood",
        {"tasks": "mini_math,mini_facts,mini_reading", "forms": "nlg,mc,mc_rnd,ll", "limit": 10, "shots": 1},
    ),
    (
        "programs, told from wrong ones without running any",
        {"tasks": "mini_code", "forms": "mc,ll", "limit": 10},
    ),
    (
        "several wordings of one question",
        {"tasks": "mini_facts", "forms": "mc,letters", "templates": "all", "limit": 10, "shots": 1},
    ),
    (
        "several draws of one answer",
        {"tasks": "mini_facts", "forms": "nlg", "repeats": 4, "limit": 10, "shots": 1},
    ),
)


def run_demo(store: Path, html: Path, model: str) -> None:
    """Run the demo's studies, print the report, write the page."""
    err, out = Console(stderr=True), Console(soft_wrap=True, highlight=False)
    interrupt = Interrupt(err)
    with Bar(err) as bar, interrupt.listening():
        for title, flags in STUDIES:
            err.print(f"\n{title}", style="bold")
            study = Study(model=(model,), store=store, **flags)
            outcome = run(study, progress=bar, cancelled=interrupt)
            for done in outcome.models:
                err.print(sentence(done), markup=False, highlight=False)
            if outcome.interrupted:
                err.print("Stopped; steelyard demo goes on from here.")
                raise SystemExit(130)
    data = summarise(store)
    out.print()
    show(data, store)
    out.print(f"The same as a page: {write_page(data, html)}", markup=False)
