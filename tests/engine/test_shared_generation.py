"""Generation with shared prompts: the texts of the plain way, whatever is written beside or was before."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace

import pytest

from steelyard.core.errors import BackendError
from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.types import Finish, Generate, Sampling, Tokens, Work
from steelyard.engine.transformers import memory, sampler, together
from steelyard.engine.transformers.backend import open_transformers
from steelyard.engine.transformers.decode import PAGE, DecodePass
from steelyard.engine.transformers.generate import generate
from steelyard.engine.transformers.lean import lighten
from steelyard.engine.transformers.rows import Job
from steelyard.engine.transformers.sampler import SharedSampler
from steelyard.engine.transformers.sharing import why_not
from steelyard.engine.transformers.steady import steady

LONG = {"max_position_embeddings": 512}
WINDOW = 24  # shorter than some prompts, and than what is written


# --------------------------------------------------------------------------------------------------- models
def mistral(folder, make_tokenizer, **settings):
    return other(folder, make_tokenizer, "MistralConfig", sliding_window=WINDOW, **settings)


def gemma(folder, make_tokenizer):
    caps = {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 6.0, "query_pre_attn_scalar": 8}
    return other(folder, make_tokenizer, "Gemma2Config", sliding_window=WINDOW, head_dim=8, **caps)


def other(folder, make_tokenizer, config_class, **settings):
    import torch
    import transformers

    make_tokenizer(folder, bos=False)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    config = getattr(transformers, config_class)(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.25,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
        **LONG,
        **settings,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(new_model, make_tokenizer, tmp_path_factory):
    root = tmp_path_factory.mktemp("shared")
    for name in ("gemma", "mistral"):
        (root / name).mkdir()
    return {
        "plain attention": new_model(root / "llama", **LONG),
        "one key head": new_model(
            root / "one", hidden_size=48, num_attention_heads=3, num_key_value_heads=1, **LONG
        ),
        "windows": mistral(root / "mistral", make_tokenizer),
        "soft caps and windows": gemma(root / "gemma", make_tokenizer),
    }


@pytest.fixture(scope="module")
def opened(folders, tmp_path_factory):
    backends = {}

    def open_one(name="plain attention"):
        if name not in backends:
            backends[name] = open_transformers(
                str(folders[name]), cache_dir=tmp_path_factory.getbasetemp() / "c"
            )
            assert why_not(backends[name].model) == ""
            lighten(backends[name].model.load())
        return backends[name]

    yield open_one
    for backend in backends.values():
        backend.close()


@pytest.fixture
def endless(opened, monkeypatch):
    """The plain model, whose texts end by their limits only."""
    backend = opened()
    monkeypatch.setattr(backend.model, "eos_ids", frozenset())
    monkeypatch.setattr(backend.tokenizer, "eos_id", None)
    return backend


# ----------------------------------------------------------------------------------------------------- jobs
def tokens(rng, count) -> tuple[int, ...]:
    return tuple(rng.randrange(2, 400) for _ in range(count))


def greedy(ids, limit) -> Job:
    return Job(ids=tuple(ids), sampling=Sampling(limit), seed=None, limit=limit)


def drawn(ids, limit, seed, **settings) -> Job:
    return Job(ids=tuple(ids), sampling=Sampling(limit, temperature=1.0, **settings), seed=seed, limit=limit)


def mixed(count, seed=0) -> list[Job]:
    """Draws and greedy texts of every length; prompts with common stems, some equal, some the start of others."""
    rng = random.Random(seed)
    stems = [tokens(rng, n) for n in (1, 6, 33, 80)]
    jobs = []
    for n in range(count):
        stem = stems[n % 4]
        prompt = rng.choice(
            [stem, stem[: max(1, len(stem) // 2)], stem + tokens(rng, 3), stem + tokens(rng, 17)]
        )
        limit = rng.choice([1, 2, 9, 30, 75])
        settings = rng.choice([{}, {}, {"top_p": 0.9}, {"top_k": 40}])
        jobs.append(greedy(prompt, limit) if n % 5 == 0 else drawn(prompt, limit, n, **settings))
    return jobs


@dataclass
class Ran:
    """What a run gave and did."""

    texts: dict = field(default_factory=dict)
    harvests: list = field(default_factory=list)
    widths: list = field(default_factory=list)  # of decode steps
    rows: list = field(default_factory=list)  # jobs in them
    held: list = field(default_factory=list)  # packs that were held in them
    bits: dict = field(default_factory=dict)  # of the logits of each text at each step
    packs: int = 0  # prefill passes
    freed: int = 0  # times that memory was freed
    error: Exception | None = None

    def total(self, name):
        return sum(getattr(h.passes, name) for h in self.harvests)


def run(backend, jobs, *, rows=64, budget=64, done=(), order=None, cancelled=lambda: False, fail=None) -> Ran:
    """Runs jobs (in another order); `fail` is asked before each forward pass and may raise."""
    ran = Ran()
    order = list(range(len(jobs))) if order is None else order
    choose, real = sampler.choose, backend.model.pack_logits

    def listening(logits, texts):
        for row, text in zip(logits, texts, strict=True):
            at = (text.job.ids, text.job.seed, text.job.limit, len(text.ids))
            ran.bits[at] = hashlib.sha256(row.cpu().numpy().tobytes()).hexdigest()
        return choose(logits, texts)

    def freed():
        ran.freed += 1  # the real one takes longer than everything else here

    def watched(ids, positions, columns, how):
        if fail is not None:
            fail(ids, how)
        if isinstance(how, DecodePass):
            ran.widths.append(len(ids))
            ran.rows.append(len(ids) - int((positions == 0).sum()))  # filling stands at position 0
            ran.held.append(len(how._prompts))
        else:
            ran.packs += 1
        return real(ids, positions, columns, how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "choose", listening)
        patch.setattr(sampler, "free_memory", freed)
        patch.setattr(backend.model, "pack_logits", watched)
        plan = SharedSampler([jobs[n] for n in order], budget, rows)
        skipped = {place for place, n in enumerate(order) if n in done}
        try:
            for harvest in plan.run(backend.model, backend.tokenizer, skipped, cancelled):
                ran.harvests.append(harvest)
                for place, text in harvest.results.items():
                    assert order[place] not in ran.texts
                    ran.texts[order[place]] = text
        except RuntimeError as error:
            ran.error = error
    return ran


def plainly(backend, jobs):
    return dict(enumerate(generate(backend.model, backend.tokenizer, jobs)[0]))


def library(backend, job):
    """The library's own loop."""
    import torch

    ids = torch.tensor([job.ids])
    ends = sorted(backend.model.eos_ids | ({backend.tokenizer.eos_id} - {None}))
    # an end that does not exist, where there is none: without it the library takes that of the configuration
    out = backend.model.load().generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=job.limit,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=ends or [backend.model.vocabulary],
    )
    return tuple(out[0, len(job.ids) :].tolist())


