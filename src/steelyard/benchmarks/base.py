"""What a benchmark is, apart from where its items come from and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from steelyard.core.types import EMPTY, AnswerType, Item

Record = Mapping[str, Any]
"""One row of a source, in the schema of the hub."""


class Capability(StrEnum):
    """What a benchmark is meant to measure."""

    MATH = "mathematical reasoning"
    KNOWLEDGE = "factual knowledge"
    READING = "reading comprehension"
    CODE = "code"
    LANGUAGE = "language"
    COMMONSENSE = "commonsense"


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A named set of items: where it is, how a row becomes an item, how answers are judged.

    Attributes:
        name: in the catalog, on the command line and in tables.
        title: for people.
        capability: what it measures.
        answer_type: of every reference; an item with another one is an error when loading.
        parse: row and its index in the split -> item (without content hash). Raises ValueError, KeyError or
            TypeError on a row that does not fit; the loader adds where it was.
        scorers: names of the scorers for generated answers, the first is the primary one.
        hub: id on the Hugging Face hub, "" for none. config: its configuration.
        split: evaluated split, by order of preference. shot_split: where shots come from, likewise; when no
            such split exists, a seeded pool of the evaluated split is set aside.
        folders: names under a data folder that hold it, by order of preference.
        shots: how many shots it is asked with unless the study says otherwise.
        pool: fields that random distractors are restricted to, from narrow to wide ("passage", "title");
            empty: the whole benchmark.
        refuse: formulation name -> why it makes no sense here.
        shot_match: an item's shots come from rows that agree with it in this field (MMLU: "subject").
        card: source, licence, known faults; for the docs and `steelyard doctor`.
    """

    name: str
    title: str
    capability: Capability
    answer_type: AnswerType
    parse: Callable[[Record, int, str], Item]
    scorers: tuple[str, ...]
    hub: str = ""
    config: str = ""
    split: tuple[str, ...] = ("test", "validation")
    shot_split: tuple[str, ...] = ("train", "dev")
    folders: tuple[str, ...] = ()
    shots: int = 0
    pool: tuple[str, ...] = ()
    refuse: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    shot_match: str = ""
    card: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the items of a run came from; recorded with the run.

    Attributes:
        kind: "hub", "local" or "package".
        location: hub id and config, or the files read (names relative to the data folder).
        revision: the hub's commit, resolved once and pinned from then on; "" elsewhere.
        split: the evaluated split.
        content_hash: of all items in order of their ids: changed content changes it.
        shot_source: the split that shots come from, or "pool" when items of the evaluated split are set aside.
    """

    kind: str
    location: str
    revision: str
    split: str
    content_hash: str
    shot_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A benchmark with its items.

    Attributes:
        benchmark: what it is.
        items: every item of the evaluated split, in source order.
        shots: items that shots may be drawn from, disjoint from the evaluated ones unless `shot_source` is
            "pool": then they are items of `items`, never evaluated with shots.
        provenance: where they came from.
        duplicates: item ids whose content another earlier item has.
    """

    benchmark: Benchmark
    items: tuple[Item, ...]
    shots: tuple[Item, ...]
    provenance: Provenance
    duplicates: tuple[str, ...] = ()
