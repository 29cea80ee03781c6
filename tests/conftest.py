"""Fixtures that every folder of tests may use: real items where there are any, small models made by the tests."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# how long an example takes says how busy the machine is, nothing else: no test fails for it
settings.register_profile("steelyard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steelyard")

ROOT = Path(__file__).resolve().parent.parent

CORPUS = [
    "The capital of France is Paris. The capital of Italy is Rome.",
    "Question: How many apples are left? Answer: 18 apples are left, so the answer is 18.",
    "def add(a, b):\n    return a + b\n\n\ndef test():\n    assert add(1, 2) == 3\n",
    "naïve café, 你好 世界, emoji 😀😀 and a tab\there. Answer: Answer: Ans wer",
    'She said: "It\'s 10,000 dollars (about 9,000 euros)".\n\nQuestion: why? Answer: because.',
]
CHAT = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_tokenizer(folder: Path, *, bos: bool) -> None:
    """A byte-level BPE over the corpus, as a checkpoint would bring it; `bos` makes it add <s>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)  # the trap of trimmed spans
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "clean_up_tokenization_spaces": False,
    }
    if bos:
        settings["chat_template"] = CHAT
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def make_model(folder: Path, *, seed: int = 0, bos: bool = False, **config: object) -> Path:
    """A random Llama of two layers with its tokenizer; weights large enough that it has opinions."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    # threads cost more than they bring in models of this size, above all where tests run side by side
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, bos=bos)
    settings = {
        "vocab_size": len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 96,
        "initializer_range": 0.25,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": False,
    } | config
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        LlamaForCausalLM(LlamaConfig(**settings)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real benchmark items in the hub's own schema; absent on a user's machine."""
    for candidate in (os.environ.get("STEELYARD_DATA"), ROOT.parent / "shared" / "data"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    pytest.skip("no folder of real benchmark data (STEELYARD_DATA)")


@pytest.fixture(autouse=True)
def cache(request, tmp_path_factory, monkeypatch) -> None:
    """No test writes into the user's cache, except for the embedded model, which is dear to make."""
    if request.node.get_closest_marker("model") is None:
        monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def new_model():
    """`make_model`, for tests that need one of their own."""
    return make_model


@pytest.fixture(scope="session")
def make_tokenizer():
    """`write_tokenizer`, for models of another make."""
    return write_tokenizer


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A checkpoint whose tokenizer adds no BOS."""
    return make_model(tmp_path_factory.mktemp("models") / "step-3000")


@pytest.fixture(scope="session")
def tiny_bos(tmp_path_factory) -> Path:
    """A checkpoint whose tokenizer adds BOS, with a chat template that writes it as text."""
    return make_model(tmp_path_factory.mktemp("models") / "bos", bos=True)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The embedded model's folder; skips where it is neither converted nor installed."""
    from steelyard.core.cache import cache_root
    from steelyard.engine.transformers.embedded import catalog, resolve_embedded

    facts = catalog()["smollm2"]
    made = list((cache_root() / "embedded").glob(f"smollm2-{facts.sha256[:12]}-*/manifest.json"))
    if not made and importlib.util.find_spec(facts.module) is None:
        pytest.skip(f"the embedded model is neither cached nor installed: {facts.command}")
    return resolve_embedded("smollm2")
