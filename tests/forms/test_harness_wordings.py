"""The template named `harness` is the field's standard prompt, byte for byte."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from steelyard.benchmarks import catalog
from steelyard.core.types import Item, Role, Sampling
from steelyard.forms.distractors import Options, Pool, options_for
from steelyard.forms.formulation import FORMULATIONS
from steelyard.forms.render import Form, render
from steelyard.forms.templates import templates

GOLDEN = Path(__file__).parent.parent / "golden"
DOCS = json.loads((GOLDEN / "docs.json").read_text("utf-8"))
HARNESS = json.loads((GOLDEN / "harness.json").read_text("utf-8"))


def rendered(item: Item, formulation: str, template: str = "harness", shots: tuple[Item, ...] = ()):
    name = item.benchmark
    form = Form(
        benchmark=name,
        formulation=FORMULATIONS[formulation],
        template=templates(name)[template],
        shots=len(shots),
        sampling=Sampling(max_tokens=8) if formulation == "nlg" else None,
    )
    options: Options | None = None
    if formulation in {"mc", "letters"}:
        options = options_for(item, form.formulation, Pool(()), k=3, seed=0)
    return render(item, form, shots, options)


def asked(result) -> list[str]:
    return [p.continuation for p in result.parts if p.role in {Role.GOLD, Role.DISTRACTOR}]


@pytest.mark.parametrize("name", [n for n in HARNESS if n != "generation"])
def test_harness_prompts_are_those_of_the_task_files(name):
    benchmark = catalog.get(name.split()[0])
    for index, (row, expected) in enumerate(zip(DOCS[benchmark.name], HARNESS[name], strict=True)):
        item = benchmark.parse(row, index, "test")
        form = "letters" if "letters" in name else ("mc" if expected["continuations"] else "nlg")
        result = rendered(item, form)
        assert result.prompt.text() == expected["context"]
        if expected["continuations"]:
            assert asked(result) == expected["continuations"]


@pytest.mark.parametrize("name", sorted(HARNESS["generation"]))
def test_harness_stops_and_limits_are_those_of_the_task_files(name):
    settings = HARNESS["generation"][name]
    template = templates(name)["harness"]
    assert list(template.stop) == settings["until"]
    assert template.max_tokens == settings.get("max_gen_toks", 256)  # 256 is the library's default


def test_shots_are_joined_as_the_harness_joins_them():
    benchmark = catalog.get("gsm8k")
    one, two, three = (benchmark.parse(row, n, "test") for n, row in enumerate(DOCS["gsm8k"]))
    text = rendered(three, "nlg", shots=(one, two)).prompt.text()
    q = [row["question"] for row in DOCS["gsm8k"]]
    a = [row["answer"] for row in DOCS["gsm8k"]]
    assert text == (
        f"Question: {q[0]}\nAnswer: {a[0]}\n\nQuestion: {q[1]}\nAnswer: {a[1]}\n\nQuestion: {q[2]}\nAnswer:"
    )


def test_bigcode_variants_differ_by_the_last_newline_and_keep_the_longer_stop_list():
    item = catalog.get("humaneval").parse(DOCS["humaneval"][1], 1, "test")
    stripped, kept = (rendered(item, "ll", template=t) for t in ("bigcode", "bigcode-unstripped"))
    assert stripped.prompt.text() == DOCS["humaneval"][1]["prompt"].strip()
    assert kept.prompt.text() == DOCS["humaneval"][1]["prompt"]
    # the program as a whole is one and the same text, whoever owns the newline
    assert stripped.prompt.text() + asked(stripped)[0] == (kept.prompt.text() + asked(kept)[0]).lstrip()
    assert set(templates("humaneval")["bigcode"].stop) > set(templates("humaneval")["harness"].stop)


def test_arc_prompts_equal_real_harness_logs(shared_data):
    path = shared_data / "results" / "lm_eval_arc" / "arc_easy_raw_samples_head300.jsonl.gz"
    benchmark = catalog.get("arc_easy")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        samples = [json.loads(line) for line in lines]
    assert len(samples) == 300
    for index, sample in enumerate(samples):
        item = benchmark.parse(sample["doc"], index, "test")
        result = rendered(item, "mc")
        arguments = list(sample["arguments"].values())
        assert {a["arg_0"] for a in arguments} == {result.prompt.text()}
        assert [a["arg_1"] for a in arguments] == asked(result)
        gold = [p.option for p in result.parts if p.role is Role.GOLD]
        assert gold == [sample["target"]]


@pytest.mark.parametrize(
    "variant", ["rc_0shot", "val_rc_5shot", "test_rc_5shot", "val_mc_5shot", "test_mc_5shot"]
)
@pytest.mark.parametrize("name", ["arc_easy", "arc_challenge"])
def test_olmes_wordings_equal_the_reference_renderings(shared_data, name, variant):
    path = shared_data / "olmes_requests" / name / f"{variant}.jsonl.gz"
    items = {}
    benchmark = catalog.get(name)
    folder = "ARC-Easy" if name == "arc_easy" else "ARC-Challenge"
    for split in ("test", "validation"):
        for line in (shared_data / "ai2_arc" / folder / f"{split}.jsonl").read_text("utf-8").split("\n"):
            if line:
                item = benchmark.parse(json.loads(line), 0, split)
                items[item.item_id] = item
    compared = 0
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            reference = json.loads(line)
            item = items.get(reference["native_id"])
            if item is None or reference["request"]["context"] is None:
                continue
            result = rendered(item, "letters" if "_mc_" in variant else "mc", template="olmes")
            # the shots are OLMES's own; the last block is ours to match
            last = reference["request"]["context"].split("\n\n")[-1]
            if "\n\n" in item.question:
                continue
            if reference["request"]["context"].startswith("Answer"):  # the unconditional context
                continue
            assert last == result.prompt.text()
            if reference["idx"] < len(asked(result)):
                assert reference["request"]["continuation"] in asked(result)
            compared += 1
    assert compared >= 40
