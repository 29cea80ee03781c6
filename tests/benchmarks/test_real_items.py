"""Real items: counts, and the first, tenth and last item of each benchmark as facts that must not move.

A content hash that changes here changes for every user: their stored runs would be reported as run on other
content. If a change of parsing is meant, say so in the changelog.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from steelyard.benchmarks.base import Loaded
from steelyard.benchmarks.hellaswag import preprocess
from steelyard.benchmarks.rows import read_rows
from steelyard.benchmarks.sources import load as load_anew


@cache
def load(name: str, data: Path) -> Loaded:
    """Each benchmark is read once for all tests."""
    return load_anew(name, data=data)


class Facts(NamedTuple):
    n_items: int
    n_shots: int
    shot_source: str
    content_hash: str
    items: tuple[tuple[str, str], ...]
    duplicates: tuple[str, ...]


FACTS = {
    "gsm8k": Facts(
        1319,
        200,
        "train",
        "d8d56ce5d6b6735cd029613504960df6",
        (
            ("test-00000", "3b82355206b2cc63"),
            ("test-00009", "dbbd818780c82516"),
            ("test-01318", "9d55ef6ba2ec76aa"),
        ),
        (),
    ),
    "triviaqa": Facts(
        2000,
        32,
        "pool",
        "a1bceb406a6876387346df6344f2794d",
        (
            ("validation-00000", "adce323c533d7339"),
            ("validation-00009", "d6e2b0218702743d"),
            ("validation-01999", "aeb4a5dcd2319538"),
        ),
        (),
    ),
    "squad": Facts(
        1190,
        32,
        "pool",
        "01b6328e00a599066629c1ed43b853f8",
        (
            ("56beb4343aeaaa14008c925b", "c8e1d133faf4341c"),
            ("56d6f3500d65d21400198294", "b75db411ab0272b7"),
            ("5737a25ac3c5551400e51f54", "dc184a50ead729fa"),
        ),
        ("56bf36b93aeaaa14008c9563", "56e0bb9f7aa994140058e6cc", "5726938af1498d1400e8e449"),
    ),
    "humaneval": Facts(
        164,
        32,
        "pool",
        "94744f07602919588bd78d4b6857f3f6",
        (
            ("HumanEval/0", "a94ec55058c1fc17"),
            ("HumanEval/9", "b8e28204d2fe65cc"),
            ("HumanEval/163", "867ebd31aac73c8d"),
        ),
        (),
    ),
    "mmlu": Facts(
        1995,
        285,
        "dev",
        "f2e7967d4083d99d831c307545746844",
        (
            ("test-00000", "afe3075a98d47f87"),
            ("test-00009", "53d69583523de49e"),
            ("test-01994", "02005a16d64d0a74"),
        ),
        ("test-00320", "test-00366", "test-01797"),
    ),
    "boolq": Facts(
        2000,
        32,
        "pool",
        "82fe4d31b35d3b3101e79b4374b3e360",
        (
            ("validation-00000", "8fc3947529328052"),
            ("validation-00009", "597e567783c9d5b1"),
            ("validation-01999", "8c54abba2fce6bc6"),
        ),
        (),
    ),
    "arc_easy": Facts(
        2000,
        570,
        "validation",
        "4c401fdd45c14ae0a72d475b7d78bb69",
        (
            ("Mercury_417466", "2e048933e1fa31cb"),
            ("MCAS_2005_5_10", "ceb28e6569e321e0"),
            ("Mercury_7057960", "751dfbf530c4162b"),
        ),
        (),
    ),
    "arc_challenge": Facts(
        1172,
        299,
        "validation",
        "af396e591126e3eb5beb0d2c6b2bdc55",
        (
            ("Mercury_7175875", "d2e0fd799761328b"),
            ("MCAS_2003_8_11", "f76fddce894ba400"),
            ("MEA_2013_8_15", "8a3beb3f04a5b4cd"),
        ),
        (),
    ),
    "hellaswag": Facts(
        1000,
        32,
        "pool",
        "34a3d89ba9fad89ff93b73c1cc9ff2bf",
        (
            ("validation-00000", "94684827447e910a"),
            ("validation-00009", "30bf15f4e1f1a067"),
            ("validation-00999", "5ddc9ff1fa151b9d"),
        ),
        (),
    ),
}


@pytest.mark.parametrize("name", sorted(FACTS))
def test_the_items_of_a_benchmark_are_what_they_were(shared_data, name):
    loaded = load(name, data=shared_data)
    items = loaded.items
    assert FACTS[name] == Facts(
        len(items),
        len(loaded.shots),
        loaded.provenance.shot_source,
        loaded.provenance.content_hash,
        tuple((i.item_id, i.content_hash) for i in (items[0], items[9], items[-1])),
        loaded.duplicates,
    )


@pytest.mark.parametrize(
    ("name", "file", "n"),
    [
        ("gsm8k", "gsm8k/train.jsonl", 200),
        ("mmlu", "mmlu/dev.jsonl", 285),
        ("arc_easy", "ai2_arc/ARC-Easy/validation.jsonl", 570),
        ("arc_challenge", "ai2_arc/ARC-Challenge/validation.jsonl", 299),
        ("squad", "squad/validation.jsonl.gz", 1190),
        ("boolq", "boolq", 2000),
    ],
)
def test_a_file_or_folder_may_be_given_by_itself(shared_data, name, file, n):
    loaded = load(name, data=shared_data / file)
    assert len(loaded.items) == n
    assert loaded.provenance.shot_source == "pool"


def test_what_the_first_items_ask_and_what_counts_as_right(shared_data):
    first = {name: load(name, data=shared_data).items[0] for name in FACTS}
    assert {name: item.gold.answer[:40] for name, item in first.items()} == {
        "gsm8k": "18",
        "triviaqa": "Onion",
        "squad": "308",
        "humaneval": "    for idx, elem in enumerate(numbers):",
        "mmlu": "4",
        "boolq": "no",
        "arc_easy": "Sunlight is the source of energy for nea",
        "arc_challenge": "Planetary days will become shorter.",
        "hellaswag": "You don't have to be a resident of the c",
    }


def test_the_thousands_of_gsm8k_are_numbers(shared_data):
    values = {i.item_id: i.reference for i in load("gsm8k", data=shared_data).items}
    assert (values["test-00611"].value, values["test-00611"].text) == (1450000, "1,450,000")


def test_arc_items_with_numbers_for_labels_are_read(shared_data):
    rows = read_rows(shared_data / "ai2_arc/ARC-Easy/test.jsonl", "x.jsonl")
    items = load("arc_easy", data=shared_data).items
    numbered = [(r.record, i) for r, i in zip(rows, items, strict=True) if r.record["answerKey"].isdigit()]
    assert len(numbered) == 80
    for record, item in numbered:
        assert item.reference.index == int(record["answerKey"]) - 1


def test_preprocessed_queries_of_hellaswag_stay_as_they_are_under_the_same_pass(shared_data):
    rows = [r.record for r in read_rows(shared_data / "hellaswag/validation.jsonl", "x.jsonl")]
    assert all(preprocess(r["query"]) == r["query"] for r in rows)
    # the endings do not: marks that were removed at their ends have left blanks, and these belong to the text
    assert any(preprocess(e) != e for r in rows for e in r["endings"])
    items = load("hellaswag", data=shared_data).items
    assert all(i.reference.options == tuple(r["endings"]) for i, r in zip(items, rows, strict=True))
