"""Small values to put into stores."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from steelyard.core.types import Ask, Batch, Finish, Identity, Item, Response, Role, Score, Status, TextAnswer
from steelyard.store import FormRow, RunRow, SourceRow

RUN = RunRow.of(Identity(model="m", backend="simulated", weights_digest="w"), 0, started="2026-01-01")


def _item(item_id="i", content_hash="h", **more):
    more = {"benchmark": "b", "question": "q", "reference": TextAnswer(("a",))} | more
    return Item(item_id=item_id, content_hash=content_hash, **more)


def _form(form_id="f", **more):
    more = {"benchmark": "b", "formulation": "mc", "template_id": "t", "shots": 0, "text_hash": ""} | more
    return FormRow(form_id=form_id, **more)


def _source(**more):
    texts = dict.fromkeys(("kind", "location", "revision", "split", "content_hash", "shot_source"), "x")
    counts = {"n_items": 9, "n_selected": 9, "selection": "all"}
    return SourceRow(**({"run_id": RUN.run_id, "benchmark": "b"} | texts | counts | more))


def _ask(request_id, cell_id="c", option=0, role=Role.GOLD, flags=()):
    return Ask(cell_id, RUN.run_id, "i", "f", 0, role, option, "t", "gold", request_id, flags)


def _answer(request_id, text="x"):
    return Response(request_id=request_id, text=text, finish=Finish.EOS)


def _error(request_id, why="down"):
    return Response(request_id=request_id, finish=Finish.ERROR, error=why)


def _batch(*responses, **work):
    return Batch(responses=responses, **work)


def _score(value=1.0, cell_id="c", status=Status.OK, *, item_id="i", form_id="f", scorer="acc", **more):
    return Score(cell_id, RUN.run_id, item_id, form_id, 0, scorer, status, value, **more)


@pytest.fixture(scope="session")
def make():
    """Builders of rows that fit together."""
    return SimpleNamespace(
        run=RUN,
        item=_item,
        form=_form,
        source=_source,
        ask=_ask,
        answer=_answer,
        error=_error,
        batch=_batch,
        score=_score,
    )
