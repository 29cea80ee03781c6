"""One test per public bug report that a new implementation must not repeat.

The rows are those of the list in the project's notes (other tools' issue trackers); each test is red on the
described fault. LE is EleutherAI/lm-evaluation-harness.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from steelyard.benchmarks import catalog
from steelyard.core.errors import DataError
from steelyard.core.ids import request_id
from steelyard.core.types import (
    ChoiceAnswer,
    Finish,
    Generate,
    Item,
    Likelihood,
    NumberAnswer,
    Sampling,
    Status,
    TextAnswer,
    Work,
)
from steelyard.engine.transformers.backend import open_transformers
from steelyard.forms.fewshot import ShotSource
from steelyard.forms.formulation import get as formulation
from steelyard.forms.render import Form, render
from steelyard.forms.templates import render_text, templates
from steelyard.plan.study import load_study
from steelyard.running.session import judge, run
from steelyard.running.summary import summarise
from steelyard.scoring.choice import NORMALISATIONS, OptionScore, judge_choice
from steelyard.scoring.registry import judge_generation
from steelyard.stats import score_interval
from steelyard.store.reader import open_read


def answers(backend, requests, batch_size=4):
    """Responses by position, whatever batches they came in."""
    work = []
    for request in requests:
        tokens = backend.encode(request)
        work.append(Work(request_id(backend.identity, request, tokens), request, tokens))
    found = {}
    for batch in backend.run(work, batch_size=batch_size):
        found |= {r.request_id: r for r in batch.responses}
    return [found[w.request_id] for w in work]


TEXTS = [
    ("Question: why?\nAnswer:", " because"),
    ("The capital of France is", " Paris"),
    ("The capital of", " Italy is Rome."),
    ("naïve café, 你好", " 世界 😀"),
    ("x", " y"),
    ("def add(a, b):\n    return", " a + b\n"),
    ("Question: How many apples are left? Answer: 18 apples are left, so the answer is", " 18."),
]


def plain_forward(folder, context, continuation):
    """log p by one unpadded forward pass over the whole text, position by position."""
    import torch
    from transformers import AutoModelForCausalLM

    backend = open_transformers(str(folder))
    tokens = backend.encode(Likelihood(context, continuation))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([tokens.ids])).logits[0].double()
    logp = torch.log_softmax(logits, dim=-1)
    return sum(float(logp[n - 1, tokens.ids[n]]) for n in range(tokens.start, len(tokens.ids)))


def test_row_01_a_token_across_the_join_neither_dies_nor_leaves_an_empty_continuation(tiny):
    """LE #1297, #1053, #3336: "Ans" + "wer" is one token; the split moves back, flagged."""
    backend = open_transformers(str(tiny))
    whole = backend.encode(Generate("The Answer", Sampling(max_tokens=1))).ids
    tokens = backend.encode(Likelihood("The Ans", "wer"))
    assert tokens.ids == whole
    assert tokens.moved
    assert 0 < tokens.start < len(tokens.ids)
    (response,) = answers(backend, [Likelihood("The Ans", "wer")])
    assert response.finish is Finish.SCORED
    assert response.n_tokens == len(tokens.ids) - tokens.start
    assert response.logprob < 0


def test_row_02_a_likelihood_does_not_change_with_batch_size_order_or_neighbours(tiny):
    """LE #704, #335, #879, #1645, #3055."""
    backend = open_transformers(str(tiny))
    requests = [Likelihood(*t) for t in TEXTS]
    plain = [plain_forward(tiny, *t) for t in TEXTS]
    order = list(range(len(requests)))
    for batch_size in (1, 4, 16):
        random.Random(batch_size).shuffle(order)
        shuffled = answers(backend, [requests[n] for n in order], batch_size)
        for place, response in zip(order, shuffled, strict=True):
            assert response.logprob == pytest.approx(plain[place], abs=1e-4 * response.n_tokens)


def test_row_03_generated_text_does_not_change_with_batch_size(tiny):
    """LE #2498: left padding."""
    backend = open_transformers(str(tiny))
    requests = [Generate(context, Sampling(max_tokens=12)) for context, _ in TEXTS]
    requests += [
        Generate(context, Sampling(max_tokens=12, temperature=0.9), draw=d, seed=100 * n + d)
        for n, (context, _) in enumerate(TEXTS)
        for d in range(2)
    ]
    one = [r.text for r in answers(backend, requests, 1)]
    assert one == [r.text for r in answers(backend, requests, 8)]
    assert one == [r.text for r in answers(backend, requests[::-1], 5)][::-1]


