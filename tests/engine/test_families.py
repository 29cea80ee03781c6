"""Every family of models: prefixes are shared with the numbers of the plain way, or it says why they are not.

All are tiny and random, made from their configuration class, with weights large enough that attention matters, and
windows shorter than the texts.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from steelyard.core.types import Generate, Likelihood, Sampling, Tokens, Work
from steelyard.engine.transformers import together
from steelyard.engine.transformers.backend import open_transformers
from steelyard.engine.transformers.model import LanguageModel

SMALL = {
    "vocab_size": 420,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.25,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
BIG = {"intermediate_size": 64, "max_position_embeddings": 256}
GROUPED = BIG | {"num_key_value_heads": 2}
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    **EXPERTS,
}
CAPPED = {"query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}
SHARED = {
    "Llama, grouped heads": ("LlamaConfig", GROUPED),
    "Llama, rotary angles of Llama 3": (
        "LlamaConfig",
        GROUPED
        | {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "Qwen2": ("Qwen2Config", GROUPED),
    "Qwen2, windows in one layer of two": (
        "Qwen2Config",
        GROUPED | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "Qwen3": ("Qwen3Config", GROUPED | {"head_dim": 8}),
    "Gemma": ("GemmaConfig", GROUPED | {"head_dim": 8}),
    "Gemma 2, soft caps and windows": (
        "Gemma2Config",
        GROUPED | CAPPED | {"head_dim": 8, "sliding_window": 8},
    ),
    "Gemma 3, windows": (
        "Gemma3TextConfig",
        GROUPED
        | {
            "head_dim": 8,
            "sliding_window": 8,
            "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "GPT-2, learned positions": ("GPT2Config", {"n_positions": 256}),
    "GPT-J": ("GPTJConfig", {"rotary_dim": 8, "n_positions": 256}),
    "GPT-NeoX": ("GPTNeoXConfig", BIG),
    "OPT, learned positions": ("OPTConfig", BIG | {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "OLMo": ("OlmoConfig", GROUPED),
    "OLMo 2": ("Olmo2Config", GROUPED),
    "OLMoE": ("OlmoeConfig", GROUPED | EXPERTS),
    "Phi": ("PhiConfig", BIG),
    "Phi 3": ("Phi3Config", GROUPED),
    "Phi 3, a window": ("Phi3Config", GROUPED | {"sliding_window": 8}),
    "Mistral, a window": ("MistralConfig", GROUPED | {"sliding_window": 8}),
    "Mixtral": ("MixtralConfig", GROUPED | EXPERTS),
    "Cohere, scaled logits": ("CohereConfig", GROUPED | {"logit_scale": 0.3}),
    "StableLM": ("StableLmConfig", GROUPED),
    "gpt-oss, sinks and windows": ("GptOssConfig", GROUPED | EXPERTS | {"head_dim": 8, "sliding_window": 8}),
    "DeepSeek-V3, keys wider than values": ("DeepseekV3Config", BIG | LATENT),
}
PLAIN = {
    "BLOOM": ("BloomConfig", {}, "takes no positions"),
    "MPT": ("MptConfig", {"d_model": 32, "n_heads": 4, "n_layers": 2}, "takes no positions"),
    "Falcon": ("FalconConfig", {}, "an attention of its own|attends in a way of its own"),
    "Falcon, ALiBi": ("FalconConfig", {"alibi": True}, "of its own|gives other log-probabilities"),
    "GPT-Neo": (
        "GPTNeoConfig",
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 8},
        "of its own|gives other log-probabilities",
    ),
    "Mamba": ("MambaConfig", {"state_size": 8}, "no attention over all earlier tokens|takes no positions"),
    "RWKV": ("RwkvConfig", {"attention_hidden_size": 32, "context_length": 256}, "takes no positions"),
    "Jamba": (
        "JambaConfig",
        GROUPED | {"num_experts": 2, "mamba_d_state": 8, "attn_layer_period": 2, "attn_layer_offset": 1},
        "no attention over all earlier tokens",
    ),
    "Llama 4, chunks": (
        "Llama4TextConfig",
        GROUPED | EXPERTS | {"head_dim": 8, "attention_chunk_size": 8, "intermediate_size_mlp": 64},
        "chunked_attention",
    ),
    "BERT as a decoder, from both sides": ("BertConfig", BIG, "gives other log-probabilities"),
}


def made(folder, make_tokenizer, name, settings):
    """A checkpoint of a family."""
    import torch
    import transformers

    if not hasattr(transformers, name):
        pytest.skip(f"this release of transformers has no {name}")
    torch.set_num_threads(1)
    make_tokenizer(folder, bos=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = getattr(transformers, name)(**SMALL | settings)
        net = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in net.parameters():
                # what begins at zero (biases, sinks) would hide that it is left out
                if parameter.dim() == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        net.save_pretrained(folder)
    return folder


class Both:
    """A model with both engines."""

    def __init__(self, folder, cache) -> None:
        self.shared, self.plain = (
            open_transformers(str(folder), token_logprobs=True, engine=engine, cache_dir=cache)
            for engine in ("shared", "plain")
        )

    def close(self) -> None:
        self.shared.close()
        self.plain.close()


def pairs(table):
    """A fixture of both engines, one family after the other."""

    @pytest.fixture(params=table, scope="module")
    def family(request, make_tokenizer, tmp_path_factory):
        folder = made(tmp_path_factory.mktemp("family"), make_tokenizer, *table[request.param][:2])
        both = Both(folder, tmp_path_factory.getbasetemp() / "cache")
        yield both
        both.close()

    return family


sharing_family, plain_family = pairs(SHARED), pairs(PLAIN)


@pytest.fixture(autouse=True)
def small_packs(monkeypatch):
    """So small that stems and branches are cut by them."""
    monkeypatch.setattr(together, "budget", lambda _: 24)


def texts(seed: int = 0) -> list[Tokens]:
    """40 to 60 tokens: two stems, one of them the beginning of the other, with branches on branches."""
    dice = random.Random(seed)
    stem = [dice.randrange(2, 400) for _ in range(38)]
    found = []
    for cut in (38, 38, 38, 38, 30, 30):
        tail = [dice.randrange(5, 8) for _ in range(dice.choice([3, 6, 12]))]
        found += [
            Tokens((*stem[:cut], *tail, *end), dice.randrange(20, cut)) for end in ((), (9,), (9, 9, 12))
        ]
    return found


def scored(backend, batch) -> list[np.ndarray]:
    work = [Work(f"{n:02d}", Likelihood("context", "text"), tokens) for n, tokens in enumerate(batch)]
    found = {r.request_id: r for b in backend.run(work, batch_size=None) for r in b.responses}
    assert all(r.error is None for r in found.values())
    return [np.array(found[one.request_id].token_logprobs) for one in work]


def written(backend) -> dict[str, tuple]:
    """Greedy texts of prompts that branch, some longer than the windows, each with a limit of its own."""
    batch = texts(1)
    work = [
        Work(f"{n:02d}", Generate("prompt", Sampling(limit)), Tokens(t.ids, len(t.ids)))
        for n, (t, limit) in enumerate(zip(batch, [1, 14, 6, 20, 11] * 4, strict=False))
    ]
    found = {r.request_id: r for b in backend.run(work, batch_size=None) for r in b.responses}
    return {name: (r.text, r.n_tokens, r.finish, r.error) for name, r in sorted(found.items())}


def apart(one, other) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


def test_shared_prefixes_score_as_the_plain_way_does(sharing_family):
    batch = texts()
    got, want = scored(sharing_family.shared, batch), scored(sharing_family.plain, batch)
    assert sharing_family.shared.sharing == ""
    assert apart(got, want) < 2e-5
    # which would say nothing of a model that hardly looks back
    near = [Tokens((*t.ids[: t.start - 3], 410, *t.ids[t.start - 2 :]), t.start) for t in batch]
    assert apart(scored(sharing_family.plain, near), want) > 0.05


def test_shared_prompts_are_continued_as_the_plain_way_does(sharing_family):
    got = written(sharing_family.shared)
    assert got == written(sharing_family.plain)
    assert len({text for text, *_ in got.values()}) > 4


def test_families_that_cannot_share_say_so_and_score_the_plain_way(plain_family, request):
    batch = texts()
    got = scored(plain_family.shared, batch)
    assert apart(got, scored(plain_family.plain, batch)) == 0
    said = plain_family.shared.sharing
    named = type(plain_family.shared.model.load()).__name__
    assert said.startswith(f"Shared prefixes are computed again for each request: {named} ")
    assert said.endswith(".")
    assert "\n" not in said
    assert len(said) < 300
    assert re.search(PLAIN[request.node.callspec.params["plain_family"]][2], said)


def test_families_that_cannot_share_write_the_plain_way(plain_family, request):
    if request.node.callspec.params["plain_family"].startswith(("RWKV", "BERT")):
        pytest.skip("keeps no cache that rows can be taken from, so it cannot generate")
    assert written(plain_family.shared) == written(plain_family.plain)


# ----------------------------------------------------------------------------- windows wider than what is tried
WIDE = GROUPED | EXPERTS | {"sliding_window": 32}


def test_a_window_that_only_the_librarys_mask_knows_is_found_by_short_texts(make_tokenizer, tmp_path):
    """Phi-3.5-MoE's layers do not hand their window over: beyond it they would attend to everything, silently."""
    both = Both(made(tmp_path, make_tokenizer, "PhimoeConfig", WIDE), tmp_path / "cache")
    batch = texts()
    assert max(len(t.ids) for t in batch) > 40
    assert apart(scored(both.shared, batch), scored(both.plain, batch)) == 0
    assert "PhimoeForCausalLM gives other log-probabilities" in both.shared.sharing


