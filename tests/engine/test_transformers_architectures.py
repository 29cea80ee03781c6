"""The same numbers for every kind of position, window and head: nothing here is special to Llama."""

from __future__ import annotations

import pytest

from steelyard.core.types import Generate, Likelihood, Sampling, Work
from steelyard.engine.transformers.backend import open_transformers

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.25,
    "vocab_size": 420,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
GROUPED = {
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
ARCHITECTURES = {
    "learned positions": ("GPT2Config", {"n_positions": 128}),
    "ALiBi": ("BloomConfig", {}),
    "sliding window": ("MistralConfig", GROUPED | {"sliding_window": 8}),
    "soft caps and windows": (
        "Gemma2Config",
        GROUPED | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8},
    ),
    "states, no keys": ("MambaConfig", {"state_size": 8}),
    "states and keys": (
        "JambaConfig",
        GROUPED | {"num_experts": 2, "mamba_d_state": 8, "attn_layer_period": 2, "attn_layer_offset": 1},
    ),
    "two sets of rotations": (
        "Phi3Config",
        GROUPED
        | {
            "original_max_position_embeddings": 12,
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [1.0] * 4,
                "long_factor": [8.0] * 4,
                "original_max_position_embeddings": 12,
                "rope_theta": 10000.0,
                "factor": 5.0,
            },
        },
    ),
    "scaled logits": ("CohereConfig", GROUPED | {"logit_scale": 0.3}),
}
PROMPTS = ["The capital of France is", "Q", "Question: How many apples are left? Answer:", "naïve 你好 😀"]


@pytest.fixture(params=ARCHITECTURES, scope="module")
def backend(request, make_tokenizer, tmp_path_factory):
    import torch
    import transformers

    name, settings = ARCHITECTURES[request.param]
    folder = tmp_path_factory.mktemp("architecture")
    make_tokenizer(folder, bos=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = getattr(transformers, name)(**SMALL, **settings)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    opened = open_transformers(
        str(folder), token_logprobs=True, cache_dir=tmp_path_factory.getbasetemp() / "cache"
    )
    yield opened
    opened.close()


@pytest.mark.parametrize("batch_size", [1, 16])
def test_likelihoods_equal_a_plain_forward(backend, batch_size):
    import torch

    work = {}
    for prompt in PROMPTS:
        for end in (" Paris.", " because 18 apples are left, so it is", "x"):
            request = Likelihood(prompt, end)
            work[prompt + end] = Work(prompt + end, request, backend.encode(request))
    net = backend.model.load()
    responses = [r for b in backend.run(list(work.values()), batch_size=batch_size) for r in b.responses]
    assert len(responses) == len(work)
    for response in responses:
        tokens = work[response.request_id].tokens
        with torch.inference_mode():
            logprobs = net(torch.tensor([tokens.ids]), use_cache=False).logits[0].double().log_softmax(-1)
        for i, got in zip(range(tokens.start, len(tokens.ids)), response.token_logprobs, strict=True):
            assert got == pytest.approx(logprobs[i - 1, tokens.ids[i]].item(), abs=1e-4)


def test_greedy_texts_are_those_of_the_librarys_own_loop_in_any_company(backend):
    import torch

    # limits of their own: rows leave the batch one by one; the last is short, padded, and goes on for long
    limits = {**dict(zip(PROMPTS, (20, 3, 9, 14), strict=True)), "D": 11}
    work = [Work(p, Generate(p, Sampling(n))) for p, n in limits.items()]
    for batch_size in (1, 8):
        got = {r.request_id: r.text for b in backend.run(work, batch_size=batch_size) for r in b.responses}
        for one in work:
            ids = torch.tensor([backend.encode(one.request).ids])
            out = backend.model.load().generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=one.request.sampling.max_tokens,
                do_sample=False,
                pad_token_id=0,
            )
            assert got[one.request_id] == backend.tokenizer.decode(out[0, ids.shape[1] :].tolist())


def test_draws_are_the_same_alone_and_beside_draws_of_other_lengths(backend):
    work = [
        Work(f"{p} {i}", Generate(p, Sampling(5 + 4 * i, temperature=1.0), i, i))
        for p in PROMPTS
        for i in range(3)
    ]
    alone, together = (
        {r.request_id: (r.text, r.error) for b in backend.run(work, batch_size=size) for r in b.responses}
        for size in (1, 16)
    )
    assert alone == together
    assert all(error is None for _, error in alone.values())
