"""Likelihoods by both engines: the right logits, at any batch size, in any order."""

from __future__ import annotations

import math
import random

import pytest

from steelyard.core.ids import request_id
from steelyard.core.types import Finish, Likelihood, Tokens, Work
from steelyard.engine.transformers import together
from steelyard.engine.transformers.backend import open_transformers
from steelyard.engine.transformers.reference import score

CONTEXTS = ["", "Q:", "The capital of France is", "Question: How many apples are left?\nAnswer:", "Ans"]
CONTINUATIONS = [
    " Paris.",
    " 18",
    "wer",
    " because it is naïve, 你好 😀",
    " a",
    "\n\n",
    " the the the the the the",
]


@pytest.fixture(scope="module", params=["shared", "plain"])
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def backend(tiny, engine):
    with_tokens = open_transformers(str(tiny), token_logprobs=True, engine=engine)
    yield with_tokens
    with_tokens.close()


def work_of(backend, pairs) -> list[Work]:
    work = []
    for context, continuation in pairs:
        request = Likelihood(context, continuation)
        tokens = backend.encode(request)
        work.append(Work(request_id(backend.identity, request, tokens), request, tokens))
    return work


def all_work(backend) -> list[Work]:
    work = work_of(backend, [(a, b) for a in CONTEXTS for b in CONTINUATIONS])
    return list({w.request_id: w for w in work}.values())


def answers(backend, work, **kwargs) -> dict:
    batches = list(backend.run(work, **kwargs))
    responses = [r for b in batches for r in b.responses]
    assert len({r.request_id for r in responses}) == len(responses)
    return {r.request_id: r for r in responses}


def plain(net, tokens: Tokens) -> list[float]:
    """One row, no padding, no cache, all in float64 after the logits."""
    import torch

    with torch.inference_mode():
        logits = net(torch.tensor([tokens.ids])).logits[0].double().log_softmax(-1)
    return [logits[i - 1, tokens.ids[i]].item() for i in range(tokens.start, len(tokens.ids))]


def same(got, want: list[float]) -> None:
    assert len(got) == len(want)
    assert max(abs(a - b) for a, b in zip(got, want, strict=True)) < 1e-4


@pytest.mark.parametrize("batch_size", [1, 4, 16, None])
def test_likelihoods_equal_a_plain_forward_at_any_batch_size_and_in_any_order(backend, batch_size):
    work = all_work(backend)
    random.Random(batch_size or 0).shuffle(work)
    got = answers(backend, work, batch_size=batch_size)
    for one in work:
        response = got[one.request_id]
        want = plain(backend.model.load(), one.tokens)
        same(response.token_logprobs, want)
        assert response.logprob == pytest.approx(sum(want), abs=1e-4 * len(want))
        assert response.finish is Finish.SCORED
        assert response.n_tokens == len(want)
        assert response.n_bytes == len(one.request.continuation.encode())
        assert response.text is None


def test_logits_are_read_one_position_before_the_token_they_score(new_model, tmp_path):
    """A model that can be done by hand: it always says "the next token is this one plus one"."""
    import torch

    folder = new_model(tmp_path / "successor", num_hidden_layers=1)
    backend = open_transformers(str(folder), token_logprobs=True)
    net = backend.model.load()
    size = net.config.vocab_size
    with torch.no_grad():
        # no attention, no feed-forward: the state is the token's own embedding, normed to length sqrt(32)
        net.model.layers[0].self_attn.o_proj.weight.zero_()
        net.model.layers[0].mlp.down_proj.weight.zero_()
        net.model.norm.weight.fill_(1.0)
        embeddings = torch.nn.functional.normalize(torch.eye(size, 32) + 0.0, dim=-1)
        net.model.embed_tokens.weight.copy_(embeddings)
        head = torch.zeros(size, 32)
        head[1:32] = torch.eye(32)[:31]  # token i answers to the embedding of token i - 1
        net.lm_head.weight.copy_(head)
    (result,), _ = score(backend.model, [Tokens((3, 4, 5, 6), 1)])
    # the right logit is sqrt(32), all others 0
    right = math.sqrt(32) - math.log(math.exp(math.sqrt(32)) + size - 1)
    same(result.token_logprobs, [right, right, right])
    assert result.greedy
    (result,), _ = score(backend.model, [Tokens((3, 4, 9, 10), 2)])
    same(result.token_logprobs, [-math.log(math.exp(math.sqrt(32)) + size - 1), right])
    assert not result.greedy


def test_greedy_says_whether_every_scored_token_was_the_likeliest(backend):
    import torch

    net = backend.model.load()
    ids = [5, 6, 7]
    with torch.inference_mode():
        for _ in range(3):
            ids.append(net(torch.tensor([ids])).logits[0, -1].argmax().item())
    worst = [*ids[:-1], (ids[-1] + 1) % backend.model.vocabulary]
    results, _ = score(backend.model, [Tokens(tuple(ids), 3), Tokens(tuple(worst), 3), Tokens(tuple(ids), 1)])
    assert [r.greedy for r in results][:2] == [True, False]