# ---------------------------------------------------------------------------------------------- same as others
@pytest.mark.parametrize("name", ["plain attention", "one key head", "windows", "soft caps and windows"])
def test_greedy_texts_are_the_librarys_token_for_token(opened, name):
    backend = opened(name)
    rng = random.Random(1)
    stem, long = tokens(rng, 30), tokens(rng, 90)
    jobs = [
        greedy(prompt, limit)
        for prompt, limit in [
            (stem, 40),
            (stem + tokens(rng, 5), 1),
            (stem + tokens(rng, 9), 23),
            (stem[:12], 7),  # the start of others
            (long, 30),  # longer than a pack and than a window
            (long[:70] + tokens(rng, 2), 60),
            (long[:1], 2 * PAGE + 12),  # beyond two pages
            ((7,), PAGE),
            ((7,), PAGE + 1),
            ((8, 9), PAGE + 2),
        ]
    ]
    ran = run(backend, jobs, budget=32)
    assert ran.packs > 4
    for n, job in enumerate(jobs):
        assert ran.texts[n].ids == library(backend, job)
        assert ran.texts[n].finish is (Finish.EOS if ran.texts[n].ids[-1] == 1 else Finish.LENGTH)


def test_texts_longer_than_pages_are_the_librarys(endless):
    jobs = [greedy((5 + n, 6), limit) for n, limit in enumerate([3 * PAGE + 5, 2 * PAGE, PAGE - 1, 4])]
    ran = run(endless, jobs)
    assert [len(ran.texts[n].ids) for n in range(4)] == [job.limit for job in jobs]
    assert [ran.texts[n].ids for n in range(4)] == [library(endless, job) for job in jobs]


@pytest.mark.parametrize("name", ["plain attention", "one key head", "windows", "soft caps and windows"])
def test_drawn_texts_are_those_of_the_plain_way(opened, name):
    jobs = mixed(26)
    assert run(opened(name), jobs).texts == plainly(opened(name), jobs)