def test_row_04_two_checkpoints_in_one_store_do_not_serve_each_others_answers(tiny, new_model, tmp_path):
    """LE #2715, #4063; lighteval #1364: the cache key must hold the weights."""
    other = new_model(tmp_path / "other", seed=1)
    keys = {"tasks": "mini_facts", "forms": "nlg,mc", "limit": 4, "shots": 0, "max_tokens": 4}
    both = load_study(None, {**keys, "model": f"{tiny},{other}", "store": tmp_path / "both"})
    outcome = run(both)
    assert [m.found for m in outcome.models] == [0, 0]
    alone = load_study(None, {**keys, "model": str(other), "store": tmp_path / "alone"})
    run(alone)
    with open_read(tmp_path / "both") as store, open_read(tmp_path / "alone") as single:
        together, expected = store.responses(), single.responses()
    for name, response in expected.items():
        assert together[name].text == response.text
        assert together[name].logprob == response.logprob
    assert len(together) == 2 * len(expected)


def test_row_06_ids_follow_the_items_named_in_any_order(tmp_path):
    """LE #4084: `--samples 5,2,9` logged wrong ids."""
    chosen = ["facts-009", "facts-002", "facts-005"]
    keys = {"model": "simulated", "tasks": "mini_facts", "forms": "nlg", "shots": 0}
    run(load_study(None, {**keys, "items": ",".join(chosen), "store": tmp_path / "s"}))
    with open_read(tmp_path / "s") as store:
        asked = {a.item_id for a in store.asks()}
        questions = {i.item_id: i.question for i in store.items()}
    from steelyard.benchmarks.sources import load

    assert asked == set(chosen)
    truth = {i.item_id: i.question for i in load("mini_facts").items}
    assert questions == {n: truth[n] for n in chosen}


def test_row_07_shots_do_not_depend_on_workers_order_or_limit():
    """LE #1719, #1751: the shot stream restarted in every process."""
    pool = [
        Item(item_id=f"s{n}", benchmark="b", question=f"q{n}", reference=TextAnswer((f"a{n}",)))
        for n in range(99)
    ]
    items = [
        Item(item_id=f"i{n}", benchmark="b", question=f"x{n}", reference=TextAnswer(("a",)))
        for n in range(40)
    ]
    single = {i.item_id: ShotSource(pool, seed=0).draw(i, 4, "per_item") for i in items}
    for workers in (2, 4, 8):
        sharded = {}
        for worker in range(workers):
            source = ShotSource(pool, seed=0)  # a process of its own
            sharded |= {i.item_id: source.draw(i, 4, "per_item") for i in reversed(items[worker::workers])}
        assert sharded == single
    assert len({tuple(s.item_id for s in shots) for shots in single.values()}) > 35


def test_row_08_the_delimiter_is_explicit_and_a_chat_template_brings_its_own(tiny_bos):
    """LE #2346: a chat template plus the default delimiter shifted leaderboard scores."""
    item = Item(item_id="i", benchmark="arc_easy", question="Q?", reference=ChoiceAnswer(0, ("a", "b")))
    template = templates("arc_easy")["harness"]
    plain = Form(benchmark="arc_easy", formulation=formulation("ll"), template=template, shots=0)
    assert render(item, plain, (), None).parts[0].continuation == " a"
    chat = replace(plain, chat=True)
    assert render(item, chat, (), None).parts[0].continuation == "a"
    assert chat.form_id != plain.form_id
    backend = open_transformers(str(tiny_bos))
    text = backend.chat_prompt("Q?")
    tokens = backend.encode(Likelihood(text, "a"))
    bos = backend.encode(Generate("x", Sampling(max_tokens=1))).ids[0]
    assert tokens.ids[0] == bos
    assert tokens.ids.count(bos) == 1


def test_row_10_per_char_counts_characters_and_per_byte_counts_bytes():
    """LE #3278: acc_norm is documented as bytes and divides by characters."""
    options = [OptionScore("ééééé", True, -9.0, 2), OptionScore("eeeeeee", False, -11.0, 2)]
    assert judge_choice(options, "per_char").value == 0.0  # -9/5 < -11/7
    assert judge_choice(options, "per_byte").value == 1.0  # -9/10 > -11/7


