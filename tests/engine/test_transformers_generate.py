"""Generation by both engines: each request by its own settings, whatever stands beside it in the batch."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.core.ids import request_id
from steelyard.core.types import Finish, Generate, Sampling, Work
from steelyard.engine.transformers.backend import open_transformers
from steelyard.engine.transformers.sampling import draw
from steelyard.engine.transformers.stream import TextStream

PROMPTS = [
    "The capital of France is",
    "Q",
    "Question: How many apples are left? Answer:",
    "def add(a, b):\n    return",
    "naïve 你好 😀",
    "She said: ",
    "a",
    "Answer: Answer: Answer: Answer: Answer: the the",
]


@pytest.fixture(scope="module", params=["shared", "plain"])
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def backend(tiny, engine):
    opened = open_transformers(str(tiny), engine=engine)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def plain(tiny):
    opened = open_transformers(str(tiny), engine="plain")
    yield opened
    opened.close()


def work_of(backend, requests) -> list[Work]:
    encoded = [(r, backend.encode(r)) for r in requests]
    return [Work(request_id(backend.identity, r, t), r, t) for r, t in encoded]


def answers(backend, requests, batch_size: int | None, order: int | None = None) -> list:
    """Responses in the order of the requests, after running them in another order."""
    work = work_of(backend, requests)
    shuffled = work if order is None else random.Random(order).sample(work, len(work))
    found = {r.request_id: r for b in backend.run(shuffled, batch_size=batch_size) for r in b.responses}
    return [found[w.request_id] for w in work]


def hf_greedy(backend, prompt: str, max_tokens: int) -> str:
    import torch

    ids = torch.tensor([backend.encode(Generate(prompt, Sampling(1))).ids])
    out = backend.model.load().generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_tokens, do_sample=False, pad_token_id=0
    )
    return backend.tokenizer.decode(out[0, ids.shape[1] :].tolist())


def test_greedy_texts_are_equal_at_batch_sizes_1_and_8_and_to_the_librarys_own_loop(backend):
    requests = [Generate(p, Sampling(24)) for p in PROMPTS]
    one = answers(backend, requests, 1)
    assert one == answers(backend, requests, 8, order=3) == answers(backend, requests, None, order=4)
    assert [r.text for r in one] == [hf_greedy(backend, p, 24) for p in PROMPTS]
    assert len({r.text for r in one}) > 4  # the model is not a stuck record


def test_every_row_ends_by_its_own_limit_and_its_own_stop_strings(backend):
    full = [r.text for r in answers(backend, [Generate(p, Sampling(24)) for p in PROMPTS], 8)]
    requests, expected = [], []
    for i, (prompt, text) in enumerate(zip(PROMPTS, full, strict=True)):
        stop = text[6 + i : 8 + i]
        requests.append(Generate(prompt, Sampling(24, stop=("never to be seen", stop))))
        expected.append(text[: text.index(stop)])
        requests.append(Generate(prompt, Sampling(3 + i)))
        expected.append(None)
    got = answers(backend, requests, 16, order=1)
    for request, response, text in zip(requests, got, expected, strict=True):
        if text is None:
            assert response.n_tokens == request.sampling.max_tokens or response.finish is Finish.EOS
        else:
            assert response.text == text
            assert response.finish is Finish.STOP
            assert response.n_bytes == len(text.encode())
    assert got == answers(backend, requests, 1)


def test_a_row_that_ended_is_not_computed_any_more_by_the_plain_way(plain):
    work = work_of(plain, [Generate(PROMPTS[0], Sampling(2)), Generate(PROMPTS[1], Sampling(12))])
    (batch,) = plain.run(work, batch_size=2)
    assert all(r.finish is Finish.LENGTH for r in batch.responses)
    width = max(len(w.tokens.ids) for w in work)
    assert batch.computed == 2 * width + 1 + 11  # the last token of a row is never fed
    assert batch.steps == 12
    assert batch.scored == 2 + 1 + 11
    assert batch.asked == sum(len(w.tokens.ids) for w in work) + 2 + 12


def test_draws_of_one_prompt_share_its_reading(backend, engine):
    sampling = Sampling(4, temperature=1.0)
    work = work_of(backend, [Generate(PROMPTS[2], sampling, draw=i, seed=i) for i in range(8)])
    batches = list(backend.run(work, batch_size=8))
    prompt = len(work[0].tokens.ids)
    assert sum(b.computed for b in batches) <= prompt + 8 * 3
    assert sum(b.new_tokens for b in batches) <= 8 * 4
    assert sum(b.asked for b in batches) == 8 * prompt + sum(b.new_tokens for b in batches)
    assert all(b.trie <= b.asked for b in batches)
    if engine == "plain":
        # a batch goes on for as long as its longest row, and is shared as far as its draws are alike
        (batch,) = batches
        assert batch.trie <= prompt + batch.new_tokens


@pytest.mark.parametrize(
    "settings_of",
    [{}, {"top_k": 20}, {"top_p": 0.8}, {"top_k": 50, "top_p": 0.9}],
    ids=["plain", "top_k", "top_p", "both"],
)
def test_sampled_draws_depend_on_their_seed_and_not_on_batch_or_order(backend, settings_of):
    sampling = Sampling(12, temperature=0.8, **settings_of)
    requests = [
        Generate(p, sampling, draw=d, seed=1000 * d + i) for d in range(3) for i, p in enumerate(PROMPTS)
    ]
    one = [r.text for r in answers(backend, requests, 1)]
    assert one == [r.text for r in answers(backend, requests, 5, order=4)]
    assert one == [r.text for r in answers(backend, requests, 24, order=5)]
    assert one == [r.text for r in answers(backend, requests, None, order=6)]
    assert len(set(one)) > 16


def test_eos_ends_a_row_and_is_not_in_its_text(tiny, engine):
    backend = open_transformers(str(tiny), engine=engine)
    (free,) = answers(backend, [Generate(PROMPTS[0], Sampling(12))], 1)
    ids = backend.encode(Generate(PROMPTS[0] + free.text, Sampling(1))).ids
    import torch

    (head,) = (m for n, m in backend.model.load().named_modules() if n == "lm_head")
    calls = []

    def at_the_third(_module, _inputs, output):
        calls.append(1)
        if len(calls) == 4:
            output = output.clone()
            output[..., 1] = 1e4  # </s>
        return output

    with torch.no_grad():
        head.register_forward_hook(at_the_third)
        (response,) = answers(backend, [Generate(PROMPTS[0], Sampling(12))], 1)
    assert response.finish is Finish.EOS
    assert response.n_tokens == 3
    assert free.text.startswith(response.text)
    assert len(ids) > 3
    assert "</s>" not in response.text


def test_a_stop_string_that_is_a_special_token_is_known_by_its_id(tiny, engine):
    backend = open_transformers(str(tiny), engine=engine)
    head = backend.model.load().lm_head

    def always(_module, _inputs, output):
        output = output.clone()
        output[..., 0] = 1e4  # <s>, which is not an end of text
        return output

    head.register_forward_hook(always)
    stopped, free = answers(
        backend, [Generate("a", Sampling(5, stop=("<s>",))), Generate("a", Sampling(5))], 2
    )
    assert (stopped.finish, stopped.text, stopped.n_tokens) == (Finish.STOP, "", 0)
    assert (free.finish, free.text, free.n_tokens) == (Finish.LENGTH, "", 5)


def test_a_context_that_fills_up_ends_the_text_and_one_that_is_full_is_an_error(tiny, engine):
    backend = open_transformers(str(tiny), max_length=20, engine=engine)
    room = "a" * 200
    while len(backend.encode(Generate(room, Sampling(1))).ids) > 15:
        room = room[:-1]
    used = len(backend.encode(Generate(room, Sampling(1))).ids)
    short, full, fine = answers(
        backend,
        [Generate(room, Sampling(500)), Generate("a b c " * 20, Sampling(5)), Generate("a", Sampling(2))],
        4,
    )
    assert short.finish is Finish.LENGTH
    assert short.n_tokens == 20 - used
    assert full.finish is Finish.ERROR
    assert "no room to answer" in full.error
    assert fine.finish is not Finish.ERROR


@pytest.mark.parametrize(
    ("sampling", "seed", "what"),
    [
        (Sampling(0), None, "max_tokens"),
        (Sampling(5, temperature=-1.0), 1, "temperature"),
        (Sampling(5, temperature=float("nan")), 1, "temperature"),
        (Sampling(5, temperature=1.0, top_p=0.0), 1, "top_p"),
        (Sampling(5, temperature=1.0, top_k=0), 1, "top_k"),
        (Sampling(5, temperature=1.0), None, "seed"),
        (Sampling(5, stop=("",)), None, "stop string is empty"),
    ],
)
def test_settings_that_make_no_sense_are_errors_that_name_the_setting(backend, sampling, seed, what):
    work = [Work("bad", Generate("a", sampling, seed=seed)), Work("good", Generate("a", Sampling(1)))]
    bad, good = (r for b in backend.run(work, batch_size=2) for r in b.responses)
    assert bad.finish is Finish.ERROR
    assert what in bad.error
    assert good.finish is Finish.LENGTH


def test_logits_that_are_no_numbers_end_their_row_with_an_error(tiny, engine):
    import torch

    backend = open_transformers(str(tiny), engine=engine)
    with torch.no_grad():
        backend.model.load().lm_head.weight[7] = float("nan")
    (response,) = answers(backend, [Generate("a", Sampling(3))], 1)
    assert response.finish is Finish.ERROR
    assert "not finite" in response.error


# ------------------------------------------------------------------------------------------------- one draw
def test_draws_follow_the_softmax():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05])) * 0.7
    sampling = Sampling(1, temperature=0.7)
    counts = np.bincount([draw(logits, sampling, 7, t) for t in range(8000)], minlength=4) / 8000
    assert np.abs(counts - [0.5, 0.3, 0.15, 0.05]).max() < 4 * np.sqrt(0.25 / 8000)


@pytest.mark.parametrize(
    ("kept", "sampling"),
    [
        ({0, 1}, Sampling(1, temperature=1.0, top_k=2)),
        ({0}, Sampling(1, temperature=1.0, top_k=1)),
        ({0, 1}, Sampling(1, temperature=1.0, top_p=0.7)),
        ({0}, Sampling(1, temperature=1.0, top_p=0.5)),
        ({0}, Sampling(1, temperature=1.0, top_p=1e-9)),
        ({0, 1, 2}, Sampling(1, temperature=1.0, top_p=0.9)),
        ({0}, Sampling(1, temperature=1.0, top_k=2, top_p=0.6)),
        ({0, 1, 2, 3}, Sampling(1, temperature=1.0, top_k=99)),
        ({0}, Sampling(1, temperature=1e-300)),
    ],
)
def test_filters_keep_the_likeliest_tokens_only(kept, sampling):
    logits = np.log(np.array([0.55, 0.25, 0.14, 0.06]))
    assert {draw(logits, sampling, 3, t) for t in range(400)} == kept


def test_a_filter_does_not_shift_the_noise_of_the_tokens_it_keeps():
    logits = np.random.default_rng(0).normal(size=50)
    free = [draw(logits, Sampling(1, temperature=1.0), 5, t) for t in range(200)]
    kept = set(np.argsort(-logits)[:30].tolist())
    cut = [draw(logits, Sampling(1, temperature=1.0, top_k=30), 5, t) for t in range(200)]
    assert all(a == b for a, b in zip(free, cut, strict=True) if a in kept)
    assert set(cut) <= kept


def test_tokens_the_model_rules_out_are_never_drawn():
    logits = np.array([-np.inf, 0.0, -np.inf, 0.0])
    assert {draw(logits, Sampling(1, temperature=2.0, top_p=0.99), 1, t) for t in range(60)} == {1, 3}


# ------------------------------------------------------------------------------------------------- the text
@pytest.fixture(scope="session")
def decode(tiny):
    from steelyard.engine.transformers.tokenizer import LocalTokenizer

    return LocalTokenizer(tiny).decode


@settings(max_examples=150, deadline=None)
@given(ids=st.lists(st.integers(0, 419), max_size=40))
def test_text_that_grows_by_tokens_ends_as_the_decoding_of_all(decode, ids):
    stream = TextStream(decode)
    seen = ""
    for token in ids:
        assert not stream.push(token)
        assert stream.text.startswith(seen)
        seen = stream.text
    stream.finish()
    assert stream.text == decode(ids)
    assert stream.kept() <= len(ids)


@settings(max_examples=150, deadline=None)
@given(ids=st.lists(st.integers(2, 419), min_size=3, max_size=25), data=st.data())
def test_a_stop_string_anywhere_ends_the_text_before_it(decode, ids, data):
    text = decode(ids)
    at = data.draw(st.integers(0, max(0, len(text) - 1)))
    stop = text[at : at + data.draw(st.integers(1, 6))]
    if not stop or "\ufffd" in stop:
        return
    stream = TextStream(decode, ["\u2603 not there", stop])
    stopped = any(stream.push(t) for t in ids) or stream.finish()
    assert stopped
    assert stream.text == text[: text.index(stop)]
    kept = stream.kept()
    assert decode(ids[:kept]).startswith(stream.text)


def test_a_character_cut_by_the_limit_shows_as_replacement_and_a_finished_one_as_itself(tiny):
    from steelyard.engine.transformers.tokenizer import LocalTokenizer

    tokenizer = LocalTokenizer(tiny)
    ids = tokenizer.encode("a🙈").ids
    assert ids[0] == tokenizer.encode("a").ids[0]
    assert len(ids) > 2
    stream = TextStream(tokenizer.decode)
    texts = []
    for token in ids:
        stream.push(token)
        texts.append(stream.text)
    assert texts == ["a"] * (len(ids) - 1) + ["a🙈"]
    cut = TextStream(tokenizer.decode)
    for token in ids[:-1]:
        cut.push(token)
    cut.finish()
    assert cut.text == tokenizer.decode(ids[:-1]) == "a\ufffd"


def test_a_model_that_writes_broken_characters_for_ever_is_shown_as_it_is(tiny):
    from steelyard.engine.transformers.tokenizer import LocalTokenizer

    tokenizer = LocalTokenizer(tiny)
    broken = tokenizer.encode("🙈").ids[1]
    stream = TextStream(tokenizer.decode)
    for _ in range(500):
        stream.push(broken)
        assert len(stream._ids) - stream._before <= 130  # what is decoded each time stays bounded
    stream.finish()
    assert stream.text == tokenizer.decode([broken] * 500)


def test_the_earliest_of_several_stop_strings_cuts():
    stream = TextStream(lambda ids: "".join(chr(i) for i in ids), ["cd", "b", "zz"])
    assert [stream.push(ord(c)) for c in "ab"] == [False, True]
    assert (stream.text, stream.kept()) == ("a", 1)
    both = TextStream(lambda ids: "".join("xabcdy" for _ in ids), ["cd", "b"])
    assert both.push(0)
    assert (both.text, both.kept()) == ("xa", 1)


@pytest.mark.model
def test_the_embedded_model_generates_the_same_alone_and_in_company_and_as_the_library(smollm2):
    backend = open_transformers("smollm2", threads=1)
    prompts = [
        "The capital of France is",
        "def fibonacci(n):\n",
        "Q: 2 + 2 =",
        "Once upon a time, in a village by the sea,",
        backend.chat_prompt("What is the capital of Italy?"),
        "1, 2, 3,",
        "The opposite of hot is",
        "Hello",
    ]
    requests = [Generate(p, Sampling(8)) for p in prompts]
    one = answers(backend, requests, 1)
    assert backend.sharing == ""
    assert one == answers(backend, requests, 8)
    assert one == answers(open_transformers("smollm2", threads=1, engine="plain"), requests, 8)
    assert [r.text for r in one[:3]] == [hf_greedy(backend, p, 8) for p in prompts[:3]]
    assert "Paris" in one[0].text
    assert one[4].finish in {Finish.EOS, Finish.LENGTH}
    backend.close()