def test_an_end_of_text_ends_a_row_where_it_stands_also_at_once(opened, monkeypatch):
    backend = opened()
    prompts = [tokens(random.Random(n), 4) for n in range(5)]
    free = run(backend, [greedy(p, 12) for p in prompts]).texts
    # what the texts begin with, and what they come to later, are ends of text from now on
    ends = {free[0].ids[0], free[1].ids[0], free[2].ids[5], free[3].ids[7]}
    monkeypatch.setattr(backend.model, "eos_ids", frozenset(ends))
    jobs = [greedy(p, 12) for p in prompts]
    ran = run(backend, jobs)
    for n in range(5):
        first = next((at for at, token in enumerate(free[n].ids) if token in ends or token == 1), None)
        assert ran.texts[n].ids == (free[n].ids if first is None else free[n].ids[: first + 1])
        assert ran.texts[n].finish is (Finish.LENGTH if first is None else Finish.EOS)
        assert ran.texts[n].ids == library(backend, jobs[n])
    assert (ran.texts[0].text, ran.texts[0].n_tokens) == ("", 0)
    alone = run(backend, [greedy(prompts[0], 12)] * 3)
    assert alone.widths == []  # nothing had to be decoded
    assert len(alone.texts) == 3


def test_stop_strings_end_texts_also_across_tokens_and_in_the_company_of_others(endless):
    prompts = [tokens(random.Random(n), 5) for n in range(8)]
    free = run(endless, [drawn(p, 40, n) for n, p in enumerate(prompts)]).texts
    jobs, crossing = [], 0
    for n, prompt in enumerate(prompts):
        first = endless.tokenizer.decode(free[n].ids[: 9 + n])
        at = len(first) - 1  # the last character of one token and the first of the next
        stop = free[n].text[at : at + 2]
        crossing += "\ufffd" not in stop and len(stop) == 2
        job = drawn(prompt, 40, n, stop=("not to be seen", stop) if "\ufffd" not in stop else ("nor this",))
        jobs += [job, drawn(prompt, 40, n)]
    assert crossing >= 3
    ran = run(endless, jobs, rows=8)
    assert ran.texts == plainly(endless, jobs)
    stopped = [t for t in ran.texts.values() if t.finish is Finish.STOP]
    assert len(stopped) >= crossing
    for n in range(8):
        whole, cut = ran.texts[2 * n + 1], ran.texts[2 * n]
        assert whole == free[n]
        if cut.finish is Finish.STOP:
            assert cut.text == whole.text[: whole.text.index(jobs[2 * n].sampling.stop[1])]
            assert len(cut.ids) < len(whole.ids)


def test_logits_that_are_no_numbers_end_one_row_and_leave_the_others(opened):
    backend = opened()
    jobs = [drawn((9, 8), 20, n) for n in range(6)]
    choose = sampler.choose

    def spoiled(logits, texts):
        logits = logits.clone()
        for at, text in enumerate(texts):
            if text.job.seed == 2 and len(text.ids) == 3:
                logits[at, 17] = math.nan
        return choose(logits, texts)

    want = run(backend, jobs).texts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "choose", spoiled)
        got = run(backend, jobs).texts
    assert got[2].finish is Finish.ERROR
    assert got[2].ids == want[2].ids[:3]
    assert {n: t for n, t in got.items() if n != 2} == {n: t for n, t in want.items() if n != 2}


def test_keys_that_are_no_numbers_spoil_no_text_that_comes_after_in_the_same_place(folders):
    import torch

    backend = open_transformers(str(folders["plain attention"]))
    poison = set(range(100, 130))
    with torch.no_grad():
        backend.model.load().model.embed_tokens.weight[sorted(poison)] = math.nan
    jobs = [drawn((5, 6 + n % 3), 30, n) for n in range(60)]
    ran = run(backend, jobs, rows=8)
    ended = [t for t in ran.texts.values() if t.finish is Finish.ERROR]
    assert 8 < len(ended) < 60
    assert all(t.ids[-1] in poison for t in ended)
    assert not any(poison & {*t.ids[:-1]} for t in ran.texts.values())
    assert ran.texts == plainly(backend, jobs)


# ------------------------------------------------------------------------------------------- whatever the company
@pytest.fixture(
    scope="module", params=["plain attention", "one key head", "windows", "soft caps and windows"]
)
def reference(request, opened):
    backend = opened(request.param)
    jobs = mixed(48)
    return backend, jobs, run(backend, jobs)