def test_row_11_asking_for_one_more_normalisation_changes_no_other():
    """LE PR #3035: acc_mutual_info corrupted acc and acc_norm."""
    options = [OptionScore("ab", True, -3.0, 1, -2.9), OptionScore("abcd", False, -4.0, 2, -9.0)]
    without = [OptionScore(o.text, o.gold, o.logprob, o.n_tokens) for o in options]
    for name in NORMALISATIONS:
        if name != "pmi":
            assert judge_choice(options, name) == judge_choice(without, name)
    assert judge_choice(options, "pmi").value == 0.0
    assert judge_choice(options, "none").value == 1.0


def test_row_13_a_shared_prefix_that_covers_scored_tokens_truncates_no_log_probabilities(tiny):
    """NVIDIA Model-Optimizer #1577: with its prefix cache on, the logits of cached context were cut off.

    Here the text that is scored by one request is context of another, which ran before, or beside it.
    """
    whole = "Question: How many apples are left? Answer: 18 apples are left"
    cuts = [8, 14, 23, 35, 43, 46, 53, 57]
    requests = [Likelihood(whole[:a], whole[a:b]) for a in cuts for b in [*cuts, len(whole)] if a < b]
    requests += [Likelihood("", whole), Likelihood(whole, "."), Likelihood(whole[:35], " 19")]
    shared, plain = (
        open_transformers(str(tiny), engine=engine, token_logprobs=True) for engine in ("shared", "plain")
    )
    tokens = [shared.encode(r) for r in requests]
    work = {request_id(shared.identity, r, t): Work("", r, t) for r, t in zip(requests, tokens, strict=True)}
    work = [replace(one, request_id=name) for name, one in work.items()]
    dice = random.Random(0)
    ends = _by_id(plain, work)
    for done in (set(), {w.request_id for w in dice.sample(work, len(work) // 2)}):
        got = _by_id(shared, work, done)
        assert got.keys() == {w.request_id for w in work} - done
        for one in work:
            if one.request_id in done:
                continue
            response, want = got[one.request_id], ends[one.request_id]
            length = len(one.tokens.ids) - one.tokens.start
            assert len(response.token_logprobs) == response.n_tokens == length
            assert response.token_logprobs == pytest.approx(want.token_logprobs, abs=1e-5)
            assert response.logprob == pytest.approx(sum(want.token_logprobs), abs=1e-5 * length)
    assert shared.sharing == ""


def _by_id(backend, work, done=frozenset()):
    return {r.request_id: r for b in backend.run(work, done, batch_size=None) for r in b.responses}


def test_row_14_a_tie_earns_its_share_and_is_counted_and_scores_are_fp32(tiny):
    """LE #2007, helm PR #1494: ties went to the first option, or to the gold."""
    for place in range(3):
        options = [OptionScore(f"o{n}", n == place, -2.0, 1) for n in range(3)]
        verdict = judge_choice(options, "none")
        assert verdict.value == pytest.approx(1 / 3)
        assert verdict.detail["tie"]
    lost = [
        OptionScore("a", False, -1.0, 1),
        OptionScore("b", False, -1.0, 1),
        OptionScore("c", True, -3.0, 1),
    ]
    assert judge_choice(lost, "none").value == 0.0
    # in bfloat16 these two would be one number
    close = [OptionScore("a", True, -10.001, 1), OptionScore("b", False, -10.002, 1)]
    assert judge_choice(close, "none").value == 1.0
    # a model in half precision still gives log-probabilities of full precision: their exponentials sum to 1
    backend = open_transformers(str(tiny), dtype="bfloat16")
    (response,) = answers(backend, [Likelihood("The capital of", " Italy")])
    assert response.logprob != float(np.float16(response.logprob))


def test_row_15_no_score_has_an_error_bar_of_zero_and_the_group_formula_holds():
    """LE #4070, #4017, #1617: stderr 0.0000 at 0 % or 100 %; group errors differed between versions."""
    for value in (0.0, 1.0):
        estimate = score_interval(np.full(40, value), deterministic=True)
        assert estimate.high - estimate.low > 0.05
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 5)
    y = (rng.random(60).repeat(5) > 0.5).astype(float)
    estimate = score_interval(y, groups=[str(g) for g in groups], deterministic=True)
    sums = np.array([y[groups == g].sum() for g in range(60)])
    boot = [sums[rng.integers(0, 60, 60)].sum() / 300 for _ in range(4000)]
    assert estimate.se == pytest.approx(np.std(boot), rel=0.06)
    assert estimate.se > 2 * y.std() / math.sqrt(300)


def test_row_16_every_request_of_a_batch_has_its_own_stop_strings(tiny):
    """LE #3587: mixed tasks in a batch used the last task's."""
    backend = open_transformers(str(tiny))
    context = TEXTS[0][0]
    (free,) = answers(backend, [Generate(context, Sampling(max_tokens=24))])
    stops = [free.text[n : n + 2] for n in (2, 6, 10)]
    requests = [Generate(context, Sampling(max_tokens=24, stop=(s,))) for s in stops]
    for stop, response in zip(stops, answers(backend, requests, 8), strict=True):
        assert response.text == free.text[: free.text.index(stop)]
        assert response.finish is Finish.STOP


GOLD_18 = NumberAnswer(Decimal(18), "18", "steps\n#### 18")


@pytest.mark.parametrize(
    ("text", "numeric", "strict"),
    [
        ("The answer is 18...", 1, 0),
        ("so 9 * 2 = 18.00", 1, 0),
        ("#### 18.00", 1, 0),
        ("18 ,, ", 1, 0),
        ("#### $18", 1, 0),
        ("####18", 1, 0),
        ("#### 18 eggs. Then 5 more", 1, 1),
        ("#### 18", 1, 1),
        (",,", 0, 0),
        ("no number at all", 0, 0),
    ],
)
def test_row_18_right_answers_are_read_and_the_harness_pair_keeps_its_own_name(text, numeric, strict):
    """LE #1204, #3438, #1159."""
    assert judge_generation("numeric", text, Finish.STOP, GOLD_18).value == numeric
    assert judge_generation("strict-match", text, Finish.STOP, GOLD_18).value == strict
    if not any(c.isdigit() for c in text):
        assert judge_generation("numeric", text, Finish.STOP, GOLD_18).status is Status.UNPARSED


def test_row_18_commas_and_currencies_are_numbers():
    gold = NumberAnswer(Decimal(18000), "18,000")
    for text in ("#### 18,000", "18000", "$18,000.00", "The answer is 18000 dollars."):
        assert judge_generation("numeric", text, Finish.STOP, gold).value == 1


def test_row_19_the_default_stop_is_the_shot_boundary_and_cut_answers_are_reported(tiny, tmp_path):
    """sglang PR #29264, LE #2798: "Question" stopped inside reasoning; 256 tokens cut it."""
    default = next(iter(templates("gsm8k").values()))
    reasoning = "First, the Question: asks for eggs.\n3 * 6 = 18\n#### 18"
    assert not any(stop in reasoning for stop in default.stop)
    assert any(stop in "#### 18\n\nQuestion: next" for stop in default.stop)
    keys = {"model": str(tiny), "tasks": "mini_math", "forms": "nlg", "limit": 5, "shots": 0, "max_tokens": 3}
    run(load_study(None, {**keys, "store": tmp_path / "s"}))
    row = next(r for r in summarise(tmp_path / "s").scores if r.primary)
    with open_read(tmp_path / "s") as store:
        cut = sum(r.finish is Finish.LENGTH for r in store.responses().values())
    assert cut > 0
    assert row.validity["cut"] == cut


def test_row_20_triviaqa_has_one_question_mark_and_answers_with_a_full_stop_or_comma():
    """LE #1292, PR #944."""
    default, legacy = (templates("triviaqa")[n] for n in ("plain", "harness"))
    item = Item(
        item_id="i",
        benchmark="triviaqa",
        question="Which city?",
        reference=TextAnswer(("St. Louis", "Saint Louis")),
    )
    assert render_text(default.question, default, item).count("?") == 1
    assert render_text(legacy.question, legacy, item).count("?") == 2
    assert default.stop == ("\n",)
    for text in ("St. Louis", "the St. Louis.", " st louis"):
        assert judge_generation("exact_match", text, Finish.STOP, item.reference).value == 1
    number = TextAnswer(("10,000",))
    assert judge_generation("exact_match", "10,000", Finish.STOP, number).value == 1
    assert judge_generation("exact_match_legacy", "The St. Louis", Finish.STOP, item.reference).value == 0


def test_row_21_whole_shots_are_dropped_first_and_what_does_not_fit_is_counted(new_model, tmp_path):
    """LE #3115, #1426, #3421, PR #2300: left truncation ate BOS, description and question."""
    small = new_model(tmp_path / "m", bos=True, max_position_embeddings=72)
    keys = {"model": str(small), "tasks": "mini_facts", "forms": "mc", "shots": 3, "templates": "plain"}
    run(load_study(None, {**keys, "store": tmp_path / "s"}))
    row = next(r for r in summarise(tmp_path / "s").scores if r.primary)
    with open_read(tmp_path / "s") as store:
        asks = store.asks()
    backend = open_transformers(str(small))
    bos = backend.encode(Generate("x", Sampling(max_tokens=1))).ids[0]
    dropped = [a for a in asks if any(f.startswith("shots_dropped") for f in a.flags)]
    overlong = {a.cell_id for a in asks if "overlong" in a.flags}
    assert dropped
    assert overlong
    assert row.validity["overlong"] == row.status_counts["overlong"] == len(overlong)
    assert row.n_items == row.validity["n"] - len(overlong)
    assert bos == 0


def test_row_22_a_crash_loses_at_most_a_batch_and_a_fully_answered_run_still_works(tmp_path):
    """LE #2533, #2548, #2140. Kills at random instants: tests/running/test_session.py."""
    keys = {"model": "simulated", "tasks": "simulated", "forms": "nlg,mc", "limit": 9, "batch_size": 3}
    whole, stopped = (load_study(None, {**keys, "store": tmp_path / name}) for name in ("whole", "stopped"))
    run(whole)
    calls = iter(range(10**6))
    run(stopped, cancelled=lambda: next(calls) > 3)
    assert run(stopped).models[0].found > 0
    again = run(stopped)
    assert again.models[0].asked == 0
    with open_read(tmp_path / "whole") as one, open_read(tmp_path / "stopped") as two:
        assert one.cells().to_pylist() == two.cells().to_pylist()


def test_row_23_one_record_per_item_and_scoring_again_needs_no_model(tmp_path):
    """LE #1687, #1627: one line per filter doubled the file; logs could not be scored again."""
    run(
        load_study(
            None, {"model": "simulated", "tasks": "mini_math", "forms": "nlg", "limit": 5, "store": tmp_path}
        )
    )
    with open_read(tmp_path) as store:
        asks, scores, responses = store.asks(), store.scores(), store.responses()
    assert len(asks) == len(responses) == 5
    assert {s.scorer for s in scores} == {"numeric", "strict-match", "flexible-extract"}
    assert len(scores) == 15
    assert judge(tmp_path).scores == 15


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("mmlu", {"question": "q", "subject": "s", "choices": ["a", "b"], "answer": 2}),
        ("mmlu", {"question": "q", "subject": "s", "choices": ["a", "b"], "answer": "1"}),
        ("gsm8k", {"question": "q", "answer": "no mark"}),
        ("gsm8k", {"question": "q", "answer": "#### many"}),
        (
            "arc_easy",
            {"id": "x", "question": "q", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "B"},
        ),
        ("boolq", {"question": "q", "passage": "p", "answer": "true"}),
    ],
)
def test_row_24_a_gold_that_does_not_fit_is_an_error_when_loading(name, row, tmp_path):
    """LE #3170, PR #4057, #597: targets that look like lists or digits were evaluated, and lost."""
    from steelyard.benchmarks.sources import load

    (tmp_path / "test.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError):
        load(name, data=tmp_path / "test.jsonl")


def test_row_24_texts_that_look_like_numbers_or_lists_stay_texts():
    row = {"question": "q", "subject": "s", "choices": ["[1, 2]", "18", "3", "4"], "answer": 1}
    item = catalog.get("mmlu").parse(row, 0, "test")
    assert item.gold.full == "18"
    assert item.reference.options[0] == "[1, 2]"


def test_row_29_the_first_scored_token_is_read_at_the_position_before_it(tiny):
    """LE #337: settled by a model whose next token is known by hand."""
    import torch
    from transformers import AutoModelForCausalLM

    backend = open_transformers(str(tiny))
    tokens = backend.encode(Likelihood("x", " y z"))
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32).eval()
    by_hand = 0.0
    for n in range(tokens.start, len(tokens.ids)):
        with torch.no_grad():
            # only the tokens before the n-th are seen; what comes next is asked of the last position
            logits = model(torch.tensor([tokens.ids[:n]])).logits[0, -1].double()
        by_hand += float(torch.log_softmax(logits, -1)[tokens.ids[n]])
    (response,) = answers(backend, [Likelihood("x", " y z")])
    assert response.logprob == pytest.approx(by_hand, abs=1e-5)


def test_every_row_of_the_list_is_here():
    rows = {int(name.split("_")[2]) for name in globals() if name.startswith("test_row_")}
    assert rows == {1, 2, 3, 4, 6, 7, 8, 10, 11, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 29}