def test_work_is_counted_exactly(backend, engine):
    work = work_of(backend, [("The capital", " of"), ("The capital", " of France"), ("Q", ":")])
    lengths = [len(w.tokens.ids) for w in work]
    (batch,) = backend.run(work, batch_size=8)
    assert batch.asked == sum(lengths)
    assert batch.steps == 1
    assert batch.new_tokens == 0
    assert batch.peak_memory > 0
    if engine == "plain":
        # padded rows; every request whole
        assert batch.computed == 3 * max(lengths)
        assert batch.scored == sum(len(w.tokens.ids) - w.tokens.start for w in work)
        assert batch.trie == len({w.tokens.ids[:n] for w in work for n in range(1, len(w.tokens.ids) + 1)})
        assert batch.trie <= batch.asked <= batch.computed
    else:
        # each prefix once, the last token of a request never; logits of one place once
        fed = [w.tokens.ids[:-1] for w in work]
        assert batch.computed == batch.trie == len({ids[:n] for ids in fed for n in range(1, len(ids) + 1)})
        read = {w.tokens.ids[:n] for w in work for n in range(w.tokens.start, len(w.tokens.ids))}
        assert batch.scored == len(read)
        assert batch.computed <= batch.asked


def test_half_done_work_gives_the_same_answers_for_the_rest_and_none_twice(backend):
    work = all_work(backend)
    whole = answers(backend, work, batch_size=4)
    done = {w.request_id for w in random.Random(1).sample(work, len(work) // 2)}
    rest = answers(backend, work, done=done, batch_size=4)
    assert set(rest) == set(whole) - done
    for key, response in rest.items():
        same(response.token_logprobs, list(whole[key].token_logprobs))


def test_after_a_stop_between_batches_the_resumed_run_computes_the_same_batches(backend, engine, monkeypatch):
    # small packs, so that there are some to stop between
    monkeypatch.setattr(together, "budget", lambda _: 12)
    work = all_work(backend)
    whole = list(backend.run(work, batch_size=4))
    assert len(whole) > 5
    calls = iter(range(100))
    first = list(backend.run(work, batch_size=4, cancelled=lambda: next(calls) >= 3))
    assert 0 < len(first) <= 3
    assert (
        engine == "shared" or len(first) == 2
    )  # asked before the first, too; a pack may complete no request
    done = {r.request_id for b in first for r in b.responses}
    shuffled = random.Random(2).sample(work, len(work))
    second = list(backend.run(shuffled, done, batch_size=4))
    got, want = ([r for b in batches for r in b.responses] for batches in (first + second, whole))
    assert sorted(got, key=lambda r: r.request_id) == sorted(
        want, key=lambda r: r.request_id
    )  # to the last bit
    if engine == "plain":
        assert [b.responses for b in first + second] == [b.responses for b in whole]


def test_nothing_to_do_loads_no_weights(tiny, engine):
    backend = open_transformers(str(tiny), engine=engine)
    work = all_work(backend)
    assert list(backend.run(work, {w.request_id for w in work}, batch_size=4)) == []
    assert backend.model._net is None


def test_a_model_that_gives_no_numbers_is_an_error_and_not_a_score(tiny, engine):
    import torch

    backend = open_transformers(str(tiny), engine=engine)
    with torch.no_grad():
        backend.model.load().lm_head.weight[7] = float("nan")
    work = work_of(backend, [("Q", ": a")])
    (response,) = answers(backend, work, batch_size=1).values()
    assert response.finish is Finish.ERROR
    assert "not finite" in response.error
    assert response.logprob is None


@pytest.mark.model
def test_likelihoods_of_the_embedded_model_equal_a_plain_forward(smollm2):
    backend = open_transformers("smollm2", token_logprobs=True, threads=1)
    pairs = [
        ("The capital of France is", " Paris."),
        ("The capital of France is", " Lyon, the second city of the country."),
        ("Question: What is 17 + 25?\nAnswer: 17 + 25 = ", "42"),
        ("", "Once upon a time"),
        ("Ans", "wer: 18"),
    ]
    work = work_of(backend, pairs)
    net = backend.model.load()
    backends = [
        (backend, None),
        (backend, 4),
        (open_transformers("smollm2", token_logprobs=True, engine="plain"), 4),
    ]
    for opened, batch_size in backends:
        got = answers(opened, work[::-1], batch_size=batch_size)
        for one in work:
            same(got[one.request_id].token_logprobs, plain(net, one.tokens))
    paris, lyon = (got[w.request_id].logprob / got[w.request_id].n_tokens for w in work[:2])
    assert paris > lyon
    assert backend.sharing == ""
    for opened, _ in backends:
        opened.close()
