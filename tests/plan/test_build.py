"""Plans: pure functions of study, items and tokenizer; impossible forms are refused before anything is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.benchmarks.simulated import load_simulated
from steelyard.core.errors import InputError, RefusedError, StudyError, UnknownNameError
from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.types import Generate, Role
from steelyard.engine.simulated import open_simulated
from steelyard.forms.templates import templates
from steelyard.plan.build import Source, build
from steelyard.plan.cost import cost
from steelyard.plan.study import Study, load_study
from steelyard.running.session import load_sources


def study(**keys) -> Study:
    return load_study(None, {"model": "simulated", "tasks": "simulated", "forms": "nlg,mc,mc_rnd,ll", **keys})


class Room:
    """The simulated backend with another context length, or without prompt log-probabilities."""

    def __init__(self, **changes):
        self._inner = open_simulated("simulated")
        self.capabilities = replace(self._inner.capabilities, **changes)
        self.identity = self._inner.identity

    def encode(self, request):
        return self._inner.encode(request)

    def chat_prompt(self, text, system=None):
        return text


SOURCE = Source(load_simulated(n_items=60), templates("simulated"))


def plan_of(backend=None, source=SOURCE, **keys):
    return build(study(**keys), backend or open_simulated("simulated"), [source])


def test_the_same_study_is_the_same_plan():
    one, two = plan_of(limit=10), plan_of(limit=10)
    assert one.asks == two.asks
    assert one.work == two.work


def test_a_larger_limit_contains_the_smaller_request_by_request():
    small, large = plan_of(limit=7), plan_of(limit=20)
    assert small.work.keys() < large.work.keys()
    assert {i.item_id for i in small.sources[0].items} < {i.item_id for i in large.sources[0].items}


def test_named_items_are_those_whatever_their_order():
    ids = [SOURCE.loaded.items[n].item_id for n in (5, 2, 9)]
    plan = plan_of(items=",".join(ids))
    assert list(dict.fromkeys(a.item_id for a in plan.asks)) == ids
    by_item = {a.item_id: plan.work[a.request_id].request for a in plan.asks if a.role is Role.GENERATE}
    for item in SOURCE.loaded.items:
        if item.item_id in by_item:
            assert item.question in by_item[item.item_id].prompt
    reordered = plan_of(items=",".join(reversed(ids)))
    assert reordered.work.keys() == plan.work.keys()


def test_an_item_that_does_not_exist_is_an_error():
    with pytest.raises(InputError, match="test-00051"):
        plan_of(items="test-0001")


def test_the_gold_option_of_ll_mc_and_mc_rnd_is_one_request():
    plan = plan_of(limit=5)
    for item in plan.sources[0].items:
        gold = {a.request_id for a in plan.asks if a.item_id == item.item_id and a.role is Role.GOLD}
        assert len(gold) == 1


def test_every_draw_has_a_stream_of_its_own_that_no_template_or_limit_changes():
    plan = plan_of(limit=4, forms="nlg", repeats=3, templates="t00,t01")
    seeds: dict[tuple[str, int], set[int]] = {}
    for ask in plan.asks:
        request = plan.work[ask.request_id].request
        assert isinstance(request, Generate)
        seeds.setdefault((ask.item_id, ask.sample), set()).add(request.seed)
    assert all(len(s) == 1 for s in seeds.values())
    assert len({next(iter(s)) for s in seeds.values()}) == 12
    assert plan.work.keys() <= plan_of(limit=9, forms="nlg", repeats=5, templates="all").work.keys()


def test_forms_that_make_no_sense_are_refused_by_name_all_at_once():
    with pytest.raises(RefusedError) as error:
        build(
            load_study(None, {"model": "simulated", "tasks": "mini", "forms": "mc_ao,nlg"}),
            open_simulated("simulated"),
            load_sources(load_study(None, {"model": "simulated", "tasks": "mini", "forms": "mc_ao"})),
        )
    assert "mini_facts mc_ao" in str(error.value)
    assert "mini_reading mc_ao" in str(error.value)
    assert "mini_math mc_ao" not in str(error.value)


def test_every_other_answer_of_the_passage_is_asked_under_either_name_and_refused_without_passages():
    wanted = load_study(
        None,
        {
            "model": "simulated",
            "tasks": "mini_reading",
            "forms": "mc_rnd_all,mc_rnd*",
            "limit": 4,
            "options": 1,
        },
    )
    plan = build(wanted, open_simulated("simulated"), load_sources(wanted))
    assert [f.formulation.name for f, _ in plan.forms] == ["mc_rnd*"]
    passages = {i.item_id: i.fields["passage"] for i in plan.sources[0].loaded.items}
    options = [a for a in plan.asks if a.role is Role.DISTRACTOR]
    assert len(options) > len({a.item_id for a in options})
    for ask in options:
        assert passages[ask.source.removeprefix("item:")] == passages[ask.item_id]
    other = load_study(None, {"model": "simulated", "tasks": "mini_facts", "forms": "mc_rnd_all"})
    backend, sources = open_simulated("simulated"), load_sources(other)
    with pytest.raises(RefusedError, match=r"mini_facts mc_rnd\*: its items share no passage"):
        build(other, backend, sources)


def test_refused_forms_can_be_left_out_and_are_noted():
    wanted = load_study(
        None, {"model": "simulated", "tasks": "mini", "forms": "mc_ao,nlg", "skip_refused": True}
    )
    plan = build(wanted, open_simulated("simulated"), load_sources(wanted))
    assert {(f.benchmark, f.formulation.name) for f, _ in plan.forms} >= {
        ("mini_math", "mc_ao"),
        ("mini_facts", "nlg"),
    }
    assert any("mini_facts mc_ao" in note for note in plan.notes)


def test_a_backend_without_prompt_log_probabilities_refuses_with_the_way_out():
    with pytest.raises(RefusedError, match="use a local model"):
        plan_of(Room(likelihood=False, why_not="use a local model"))


def test_chat_without_a_chat_template_is_refused():
    with pytest.raises(RefusedError, match="no chat template"):
        plan_of(Room(chat=False), chat=True)


def test_over_long_prompts_lose_whole_shots_first_then_are_marked_and_not_asked():
    roomy = plan_of(shots=3, limit=5, forms="mc")
    need = max(len(w.tokens.ids) for w in roomy.work.values())
    tight = plan_of(Room(max_length=need - 1), shots=3, limit=5, forms="mc")
    dropped = [a for a in tight.asks if any(f.startswith("shots_dropped:") for f in a.flags)]
    assert dropped
    for ask in tight.asks:
        tokens = tight.work[ask.request_id].tokens
        assert len(tokens.ids) <= need - 1
    per_cell = {}
    for ask in tight.asks:
        if ask.role in {Role.GOLD, Role.DISTRACTOR}:
            per_cell.setdefault(ask.cell_id, set()).add(tight.work[ask.request_id].request.context)
    assert all(len(contexts) == 1 for contexts in per_cell.values())  # all options after one prompt
    none = plan_of(Room(max_length=8), shots=3, limit=5, forms="mc")
    assert {a.request_id for a in none.asks} == {None}
    assert all("overlong" in a.flags for a in none.asks)


def test_over_long_prompts_fail_when_the_study_says_so():
    with pytest.raises(InputError, match="--overlong skip"):
        plan_of(Room(max_length=8), limit=1, forms="mc", overlong="fail")


@pytest.mark.parametrize("forms", ["mc", "nlg", "ll"])
def test_truncation_keeps_the_first_token_and_the_end_of_the_prompt(forms):
    whole = plan_of(limit=3, forms=forms)
    cut = plan_of(Room(max_length=60), limit=3, forms=forms, overlong="truncate")
    assert any(f.startswith("truncated:") for a in cut.asks for f in a.flags)
    for one, two in zip(whole.asks, cut.asks, strict=True):
        before, after = whole.work[one.request_id].tokens, cut.work[two.request_id].tokens
        assert after.ids[0] == before.ids[0]
        assert before.ids[-(len(after.ids) - 1) :] == after.ids[1:]
        assert len(after.ids) - after.start == len(before.ids) - before.start
        new = 16 if forms == "nlg" else 0
        assert len(after.ids) + new <= 60


def test_options_of_one_item_are_cut_to_one_context():
    def longer(item):
        wrong = tuple(replace(o, full=o.full * (n + 1)) for n, o in enumerate(item.distractors))
        return replace(item, distractors=wrong)

    items = tuple(map(longer, SOURCE.loaded.items[:3]))
    source = replace(SOURCE, loaded=replace(SOURCE.loaded, items=items))
    cut = plan_of(Room(max_length=60), source, limit=3, forms="mc", overlong="truncate")
    contexts: dict[str, set[tuple[int, ...]]] = {}
    for ask in cut.asks:
        if ask.role in {Role.GOLD, Role.DISTRACTOR}:
            assert any(f.startswith("truncated:") for f in ask.flags)
            tokens = cut.work[ask.request_id].tokens
            contexts.setdefault(ask.cell_id, set()).add(tokens.ids[: tokens.start])
    assert [len(c) for c in contexts.values()] == [1, 1, 1]


def test_smart_forms_are_refused_by_name_where_some_items_have_no_options():
    items = tuple(replace(i, distractors=()) if n < 2 else i for n, i in enumerate(SOURCE.loaded.items))
    source = replace(SOURCE, loaded=replace(SOURCE.loaded, items=items))
    with pytest.raises(RefusedError, match=r"simulated mc: 2 of 60 items .* the first is test-00000"):
        plan_of(source=source, forms="mc,nlg")
    left = plan_of(source=source, forms="mc,nlg", skip_refused=True)
    assert {f.formulation.name for f, _ in left.forms} == {"nlg"}
    named = plan_of(source=source, forms="mc", items=items[5].item_id)  # the others are not asked
    assert {a.item_id for a in named.asks} == {items[5].item_id}


def test_two_benchmarks_of_one_name_are_refused():
    with pytest.raises(InputError, match=r"Two benchmarks .* 'simulated'"):
        build(study(), open_simulated("simulated"), [SOURCE, SOURCE])


@pytest.mark.parametrize("template", ["harness", "bigcode", "bigcode-unstripped"])
def test_code_is_scored_with_its_own_indentation_after_the_null_context(shared_data, template):
    keys = {"tasks": "humaneval", "forms": "mc_rnd", "templates": template, "limit": 2, "data": shared_data}
    wanted = study(**keys)
    plan = build(wanted, open_simulated("simulated"), load_sources(wanted))
    for ask in plan.asks:
        request = plan.work[ask.request_id].request
        if ask.role in {Role.NULL_GOLD, Role.NULL_DISTRACTOR}:
            assert request.context + request.continuation == "\n" + ask.text


def test_items_set_aside_as_shots_are_never_evaluated_with_shots():
    loaded = SOURCE.loaded
    pool = replace(loaded, shots=loaded.items[3:9], provenance=replace(loaded.provenance, shot_source="pool"))
    source = replace(SOURCE, loaded=pool)
    aside = {i.item_id for i in pool.shots}
    with_shots = plan_of(source=source, shots=2, forms="nlg")
    assert not aside & {a.item_id for a in with_shots.asks}
    assert "6 set aside" in with_shots.sources[0].sentence
    assert aside < {a.item_id for a in plan_of(source=source, shots=0, forms="nlg").asks}
    with pytest.raises(InputError, match="set aside"):
        plan_of(source=source, shots=2, forms="nlg", items=min(aside))


def test_yes_no_benchmarks_say_that_mc_rnd_equals_mc(shared_data):
    wanted = load_study(
        None,
        {
            "model": "simulated",
            "tasks": "boolq",
            "forms": "mc_rnd",
            "limit": 5,
            "data": shared_data,
            "shots": 0,
        },
    )
    plan = build(wanted, open_simulated("simulated"), load_sources(wanted))
    assert any("equals mc" in note for note in plan.notes)
    assert all("short:2" in a.flags for a in plan.asks)


def test_an_unknown_template_or_form_names_near_misses():
    with pytest.raises(UnknownNameError, match="t01"):
        plan_of(templates="t1")
    with pytest.raises(UnknownNameError, match="mc_rnd"):
        plan_of(forms="mc_rdn")


# --------------------------------------------------------------------------------------------------- cost
@given(st.lists(st.lists(st.integers(0, 3), max_size=6).map(tuple), max_size=12))
def test_distinct_prefixes_are_the_nodes_of_the_trie(sequences):
    naive = {s[:n] for s in sequences for n in range(1, len(s) + 1)}
    assert distinct_prefixes(sequences) == len(naive)


def test_costs_are_counted_exactly():
    plan = plan_of(limit=3, forms="nlg,mc")
    counted = cost(plan.work.values())
    assert counted.requests == len(plan.work)
    assert counted.tokens == sum(len(w.tokens.ids) for w in plan.work.values())
    assert counted.new_tokens == 3 * 16
    assert counted.generations == 3
    without = [replace(w, tokens=None) for w in plan.work.values()]
    assert cost(without).tokens is None


# -------------------------------------------------------------------------------------------------- study
@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"temprature": 1}, "Did you mean temperature"),
        ({"limit": 0}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"limit": True}, "truth value"),
        ({"limit": 3, "items": "a"}, "exclude"),
        ({"repeats": 3, "temperature": 0}, "greedy"),
        ({"items": "a,a"}, "twice"),
        ({"shot_mode": "random"}, "fixed"),
        ({"overlong": "ignore"}, "skip"),
        ({"top_p": 0}, "top_p"),
        ({"system": "x"}, "chat"),
        ({"model": ""}, "model"),
    ],
)
def test_a_study_that_does_not_fit_is_an_error_that_names_the_key(keys, says):
    with pytest.raises(StudyError, match=says):
        study(**keys)


def test_a_study_file_and_flags_are_two_spellings(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text("model: simulated\ntasks: [simulated]\nforms: nlg, mc\nlimit: 4\nstore: out\n")
    loaded = load_study(file, {"limit": 6})
    assert loaded.tasks == ("simulated",)
    assert loaded.forms == ("nlg", "mc")
    assert loaded.limit == 6
    assert loaded.store == tmp_path / "out"
    file.write_text("- a\n")
    with pytest.raises(StudyError, match="keys and values"):
        load_study(file, {})
    with pytest.raises(StudyError, match="no study file"):
        load_study(tmp_path / "none.yaml", {})


def test_commas_between_a_models_options_do_not_split_it():
    assert study(model="simulated:ability=1,seed=2, smollm2").model == (
        "simulated:ability=1,seed=2",
        "smollm2",
    )


def test_item_ids_may_hold_commas_or_be_numbers():
    assert study(items='["a,1", "b"]').items == ("a,1", "b")
    assert study(items=[5, "7"]).items == ("5", "7")
    assert study(items=5).items == ("5",)
    with pytest.raises(StudyError, match="JSON list"):
        study(items="[a")
    with pytest.raises(StudyError, match="twice"):
        study(items=[5, "5"])


def test_several_draws_are_sampled_and_one_is_greedy():
    assert study().sampling_temperature == 0
    assert study(repeats=4).sampling_temperature == 0.7
    assert study(repeats=4, temperature=0.2).sampling_temperature == 0.2
