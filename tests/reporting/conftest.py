"""A realistic report: two models, four benchmarks, three forms, many templates, and what goes wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from steelyard.reporting.model import ReportData, ScoreRow

BENCHMARKS = {
    "gsm8k": ("mathematical reasoning", 5, {"nlg": (0.025, None), "mc_rnd": (0.415, 0.25)}),
    "squad": ("reading comprehension", 0, {"nlg": (0.312, None), "mc_rnd": (0.58, 0.25)}),
    "boolq": ("reading comprehension", 0, {"nlg": (0.44, None), "mc_rnd": (0.61, 0.5)}),
    "humaneval": ("code", 0, {"nlg": (None, None), "mc_rnd": (0.66, 0.25)}),
}
METRICS = {"gsm8k": "numeric", "squad": "f1", "boolq": "exact_match", "humaneval": "pass"}
FEW = "few events: fewer than 10 items are right, so the interval leans on the effective sample size"
SPLIT = "one draw per item: the parts of the variance within and between items cannot be told apart"


def wilson(p, n, z=1.96):
    middle, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - spread) / (1 + z * z / n), (middle + spread) / (1 + z * z / n)


def make_row(**changes):
    """A plain row; a value without given limits gets the Wilson interval of 80 items."""
    values = {
        "model": "smollm2", "step": None, "benchmark": "gsm8k", "form": "nlg", "template": "harness",
        "metric": "numeric", "value": 0.415, "se": 0.05, "level": 0.95, "n_items": 80, "n_samples": 80,
        "chance": None, "status_counts": {"ok": 80}, "diagnostics": (), "validity": {"n": 80}, "primary": True,
        "unit": "fraction", "capability": "mathematical reasoning", "shots": 0,
    } | changes  # fmt: skip
    limits = (None, None)
    if values["value"] is not None and values["unit"] == "fraction" and 0 <= values["value"] <= 1:
        limits = wilson(values["value"], 80)
    elif values["value"] is not None:
        limits = (values["value"] * 1.06, values["value"] * 0.94)
    return ScoreRow(**{"low": limits[0], "high": limits[1]} | values)


def _scores(model, better):
    for benchmark, (capability, shots, forms) in BENCHMARKS.items():
        shared = {"model": model, "benchmark": benchmark, "capability": capability, "shots": shots}
        for form, (base, chance) in forms.items():
            names = ["harness", "plain", "polite"] if (benchmark, form) == ("squad", "nlg") else ["harness"]
            if (benchmark, form) == ("boolq", "mc_rnd"):
                names = [f"wording-{i:02d}" for i in range(24)]
            for index, template in enumerate(names):
                more = {**shared, "form": form, "template": template, "chance": chance}
                if base is None:
                    status = {"unscored": 80}
                    yield make_row(
                        **more,
                        metric="pass",
                        value=None,
                        se=None,
                        status_counts=status,
                        n_items=0,
                        n_samples=0,
                    )
                    continue
                value = min(base + better + 0.02 * math.sin(5 * index), 1)
                draws = 4 if (benchmark, form) == ("gsm8k", "nlg") else 1
                validity = {
                    "n": 80 * draws,
                    "unparsed": 0,
                    "overlong": 0,
                    "cut": 0,
                    "ties": 0,
                    "errors": 0,
                    "duplicates": 0,
                }
                if form == "nlg":
                    validity |= {"unparsed": 7 + index, "cut": 3}
                    metric, extra = METRICS[benchmark], (FEW,) if value < 0.1 else ()
                else:
                    validity |= {"ties": 1, "moved": 2}
                    metric, extra = "per_char", (SPLIT,) if benchmark == "squad" else ()
                more |= {
                    "validity": validity,
                    "n_samples": 80 * draws,
                    "status_counts": {"ok": 70, "unparsed": 10},
                }
                yield make_row(**more, metric=metric, value=value, diagnostics=extra)
                if form == "mc_rnd" and len(names) == 1:
                    for other in ("none", "per_byte", "per_token", "pmi"):
                        yield make_row(**more, metric=other, value=value - 0.03, primary=False)
        likelihood = {**shared, "form": "ll", "template": "harness", "unit": "nats", "se": 14.2}
        yield make_row(**likelihood, metric="likelihood", value=-2312.4 + 900 * better)
        bits = {**likelihood, "unit": "bits/byte", "se": 0.02}
        yield make_row(**bits, metric="bits_per_byte", value=1.132 - better, primary=False)


def make_sample():
    scores = (*_scores("smollm2", 0.04), *_scores("tiny-random", -0.02))
    run = {
        "step": None, "backend": "transformers", "dtype": "float32", "weights_digest": "9f2c1d0e8a7b6c5d4e3f",
        "versions": {"steelyard": "0.1.0", "python": "3.11.9", "torch": "2.6.0", "transformers": "4.51.0"},
        "hardware": {"cpu": "x86_64", "cores": 2, "memory": 8589934592, "accelerator": None},
        "seed": 0, "started": "2026-08-24T09:12:44Z",
    }  # fmt: skip
    return ReportData(
        title="Two small models, asked in three ways",
        created="2026-08-24T10:03:12Z",
        scores=scores,
        runs=({"model": "smollm2", **run}, {"model": "tiny-random", **run, "weights_digest": "00aa11bb22cc"}),
        sources=tuple(
            {
                "benchmark": name, "kind": "hub", "location": f"org/{name} main", "revision": "e53f048856ff4f59",
                "split": "validation" if name in {"squad", "boolq"} else "test", "content_hash": "b3a1c4d5e6f7a8b9",
                "n_items": 1319, "n_selected": 80, "selection": "seeded random 80 of 1319 (seed 0)",
                "shot_source": "train" if name == "gsm8k" else "pool",
            }
            for name in BENCHMARKS
        ),
        work=(
            {"model": "smollm2", "requests": 3120, "asked": 812345, "computed": 301220, "trie": 280117,
             "scored": 92111, "seconds": 214.72},
            {"model": "tiny-random", "requests": 3120, "asked": 812345, "computed": 301220, "trie": 280117,
             "scored": 92111, "seconds": 12.31},
        ),
        notes=(
            "Each benchmark was limited to a seeded random 80 of its items; a smaller limit takes a subset of them.",
            "squad and boolq bring one split only: 32 items are set aside for shots and never evaluated with shots.",
        ),
        examples=(
            {"benchmark": "gsm8k", "form": "nlg", "item_id": "test-00007",
             "question": "Natalia sold 48 clips in April and half as many in May.\nHow many did she sell altogether?",
             "gold": "72", "answer": "48 / 2 = 24 clips in May.\n48 + 24 = 72.\n#### 72", "value": 1.0, "status": "ok"},
            {"benchmark": "squad", "form": "nlg", "item_id": "val-00031", "question": "In which city is the tower?",
             "gold": "Paris", "answer": "The tower stands in the city of Paris, on the left bank of the river.",
             "value": 0.18, "status": "ok"},
            {"benchmark": "gsm8k", "form": "nlg", "item_id": "test-00031", "question": "How many legs have 12 cats?",
             "gold": "48", "answer": "A cat is an animal. " * 300, "value": 0.0, "status": "cut"},
            {"benchmark": "humaneval", "form": "nlg", "item_id": "HumanEval/4",
             "question": 'def mean(xs):\n    """Mean of a non-empty list."""\n',
             "gold": "    return sum(xs) / len(xs)\n",
             "answer": "    return sum(xs) / len(xs)\n", "value": None, "status": "unscored"},
        ),
    )  # fmt: skip


@pytest.fixture
def sample():
    return make_sample()


@pytest.fixture(scope="session")
def row():
    return make_row


@pytest.fixture
def of():
    """A report of the given rows, with everything else as in the sample."""
    return lambda *rows, **changes: replace(make_sample(), scores=rows, **changes)


HOSTILE = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "</svg></title><iframe src=//evil>",
    "\x1b[2J\x1b]0;owned\x07\x9b31m",
    "\u202egnp.exe\u2066\u200b",
    "\" onmouseover='alert(1)' javascript:alert(1)",
    "[red]markup[/red] [link=http://evil]x[/link]",
    "{{ 7 * 7 }}{% raw %}",
    "lone \udc80 surrogate \x00 \ufffe",
    "&amp;&#60;b&#62;",
)


def make_hostile():
    """The sample with a hostile text in every place that a data set, a model or a file name can fill."""
    texts = iter(f"{text} #{i}" for i in range(10_000) for text in [HOSTILE[i % len(HOSTILE)]])
    known = {}

    def spoil(text):
        return known.setdefault(text, next(texts))

    def spoil_all(record):
        if isinstance(record, dict):
            return {key: spoil_all(value) for key, value in record.items()}
        return spoil(record) if isinstance(record, str) else record

    data = make_sample()
    return replace(
        data,
        title=spoil(data.title),
        created=spoil(data.created),
        notes=tuple(map(spoil, data.notes)),
        scores=tuple(
            replace(
                row,
                model=spoil(row.model),
                benchmark=spoil(row.benchmark),
                form=spoil(row.form),
                template=spoil(row.template),
                metric=spoil(row.metric),
                capability=spoil(row.capability),
                diagnostics=tuple(map(spoil, row.diagnostics)),
                status_counts={spoil(status): count for status, count in row.status_counts.items()},
            )
            for row in data.scores
        ),
        **{
            name: tuple(map(spoil_all, getattr(data, name)))
            for name in ("runs", "sources", "work", "examples")
        },
    )


@pytest.fixture
def hostile():
    return make_hostile()


@pytest.fixture(scope="session")
def make():
    """The makers, for fixtures that outlive a test."""
    return {"sample": make_sample}
