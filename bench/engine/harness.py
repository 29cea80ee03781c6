"""The peers: lm-evaluation-harness's ``hf`` model and the library's own ``generate``, on one network of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.engine.clock import timed

from steelyard.core.rng import key
from steelyard.core.types import Generate, Likelihood, Work


@dataclass(frozen=True, slots=True)
class PeerRun:
    """One run of a peer.

    Attributes:
        requests: answered. tokens: fed (scoring, padding apart) or newly made (sampling, up to each end token).
        scores: log-likelihoods in the order of the requests; empty for sampling.
    """

    requests: int
    seconds: float
    tokens: int
    scores: tuple[float, ...] = ()

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    def counters(self) -> dict[str, int]:
        """Requests and tokens."""
        return {"requests": self.requests, "tokens": self.tokens}


class Peers:
    """Both peers on one network in float32, which the engine under test does not share: it may pack its own.

    Args:
        folder: of the checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        import torch
        from lm_eval.models.huggingface import HFLM
        from transformers import AutoModelForCausalLM, AutoTokenizer

        quiet()
        self.net: Any = AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=torch.float32, local_files_only=True
        ).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        self.lm: Any = HFLM(pretrained=self.net, tokenizer=self.tokenizer, backend="causal", batch_size=1)
        self._eos = set(_listed(self.net.generation_config.eos_token_id)) | {self.tokenizer.eos_token_id}

    # ----------------------------------------------------------------------------------------------- scoring
    def score(self, work: Sequence[Work], batch_size: int, tokens: int) -> PeerRun:
        """The harness on requests with the very token ids that our side reads.

        Args:
            work: likelihoods.
            batch_size: of the harness.
            tokens: what it will feed, see `count.fed_by_harness`.
        """
        requests = []
        for one in work:
            assert isinstance(one.request, Likelihood), "a likelihood"
            assert one.tokens is not None, "with its tokens"
            ids, start = list(one.tokens.ids), one.tokens.start
            requests.append(((one.request.context, one.request.continuation), ids[:start], ids[start:]))
        self.lm.batch_size_per_gpu = batch_size
        answers, seconds = timed(lambda: self.lm._loglikelihood_tokens(requests, disable_tqdm=True))  # noqa: SLF001
        return PeerRun(len(work), seconds, tokens, tuple(score for score, _ in answers))

    def score_texts(self, pairs: Sequence[tuple[str, str]], batch_size: int) -> list[float]:
        """The harness on requests that it makes tokens of itself."""
        self.lm.batch_size_per_gpu = batch_size
        instances = [_instance("loglikelihood", pair, i) for i, pair in enumerate(pairs)]
        return [score for score, _ in self.lm.loglikelihood(instances, disable_tqdm=True)]

    def own_tokens(self, context: str, continuation: str) -> tuple[int, ...] | None:
        """The tokens that the harness makes of a request; None where it cannot take it (a blank context)."""
        before, after = self.lm._encode_pair(context, continuation)  # noqa: SLF001
        return (*before, *after) if before else None

    # ---------------------------------------------------------------------------------------------- sampling
    def harness_draws(self, work: Sequence[Work], batch_size: int) -> PeerRun:
        """The harness with every request asked as often as draws are wanted, which is how it repeats."""
        first = work[0].request
        assert isinstance(first, Generate), "draws"
        settings = {
            "max_gen_toks": first.sampling.max_tokens,
            "do_sample": True,
            "temperature": first.sampling.temperature,
            "top_k": 0,  # the library's default of 50 would be another distribution than ours
            "until": [],
        }
        instances = [_instance("generate_until", (_prompt(one), settings), i) for i, one in enumerate(work)]
        self.lm.batch_size_per_gpu = batch_size
        with self._counted() as new:
            _, seconds = timed(lambda: self.lm.generate_until(instances, disable_tqdm=True))
        return PeerRun(len(work), seconds, sum(new))

    def library_draws(
        self, work: Sequence[Work], repeats: int, rows: int, calls: int | None = None
    ) -> PeerRun:
        """The library's ``generate`` with ``num_return_sequences``.

        Args:
            work: draws; the distinct prompts among them are asked.
            repeats: draws wanted per prompt.
            rows: at once, which bounds both prompts and draws of a call.
            calls: stop after so many calls; None makes all.
        """
        import torch

        prompts = list(dict.fromkeys(one.tokens.ids for one in work if one.tokens is not None))
        each, together = min(repeats, rows), max(1, rows // repeats)
        sampling = work[0].request.sampling  # type: ignore[union-attr]
        groups = [prompts[i : i + together] for i in range(0, len(prompts), together)]
        count = 0

        def draw() -> None:
            nonlocal count
            for group in groups[:calls]:
                width = max(map(len, group))
                ids = torch.full((len(group), width), self.tokenizer.pad_token_id or 0)
                mask = torch.zeros((len(group), width), dtype=torch.int64)
                for row, prompt in enumerate(group):
                    ids[row, width - len(prompt) :] = torch.tensor(prompt)
                    mask[row, width - len(prompt) :] = 1
                self.net.generate(
                    input_ids=ids,
                    attention_mask=mask,
                    do_sample=True,
                    temperature=sampling.temperature,
                    top_k=0,
                    max_new_tokens=sampling.max_tokens,
                    num_return_sequences=each,
                    pad_token_id=self.tokenizer.pad_token_id,
                )
                count += len(group) * each

        with self._counted() as new:
            _, seconds = timed(draw)
        return PeerRun(count, seconds, sum(new))

    @contextmanager
    def _counted(self) -> Iterator[list[int]]:
        """Counts the new tokens of each row of every ``generate`` in the block, up to its end token."""
        import torch

        plain: Callable[..., Any] = self.net.generate
        new: list[int] = []

        def generate(*args: Any, **kwargs: Any) -> Any:
            out = plain(*args, **kwargs)
            for row in out[:, kwargs["input_ids"].shape[1] :].tolist():
                end = next((i for i, token in enumerate(row) if token in self._eos), len(row) - 1)
                new.append(end + 1)
            return out

        self.net.generate = generate
        try:
            # the library draws from torch's global stream: fixed inside, and put back afterwards
            with torch.random.fork_rng():
                torch.manual_seed(key(0, "bench", "peer"))
                yield new
        finally:
            del self.net.generate

    def prompt_seconds(self, prompts: Sequence[Sequence[int]]) -> float:
        """Seconds that one prompt of a few takes, read together: the same for any number of rows on a CPU."""
        import torch

        width = min(map(len, prompts))  # cut to one length: padding is not what is timed
        ids = torch.tensor([list(p[:width]) for p in prompts])
        with torch.inference_mode():
            _, seconds = timed(lambda: self.net(input_ids=ids, logits_to_keep=1, use_cache=True))
        return seconds / len(prompts) * sum(map(len, prompts)) / len(prompts) / width

    def step_seconds(self, prompt: Sequence[int], rows: int, steps: int = 8) -> float:
        """Seconds of one further token of so many draws of a prompt, by the library's ``generate``.

        The prompt is read once and its cache copied to the rows, which ``generate`` itself does not do: what a
        step costs is found without reading the prompt in every row.
        """
        import torch

        one = torch.tensor([list(prompt)])
        with torch.inference_mode():
            cache = self.net(input_ids=one[:, :-1], logits_to_keep=1, use_cache=True)[1]
        cache.batch_repeat_interleave(rows)
        ids = one.repeat(rows, 1)
        with self._counted():
            _, seconds = timed(
                lambda: self.net.generate(
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),
                    cache=cache,  # the name since transformers 5.24, which the bench pins
                    do_sample=True,
                    top_k=0,
                    min_new_tokens=steps,
                    max_new_tokens=steps,
                    pad_token_id=self.tokenizer.pad_token_id,
                )
            )
        return seconds / steps


def quiet() -> None:
    """Keeps the libraries' bars and remarks out of the bench's output."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    for name in ("lm_eval", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _prompt(one: Work) -> str:
    assert isinstance(one.request, Generate), "a prompt"
    return one.request.prompt


def _instance(kind: str, arguments: tuple[Any, ...], index: int) -> Any:
    from lm_eval.api.instance import Instance

    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0, metadata=("bench", index, 1))


def _listed(value: Any) -> list[int]:
    return [] if value is None else [value] if isinstance(value, int) else list(value)
