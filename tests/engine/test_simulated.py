from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.benchmarks.simulated import load_simulated, truth
from steelyard.core import simulation
from steelyard.core.errors import InputError, UnknownNameError
from steelyard.core.ids import request_id
from steelyard.core.simulation import Cell, Question, Simulee, true_score
from steelyard.core.types import Finish, Generate, Likelihood, Sampling, Work
from steelyard.engine.simulated import open_simulated

SAMPLED = Sampling(max_tokens=64, stop=("\n",), temperature=1.0)
GREEDY = Sampling(max_tokens=64, stop=("\n",))


def works(backend, requests):
    unique = {}
    for request in requests:
        tokens = backend.encode(request)
        name = request_id(backend.identity, request, tokens)
        unique[name] = Work(name, request, tokens)
    return list(unique.values())


def answers(backend, requests, batch_size=16):
    work = works(backend, requests)
    found = {r.request_id: r for batch in backend.run(work, batch_size=batch_size) for r in batch.responses}
    return [found[piece.request_id] for piece in work]


def prompt_of(item, template=None):
    mark = "" if template is None else simulation.mark(template) + " "
    return f"{mark}{item.question}\nAnswer:"


def test_the_sampled_score_comes_to_the_true_score():
    loaded = load_simulated(n_items=150, wrong_labels=0.1, seed=3)
    backend = open_simulated("simulated:ability=0.8,template_sd=0.5,seed=5")
    templates, draws = ["1", "2"], 8
    requests = [
        Generate(prompt_of(item, template), SAMPLED, draw, seed=1000 * draw + row)
        for template in templates
        for row, item in enumerate(loaded.items)
        for draw in range(draws)
    ]
    golds = [item.gold.answer for _ in templates for item in loaded.items for _ in range(draws)]
    right = [r.text.strip() == gold for r, gold in zip(answers(backend, requests), golds, strict=True)]
    expected = true_score(
        backend.simulee,
        [truth(item) for item in loaded.items],
        templates=templates,
        labels=[item.gold.answer for item in loaded.items],
    )
    # binomial noise only: the items and templates are the very ones
    assert abs(np.mean(right) - expected) < 4 * math.sqrt(0.25 / len(right))


def test_greedy_and_choice_scores_are_exactly_the_true_ones():
    loaded = load_simulated(n_items=80, wrong_labels=0.2, seed=1)
    backend = open_simulated("simulated:ability=0.2,consistency=0.3")
    questions, golds = [truth(i) for i in loaded.items], [i.gold.answer for i in loaded.items]
    greedy = answers(backend, [Generate(prompt_of(i, "7"), GREEDY) for i in loaded.items])
    score = np.mean([r.text.strip() == gold for r, gold in zip(greedy, golds, strict=True)])
    assert score == pytest.approx(
        true_score(backend.simulee, questions, templates=["7"], readout="greedy", labels=golds)
    )
    chosen = []
    for item in loaded.items:
        options = [item.gold.answer, *(o.answer for o in item.distractors)]
        scores = answers(backend, [Likelihood(prompt_of(item, "7"), f" {text}") for text in options])
        chosen.append(np.argmax([r.logprob for r in scores]) == 0)
    assert np.mean(chosen) == pytest.approx(
        true_score(backend.simulee, questions, templates=["7"], readout="choice", labels=golds)
    )


def test_the_true_option_is_chosen_with_the_probability_of_a_right_draw():
    questions = [Question(number) for number in range(1500)]
    model = Simulee(ability=-0.3)
    gap = true_score(model, questions, readout="choice") - true_score(model, questions)
    assert abs(gap) < 4 * math.sqrt(0.25 / len(questions))


@pytest.mark.parametrize("consistency", [0.0, 0.4, 1.0])
def test_draws_of_a_cell_correlate_by_the_consistency(consistency):
    model = Simulee(ability=0.0, consistency=consistency)
    cells = [Cell(Question(number)) for number in range(2000)]
    plain = np.array([simulation.probability(Simulee(ability=0.0), cell) for cell in cells])
    pairs = np.array(
        [
            [simulation.sampled_answer(model, c, 0, d) == c.question.answers[0] for d in range(2)]
            for c in cells
        ],
        dtype=float,
    )
    residues = pairs - plain[:, None]
    correlation = np.mean(residues[:, 0] * residues[:, 1]) / np.mean(plain * (1 - plain))
    assert correlation == pytest.approx(consistency, abs=0.09)
    assert pairs.mean() == pytest.approx(plain.mean(), abs=0.04)


