"""Memory: what counts as running out of it, what is free, and what one token of a model takes."""

from __future__ import annotations

import pytest
import torch

from steelyard.engine.transformers import memory
from steelyard.engine.transformers.backend import open_transformers
from steelyard.engine.transformers.memory import available, free_memory, out_of_memory, peak


def test_what_the_cpu_says_when_it_has_no_memory_is_known():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)  # more than any address space
    assert out_of_memory(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory"
        ),
    ],
)
def test_every_device_has_its_own_words_for_it(error):
    assert out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)"),
        RuntimeError("CUDA error: device-side assert triggered"),
        ValueError("out of memory"),
        KeyError("memory"),
    ],
)
def test_other_errors_are_not_taken_for_it(error):
    assert not out_of_memory(error)


def test_free_memory_is_that_of_the_machine_or_of_the_container_whichever_is_less(monkeypatch, tmp_path):
    machine = available("cpu")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert machine is None or machine > 0
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 400000\ninactive_file 250000\nslab 1\n")
    # files that were read once can be dropped, so they are free
    assert available("cpu") == 1_000_000 - 700_000 + 250_000
    (tmp_path / "memory.current").write_text("3000000\n")
    assert available("cpu") == 0


@pytest.mark.parametrize("limit", ["max\n", None, "nonsense\n"])
def test_a_container_without_a_limit_leaves_the_machines_memory(monkeypatch, tmp_path, limit):
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_meminfo", lambda: 12345)
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text("5\n")
        (tmp_path / "memory.stat").write_text("inactive_file 0\n")
    assert available("cpu") == 12345


def test_a_system_that_does_not_tell_gives_none(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_meminfo", lambda: None)
    assert available("cpu") is None
    assert available("mps") is None


def test_the_peak_never_falls_and_freeing_is_harmless():
    before = peak("cpu")
    block = torch.ones(1 << 20)
    assert peak("cpu") >= before > 1 << 20  # bytes, not KiB
    del block
    free_memory()
    assert peak("cpu") >= before


def test_a_token_is_estimated_at_no_less_than_its_logits_its_layers_and_its_keys(tiny):
    backend = open_transformers(str(tiny))
    config = backend.model.load().config
    keys = 2 * config.num_hidden_layers * config.num_key_value_heads * 8
    least = 4 * (config.vocab_size + 4 * config.hidden_size + 2 * config.intermediate_size + keys)
    assert least <= backend.model.bytes_per_token <= 10 * least
    backend.close()