@pytest.mark.parametrize("name", ["MistralConfig", "Gemma2Config"])
def test_a_wide_window_is_as_wide_as_before_once_sharing_has_been_tried(name, make_tokenizer, tmp_path):
    settings = GROUPED | {"sliding_window": 32, "head_dim": 8}
    both = Both(made(tmp_path, make_tokenizer, name, settings), tmp_path / "cache")
    batch = texts()
    assert apart(scored(both.shared, batch), scored(both.plain, batch)) < 2e-5
    assert both.shared.sharing == ""
    net = both.shared.model.load()
    assert net.config.sliding_window == 32
    assert {m.sliding_window for m in net.modules() if getattr(m, "sliding_window", None)} <= {32}


# ---------------------------------------------------------------------------------------------- other lengths
def test_texts_beyond_longropes_edge_are_computed_apart_and_the_others_shared(make_tokenizer, tmp_path):
    rope = {
        "rope_type": "longrope",
        "short_factor": [1.0] * 4,
        "long_factor": [8.0] * 4,
        "original_max_position_embeddings": 45,
        "rope_theta": 10000.0,
        "factor": 5.0,
    }
    settings = GROUPED | {"original_max_position_embeddings": 45, "rope_parameters": rope}
    both = Both(made(tmp_path, make_tokenizer, "Phi3Config", settings), tmp_path / "cache")
    batch = texts()
    beyond = [len(t.ids) > 45 for t in batch]
    assert 3 < sum(beyond) < len(batch) - 3
    got, want = scored(both.shared, batch), scored(both.plain, batch)
    assert both.shared.sharing == ""
    assert apart(got, want) < 2e-5
    assert written(both.shared) == written(both.plain)