def test_an_item_does_not_depend_on_how_many_there_are():
    assert load_simulated(5, seed=2).items == load_simulated(50, seed=2).items[:5]
    assert load_simulated(5, seed=2).items != load_simulated(5, seed=3).items


def test_items_are_well_formed_and_a_wrong_label_keeps_the_true_answer_among_the_options():
    loaded = load_simulated(n_items=300, n_groups=6, wrong_labels=0.3)
    wrong = 0
    for item in loaded.items:
        question = truth(item)
        options = {item.gold.answer, *(o.answer for o in item.distractors)}
        assert options == set(question.answers)
        assert len(options) == 4
        assert len({len(text) for text in options}) == 1
        assert item.group == f"group-{question.group}"
        assert all(o.source == "data" for o in item.distractors)
        wrong += item.gold.answer != question.answers[0]
    assert 50 < wrong < 130
    assert len({item.content_hash for item in loaded.items}) == 300
    assert not {item.question for item in loaded.shots} & {item.question for item in loaded.items}
    assert all(shot.gold.answer == truth(shot).answers[0] for shot in loaded.shots)


def test_items_of_a_group_share_difficulty():
    groups = range(150)
    values = np.array(
        [[simulation.difficulty(Question(g * 4 + i, group=g)) for i in range(4)] for g in groups]
    )
    between = np.mean([np.corrcoef(values[:, i], values[:, j])[0, 1] for i in range(4) for j in range(i)])
    assert between == pytest.approx(simulation.GROUP_SHARE, abs=0.15)
    assert values.std() == pytest.approx(1, abs=0.15)


def test_shots_before_the_question_do_not_change_the_answer():
    loaded = load_simulated(20)
    backend = open_simulated()
    shots = "\n\n".join(f"{prompt_of(s)} {s.gold.answer}" for s in loaded.shots[:5])
    plain = answers(backend, [Generate(prompt_of(i), GREEDY) for i in loaded.items])
    shot = answers(backend, [Generate(f"{shots}\n\n{prompt_of(i)}", GREEDY) for i in loaded.items])
    assert [r.text for r in plain] == [r.text for r in shot]


def test_a_template_moves_scores_and_its_effect_is_the_models_own():
    questions = [Question(number) for number in range(400)]
    one, other = Simulee(template_sd=1.0), Simulee(template_sd=1.0, seed=1)
    scores = [[true_score(model, questions, templates=[str(t)]) for t in range(6)] for model in (one, other)]
    assert np.std(scores[0]) > 0.05
    assert scores[0] != scores[1]
    flat = Simulee(template_sd=0.0)
    assert true_score(flat, questions, templates=["a"]) == pytest.approx(true_score(flat, questions))


def test_lettered_options_stand_for_their_words_and_a_null_context_is_neutral():
    item = load_simulated(1).items[0]
    backend = open_simulated()
    texts = [item.gold.answer, *(o.answer for o in item.distractors)]
    listed = f"{item.question}\n" + "".join(
        f"{letter}. {text}\n" for letter, text in zip("ABCD", texts, strict=True)
    )
    words = answers(backend, [Likelihood(item.question + "\nAnswer:", f" {text}") for text in texts])
    letters = answers(backend, [Likelihood(listed + "Answer:", f" {letter}") for letter in "ABCD"])
    assert (
        np.argsort([r.logprob for r in words]).tolist() == np.argsort([r.logprob for r in letters]).tolist()
    )
    null = answers(backend, [Likelihood("Answer:", f" {text}") for text in texts])
    assert len({r.logprob for r in null}) == 1


