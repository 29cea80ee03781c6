"""Rows of the store as values: from the core's types to rows and back, and the rows the core has no type for."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from steelyard.core import ids
from steelyard.core.types import (
    EMPTY,
    Ask,
    Batch,
    Finish,
    Identity,
    Item,
    Option,
    Response,
    Role,
    Score,
    Status,
    reference_from_json,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormRow:
    """A row of `forms`; the columns are explained in docs/schema.md."""

    form_id: str
    benchmark: str
    formulation: str
    template_id: str
    shots: int
    text_hash: str
    settings: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    scorers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A row of `runs`; the columns are explained in docs/schema.md."""

    run_id: str
    model: str
    step: int | None = None
    tokens_seen: int | None = None
    flops: float | None = None
    weights_digest: str
    tokenizer_digest: str
    backend: str
    dtype: str
    settings: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    versions: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    hardware: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    seed: int
    started: str

    @classmethod
    def of(
        cls,
        identity: Identity,
        seed: int,
        *,
        versions: Mapping[str, Any] | None = None,
        hardware: Mapping[str, Any] | None = None,
        started: str | None = None,
    ) -> RunRow:
        """The row of the run of `identity` with a study seed.

        Args:
            identity: who answers.
            seed: of the study.
            versions: of packages; Python's alone when None.
            hardware: what it runs on; empty when None.
            started: ISO 8601 in UTC; now when None.
        """
        return cls(
            run_id=ids.run_id(identity, seed),
            model=identity.model,
            step=identity.step,
            tokens_seen=identity.tokens_seen,
            flops=identity.flops,
            weights_digest=identity.weights_digest,
            tokenizer_digest=identity.tokenizer_digest,
            backend=identity.backend,
            dtype=identity.dtype,
            settings=identity.settings,
            versions={"python": platform.python_version()} if versions is None else versions,
            hardware=EMPTY if hardware is None else hardware,
            seed=seed,
            started=datetime.now(UTC).isoformat(timespec="seconds") if started is None else started,
        )

    @property
    def identity(self) -> Identity:
        """Who answered, as the run recorded it."""
        return Identity(
            model=self.model,
            backend=self.backend,
            weights_digest=self.weights_digest,
            tokenizer_digest=self.tokenizer_digest,
            dtype=self.dtype,
            settings=self.settings,
            step=self.step,
            tokens_seen=self.tokens_seen,
            flops=self.flops,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """A row of `sources`; the columns are explained in docs/schema.md."""

    run_id: str
    benchmark: str
    kind: str
    location: str
    revision: str
    split: str
    content_hash: str
    shot_source: str
    n_items: int
    n_selected: int
    selection: str
    duplicates: tuple[str, ...] = ()


_Value = FormRow | RunRow | SourceRow | Ask | Score | Response | Batch | Option


def _flat(value: _Value) -> dict[str, Any]:
    # dataclasses.asdict would copy deeply, and fails on mapping proxies
    return {f.name: getattr(value, f.name) for f in fields(value)}


def plain_row(value: FormRow | RunRow | SourceRow | Ask | Score) -> dict[str, Any]:
    """The row of a value whose fields are the columns."""
    return _flat(value)


def item_row(item: Item) -> dict[str, Any]:
    """The row of an item in `items`."""
    return {
        "item_id": item.item_id,
        "benchmark": item.benchmark,
        "group": item.group,
        "question": item.question,
        "reference": item.reference.to_json(),
        "options": [_flat(option) for option in item.distractors],
        "answer_type": item.answer_type,
        "meta": item.fields,
        "content_hash": item.content_hash,
    }


def response_row(response: Response, run_id: str, batch_id: str) -> dict[str, Any]:
    """The row of a response in `responses`."""
    return _flat(response) | {"run_id": run_id, "batch_id": batch_id}


def batch_row(batch: Batch, run_id: str, batch_id: str) -> dict[str, Any]:
    """The row of a batch in `batches`."""
    row = _flat(batch) | {"run_id": run_id, "batch_id": batch_id}
    row["requests"] = len(row.pop("responses"))
    row["peak_memory"] = batch.peak_memory or None
    return row


# ------------------------------------------------------------------------------------------------ and back
def item(row: Mapping[str, Any]) -> Item:
    """The item of a row of `items`."""
    return Item(
        item_id=row["item_id"],
        benchmark=row["benchmark"],
        question=row["question"],
        reference=reference_from_json(row["reference"]),
        distractors=tuple(Option(**option) for option in row["options"]),
        group=row["group"],
        fields=MappingProxyType(row["meta"]),
        content_hash=row["content_hash"],
    )


def form(row: Mapping[str, Any]) -> FormRow:
    """The value of a row of `forms`."""
    return FormRow(**row)


def run(row: Mapping[str, Any]) -> RunRow:
    """The value of a row of `runs`."""
    return RunRow(**row)


def source(row: Mapping[str, Any]) -> SourceRow:
    """The value of a row of `sources`."""
    return SourceRow(**row)


def ask(row: Mapping[str, Any]) -> Ask:
    """The ask of a row of `asks`."""
    return Ask(**{**row, "role": Role(row["role"])})


def response(row: Mapping[str, Any]) -> Response:
    """The response of a row of `responses`, without the run and the batch that brought it."""
    kept = {name: value for name, value in row.items() if name not in ("run_id", "batch_id")}
    return Response(**{**kept, "finish": Finish(row["finish"])})


def score(row: Mapping[str, Any]) -> Score:
    """The score of a row of `scores`."""
    return Score(**{**row, "status": Status(row["status"])})
