"""``steelyard demo``: the main job in a few minutes, on a model and items that need no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steelyard.cli import streams
from steelyard.cli.console import Console
from steelyard.cli.reporting import show, write_page
from steelyard.cli.running import Interrupt, saving, sentence, stop
from steelyard.plan.study import Study
from steelyard.reporting.model import to_json_text
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


def run_demo(store: Path, html: Path, model: str, *, as_json: bool) -> None:
    """Run the demo's studies, print the report, write the page."""
    err, out = Console(stderr=True), Console()
    interrupt = Interrupt(err)
    with Bar(err) as bar, interrupt.listening():
        for title, flags in STUDIES:
            err.print(f"\n{title}", style="bold")
            study = Study(model=(model,), store=store, **flags)
            try:
                outcome = run(study, progress=bar, cancelled=interrupt)
            except KeyboardInterrupt:
                bar.stop()
                stop(err, store)
            for done in outcome.models:
                err.print(sentence(done))
                if saved := saving(done):
                    err.print(saved)
            if outcome.interrupted:
                stop(err, store)
    data = summarise(store)
    write_page(data, html)
    if as_json:
        streams.write_json(to_json_text(data))
        return
    out.print()
    show(data, store)
    out.print(f"The same as a page: {html}")