@pytest.mark.parametrize("length", [2, 5, 20])
def test_models_with_hardly_any_context_are_tried_with_what_fits(new_model, tmp_path, length):
    both = Both(new_model(tmp_path / "model", max_position_embeddings=length), tmp_path / "cache")
    batch = [Tokens((5, n), 1) for n in range(6, 12)] + [Tokens(tuple(range(length)), 1)]
    assert apart(scored(both.shared, batch), scored(both.plain, batch)) < 1e-5
    assert both.shared.sharing == ""


def test_memory_that_runs_out_during_the_trial_is_no_reason_against_sharing(tiny, monkeypatch):
    import torch

    def full(*args):
        raise torch.OutOfMemoryError("no room")

    backend = open_transformers(str(tiny), token_logprobs=True)
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "pack_logits", full)
        with pytest.raises(Exception, match="no room"):
            scored(backend, texts())
    assert len(scored(backend, texts())) == 18
    assert backend.sharing == ""
    backend.close()


def test_half_precision_shares_within_its_rounding(new_model, tmp_path):
    folder = new_model(tmp_path / "model", max_position_embeddings=256)
    for dtype in ("bfloat16", "float16"):
        one, other = (
            open_transformers(str(folder), token_logprobs=True, engine=engine, dtype=dtype)
            for engine in ("shared", "plain")
        )
        batch = texts()
        got, want = scored(one, batch), scored(other, batch)
        assert one.sharing == ""
        assert 0 < apart(got, want) < 1.0
        assert np.mean([np.abs(a - b).mean() for a, b in zip(got, want, strict=True)]) < 0.1