def same(reference, ran, skipped=()) -> None:
    """The same texts, from the very same numbers."""
    _, jobs, whole = reference
    assert ran.error is None
    assert set(ran.texts) == set(range(len(jobs))) - set(skipped)
    assert {n: whole.texts[n] for n in ran.texts} == ran.texts
    assert ran.bits.items() <= whole.bits.items()


def steady_here(backend) -> bool:
    return steady(backend.model.load(), list(range(8, 65, 8)))


@pytest.mark.parametrize("rows", [1, 8, 16, 40, 64])
def test_a_draw_is_the_same_text_with_any_number_of_rows(reference, rows):
    backend, jobs, whole = reference
    ran = run(backend, jobs, rows=rows)
    assert max(ran.rows) <= max(ran.widths) <= -(-rows // 8) * 8
    assert {width % 8 for width in ran.widths} == {0}
    if steady_here(backend):
        same(reference, ran)
    assert ran.texts == whole.texts


def test_a_draw_is_the_same_text_in_any_order_of_the_work(reference):
    backend, jobs, _ = reference
    order = random.Random(5).sample(range(48), 48)
    same(reference, run(backend, jobs, order=order))


@pytest.mark.parametrize("seed", range(4))
def test_a_draw_is_the_same_text_whatever_was_done_before(reference, seed):
    backend, jobs, _ = reference
    rng = random.Random(seed)
    done = set(rng.sample(range(48), rng.choice([5, 24, 43, 47])))
    ran = run(backend, jobs, done=done, rows=rng.choice([8, 64]))
    if steady_here(backend):
        same(reference, ran, done)
    assert set(ran.texts) == set(range(48)) - done


def test_a_draw_is_the_same_text_alone(reference):
    backend, jobs, whole = reference
    for n in random.Random(2).sample(range(48), 6):
        alone = run(backend, jobs, done=set(range(48)) - {n})
        assert alone.texts == {n: whole.texts[n]}


def test_nothing_to_do_runs_nothing(opened):
    ran = run(opened(), mixed(5), done=set(range(5)))
    assert (ran.texts, ran.harvests, ran.packs, ran.widths) == ({}, [], 0, [])


def test_where_packs_are_cut_changes_no_text(opened):
    jobs = mixed(16)
    one = run(opened(), jobs, budget=4096)
    assert one.packs == 1
    for budget in (1, 7, 40):
        ran = run(opened(), jobs, budget=budget)
        assert ran.texts == one.texts
        assert ran.packs >= len(SharedSampler(jobs, budget, 8).trie) / budget


def test_layers_that_are_not_steady_keep_the_number_of_rows_and_give_the_same_texts(opened, monkeypatch):
    jobs = mixed(48)
    want = run(opened(), jobs)
    if steady_here(opened()):
        assert len(set(want.widths)) > 1
    monkeypatch.setattr(sampler, "steady", lambda *_: False)
    fixed = run(opened(), jobs)
    assert set(fixed.widths) == {48}
    assert min(fixed.rows) < 24  # the last ones still stand in a row of 48
    assert fixed.texts == want.texts
    for done in ({0, 3, 17}, set(range(3, 48))):
        # also after a resume, when few are left
        rest = run(opened(), jobs, done=done)
        assert set(rest.widths) == {48}
        assert rest.texts == {n: t for n, t in want.texts.items() if n not in done}
        assert rest.bits.items() <= fixed.bits.items()


# ------------------------------------------------------------------------------------------------ what is computed
def test_waiting_rows_enter_as_others_leave(endless):
    jobs = [greedy((5,), 41)] + [greedy((6, n), 6) for n in range(10, 50)]
    ran = run(endless, jobs, rows=8)
    # 7 places for 40 texts of 5 steps each, beside the long one: 40 rounds of 7 in 29 steps
    assert len(ran.widths) == 40
    assert max(ran.rows) == 8
    assert ran.rows[0] == 8
    assert len(ran.texts) == 41


def test_logits_are_made_for_real_rows_only_where_their_number_changes_no_bit(endless):
    jobs = [drawn((6, n), 5, seed=n) for n in range(10, 21)]  # 11 rows in a step of 16
    ran = run(endless, jobs, rows=16)
    assert ran.widths == [16] * 4
    assert ran.total("computed") - sum(h.nodes for h in ran.harvests) == 16 * 4
    assert ran.total("scored") == 11 + 11 * 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("steelyard.engine.transformers.sampler.steady_head", lambda _net, _sizes: False)
        filled = run(endless, jobs, rows=16)
    assert filled.total("scored") == 11 + 16 * 4
    assert filled.texts == ran.texts


def test_each_prompt_is_read_once_for_all_its_draws(endless):
    rng = random.Random(0)
    stem = tokens(rng, 50)
    prompts = [stem + tokens(rng, 6) for _ in range(4)]
    jobs = [drawn(p, 5, seed) for p in prompts for seed in range(8)]
    ran = run(endless, jobs, budget=40)
    nodes = distinct_prefixes(prompts)
    assert sum(h.nodes for h in ran.harvests) == nodes == 50 + 4 * 6
    assert ran.total("computed") == nodes + sum(ran.widths)
    assert ran.total("scored") == 4 + sum(ran.widths)
    assert ran.total("steps") == ran.packs + len(ran.widths)
    assert ran.widths == [32] * 4  # 5 tokens, of which the first comes from the prompt's own logits


def test_after_a_resume_only_the_packs_of_what_is_left_are_read(endless):
    rng = random.Random(0)
    prompts = [tokens(rng, 40) for _ in range(10)]  # nothing in common
    jobs = [drawn(p, 2, 0) for p in prompts]
    rest = run(endless, jobs, budget=40, done=set(range(9)))
    assert sum(h.nodes for h in rest.harvests) <= 80


def test_prompts_are_forgotten_when_nobody_needs_them(endless):
    rng = random.Random(3)
    stem = tokens(rng, 20)
    jobs = [drawn(stem + tokens(rng, 20), 3 + n % 5, n) for n in range(60)]
    ran = run(endless, jobs, rows=8, budget=20)
    assert ran.packs >= 60
    # the stem's, one or two for each of 8 rows, and the next one's
    assert max(ran.held) <= 1 + 2 * 8 + 2
    assert len(ran.texts) == 60


def test_logits_after_prompts_are_forgotten_too(endless, monkeypatch):
    most = []
    enter = sampler._Run._enter

    def watching(self):
        enter(self)
        most.append((len(self._prompts.logits), len(self._prompts.kept)))

    monkeypatch.setattr(sampler._Run, "_enter", watching)
    jobs = [drawn((n, n + 1), 3, seed) for n in range(10, 70) for seed in range(2)]
    run(endless, jobs, rows=8, budget=8)
    assert max(logits for logits, _ in most) <= 8 + 4 + 1  # of rows, and of a pack's prompts that wait
    # texts that end with their first token leave nothing behind either
    most.clear()
    run(endless, [greedy((n, n + 1), 1) for n in range(10, 70)], rows=8, budget=8)
    assert max(max(pair) for pair in most) <= 6


@pytest.mark.parametrize("after", [0, 1, 9, 30])
def test_a_cancelled_run_ends_between_steps_and_hands_out_what_has_ended(endless, after):
    jobs = [drawn((5, n % 3), 3 + n, n) for n in range(20)]
    whole = run(endless, jobs).texts
    calls = itertools.count()
    ran = run(endless, jobs, cancelled=lambda: next(calls) >= after)
    assert ran.packs + len(ran.widths) <= after
    assert len(ran.texts) < 20
    assert ran.texts.items() <= whole.items()
    steps = len(ran.widths)
    # a text of n tokens ends with step n - 1
    assert len(ran.texts) == sum(len(t.ids) - 1 <= steps for t in whole.values() if steps)


def test_a_run_is_cancelled_between_prompts_too(endless):
    jobs = [drawn(tokens(random.Random(n), 30), 5, n) for n in range(40)]
    calls = itertools.count()
    ran = run(endless, jobs, budget=30, cancelled=lambda: next(calls) >= 3)
    assert ran.packs <= 6
    assert ran.widths == []


# ------------------------------------------------------------------------------------------------------- memory
def full() -> RuntimeError:
    """What torch's CPU allocator says."""
    return RuntimeError(
        "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried ..."
    )


def too_wide(most, kind=DecodePass):
    """Refuses forward passes of more than so many rows or tokens."""
    refused = []

    def fail(ids, how):
        if len(ids) > most and isinstance(how, DecodePass) is (kind is DecodePass):
            refused.append(len(ids))
            assert len(refused) < 1000  # no endless tries
            raise full()

    return fail


@pytest.mark.parametrize(("most", "widest"), [(8, 8), (16, 16), (24, 24)])
def test_rows_that_do_not_fit_go_back_and_come_again_with_the_same_texts(opened, most, widest):
    jobs = mixed(48)
    want = run(opened(), jobs).texts
    ran = run(opened(), jobs, fail=too_wide(most))
    assert ran.error is None
    assert ran.texts == want
    assert max(ran.widths) == widest
    assert ran.freed >= 1


def test_memory_that_runs_out_in_the_middle_of_texts_loses_none(opened):
    jobs = [drawn((4, n % 5), PAGE + 20, n) for n in range(40)]
    want = run(opened(), jobs).texts
    steps = itertools.count()

    def at_the_second_page(ids, how):
        # the whole number of rows fits one page, not two
        if isinstance(how, DecodePass) and len(ids) > 16 and how._many > 1:
            next(steps)
            raise MemoryError

    ran = run(opened(), jobs, fail=at_the_second_page)
    assert next(steps) >= 1
    assert ran.error is None
    assert ran.texts == want


def test_pages_of_rows_that_gave_way_are_freed(opened, monkeypatch):
    sizes = []
    write = sampler.Pages.write

    def measured(self, layer, *others):
        write(self, layer, *others)
        sizes.append(self._layers[layer][0].shape[0])

    monkeypatch.setattr(sampler.Pages, "write", measured)
    ran = run(opened(), [drawn((4, n), 12, n) for n in range(40)], fail=too_wide(16))
    assert len(ran.texts) == 40
    assert sizes[-1] <= 16


def test_a_step_that_never_fits_is_an_error_after_what_had_ended_was_handed_out(opened):
    jobs = [greedy((9, n), 1) for n in range(2, 6)] + [drawn((10, n), 9, n) for n in range(20)]
    want = run(opened(), jobs).texts

    def never(_ids, how):
        if isinstance(how, DecodePass):
            raise full()

    ran = run(opened(), jobs, fail=never)
    assert "allocate memory" in str(ran.error)
    assert ran.widths == []
    assert ran.texts
    assert ran.texts.items() <= want.items()


@pytest.mark.parametrize("most", [1, 5, 20])
def test_a_pack_of_prompts_that_does_not_fit_is_read_in_parts(opened, most):
    jobs = mixed(30)
    want = run(opened(), jobs)
    ran = run(opened(), jobs, fail=too_wide(most, kind=None))
    assert ran.error is None
    assert ran.texts == want.texts
    assert ran.packs > want.packs
    assert ran.total("computed") - sum(ran.widths) == want.total("computed") - sum(want.widths)


def test_a_prompt_that_does_not_fit_beside_others_waits_until_they_have_ended(opened, monkeypatch):
    """Also where a part of its pack was read already, which is not read again."""
    rng = random.Random(8)
    shared = tokens(rng, 9)
    jobs = [drawn(shared + tokens(rng, n), 6 + n % 7, n) for n in range(12, 40)]
    want = run(opened(), jobs, budget=32)
    runs, read, waited = [], [0], []
    enter = sampler._Run._enter

    def entering(self):
        runs[:] = [self]
        enter(self)

    def crowded(ids, how):
        assert len(waited) < 1000  # no endless tries
        if isinstance(how, DecodePass):
            read[0] = 0
            return
        # a row under way takes as much as 12 tokens of a prompt, and what was read just now counts as well
        rows = len(runs[0]._rows)
        if len(ids) + 12 * rows + (read[0] if rows else 0) > 60:
            waited.extend([len(runs[0]._parts)] if len(ids) == 1 else [])
            raise full()
        read[0] += len(ids)

    monkeypatch.setattr(sampler._Run, "_enter", entering)
    ran = run(opened(), jobs, budget=32, fail=crowded)
    assert ran.error is None
    assert ran.texts == want.texts
    assert max(ran.rows) <= 5
    assert waited
    assert max(waited) > 1  # parts were left
    assert ran.total("computed") - sum(ran.widths) == want.total("computed") - sum(want.widths)


def test_a_prompt_that_never_fits_is_an_error(opened):
    ran = run(opened(), mixed(10), fail=too_wide(0, kind=None))
    assert "allocate memory" in str(ran.error)
    assert ran.texts == {}


def test_the_backend_says_that_memory_ran_out_and_gives_what_there_is(opened, monkeypatch):
    backend = opened()
    work = [Work(f"{n}", Generate("Q:" + " a" * n, Sampling(1 if n < 3 else 5))) for n in range(12)]
    real = backend.model.pack_logits

    def small(ids, positions, columns, how):
        if isinstance(how, DecodePass):
            raise full()
        return real(ids, positions, columns, how)

    monkeypatch.setattr(backend.model, "pack_logits", small)
    got = []
    with pytest.raises(BackendError, match="ran out of memory"):
        got.extend(r for b in backend.run(work, batch_size=None) for r in b.responses)


def test_rows_are_bounded_by_what_their_texts_can_come_to(opened, monkeypatch):
    backend = opened()
    jobs = [drawn((4, n % 5), 20, n) for n in range(60)]
    want = run(backend, jobs)
    assert max(want.widths) == 64
    # two layers of two key heads of 8 numbers of 4 bytes, keys and values; a page at least
    row = 2 * 2 * 2 * 8 * 4 * PAGE
    for rows, widest in [(100, 64), (41, 40), (17, 16), (2, 8), (0, 8)]:
        monkeypatch.setattr(sampler, "available", lambda _, free=2 * row * rows: free)
        ran = run(backend, jobs)
        assert max(ran.widths) == widest
        assert ran.texts == want.texts
    monkeypatch.setattr(sampler, "available", lambda _: None)
    assert max(run(backend, jobs).widths) == 64
    monkeypatch.setattr(sampler, "available", lambda _: 2 * row * 17)
    # what is done already is not to come
    few = [*jobs[:50], *(replace(job, limit=PAGE + 1) for job in jobs[50:])]
    assert max(run(backend, few, done=set(range(50, 60))).widths) == 16
    assert max(run(backend, few).widths) == 8


def test_a_pack_takes_no_more_tokens_than_memory_holds(opened, monkeypatch):
    model = opened().model
    usual = together.budget(model)
    assert usual == 2048
    sizes = []
    for free in (None, 1 << 50, 1 << 30, 1 << 26, 1 << 22, 1 << 12, 0):
        monkeypatch.setattr(memory, "available", lambda _, free=free: free)
        sizes.append(together.budget(model))
        if free is not None and sizes[-1] > 16:
            assert sizes[-1] * model.bytes_per_token <= free // 4
    assert sizes[0] == sizes[1] == usual
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 16
    assert all(size & (size - 1) == 0 for size in sizes)
    monkeypatch.setattr(memory, "available", lambda _: None)
    monkeypatch.setattr(model, "vocabulary", 1 << 20)
    assert together.budget(model) == 256  # logits of one pack are bounded too


# ------------------------------------------------------------------------------------------------- the backend
def work_of(backend, requests) -> list[Work]:
    return [Work(f"{n:03}", r, backend.encode(r)) for n, r in enumerate(requests)]


def test_batches_count_what_was_asked_written_and_computed(opened):
    backend = opened()
    stem = "Question: How many apples are left? Answer: 18 apples. "
    requests = [
        Generate(f"{stem}{n}?", Sampling(4 + n % 9, temperature=0.9), draw, 100 * n + draw)
        for n in range(6)
        for draw in range(5)
    ]
    work = work_of(backend, requests)
    batches = list(backend.run(work, batch_size=16))
    responses = {r.request_id: r for b in batches for r in b.responses}
    assert set(responses) == {w.request_id for w in work}
    prompts = {w.request_id: len(w.tokens.ids) for w in work}
    new = 0
    for batch in batches:
        assert batch.responses
        texts = {r.request_id: r for r in batch.responses}
        # an EOS is generated, and is not in a text's tokens
        counted = sum(r.n_tokens + (r.finish is Finish.EOS) for r in texts.values())
        assert batch.new_tokens == counted
        assert batch.asked == sum(prompts[i] for i in texts) + counted
        assert batch.steps > 0
        assert batch.seconds > 0
        assert batch.peak_memory > 0
        assert batch.scored <= batch.computed
        assert batch.trie <= batch.asked
        new += batch.new_tokens
    nodes = distinct_prefixes([w.tokens.ids for w in work])
    # each prefix of the prompts once, and each new token but the last of its text
    assert sum(b.trie for b in batches) == nodes + new - len(work)
    assert sum(b.computed for b in batches) >= sum(b.trie for b in batches)
    assert sum(b.asked for b in batches) == sum(prompts.values()) + new


def test_no_batch_counts_the_prompts_of_texts_that_are_still_under_way(opened):
    backend = opened()
    prompts = [f"{n} apples are left. " * (1 + n % 3) for n in range(10, 50)]
    # eight texts end with their first tokens, when nearly all prompts are read
    work = work_of(backend, [Generate(p, Sampling(1 if n % 5 == 0 else 12)) for n, p in enumerate(prompts)])
    batches = list(backend.run(work, batch_size=None))
    assert len(batches) > 1
    assert all(0 < b.trie <= b.asked for b in batches)
    nodes = distinct_prefixes([w.tokens.ids for w in work])
    assert sum(b.trie for b in batches) == nodes + sum(b.new_tokens for b in batches) - len(work)


def test_a_resumed_backend_gives_the_rest_to_the_letter(opened):
    backend = opened()
    requests = [
        Generate(prompt, Sampling(3 + 7 * (draw % 4), temperature=0.8), draw, draw)
        for prompt in ("The capital of", "The capital of France is", "Q", "Answer: ")
        for draw in range(7)
    ]
    work = work_of(backend, requests)
    whole = {r.request_id: r for b in backend.run(work, batch_size=None) for r in b.responses}
    calls = itertools.count()
    first = list(backend.run(work, batch_size=None, cancelled=lambda: next(calls) > 40))
    done = {r.request_id for b in first for r in b.responses}
    assert 0 < len(done) < len(work)
    shuffled = random.Random(1).sample(work, len(work))
    second = list(backend.run(shuffled, done, batch_size=None))
    got = {r.request_id: r for b in first + second for r in b.responses}
    assert got == whole
    assert sum(len(b.responses) for b in first + second) == len(work)


def test_a_context_that_fills_up_ends_a_text_as_in_the_plain_way(folders):
    requests = [Generate("The capital of France is", Sampling(500)), Generate("a", Sampling(500))]
    texts = {}
    for engine in ("shared", "plain"):
        backend = open_transformers(str(folders["plain attention"]), max_length=90, engine=engine)
        backend.model.eos_ids = frozenset()
        backend.tokenizer.eos_id = None
        work = work_of(backend, requests)
        texts[engine] = [r for b in backend.run(work, batch_size=2) for r in b.responses]
        for one, response in zip(work, sorted(texts[engine], key=lambda r: r.request_id), strict=True):
            assert response.n_tokens == 90 - len(one.tokens.ids)
        backend.close()
    assert sorted(map(repr, texts["shared"])) == sorted(map(repr, texts["plain"]))


def test_a_prompt_of_token_ids_at_the_edge_of_the_vocabulary_is_read_as_it_is(opened):
    backend = opened()
    last = backend.model.vocabulary - 1
    work = [Work("a", Generate("", Sampling(4)), Tokens((0, last, last), 3))]
    ((response,),) = (b.responses for b in backend.run(work, batch_size=None))
    (text,) = run(backend, [greedy((0, last, last), 4)]).texts.values()
    assert response.text == text.text


KILLED = """
import os, signal, sys
import torch
from steelyard import run
from steelyard.engine.transformers import sampler

torch.set_num_threads(1)
step, harvest, left = sampler._Run.step, sampler._Run.harvest, [int(sys.argv[2])]

def counted(self):
    left[0] -= 1
    return harvest(self)

def dying(self):
    if left[0] <= 0 and self._rows and self.ended:
        os.kill(os.getpid(), signal.SIGKILL)  # texts are under way, and some have ended and are not stored yet
    step(self)

sampler._Run.step, sampler._Run.harvest = dying, counted
run({study!r} | {{"store": sys.argv[1]}})
"""


def test_a_study_that_is_killed_while_texts_are_written_comes_to_the_same_table(folders, tmp_path):
    import steelyard

    study = {
        "model": str(folders["windows"]),
        "tasks": "mini_facts",
        "forms": "nlg",
        "limit": 9,
        "shots": 1,
        "repeats": 4,
        "max_tokens": 20,
    }

    def table(store):
        with steelyard.open(store) as tables:
            cells = [tuple(sorted(c.items())) for c in tables.cells().to_pylist()]
            answers = [(i, r.text, r.n_tokens, r.finish) for i, r in sorted(tables.responses().items())]
            return cells, answers

    steelyard.run(study | {"store": tmp_path / "whole"})
    script = tmp_path / "study.py"
    script.write_text(KILLED.format(study=study))
    answered = [0]
    for harvests in (0, 1):
        process = subprocess.run(
            [sys.executable, script, tmp_path / "killed", str(harvests)],
            capture_output=True,
            env=os.environ | {"STEELYARD_CACHE": str(tmp_path / "cache")},
        )
        assert process.returncode == -signal.SIGKILL, process.stderr.decode()
        with steelyard.open(tmp_path / "killed") as tables:
            answered.append(len(tables.answered()))
    assert answered[1] == 0
    assert 0 < answered[2] < 36
    outcome = steelyard.run(study | {"store": tmp_path / "killed"})
    assert outcome.models[0].found == answered[-1]
    assert table(tmp_path / "killed") == table(tmp_path / "whole")
    assert len(table(tmp_path / "whole")[1]) == 36