@settings(max_examples=60, deadline=None)
@given(
    context=st.text(st.characters(), max_size=40),
    continuation=st.text(st.characters(), min_size=1, max_size=40),
    item=st.none() | st.integers(0, 10**9 - 1),
)
def test_any_text_is_answered_with_facts_that_hold(context, continuation, item):
    backend = open_simulated("simulated:consistency=1")
    text = context if item is None else f"{context}{Question(item).text()} "
    scored, made, drawn = answers(
        backend,
        [
            Likelihood(text, continuation),
            Generate(text, GREEDY),
            Generate(text, Sampling(max_tokens=8, temperature=0.7), 2, 99),
        ],
    )
    assert scored.logprob < 0
    assert math.isfinite(scored.logprob)
    assert scored.n_tokens == scored.n_bytes == len(continuation.encode("utf-8", "surrogatepass"))
    assert made.text
    assert len(drawn.text.encode()) <= 8
    tokens = backend.encode(Likelihood(text, continuation))
    assert 1 <= tokens.start < len(tokens.ids)


def test_greedy_flag_and_greedy_text_agree():
    loaded = load_simulated(30)
    backend = open_simulated()
    for item in loaded.items:
        made = answers(backend, [Generate(prompt_of(item), GREEDY)])[0]
        options = [item.gold.answer, *(o.answer for o in item.distractors)]
        flags = [answers(backend, [Likelihood(prompt_of(item), f" {t}")])[0].greedy for t in options]
        assert [t for t, flag in zip(options, flags, strict=True) if flag] == [made.text.strip()]


def test_batches_order_and_resume_change_nothing_and_count_work():
    loaded = load_simulated(25)
    backend = open_simulated()
    requests = [Generate(prompt_of(i), SAMPLED, d, d) for i in loaded.items for d in range(2)]
    work = works(backend, requests)
    whole = {r.request_id: r for b in backend.run(work, batch_size=50) for r in b.responses}
    small = {r.request_id: r for b in backend.run(work[::-1], batch_size=3) for r in b.responses}
    assert whole == small
    done = set(list(whole)[:20])
    rest = {r.request_id: r for b in backend.run(work, done, batch_size=7) for r in b.responses}
    assert rest == {k: v for k, v in whole.items() if k not in done}
    batch = next(backend.run(work[:2], batch_size=2))
    made = sum(r.n_tokens for r in batch.responses)
    # two draws of one prompt: the trie has the prompt once
    assert batch.asked == 2 * len(work[0].tokens.ids) + made
    assert batch.trie == len(work[0].tokens.ids) + made
    assert not list(backend.run(work, batch_size=5, cancelled=lambda: True))


def test_stop_limit_and_length_are_told_apart():
    backend = open_simulated("simulated:max_length=400")
    prompt = prompt_of(load_simulated(1).items[0])
    text = answers(backend, [Generate(prompt, GREEDY)])[0].text
    stopped, cut, over, at_edge = answers(
        backend,
        [
            Generate(prompt, Sampling(max_tokens=9, stop=(text[3:5], text[2:4]))),
            Generate(prompt, Sampling(max_tokens=2)),
            Generate("x" * 399, Sampling(max_tokens=2)),
            Likelihood("x" * 398, "y"),
        ],
    )
    assert (stopped.text, stopped.finish) == (text[:2], Finish.STOP)
    assert (cut.text, cut.finish, cut.n_tokens) == (text[:2], Finish.LENGTH, 2)
    assert over.finish is Finish.ERROR
    assert over.error.startswith("overlong:")
    assert at_edge.finish is Finish.SCORED


def test_names_are_read_strictly():
    backend = open_simulated("simulated:ability=1.5,seed=7,step=3000")
    assert backend.simulee == Simulee(ability=1.5, seed=7)
    assert backend.identity.step == 3000
    assert backend.identity.model == "simulated:ability=1.5,seed=7"
    assert backend.identity.weights_digest != open_simulated().identity.weights_digest
    with pytest.raises(UnknownNameError, match="Did you mean ability"):
        open_simulated("simulated:abilty=1")
    for bad in (
        "simulated:",
        "simulatd",
        "simulated:ability",
        "simulated:ability=x",
        "simulated:ability=nan",
    ):
        with pytest.raises(InputError):
            open_simulated(bad)
    for bad in ("consistency=1.1", "template_sd=-1", "seed=1.5", "seed=1,seed=2", "max_length=1"):
        with pytest.raises(InputError):
            open_simulated(f"simulated:{bad}")
    with pytest.raises(InputError, match="n_groups"):
        load_simulated(5, n_groups=6)


def test_an_empty_continuation_is_named():
    with pytest.raises(InputError, match="empty"):
        open_simulated().encode(Likelihood("a", ""))
